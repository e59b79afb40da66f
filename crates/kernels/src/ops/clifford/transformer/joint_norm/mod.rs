//! The normalisation of vectors and scalars together of L-GATr-slim (Petitjean et al. 2025, arXiv:2512.17011), on feature planes
//! `[scalars + planes · channels, rows]`.
//!
//! A row of a set of channels is divided by √(m + ε), where m is the mean over all of its vectors and scalars of |q| and of s²: q is the
//! quadratic form of a vector, the scalar part of reverse(x)·x over its planes. There is one set for each head of each group; channel c of
//! head h in group g is line (g·channels + c)·heads + h of a plane, and so for scalars. Each line may have a gain.

mod cpu;
mod cuda;

use super::Order;
use crate::{
    Array, Device, Error, Result,
    ops::clifford::algebra::contract::{alike, exact, with_real},
};
use gradewise_core::{DType, Error as CoreError};

const NAME: &str = "joint_norm";

/// Which channels are normalised with each other, and what is added to the mean of their squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Groups that lie side by side.
    pub groups: usize,
    /// Heads of each group, each of which is normalised by itself.
    pub heads: usize,
    /// Vectors of each head.
    pub channels: usize,
    /// What is added to the mean.
    pub epsilon: f64,
}

/// Features, and gains.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a, T = Array> {
    /// `[groups · heads · (scalars + planes · channels), rows]`.
    pub x: &'a T,
    /// `[groups · channels · heads]`, a gain for each line of a plane.
    pub gains: Option<&'a T>,
    /// `[groups · scalars · heads]`.
    pub scalar_gains: Option<&'a T>,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    groups: usize,
    heads: usize,
    channels: usize,
    scalars: usize,
    rows: usize,
}

impl Sizes {
    const fn sets(self) -> usize {
        self.groups * self.heads
    }

    /// Lines of a plane, and of scalars.
    const fn lines(self) -> [usize; 2] {
        [self.sets() * self.channels, self.sets() * self.scalars]
    }
}

fn check(order: &Order, options: Options, operands: &Operands<'_>) -> Result<(Sizes, DType)> {
    let Options { groups, heads, channels, epsilon } = options;
    let refuse = |argument, actual: String, expected| {
        Err(Error::Argument { operation: NAME, argument, actual, expected })
    };
    for (argument, size) in [("groups", groups), ("heads", heads), ("channels", channels)] {
        if size == 0 {
            return refuse(argument, size.to_string(), "at least 1");
        }
    }
    if !(epsilon > 0.0 && epsilon.is_finite()) {
        return refuse(
            "epsilon",
            epsilon.to_string(),
            "more than 0, finite: rows of zeros are divided by its root",
        );
    }
    let Operands { x, gains, scalar_gains } = *operands;
    let planes = order.blades().len();
    let sets = groups.saturating_mul(heads);
    let of_set = planes.saturating_mul(channels);
    let shape = |reason: &str| CoreError::Shape {
        operation: NAME,
        argument: "x",
        actual: x.shape().clone(),
        expected: format!("[{sets} · (scalars + {of_set}), rows]"),
        reason: reason.to_owned(),
    };
    let &[height, rows] = x.dims() else { return Err(shape("feature planes have two axes").into()) };
    let scalars = (height / sets).checked_sub(of_set).filter(|_| height % sets == 0);
    let Some(scalars) = scalars else {
        return Err(shape("heads have as many scalars and vectors as each other").into());
    };
    let sizes = Sizes { groups, heads, channels, scalars, rows };
    let [lines, scalar_lines] = sizes.lines();
    let mut all = vec![("x", x)];
    for (name, operand, count) in [("gains", gains, lines), ("scalar_gains", scalar_gains, scalar_lines)] {
        if let Some(operand) = operand {
            exact(NAME, name, operand, &[count], || "a gain for each line".to_owned())?;
            all.push((name, operand));
        }
    }
    Ok((sizes, alike(NAME, &all)?))
}

/// The features, normalised.
///
/// # Errors
/// Sizes of 0; an ε that is not above 0; shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(order: &Order, options: Options, operands: &Operands<'_>) -> Result<Array> {
    let (sizes, dtype) = check(order, options, operands)?;
    let Operands { x, gains, scalar_gains } = *operands;
    let x = x.contiguous()?;
    let gains = gains.map(Array::contiguous).transpose()?;
    let scalar_gains = scalar_gains.map(Array::contiguous).transpose()?;
    let operands = Operands { x: &x, gains: gains.as_ref(), scalar_gains: scalar_gains.as_ref() };
    if let Device::Cuda(device) = x.device() {
        return cuda::forward(&device, order, (sizes, options.epsilon), &operands);
    }
    with_real!(dtype, NAME, T => {
        let work = cpu::Work::<T>::new(order, sizes, options.epsilon, &operands)?;
        Array::build::<T>(x.shape(), &x.device(), |out| work.forward(out))
    })
}

/// Gradients of [`forward`]; those of gains that are absent are `None`.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of `x`.
    pub x: Array,
    /// Of `gains`.
    pub gains: Option<Array>,
    /// Of `scalar_gains`.
    pub scalar_gains: Option<Array>,
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(order: &Order, options: Options, operands: &Operands<'_>, grad: &Array) -> Result<Gradients> {
    let (sizes, dtype) = check(order, options, operands)?;
    let Operands { x, gains, scalar_gains } = *operands;
    exact(NAME, "grad", grad, x.shape(), || "the gradient has the shape of the output".to_owned())?;
    alike(NAME, &[("x", x), ("grad", grad)])?;
    let (x, grad) = (x.contiguous()?, grad.contiguous()?);
    let gains = gains.map(Array::contiguous).transpose()?;
    let scalar_gains = scalar_gains.map(Array::contiguous).transpose()?;
    let operands = Operands { x: &x, gains: gains.as_ref(), scalar_gains: scalar_gains.as_ref() };
    if let Device::Cuda(device) = x.device() {
        return cuda::backward(&device, order, (sizes, options.epsilon), &operands, &grad);
    }
    with_real!(dtype, NAME, T => {
        let work = cpu::Work::<T>::new(order, sizes, options.epsilon, &operands)?;
        let upstream = grad.as_slice::<T>()?;
        let mut sums = Vec::new();
        let of_x = Array::build::<T>(x.shape(), &x.device(), |out| sums = work.backward(upstream, out))?;
        let (of_gains, of_scalar_gains) = sums.split_at(sizes.lines()[0]);
        let given = |gains: Option<&Array>, sums: &[T]| {
            gains.map(|gains| Array::from_slice(sums, gains.shape(), &x.device())).transpose()
        };
        Ok(Gradients {
            gains: given(operands.gains, of_gains)?,
            scalar_gains: given(operands.scalar_gains, of_scalar_gains)?,
            x: of_x,
        })
    })
}
