//! Between feature planes and the heads of an attention (Brehmer et al. 2023, arXiv:2305.18415; Spinner et al. 2024, arXiv:2405.14806).
//!
//! Feature planes are a matrix `[scalars + planes·channels, rows]`: the scalars' channels, then, plane by plane, those of the
//! multivectors; a plane is one blade, and row b·items + n is item n of batch b. Heads are
//! `[groups, batch, heads, items, planes·channels + scalars]`, where a row has plane after plane the channels of one head, then its scalars.
//!
//! [`split`] goes from planes to heads behind the linear map of queries, keys and values, which are its groups, and [`merge`] goes back
//! behind the attention. The map gives the channels of all heads side by side, (g·C + c)·H + h of channel c of head h in group g; the
//! attention leaves heads one after the other, h·C + c.
//!
//! On the way `split` may normalise each head: its multivectors times gain/√max(mean over channels of Σ_k |q_k|, ε), with q_k the quadratic
//! form of grade k, and its scalars by layer normalisation without parameters. The group of the queries may be multiplied by the diagonal of
//! the quadratic form, which makes of the inner product of multivectors a dot product of rows.

mod cpu;
mod cuda;
mod form;
mod sizes;
#[cfg(test)]
mod tests;

use crate::{
    Array, Device, Error, Result,
    ops::{
        clifford::algebra::contract::{alike, exact, with_real},
        shape::stack,
    },
};
use form::Form;
use gradewise_core::{Algebra, Error as CoreError};
use sizes::{Numbering, Sizes};

const SPLIT: &str = "split_heads";
const MERGE: &str = "merge_heads";

/// Added to the variance of a head's scalars.
pub const SCALAR_EPSILON: f64 = 1e-5;

/// What [`split`] does.
#[derive(Clone, Copy, Debug)]
pub struct Split<'a> {
    /// The algebra whose quadratic form it takes.
    pub algebra: &'a Algebra,
    /// The blade of each plane; each at most once.
    pub order: &'a [u16],
    /// Groups that lie side by side: three for queries, keys and values.
    pub groups: usize,
    /// Channels of multivectors of each head.
    pub channels: usize,
    /// Scalars of each head.
    pub scalars: usize,
    /// Heads of each group.
    pub heads: usize,
    /// Sequences of items.
    pub batch: usize,
    /// Items of each sequence.
    pub items: usize,
    /// How heads are normalised, if they are.
    pub norm: Option<Norm>,
    /// The group whose multivectors are multiplied by the diagonal of the quadratic form.
    pub query: Option<usize>,
}

/// The normalisation of heads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Norm {
    /// The least mean of |q| that multivectors are divided by the root of; below it the mean has no gradient.
    pub epsilon: f64,
    /// What multivectors are multiplied by besides.
    pub gain: f64,
}

/// What [`merge`] takes apart: the sizes of a row of its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merge {
    /// Planes: blades of a multivector.
    pub planes: usize,
    /// Channels of multivectors of each head.
    pub channels: usize,
    /// Scalars of each head.
    pub scalars: usize,
}

impl Split<'_> {
    /// The shape of the heads: `[groups, batch, heads, items, planes·channels + scalars]`.
    pub fn heads_shape(&self) -> [usize; 5] {
        self.sizes().heads_shape()
    }

    /// Whether [`split`] takes `x` with these options, for who computes the same by other means.
    ///
    /// # Errors
    /// As [`split`].
    pub fn require(&self, x: &Array) -> Result<()> {
        self.check(x).map(|_| ())
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            planes: self.order.len(),
            channels: self.channels,
            scalars: self.scalars,
            groups: self.groups,
            heads: self.heads,
            batch: self.batch,
            items: self.items,
            numbering: Numbering::HeadsInside,
        }
    }

    /// The sizes, with which `x` was compared.
    fn check(&self, x: &Array) -> Result<Sizes> {
        let refuse = |argument, actual, expected| {
            Err(Error::Argument { operation: SPLIT, argument, actual, expected })
        };
        let Self { order, norm, query, .. } = *self;
        let blades = self.algebra.blade_count();
        let is_known = |&blade: &u16| usize::from(blade) < blades;
        let recurs = |(at, blade): (usize, &u16)| order[..at].contains(blade);
        if order.is_empty() || !order.iter().all(is_known) || order.iter().enumerate().any(recurs) {
            let actual = format!("{order:?} in an algebra of {blades} blades");
            return refuse("order", actual, "the blade of each plane: at least one, each at most once");
        }
        if let Some(group) = query.filter(|&group| group >= self.groups) {
            let (index, count) = (group, self.groups);
            return Err(CoreError::Index { operation: SPLIT, argument: "query", index, count }.into());
        }
        if let Some(Norm { epsilon, gain }) = norm {
            if !(epsilon > 0.0 && epsilon.is_finite()) {
                let expected =
                    "more than 0, finite: rows whose quadratic form vanishes are divided by its root";
                return refuse("epsilon", epsilon.to_string(), expected);
            }
            if !gain.is_finite() {
                return refuse("gain", gain.to_string(), "a finite number");
            }
        }
        let sizes = self.sizes();
        sizes.require_some(SPLIT)?;
        exact(SPLIT, "x", x, &sizes.planes_shape(), || {
            let Sizes { planes, channels, scalars, groups, heads, batch, items, .. } = sizes;
            format!(
                "{groups} groups of {heads} heads with {scalars} scalars and {planes} planes of {channels} channels, in {batch} \
                 sequences of {items} items"
            )
        })?;
        Ok(sizes)
    }
}

impl Merge {
    /// Whether [`merge`] takes `x` with these options, for who computes the same by other means.
    ///
    /// # Errors
    /// As [`merge`].
    pub fn require(&self, x: &Array) -> Result<()> {
        self.check(x).map(|_| ())
    }

    /// The sizes, with which the heads were compared.
    fn check(&self, x: &Array) -> Result<Sizes> {
        let Self { planes, channels, scalars } = *self;
        let width = planes.saturating_mul(channels).saturating_add(scalars);
        let &[batch, heads, items, last] = x.dims() else { return Err(self.mismatch(x, width)) };
        if last != width {
            return Err(self.mismatch(x, width));
        }
        let numbering = Numbering::HeadsOutside;
        let sizes = Sizes { planes, channels, scalars, groups: 1, heads, batch, items, numbering };
        sizes.require_some(MERGE)?;
        Ok(sizes)
    }

    fn mismatch(&self, x: &Array, width: usize) -> Error {
        CoreError::Shape {
            operation: MERGE,
            argument: "x",
            actual: x.shape().clone(),
            expected: format!("[batch, heads, items, {width}]"),
            reason: format!(
                "{} planes of {} channels and {} scalars in each row of a head",
                self.planes, self.channels, self.scalars
            ),
        }
        .into()
    }
}

/// The heads of feature planes.
///
/// # Errors
/// Planes that are no blades of the algebra, a group of queries that is not there, an `epsilon` that is not above 0; a shape, named; dtypes
/// the device does not serve; heads longer than the device's shared memory.
pub fn split(options: &Split<'_>, x: &Array) -> Result<Array> {
    let sizes = options.check(x)?;
    let x = x.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        return cuda::split(&device, options, sizes, &x);
    }
    let form = Form::of(options);
    with_real!(x.dtype(), SPLIT, T => {
        let source = x.as_slice::<T>()?;
        Array::build::<T>(sizes.heads_shape(), &Device::Cpu, |out| cpu::split(sizes, &form, options.norm, source, out))
    })
}

/// The gradient of [`split`] at `x` for the cotangent `grad` of the heads.
///
/// # Errors
/// As [`split`].
pub fn split_backward(options: &Split<'_>, x: &Array, grad: &Array) -> Result<Array> {
    let sizes = options.check(x)?;
    exact(SPLIT, "grad", grad, &sizes.heads_shape(), || {
        "the gradient has the shape of the output".to_owned()
    })?;
    let dtype = alike(SPLIT, &[("x", x), ("grad", grad)])?;
    // Without a norm the heads are linear in x.
    let x = if options.norm.is_some() { x.contiguous()? } else { x.clone() };
    if let Device::Cuda(device) = grad.device() {
        return cuda::split_backward(&device, options, sizes, &x, &cuda::Gradient::Whole(grad));
    }
    let (form, grad) = (Form::of(options), grad.contiguous()?);
    with_real!(dtype, SPLIT, T => {
        let slopes = grad.as_slice::<T>()?;
        let norm = options.norm.map(|norm| Ok::<_, Error>((norm, x.as_slice::<T>()?))).transpose()?;
        Array::build::<T>(sizes.planes_shape(), &Device::Cpu, |out| cpu::merge(sizes, &form, norm, slopes, out))
    })
}

/// The same for cotangents of each group, `[batch, heads, items, planes·channels + scalars]`, of any strides: what an attention gives for its
/// queries, keys and values. On a GPU two or three of them are read where they are.
///
/// # Errors
/// As [`split_backward`]; another number of cotangents than of groups.
pub fn split_backward_of_groups(options: &Split<'_>, x: &Array, grads: &[Array]) -> Result<Array> {
    let sizes = options.check(x)?;
    if grads.len() != sizes.groups {
        return Err(Error::Argument {
            operation: SPLIT,
            argument: "grads",
            actual: format!("{} cotangents", grads.len()),
            expected: "one for each group",
        });
    }
    let shape = &sizes.heads_shape()[1..];
    let mut all = vec![("x", x)];
    for grad in grads {
        exact(SPLIT, "grads", grad, shape, || {
            "a cotangent has the shape of a group of the output".to_owned()
        })?;
        all.push(("grads", grad));
    }
    alike(SPLIT, &all)?;
    match x.device() {
        Device::Cuda(device) if (2..=3).contains(&grads.len()) => {
            let x = if options.norm.is_some() { x.contiguous()? } else { x.clone() };
            cuda::split_backward(&device, options, sizes, &x, &cuda::Gradient::Groups(grads))
        }
        _ => split_backward(options, x, &joined(grads)?),
    }
}

/// Arrays of one shape as one, along a new first axis.
fn joined(groups: &[Array]) -> Result<Array> {
    stack(&groups.iter().collect::<Vec<_>>(), 0)
}

/// The feature planes of heads `[batch, heads, items, planes·channels + scalars]`.
///
/// # Errors
/// A shape, named; dtypes the device does not serve; heads longer than the device's shared memory.
pub fn merge(options: &Merge, x: &Array) -> Result<Array> {
    let sizes = options.check(x)?;
    if let Device::Cuda(device) = x.device() {
        return cuda::merge(&device, sizes, x);
    }
    let x = x.contiguous()?;
    with_real!(x.dtype(), MERGE, T => {
        let source = x.as_slice::<T>()?;
        Array::build::<T>(sizes.planes_shape(), &Device::Cpu, |out| cpu::merge(sizes, &Form::none(), None, source, out))
    })
}

/// The gradient of [`merge`] at `x` for the cotangent `grad` of the planes.
///
/// # Errors
/// As [`merge`].
pub fn merge_backward(options: &Merge, x: &Array, grad: &Array) -> Result<Array> {
    let sizes = options.check(x)?;
    exact(MERGE, "grad", grad, &sizes.planes_shape(), || {
        "the gradient has the shape of the output".to_owned()
    })?;
    let dtype = alike(MERGE, &[("x", x), ("grad", grad)])?;
    let grad = grad.contiguous()?;
    if let Device::Cuda(device) = grad.device() {
        return cuda::merge_backward(&device, sizes, x.shape(), &grad);
    }
    with_real!(dtype, MERGE, T => {
        let slopes = grad.as_slice::<T>()?;
        Array::build::<T>(x.shape(), &Device::Cpu, |out| cpu::split(sizes, &Form::none(), None, slopes, out))
    })
}
