//! Tables of signed terms of bilinear products, which are closed under differentiation.

use crate::{Result, runtime::growing::Growing};
use gradewise_core::{Algebra, Error as CoreError, Multivector, Signature};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

/// One term `sign·a[a]·b[b]` of result `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableTerm {
    /// Index into the left operand's leading axis.
    pub a: u16,
    /// Index into the right operand's leading axis.
    pub b: u16,
    /// Index into the result's leading axis.
    pub out: u16,
    /// +1 or −1.
    pub sign: i8,
}

/// A bilinear product of operands with `a` and `b` entries along the leading axis and a result with `out`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Size of the left operand's leading axis.
    pub a: usize,
    /// Size of the right operand's leading axis.
    pub b: usize,
    /// Size of the result's leading axis.
    pub out: usize,
    pub(crate) by_out: Vec<Vec<TableTerm>>,
    /// A process-wide id: equal tables have the same one, different tables never do.
    number: u64,
}

/// The product resolved by grade path, and the path and the blade of each result.
type ByPath = (Arc<Table>, Vec<u32>, Vec<u32>);

/// The id of the table with these sizes and terms; a new table gets the next free one.
fn number(sizes: [usize; 3], by_out: &[Vec<TableTerm>]) -> u64 {
    type Numbers = HashMap<([usize; 3], Vec<Vec<TableTerm>>), u64>;
    static NUMBERS: LazyLock<Mutex<Numbers>> = LazyLock::new(Mutex::default);
    // A panic while the lock is held leaves the map as it was: entries are inserted complete.
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    let next = numbers.len() as u64;
    *numbers.entry((sizes, by_out.to_vec())).or_insert(next)
}

impl Table {
    /// A table from its terms; terms outside the sizes are left out.
    pub fn new(a: usize, b: usize, out: usize, terms: impl IntoIterator<Item = TableTerm>) -> Self {
        let mut by_out = vec![Vec::new(); out];
        for term in terms.into_iter().filter(|term| usize::from(term.a) < a && usize::from(term.b) < b) {
            if let Some(list) = by_out.get_mut(usize::from(term.out)) {
                list.push(term);
            }
        }
        let number = number([a, b, out], &by_out);
        Self { a, b, out, by_out, number }
    }

    /// The geometric product of `algebra`: blades × blades → blades. Made once per process and shared, as are the gradients of tables.
    pub fn geometric(algebra: &Algebra) -> Arc<Self> {
        static KNOWN: Growing<Signature, Arc<Table>> = Growing::new();
        KNOWN.get_or_make(algebra.signature(), || Arc::new(Self::every_product(algebra)))
    }

    fn every_product(algebra: &Algebra) -> Self {
        let blades = algebra.blade_count();
        let terms = algebra.terms().iter().map(|term| TableTerm {
            a: term.left,
            b: term.right,
            out: term.out,
            sign: term.sign,
        });
        Self::new(blades, blades, blades, terms)
    }

    /// The regressive product of `algebra`, dual(a ∨ b) = dual(a) ∧ dual(b): in projective algebras the join of points.
    /// Computed once per process and shared: it takes a product of every two blades.
    pub fn regressive(algebra: &Algebra) -> Arc<Self> {
        static KNOWN: Growing<Signature, Arc<Table>> = Growing::new();
        KNOWN.get_or_make(algebra.signature(), || Arc::new(Self::every_join(algebra)))
    }

    fn every_join(algebra: &Algebra) -> Self {
        let blades = algebra.blade_count();
        let blade = |index| Multivector::<_, f64>::blade_in(algebra, index, 1.0).ok();
        let mut terms = Vec::new();
        for (a, b) in (0..blades).flat_map(|a| (0..blades).map(move |b| (a, b))) {
            // Blades whose grades sum to less than n have no regressive product.
            if usize::from(algebra.grades()[a] + algebra.grades()[b]) < algebra.dimension() {
                continue;
            }
            let product = blade(a).zip(blade(b)).and_then(|(a, b)| a.regressive_product(&b).ok());
            let values = product.iter().flat_map(|product| product.coefficients().iter().enumerate());
            terms.extend(values.filter(|(_, value)| **value != 0.0).map(|(out, &value)| TableTerm {
                a: a as u16,
                b: b as u16,
                out: out as u16,
                sign: if value > 0.0 { 1 } else { -1 },
            }));
        }
        Self::new(blades, blades, blades, terms)
    }

    /// The geometric product resolved by grade path: one result for each (path, result blade) that occurs, in that
    /// order. Also gives the path and the blade of each result.
    pub fn by_path(algebra: &Algebra) -> (Arc<Self>, Vec<u32>, Vec<u32>) {
        static KNOWN: Growing<Signature, Arc<ByPath>> = Growing::new();
        let known = KNOWN.get_or_make(algebra.signature(), || Arc::new(Self::every_path(algebra)));
        ByPath::clone(&known)
    }

    fn every_path(algebra: &Algebra) -> ByPath {
        let mut keys: Vec<(u16, u16)> = algebra.terms().iter().map(|term| (term.path, term.out)).collect();
        keys.sort_unstable();
        keys.dedup();
        let terms = algebra.terms().iter().filter_map(|term| {
            let out = keys.binary_search(&(term.path, term.out)).ok()?;
            Some(TableTerm { a: term.left, b: term.right, out: out as u16, sign: term.sign })
        });
        let blades = algebra.blade_count();
        let table = Self::new(blades, blades, keys.len(), terms);
        let (paths, outs) = keys.into_iter().map(|(path, out)| (u32::from(path), u32::from(out))).unzip();
        (Arc::new(table), paths, outs)
    }

    /// The table of the gradient with respect to the left operand: (∂out, b) → ∂a.
    pub fn grad_a(&self) -> Arc<Self> {
        static KNOWN: Growing<u64, Arc<Table>> = Growing::new();
        let terms = || self.terms().map(|t| TableTerm { a: t.out, b: t.b, out: t.a, sign: t.sign });
        KNOWN.get_or_make(self.number, || Arc::new(Self::new(self.out, self.b, self.a, terms())))
    }

    /// The table of the gradient with respect to the right operand: (∂out, a) → ∂b.
    pub fn grad_b(&self) -> Arc<Self> {
        static KNOWN: Growing<u64, Arc<Table>> = Growing::new();
        let terms = || self.terms().map(|t| TableTerm { a: t.out, b: t.a, out: t.b, sign: t.sign });
        KNOWN.get_or_make(self.number, || Arc::new(Self::new(self.out, self.a, self.b, terms())))
    }

    /// The same product of operands and results whose components lie in another order: component `n` is the one that this table knows as
    /// `order[n]`.
    ///
    /// # Errors
    /// Operands and results of different sizes; an order that does not hold each component once.
    pub fn ordered(&self, order: &[u16]) -> Result<Arc<Self>> {
        let mut places = vec![None; self.out];
        for (place, &component) in (0u16..).zip(order) {
            if let Some(known) = places.get_mut(usize::from(component)) {
                *known = Some(place);
            }
        }
        let places: Option<Vec<u16>> = places.into_iter().collect();
        let alike = self.a == self.out && self.b == self.out && order.len() == self.out;
        let Some(places) = places.filter(|_| alike) else {
            let reason =
                "an order holds each component once, of operands and a result that have equally many";
            return Err(CoreError::Undefined { operation: "table_product", reason }.into());
        };
        let of = |component: u16| places[usize::from(component)];
        let term = |t: TableTerm| TableTerm { a: of(t.a), b: of(t.b), out: of(t.out), sign: t.sign };
        Ok(Arc::new(Self::new(self.a, self.b, self.out, self.terms().map(term))))
    }

    /// The process-wide id of this table.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The terms, ordered by result.
    pub fn terms(&self) -> impl Iterator<Item = TableTerm> + '_ {
        self.by_out.iter().flatten().copied()
    }
}
