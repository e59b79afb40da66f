//! Times the operators, the layer and the n-body training step on the CPU, beside their floors.
//!
//! `cargo bench --bench cpu` prints a table; `--json` prints one JSON object per line, which
//! `benches/compare_pytorch.py` reads. `GRADEWISE_BENCH=operations` times every operation of the registry instead. Medians over repetitions after a warm-up; inputs are normal random numbers.

use gradewise::autograd::{BackwardOptions, Sizes, Tensor, Traffic, clifford, no_grad, registry::entries};
use gradewise::core::{Algebra, DType, Signature};
use gradewise::kernels::{Array, Device, memory};
use gradewise::{
    nn::{
        Module, Parameter, Placement,
        layers::{CliffordLayer, Layer},
        optim::{Method, Optimizer},
    },
    zoo::models::{NBody, NBodyBatch, NBodyConfig},
};
use rand::SeedableRng;
use std::time::Instant;

type Error = Box<dyn std::error::Error>;

/// Median time of `work` in milliseconds.
fn median_ms(mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    work()?;
    let first = start.elapsed().as_secs_f64();
    let repetitions = ((1.0 / first.max(1e-6)) as usize).clamp(7, 60);
    let mut times = Vec::with_capacity(repetitions);
    for _ in 0..repetitions {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// What the machine can do: copied bytes per second (read and written) and f32 multiply-adds in a large product.
fn ceilings() -> Result<(f64, f64), Error> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let large = Tensor::randn([1 << 25], DType::F32, &Device::Cpu, &mut rng)?;
    let copy = median_ms(|| large.add_scalar(0.0).map(drop).map_err(Into::into))?;
    let a = Tensor::randn([1536, 1536], DType::F32, &Device::Cpu, &mut rng)?;
    let product = median_ms(|| a.matmul(&a).map(drop).map_err(Into::into))?;
    Ok((8.0 * (1u64 << 25) as f64 / copy * 1e3, 2.0 * 1536f64.powi(3) / product * 1e3))
}

struct Row {
    name: String,
    milliseconds: f64,
    floor: f64,
}

fn report(row: &Row, json: bool) {
    let Row { name, milliseconds, floor } = row;
    if json {
        println!("{{\"name\": \"{name}\", \"ms\": {milliseconds:.4}, \"floor_ms\": {floor:.4}}}");
    } else {
        println!(
            "{name:<44} {milliseconds:>9.3} ms   floor {floor:>8.3} ms   {:>4.0} % of it",
            floor / milliseconds * 100.0
        );
    }
}

/// The operator and the layer at one shape.
fn layer(
    (signature, batch, features, full): (Signature, usize, usize, bool),
    (copy, flops): (f64, f64),
    json: bool,
) -> Result<(), Error> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(2);
    let algebra = Algebra::new(signature)?;
    let blades = algebra.blade_count();
    let device = Device::Cpu;
    let shape = [blades, batch, features];
    let x = Tensor::randn(shape, DType::F32, &device, &mut rng)?;
    let y = Tensor::randn(shape, DType::F32, &device, &mut rng)?;
    let paths = algebra.paths().len();
    let weights: Vec<usize> = if full { vec![paths, features, features] } else { vec![features, paths] };
    let w = Tensor::randn(weights, DType::F32, &device, &mut rng)?;
    let op = if full { clifford::gelu_fcgp_norm } else { clifford::gelu_sgp_norm };
    let layer = CliffordLayer::new(features, signature).fully_connected(full).init(&device, &mut rng)?;
    let leaf = x.requires_grad();
    let seed = y.clone();

    let bytes = (4 * blades * batch * features) as f64;
    let rows = (batch * features * features) as f64;
    let pairs =
        algebra.terms().iter().map(|term| (term.path, term.out)).collect::<std::collections::BTreeSet<_>>();
    let product = if full { 2.0 * pairs.len() as f64 * rows } else { 0.0 };
    let linear = 2.0 * blades as f64 * rows;
    let floor = |tensors: f64, operations: f64| (tensors * bytes / copy).max(operations / flops) * 1e3;
    let kind = if full { "fully connected " } else { "" };
    let name = |what: &str| format!("{kind}{what} {signature} B {batch} N {features}");
    let forward = median_ms(|| no_grad(|| op(&algebra, &x, &y, &w, true)).map(drop).map_err(Into::into))?;
    report(&Row { name: name("op fwd"), milliseconds: forward, floor: floor(3.0, product) }, json);
    let forward = median_ms(|| no_grad(|| layer.forward(&x)).map(drop).map_err(Into::into))?;
    report(
        &Row { name: name("layer fwd"), milliseconds: forward, floor: floor(2.0, product + linear) },
        json,
    );
    let both = median_ms(|| {
        layer.forward(&leaf)?.backward_with(&BackwardOptions::seed(seed.clone()))?;
        Ok(())
    })?;
    report(
        &Row { name: name("layer fwd+bwd"), milliseconds: both, floor: floor(6.0, 3.0 * (product + linear)) },
        json,
    );
    Ok(())
}

/// The paper's n-body model with a batch of 100 systems, and an optimiser.
struct Training {
    model: NBody,
    batch: NBodyBatch,
    targets: Tensor,
    parameters: Vec<(String, Parameter)>,
    adam: Optimizer,
}

impl Training {
    fn new() -> Result<Self, Error> {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let placement = Placement::new(&Device::Cpu, DType::F32);
        let model = NBody::init(&NBodyConfig::default(), &placement, &mut rng)?;
        let (systems, particles) = (100, 5);
        let values = |count: usize, rng: &mut rand_chacha::ChaCha8Rng| {
            Tensor::randn([count], DType::F64, &Device::Cpu, rng).and_then(|values| values.to_vec::<f64>())
        };
        let positions = values(systems * 3 * particles, &mut rng)?;
        let velocities = values(systems * 3 * particles, &mut rng)?;
        let charges: Vec<f64> = values(systems * particles, &mut rng)?.iter().map(|c| c.signum()).collect();
        let batch = NBodyBatch::new((&positions, &velocities, &charges), particles, &placement)?;
        let targets = batch.targets(&positions)?;
        let parameters = model.named_parameters();
        Ok(Self { model, batch, targets, parameters, adam: Optimizer::new(Method::adam(1e-4))? })
    }

    fn forward(&self) -> Result<(), Error> {
        no_grad(|| self.model.loss(&self.batch, &self.targets)).map(drop).map_err(Into::into)
    }

    /// Forward, backward, Adam.
    fn step(&mut self) -> Result<(), Error> {
        let leaves: Vec<Tensor> = self.parameters.iter().map(|(_, parameter)| parameter.tensor()).collect();
        let gradients = self.model.loss(&self.batch, &self.targets)?.backward()?;
        let arrays: Vec<_> = leaves
            .iter()
            .map(|leaf| gradients.get(leaf).ok().map(|gradient| gradient.array().clone()))
            .collect();
        drop(leaves);
        self.adam.step(1e-3, &self.parameters, &arrays)?;
        Ok(())
    }
}

/// One training step of the paper's n-body model.
fn nbody((_, flops): (f64, f64), json: bool) -> Result<(), Error> {
    let mut training = Training::new()?;
    let forward = median_ms(|| training.forward())?;
    memory::reset_peak();
    let before = memory::stats().allocated;
    let step = median_ms(|| training.step())?;
    // Matrix products alone: per edge or node row and blade, `in·out` multiply-adds of every grade-wise map.
    let mlp = |inputs: f64| inputs * 28.0 + 5.0 * 28.0 * 28.0;
    let rows = 3.0 * (2000.0 * mlp(29.0) + 500.0 * mlp(56.0));
    let floor = |passes: f64| 2.0 * 8.0 * rows * passes / flops * 1e3;
    report(&Row { name: "n-body forward B 100".into(), milliseconds: forward, floor: floor(1.0) }, json);
    report(&Row { name: "n-body step B 100".into(), milliseconds: step, floor: floor(3.0) }, json);
    let peak = memory::stats().peak - before;
    if json {
        println!("{{\"name\": \"n-body step peak\", \"bytes\": {peak}}}");
    } else {
        println!("n-body step: peak {:.1} MB above parameters and optimiser state", peak as f64 / 1e6);
    }
    Ok(())
}

/// Steps whose weights hold subnormal numbers, beside steps whose weights hold zeros in their place, taken by turns. Every step starts
/// from the salted weights, because the optimiser leaves no subnormal number in them.
fn subnormals(json: bool) -> Result<(), Error> {
    const STEPS: usize = 30;
    let mut training = Training::new()?;
    let salted = |value: f32| -> Result<Vec<Array>, Error> {
        let salt = |(_, parameter): &(String, Parameter)| {
            let weights = parameter.tensor();
            let mut values = weights.to_vec::<f32>()?;
            values.iter_mut().step_by(3).for_each(|weight| *weight = value.copysign(*weight));
            Ok(Array::from_vec(values, weights.shape(), &Device::Cpu)?)
        };
        training.parameters.iter().map(salt).collect()
    };
    let kinds = [salted(0.0)?, salted(1e-40)?];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..STEPS {
        for (weights, times) in kinds.iter().zip(&mut times) {
            for ((_, parameter), weights) in training.parameters.iter().zip(weights) {
                parameter.set(weights.clone())?;
            }
            let start = Instant::now();
            training.step()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let [clean, salted] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[STEPS / 2]
    });
    let ratio = salted / clean;
    if json {
        println!(
            "{{\"name\": \"n-body step, weights with subnormal numbers\", \"ms\": {salted:.4}, \"ratio\": {ratio:.3}}}"
        );
    } else {
        println!(
            "n-body step, a third of the weights subnormal: {salted:.3} ms, {ratio:.3} times that with zeros"
        );
    }
    Ok(())
}

/// Every operation of the registry at one size, beside the floor of its bytes and operations.
fn operations((copy, flops): (f64, f64), json: bool) -> Result<(), Error> {
    let sizes = Sizes::new(Signature::CL3, 1024, 64)?;
    for sample in entries().iter().map(|entry| entry.samples(&sizes)).collect::<Result<Vec<_>, _>>()?.concat()
    {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(2);
        let inputs = sample.place(&sample.draw(DType::F32, &mut rng)?, DType::F32, &Device::Cpu)?;
        let leaves: Vec<Tensor> = inputs.iter().map(Tensor::requires_grad).collect();
        let output = sample.run(&inputs)?;
        let bytes = |tensor: &Tensor| (tensor.shape().elements() * tensor.dtype().size()) as f64;
        let (read, written) = (inputs.iter().map(bytes).sum::<f64>(), bytes(&output));
        let moved = match sample.traffic() {
            Traffic::Whole => read + written,
            Traffic::AsWritten => 2.0 * written,
            Traffic::View => 0.0,
        };
        let cost = sample.cost();
        let arithmetic = (cost.matrix_flops + cost.element_flops) as f64;
        let floor = |bytes: f64, operations: f64| (bytes / copy).max(operations / flops) * 1e3;
        let forward = median_ms(|| no_grad(|| sample.run(&inputs)).map(drop).map_err(Into::into))?;
        let row = Row {
            name: format!("{} fwd", sample.operation()),
            milliseconds: forward,
            floor: floor(moved, arithmetic),
        };
        report(&row, json);
        let seed = Tensor::ones(output.shape(), output.dtype(), &Device::Cpu)?;
        let both = median_ms(|| {
            sample.run(&leaves)?.backward_with(&BackwardOptions::seed(seed.clone()))?;
            Ok(())
        })?;
        let floor = floor(moved + 2.0 * read + written, 3.0 * arithmetic);
        report(&Row { name: format!("{} fwd+bwd", sample.operation()), milliseconds: both, floor }, json);
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let json = std::env::args().any(|argument| argument == "--json");
    let only = std::env::var("GRADEWISE_BENCH").unwrap_or_default();
    let ceilings = ceilings()?;
    if json {
        println!("{{\"name\": \"ceilings\", \"copy\": {:.3e}, \"flops\": {:.3e}}}", ceilings.0, ceilings.1);
    } else {
        println!("copy {:.1} GB/s, f32 product {:.0} GFLOP/s", ceilings.0 / 1e9, ceilings.1 / 1e9);
    }
    if only.is_empty() || only == "layer" {
        for shape in [
            (Signature::CL3, 1024, 128, false),
            (Signature::CL3, 4096, 128, false),
            (Signature::CL3, 1024, 512, false),
            (Signature::CL2, 4096, 128, false),
            (Signature::CL3, 1024, 128, true),
        ] {
            layer(shape, ceilings, json)?;
        }
    }
    if only.is_empty() || only == "nbody" {
        nbody(ceilings, json)?;
    }
    if only == "operations" {
        operations(ceilings, json)?;
    }
    if only.is_empty() || only == "subnormals" {
        subnormals(json)?;
    }
    Ok(())
}
