//! Products of symmetric traceless tensors of rank 2 in space, which no multivector holds.
//!
//! A tensor S is `[5, …]`, the components xx, xy, xz, yy and yz, as the symmetric traceless part of the product of two vectors comes; zz is
//! −xx − yy. All products here are bilinear tables, so they run on both devices and differentiate to any order. They commute with
//! rotations and reflections: under the inversion S stays as it is, vectors turn over, and every product has the parity of its factors.

use super::{
    prelude::*,
    primitives::{index, product_by_table},
};
use crate::composed::composed;
use gradewise_kernels::ops::clifford::table_product::{Table, TableTerm};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

/// Components of a tensor.
pub const COMPONENTS: usize = 5;

/// S·v of tensors `[5, …]` and vectors `[3, …]`: vectors `[3, …]`.
///
/// The axes after the first are broadcast as in [`geometric_product`](super::geometric_product), here and in the other products.
///
/// # Errors
/// Operands whose other axes do not broadcast, or that disagree in dtype or in device, named.
pub fn tensor_vector(s: &Tensor, v: &Tensor) -> Result<Tensor> {
    static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| {
        let entry = |i: usize| (0..3).flat_map(move |j| along(i, j).into_iter().map(move |(a, x)| (a, j, x)));
        let terms = (0..3).flat_map(|i| entry(i).map(move |(a, b, x)| ((a, b, i), x)));
        table([COMPONENTS, 3, 3], terms)
    });
    product_by_table("tensor_vector", &TABLE, [("s", s), ("v", v)])
}

/// S:S' = Σ S_ij S'_ij of tensors `[5, …]`: scalars `[1, …]`. With one tensor twice it is the square of the Frobenius norm.
///
/// # Errors
/// As [`tensor_vector`].
pub fn tensor_dot(s: &Tensor, t: &Tensor) -> Result<Tensor> {
    static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| {
        let pairs = (0..3).flat_map(|i| (0..3).map(move |j| (i, j)));
        let terms = pairs.flat_map(|(i, j)| products(along(i, j), along(i, j)));
        table([COMPONENTS, COMPONENTS, 1], terms.map(|((a, b), x)| ((a, b, 0), x)))
    });
    product_by_table("tensor_dot", &TABLE, [("s", s), ("t", t)])
}

/// S·S' + S'·S − ⅔ (S:S') I of tensors `[5, …]`: the tensor `[5, …]` that is symmetric in both.
///
/// # Errors
/// As [`tensor_vector`].
pub fn tensor_tensor(s: &Tensor, t: &Tensor) -> Result<Tensor> {
    // Of the diagonal 3/2 times the entry, so that all coefficients are whole.
    static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| {
        // (S·S')_ij.
        let matrix = |i: usize, j: usize| (0..3).flat_map(move |k| products(along(i, k), along(k, j)));
        let mut terms = Vec::new();
        for (out, (i, j)) in PLACES.into_iter().enumerate() {
            let weighted: Vec<((usize, usize), i32)> = if i == j {
                (0..3)
                    .flat_map(|k| matrix(k, k).map(move |(at, x)| (at, if k == i { 2 * x } else { -x })))
                    .collect()
            } else {
                matrix(i, j).chain(matrix(j, i)).collect()
            };
            terms.extend(weighted.into_iter().map(|((a, b), x)| ((a, b, out), x)));
        }
        table([COMPONENTS, COMPONENTS, COMPONENTS], terms)
    });
    let product = product_by_table("tensor_tensor", &TABLE, [("s", s), ("t", t)])?;
    let mut shape = vec![COMPONENTS];
    shape.resize(product.shape().rank(), 1);
    let scale = PLACES.map(|(i, j)| if i == j { 2.0 / 3.0 } else { 1.0 });
    product.mul(&Tensor::new(Array::constant(&scale, shape, product.dtype(), &product.device())?))
}

/// The matrix `[9, …]` of tensors `[5, …]`, row by row.
///
/// # Errors
/// A leading axis of another size; from the device.
pub fn tensor_matrix(s: &Tensor) -> Result<Tensor> {
    if s.shape().first() != Some(&COMPONENTS) {
        let message = format!("the shape is {}, expected a leading axis of {COMPONENTS}", s.shape());
        return Err(Error::Argument { operation: "tensor_matrix", message });
    }
    let zz = s.slice(0, 0..1)?.add(&s.slice(0, 3..4)?)?.neg()?;
    let all = crate::concat(&[s, &zz], 0)?;
    all.index_select(0, &index(&[0, 1, 2, 1, 3, 4, 2, 4, 5], 6, &s.device())?)
}

composed!(
    /// Inputs: tensors and vectors.
    TensorVector, "tensor_vector", Short, ["tensor", "vector"],
    |sizes| [of_tensors(sizes), Input::normal([3, sizes.batch, sizes.features])],
    |inputs| tensor_vector(&inputs[0], &inputs[1])
);

composed!(
    /// Inputs: tensors.
    TensorDot, "tensor_dot", Short, ["a", "b"],
    |sizes| [of_tensors(sizes), of_tensors(sizes)],
    |inputs| tensor_dot(&inputs[0], &inputs[1])
);

composed!(
    /// Inputs: tensors.
    TensorTensor, "tensor_tensor", Short, ["a", "b"],
    |sizes| [of_tensors(sizes), of_tensors(sizes)],
    |inputs| tensor_tensor(&inputs[0], &inputs[1])
);

fn of_tensors(sizes: &Sizes) -> Input {
    Input::normal([COMPONENTS, sizes.batch, sizes.features])
}

/// The row and the column of each component.
const PLACES: [(usize, usize); COMPONENTS] = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)];

/// S_ij as a sum of components with their signs.
fn along(i: usize, j: usize) -> Vec<(usize, i32)> {
    let place = (i.min(j), i.max(j));
    match PLACES.iter().position(|&known| known == place) {
        Some(component) => vec![(component, 1)],
        None => vec![(0, -1), (3, -1)],
    }
}

/// The product of two such sums.
fn products(
    left: Vec<(usize, i32)>,
    right: Vec<(usize, i32)>,
) -> impl Iterator<Item = ((usize, usize), i32)> {
    left.into_iter().flat_map(move |(a, x)| right.clone().into_iter().map(move |(b, y)| ((a, b), x * y)))
}

/// A table of whole coefficients: a term for each unit of them.
fn table(
    [a, b, out]: [usize; 3],
    terms: impl IntoIterator<Item = ((usize, usize, usize), i32)>,
) -> Arc<Table> {
    let mut sums: BTreeMap<(usize, usize, usize), i32> = BTreeMap::new();
    for ((a, b, out), coefficient) in terms {
        *sums.entry((out, a, b)).or_default() += coefficient;
    }
    let units = sums.into_iter().flat_map(|((out, a, b), coefficient)| {
        let (a, b, out) = (a as u16, b as u16, out as u16);
        let term = TableTerm { a, b, out, sign: coefficient.signum() as i8 };
        std::iter::repeat_n(term, coefficient.unsigned_abs() as usize)
    });
    Arc::new(Table::new(a, b, out, units))
}
