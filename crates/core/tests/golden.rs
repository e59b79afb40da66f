//! The geometric product against vectors of an independent implementation in float64.

mod common;

use common::relative_error;
use gradewise_core::{
    Algebra, Cga3, Cl2, Cl3, Cl5, CliffordAlgebra, Multivector, Pga3, Signature, Sta, TypeLevel,
};
use safetensors::{Dtype, SafeTensors};
use std::{error::Error, fs, path::Path};

/// Inputs and output of one file, `[blades][batch · features]`.
struct Golden {
    algebra: Algebra,
    x: Vec<f64>,
    y: Vec<f64>,
    out: Vec<f64>,
}

fn read(name: &str) -> Result<Golden, Box<dyn Error>> {
    let path = Path::new("tests/golden").join(name);
    let bytes = fs::read(path)?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes)?;
    let metadata = metadata.metadata().as_ref().ok_or("no metadata")?;
    assert_eq!(metadata["layout"], "blades,batch,features");
    let tensors = SafeTensors::deserialize(&bytes)?;
    let values = |key: &str| -> Result<Vec<f64>, Box<dyn Error>> {
        let tensor = tensors.tensor(key)?;
        assert_eq!(tensor.dtype(), Dtype::F64);
        Ok(tensor
            .data()
            .chunks_exact(8)
            .map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes")))
            .collect())
    };
    Ok(Golden {
        algebra: Algebra::new(metadata["signature"].parse::<Signature>()?)?,
        x: values("in.x")?,
        y: values("in.y")?,
        out: values("out.y")?,
    })
}

/// The products of all pairs in `algebra`, in the layout of the file.
fn products<A: CliffordAlgebra>(algebra: &A, golden: &Golden) -> Result<Vec<f64>, Box<dyn Error>> {
    let blades = algebra.signature().blade_count();
    let pairs = golden.x.len() / blades;
    let mut out = vec![f64::NAN; golden.out.len()];
    for pair in 0..pairs {
        let gather =
            |values: &[f64]| -> Vec<f64> { (0..blades).map(|blade| values[blade * pairs + pair]).collect() };
        let x = Multivector::from_coefficients_in(algebra, &gather(&golden.x))?;
        let y = Multivector::from_coefficients_in(algebra, &gather(&golden.y))?;
        let product = A::into_result(x.geometric_product(&y))?;
        for (blade, &c) in product.coefficients().iter().enumerate() {
            out[blade * pairs + pair] = c;
        }
    }
    Ok(out)
}

fn check<A: TypeLevel>(name: &str) -> Result<(), Box<dyn Error>> {
    let golden = read(name)?;
    assert_eq!(golden.algebra.signature(), A::SIGNATURE);
    for (kind, out) in
        [("type", products(&A::default(), &golden)?), ("run-time", products(&golden.algebra, &golden)?)]
    {
        let error = relative_error(&out, &golden.out);
        assert!(error <= 1e-14, "{name} with the {kind} algebra: relative error {error:e}");
    }
    Ok(())
}

#[test]
fn geometric_products_agree() -> Result<(), Box<dyn Error>> {
    check::<Cl2>("geometric_product_cl200.safetensors")?;
    check::<Cl3>("geometric_product_cl300.safetensors")?;
    check::<Sta>("geometric_product_cl130.safetensors")?;
    check::<Pga3>("geometric_product_cl301.safetensors")?;
    check::<Cga3>("geometric_product_cl410.safetensors")?;
    check::<Cl5>("geometric_product_cl500.safetensors")
}
