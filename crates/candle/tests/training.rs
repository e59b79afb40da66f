//! A network trained in candle has the losses of the same network trained in gradewise.

#[path = "../examples/inertia/network.rs"]
mod network;

use candle_core::{DType, Device};
use gradewise_autograd::{
    Tensor,
    clifford::{self, Bias, SteerableLayer},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::Array;
use network::{Clouds, Descent, Draws, MOMENTUM, Network, POINTS, RATE, initial, parameters};

const CPU: gradewise_kernels::Device = gradewise_kernels::Device::Cpu;
const STEPS: usize = 50;

fn losses_in_candle(clouds: &Clouds, initial: &[Vec<f64>], dtype: DType) -> Vec<f64> {
    let device = Device::Cpu;
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let network = Network::new(&algebra, initial, dtype, &device).unwrap();
    let [x, y] = [clouds.input(&device), clouds.target(&device)].map(|t| t.unwrap().to_dtype(dtype).unwrap());
    let mut descent = Descent::new(&network.parameters);
    let step = |_| {
        let loss = network.loss(&x, &y).unwrap();
        descent.step(&network.parameters, &loss).unwrap();
        loss.to_dtype(DType::F64).unwrap().to_scalar::<f64>().unwrap()
    };
    (0..STEPS).map(step).collect()
}

/// The same network, written with gradewise alone.
fn forward(algebra: &Algebra, x: &Tensor, p: &[Tensor]) -> gradewise_autograd::Result<Tensor> {
    let x = clifford::mv_linear(algebra, x, &p[0], Some((&p[1], Bias::Scalar)))?;
    let layer = SteerableLayer { x: &x, right: &p[2], a: &p[3], w: &p[4], left: Some((&p[5], &p[6])) };
    let y = clifford::steerable_layer(algebra, &layer)?;
    let gated = clifford::mv_silu(algebra, &y, &p[7], &p[8])?;
    let even = clifford::mv_layer_norm(algebra, &gated, &p[9])?;
    let y = y.add(&clifford::mv_linear(algebra, &even, &p[10], None)?)?;
    let z = y.add(&clifford::sgp(algebra, &x, &y, &p[11], Default::default())?)?;
    let planes = clifford::mv_linear(algebra, &z, &p[12], None)?.slice(0, 4..7)?;
    planes.reshape([3, x.shape()[1] / POINTS, POINTS])?.sum(&[2], true)
}

fn losses_in_gradewise(
    clouds: &Clouds,
    initial: &[Vec<f64>],
    dtype: gradewise_kernels::DType,
) -> gradewise_autograd::Result<Vec<f64>> {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let array = |values: &[f64], shape: &[usize]| Array::from_f64(values, shape, dtype, &CPU);
    let x = Tensor::new(array(&clouds.input, &[8, clouds.count * POINTS, 3])?);
    let y = Tensor::new(array(&clouds.target, &[3, clouds.count, 1])?);
    let mut values = Vec::new();
    for ((shape, _), initial) in parameters().iter().zip(initial) {
        values.push((Tensor::new(array(initial, shape)?).requires_grad(), None::<Tensor>));
    }
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let p: Vec<Tensor> = values.iter().map(|(value, _)| value.clone()).collect();
        let loss = forward(&algebra, &x, &p)?.sub(&y)?.square()?.mean_all()?;
        losses.push(loss.item()?);
        let mut gradients = loss.backward()?;
        for (value, velocity) in &mut values {
            let gradient = gradients.take(value)?;
            let next = match velocity.take() {
                Some(velocity) => velocity.mul_scalar(MOMENTUM)?.add(&gradient)?,
                None => gradient,
            };
            *value = value.detach().sub(&next.mul_scalar(RATE)?)?.requires_grad();
            *velocity = Some(next);
        }
    }
    Ok(losses)
}

#[test]
fn fifty_steps_in_candle_have_the_losses_of_fifty_steps_in_gradewise() {
    let mut draws = Draws::new(7);
    let (clouds, initial) = (Clouds::draw(8, &mut draws), initial(&mut draws));
    for (theirs, ours) in
        [(DType::F64, gradewise_kernels::DType::F64), (DType::F32, gradewise_kernels::DType::F32)]
    {
        let candle = losses_in_candle(&clouds, &initial, theirs);
        let gradewise = losses_in_gradewise(&clouds, &initial, ours).unwrap();
        assert!(candle[STEPS - 1] < 0.5 * candle[0], "the network learns: {candle:?}");
        let difference =
            candle.iter().zip(&gradewise).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max);
        println!(
            "{theirs:?}: {:.4} to {:.4}, largest relative difference {difference:.1e}",
            candle[0],
            candle[STEPS - 1]
        );
        assert!(difference <= 1e-5, "{difference:e}: {candle:?} and {gradewise:?}");
    }
}
