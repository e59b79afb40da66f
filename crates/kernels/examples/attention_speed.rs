//! How fast attention, softmax and layer norm are on a GPU: `cargo run --release --features cuda -p gradewise-kernels --example
//! attention_speed [-- attention]`, with `GRADEWISE_ATTENTION=warps` and without. One JSON object per line; benches/compare_attention.py measures PyTorch on the same shapes.

use gradewise_kernels::{
    Array, CudaDevice, DType, Device, Result,
    ops::{
        self, AttentionOptions, RandomStream,
        attention::{AttentionDropout, Sequences},
    },
};
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use std::time::Instant;

/// Normally distributed numbers, for constant ones take less power and so run at a higher clock. They repeat after 2^20.
fn random(rng: &mut impl Rng, shape: &[usize], dtype: DType, device: &Device) -> Result<Array> {
    let elements: usize = shape.iter().product();
    let distinct = elements.min(1 << 20);
    let values: Vec<f64> = StandardNormal.sample_iter(rng).take(distinct).collect();
    let rows = elements.div_ceil(distinct);
    Array::from_f64(&values, [1, distinct], dtype, device)?
        .broadcast_to([rows, distinct])?
        .contiguous()?
        .reshape([rows * distinct])?
        .slice(0, 0..elements)?
        .contiguous()?
        .reshape(shape.to_vec())
}

/// Seconds per call, the best of some rounds that take a few milliseconds each.
fn seconds(device: &CudaDevice, mut call: impl FnMut() -> Result<Array>) -> Result<f64> {
    let mut round = |calls: usize| -> Result<f64> {
        device.synchronize()?;
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        device.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / calls as f64)
    };
    round(3)?;
    let calls = (5e-3 / round(1)?).clamp(2.0, 200.0) as usize;
    (0..5).try_fold(f64::INFINITY, |best, _| Ok(f64::min(best, round(calls)?)))
}

fn main() -> Result<()> {
    let device = Device::cuda(0)?;
    let Device::Cuda(cuda) = &device else { unreachable!("a GPU was asked for") };
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let mut random = |shape: &[usize], dtype| random(&mut rng, shape, dtype, &device);
    for (batch, heads, tokens, features) in
        [(4, 16, 2048, 64), (4, 16, 2048, 128), (2, 16, 8192, 64), (2, 16, 8192, 128), (16, 4, 64, 32)]
    {
        for causal in [false, true] {
            let dtype = DType::BF16;
            let shape = [batch, heads, tokens, features];
            let [q, k, v, grad] = [
                random(&shape, dtype)?,
                random(&shape, dtype)?,
                random(&shape, dtype)?,
                random(&shape, dtype)?,
            ];
            let plain = AttentionOptions { causal, ..AttentionOptions::default() };
            let random = RandomStream { seed: 1, stream: 1 };
            let dropped =
                AttentionOptions { dropout: Some(AttentionDropout { p: 0.1, random }), ..plain.clone() };
            // Sequences of a quarter and of an eighth of the tokens in turn, and what is left.
            let mut starts = vec![0];
            for at in 0.. {
                let next = starts[at] + if at % 2 == 0 { tokens / 4 } else { tokens / 8 + 1 };
                starts.push(next.min(tokens));
                if next >= tokens {
                    break;
                }
            }
            let sequences = Sequences::alike(&starts, &device)?;
            let packed = AttentionOptions { sequences: Some(sequences.clone()), ..plain.clone() };
            let both = AttentionOptions { sequences: Some(sequences), ..dropped.clone() };
            let pairs = |of: &AttentionOptions| match of.sequences {
                Some(_) => starts.windows(2).map(|pair| (pair[1] - pair[0]).pow(2)).sum(),
                None => tokens * tokens,
            };
            for (op, options) in [
                ("attention", &plain),
                ("attention_dropout", &dropped),
                ("attention_packed", &packed),
                ("attention_packed_dropout", &both),
            ] {
                let forward = seconds(cuda, || Ok(ops::attention(&q, &k, &v, options)?.output))?;
                let saved = ops::attention(&q, &k, &v, options)?;
                let backward =
                    seconds(cuda, || Ok(ops::attention_backward([&q, &k, &v], options, &saved, &grad)?.q))?;
                let work =
                    4.0 * (batch * heads * pairs(options) * features) as f64 / if causal { 2.0 } else { 1.0 };
                println!(
                    "{{\"op\": \"{op}\", \"shape\": {shape:?}, \"causal\": {causal}, \"forward_us\": {:.1}, \"forward_tflops\": {:.1}, \
                     \"backward_us\": {:.1}, \"backward_tflops\": {:.1}}}",
                    forward * 1e6,
                    work / forward / 1e12,
                    backward * 1e6,
                    2.5 * work / backward / 1e12
                );
            }
        }
    }
    if std::env::args().nth(1).is_some_and(|only| only == "attention") {
        return Ok(());
    }
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for columns in [1024, 2048, 4096, 8192, 16384] {
            let x = random(&[(1 << 27) / columns, columns], dtype)?;
            let bytes = (x.elements() * dtype.size()) as f64;
            let (weight, copied) = (random(&[columns], dtype)?, Array::full(x.dims(), 0.5, dtype, &device)?);
            let copy = || copied.overwrite_shared(&x).map(|()| copied.clone());
            let normalized = ops::layer_norm(&x, Some(&weight), Some(&weight), 1e-5)?;
            let (mean, inverse_std) = (&normalized.mean, &normalized.inverse_std);
            let backward = |weight, bias| {
                Ok(ops::layer_norm_backward(&x, weight, bias, mean, inverse_std, &normalized.output)?.x)
            };
            // Arrays read and written, and seconds.
            let times = [
                ("copy", 2.0, seconds(cuda, copy)?),
                ("mul_scalar", 2.0, seconds(cuda, || ops::mul_scalar(&x, 1.5))?),
                ("softmax", 2.0, seconds(cuda, || ops::softmax(&x, 1))?),
                ("log_softmax", 2.0, seconds(cuda, || ops::log_softmax(&x, 1))?),
                (
                    "layer_norm",
                    2.0,
                    seconds(cuda, || Ok(ops::layer_norm(&x, Some(&weight), Some(&weight), 1e-5)?.output))?,
                ),
                ("rms_norm", 2.0, seconds(cuda, || Ok(ops::rms_norm(&x, Some(&weight), 1e-5)?.output))?),
                ("layer_norm_backward", 3.0, seconds(cuda, || backward(Some(&weight), true))?),
                ("layer_norm_backward_of_x", 3.0, seconds(cuda, || backward(None, false))?),
            ];
            for (name, arrays, time) in times {
                println!(
                    "{{\"op\": \"{name}\", \"dtype\": \"{dtype}\", \"columns\": {columns}, \"us\": {:.1}, \"gbs\": {:.0}}}",
                    time * 1e6,
                    arrays * bytes / time / 1e9
                );
            }
        }
    }
    Ok(())
}
