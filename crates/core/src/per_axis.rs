//! One number for each axis of an array.

use alloc::{vec, vec::Vec};
use core::{
    fmt,
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
};

/// Most numbers that are stored inline, without an allocation.
const INLINE: usize = 4;

/// One number for each axis of an array, such as its sizes or its strides.
///
/// Up to four numbers need no allocation, and cloning them copies a few words: an operator clones several such lists at
/// every call, of each of its operands.
#[derive(Clone)]
pub struct PerAxis(Numbers);

#[derive(Clone)]
enum Numbers {
    /// The first `count` of `values`; the others are unused.
    Inline {
        count: usize,
        values: [usize; INLINE],
    },
    Allocated(Vec<usize>),
}

impl PerAxis {
    /// An empty list, of rank 0.
    pub const fn new() -> Self {
        Self(Numbers::Inline { count: 0, values: [0; INLINE] })
    }

    /// `count` times `value`.
    pub fn from_elem(value: usize, count: usize) -> Self {
        match count {
            0..=INLINE => Self(Numbers::Inline { count, values: [value; INLINE] }),
            _ => Self(Numbers::Allocated(vec![value; count])),
        }
    }

    /// Appends a number.
    pub fn push(&mut self, value: usize) {
        match &mut self.0 {
            Numbers::Inline { count, values } if *count < INLINE => {
                values[*count] = value;
                *count += 1;
            }
            Numbers::Inline { values, .. } => {
                self.0 = Numbers::Allocated(values.iter().copied().chain([value]).collect());
            }
            Numbers::Allocated(numbers) => numbers.push(value),
        }
    }

    /// Appends numbers.
    pub fn extend_from_slice(&mut self, values: &[usize]) {
        values.iter().for_each(|&value| self.push(value));
    }

    /// Puts a number before the one at `index`.
    ///
    /// # Panics
    /// If `index` exceeds the length.
    pub fn insert(&mut self, index: usize, value: usize) {
        assert!(index <= self.len(), "index {index} of {} numbers", self.len());
        match &mut self.0 {
            Numbers::Inline { count, values } if *count < INLINE => {
                values.copy_within(index..*count, index + 1);
                values[index] = value;
                *count += 1;
            }
            Numbers::Inline { values, .. } => {
                let mut numbers = values.to_vec();
                numbers.insert(index, value);
                self.0 = Numbers::Allocated(numbers);
            }
            Numbers::Allocated(numbers) => numbers.insert(index, value),
        }
    }

    /// Removes the number at `index` and returns it.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, index: usize) -> usize {
        let value = self[index];
        match &mut self.0 {
            Numbers::Inline { count, values } => {
                values.copy_within(index + 1..*count, index);
                *count -= 1;
                value
            }
            Numbers::Allocated(numbers) => numbers.remove(index),
        }
    }
}

impl Default for PerAxis {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for PerAxis {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        match &self.0 {
            Numbers::Inline { count, values } => &values[..*count],
            Numbers::Allocated(numbers) => numbers,
        }
    }
}

impl DerefMut for PerAxis {
    #[inline]
    fn deref_mut(&mut self) -> &mut [usize] {
        match &mut self.0 {
            Numbers::Inline { count, values } => &mut values[..*count],
            Numbers::Allocated(numbers) => numbers,
        }
    }
}

impl FromIterator<usize> for PerAxis {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let mut all = Self::new();
        numbers.into_iter().for_each(|number| all.push(number));
        all
    }
}

impl From<&[usize]> for PerAxis {
    fn from(numbers: &[usize]) -> Self {
        if numbers.len() > INLINE {
            return Self(Numbers::Allocated(numbers.to_vec()));
        }
        let mut values = [0; INLINE];
        values[..numbers.len()].copy_from_slice(numbers);
        Self(Numbers::Inline { count: numbers.len(), values })
    }
}

impl From<Vec<usize>> for PerAxis {
    fn from(numbers: Vec<usize>) -> Self {
        if numbers.len() > INLINE { Self(Numbers::Allocated(numbers)) } else { Self::from(&numbers[..]) }
    }
}

impl<'a> IntoIterator for &'a PerAxis {
    type Item = &'a usize;
    type IntoIter = core::slice::Iter<'a, usize>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

// An allocated list may be as short as an inline one, so lists are compared by content.
impl PartialEq for PerAxis {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for PerAxis {}

impl Hash for PerAxis {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl fmt::Debug for PerAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::PerAxis;
    use proptest::{collection::vec, prelude::*};

    proptest! {
        /// Every mutation behaves as on a vector, also across the switch between inline and allocated storage.
        #[test]
        fn it_is_a_list(start in vec(0..9usize, 0..8), changes in vec((0..3u8, 0..9usize, 0..9usize), 0..12)) {
            let (mut list, mut expected) = (PerAxis::from(&start[..]), start.clone());
            prop_assert_eq!(&PerAxis::from(start.clone()), &list);
            prop_assert_eq!(&start.iter().copied().collect::<PerAxis>(), &list);
            for (kind, at, value) in changes {
                let length = expected.len();
                match kind {
                    0 => {
                        list.insert(at % (length + 1), value);
                        expected.insert(at % (length + 1), value);
                    }
                    1 if length > 0 => prop_assert_eq!(list.remove(at % length), expected.remove(at % length)),
                    _ => {
                        list.extend_from_slice(&[value, at]);
                        expected.extend([value, at]);
                    }
                }
                list.reverse();
                expected.reverse();
                prop_assert_eq!(&list[..], &expected[..]);
                prop_assert_eq!(&list.clone(), &PerAxis::from(expected.clone()));
                prop_assert_eq!(list.iter().sum::<usize>(), (&list).into_iter().sum());
            }
        }
    }
}
