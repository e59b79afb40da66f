//! What the forward pass keeps for the backward pass.

use super::NAME;
use crate::{Array, Error, Result};

/// The block's output and what its gradients need.
#[derive(Clone, Debug)]
pub struct Forward {
    /// `[blades, batch, features]`
    pub output: Array,
    /// What [`backward`](super::backward()) reads.
    pub kept: Kept,
}

/// What [`forward`](super::forward()) keeps for [`backward`](super::backward()): intermediates, each of the output's shape. On the CPU
/// their elements are in an order of the implementation's own.
#[derive(Clone, Debug)]
pub enum Kept {
    /// The first map's result, the right factor before its normalisation, and the argument of the layer norm.
    All([Array; 3]),
    /// The first map's result, from which [`backward`](super::backward()) computes the others again, and the parameters as both passes have
    /// them in shared memory: more than 32 features on a GPU.
    First([Array; 2]),
}

impl Kept {
    pub(super) const NAMES: [&str; 3] = ["y", "r", "s"];

    /// The arrays, the first map's result first.
    pub fn arrays(&self) -> &[Array] {
        match self {
            Self::All(arrays) => arrays,
            Self::First(arrays) => arrays,
        }
    }

    /// Those that are intermediates.
    pub(super) fn intermediates(&self) -> &[Array] {
        match self {
            Self::All(arrays) => arrays,
            Self::First(arrays) => &arrays[..1],
        }
    }

    /// From [`arrays`](Self::arrays); `None` for a number of them that no way to run keeps.
    pub fn from_arrays(arrays: &[Array]) -> Option<Self> {
        match arrays {
            [y, r, s] => Some(Self::All([y.clone(), r.clone(), s.clone()])),
            [y, prepared] => Some(Self::First([y.clone(), prepared.clone()])),
            _ => None,
        }
    }

    /// All intermediates, for a way to run that reads them.
    pub(super) fn all(&self) -> Result<&[Array; 3]> {
        match self {
            Self::All(arrays) => Ok(arrays),
            Self::First(_) => Err(self.foreign()),
        }
    }

    /// The first map's result and the prepared parameters, for a way to run that reads them.
    pub(super) fn first(&self) -> Result<&[Array; 2]> {
        match self {
            Self::First(arrays) => Ok(arrays),
            Self::All(_) => Err(self.foreign()),
        }
    }

    /// The error of what another way to run kept.
    fn foreign(&self) -> Error {
        Error::Argument {
            operation: NAME,
            argument: "kept",
            actual: match self {
                Self::All(_) => "3 arrays".to_owned(),
                Self::First(_) => "2 arrays".to_owned(),
            },
            expected: "what the forward pass of the same operands kept",
        }
    }
}
