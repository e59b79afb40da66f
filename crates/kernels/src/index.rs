//! Lists of indices that are checked once.

use crate::{Device, Error, Result};
use std::{fmt, sync::Arc};

/// A list of indices below a known bound, checked when it is made, resident on a device, and cheap to clone.
///
/// Used to select along an axis and to name the segment of each element along one.
#[derive(Clone)]
pub struct Index(Arc<Inner>);

struct Inner {
    values: Vec<u32>,
    bound: usize,
    device: Device,
}

impl Index {
    /// A list of indices, each less than `bound`.
    ///
    /// # Errors
    /// [`Error::Index`] at the first one that is not; [`Error::Argument`] if the bound or the length exceeds 2³² − 1.
    pub fn new(values: &[usize], bound: usize, device: &Device) -> Result<Self> {
        const NAME: &str = "Index::new";
        let limit = u32::MAX as usize;
        for (argument, size) in [("bound", bound), ("values", values.len())] {
            if size > limit {
                let actual = size.to_string();
                return Err(Error::Argument {
                    operation: NAME,
                    argument,
                    actual,
                    expected: "at most 2³² − 1",
                });
            }
        }
        let check = |(position, &value): (usize, &usize)| {
            if value < bound {
                Ok(value as u32)
            } else {
                Err(Error::Index { operation: NAME, position, value, bound })
            }
        };
        let values = values.iter().enumerate().map(check).collect::<Result<_>>()?;
        Ok(Self(Arc::new(Inner { values, bound, device: device.clone() })))
    }

    /// Number of indices.
    pub fn len(&self) -> usize {
        self.0.values.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.values.is_empty()
    }

    /// What every index is less than.
    pub fn bound(&self) -> usize {
        self.0.bound
    }

    /// Where the list is.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The indices.
    pub fn to_vec(&self) -> Vec<usize> {
        self.0.values.iter().map(|&value| value as usize).collect()
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({} indices below {} on {})", self.len(), self.bound(), self.device())
    }
}
