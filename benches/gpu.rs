//! Times of operators, layers and training steps on a CUDA device: medians of CUDA events, eager and replayed as a graph.
//!
//! `cargo bench --features cuda --bench gpu -- [--device N] [--iters N] [--only TEXT]`. Inputs are random; the large ones
//! exceed any L2 cache. Each line: what, shape, arithmetic, median of the forward pass, of forward and backward, and of a
//! replayed graph of both, in milliseconds.

use gradewise::{
    autograd::{BackwardOptions, Tensor},
    core::{Algebra, Signature},
    kernels::{Array, Compute, CudaDevice, DType, Device, ops::clifford},
    nn::{
        Placement,
        layers::{CliffordLayer, Layer},
    },
};
use rand::SeedableRng;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Bench {
    device: CudaDevice,
    iterations: usize,
    only: Option<String>,
}

impl Bench {
    /// The median time of `work` in milliseconds.
    fn median(&self, mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
        for _ in 0..3 {
            work()?;
        }
        let context = self.device.context();
        let event = || gradewise_ffi::Event::new(context, true);
        let mut times = Vec::with_capacity(self.iterations);
        for _ in 0..self.iterations {
            let (start, end) = (event()?, event()?);
            start.record(self.device.stream())?;
            work()?;
            end.record(self.device.stream())?;
            end.synchronize()?;
            times.push(f64::from(end.milliseconds_since(&start)?));
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Forward, forward and backward, and a graph of both.
    fn line(
        &self,
        name: &str,
        forward: impl Fn() -> Outcome<()>,
        both: impl Fn() -> Outcome<()>,
    ) -> Outcome<()> {
        if self.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return Ok(());
        }
        let (first, second) = (self.median(&forward)?, self.median(&both)?);
        let mut failure = None;
        let ((), graph) = self.device.capture(|| {
            failure = both().err();
            Ok(())
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        let replayed = self.median(|| Ok(graph.replay()?))?;
        self.device.reset_peak();
        both()?;
        let peak = self.device.memory()?.peak as f64 / 1e6;
        println!("{name:<52} {first:>9.3} {second:>9.3} {replayed:>9.3}   peak {peak:>8.0} MB");
        Ok(())
    }

    fn layer(
        &self,
        signature: Signature,
        (batch, n): (usize, usize),
        full: bool,
        dtype: DType,
        compute: Compute,
    ) -> Outcome<()> {
        let device = Device::Cuda(self.device.clone());
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let layer = CliffordLayer::new(n, signature)
            .fully_connected(full)
            .init(Placement::new(&device, dtype), &mut rng)?;
        let blades = 1usize << (signature.p + signature.q + signature.r);
        let x = self.random(&[blades, batch, n], dtype)?.requires_grad();
        let seed = self.random(&[blades, batch, n], dtype)?;
        let kind = if full { "fc layer" } else { "layer" };
        let name = format!("{kind} {signature} {batch}x{n} {dtype} {compute}");
        compute.scope(|| {
            self.line(
                &name,
                || {
                    layer.forward(&x)?;
                    Ok(())
                },
                || {
                    let options = BackwardOptions::seed(seed.clone());
                    layer.forward(&x)?.backward_with(&options)?;
                    Ok(())
                },
            )
        })
    }

    fn product(&self, signature: Signature, (batch, n): (usize, usize), dtype: DType) -> Outcome<()> {
        let algebra = Algebra::new(signature)?;
        let blades = algebra.blade_count();
        let x = self.random(&[blades, batch, n], dtype)?;
        let y = self.random(&[blades, batch, n], dtype)?;
        let grad = self.random(&[blades, batch, n], dtype)?;
        let w = self.random(&[n, algebra.paths().len()], dtype)?;
        let options = clifford::sgp::ProductOptions { gate: true, normalize: true };
        let (x, y, w, grad) = (x.array(), y.array(), w.array(), grad.array());
        let name = format!("gelu_sgp_norm {signature} {batch}x{n} {dtype}");
        self.line(
            &name,
            || {
                clifford::sgp::forward(&algebra, x, y, w, options)?;
                Ok(())
            },
            || {
                let product = clifford::sgp::forward(&algebra, x, y, w, options)?;
                clifford::sgp::backward(&algebra, (x, y, w), options, &product, grad, [true; 3])?;
                Ok(())
            },
        )
    }

    fn random(&self, shape: &[usize], dtype: DType) -> Outcome<Tensor> {
        let elements = shape.iter().product::<usize>();
        // A long stretch of normal samples, repeated: drawing a hundred million takes longer than all measurements.
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(elements as u64);
        let part = Array::randn([elements.min(1 << 20)], DType::F64, &Device::Cpu, &mut rng)?.to_f64_vec()?;
        let values: Vec<f64> = part.iter().copied().cycle().take(elements).collect();
        Ok(Tensor::new(Array::from_f64(&values, shape, dtype, &Device::Cuda(self.device.clone()))?))
    }

    /// Copy bandwidth in TB/s, bytes read and written.
    fn copy(&self) -> Outcome<f64> {
        let bytes = 1usize << 30;
        let stream = self.device.stream();
        let [a, b] = [
            gradewise_ffi::DeviceMemory::new(stream, bytes)?,
            gradewise_ffi::DeviceMemory::new(stream, bytes)?,
        ];
        a.fill(1)?;
        let time = self.median(|| Ok(b.copy_from(0, &a, 0, bytes)?))?;
        Ok(2.0 * bytes as f64 / time / 1e9)
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1)).cloned()
    };
    let ordinal = value("--device").map_or(Ok(0), |text| text.parse())?;
    let device = match CudaDevice::new(ordinal) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let iterations = value("--iters").map_or(Ok(30), |text| text.parse())?;
    let bench = Bench { device, iterations, only: value("--only") };
    let info = bench.device.info();
    println!("{} (sm_{}{})", info.name, info.compute_capability.0, info.compute_capability.1);
    println!("copy {:.2} TB/s (read and written)", bench.copy()?);
    println!("{:<52} {:>9} {:>9} {:>9}", "", "forward", "fwd+bwd", "graph");
    let start = Instant::now();
    let (cl2, cl3) = (Signature::new(2, 0, 0), Signature::new(3, 0, 0));
    for shape in [(4096, 512), (8192, 1024)] {
        bench.product(cl3, shape, DType::F32)?;
        bench.product(cl3, shape, DType::BF16)?;
    }
    bench.product(Signature::new(1, 3, 0), (4096, 256), DType::F32)?;
    bench.product(Signature::new(5, 0, 0), (2048, 128), DType::F32)?;
    for batch in [1024, 4096, 8192, 65536] {
        bench.layer(cl3, (batch, 512), false, DType::F32, Compute::Tf32)?;
    }
    bench.layer(cl3, (4096, 128), false, DType::F32, Compute::Tf32)?;
    bench.layer(cl3, (4096, 1024), false, DType::F32, Compute::Tf32)?;
    bench.layer(cl2, (4096, 512), false, DType::F32, Compute::Tf32)?;
    bench.layer(cl3, (4096, 512), false, DType::F32, Compute::Exact)?;
    bench.layer(cl3, (4096, 512), false, DType::BF16, Compute::Exact)?;
    bench.layer(cl3, (4096, 512), true, DType::F32, Compute::Tf32)?;
    println!("{:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
