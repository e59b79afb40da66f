//! Learns the oriented volume of three vectors from examples. It is a pseudoscalar: unchanged by rotations, negated by
//! reflections. The network is equivariant, so what it learns from vectors near one axis holds in every orientation.
//!
//! ```text
//! cargo run --release -p gradewise-nn --example fit_volume
//! ```

use gradewise_autograd::{Tensor, no_grad};
use gradewise_core::Signature;
use gradewise_kernels::{DType, Device};
use gradewise_nn::{
    Module, Placement, Result,
    layers::{Layer, MvLinear, Sequential, SteerableProduct},
    loss::mean_squared_error,
    optim::{Method, Optimizer},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The blade e123 of Cl(3,0).
const PSEUDOSCALAR: usize = 7;

/// `count` triples of vectors as multivectors `[8, count, 3]`, and their volumes `[1, count, 1]`. `spread` are the sizes of
/// the coordinates along the axes.
fn triples(count: usize, spread: [f64; 3], rng: &mut ChaCha8Rng) -> Result<(Tensor, Tensor)> {
    let mut x = vec![0.0; 8 * count * 3];
    let mut volumes = vec![0.0; count];
    for (item, volume) in volumes.iter_mut().enumerate() {
        let v: [[f64; 3]; 3] =
            std::array::from_fn(|_| std::array::from_fn(|axis| spread[axis] * rng.random_range(-1.0..1.0)));
        for (vector, components) in v.iter().enumerate() {
            for (axis, &component) in components.iter().enumerate() {
                x[((1 + axis) * count + item) * 3 + vector] = component;
            }
        }
        let minor = |a: usize, b: usize| v[1][a] * v[2][b] - v[1][b] * v[2][a];
        *volume = v[0][0] * minor(1, 2) - v[0][1] * minor(0, 2) + v[0][2] * minor(0, 1);
    }
    let x = Tensor::from_slice(&x, [8, count, 3], &Device::Cpu)?;
    Ok((x, Tensor::from_slice(&volumes, [1, count, 1], &Device::Cpu)?))
}

fn main() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let place = Placement::new(&Device::Cpu, DType::F64);
    let algebra = Signature::CL3;
    let product = |rng: &mut ChaCha8Rng| SteerableProduct::fully_connected(8, 8, algebra).init(&place, rng);
    let model = Sequential::new()
        .then(MvLinear::new(3, 8, algebra).init(&place, &mut rng)?)
        .then(product(&mut rng)?)
        .then(product(&mut rng)?)
        .then(MvLinear::new(8, 1, algebra).init(&place, &mut rng)?);
    let predict =
        |x: &Tensor| -> Result<Tensor> { Ok(model.forward(x)?.slice(0, PSEUDOSCALAR..PSEUDOSCALAR + 1)?) };

    let (x, volumes) = triples(1024, [2.0, 1.0, 0.5], &mut rng)?;
    let turned = triples(1024, [0.5, 1.0, 2.0], &mut rng)?;
    let parameters = model.named_parameters();
    let mut optimizer = Optimizer::new(Method::adam(0.0))?;
    println!("{} parameters", model.parameter_count());
    for step in 0..=400 {
        let loss = mean_squared_error(&predict(&x)?, &volumes)?;
        if step % 100 == 0 {
            let elsewhere = no_grad(|| mean_squared_error(&predict(&turned.0)?, &turned.1))?;
            println!(
                "step {step:>4}  error {:.2e}  other orientations {:.2e}",
                loss.item()?,
                elsewhere.item()?
            );
        }
        let mut gradients = loss.backward()?;
        let gradients: Vec<_> = parameters
            .iter()
            .map(|(_, parameter)| {
                gradients.take(&parameter.tensor()).ok().map(|gradient| gradient.array().clone())
            })
            .collect();
        optimizer.step(0.01, &parameters, &gradients)?;
    }
    Ok(())
}
