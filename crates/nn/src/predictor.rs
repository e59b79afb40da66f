//! Predictions of models that are not trained any more.

use crate::{
    Module, Parameter, Result,
    data::own_copy,
    train::{Batch, Capture},
};
use gradewise_autograd::{Tensor, no_grad};
use gradewise_kernels::{Array, CapturedGraph, CudaDevice, Device, Fusion};

/// The default of [`Predictor::keep`].
const KEPT: usize = 8;

type Forward<M, B> = Box<dyn Fn(&M, &B) -> Result<Tensor> + Send>;

/// A model with the function that predicts with it, for many calls with little time in each.
///
/// No history of the computation is kept. On a CUDA device, the first batch of a shape is computed operator by operator and then recorded
/// as a CUDA graph, which every further batch of that shape replays: one launch instead of hundreds, with bit-identical results. Graphs of
/// several shapes are kept at a time ([`keep`](Self::keep)), each with the memory of one forward pass.
///
/// Precision and other choices of the calling thread, such as `autocast`, are those of the first call with a shape.
///
/// Weights may change between two predictions, in place as a trainer changes them or by [`Parameter::set`]: predictions are always of the
/// current weights.
///
/// ```
/// use gradewise_core::{DType, Signature};
/// use gradewise_kernels::{Array, Device};
/// use gradewise_autograd::Tensor;
/// use gradewise_nn::{Placement, Predictor, layers::{CliffordLayer, Layer}};
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
///
/// let place = Placement::new(&Device::Cpu, DType::F32);
/// let layer = CliffordLayer::new(16, Signature::CL3).init(&place, &mut ChaCha8Rng::seed_from_u64(1))?;
/// let mut predictor = Predictor::new(layer, &place.device, |layer, x: &Tensor| layer.forward(x));
/// for rows in [1, 32, 1] {
///     let x = Tensor::new(Array::ones([8, rows, 16], DType::F32, &Device::Cpu)?);
///     assert_eq!(predictor.predict(&x)?.shape().dims(), [8, rows, 16]);
/// }
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
pub struct Predictor<M, B> {
    model: M,
    device: Device,
    forward: Forward<M, B>,
    capture: Capture,
    keep: usize,
    /// The graphs, in the order of their last use.
    prepared: Vec<Prepared<B>>,
}

/// A captured forward pass.
struct Prepared<B> {
    graph: CapturedGraph,
    /// The batch that the graph reads.
    input: B,
    /// The array that the graph writes.
    output: Array,
    /// The parameters, with the arrays that the graph reads.
    parameters: Vec<(Parameter, Array)>,
}

impl<M: Module, B: Batch> Predictor<M, B> {
    /// Predictions by `forward` on `device`, where the model's parameters are. `forward` is called with batches on that device, and must
    /// depend on the model, the batch and constants alone: on a CUDA device it is not called again for a shape that it has seen.
    pub fn new(
        model: M,
        device: &Device,
        forward: impl Fn(&M, &B) -> Result<Tensor> + Send + 'static,
    ) -> Self {
        Self {
            model,
            device: device.clone(),
            forward: Box::new(forward),
            capture: Capture::default(),
            keep: KEPT,
            prepared: Vec::new(),
        }
    }

    /// Whether forward passes are recorded as CUDA graphs; [`Capture::WhenPossible`] by default. Does nothing on the CPU.
    #[must_use]
    pub fn capture(mut self, capture: Capture) -> Self {
        self.capture = capture;
        self
    }

    /// The number of shapes whose graphs are kept, 8 by default. The graph of the shape that was not seen for longest goes first.
    #[must_use]
    pub fn keep(mut self, shapes: usize) -> Self {
        self.keep = shapes;
        self
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Lets the graphs go, and returns the model.
    pub fn into_model(self) -> M {
        self.model
    }

    /// The number of graphs that are kept now.
    pub fn captured(&self) -> usize {
        self.prepared.len()
    }

    /// The prediction for a batch, which may be on the host. Later calls do not change it. On a CUDA device it may still be under way;
    /// reading it waits for it.
    ///
    /// # Errors
    /// Those of the function; with [`Capture::Required`], a function that cannot be captured, for instance because it reads a result on
    /// the host; from the device.
    pub fn predict(&mut self, batch: &B) -> Result<Array> {
        let cuda = match &self.device {
            Device::Cuda(cuda) if self.capture != Capture::Off && self.keep > 0 => cuda.clone(),
            _ => return self.eager(&batch.to_device(&self.device)?),
        };
        if let Some(output) = self.replay(batch)? {
            return Ok(output);
        }
        let input = own_copy(batch, &self.device)?;
        // The output of a function like the identity shares the storage of the input, which later batches overwrite.
        let output = self.eager(&input)?.copy()?;
        match self.record(&cuda, input) {
            Err(error) if self.capture == Capture::WhenPossible => {
                tracing::warn!("predictions are not captured, and take longer: {error}");
                self.capture = Capture::Off;
            }
            recorded => recorded?,
        }
        Ok(output)
    }

    fn eager(&self, batch: &B) -> Result<Array> {
        Ok(no_grad(|| (self.forward)(&self.model, batch))?.array().clone())
    }

    /// The prediction by a graph that exists; `None` if there is none for this batch.
    fn replay(&mut self, batch: &B) -> Result<Option<Array>> {
        self.prepared.retain(Prepared::is_current);
        for position in (0..self.prepared.len()).rev() {
            if !self.prepared[position].input.overwrite(batch)? {
                continue;
            }
            let prepared = self.prepared.remove(position);
            self.prepared.push(prepared);
            let Some(Prepared { graph, output, .. }) = self.prepared.last() else { break };
            graph.replay()?;
            // The next replay writes into the same memory.
            return Ok(Some(output.copy()?));
        }
        Ok(None)
    }

    /// Records a forward pass that reads `input`.
    fn record(&mut self, device: &CudaDevice, input: B) -> Result<()> {
        let parameters: Vec<_> =
            self.model.parameters().into_iter().map(|p| (p.clone(), p.array())).collect();
        // The capture can only return the kernels' error type, so this crate's error is passed in a variable.
        let mut found = None;
        let captured = device.capture_with(Fusion::On, || {
            found = Some(self.eager(&input));
            Ok(())
        });
        let Some(output) = found.transpose()? else {
            captured?;
            return Ok(());
        };
        let ((), graph) = captured?;
        if self.prepared.len() == self.keep {
            self.prepared.remove(0);
        }
        self.prepared.push(Prepared { graph, input, output, parameters });
        Ok(())
    }
}

impl<B> Prepared<B> {
    /// Whether no parameter was replaced since the capture.
    fn is_current(&self) -> bool {
        self.parameters.iter().all(|(parameter, array)| array.shares_storage(&parameter.array()))
    }
}
