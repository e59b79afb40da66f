//! Couplings of symmetric traceless tensors of rank 0 to 3 in space.
//!
//! A tensor of rank r is `[2r + 1, …]`: its entries whose sorted indices have z at most once, in lexical order. A vector is x, y, z; a tensor
//! of rank 2 is xx, xy, xz, yy, yz (as in [`tensors`](super::tensors)), one of rank 3 xxx, xxy, xxz, xyy, xyz, yyy, yyz. The trace gives the
//! others: an entry with zz is minus those with xx and yy in its place.

use super::{prelude::*, primitives::product_by_table};
use gradewise_kernels::ops::clifford::table_product::{Table, TableTerm};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

const NAME: &str = "traceless_coupling";
/// The highest rank.
const RANKS: usize = 4;

/// The symmetric traceless part of the product of tensors of ranks `[a, b]`, with (a + b − rank)/2 pairs of indices contracted: a tensor of rank
/// `rank`. It is the coupling of spherical tensors of these degrees (Coope, Snider and McCourt 1965, doi:10.1063/1.1697123) that needs no ε, so
/// that it commutes with the inversion, too. Of rank 1 and 1 to 0 it is u·v, of 2 and 1 to 1 S·v, of 1 and 1 to 2 ½(u⊗v + v⊗u) − ⅓(u·v)I.
///
/// The product is a bilinear table, so it runs on both devices and differentiates to any order.
///
/// # Errors
/// [`Error::Argument`] for a rank above 3, for ranks whose sum is odd, and for one above the sum of the others; operands that disagree in more
/// than the leading axis, in dtype or in device.
pub fn traceless_coupling(ranks: [usize; 2], rank: usize, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    static TABLES: LazyLock<Vec<Option<Coupling>>> = LazyLock::new(|| {
        let all = (0..RANKS.pow(3)).map(|at| [at / (RANKS * RANKS), at / RANKS % RANKS, at % RANKS]);
        all.map(|ranks| couples(ranks).then(|| Coupling::of(ranks))).collect()
    });
    let [a, b] = ranks;
    let at = (a * RANKS + b) * RANKS + rank;
    let within = a.max(b).max(rank) < RANKS;
    let Some(coupling) = TABLES.get(at).filter(|_| within).and_then(Option::as_ref) else {
        let message = format!(
            "ranks {a} and {b} do not couple to rank {rank}; ranks are at most {}, their sum is even, and none is above the sum of the others",
            RANKS - 1
        );
        return Err(Error::Argument { operation: NAME, message });
    };
    let product = product_by_table(NAME, &coupling.table, [("x", x), ("y", y)])?;
    if coupling.scale.iter().all(|&scale| scale == 1.0) {
        return Ok(product);
    }
    let mut shape = vec![coupling.scale.len()];
    shape.resize(product.shape().rank(), 1);
    product.mul(&Tensor::new(Array::constant(&coupling.scale, shape, product.dtype(), &product.device())?))
}

fn couples([a, b, c]: [usize; 3]) -> bool {
    (a + b + c).is_multiple_of(2) && a <= b + c && b <= a + c && c <= a + b
}

/// A table of whole coefficients, and what each of its results is multiplied by.
struct Coupling {
    table: Arc<Table>,
    scale: Vec<f64>,
}

/// A sum of products of a component of each factor, with whole coefficients.
type Sum = BTreeMap<(usize, usize), i64>;

impl Coupling {
    fn of([a, b, rank]: [usize; 3]) -> Self {
        let (mut units, mut scale) = (Vec::new(), Vec::new());
        for (out, place) in places(rank).iter().enumerate() {
            let (sum, divisor) = traceless([a, b], place);
            let common = sum.values().fold(0, |common, &x| gcd(common, x.abs())).max(1);
            scale.push(common as f64 / divisor as f64);
            for ((left, right), coefficient) in sum {
                let (a, b, out) = (left as u16, right as u16, out as u16);
                let term = TableTerm { a, b, out, sign: coefficient.signum() as i8 };
                units.extend(std::iter::repeat_n(term, (coefficient.abs() / common) as usize));
            }
        }
        Self { table: Arc::new(Table::new(2 * a + 1, 2 * b + 1, 2 * rank + 1, units)), scale }
    }
}

/// The indices of the components of a rank: sorted, with z (2) at most once.
fn places(rank: usize) -> Vec<Vec<usize>> {
    let all = (0..3usize.pow(rank as u32)).map(|mut code| {
        let mut indices = vec![0; rank];
        for index in indices.iter_mut().rev() {
            (*index, code) = (code % 3, code / 3);
        }
        indices
    });
    all.filter(|i| i.is_sorted() && (rank < 2 || i.iter().filter(|&&k| k == 2).count() < 2)).collect()
}

/// An entry as a sum of components with their signs.
fn entry(indices: &[usize]) -> Vec<(usize, i64)> {
    let mut sorted = indices.to_vec();
    sorted.sort_unstable();
    if let Some(component) = places(sorted.len()).iter().position(|place| *place == sorted) {
        return vec![(component, 1)];
    }
    // Two z at least, which sorting put last.
    let rest = sorted.len() - 2;
    let of = |k: usize| entry(&[&sorted[..rest], &[k, k]].concat());
    [of(0), of(1)].concat().into_iter().map(|(component, sign)| (component, -sign)).collect()
}

/// The symmetric traceless part of the product at these indices: a sum, to be divided by the second number.
fn traceless(ranks: [usize; 2], indices: &[usize]) -> (Sum, i64) {
    let mut sum = Sum::new();
    let mut add = |of: Sum, factor: i64| {
        for (at, x) in of {
            *sum.entry(at).or_default() += factor * x;
        }
    };
    let trace = |rest: &[usize]| {
        let mut sum = Sum::new();
        for k in 0..3 {
            for (at, x) in symmetric(ranks, &[&[k, k], rest].concat()) {
                *sum.entry(at).or_default() += x;
            }
        }
        sum
    };
    let own = symmetric(ranks, indices);
    // The trace with each pair of indices is taken off in such a share that none is left.
    let whole = match indices.len() {
        0 | 1 => 1,
        2 => 3,
        _ => 5,
    };
    add(own, whole);
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        if second < indices.len() && indices[first] == indices[second] {
            let rest: Vec<usize> =
                (0..indices.len()).filter(|k| ![first, second].contains(k)).map(|k| indices[k]).collect();
            add(trace(&rest), -1);
        }
    }
    sum.retain(|_, x| *x != 0);
    let orders: i64 = (1..=indices.len() as i64).product();
    (sum, whole * orders)
}

/// The sum of the contracted product over all orders of these indices.
fn symmetric([a, b]: [usize; 2], indices: &[usize]) -> Sum {
    let contracted = (a + b - indices.len()) / 2;
    let mut sum = Sum::new();
    for order in orders(indices) {
        let (left, right) = order.split_at(a - contracted);
        for mut code in 0..3usize.pow(contracted as u32) {
            let mut inner = Vec::with_capacity(contracted);
            for _ in 0..contracted {
                inner.push(code % 3);
                code /= 3;
            }
            for (x, sign_x) in entry(&[left, &inner].concat()) {
                for (y, sign_y) in entry(&[&inner, right].concat()) {
                    *sum.entry((x, y)).or_default() += sign_x * sign_y;
                }
            }
        }
    }
    sum
}

/// All orders of indices, equal ones counted as often as they occur.
fn orders(indices: &[usize]) -> Vec<Vec<usize>> {
    if indices.is_empty() {
        return vec![Vec::new()];
    }
    let first = |k: usize| {
        let rest = [&indices[..k], &indices[k + 1..]].concat();
        orders(&rest).into_iter().map(move |order| [&[indices[k]][..], &order].concat())
    };
    (0..indices.len()).flat_map(first).collect()
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
