//! Operations from kernels of the user's: a kernel in CUDA C++, a reference to compare it with, gradients, and tests, from one builder.
//!
//! The reference is written in differentiable operations. It is what runs on the CPU, what second derivatives are taken of, what
//! [`check`](CustomOp::check) compares the kernel with, and where there is no backward kernel it gives the gradients, too.

use crate::{
    Attributes, BackwardContext, BackwardOptions, Cost, Derivative, Error, Forward, GradcheckOptions,
    Operand, Result, Rule, Tensor, Traffic, grad, gradcheck, gradgradcheck,
    operation::{constants, reexpressed},
    registry,
    tensor::Body,
};
use gradewise_core::DType;
use gradewise_kernels::{
    Array, CudaDevice, Device,
    custom::{CudaKernel, Elements, Size},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{collections::BTreeMap, fmt, sync::Arc};

type Reference = dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync;

/// An operation from kernels of the user's.
///
/// See `docs/custom-kernels.md` for one from its source to its tests.
#[derive(Clone)]
pub struct CustomOp(Arc<Inner>);

struct Inner {
    name: &'static str,
    forward: CudaKernel,
    backward: Option<CudaKernel>,
    reference: Box<Reference>,
    scalars: Vec<f64>,
}

/// The parts of a [`CustomOp`] that is being built.
pub struct CustomOpBuilder(Inner);

/// Where an input of the backward kernel comes from.
#[derive(Clone, Copy)]
enum Origin {
    Input(usize),
    Output(usize),
    Gradient,
}

impl CustomOp {
    /// An operation `name` whose forward pass is a kernel. Its first output is that of the operation, others are kept for the backward
    /// pass. `reference` is the same function in differentiable operations.
    pub fn builder(
        name: &'static str,
        forward: CudaKernel,
        reference: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> CustomOpBuilder {
        let reference = Box::new(reference);
        CustomOpBuilder(Inner { name, forward, backward: None, reference, scalars: Vec::new() })
    }

    /// The operation's name.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// The operation of these inputs: by its kernel on a CUDA device, by the reference on the CPU.
    ///
    /// # Errors
    /// Inputs that the kernel's signature does not take; from the compiler, the device or the reference.
    pub fn apply(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Tensor::run(Arc::new(self.clone()), inputs)
    }

    /// Compiles and loads the kernels for every dtype that they serve, so that the first call does not wait for that.
    ///
    /// # Errors
    /// From the compiler or the device.
    pub fn warm_up(&self, device: &CudaDevice) -> Result<()> {
        for kernel in std::iter::once(&self.0.forward).chain(&self.0.backward) {
            kernel.dtypes().into_iter().try_for_each(|dtype| kernel.warm_up(device, dtype))?;
        }
        Ok(())
    }

    /// The inputs of the backward kernel, by the names of its parameters.
    fn origins(&self) -> Vec<Origin> {
        let Some(backward) = &self.0.backward else { return Vec::new() };
        backward.signature().inputs().filter_map(|(name, ..)| self.0.origin(name)).collect()
    }
}

impl Inner {
    fn origin(&self, name: &str) -> Option<Origin> {
        let forward = self.forward.signature();
        if let Some(index) = forward.inputs().position(|(input, ..)| input == name) {
            return Some(Origin::Input(index));
        }
        if let Some(index) = forward.outputs().position(|(output, ..)| output == name) {
            return Some(Origin::Output(index));
        }
        let output = forward.outputs().next().map(|(output, ..)| output)?;
        (name.strip_prefix("grad_") == Some(output)).then_some(Origin::Gradient)
    }

    /// The input whose gradient an output of the backward kernel is.
    fn target(&self, name: &str) -> Option<usize> {
        let input = name.strip_prefix("grad_")?;
        self.forward.signature().inputs().position(|(name, ..)| name == input)
    }
}

impl CustomOpBuilder {
    /// Gradients by a kernel. Its parameters are found by their names: inputs and outputs of the forward kernel by theirs, the gradient of
    /// the output `y` as `grad_y`; it writes the gradient of the input `x` as `grad_x`. Gradients that it does not write are those of
    /// the reference.
    #[must_use]
    pub fn backward(mut self, kernel: CudaKernel) -> Self {
        self.0.backward = Some(kernel);
        self
    }

    /// The values of the scalars of the kernels' signatures, other than sizes of inputs, in order. Both kernels get the same.
    #[must_use]
    pub fn scalars(mut self, values: &[f64]) -> Self {
        self.0.scalars = values.to_vec();
        self
    }

    /// The operation, whose name can be chosen from now on as any other's ([`backend`](crate::backend)).
    ///
    /// # Errors
    /// Parameters of the backward kernel with unknown names; another number of scalars.
    pub fn build(self) -> Result<CustomOp> {
        let inner = self.0;
        let refuse = |message: String| Err(Error::Argument { operation: inner.name, message });
        for kernel in std::iter::once(&inner.forward).chain(&inner.backward) {
            let signature = kernel.signature();
            let expected: Vec<&str> = signature.scalars().map(|parameter| parameter.name.as_str()).collect();
            if expected.len() != inner.scalars.len() {
                return refuse(format!(
                    "{} scalars were given, and `{}` takes {} ({})",
                    inner.scalars.len(),
                    signature.name,
                    expected.len(),
                    expected.join(", ")
                ));
            }
        }
        if let Some(backward) = &inner.backward {
            let signature = backward.signature();
            if let Some((name, ..)) = signature.inputs().find(|(name, ..)| inner.origin(name).is_none()) {
                return refuse(format!(
                    "`{name}` of the backward kernel is no input or output of the forward kernel, nor grad_ of its output"
                ));
            }
            if let Some((name, ..)) = signature.outputs().find(|(name, ..)| inner.target(name).is_none()) {
                return refuse(format!(
                    "`{name}` of the backward kernel is not grad_ of an input of the forward kernel"
                ));
            }
        }
        let op = CustomOp(Arc::new(inner));
        let again = op.clone();
        registry::register_custom(op.name(), move |_, inputs| again.apply(inputs))?;
        Ok(op)
    }
}

/// The attributes that records keep.
#[derive(serde::Serialize)]
struct Scalars<'a> {
    scalars: &'a [f64],
}

impl Body for CustomOp {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn attributes(&self) -> Result<Attributes> {
        Attributes::of(self.0.name, &Scalars { scalars: &self.0.scalars })
    }

    fn rule(&self) -> Rule {
        Rule::Full
    }

    fn operands(&self) -> &[Operand] {
        &[]
    }

    fn arity(&self) -> (usize, usize) {
        let inputs = self.0.forward.signature().inputs().count();
        (inputs, inputs)
    }

    fn derivative(&self) -> Derivative {
        Derivative::Reexpressed
    }

    fn traffic(&self) -> Traffic {
        Traffic::Whole
    }

    fn shows_input(&self) -> bool {
        false
    }

    fn cost(&self, _: &[&[usize]]) -> Cost {
        Cost::default()
    }

    fn serves(&self, inputs: &[Array]) -> bool {
        inputs.first().is_none_or(|input| matches!(input.device(), Device::Cuda(_)))
    }

    fn output_dtype(&self, inputs: &[DType], computed: DType) -> DType {
        inputs.first().copied().unwrap_or(computed)
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        if !self.serves(inputs) {
            return reexpressed(|inputs| (self.0.reference)(inputs), inputs);
        }
        let inputs = inputs.iter().map(Array::contiguous).collect::<Result<Vec<_>, _>>()?;
        let mut outputs = self.0.forward.launch(&inputs.iter().collect::<Vec<_>>(), &self.0.scalars)?;
        let saved = outputs.split_off(1);
        match outputs.pop() {
            Some(output) => Ok(Forward { output, saved }),
            None => Err(Error::Argument { operation: self.name(), message: "no output".to_owned() }),
        }
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(constants(self.gradients(context, grad.array())?))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        (self.0.reference)(inputs)
    }
}

impl CustomOp {
    /// The gradients by the backward kernel; those that it does not write, by the reference.
    fn gradients(&self, context: &BackwardContext<'_>, arriving: &Array) -> Result<Vec<Option<Array>>> {
        let mut gradients: Vec<Option<Array>> = vec![None; context.inputs.len()];
        if let Some(backward) = &self.0.backward {
            let operand = |origin| match origin {
                Origin::Input(index) => context.inputs[index].array().contiguous(),
                Origin::Output(0) => context.output.array().contiguous(),
                Origin::Output(index) => context.saved[index - 1].contiguous(),
                Origin::Gradient => arriving.contiguous(),
            };
            let operands = self.origins().into_iter().map(operand).collect::<Result<Vec<_>, _>>()?;
            let found = backward.launch(&operands.iter().collect::<Vec<_>>(), &self.0.scalars)?;
            for ((name, ..), gradient) in backward.signature().outputs().zip(found) {
                if let Some(index) = self.0.target(name) {
                    gradients[index] = Some(gradient);
                }
            }
        }
        let missing: Vec<usize> = (0..gradients.len())
            .filter(|&index| context.needs(index) && gradients[index].is_none())
            .collect();
        if !missing.is_empty() {
            let leaves: Vec<Tensor> = context.inputs.iter().map(|input| input.requires_grad()).collect();
            let wanted: Vec<&Tensor> = missing.iter().map(|&index| &leaves[index]).collect();
            let seed = BackwardOptions::seed(Tensor::new(arriving.clone()));
            let found = crate::mode::with_mode(true, || grad(&(self.0.reference)(&leaves)?, &wanted, &seed))?;
            for (index, gradient) in missing.into_iter().zip(found) {
                gradients[index] = gradient.map(|gradient| gradient.array().clone());
            }
        }
        Ok(gradients)
    }
}

/// What [`CustomOp::check`] tries.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Sizes of axes: each axis takes each of them, next to others of the list.
    pub sizes: Vec<usize>,
    /// What the tolerances of the dtypes are multiplied by: 1e-12 for f64, 1e-6 for f32, 1e-2 for bf16, 2e-3 for f16.
    pub tolerance: f64,
    /// Called on the random inputs before they are used: to keep them where the function is smooth.
    pub prepare: fn(&Array) -> Result<Array>,
    /// Seed of the inputs.
    pub seed: u64,
}

impl Default for CheckOptions {
    /// Sizes 0, 1, 2, and around those of warps and blocks.
    fn default() -> Self {
        Self {
            sizes: vec![0, 1, 2, 31, 32, 33, 257],
            tolerance: 1.0,
            prepare: |array| Ok(array.clone()),
            seed: 0,
        }
    }
}

/// What [`CustomOp::check`] found to agree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    /// Outputs and gradients that were compared with the reference.
    pub compared: usize,
    /// The largest error, in units of its tolerance, and what had it.
    pub worst: Option<(f64, String)>,
    /// Elements of gradients that agree with finite differences.
    pub differences: usize,
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} results agree with the reference, {} slopes with differences",
            self.compared, self.differences
        )?;
        match &self.worst {
            Some((share, what)) => write!(f, "; the furthest, {what}, has {share:.2} of its tolerance"),
            None => Ok(()),
        }
    }
}

impl CustomOp {
    /// Tests the operation on a device: outputs and gradients against the reference in double precision, in every dtype that the kernel
    /// serves and at sizes around those of warps and blocks; the reference's first and second derivatives against finite
    /// differences, as are the kernel's where it serves `f64`.
    ///
    /// # Errors
    /// [`Error::Argument`] naming what disagrees: dtype, shapes, output or gradient, error and tolerance; from the operation.
    pub fn check(&self, device: &Device, options: &CheckOptions) -> Result<CheckReport> {
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
        let mut report = CheckReport::default();
        let signature = self.0.forward.signature();
        let dtypes = match device {
            Device::Cuda(_) => self.0.forward.dtypes(),
            Device::Cpu => vec![DType::F64, DType::F32],
        };
        for dtype in dtypes {
            for turn in 0..options.sizes.len() {
                let inputs = self.inputs(&signature.axes(), dtype, (turn, options), &mut rng)?;
                self.compare(device, dtype, &inputs, options, &mut report)?;
            }
        }
        // Small, and with every axis of another size.
        let small = CheckOptions { sizes: vec![3, 2, 4, 5], ..options.clone() };
        let inputs = self.inputs(&signature.axes(), DType::F64, (0, &small), &mut rng)?;
        let inputs: Vec<Tensor> = inputs.into_iter().map(Tensor::new).collect();
        let check = GradcheckOptions::default();
        let references: Vec<&Tensor> = inputs.iter().collect();
        report.differences += gradcheck(&references, &check, |x| (self.0.reference)(x))?.checked;
        report.differences += gradgradcheck(&references, &check, |x| (self.0.reference)(x))?.checked;
        if *device != Device::Cpu && self.0.forward.dtypes().contains(&DType::F64) {
            let inputs = inputs
                .iter()
                .map(|x| Ok(Tensor::new(x.array().to_device(device)?)))
                .collect::<Result<Vec<_>>>()?;
            let references: Vec<&Tensor> = inputs.iter().collect();
            report.differences +=
                gradcheck(&references, &check, |x| self.apply(&x.iter().collect::<Vec<_>>()))?.checked;
        }
        Ok(report)
    }

    /// Random inputs on the host, in `f64` but with values that `dtype` has.
    fn inputs(
        &self,
        axes: &[&str],
        dtype: DType,
        (turn, options): (usize, &CheckOptions),
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<Array>> {
        let sizes: BTreeMap<&str, usize> = axes
            .iter()
            .enumerate()
            .map(|(at, &axis)| (axis, options.sizes[(turn + at) % options.sizes.len()]))
            .collect();
        let size = |size: &Size| match size {
            Size::Is(number) => *number,
            Size::Called(name) => sizes.get(name.as_str()).copied().unwrap_or(1),
        };
        let make = |(_, elements, shape): (&str, Elements, &[Size])| {
            let dtype = match elements {
                Elements::Of(dtype) => dtype,
                Elements::Generic => dtype,
            };
            let shape: Vec<usize> = shape.iter().map(size).collect();
            let values = (options.prepare)(&Array::randn(shape, DType::F64, &Device::Cpu, rng)?)?;
            Ok(values.cast(dtype)?.cast(DType::F64)?)
        };
        self.0.forward.signature().inputs().map(make).collect()
    }

    fn compare(
        &self,
        device: &Device,
        dtype: DType,
        inputs: &[Array],
        options: &CheckOptions,
        report: &mut CheckReport,
    ) -> Result<()> {
        let elements: Vec<Elements> =
            self.0.forward.signature().inputs().map(|(_, elements, _)| elements).collect();
        let own = |index: usize| match elements[index] {
            Elements::Of(own) if *device != Device::Cpu => own,
            _ => dtype,
        };
        let leaves: Vec<Tensor> = inputs.iter().map(|x| Tensor::new(x.clone()).requires_grad()).collect();
        let tested = inputs
            .iter()
            .enumerate()
            .map(|(index, x)| Ok(Tensor::new(x.cast(own(index))?.to_device(device)?).requires_grad()))
            .collect::<Result<Vec<_>>>()?;
        let expected = (self.0.reference)(&leaves)?;
        let output = self.apply(&tested.iter().collect::<Vec<_>>())?;
        let context = || {
            let shapes: Vec<String> = inputs.iter().map(|x| x.shape().to_string()).collect();
            format!("{dtype} on {device}, inputs of shapes {}", shapes.join(" "))
        };
        let mut judge = |what: &str, actual: &Tensor, expected: &Tensor| -> Result<()> {
            if actual.shape() != expected.shape() {
                let message = format!(
                    "{}: {what} has shape {}, the reference {}",
                    context(),
                    actual.shape(),
                    expected.shape()
                );
                return Err(Error::Argument { operation: self.name(), message });
            }
            let tolerance = options.tolerance * tolerance(actual.dtype());
            let error = relative_error(&actual.array().to_f64_vec()?, &expected.array().to_f64_vec()?);
            if error.is_nan() || error > tolerance {
                let message =
                    format!("{}: {what} is {error:.1e} from the reference, past {tolerance:.1e}", context());
                return Err(Error::Argument { operation: self.name(), message });
            }
            report.compared += 1;
            let share = error / tolerance;
            if report.worst.as_ref().is_none_or(|(worst, _)| share > *worst) {
                report.worst = Some((share, format!("{what} in {}", context())));
            }
            Ok(())
        };
        judge("the output", &output, &expected)?;
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed.wrapping_add(1));
        let seed =
            Array::randn(expected.shape(), DType::F64, &Device::Cpu, &mut rng)?.cast(output.dtype())?;
        let slopes = |output: &Tensor, leaves: &[Tensor], seed: Array| {
            grad(output, &leaves.iter().collect::<Vec<_>>(), &BackwardOptions::seed(Tensor::new(seed)))
        };
        let right = slopes(&expected, &leaves, seed.cast(DType::F64)?)?;
        let found = slopes(&output, &tested, seed.to_device(device)?)?;
        let names = self.0.forward.signature().inputs().map(|(name, ..)| name);
        for ((name, right), found) in names.zip(right).zip(found) {
            match (right, found) {
                (Some(right), Some(found)) => judge(&format!("the gradient of `{name}`"), &found, &right)?,
                (None, None) => {}
                (right, _) => {
                    let who = if right.is_some() { "reference" } else { "kernel" };
                    let message = format!("{}: only the {who} has a gradient of `{name}`", context());
                    return Err(Error::Argument { operation: self.name(), message });
                }
            }
        }
        Ok(())
    }
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-6,
        DType::BF16 => 1e-2,
        DType::F16 => 2e-3,
    }
}

fn relative_error(actual: &[f64], expected: &[f64]) -> f64 {
    let difference: f64 = actual.iter().zip(expected).map(|(a, b)| (a - b) * (a - b)).sum();
    let scale: f64 = expected.iter().map(|b| b * b).sum();
    if scale == 0.0 { difference.sqrt() } else { (difference / scale).sqrt() }
}
