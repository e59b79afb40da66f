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

use crate::{Error, Result, Rule};
use gradewise_core::DType;
use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

/// The rules of one mixed precision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    dtype: DType,
    rules: BTreeMap<String, Rule>,
}

impl Policy {
    /// The usual rules with a 16-bit dtype: products in it; sums, norms, exponentials and losses in `f32`; the rest in what it is
    /// given, and messages on graphs with it. What is not listed, such as an operation of the user's, stays in `f32`.
    ///
    /// # Errors
    /// A dtype other than bf16 and f16.
    pub fn new(dtype: DType) -> Result<Self> {
        if !dtype.is_short() {
            let message = format!("the dtype is {dtype}, expected bf16 or f16");
            return Err(Error::Argument { operation: "autocast", message });
        }
        Ok(Self { dtype, rules: BTreeMap::new() })
    }

    /// The 16-bit dtype.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The rule of an operation whose own rule is `own`.
    pub(crate) fn rule_of(&self, operation: &str, own: Rule) -> Rule {
        self.rules.get(operation).copied().unwrap_or(own)
    }

    /// Replaces the rule of an operation, whose name was checked.
    pub(crate) fn set(&mut self, operation: &str, rule: Rule) {
        self.rules.insert(operation.to_owned(), rule);
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

/// The dtype that an operation's inputs are converted to by its rule; `None` if they stay as they are.
pub(crate) fn target(
    policy: &Policy,
    rule: Rule,
    mut dtypes: impl Iterator<Item = DType> + Clone,
) -> Option<DType> {
    // Double precision is chosen explicitly, and kept.
    if dtypes.clone().any(|dtype| dtype == DType::F64) {
        return None;
    }
    let differ = {
        let mut dtypes = dtypes.clone();
        let first = dtypes.next();
        dtypes.any(|dtype| Some(dtype) != first)
    };
    let target = match rule {
        Rule::Short => policy.dtype,
        Rule::Widest if !differ => return None,
        Rule::Full | Rule::Widest => DType::F32,
        Rule::First => dtypes.clone().next()?,
    };
    dtypes.any(|dtype| dtype != target).then_some(target)
}
