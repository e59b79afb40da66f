//! Mixed precision: which operations run in 16 bits, and which stay in `f32`.
//!
//! Parameters stay in `f32` (the master weights); within [`autocast`] an operation gets its inputs in the dtype that its rule says,
//! by conversions that are part of the graph, so that gradients arrive in `f32` again.
//!
//! ```
//! use gradewise_autograd::{Tensor, autocast};
//! use gradewise_kernels::{DType, Device};
//!
//! let w = Tensor::ones([4, 4], DType::F32, &Device::Cpu)?.requires_grad();
//! let y = autocast(DType::BF16, || w.matmul(&w))?;
//! assert_eq!(y.dtype(), DType::BF16);
//! let loss = autocast(DType::BF16, || y.mean_all())?;
//! assert_eq!(loss.dtype(), DType::F32);
//! assert_eq!(loss.backward()?.get(&w)?.dtype(), DType::F32);
//! # Ok::<(), gradewise_autograd::Error>(())
//! ```

use crate::{Error, Result, Tensor, backend, operation::is_short};
use gradewise_core::DType;
use std::{cell::RefCell, collections::BTreeMap, fmt, str::FromStr, sync::Arc};

/// In which precision an operation runs under [`autocast`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Inputs in the 16-bit dtype of the policy.
    Short,
    /// Inputs of 16 bits in `f32`.
    Full,
    /// Inputs as they come; in `f32` if their dtypes differ.
    Widest,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Short => "16-bit",
            Self::Full => "f32",
            Self::Widest => "widest",
        })
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "16-bit" => Ok(Self::Short),
            "f32" => Ok(Self::Full),
            "widest" => Ok(Self::Widest),
            other => Err(Error::Argument {
                operation: "autocast",
                message: format!("there is no rule `{other}`; there are 16-bit, f32 and widest"),
            }),
        }
    }
}

/// Operations whose time goes into products: half the memory to move, and tensor cores.
const SHORT: &[&str] = &[
    "attention",
    "clifford_layer",
    "fc_clifford_layer",
    "fcgp",
    "gelu_fcgp_norm",
    "gelu_sgp_norm",
    "matmul",
    // As its parts, each by its own rule: its one kernel computes in f32 alone.
    "mv_block",
    "mv_linear",
    "mv_silu",
    "sgp",
    "steerable_gp",
    "steerable_layer",
    "table_product",
];

/// Operations that neither add up nor magnify: they run in what they are given.
const WIDEST: &[&str] = &[
    "abs",
    "add",
    "add_n",
    "add_scalar",
    "broadcast_to",
    "clamp",
    "concat",
    "contiguous",
    "edge_difference",
    "embed",
    "gather",
    "gelu",
    "index_select",
    "max",
    "maximum",
    "mul",
    "mul_scalar",
    "permute",
    "relu",
    "reshape",
    "rotary",
    "segment_spread",
    "select",
    "sigmoid",
    "silu",
    "slice",
    "sort",
    "sub",
    "tanh",
    "top_k",
    "transpose",
];

/// The rules of one mixed precision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    dtype: DType,
    rules: BTreeMap<String, Rule>,
}

impl Policy {
    /// The usual rules with a 16-bit dtype: products in it; sums, norms, exponentials and losses in `f32`; the rest in what it is
    /// given. What is not listed, such as an operation of the user's, stays in `f32`.
    ///
    /// # Errors
    /// A dtype that has not 16 bits.
    pub fn new(dtype: DType) -> Result<Self> {
        if !is_short(dtype) {
            let message = format!("the dtype is {dtype}, expected bf16 or f16");
            return Err(Error::Argument { operation: "autocast", message });
        }
        Ok(Self { dtype, rules: BTreeMap::new() })
    }

    /// The 16-bit dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Another rule for an operation.
    ///
    /// # Errors
    /// An operation that there is not, with those there are.
    pub fn with(mut self, operation: &str, rule: Rule) -> Result<Self> {
        let known = backend::operations();
        if !known.contains(&operation) {
            let message = format!("there is no operation `{operation}`; there are {}", known.join(", "));
            return Err(Error::Argument { operation: "autocast", message });
        }
        self.rules.insert(operation.to_owned(), rule);
        Ok(self)
    }

    /// The rules of a list such as `mv_linear=f32,softmax=16-bit`, in addition.
    ///
    /// # Errors
    /// As [`with`](Self::with), or a rule that there is not.
    pub fn with_all(self, text: &str) -> Result<Self> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).try_fold(self, |policy, part| {
            let Some((operation, rule)) = part.split_once('=') else {
                let message =
                    format!("`{part}` is no rule; write OPERATION=f32, OPERATION=16-bit or OPERATION=widest");
                return Err(Error::Argument { operation: "autocast", message });
            };
            policy.with(operation.trim(), rule.trim().parse()?)
        })
    }

    /// The rule of an operation.
    pub fn rule(&self, operation: &str) -> Rule {
        match self.rules.get(operation) {
            Some(&rule) => rule,
            None if SHORT.contains(&operation) => Rule::Short,
            None if WIDEST.contains(&operation) => Rule::Widest,
            None => Rule::Full,
        }
    }
}

impl fmt::Display for Policy {
    /// A table: a line for each rule with its operations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in [Rule::Short, Rule::Full, Rule::Widest] {
            let name = if rule == Rule::Short { self.dtype.to_string() } else { rule.to_string() };
            let operations: Vec<&str> =
                backend::operations().into_iter().filter(|operation| self.rule(operation) == rule).collect();
            writeln!(f, "{name:<8}{}", operations.join(" "))?;
        }
        Ok(())
    }
}

thread_local! {
    static POLICIES: RefCell<Vec<Option<Arc<Policy>>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn scoped<R>(policy: Option<Arc<Policy>>, body: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            POLICIES.with_borrow_mut(Vec::pop);
        }
    }
    POLICIES.with_borrow_mut(|policies| policies.push(policy));
    let _leave = Leave;
    body()
}

/// Runs `body` in mixed precision with the usual rules of [`Policy::new`]; in `f32` (`f64`) as it is if `dtype` has not 16 bits.
/// Holds for this thread, and for the forward pass: the backward pass uses what the forward pass recorded.
pub fn autocast<R>(dtype: DType, body: impl FnOnce() -> R) -> R {
    scoped(Policy::new(dtype).ok().map(Arc::new), body)
}

/// [`autocast`] by a policy.
pub fn autocast_with<R>(policy: &Policy, body: impl FnOnce() -> R) -> R {
    scoped(Some(Arc::new(policy.clone())), body)
}

/// Runs `body` without mixed precision, within [`autocast`].
pub fn without_autocast<R>(body: impl FnOnce() -> R) -> R {
    scoped(None, body)
}

/// The policy in force in this thread.
pub fn current_policy() -> Option<Arc<Policy>> {
    POLICIES.with_borrow(|policies| policies.last().cloned().flatten())
}

/// The inputs of an operation in the dtypes of the policy; `None` if they are in them.
pub(crate) fn inputs(operation: &'static str, inputs: &[&Tensor]) -> Result<Option<Vec<Tensor>>> {
    // A conversion converts as it is told. Double precision is somebody's explicit wish.
    if operation == "cast" || inputs.iter().any(|input| input.dtype() == DType::F64) {
        return Ok(None);
    }
    let Some(policy) = current_policy() else { return Ok(None) };
    let target = match policy.rule(operation) {
        Rule::Short => policy.dtype,
        Rule::Widest if inputs.windows(2).all(|pair| pair[0].dtype() == pair[1].dtype()) => return Ok(None),
        Rule::Full | Rule::Widest => DType::F32,
    };
    if inputs.iter().all(|input| input.dtype() == target) {
        return Ok(None);
    }
    inputs.iter().map(|input| input.cast(target)).collect::<Result<_>>().map(Some)
}
