//! Serialization. In human-readable formats, signatures, blades and dtypes are text; in other formats, numbers or indices. A multivector is
//! its signature and its coefficients. Deserialized values are validated like any other input.

use crate::{
    Algebra, Blade, Cl, CliffordAlgebra, DType, Multivector, PerAxis, Real, Result, Rotor, Scalar, Shape,
    Signature,
};
use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Text in human-readable formats, `number` in others.
macro_rules! text_or {
    ($($type:ty, $number:ty, $to:expr, $from:expr;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                if to.is_human_readable() {
                    self.to_string().serialize(to)
                } else {
                    let number: $number = $to(self);
                    number.serialize(to)
                }
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                if from.is_human_readable() {
                    String::deserialize(from)?.parse().map_err(D::Error::custom)
                } else {
                    let number = <$number>::deserialize(from)?;
                    $from(number).ok_or_else(|| D::Error::custom(concat!("no such ", stringify!($type))))
                }
            }
        }
    )*};
}

text_or! {
    Signature, [u8; 3], |s: &Signature| [s.p, s.q, s.r], |[p, q, r]: [u8; 3]| Some(Signature::new(p, q, r));
    Blade, u16, |blade: &Blade| blade.mask(), Blade::from_mask;
    DType, u8, dtype_index, |index: u8| DType::ALL.get(usize::from(index)).copied();
}

fn dtype_index(dtype: &DType) -> u8 {
    match dtype {
        DType::F64 => 0,
        DType::F32 => 1,
        DType::BF16 => 2,
        DType::F16 => 3,
    }
}

impl Serialize for Algebra {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.signature().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Algebra {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(Signature::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl<const P: u8, const Q: u8, const R: u8> Serialize for Cl<P, Q, R> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Signature::new(P, Q, R).serialize(to)
    }
}

impl<'de, const P: u8, const Q: u8, const R: u8> Deserialize<'de> for Cl<P, Q, R> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match (Signature::deserialize(from)?, Signature::new(P, Q, R)) {
            (found, expected) if found == expected => Ok(Self),
            (found, expected) => Err(D::Error::custom(format_args!("this is of {found}, not of {expected}"))),
        }
    }
}

/// A multivector, with the algebra by its signature.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Multivector")]
struct Parts<A, T> {
    signature: A,
    coefficients: Vec<T>,
}

impl<A: CliffordAlgebra + Serialize, T: Scalar + Serialize> Serialize for Multivector<A, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Parts { signature: self.algebra(), coefficients: self.coefficients().iter().collect() }.serialize(to)
    }
}

impl<'de, A, T> Deserialize<'de> for Multivector<A, T>
where
    A: CliffordAlgebra + Deserialize<'de>,
    T: Scalar + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let parts = Parts::<A, T>::deserialize(from)?;
        Self::from_coefficients_in(&parts.signature, &parts.coefficients).map_err(D::Error::custom)
    }
}

impl<A: CliffordAlgebra + Serialize, T: Real + Serialize> Serialize for Rotor<A, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.as_multivector().serialize(to)
    }
}

/// Refuses a multivector that is no rotor.
impl<'de, A, T> Deserialize<'de> for Rotor<A, T>
where
    A: CliffordAlgebra + Deserialize<'de>,
    T: Real + Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(Multivector::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Serialize for PerAxis {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self[..].serialize(to)
    }
}

impl<'de> Deserialize<'de> for PerAxis {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::<usize>::deserialize(from).map(Self::from)
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.dims().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::<usize>::deserialize(from).map(Self::from)
    }
}
