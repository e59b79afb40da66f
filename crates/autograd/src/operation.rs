//! The operation: one trait that carries all that is known of it, and how it runs.

use crate::{
    Attributes, Axis, BackwardContext, Cost, Derivative, Error, Formula, Forward, Input, Operand, Result,
    Rule, Sample, SavedArray, Sizes, Tensor, Traffic, backend, mode, observe, operand,
    policy::{self, current_policy},
    tensor::{Body, Saved},
    trace,
};
use gradewise_core::DType;
use gradewise_kernels::Array;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use smallvec::SmallVec;
use std::sync::Arc;

/// An operation on tensors. The struct's fields are its attributes; everything else that is known of it is here, so that
/// gradient checks, mixed precision, records, profiles, comparisons between devices and benchmarks find it in one place.
///
/// An operation that is in a list of [`registry::Entry`](crate::registry::Entry)s, as all operations of this crate are, is
/// checked by every test that goes over the registry. [`Tensor::apply`] runs one whether it is in a list or not.
///
/// ```
/// use gradewise_autograd::{
///     BackwardContext, Derivative, Forward, Input, Operation, Result, Rule, Sample, Sizes, Tensor,
///     registry::{self, Order},
/// };
/// use gradewise_kernels::{Array, DType, Device, ops};
/// use serde::{Deserialize, Serialize};
///
/// /// x³.
/// #[derive(Serialize, Deserialize)]
/// struct Cube;
///
/// impl Operation for Cube {
///     const NAME: &'static str = "cube";
///     const RULE: Rule = Rule::Full;
///     const DERIVATIVE: Derivative = Derivative::Differentiable;
///
///     fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
///         Ok(vec![Sample::new(Cube, [Input::normal([sizes.batch, sizes.features])])])
///     }
///
///     fn forward(&self, inputs: &[Array]) -> Result<Forward> {
///         Ok(ops::mul(&ops::square(&inputs[0])?, &inputs[0])?.into())
///     }
///
///     fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(grad.mul(&context.inputs[0].square()?.mul_scalar(3.0)?)?)])
///     }
/// }
///
/// let x = Tensor::from_slice(&[2.0f64], [1], &Device::Cpu)?.requires_grad();
/// let y = Tensor::apply(Cube, &[&x])?;
/// assert_eq!(y.sum_all()?.backward()?.get(&x)?.item()?, 12.0);
/// // First and second derivatives of its samples against central differences.
/// let (cube, sizes) = (registry::Entry::of::<Cube>(), Sizes::new("3,0,0".parse()?, 3, 2)?);
/// assert_eq!(cube.check(&Device::Cpu, &sizes, Order::First, &Default::default())?, 6);
/// assert!(cube.check(&Device::Cpu, &sizes, Order::Second, &Default::default())? > 0);
/// # Ok::<(), gradewise_autograd::Error>(())
/// ```
pub trait Operation: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// The name in errors, choices of backends and precision, records and profiles.
    const NAME: &'static str;

    /// What [`autocast`](crate::autocast()) does with its inputs.
    const RULE: Rule;

    /// How its gradient is differentiated. A rule that runs kernels and claims to be
    /// [`Differentiable`](Derivative::Differentiable) fails the check of second derivatives.
    const DERIVATIVE: Derivative;

    /// Its inputs, in order.
    const OPERANDS: &'static [Operand] = &[Operand::array("x")];

    /// What its forward pass may leave for its backward pass, in order; [`saved_axes`](Self::saved_axes) tells what there is.
    const SAVED: &'static [SavedArray] = &[];

    /// What it reads.
    const TRAFFIC: Traffic = Traffic::Whole;

    /// Whether the output shows the first input's elements, as views, conversions and copies do.
    const SHOWS_INPUT: bool = matches!(Self::TRAFFIC, Traffic::View);

    /// Whether it multiplies matrices, for which reduced-precision products (TF32) have tolerances of their own.
    const HAS_MATRIX_PRODUCTS: bool = false;

    /// The operation with attributes and inputs to try it on, at these sizes: one sample for each of its variants.
    ///
    /// # Errors
    /// Attributes that cannot be made.
    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>>;

    /// The sizes of the output in terms of the inputs, for front ends that trace programs before they know sizes; `None` unless implemented.
    fn output_axes(&self) -> Option<Vec<Axis>> {
        None
    }

    /// For each array of [`SAVED`](Self::SAVED), its sizes, or `None` where these attributes save none.
    fn saved_axes(&self) -> Vec<Option<Vec<Axis>>> {
        Vec::new()
    }

    /// Whether the backward pass reads the output, so that nobody may change it in place before.
    fn reads_output(&self) -> bool {
        false
    }

    /// The output, and arrays that the backward pass reads again. There are as many inputs as [`OPERANDS`](Self::OPERANDS) say. What else
    /// the operation reads (indices, masks) follows the inputs to their device.
    ///
    /// # Errors
    /// Whatever the operation refuses.
    fn forward(&self, inputs: &[Array]) -> Result<Forward>;

    /// One gradient for each input, of its shape, dtype and device; `None` where there is none or none is needed.
    ///
    /// # Errors
    /// Whatever the operation refuses.
    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>>;

    /// The same function of `inputs` in differentiable operations: what second derivatives are taken of, and what the backward
    /// kernel is compared with.
    ///
    /// # Errors
    /// [`Error::NotTwiceDifferentiable`] unless implemented.
    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let _ = inputs;
        Err(Error::NotTwiceDifferentiable { operation: Self::NAME })
    }

    /// Whether there are kernels for these inputs: their device, dtype and sizes. Where there are none,
    /// [`reexpress`](Self::reexpress) takes the place of [`forward`](Self::forward) and [`backward`](Self::backward).
    fn serves(&self, inputs: &[Array]) -> bool {
        let _ = inputs;
        true
    }

    /// The dtype of the output for inputs of these dtypes, where `computed` is that of the output for inputs in `f32`: that of the first
    /// input unless implemented.
    fn output_dtype(&self, inputs: &[DType], computed: DType) -> DType {
        inputs.first().copied().unwrap_or(computed)
    }

    /// The output as loops over scalar formulas, for inputs and an output of these sizes: what programs in other languages are written from
    /// ([`program::record`](crate::program::record)). Without one, the re-expression takes its place. Views need none.
    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        let _ = (inputs, output);
        None
    }

    /// Its arithmetic for inputs of these sizes; nothing unless implemented, so that the floor of its time is that of its bytes.
    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let _ = inputs;
        Cost::default()
    }
}

/// An operation as the history of a tensor refers to it.
pub(crate) struct Erased<O>(pub O);

impl<O: Operation> Body for Erased<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn attributes(&self) -> Result<Attributes> {
        Attributes::of(O::NAME, &self.0)
    }

    fn rule(&self) -> Rule {
        O::RULE
    }

    fn operands(&self) -> &[Operand] {
        O::OPERANDS
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        self.0.output_axes()
    }

    fn saved_axes(&self) -> Vec<Option<Vec<Axis>>> {
        self.0.saved_axes()
    }

    fn reads_output(&self) -> bool {
        self.0.reads_output()
    }

    fn derivative(&self) -> Derivative {
        O::DERIVATIVE
    }

    fn traffic(&self) -> Traffic {
        O::TRAFFIC
    }

    fn shows_input(&self) -> bool {
        O::SHOWS_INPUT
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        self.0.cost(inputs)
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        self.0.formula(inputs, output)
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        if self.0.serves(inputs) {
            return self.0.forward(inputs);
        }
        reexpressed(|inputs| self.0.reexpress(inputs), inputs)
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        self.0.backward(context, grad)
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        self.0.reexpress(inputs)
    }

    fn serves(&self, inputs: &[Array]) -> bool {
        self.0.serves(inputs)
    }

    fn output_dtype(&self, inputs: &[DType], computed: DType) -> DType {
        self.0.output_dtype(inputs, computed)
    }
}

/// An operation as the history of a tensor refers to it.
pub(crate) fn erased<O: Operation>(operation: O) -> Arc<dyn Body> {
    Arc::new(Erased(operation))
}

/// A forward pass by the re-expression, without history.
pub(crate) fn reexpressed(
    reexpress: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    inputs: &[Array],
) -> Result<Forward> {
    let inputs: Vec<Tensor> = inputs.iter().cloned().map(Tensor::new).collect();
    Ok(mode::with_mode(false, || reexpress(&inputs))?.array().clone().into())
}

/// Gradients that kernels computed, as tensors.
pub(crate) fn constants(gradients: impl IntoIterator<Item = Option<Array>>) -> Vec<Option<Tensor>> {
    gradients.into_iter().map(|gradient| gradient.map(Tensor::new)).collect()
}

impl Tensor {
    /// Applies an operation to `inputs`.
    ///
    /// # Errors
    /// Another number of inputs than the operation takes; whatever the operation refuses.
    pub fn apply<O: Operation>(operation: O, inputs: &[&Tensor]) -> Result<Tensor> {
        let body = Erased(operation);
        let computed = compute(&body, inputs)?;
        Ok(computed.recorded(inputs, || Arc::new(body)))
    }

    /// Runs an operation: its inputs in the dtypes that [`autocast`](crate::autocast()) says, by the implementation that
    /// [`backend`] says, seen by the observers of this thread. Records history if recording is on and an input requires a gradient.
    ///
    /// # Errors
    /// Another number of inputs than the operation takes; from the operation or an observer.
    pub(crate) fn run(body: Arc<dyn Body>, inputs: &[&Tensor]) -> Result<Self> {
        Ok(compute(body.as_ref(), inputs)?.recorded(inputs, || body))
    }

    /// The same values rounded to another dtype; gradients are converted back.
    ///
    /// # Errors
    /// From the device.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        Self::apply(Cast { dtype }, &[self])
    }
}

/// The result of an operation, without its history.
struct Computed {
    array: Array,
    saved: Saved,
    /// The inputs in the precision that the operation ran in, if that is another than theirs.
    cast: Option<Vec<Tensor>>,
}

impl Computed {
    /// As a tensor. Its history refers to the operation by `body`, which is not called where nothing is recorded.
    fn recorded(self, inputs: &[&Tensor], body: impl FnOnce() -> Arc<dyn Body>) -> Tensor {
        match &self.cast {
            None => Tensor::with_node(self.array, inputs, body, self.saved),
            Some(cast) => Tensor::with_node(self.array, &cast.iter().collect::<Vec<_>>(), body, self.saved),
        }
    }
}

/// Runs an operation as [`Tensor::run`] does, up to its history.
fn compute(body: &dyn Body, inputs: &[&Tensor]) -> Result<Computed> {
    require_arity(body, inputs.len())?;
    let cast = in_precision(body, inputs)?;
    let converted: Option<Vec<&Tensor>> = cast.as_ref().map(|cast| cast.iter().collect());
    let inputs = converted.as_deref().unwrap_or(inputs);
    let arrays: SmallVec<[Array; 4]> = inputs.iter().map(|input| input.array().clone()).collect();
    let operation = body.name();
    observe::begin(operation, observe::Pass::Forward)?;
    let began = trace::begin(arrays.first())?;
    let account = gradewise_kernels::memory::within(operation);
    let (array, saved) = backend::forward(body, &arrays)?;
    drop((account, arrays));
    began.forward(operation, inputs, &array)?;
    observe::forward(inputs, &array, body)?;
    Ok(Computed { array, saved, cast })
}

pub(crate) fn require_arity(body: &dyn Body, inputs: usize) -> Result<()> {
    let (fewest, most) = body.arity();
    if (fewest..=most).contains(&inputs) {
        return Ok(());
    }
    Err(miscounted(body.name(), body.operands(), inputs))
}

/// The error of another number of inputs than an operation takes.
pub(crate) fn miscounted(operation: &'static str, operands: &[Operand], inputs: usize) -> Error {
    let expected = match operand::arity(operands) {
        (fewest, most) if most == fewest => fewest.to_string(),
        (fewest, usize::MAX) => format!("at least {fewest}"),
        (fewest, most) => format!("{fewest} to {most}"),
    };
    let names: Vec<String> = operands.iter().map(ToString::to_string).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let message = format!("{inputs} inputs were given, expected {expected}{names}");
    Error::Argument { operation, message }
}

/// The inputs of an operation in the dtypes that the policy in force says; `None` if they have them already.
fn in_precision(body: &dyn Body, inputs: &[&Tensor]) -> Result<Option<Vec<Tensor>>> {
    // A cast is exempt: casting its input first would recurse.
    let Some(policy) = current_policy().filter(|_| body.name() != Cast::NAME) else { return Ok(None) };
    let dtypes = inputs.iter().map(|input| input.dtype());
    let Some(target) = policy::target(&policy, policy.rule_of(body.name(), body.rule()), dtypes) else {
        return Ok(None);
    };
    inputs.iter().map(|input| input.cast(target)).collect::<Result<_>>().map(Some)
}

/// Conversion to another dtype. Defined beside [`Tensor::run`], which converts the inputs of other operations in mixed precision.
#[derive(Serialize, Deserialize)]
pub(crate) struct Cast {
    #[serde(with = "crate::attributes::dtype")]
    dtype: DType,
}

impl Operation for Cast {
    const NAME: &'static str = "cast";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const SHOWS_INPUT: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let input = Input::normal([sizes.batch, sizes.features]);
        Ok([DType::F64, DType::F32]
            .into_iter()
            .map(|dtype| Sample::new(Cast { dtype }, [input.clone()]))
            .collect())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(inputs[0].cast(self.dtype)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.cast(context.inputs[0].dtype())?)])
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        Some(Formula::copy(inputs.first()?))
    }

    /// That of the conversion, whatever the inputs have.
    fn output_dtype(&self, _: &[DType], _: DType) -> DType {
        self.dtype
    }
}
