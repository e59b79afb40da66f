//! Tables that are computed once per signature: the blades eagerly, the Cayley table and the terms of each product on first use.

use crate::{
    MAX_DIMENSION, Signature,
    blade::{Product, order_blades, product_sign, reverse_sign, squares},
    once::Once,
};
use alloc::{vec, vec::Vec};

/// One non-zero entry of the Cayley table: blade `left` times blade `right` is `sign` times blade `out`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Term {
    /// Index of the left blade.
    pub left: u16,
    /// Index of the right blade.
    pub right: u16,
    /// Index of the resulting blade.
    pub out: u16,
    /// Index into [`Algebra::paths`](crate::Algebra::paths) of the grades involved.
    pub path: u16,
    /// +1 or −1.
    pub sign: i8,
}

/// A grade path: grades (left, out, right) for which the product has a non-zero term. Weighted products have one
/// weight per path; paths are ordered lexicographically by this triple.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Path {
    /// Grade of the left factor.
    pub left: u8,
    /// Grade of the result.
    pub out: u8,
    /// Grade of the right factor.
    pub right: u8,
}

/// A term of one product, in four bytes: of 256 blades at most.
pub(crate) struct ProductTerm {
    pub(crate) left: u8,
    pub(crate) right: u8,
    pub(crate) out: u8,
    pub(crate) negative: bool,
}

pub(crate) struct Tables {
    pub(crate) signature: Signature,
    /// Blade index → bit set of generators (bit g for e_{g+1}).
    pub(crate) masks: Vec<u16>,
    /// Bit set of generators → blade index.
    pub(crate) index_of_mask: Vec<u16>,
    pub(crate) grades: Vec<u8>,
    pub(crate) reverse_signs: Vec<i8>,
    /// Scalar part of reverse(blade)·blade: the blade's weight in the quadratic form.
    pub(crate) squared_norms: Vec<i8>,
    cayley: Once<Cayley>,
    products: [Once<Vec<ProductTerm>>; Product::COUNT],
}

pub(crate) struct Cayley {
    pub(crate) terms: Vec<Term>,
    pub(crate) paths: Vec<Path>,
}

impl Tables {
    /// The tables of `signature`, of which a process has one.
    ///
    /// The dimension is at most [`MAX_DIMENSION`].
    pub(crate) fn of(signature: Signature) -> &'static Self {
        const COUNTS: usize = MAX_DIMENSION + 1;
        static ALL: [Once<Tables>; COUNTS * COUNTS * COUNTS] =
            [const { Once::new() }; COUNTS * COUNTS * COUNTS];
        let [p, q, r] = [signature.p, signature.q, signature.r].map(usize::from);
        ALL[(p * COUNTS + q) * COUNTS + r].get_or_init(|| Self::new(signature))
    }

    fn new(signature: Signature) -> Self {
        let blades = signature.blade_count();
        let (mut masks, mut index_of_mask) = (vec![0; blades], vec![0; blades]);
        order_blades(&mut masks, &mut index_of_mask);
        let grades: Vec<u8> = masks.iter().map(|mask| mask.count_ones() as u8).collect();
        let reverse_signs = grades.iter().map(|&k| reverse_sign(k.into())).collect();
        let squared_norms = masks.iter().map(|&mask| squares(signature, mask)).collect();
        Self {
            signature,
            masks,
            index_of_mask,
            grades,
            reverse_signs,
            squared_norms,
            cayley: Once::new(),
            products: [const { Once::new() }; Product::COUNT],
        }
    }

    /// The whole Cayley table and its paths.
    pub(crate) fn cayley(&self) -> &Cayley {
        self.cayley.get_or_init(|| {
            let grades = self.signature.grade_count();
            let place = |path: Path| {
                (usize::from(path.left) * grades + usize::from(path.out)) * grades + usize::from(path.right)
            };
            // Ascending places are the lexicographic order of paths.
            let mut index_of_place = vec![u16::MAX; grades.pow(3)];
            let mut terms = Vec::with_capacity(self.masks.len() * self.masks.len());
            let mut path_of_place = vec![None; grades.pow(3)];
            self.for_each_term(Product::Geometric, |left, right, out, sign| {
                let path = Path { left: self.grades[left], out: self.grades[out], right: self.grades[right] };
                path_of_place[place(path)] = Some(path);
                // Stores the place for now: indices are assigned once all places are known.
                let path = place(path) as u16;
                terms.push(Term { left: left as u16, right: right as u16, out: out as u16, path, sign });
            });
            let mut paths = Vec::new();
            for (index, path) in index_of_place.iter_mut().zip(path_of_place) {
                if let Some(path) = path {
                    *index = paths.len() as u16;
                    paths.push(path);
                }
            }
            for term in &mut terms {
                term.path = index_of_place[usize::from(term.path)];
            }
            Cayley { terms, paths }
        })
    }

    /// The terms that `product` keeps, ordered by left, then right blade.
    pub(crate) fn product(&self, product: Product) -> &[ProductTerm] {
        self.products[product as usize].get_or_init(|| {
            let mut terms = Vec::new();
            self.for_each_term(product, |left, right, out, sign| {
                let (left, right, out) = (left as u8, right as u8, out as u8);
                terms.push(ProductTerm { left, right, out, negative: sign < 0 });
            });
            terms
        })
    }

    /// Calls `visit` with left, right and resulting blade and the sign of each term that `product` keeps.
    fn for_each_term(&self, product: Product, mut visit: impl FnMut(usize, usize, usize, i8)) {
        for (left, &a) in self.masks.iter().enumerate() {
            for (right, &b) in self.masks.iter().enumerate() {
                if !product.keeps(a, b) {
                    continue;
                }
                let sign = product_sign(self.signature, a, b);
                if sign != 0 {
                    visit(left, right, usize::from(self.index_of_mask[usize::from(a ^ b)]), sign);
                }
            }
        }
    }
}
