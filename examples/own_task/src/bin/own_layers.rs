//! Networks that the library has never seen: an attention, a recurrent cell and a potential, written in primitive operators. Takes training
//! steps with operators computed several at once and one by one, compares their bits, and prints the times.
//!
//! ```text
//! cargo run --release --bin own_layers
//! ```

use gradewise::{
    autograd,
    kernels::Fusion,
    nn::{
        Result,
        loss::mean_squared_error,
        train::{ScheduleKind, Trainer, TrainerConfig},
    },
    prelude::*,
    runner::prelude::ChaCha8Rng,
};
use rand::SeedableRng;
use std::{process::ExitCode, time::Instant};

/// What all three are made of.
trait Network: Module + Sized {
    fn new(rng: &mut ChaCha8Rng) -> Result<Self>;

    /// Inputs and targets of a step.
    fn batch(rng: &mut ChaCha8Rng) -> Result<(Tensor, Tensor)>;

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor>;
}

fn randn(shape: &[usize], scale: f64, rng: &mut ChaCha8Rng) -> Result<Array> {
    let values = Array::randn(shape, DType::F32, &Device::Cpu, rng)?;
    Ok(gradewise::kernels::ops::mul_scalar(&values, scale)?)
}

fn weight(shape: &[usize], rng: &mut ChaCha8Rng) -> Result<Parameter> {
    let scale = (shape[0] as f64).powf(-0.5);
    Ok(Parameter::new(randn(shape, scale, rng)?))
}

/// x/√(mean x² + ε) along the last axis, times a scale.
fn normalized(x: &Tensor, scale: &Parameter) -> autograd::Result<Tensor> {
    let squares = x.square()?.mean(&[x.shape().rank() - 1], true)?;
    x.mul(&squares.add_scalar(1e-6)?.rsqrt()?)?.mul(&scale.tensor())
}

/// One block of attention of several heads whose weights decay with the distance of the tokens, and a gated linear unit.
#[derive(Module)]
#[module(crate = "gradewise::nn")]
struct Attention {
    query: Parameter,
    key: Parameter,
    value: Parameter,
    gate: Parameter,
    decay: Parameter,
    scales: [Parameter; 2],
    #[module(skip)]
    distances: Tensor,
}

const TOKENS: usize = 96;
const FEATURES: usize = 32;
const HEADS: usize = 4;
const SYSTEMS: usize = 24;

impl Network for Attention {
    fn new(rng: &mut ChaCha8Rng) -> Result<Self> {
        let square = |rng: &mut ChaCha8Rng| weight(&[FEATURES, FEATURES], rng);
        let ones = || {
            Ok::<_, gradewise::kernels::Error>(Parameter::new(Array::ones(
                [FEATURES],
                DType::F32,
                &Device::Cpu,
            )?))
        };
        let distances: Vec<f32> =
            (0..TOKENS * TOKENS).map(|n| (n / TOKENS).abs_diff(n % TOKENS) as f32).collect();
        Ok(Self {
            query: square(rng)?,
            key: square(rng)?,
            value: square(rng)?,
            gate: weight(&[FEATURES, 2 * FEATURES], rng)?,
            decay: Parameter::new(Array::full([1, 1], 0.1, DType::F32, &Device::Cpu)?),
            scales: [ones()?, ones()?],
            distances: Tensor::from_slice(&distances, [TOKENS, TOKENS], &Device::Cpu)?,
        })
    }

    fn batch(rng: &mut ChaCha8Rng) -> Result<(Tensor, Tensor)> {
        let mut draw =
            || Ok::<_, gradewise::nn::Error>(Tensor::new(randn(&[SYSTEMS, TOKENS, FEATURES], 1.0, rng)?));
        Ok((draw()?, draw()?))
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let inner = normalized(x, &self.scales[0])?;
        let heads = |weight: &Parameter| {
            let features = inner.matmul(&weight.tensor())?;
            features.reshape([SYSTEMS, TOKENS, HEADS, FEATURES / HEADS])?.transpose(1, 2)
        };
        let [query, key, value] = [heads(&self.query)?, heads(&self.key)?, heads(&self.value)?];
        let scale = ((FEATURES / HEADS) as f64).powf(-0.5);
        let scores = query.matmul_transposed(&key, false, true)?.mul_scalar(scale)?;
        let scores = scores.sub(&self.distances.mul(&self.decay.tensor())?)?;
        // The greatest score is a constant: the weights do not depend on it.
        let weights = scores.sub(&scores.detach().max(&[3], true)?)?.exp()?;
        let weights = weights.div(&weights.sum(&[3], true)?)?;
        let values = weights.matmul(&value)?.transpose(1, 2)?.reshape([SYSTEMS, TOKENS, FEATURES])?;
        let h = x.add(&values)?;
        let both = normalized(&h, &self.scales[1])?.matmul(&self.gate.tensor())?;
        let (gate, value) = (both.slice(2, 0..FEATURES)?, both.slice(2, FEATURES..2 * FEATURES)?);
        mean_squared_error(&h.add(&gate.mul(&gate.sigmoid()?)?.mul(&value.tanh()?)?)?, y)
    }
}

/// A gated recurrent unit over a few steps.
#[derive(Module)]
#[module(crate = "gradewise::nn")]
struct Recurrent {
    input: Parameter,
    state: Parameter,
    bias: Parameter,
}

const STEPS: usize = 8;
const STATE: usize = 24;

impl Network for Recurrent {
    fn new(rng: &mut ChaCha8Rng) -> Result<Self> {
        Ok(Self {
            input: weight(&[STATE, 3 * STATE], rng)?,
            state: weight(&[STATE, 3 * STATE], rng)?,
            bias: Parameter::new(Array::zeros([3 * STATE], DType::F32, &Device::Cpu)?),
        })
    }

    fn batch(rng: &mut ChaCha8Rng) -> Result<(Tensor, Tensor)> {
        let x = randn(&[STEPS, 8192, STATE], 1.0, rng)?;
        Ok((Tensor::new(x), Tensor::new(randn(&[8192, STATE], 0.5, rng)?)))
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let mut h = y.mul_scalar(0.0)?;
        for step in 0..STEPS {
            let x = x.slice(0, step..step + 1)?.squeeze(0)?;
            let part = |all: &Tensor, n: usize| all.slice(1, n * STATE..(n + 1) * STATE);
            let given = x.matmul(&self.input.tensor())?.add(&self.bias.tensor())?;
            let own = h.matmul(&self.state.tensor())?;
            let update = part(&given, 0)?.add(&part(&own, 0)?)?.sigmoid()?;
            let reset = part(&given, 1)?.add(&part(&own, 1)?)?.sigmoid()?;
            let new = part(&given, 2)?.add(&reset.mul(&part(&own, 2)?)?)?.tanh()?;
            h = update.mul(&h)?.add(&update.neg()?.add_scalar(1.0)?.mul(&new)?)?;
        }
        mean_squared_error(&h, y)
    }
}

/// A pair potential of wells and a repulsion, cut off smoothly; learned from forces, by second derivatives.
#[derive(Module)]
#[module(crate = "gradewise::nn")]
struct Potential {
    depths: Parameter,
    widths: Parameter,
    centres: Parameter,
    repulsion: Parameter,
}

const POINTS: usize = 16;
const WELLS: usize = 8;

impl Potential {
    /// The energy of all systems `[systems, points, 3]`.
    fn energy(&self, x: &Tensor) -> Result<Tensor> {
        let systems = x.shape()[0];
        let ends = [[systems, POINTS, 1, 3], [systems, 1, POINTS, 3]].map(|shape| x.reshape(shape));
        let [to, from] = ends;
        let squares = to?.sub(&from?)?.square()?.sum(&[3], true)?.add_scalar(0.05)?;
        let r = squares.sqrt()?;
        let from_centre = r.sub(&self.centres.tensor())?;
        let wells =
            from_centre.square()?.mul(&self.widths.tensor())?.neg()?.exp()?.mul(&self.depths.tensor())?;
        let repulsion = squares.pow(-1.5)?.mul(&self.repulsion.tensor())?;
        let inside = r.mul_scalar(0.25)?.pow(3.0)?.neg()?.add_scalar(1.0)?.relu()?.square()?;
        Ok(wells.sum(&[3], true)?.add(&repulsion)?.mul(&inside)?.sum_all()?)
    }
}

impl Network for Potential {
    fn new(rng: &mut ChaCha8Rng) -> Result<Self> {
        let centres: Vec<f32> = (0..WELLS).map(|n| 0.3 + 0.3 * n as f32).collect();
        Ok(Self {
            depths: weight(&[WELLS], rng)?,
            widths: Parameter::new(Array::full([WELLS], 4.0, DType::F32, &Device::Cpu)?),
            centres: Parameter::new(Array::from_slice(&centres, [WELLS], &Device::Cpu)?),
            repulsion: Parameter::new(Array::full([1], 0.1, DType::F32, &Device::Cpu)?),
        })
    }

    fn batch(rng: &mut ChaCha8Rng) -> Result<(Tensor, Tensor)> {
        let mut draw = || Ok::<_, gradewise::nn::Error>(Tensor::new(randn(&[256, POINTS, 3], 1.0, rng)?));
        Ok((draw()?, draw()?))
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let x = x.requires_grad();
        let forces = grad(&self.energy(&x)?, &[&x], &BackwardOptions::create_graph())?;
        let [Some(forces)] = &forces[..] else { unreachable!("the energy depends on the positions") };
        mean_squared_error(&forces.neg()?, y)
    }
}

const MEASURED: usize = 21;

/// Takes steps with both, in turn; whether their weights and losses agree bit by bit.
fn compare<N: Network>(name: &str) -> Result<bool> {
    let trainer = |fusion| -> Result<Trainer<N>> {
        let model = N::new(&mut ChaCha8Rng::seed_from_u64(1))?;
        let config = TrainerConfig {
            lr: 1e-3,
            schedule: ScheduleKind::Constant,
            warmup_steps: 0,
            ..TrainerConfig::default()
        };
        let mut trainer = Trainer::new(model, config)?;
        trainer.set_host_fusion(fusion);
        Ok(trainer)
    };
    let mut trainers = [trainer(Fusion::On)?, trainer(Fusion::Off)?];
    let batch = N::batch(&mut ChaCha8Rng::seed_from_u64(2))?;
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    let mut is_equal = true;
    for _ in 0..MEASURED + 2 {
        let mut losses = [0.0; 2];
        let mut seconds = [0.0; 2];
        for number in 0..2 {
            let start = Instant::now();
            let mut batches = std::iter::once(Ok(batch.clone()));
            losses[number] = trainers[number].step(&mut batches, |model, (x, y)| model.loss(x, y))?.loss;
            seconds[number] = start.elapsed().as_secs_f64();
            times[number].push(seconds[number]);
        }
        ratios.push(seconds[1] / seconds[0]);
        is_equal &= losses[0].to_bits() == losses[1].to_bits();
    }
    let [fused, plain] = &trainers;
    for (a, b) in fused.model().parameters().iter().zip(plain.model().parameters()) {
        is_equal &= a.array().to_vec::<f32>()?.iter().map(|value| value.to_bits()).eq(b
            .array()
            .to_vec::<f32>()?
            .iter()
            .map(|value| value.to_bits()));
    }
    // The first two steps make what others find.
    let median = |all: &mut [f64]| {
        let all = &mut all[2..];
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let [fused, plain] = times.each_mut().map(|all| 1e3 * median(all));
    let ratio = median(&mut ratios);
    let bits = if is_equal { "the same bits" } else { "OTHER BITS" };
    println!("{name:<12}{fused:>9.2} ms fused{plain:>9.2} ms one by one{ratio:>7.2} times; {bits}");
    Ok(is_equal)
}

fn main() -> Result<ExitCode> {
    let equal = [
        compare::<Attention>("attention")?,
        compare::<Recurrent>("recurrent")?,
        compare::<Potential>("potential")?,
    ];
    Ok(if equal == [true; 3] { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
