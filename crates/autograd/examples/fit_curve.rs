//! Fits sin on [−π, π] with one hidden layer and gradient descent with momentum.
//!
//! `cargo run --release -p gradewise-autograd --example fit_curve`

use gradewise_autograd::{Result, Tensor};
use gradewise_kernels::{Array, DType, Device, ops};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::f64::consts::PI;

const POINTS: usize = 128;
const HIDDEN: usize = 32;
const STEPS: usize = 2000;
const LEARNING_RATE: f64 = 0.02;
const MOMENTUM: f64 = 0.9;

fn model(x: &Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    let hidden = x.matmul(&parameters[0])?.add(&parameters[1])?.tanh()?;
    hidden.matmul(&parameters[2])?.add(&parameters[3])
}

fn main() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let inputs: Vec<f64> = (0..POINTS).map(|i| PI * (2.0 * i as f64 / (POINTS - 1) as f64 - 1.0)).collect();
    let x = Tensor::from_slice(&inputs, [POINTS, 1], &Device::Cpu)?;
    let target = x.sin()?;

    let mut parameters = vec![
        Tensor::randn([1, HIDDEN], DType::F64, &Device::Cpu, &mut rng)?.requires_grad(),
        Tensor::randn([HIDDEN], DType::F64, &Device::Cpu, &mut rng)?.requires_grad(),
        Tensor::randn([HIDDEN, 1], DType::F64, &Device::Cpu, &mut rng)?
            .mul_scalar(1.0 / (HIDDEN as f64).sqrt())?
            .requires_grad(),
        Tensor::zeros([1], DType::F64, &Device::Cpu)?.requires_grad(),
    ];
    let mut velocities =
        parameters.iter().map(|p| Ok(p.array().zeros_like()?)).collect::<Result<Vec<Array>>>()?;

    for step in 0..=STEPS {
        let loss = model(&x, &parameters)?.sub(&target)?.square()?.mean_all()?;
        if step % 250 == 0 {
            println!("step {step:4}   mean squared error {:.3e}", loss.item()?);
        }
        let gradients = loss.backward()?;
        for (parameter, velocity) in parameters.iter_mut().zip(&mut velocities) {
            let decayed = ops::mul_scalar(velocity, MOMENTUM)?;
            *velocity =
                ops::sub(&decayed, &ops::mul_scalar(gradients.get(parameter)?.array(), LEARNING_RATE)?)?;
            *parameter = Tensor::new(ops::add(parameter.array(), velocity)?).requires_grad();
        }
    }
    Ok(())
}
