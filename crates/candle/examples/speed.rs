//! What operators cost on the CPU through candle and without it, forward and backward: processor time of one thread, the median of many
//! calls. Processor time, so that other programs on the machine count less.
//!
//! ```text
//! cd crates/candle && RAYON_NUM_THREADS=1 cargo run --release --example speed
//! ```

use candle_core::{CpuStorage, CustomOp2, Device, Layout, Shape, Tensor, Var};
use gradewise_autograd::{AnySample, BackwardOptions, Sizes, grad, registry::find};
use gradewise_candle::Fused;
use gradewise_core::{DType, Signature};
use gradewise_kernels::{Array, Device as Place};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use std::{error::Error, time::Instant};

const OPERATORS: [&str; 8] = [
    "table_product",
    "sgp",
    "fcgp",
    "mv_linear",
    "mv_silu",
    "mv_layer_norm",
    "steerable_layer",
    "fc_clifford_layer",
];

/// Medians of the seconds that the processor works on calls of `a` and `b`, by turns, so that both meet the same disturbances.
fn medians(mut a: impl FnMut(), mut b: impl FnMut()) -> (f64, f64) {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    let seconds = |work: &mut dyn FnMut()| {
        let began = now();
        work();
        now() - began
    };
    let (began, mut times) = (Instant::now(), [Vec::new(), Vec::new()]);
    while times[0].len() < 30 || began.elapsed().as_secs_f64() < 1.0 {
        times[0].push(seconds(&mut a));
        times[1].push(seconds(&mut b));
    }
    let [a, b] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    (a, b)
}

/// A custom operation of candle that computes nothing, for what calls cost with any.
struct Nothing;

impl CustomOp2 for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        shape: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0; shape.shape().elem_count()]), shape.shape().clone()))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let tensor = Tensor::zeros((1, 1), candle_core::DType::F32, &Device::Cpu)?;
    let fail = "an operation without errors";
    let (clock, nothing) = medians(|| (), || drop(tensor.apply_op2_no_bwd(&tensor, &Nothing).expect(fail)));
    println!("a custom operation of candle that does nothing: {:.2} µs", (nothing - clock) * 1e6);
    println!("{:<20}{:>8}  {:>11}{:>11}{:>7}", "operator, f32", "rows", "gradewise", "candle", "ratio");
    for name in OPERATORS {
        for rows in [64, 4096] {
            let sizes = Sizes::new(Signature::CL3, rows, 32)?;
            let entry = find(name).ok_or("an operator of the list is not in the registry")?;
            let sample = entry.samples(&sizes)?.pop().ok_or("an operator has no samples")?;
            measure(&sample, rows)?;
        }
    }
    Ok(())
}

fn measure(sample: &AnySample, rows: usize) -> Result<(), Box<dyn Error>> {
    let drawn = sample.draw(DType::F32, &mut ChaCha8Rng::seed_from_u64(1))?;
    let leaves = sample.place(&drawn, DType::F32, &Place::Cpu)?;
    let operation = Fused::new(sample.operation(), &sample.attributes()?.to_json())?;
    let theirs = leaves
        .iter()
        .map(|leaf| Ok(Tensor::from_vec(leaf.to_vec::<f32>()?, leaf.shape().dims(), &Device::Cpu)?))
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let fail = "the operator ran before";
    let forward = medians(
        || drop(sample.run(&leaves).expect(fail)),
        || drop(operation.apply(&theirs.iter().collect::<Vec<_>>()).expect(fail)),
    );
    let wanted: Vec<_> = leaves.iter().map(gradewise_autograd::Tensor::requires_grad).collect();
    let variables = theirs.iter().map(Var::from_tensor).collect::<candle_core::Result<Vec<_>>>()?;
    let output = sample.run(&wanted)?;
    let seed = Array::ones(output.shape(), DType::F32, &Place::Cpu)?;
    // With what candle's graph does besides: the sum, its gradient, and each gradient added to zeros.
    let both = medians(
        || {
            let output = sample.run(&wanted).expect(fail);
            let seed = gradewise_autograd::Tensor::new(seed.clone());
            let wanted: Vec<_> = wanted.iter().collect();
            drop(grad(&output, &wanted, &BackwardOptions::seed(seed)).expect(fail));
        },
        || {
            let inputs: Vec<&Tensor> = variables.iter().map(Var::as_tensor).collect();
            drop(operation.apply(&inputs).expect(fail).backward().expect(fail));
        },
    );
    for (pass, (ours, candle)) in [("", forward), (" and back", both)] {
        let name = format!("{}{pass}", sample.operation());
        println!("{name:<28}{rows:>6}{:>11.1}µs{:>9.1}µs{:>7.2}", ours * 1e6, candle * 1e6, candle / ours);
    }
    Ok(())
}
