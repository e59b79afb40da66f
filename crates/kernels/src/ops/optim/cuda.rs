//! Optimiser updates on CUDA: all parameters in one launch.

use super::{Adam, Sgd, WeightDecay};
use crate::{
    Array, CudaDevice, DType, Device, Error, Result,
    csrc::optim::{MOST, PARTS, PER_BLOCK, REPORTED},
    runtime::cuda::{Args, Buffer, Grid, Kernel, Words},
};
use std::sync::{Mutex, PoisonError};

/// One parameter of a launch.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Item {
    at: [u64; 4],
    count: u64,
    first_block: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Items {
    item: [Item; MOST],
    count: i32,
    pad: i32,
}

/// Calls `launch` with as many parameters at a time as fit, and the number of blocks for them.
fn for_items(
    arrays: &[[Option<&Array>; 4]],
    mut launch: impl FnMut(&Items, usize) -> Result<()>,
) -> Result<()> {
    for group in arrays.chunks(MOST) {
        let empty = Item { at: [0; 4], count: 0, first_block: 0, pad: 0 };
        let mut items = Box::new(Items { item: [empty; MOST], count: 0, pad: 0 });
        let mut blocks = 0;
        for arrays in group {
            let count = arrays[0].map_or(0, Array::elements);
            if count == 0 {
                continue;
            }
            let at = arrays.map(|array| array.map_or(0, Array::cuda_address));
            items.item[items.count as usize] =
                Item { at, count: count as u64, first_block: blocks as u32, pad: 0 };
            items.count += 1;
            blocks += count.div_ceil(PER_BLOCK);
        }
        if blocks > 0 {
            launch(&items, blocks)?;
        }
    }
    Ok(())
}

/// What a step needs to know, kept on the device so that a captured step can be replayed with new numbers.
pub struct StepState {
    device: CudaDevice,
    constants: Buffer,
    /// The constants written last, which need not be written again.
    written: Mutex<Vec<f64>>,
    control: Buffer,
}

/// Numbers of [`StepState`], at most.
const CONSTANTS: usize = 16;
/// Numbers that control an update: whether it is made, the factor of gradients, and the limit of their magnitude after that.
const CONTROL: usize = 3;

impl StepState {
    /// Allocates the constants of one kind of update.
    ///
    /// # Errors
    /// No memory on the device.
    pub fn new(device: &CudaDevice) -> Result<Self> {
        const NAME: &str = "step state";
        let state = Self {
            device: device.clone(),
            constants: Buffer::new(device, CONSTANTS * size_of::<f64>(), NAME)?,
            written: Mutex::default(),
            control: Buffer::new(device, CONTROL * size_of::<f64>(), NAME)?,
        };
        state.control.write(0, bytemuck::cast_slice(&[1.0f64, 1.0, 0.0]), NAME)?;
        state.constants.write(0, bytemuck::cast_slice(&[1.0f64]), NAME)?;
        Ok(state)
    }

    fn set(&self, operation: &'static str, values: &[f64]) -> Result<()> {
        debug_assert!(values.len() <= CONSTANTS);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written != values {
            self.constants.write(0, bytemuck::cast_slice(values), operation)?;
            values.clone_into(&mut written);
        }
        Ok(())
    }

    /// The constants of an Adam step.
    ///
    /// # Errors
    /// From the driver; inside a capture.
    pub fn set_adam(&self, c: &Adam) -> Result<()> {
        let t = c.step as f64;
        let (shrink, l2) = match c.decay {
            WeightDecay::L2 => (1.0, c.weight_decay),
            WeightDecay::Decoupled => (1.0 - c.lr * c.weight_decay, 0.0),
        };
        let step_size = c.lr / (1.0 - c.betas.0.powf(t));
        let root = (1.0 - c.betas.1.powf(t)).sqrt();
        let (b1, b2) = c.betas;
        self.set("adam", &[step_size, root, b1, b2, 1.0 - b1, 1.0 - b2, c.eps, shrink, l2])
    }

    /// The constants of a step of gradient descent.
    ///
    /// # Errors
    /// As [`set_adam`](Self::set_adam).
    pub fn set_sgd(&self, c: &Sgd) -> Result<()> {
        self.set("sgd", &[c.lr, c.momentum, c.weight_decay, f64::from(u8::from(c.step == 1))])
    }

    /// The constants of a moving average.
    ///
    /// # Errors
    /// As [`set_adam`](Self::set_adam).
    pub fn set_ema(&self, decay: f64) -> Result<()> {
        self.set("ema", &[decay, 1.0 - decay])
    }

    /// For a decision: the factor of gradients before they are measured and used, 1 unless set. It is the reciprocal of the loss scale of
    /// the backward pass.
    ///
    /// # Errors
    /// As [`set_adam`](Self::set_adam).
    pub fn set_unscale(&self, factor: f64) -> Result<()> {
        self.set("unscale", &[factor])
    }

    /// For a decision: the limit of the magnitude of each element of the gradients, after they were scaled down to the largest norm. 0, the
    /// default, is no limit.
    ///
    /// # Errors
    /// As [`set_adam`](Self::set_adam).
    pub fn set_clip_value(&self, limit: f64) -> Result<()> {
        self.control.write(2 * size_of::<f64>(), bytemuck::cast_slice(&[limit]), "clip by value")
    }

    /// The device.
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }
}

/// Which update a launch makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Arrays: parameter, gradient, first moment, second moment.
    Adam,
    /// Arrays: parameter, gradient, momentum.
    Sgd,
    /// Arrays: average, parameter.
    Ema,
}

/// Queues one update of all `arrays`, which are contiguous, of one dtype and on the state's device. `decision`, if given, is
/// the state that [`Decision::decide`] wrote: it can call the step off and scales the gradients.
///
/// # Errors
/// An array elsewhere or of another dtype; from the driver.
pub fn update(
    kind: Update,
    state: &StepState,
    decision: Option<&StepState>,
    arrays: &[[Option<&Array>; 4]],
) -> Result<()> {
    let (operation, used) = match kind {
        Update::Adam => ("adam", 4),
        Update::Sgd => ("sgd", 3),
        Update::Ema => ("ema", 2),
    };
    let Some(dtype) = check(operation, state.device(), arrays, used)? else { return Ok(()) };
    if let Some(decision) = decision {
        require_device(operation, "decision", decision.device(), state.device())?;
    }
    let control = decision.map_or(0, |decision| decision.control.pointer());
    // What waits may read the parameters as they were.
    state.device.settle()?;
    for_items(arrays, |items, blocks| {
        let args = Args::new().large(items).pointer(state.constants.pointer()).pointer(control);
        // SAFETY: 1: `check` found all arrays of a parameter contiguous, of one shape, dtype and device; each has its count, and blocks of
        // `PER_BLOCK` elements. 2: the caller gives what it wants to be written in place; each array belongs to one parameter, and threads
        // have elements of their own. 3: 256 threads, as csrc/ops/optim.cu wants. 4: the arrays and both states, which are on one device,
        // are borrowed.
        unsafe {
            state.device.launch(operation, Kernel::new(operation, dtype), Grid::blocks(blocks, 256), args)
        }
    })
}

/// Refuses numbers that are on another device than those of `state`: kernels get their addresses.
fn require_device(
    operation: &'static str,
    argument: &'static str,
    actual: &CudaDevice,
    state: &CudaDevice,
) -> Result<()> {
    let (actual, expected) = (Device::Cuda(actual.clone()), Device::Cuda(state.clone()));
    if actual == expected {
        return Ok(());
    }
    Err(Error::DeviceMismatch { operation, argument, actual, expected })
}

/// The dtype of all arrays, if there are any; refuses what a kernel could not work on.
fn check(
    operation: &'static str,
    device: &CudaDevice,
    arrays: &[[Option<&Array>; 4]],
    used: usize,
) -> Result<Option<DType>> {
    let Some(first) = arrays.first().and_then(|arrays| arrays[0]) else { return Ok(None) };
    first.require_beside(&Device::Cuda(device.clone()), operation, "arrays")?;
    for arrays in arrays {
        let shape = arrays[0].map_or(&[][..], Array::dims);
        for array in &arrays[..used] {
            let Some(array) = array else {
                return Err(Error::Argument {
                    operation,
                    argument: "arrays",
                    actual: "an array is missing".to_owned(),
                    expected: "all arrays of the update",
                });
            };
            // On the device of the first array, which is the state's.
            array.require_like(first, operation, "arrays")?;
            array.require_shape(operation, "arrays", shape, || "it belongs to the parameter".to_owned())?;
            if !array.is_contiguous() {
                let (shape, strides) = (array.shape().clone(), array.strides().to_vec());
                return Err(Error::NotContiguous { operation, shape, strides });
            }
        }
    }
    Ok(Some(first.dtype()))
}

/// Norms of gradients and what follows from them, computed without the host.
pub struct Decision {
    starts: Words,
    partial: Array,
    report: Array,
    gradients: usize,
    elements: usize,
}

/// The outcome of a [`Decision`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The loss.
    pub loss: f64,
    /// The norm of all gradients, unscaled.
    pub norm: f64,
    /// The norm of each.
    pub each: Vec<f64>,
    /// The fraction of elements that are zero.
    pub zeros: f64,
    /// The largest magnitude of an element, unscaled and after clipping by norm: what a limit on elements is compared with.
    pub largest: f64,
}

impl Decision {
    /// For gradients of these sizes.
    ///
    /// # Errors
    /// No memory on the device.
    pub fn new(device: &CudaDevice, sizes: &[usize]) -> Result<Self> {
        const NAME: &str = "gradient norms";
        let mut starts = vec![0u32];
        for size in sizes {
            starts.push(starts[starts.len() - 1] + size.div_ceil(PER_BLOCK) as u32);
        }
        let blocks = starts[sizes.len()] as usize;
        Ok(Self {
            starts: Words::new(device, NAME, &starts)?,
            partial: Array::for_kernel(NAME, [blocks, PARTS], DType::F64, device)?,
            report: Array::for_kernel(NAME, [REPORTED + sizes.len()], DType::F64, device)?,
            gradients: sizes.len(),
            elements: sizes.iter().sum(),
        })
    }

    /// Queues the norms of `gradients` and the decision into `state`, after [`StepState::set_unscale`]: no step if the scalar `loss` or a norm is not finite,
    /// gradients scaled to norm `limit` if there is one and they exceed it.
    ///
    /// # Errors
    /// Gradients of other sizes than those given to [`new`](Self::new); from the driver.
    pub fn decide(
        &self,
        state: &StepState,
        loss: &Array,
        gradients: &[&Array],
        limit: Option<f64>,
    ) -> Result<()> {
        const NAME: &str = "gradient norms";
        let arrays: Vec<_> = gradients.iter().map(|&array| [Some(array), None, None, None]).collect();
        let dtype = check(NAME, state.device(), &arrays, 1)?.unwrap_or(loss.dtype());
        let on = Device::Cuda(state.device().clone());
        loss.require_beside(&on, NAME, "loss")?;
        self.report.require_beside(&on, NAME, "state")?;
        // As many blocks have partial sums as were announced.
        let starts = self.starts.values().windows(2);
        let announced = gradients.len() == self.gradients
            && starts.zip(gradients).all(|(ends, gradient)| {
                (ends[1] - ends[0]) as usize == gradient.elements().div_ceil(PER_BLOCK)
            });
        if !announced || arrays.len() > MOST || loss.elements() != 1 {
            return Err(Error::Argument {
                operation: NAME,
                argument: "gradients",
                actual: format!("{} gradients and a loss of {} elements", gradients.len(), loss.elements()),
                expected: "those announced, at most 640, and a scalar loss",
            });
        }
        for_items(&arrays, |items, blocks| {
            let args = Args::new().large(items).array(&self.partial);
            // SAFETY: 1: `check` as above; there are as many blocks as were announced, with `PARTS` numbers each in `partial`. 2: the partial
            // sums are this decision's own. 3: 256 threads. 4: the gradients are borrowed.
            unsafe {
                state.device.launch(NAME, Kernel::new("squares", dtype), Grid::blocks(blocks, 256), args)
            }
        })?;
        let args = Args::new()
            .array(loss)
            .array(&self.partial)
            .pointer(self.starts.address())
            .size(self.gradients)
            .double(limit.unwrap_or(0.0))
            .pointer(state.constants.pointer())
            .array(&self.report)
            .pointer(state.control.pointer());
        // SAFETY: 1: a scalar loss, and the partial sums and starts of as many gradients as were announced, with `REPORTED` numbers and a
        // norm of each in the report. 2: report and control are written by nothing else in this launch. 3: one block of 256 threads. 4: both
        // states are borrowed; all is on one device, which was compared above.
        unsafe { state.device.launch(NAME, Kernel::new("decide", loss.dtype()), Grid::blocks(1, 256), args) }
    }

    /// Waits for the decision.
    ///
    /// # Errors
    /// Errors of the work queued on the device until then.
    pub fn report(&self) -> Result<Decided> {
        let mut values = self.report.to_vec::<f64>()?;
        let each = values.split_off(REPORTED);
        let zeros = values[2] / self.elements.max(1) as f64;
        Ok(Decided { loss: values[0], norm: values[1], each, zeros, largest: values[3] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_fake_driver::Fake;
    use gradewise_ffi::Driver;

    #[test]
    fn what_a_decision_was_not_made_for_is_refused() {
        let fake = Fake::new();
        let driver = Driver::open(fake.path()).unwrap();
        let [here, there] = [0, 1].map(|ordinal| CudaDevice::with_driver(&driver, ordinal).unwrap());
        let array = |elements: usize, device: &CudaDevice| {
            Array::for_kernel("test", [elements], DType::F32, device).unwrap()
        };
        let decide = |decision: &Decision, state: &StepState, loss: &Array, gradient: &Array| {
            decision.decide(state, loss, &[gradient], None).unwrap_err()
        };
        let (decision, state) = (Decision::new(&here, &[5]).unwrap(), StepState::new(&here).unwrap());
        let (loss, gradient) = (array(1, &here), array(5, &here));
        // More blocks than there is room for partial sums.
        let error = decide(&decision, &state, &loss, &array(PER_BLOCK + 1, &here));
        assert!(matches!(error, Error::Argument { argument: "gradients", .. }), "{error}");
        // As announced it comes to the launch; a build without kernels has none.
        if crate::build_info().kernels == 0 {
            let error = decide(&decision, &state, &loss, &gradient);
            assert!(matches!(error, Error::NoKernel { .. }), "{error}");
        }
        let other = Decision::new(&there, &[5]).unwrap();
        for error in [
            decide(&decision, &state, &array(1, &there), &gradient),
            decide(&other, &state, &loss, &gradient),
            update(
                Update::Ema,
                &state,
                Some(&StepState::new(&there).unwrap()),
                &[[Some(&gradient), Some(&gradient), None, None]],
            )
            .unwrap_err(),
        ] {
            assert!(matches!(error, Error::DeviceMismatch { .. }), "{error}");
        }
    }
}
