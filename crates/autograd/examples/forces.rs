//! Learns an energy from forces alone: the loss is on −∂E/∂x, so its gradient is a second derivative.
//!
//! Particles in the plane repel as s/√(r² + 0.1) and are held by a spring k·|x|²/2. From forces at random positions, gradient
//! descent finds s and k.
//!
//! `cargo run --release -p gradewise-autograd --example forces`

use gradewise_autograd::{BackwardOptions, Result, Tensor, grad};
use gradewise_kernels::{DType, Device, Index};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const PARTICLES: usize = 6;
const LEARNING_RATE: f64 = 0.3;

/// The pairs (i, j) with i < j, as two lists of indices.
fn pairs() -> Result<(Index, Index)> {
    let pairs = (0..PARTICLES).flat_map(|i| (i + 1..PARTICLES).map(move |j| (i, j)));
    let (left, right): (Vec<usize>, Vec<usize>) = pairs.unzip();
    Ok((Index::new(&left, PARTICLES, &Device::Cpu)?, Index::new(&right, PARTICLES, &Device::Cpu)?))
}

/// The energy of the positions `x` `[particles, 2]`.
fn energy(x: &Tensor, strength: &Tensor, stiffness: &Tensor) -> Result<Tensor> {
    let (left, right) = pairs()?;
    let squared = x.index_select(0, &left)?.sub(&x.index_select(0, &right)?)?.square()?.sum(&[1], false)?;
    let repulsion = squared.add_scalar(0.1)?.rsqrt()?.sum_all()?.mul(strength)?;
    let spring = x.square()?.sum_all()?.mul(stiffness)?.mul_scalar(0.5)?;
    repulsion.add(&spring)
}

/// −∂E/∂x with its graph, so that it can be differentiated again.
fn forces(x: &Tensor, strength: &Tensor, stiffness: &Tensor) -> Result<Tensor> {
    let energy = energy(x, strength, stiffness)?;
    let gradient = energy.backward_with(&BackwardOptions::create_graph())?.take(x)?;
    gradient.neg()
}

fn main() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let scalar = |value: f64| Tensor::full([1], value, DType::F64, &Device::Cpu);
    let (true_strength, true_stiffness) = (scalar(1.7)?, scalar(0.6)?);
    let (mut strength, mut stiffness) = (scalar(0.5)?.requires_grad(), scalar(2.0)?.requires_grad());

    for step in 0..=60 {
        let x = Tensor::randn([PARTICLES, 2], DType::F64, &Device::Cpu, &mut rng)?.requires_grad();
        let measured = forces(&x, &true_strength, &true_stiffness)?.detach();
        let loss = forces(&x, &strength, &stiffness)?.sub(&measured)?.square()?.mean_all()?;
        if step % 10 == 0 {
            println!(
                "step {step:2}   force error {:.2e}   strength {:.4}   stiffness {:.4}",
                loss.item()?,
                strength.item()?,
                stiffness.item()?
            );
        }
        // Only the parameters: the second derivative with respect to the positions is not computed.
        let gradients = grad(&loss, &[&strength, &stiffness], &BackwardOptions::default())?;
        for (parameter, gradient) in [&mut strength, &mut stiffness].into_iter().zip(gradients) {
            if let Some(gradient) = gradient {
                *parameter = parameter.detach().sub(&gradient.mul_scalar(LEARNING_RATE)?)?.requires_grad();
            }
        }
    }
    println!("true values:                   strength 1.7000   stiffness 0.6000");
    Ok(())
}
