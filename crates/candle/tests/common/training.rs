//! The network of the example, trained in candle and in gradewise.

#[path = "../../examples/inertia/network.rs"]
pub mod network;

use super::Place;
use candle_core::DType;
use gradewise_autograd::{
    Tensor,
    clifford::{self, Bias, SteerableLayer},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::Array;
use network::{Clouds, Descent, Draws, MOMENTUM, Network, POINTS, RATE, initial, parameters};

/// How long is trained.
pub const STEPS: usize = 50;

/// The losses of a network in candle.
fn losses_in_candle(clouds: &Clouds, initial: &[Vec<f64>], dtype: DType, place: &Place) -> Vec<f64> {
    let device = &place.theirs;
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let network = Network::new(&algebra, initial, dtype, device).unwrap();
    let [x, y] = [clouds.input(device), clouds.target(device)].map(|t| t.unwrap().to_dtype(dtype).unwrap());
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

/// The losses of the network without candle.
fn losses_in_gradewise(
    clouds: &Clouds,
    initial: &[Vec<f64>],
    dtype: gradewise_kernels::DType,
    place: &Place,
) -> gradewise_autograd::Result<Vec<f64>> {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let array = |values: &[f64], shape: &[usize]| Array::from_f64(values, shape, dtype, &place.ours);
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

/// Trains the same network in f64 or f32, with candle on `with` and without candle on `without`. Returns the losses of both, from the same data
/// and first parameters.
pub fn train(dtype: gradewise_kernels::DType, with: &Place, without: &Place) -> [Vec<f64>; 2] {
    let theirs = if dtype == gradewise_kernels::DType::F64 { DType::F64 } else { DType::F32 };
    let mut draws = Draws::new(7);
    let (clouds, initial) = (Clouds::draw(8, &mut draws), initial(&mut draws));
    let candle = losses_in_candle(&clouds, &initial, theirs, with);
    [candle, losses_in_gradewise(&clouds, &initial, dtype, without).unwrap()]
}

/// Asserts that a network learned, and that its losses with candle and without are the same but for 1e-5 of themselves.
pub fn agree([candle, gradewise]: &[Vec<f64>; 2], what: &str) {
    assert!(candle[STEPS - 1] < 0.5 * candle[0], "the network learns: {candle:?}");
    let difference = candle.iter().zip(gradewise).map(|(a, b)| (a - b).abs() / b.abs());
    let difference =
        difference.fold(0.0, |worst: f64, next| if next > worst || next.is_nan() { next } else { worst });
    let (first, last) = (candle[0], candle[STEPS - 1]);
    println!("{what}: {first:.4} to {last:.4}, largest relative difference {difference:.1e}");
    assert!(difference <= 1e-5, "{what}: {difference:e}: {candle:?} and {gradewise:?}");
}
