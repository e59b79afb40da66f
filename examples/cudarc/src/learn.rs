//! A weighted product learns, path by path, to be the outer product. Data and weights are slices of cudarc.

use crate::slices::{copy, in_stream, shown};
use cudarc::driver::{CudaContext, CudaSlice};
use gradewise_autograd::{Tensor, clifford};
use gradewise_core::{Algebra, Cl3, Multivector, Signature};
use gradewise_kernels::CudaDevice;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use std::{error::Error, sync::Arc};

const BLADES: usize = 8;
const ROWS: usize = 512;
/// How far a step goes down the gradient.
const RATE: f64 = 3.0;

/// What was learned.
pub struct Learned {
    /// The mean squared error before each step.
    pub losses: Vec<f64>,
    /// One for each path of Cl(3,0).
    pub weights: Vec<f64>,
}

/// Pairs of multivectors and their outer products, each `[8, rows, 1]`.
fn data() -> [Vec<f64>; 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut data = [(); 3].map(|()| vec![0.0; BLADES * ROWS]);
    for row in 0..ROWS {
        let [x, y] = [(); 2].map(|()| {
            let number = |()| (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            Multivector::<Cl3, f64>::from([(); BLADES].map(number))
        });
        for (values, multivector) in data.iter_mut().zip([x, y, x ^ y]) {
            for (blade, &value) in multivector.coefficients().iter().enumerate() {
                values[blade * ROWS + row] = value;
            }
        }
    }
    data
}

/// Trains for so many steps on a device, in a stream of cudarc.
pub fn learn(ordinal: usize, steps: usize) -> Result<Learned, Box<dyn Error>> {
    let algebra = Algebra::new(Signature::CL3)?;
    // Ours first: cudarc panics where there is no driver.
    let device = CudaDevice::new(ordinal)?;
    let stream = CudaContext::new(ordinal)?.new_stream()?;
    let mut slices: Vec<Arc<CudaSlice<f64>>> = Vec::new();
    for values in data() {
        slices.push(Arc::new(stream.clone_htod(&values)?));
    }
    let paths = algebra.paths().len();
    let mut weights = Arc::new(stream.alloc_zeros::<f64>(paths)?);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let (loss, next) = in_stream(&device, &stream, || {
            let tensor = |slice, shape: &[usize]| {
                Ok::<_, Box<dyn Error>>(Tensor::new(shown(&device, &stream, slice, shape)?))
            };
            let [x, y, outer] = [0, 1, 2].map(|index| tensor(&slices[index], &[BLADES, ROWS, 1]));
            let w = tensor(&weights, &[1, paths])?.requires_grad();
            let product = clifford::sgp(&algebra, &x?, &y?, &w, Default::default())?;
            let loss = product.sub(&outer?)?.square()?.mean_all()?;
            let gradient = loss.backward()?.take(&w)?;
            let next = w.detach().sub(&gradient.mul_scalar(RATE)?)?;
            Ok((loss.item()?, next.array().clone()))
        })?;
        losses.push(loss);
        // Nothing borrows the weights any more.
        let target = Arc::get_mut(&mut weights).ok_or("the weights are still borrowed")?;
        copy(&device, &stream, &next, target)?;
    }
    Ok(Learned { losses, weights: stream.clone_dtoh(&*weights)? })
}
