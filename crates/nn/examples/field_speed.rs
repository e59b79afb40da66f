//! How fast the operators on fields are: `cargo run --release -p gradewise-nn --example field_speed -- cpu`, for a GPU with
//! `--features gradewise-kernels/cuda` and `cuda`; `small` for grids of a quarter of the extent. One JSON object per line.
//! benches/compare_fields.py measures the published PyTorch modules, and plain convolutions of as many channels, on the same shapes.

use gradewise_autograd::{
    BackwardOptions, Tensor,
    fields::{ConvolutionOptions, correlate},
};
use gradewise_core::{DType, OrderedMetric};
use gradewise_kernels::{Compute, Device};
use gradewise_nn::{
    Placement, Result,
    fields::{CliffordConv, CliffordSpectralConv, SpectralOptions, SteerableConv},
    layers::Layer,
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{env, time::Instant};

/// Waits for the device.
fn finish(device: &Device) -> Result<()> {
    if let Device::Cuda(device) = device {
        device.synchronize()?;
    }
    Ok(())
}

/// Seconds per call, the best of some rounds.
fn seconds(device: &Device, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut round = |calls: usize| -> Result<f64> {
        finish(device)?;
        let start = Instant::now();
        (0..calls).try_for_each(|_| call())?;
        finish(device)?;
        Ok(start.elapsed().as_secs_f64() / calls as f64)
    };
    round(1)?;
    let calls = (0.05 / round(1)?).clamp(1.0, 100.0) as usize;
    (0..4).try_fold(f64::INFINITY, |best, _| Ok(f64::min(best, round(calls)?)))
}

/// Times a layer on a field of this shape, forward, and forward with all gradients.
fn time(name: &str, layer: &impl Layer, shape: &[usize], dtype: DType, device: &Device) -> Result<()> {
    time_operator(name, |x| layer.forward(x), shape, dtype, device)
}

/// The same for any operator.
fn time_operator(
    name: &str,
    forward: impl Fn(&Tensor) -> Result<Tensor>,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let x = Tensor::randn(shape, dtype, device, &mut rng)?;
    let without = seconds(device, || gradewise_autograd::no_grad(|| forward(&x)).map(|_| ()))?;
    let x = x.requires_grad();
    let seed = Tensor::randn(forward(&x)?.shape(), dtype, device, &mut rng)?;
    let both = seconds(device, || {
        forward(&x)?.backward_with(&BackwardOptions::seed(seed.clone()))?;
        Ok(())
    })?;
    println!(
        "{}",
        serde_json::json!({
            "case": name,
            "dtype": dtype.to_string(),
            "products": Compute::current().to_string(),
            "shape": shape,
            "forward_ms": without * 1e3,
            "training_ms": both * 1e3
        })
    );
    Ok(())
}

/// Times every operator.
fn time_all(dtype: DType, device: &Device, shrink: usize) -> Result<()> {
    let (plane, space): (OrderedMetric, OrderedMetric) =
        (OrderedMetric::new(&[1, 1])?, OrderedMetric::new(&[1, 1, 1])?);
    let (n, m) = (128 / shrink, 32 / shrink);
    let (place, mut rng) = (Placement::new(device, dtype), ChaCha8Rng::seed_from_u64(1));
    let conv = CliffordConv::new(&plane, 64, 64, &[3, 3]).init(&place, &mut rng)?;
    time("clifford_conv2d", &conv, &[4, 8, n, n, 64], dtype, device)?;
    let conv = CliffordConv::new(&space, 32, 32, &[3, 3, 3]).init(&place, &mut rng)?;
    time("clifford_conv3d", &conv, &[8, 2, m, m, m, 32], dtype, device)?;
    let layer = CliffordSpectralConv::new(&plane, 64, 64, &[16 / shrink; 2])
        .options(SpectralOptions::reference(&[16 / shrink; 2]));
    time("clifford_spectral2d", &layer.init(&place, &mut rng)?, &[4, 8, n, n, 64], dtype, device)?;
    let layer = CliffordSpectralConv::new(&space, 32, 32, &[8 / shrink; 3])
        .options(SpectralOptions::reference(&[8 / shrink; 3]));
    time("clifford_spectral3d", &layer.init(&place, &mut rng)?, &[8, 2, m, m, m, 32], dtype, device)?;
    // At the size of the published networks: the layers, and the convolution of the second alone.
    let conv = CliffordConv::new(&plane, 48, 48, &[7, 7]).init(&place, &mut rng)?;
    time("clifford_conv2d_48", &conv, &[4, 8, n / 2, n / 2, 48], dtype, device)?;
    let kernel = Tensor::randn([4, 48, 4, 7, 7, 48], dtype, device, &mut rng)?.requires_grad();
    let options = ConvolutionOptions::new(2).same(&[7, 7]);
    let operator = |x: &Tensor| Ok(correlate(x, &kernel, &options)?);
    time_operator("correlate2d_48", operator, &[4, 8, n / 2, n / 2, 48], dtype, device)?;
    let conv = SteerableConv::new(&plane, 48, 48, 7).init(&place, &mut rng)?;
    time("steerable_conv2d", &conv, &[4, 8, n / 2, n / 2, 48], dtype, device)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let device: Device = arguments.first().map_or("cpu", String::as_str).parse()?;
    let shrink = if arguments.iter().any(|argument| argument == "small") { 4 } else { 1 };
    time_all(DType::F32, &device, shrink)?;
    if let Device::Cuda(_) = device {
        Compute::Tf32.scope(|| time_all(DType::F32, &device, shrink))?;
        time_all(DType::BF16, &device, shrink)?;
    }
    Ok(())
}
