//! Values that a device caches, by what they were derived from.

use super::kernel::KernelId;
use gradewise_core::{DType, Shape, Signature};
use hashbrown::Equivalent;
use std::any::TypeId;

/// What something that a device keeps was derived from; with its type, that says which one it is. Asking for it again makes nothing, so
/// numbers are only borrowed then.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key<N = Box<[u8]>> {
    /// The device alone.
    Device,
    /// An algebra.
    Algebra(Signature),
    /// Another device of the same driver, by its number.
    Peer(usize),
    /// A [`Table`](crate::ops::clifford::product::table_product::Table), by its number.
    Table(u64),
    /// A kernel and the form of its launches.
    Launch { kernel: KernelId, cluster: [u32; 3], block: [u32; 3], shared: u32 },
    /// Numbers: the bytes of `f64` for an array of `dtype`, or of indices, and the shape or the bound.
    Numbers { bytes: N, dtype: Option<DType>, shape: Shape },
}

impl Key<&[u8]> {
    fn to_owned(&self) -> Key {
        match self {
            Self::Device => Key::Device,
            Self::Algebra(signature) => Key::Algebra(*signature),
            Self::Peer(ordinal) => Key::Peer(*ordinal),
            Self::Table(number) => Key::Table(*number),
            &Self::Launch { kernel, cluster, block, shared } => {
                Key::Launch { kernel, cluster, block, shared }
            }
            Self::Numbers { bytes, dtype, shape } => {
                Key::Numbers { bytes: (*bytes).into(), dtype: *dtype, shape: shape.clone() }
            }
        }
    }

    fn is(&self, other: &Key) -> bool {
        match (self, other) {
            (Self::Device, Key::Device) => true,
            (Self::Algebra(a), Key::Algebra(b)) => a == b,
            (Self::Peer(a), Key::Peer(b)) => a == b,
            (Self::Table(a), Key::Table(b)) => a == b,
            (
                Self::Launch { kernel, cluster, block, shared },
                Key::Launch { kernel: k, cluster: c, block: b, shared: s },
            ) => (kernel, cluster, block, shared) == (k, c, b, s),
            (Self::Numbers { bytes, dtype, shape }, Key::Numbers { bytes: b, dtype: d, shape: s }) => {
                **bytes == **b && dtype == d && shape == s
            }
            _ => false,
        }
    }
}

/// The key of something of a type, as it is looked up. Hashes as the key does that it [equals](Equivalent).
#[derive(Hash)]
pub(super) struct Asked<'a>(pub TypeId, pub Key<&'a [u8]>);

impl Asked<'_> {
    /// The key as it is kept.
    pub fn kept(&self) -> (TypeId, Key) {
        (self.0, self.1.to_owned())
    }
}

impl Equivalent<(TypeId, Key)> for Asked<'_> {
    fn equivalent(&self, (of, key): &(TypeId, Key)) -> bool {
        self.0 == *of && self.1.is(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::growing::Growing;

    #[test]
    fn what_is_kept_is_found_by_what_is_borrowed() {
        let map = Growing::<(TypeId, Key), usize>::new();
        let numbers = |bytes: &'static [u8], dtype, shape: [usize; 1]| Key::Numbers {
            bytes,
            dtype,
            shape: shape.into(),
        };
        let keys = [
            Key::Device,
            Key::Algebra(Signature::CL2),
            Key::Algebra(Signature::CL3),
            Key::Peer(1),
            Key::Table(1),
            numbers(&[1, 2], None, [2]),
            numbers(&[1, 2], None, [3]),
            numbers(&[1, 2], Some(DType::F32), [2]),
            numbers(&[1, 3], None, [2]),
        ];
        let ask = |key: &Key<&'static [u8]>| Asked(TypeId::of::<u8>(), key.clone());
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(map.get(&ask(key)), None);
            map.add(ask(key).kept(), number);
        }
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(map.get(&ask(key)), Some(number));
            assert_eq!(map.get(&Asked(TypeId::of::<u16>(), key.clone())), None);
        }
    }
}
