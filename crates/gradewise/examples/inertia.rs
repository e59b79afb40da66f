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

const POINTS: usize = 6;

/// A vector, a plane or a mass: any multivector of space.
type Space = Multivector<Cl3, f64>;

/// One cloud: masses and places, and the angular velocity.
type Cloud = (Vec<(f64, Space)>, Space);

fn cloud(rng: &mut ChaCha8Rng) -> Cloud {
    let vector = |rng: &mut ChaCha8Rng| Space::vector([(); 3].map(|()| rng.random_range(-1.0..1.0)));
    let points = (0..POINTS).map(|_| (rng.random_range(0.2..1.0), vector(rng))).collect();
    (points, !vector(rng))
}

/// The angular momentum by its formula: what the network is to find out.
fn momentum((points, spin): &Cloud) -> Space {
    points.iter().map(|(mass, x)| (*x ^ x.left_contraction(spin)) * *mass).sum()
}

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

/// Clouds as multivectors `[8, clouds × points, 3]`: the mass as a scalar, the place as a vector, ω as a bivector.
fn input(clouds: &[Cloud]) -> Result<Tensor> {
    place().multivectors(clouds.len() * POINTS, 3, |row, feature| {
        let (points, spin) = &clouds[row / POINTS];
        let (mass, x) = points[row % POINTS];
        [Space::scalar(mass), x, *spin][feature]
    })
}

/// Angular momenta `[3, clouds, 1]`, over e12, e13 and e23.
fn target(clouds: &[Cloud]) -> Result<Tensor> {
    Ok(place().multivectors(clouds.len(), 1, |row, _| momentum(&clouds[row]))?.grade(2)?)
}

/// Points one by one through the same layers, then summed: the result does not depend on their order.
struct Inertia(Sequential);

impl Inertia {
    fn new(rng: &mut ChaCha8Rng) -> Result<Self> {
        let (algebra, place) = (Signature::CL3, place());
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
        let planes = self.0.forward(x)?.grade(2)?;
        Ok(planes.reshape([3, clouds, POINTS])?.sum(&[2], true)?)
    }
}

/// The same cloud after rotations and reflections.
fn moved((points, spin): &Cloud, isometry: &Isometry) -> Result<Cloud> {
    let turn = |x: &Space| -> Result<Space> {
        let components = isometry.apply(x.vector_part())?;
        Ok(Space::vector([components[0], components[1], components[2]]))
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
    let mut optimizer = Optimizer::for_model(&model.0, Method::adam(0.0))?;
    for step in 0..=300 {
        let loss = mean_squared_error(&model.forward(&x)?, &y)?;
        if step % 100 == 0 {
            println!("step {step:>3}  mean squared error {:.2e}", loss.item()?);
        }
        optimizer.backward_step(&loss, 0.01)?;
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
