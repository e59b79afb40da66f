//! An equivariant network on points in space, and the proof that turning its input turns its output.
//!
//! `cargo run -p gradewise-nn --example equivariant_layer`

use gradewise_autograd::Tensor;
use gradewise_core::{Cl3, DType, Multivector, Rotor3, Signature};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Placement,
    init::init_table,
    layers::{Layer, MvLayerNorm, MvLinear, MvSilu, Sequential, SteerableProduct},
};
use rand::SeedableRng;

const POINTS: usize = 6;

type Vector = Multivector<Cl3, f64>;

/// Features `[8, points, 1]` whose vector part is the points.
fn features(points: &[[f64; 3]]) -> Result<Tensor, gradewise_kernels::Error> {
    let mut values = vec![0.0; 8 * points.len()];
    for (index, point) in points.iter().enumerate() {
        for (axis, coordinate) in point.iter().enumerate() {
            values[(1 + axis) * points.len() + index] = *coordinate;
        }
    }
    Ok(Tensor::new(Array::from_f64(&values, [8, points.len(), 1], DType::F64, &Device::Cpu)?))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    let placement = Placement::new(&Device::Cpu, DType::F64);
    let (signature, width) = (Signature::CL3, 8);
    let network = Sequential::new()
        .then(MvLinear::new(1, width, signature).init(&placement, &mut rng)?)
        .then(MvSilu::new(width, signature).init(&placement)?)
        .then(SteerableProduct::new(width, signature).init(&placement, &mut rng)?)
        .then(MvLayerNorm::new(width, signature).init(&placement)?)
        .then(MvLinear::new(width, 1, signature).init(&placement, &mut rng)?);
    println!("{}\n", init_table(&network)?);

    let rotor = Rotor3::<f64>::from_plane_angle(
        &Vector::vector([1.0, 0.0, 0.0]).outer_product(&Vector::vector([0.0, 0.6, 0.8])),
        0.9,
    )?;
    let turn = |point: [f64; 3]| -> [f64; 3] {
        let turned = rotor.apply(&Vector::vector(point));
        [0, 1, 2].map(|axis| turned.vector_part()[axis])
    };
    let values = Tensor::randn([3 * POINTS], DType::F64, &Device::Cpu, &mut rng)?.to_vec::<f64>()?;
    let points: Vec<[f64; 3]> = values.chunks_exact(3).map(|point| [point[0], point[1], point[2]]).collect();
    let turned: Vec<[f64; 3]> = points.iter().map(|&point| turn(point)).collect();

    let vectors = |output: Tensor| -> Result<Vec<[f64; 3]>, Box<dyn std::error::Error>> {
        let values = output.to_vec::<f64>()?;
        Ok((0..POINTS).map(|index| [1, 2, 3].map(|blade| values[blade * POINTS + index])).collect())
    };
    let output = vectors(network.forward(&features(&points)?)?)?;
    let output_of_turned = vectors(network.forward(&features(&turned)?)?)?;
    let mut worst = 0f64;
    for (&vector, expected) in output.iter().zip(&output_of_turned) {
        for (a, b) in turn(vector).iter().zip(expected) {
            worst = worst.max((a - b).abs());
        }
    }
    println!("largest difference between f(u·x) and u·f(x): {worst:.1e}");
    Ok(())
}
