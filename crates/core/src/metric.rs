//! Metrics whose generators come in any order.

use crate::{
    Error, MAX_DIMENSION, Path, Result, Signature,
    blade::{generators, outer_sign, reverse_sign},
    tables::Tables,
};
use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use core::{fmt, str::FromStr};

/// The squares of the generators e1…en of a Clifford algebra, each +1, −1 or 0, in any order.
///
/// A [`Signature`] lists positive generators first, negative next, null last. On a grid, generator a belongs to spatial axis a, so the
/// order is given: (−1,1,1) has time along the first axis, (0,1,1,1) is projective geometric algebra with e0 first. Blades are ordered as
/// in [`Algebra`](crate::Algebra): by grade, then lexicographically. Cloning is cheap.
///
/// ```
/// use gradewise_core::{OrderedMetric, Signature};
///
/// let metric: OrderedMetric = "-1,1,1".parse()?;
/// assert_eq!(metric.signature(), Signature::new(2, 1, 0));
/// // e1·e1 = −1, and e1·e2 = e12.
/// assert_eq!(metric.product(1, 1), (0, -1));
/// assert_eq!(metric.product(1, 2), (4, 1));
/// // In Cl(2,1,0) the negative generator comes last: e1 there is e2 here, and e12 = e1e2 turns into e3e1 = −e13.
/// assert_eq!(metric.to_sorted()[1], (3, 1));
/// assert_eq!(metric.to_sorted()[4], (5, -1));
/// # Ok::<(), gradewise_core::Error>(())
/// ```
#[derive(Clone)]
pub struct OrderedMetric {
    squares: [i8; MAX_DIMENSION],
    /// Those of the algebra with as many positive generators: the order of blades is that of any metric.
    tables: &'static Tables,
}

impl OrderedMetric {
    /// The metric with these squares of the generators.
    ///
    /// # Errors
    /// [`Error::InvalidMetric`]: no generators, more than [`MAX_DIMENSION`], or a square that is not +1, −1 or 0.
    pub fn new(squares: &[i8]) -> Result<Self> {
        let valid =
            (1..=MAX_DIMENSION).contains(&squares.len()) && squares.iter().all(|g| (-1..=1).contains(g));
        if !valid {
            let text: Vec<String> = squares.iter().map(i8::to_string).collect();
            return Err(Error::InvalidMetric { text: text.join(",") });
        }
        let mut all = [0; MAX_DIMENSION];
        all[..squares.len()].copy_from_slice(squares);
        // Valid metrics have few enough generators.
        Ok(Self { squares: all, tables: Tables::of(Signature::new(squares.len() as u8, 0, 0)) })
    }

    /// The squares of the generators.
    pub fn squares(&self) -> &[i8] {
        &self.squares[..self.dimension()]
    }

    /// Number of generators.
    pub fn dimension(&self) -> usize {
        self.tables.signature.dimension()
    }

    /// Number of blades, 2ⁿ.
    pub fn blade_count(&self) -> usize {
        self.tables.masks.len()
    }

    /// The grade of a blade; 0 beyond the last.
    pub fn grade(&self, blade: usize) -> usize {
        self.mask(blade).count_ones() as usize
    }

    fn mask(&self, blade: usize) -> u16 {
        self.tables.masks.get(blade).copied().unwrap_or(0)
    }

    fn index(&self, mask: u16) -> usize {
        usize::from(self.tables.index_of_mask[usize::from(mask)])
    }

    fn squares_of(&self, mask: u16) -> i8 {
        generators(mask).map(|generator| self.squares()[generator]).product()
    }

    /// The geometric product of two blades: the resulting blade and its sign, 0 where a null generator meets itself.
    pub fn product(&self, left: usize, right: usize) -> (usize, i8) {
        let (a, b) = (self.mask(left), self.mask(right));
        (self.index(a ^ b), outer_sign(a, b) * self.squares_of(a & b))
    }

    /// The blade whose product with `other`, on either side, is a multiple of `result`.
    pub fn factor(&self, other: usize, result: usize) -> usize {
        self.index(self.mask(other) ^ self.mask(result))
    }

    /// +1 or −1: the sign of a blade under reversion.
    pub fn reverse_sign(&self, blade: usize) -> i8 {
        reverse_sign(self.mask(blade).count_ones())
    }

    /// The scalar part of reverse(blade)·blade: the product of the squares of its generators.
    pub fn squared_norm(&self, blade: usize) -> i8 {
        self.squares_of(self.mask(blade))
    }

    /// The grade paths of the geometric product, in lexicographic order of (left, out, right): those of the sorted algebra.
    pub fn paths(&self) -> Vec<Path> {
        let blades = 0..self.blade_count();
        let pairs = blades.clone().flat_map(|left| blades.clone().map(move |right| (left, right)));
        let path = |(left, right)| {
            let (out, sign) = self.product(left, right);
            let grade = |blade| self.grade(blade) as u8;
            (sign != 0).then(|| Path { left: grade(left), out: grade(out), right: grade(right) })
        };
        let mut paths: Vec<Path> = pairs.filter_map(path).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// The signature: how many generators are positive, negative and null.
    pub fn signature(&self) -> Signature {
        let count = |square| self.squares().iter().filter(|&&g| g == square).count() as u8;
        Signature::new(count(1), count(-1), count(0))
    }

    /// For each generator, its index among those of [`signature`](Self::signature); generators with the same square keep their order.
    pub fn sorted_generators(&self) -> Vec<usize> {
        let kind = |square: i8| match square {
            1 => 0,
            -1 => 1,
            _ => 2,
        };
        let mut order: Vec<usize> = (0..self.dimension()).collect();
        order.sort_by_key(|&generator| kind(self.squares()[generator]));
        let mut place = vec![0; order.len()];
        for (sorted, &generator) in order.iter().enumerate() {
            place[generator] = sorted;
        }
        place
    }

    /// For each blade, which blade of the algebra of [`signature`](Self::signature) it is, and with which sign: the permutation that
    /// sorts the images of its generators.
    pub fn to_sorted(&self) -> Vec<(usize, i8)> {
        let place = self.sorted_generators();
        let image = |&mask: &u16| {
            let images: Vec<usize> = generators(mask).map(|generator| place[generator]).collect();
            let later = |at: usize| images[at + 1..].iter().filter(|&&other| other < images[at]).count();
            let swaps: usize = (0..images.len()).map(later).sum();
            let sorted = images.iter().fold(0u16, |sorted, &generator| sorted | 1 << generator);
            (self.index(sorted), if swaps.is_multiple_of(2) { 1 } else { -1 })
        };
        self.tables.masks.iter().map(image).collect()
    }
}

impl PartialEq for OrderedMetric {
    fn eq(&self, other: &Self) -> bool {
        self.squares() == other.squares()
    }
}

impl Eq for OrderedMetric {}

impl fmt::Display for OrderedMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, square) in self.squares().iter().enumerate() {
            write!(f, "{}{square}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for OrderedMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OrderedMetric({self})")
    }
}

/// Parses `1,-1,0`: the squares of the generators, separated by commas.
impl FromStr for OrderedMetric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = |_| Error::InvalidMetric { text: text.to_owned() };
        let squares: Vec<i8> =
            text.split(',').map(|square| square.trim().parse().map_err(invalid)).collect::<Result<_>>()?;
        Self::new(&squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algebra;

    /// All metrics of up to four generators.
    fn metrics() -> Vec<OrderedMetric> {
        let mut all: Vec<Vec<i8>> = vec![vec![]];
        let mut found = Vec::new();
        for _ in 0..4 {
            all = all.iter().flat_map(|m| [1, -1, 0].map(|g| [&m[..], &[g]].concat())).collect();
            found.extend(all.iter().map(|squares| OrderedMetric::new(squares).unwrap()));
        }
        found
    }

    #[test]
    fn the_permutation_to_the_sorted_algebra_is_an_isomorphism() {
        for metric in metrics() {
            let algebra = Algebra::new(metric.signature()).unwrap();
            let image = metric.to_sorted();
            for left in 0..metric.blade_count() {
                assert_eq!(metric.grade(left), usize::from(algebra.grades()[image[left].0]));
                assert_eq!(metric.squared_norm(left), algebra.squared_norms()[image[left].0]);
                for right in 0..metric.blade_count() {
                    let (out, sign) = metric.product(left, right);
                    assert_eq!(metric.factor(left, out), right);
                    let (there, sign_there) = algebra.blade_product(image[left].0, image[right].0);
                    assert_eq!(there, image[out].0, "{metric}");
                    assert_eq!(sign * image[out].1, sign_there * image[left].1 * image[right].1, "{metric}");
                }
            }
            assert_eq!(metric.paths(), algebra.paths(), "{metric}");
        }
    }

    #[test]
    fn squares_other_than_one_and_zero_are_refused() {
        for text in ["5,1", "", "1,,1", "1,x", "1,1,1,1,1,1,1,1,1"] {
            let error = text.parse::<OrderedMetric>().unwrap_err().to_string();
            assert!(error.contains("metric"), "{error}");
        }
        assert_eq!("0,0".parse::<OrderedMetric>().unwrap().signature(), Signature::new(0, 0, 2));
    }
}
