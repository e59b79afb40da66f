//! Parts of multivector features by name.

use super::prelude::*;
use gradewise_core::{Blade, MAX_DIMENSION, Multivector, Signature, TypeLevel};

impl Tensor {
    /// The blades of one grade of features `[2ⁿ, …]`, `[C(n, grade), …]`: a view, in the order of the blades. The order depends on the
    /// number of generators alone, so no algebra is asked for.
    ///
    /// ```
    /// use gradewise_autograd::Tensor;
    /// use gradewise_core::{Blade, DType};
    /// use gradewise_kernels::Device;
    ///
    /// let x = Tensor::from_slice(&[0.0, 1.0, 2.0, 3.0, 12.0, 13.0, 23.0, 123.0], [8], &Device::Cpu)?;
    /// assert_eq!(x.grade(2)?.to_vec::<f64>()?, [12.0, 13.0, 23.0]);
    /// assert_eq!(x.blade(Blade::E13)?.item()?, 13.0);
    /// # Ok::<(), gradewise_autograd::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a first axis that is not the blades of an algebra, and for a grade beyond n.
    pub fn grade(&self, grade: usize) -> Result<Tensor> {
        let n = dimension("Tensor::grade", self)?;
        if grade > n {
            let message =
                format!("the grade is {grade}, and features of shape {} have grades 0 to {n}", self.shape());
            return Err(Error::Argument { operation: "Tensor::grade", message });
        }
        self.slice(0, Algebra::new(euclidean(n))?.blades_of_grade(grade))
    }

    /// The coefficients `[…]` of one blade of features `[2ⁿ, …]`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a first axis that is not the blades of an algebra, and for a blade that the algebra does not have.
    pub fn blade(&self, blade: Blade) -> Result<Tensor> {
        let n = dimension("Tensor::blade", self)?;
        if blade.dimension() > n {
            let message = format!(
                "there is no {blade} among the blades of features of shape {}, which have {n} generators",
                self.shape()
            );
            return Err(Error::Argument { operation: "Tensor::blade", message });
        }
        let at = blade.position(euclidean(n));
        self.slice(0, at..at + 1)?.squeeze(0)
    }

    /// The multivectors of features `[blades, …]`, in row-major order of the axes after the first, as double precision.
    ///
    /// # Errors
    /// [`Error::Argument`] for a first axis that is not the blades of `A`.
    pub fn to_multivectors<A: TypeLevel>(&self) -> Result<Vec<Multivector<A, f64>>> {
        let blades = A::SIGNATURE.blade_count();
        if self.shape().first() != Some(&blades) {
            let message = format!(
                "the shape is {}, expected [{blades}, …], along whose first axis lie the blades of {}",
                self.shape(),
                A::SIGNATURE
            );
            return Err(Error::Argument { operation: "Tensor::to_multivectors", message });
        }
        let values = self.array().to_f64_vec()?;
        let count = values.len() / blades;
        let at = |position: usize| {
            let coefficients: Vec<f64> = (0..blades).map(|blade| values[blade * count + position]).collect();
            Ok(Multivector::from_coefficients_in(&A::ALGEBRA, &coefficients)?)
        };
        (0..count).map(at).collect()
    }
}

/// n of features `[2ⁿ, …]`.
fn dimension(operation: &'static str, x: &Tensor) -> Result<usize> {
    let blades = x.shape().first().copied().unwrap_or_default();
    if blades.is_power_of_two() && blades.trailing_zeros() as usize <= MAX_DIMENSION {
        return Ok(blades.trailing_zeros() as usize);
    }
    let message = format!(
        "the shape is {}, expected [2ⁿ, …], along whose first axis lie the blades of n generators",
        x.shape()
    );
    Err(Error::Argument { operation, message })
}

/// Any metric: the order of blades is the same for all.
fn euclidean(n: usize) -> Signature {
    // At most MAX_DIMENSION.
    Signature::new(n as u8, 0, 0)
}
