//! Positions in memory as functions of the counters of loops.

use std::sync::Arc;

/// One summand of a position: `stride` times a counter, or times the entry of a list at the counter.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Term {
    pub counter: usize,
    pub list: Option<Arc<[usize]>>,
    pub stride: usize,
}

impl Term {
    /// The largest value that is multiplied by the stride, where the loop has this size.
    fn largest(&self, size: usize) -> usize {
        match &self.list {
            Some(list) => list.iter().copied().max().unwrap_or(0),
            None => size - 1,
        }
    }

    /// The value at a counter.
    fn value(&self, counter: usize) -> usize {
        self.list.as_ref().map_or(counter, |list| list[counter])
    }
}

/// A position: an offset plus terms, of which no two are the same counter without a list.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Index {
    pub offset: usize,
    pub terms: Vec<Term>,
}

impl Index {
    /// The counter of a loop alone.
    pub fn counter(counter: usize) -> Self {
        Self { offset: 0, terms: vec![Term { counter, list: None, stride: 1 }] }
    }

    /// Adds `stride` times a counter or an entry of a list.
    pub fn push(&mut self, term: Term) {
        if term.stride == 0 {
            return;
        }
        let same =
            |other: &&mut Term| other.counter == term.counter && other.list.is_none() && term.list.is_none();
        match self.terms.iter_mut().find(same) {
            Some(other) => other.stride += term.stride,
            None => self.terms.push(term),
        }
    }

    /// Adds `factor` times another position.
    pub fn add(&mut self, factor: usize, other: &Self) {
        self.offset += factor * other.offset;
        for term in &other.terms {
            self.push(Term { stride: factor * term.stride, ..term.clone() });
        }
    }

    /// The stride of a counter that has no list here; `None` if it has one.
    pub fn stride(&self, counter: usize) -> Option<usize> {
        let mut stride = 0;
        for term in self.terms.iter().filter(|term| term.counter == counter) {
            if term.list.is_some() {
                return None;
            }
            stride += term.stride;
        }
        Some(stride)
    }

    /// Whether a counter takes part.
    pub fn has(&self, counter: usize) -> bool {
        self.terms.iter().any(|term| term.counter == counter)
    }

    pub fn has_lists(&self) -> bool {
        self.terms.iter().any(|term| term.list.is_some())
    }

    /// This position with each counter replaced; `sizes` are those of the new loops. `None` if a list's counter is replaced by a sum.
    pub fn substituted(&self, by: &[Self], sizes: &[usize]) -> Option<Self> {
        let mut result = Self { offset: self.offset, terms: Vec::new() };
        for term in &self.terms {
            let with = &by[term.counter];
            let Some(list) = &term.list else {
                result.add(term.stride, with);
                continue;
            };
            match composed(with, sizes, |position| list[position])? {
                Composed::Fixed(value) => result.offset += term.stride * value,
                Composed::Listed(counter, values) => {
                    result.push(Term { counter, list: Some(values.into()), stride: term.stride });
                }
            }
        }
        Some(result)
    }
}

/// A list at a position that depends on at most one counter.
pub(crate) enum Composed<T> {
    Fixed(T),
    Listed(usize, Vec<T>),
}

/// The entries of a list at `position`, by the counter that it depends on.
pub(crate) fn composed<T>(
    position: &Index,
    sizes: &[usize],
    entry: impl Fn(usize) -> T,
) -> Option<Composed<T>> {
    match &position.terms[..] {
        [] => Some(Composed::Fixed(entry(position.offset))),
        [term] => {
            let at = |counter: usize| entry(position.offset + term.stride * term.value(counter));
            Some(Composed::Listed(term.counter, (0..sizes[term.counter]).map(at).collect()))
        }
        _ => None,
    }
}

/// The counters of the loops (of sizes `of`) that write `position` of a buffer by `to`, where `position` is a function of other loops, of
/// sizes `sizes`. `None` if the loops do not write each position once, in row-major digits, or if a digit of `position` has a carry.
pub(crate) fn inverted(to: &Index, of: &[usize], position: &Index, sizes: &[usize]) -> Option<Vec<Index>> {
    if to.has_lists() {
        return None;
    }
    let mut digits: Vec<(usize, usize)> = Vec::new();
    for (counter, &size) in of.iter().enumerate() {
        match to.stride(counter)? {
            0 if size == 1 => {}
            0 => return None,
            stride => digits.push((stride, counter)),
        }
    }
    digits.sort_by_key(|&(stride, _)| std::cmp::Reverse(stride));
    if !digits.windows(2).all(|pair| pair[0].0 >= pair[1].0 * of[pair[1].1]) {
        return None;
    }
    let mut counters = vec![Index::default(); of.len()];
    let mut rest = position.offset.checked_sub(to.offset)?;
    for &(stride, counter) in &digits {
        counters[counter].offset = rest / stride;
        rest %= stride;
    }
    if rest != 0 {
        return None;
    }
    for term in &position.terms {
        let mut rest = term.stride;
        for &(stride, counter) in &digits {
            counters[counter].push(Term { stride: rest / stride, ..term.clone() });
            rest %= stride;
        }
        if rest != 0 {
            return None;
        }
    }
    let fits = |(index, &size): (&Index, &usize)| {
        let most: usize =
            index.terms.iter().map(|term| term.stride * term.largest(sizes[term.counter])).sum();
        index.offset + most < size
    };
    counters.iter().zip(of).all(fits).then_some(counters)
}
