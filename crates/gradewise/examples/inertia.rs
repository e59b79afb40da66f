//! Learns the inertia of clouds of points: from masses at places that turn with an angular velocity ω to their angular
//! momentum, the bivector L = Σ m x ∧ (x ⌋ ω). docs/inertia.md goes through it.
//!
//! ```text
//! cargo run --release -p gradewise --example inertia
//! ```

use gradewise::{
    nn::{Result, loss::mean_squared_error, symmetry::Isometry},
    prelude::*,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

const POINTS: usize = 6;
/// Where e1, e2 and e3 are among the blades of Cl(3,0), and e12, e13 and e23.
const VECTORS: Range<usize> = 1..4;
const PLANES: Range<usize> = 4..7;

/// One cloud: masses and places, and the angular velocity.
type Cloud = (Vec<(f64, Multivector<Cl3, f64>)>, Multivector<Cl3, f64>);

fn cloud(rng: &mut ChaCha8Rng) -> Cloud {
    let vector = |rng: &mut ChaCha8Rng| Multivector::vector([(); 3].map(|()| rng.random_range(-1.0..1.0)));
    let points = (0..POINTS).map(|_| (rng.random_range(0.2..1.0), vector(rng))).collect();
    (points, !vector(rng))
}

/// The angular momentum by its formula: what the network is to find out.
fn momentum((points, spin): &Cloud) -> Multivector<Cl3, f64> {
    points.iter().map(|(mass, x)| (*x ^ x.left_contraction(spin)) * *mass).sum()
}

/// Clouds as multivectors `[8, clouds × points, 3]`: the mass as a scalar, the place as a vector, ω as a bivector.
fn input(clouds: &[Cloud]) -> Result<Tensor> {
    let rows = clouds.len() * POINTS;
    let mut values = vec![0.0; 8 * rows * 3];
    for (row, ((mass, x), spin)) in
        clouds.iter().flat_map(|(points, spin)| points.iter().map(move |point| (point, spin))).enumerate()
    {
        let mut put =
            |blade: usize, feature: usize, value: f64| values[(blade * rows + row) * 3 + feature] = value;
        put(0, 0, *mass);
        for blade in VECTORS {
            put(blade, 1, x.coefficients()[blade]);
        }
        for blade in PLANES {
            put(blade, 2, spin.coefficients()[blade]);
        }
    }
    Ok(Tensor::from_slice(&values, [8, rows, 3], &Device::Cpu)?)
}

/// Angular momenta `[3, clouds]`, over e12, e13 and e23.
fn target(clouds: &[Cloud]) -> Result<Tensor> {
    let momenta: Vec<_> = clouds.iter().map(momentum).collect();
    let values: Vec<f64> =
        PLANES.flat_map(|blade| momenta.iter().map(move |momentum| momentum.coefficients()[blade])).collect();
    Ok(Tensor::from_slice(&values, [3, clouds.len()], &Device::Cpu)?)
}

/// Points one by one through the same layers, then summed: the result does not depend on their order.
struct Inertia(Sequential);

impl Inertia {
    fn new(rng: &mut ChaCha8Rng) -> Result<Self> {
        let (algebra, place) = (Signature::CL3, Placement::new(&Device::Cpu, DType::F64));
        Ok(Self(
            Sequential::new()
                .then(MvLinear::new(3, 8, algebra).init(&place, rng)?)
                .then(SteerableProduct::fully_connected(8, 8, algebra).init(&place, rng)?)
                .then(SteerableProduct::fully_connected(8, 8, algebra).init(&place, rng)?)
                .then(MvLinear::new(8, 1, algebra).init(&place, rng)?),
        ))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let clouds = x.shape()[1] / POINTS;
        let planes = self.0.forward(x)?.slice(0, PLANES)?;
        Ok(planes.reshape([3, clouds, POINTS])?.sum(&[2], false)?)
    }
}

/// The same cloud after rotations and reflections.
fn moved((points, spin): &Cloud, isometry: &Isometry) -> Result<Cloud> {
    let turn = |x: &Multivector<Cl3, f64>| -> Result<Multivector<Cl3, f64>> {
        let components = isometry.apply(x.vector_part())?;
        Ok(Multivector::vector([components[0], components[1], components[2]]))
    };
    let points = points.iter().map(|(mass, x)| Ok((*mass, turn(x)?))).collect::<Result<_>>()?;
    // ω is the dual of a vector, which reflections turn round.
    Ok((points, !turn(&spin.undual())? * isometry.determinant()))
}

fn main() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let clouds: Vec<Cloud> = (0..128).map(|_| cloud(&mut rng)).collect();
    let (x, y) = (input(&clouds)?, target(&clouds)?);
    let model = Inertia::new(&mut rng)?;
    let parameters = model.0.named_parameters();
    let mut optimizer = Optimizer::new(Method::adam(0.0))?;
    for step in 0..=300 {
        let loss = mean_squared_error(&model.forward(&x)?, &y)?;
        if step % 100 == 0 {
            println!("step {step:>3}  mean squared error {:.2e}", loss.item()?);
        }
        let mut gradients = loss.backward()?;
        let of = |tensor: &Tensor| gradients.take(tensor).ok().map(|gradient| gradient.array().clone());
        let gradients: Vec<_> = parameters
            .iter()
            .map(|(_, parameter)| parameter.tensor())
            .collect::<Vec<_>>()
            .iter()
            .map(of)
            .collect();
        optimizer.step(0.01, &parameters, &gradients)?;
    }

    // Clouds that it has not seen, as they are and moved: nothing depends on the frame.
    let unseen: Vec<Cloud> = (0..128).map(|_| cloud(&mut rng)).collect();
    let isometry = Isometry::random(Signature::CL3, 3, &mut rng)?;
    let turned = unseen.iter().map(|cloud| moved(cloud, &isometry)).collect::<Result<Vec<_>>>()?;
    for (name, clouds) in [("unseen", &unseen), ("unseen, moved", &turned)] {
        let error = mean_squared_error(&model.forward(&input(clouds)?)?, &target(clouds)?)?.item()?;
        println!("{name}: mean squared error {error:.2e}");
    }
    Ok(())
}
