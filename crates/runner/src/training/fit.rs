//! Finds the largest batch that fits the memory, by measuring the model.

use super::{steps::Steps, trainer_of};
use crate::{
    config::Precision,
    error::{Error, Result},
    output, run,
    run::Team,
    task::{self, Batch, Task, TaskConfig},
};
use gradewise_kernels::{
    DType, Device,
    memory::{Bytes, Monitor},
};
use gradewise_nn::{
    Placement,
    data::longest,
    train::{Part, Samples, Trainer},
};

/// Steps until memory usage is stationary: the first allocates the optimiser's state, and on a GPU a later one captures a graph with its
/// memory.
const STEPS: usize = 3;
/// The usable fraction of free memory; the rest is a reserve for fragmentation.
const USED: f64 = 0.95;
/// A configuration predicted to need more than this factor of the available memory is not tried.
const HOPELESS: f64 = 1.25;
const MIB: usize = 1 << 20;

/// The memory of a training step, in bytes: a constant part, and a part proportional to the batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Needs {
    fixed: f64,
    sample: f64,
    /// The measured (samples, bytes): for two batch sizes, or for one sample if two do not fit.
    measured: Vec<(usize, usize)>,
}

impl Needs {
    /// A line through two measurements.
    fn through(measured: [(usize, usize); 2]) -> Self {
        let [(few, little), (many, much)] = measured.map(|(samples, bytes)| (samples as f64, bytes as f64));
        let sample = ((much - little) / (many - few)).max(0.0);
        Self { fixed: (little - sample * few).max(0.0), sample, measured: measured.to_vec() }
    }

    /// From one sample, if two do not fit: the growth with the batch is unknown, except that it exceeds the memory.
    fn of_one(bytes: usize) -> Self {
        Self { fixed: bytes as f64, sample: f64::INFINITY, measured: vec![(1, bytes)] }
    }

    /// The memory of a batch; `None` if it is unknown, because two samples do not fit.
    pub fn of(&self, samples: usize) -> Option<usize> {
        match self.measured[..] {
            [(1, bytes)] => (samples <= 1).then_some(bytes),
            _ => Some((self.fixed + self.sample * samples as f64) as usize),
        }
    }

    /// The largest batch that fits into `bytes`.
    pub fn most(&self, bytes: usize) -> usize {
        match self.measured[..] {
            // One sample was measured to fit.
            [(1, _)] => 1,
            _ => ((bytes as f64 - self.fixed).max(0.0) / self.sample.max(1.0)) as usize,
        }
    }

    /// The largest measured batch, which is known to fit.
    pub fn largest(&self) -> usize {
        self.measured.iter().map(|(samples, _)| *samples).max().unwrap_or(0)
    }

    /// Describes the needs: `12.0 MiB + 4.1 MiB a sample (measured with 4 and 8)`.
    pub fn describe(&self) -> String {
        match self.measured[..] {
            [(few, _), (many, _)] => {
                let [fixed, sample] = [self.fixed, self.sample].map(|bytes| Bytes(bytes as usize));
                format!("{fixed} + {sample} a sample (measured with {few} and {many})")
            }
            _ => format!("{} with 1 sample, and 2 do not fit", Bytes(self.fixed as usize)),
        }
    }
}

/// The memory available for new arrays on a device; `None` if the system does not report it.
pub fn available(device: &Device, limit_mib: usize) -> Result<Option<usize>> {
    device.trim_memory()?;
    let free = match device {
        Device::Cpu => free_on_host(),
        Device::Cuda(cuda) => Some(cuda.memory()?.free),
    };
    let limit =
        (limit_mib > 0).then(|| (limit_mib * MIB).saturating_sub(device.memory().map_or(0, |m| m.allocated)));
    Ok(match (free, limit) {
        (Some(free), Some(limit)) => Some(free.min(limit)),
        (free, limit) => free.or(limit),
    })
}

/// The memory that Linux reports as available without swapping.
fn free_on_host() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<usize>().ok()? * 1024)
}

/// A new model with its trainer, calibrated on the training samples.
///
/// # Errors
/// As those of [`Task::init`].
pub fn start<T: Task>(
    config: &TaskConfig<T>,
    training: &T::Data,
    placement: &Placement,
) -> Result<(Trainer<T::Model>, Steps<T>)> {
    let model = task::model_of::<T>(None, config, training, placement)?;
    let mut trainer = trainer_of::<T>(model, config, run::mixed_precision(&config.runtime)?.as_ref())?;
    let steps = Steps::new(config, &placement.device, &mut trainer)?;
    Ok((trainer, steps))
}

/// Measures the memory of a few steps with batches of this many samples, with a temporary model.
///
/// # Errors
/// From the steps, in particular out of memory.
pub fn measured<T: Task>(
    config: &TaskConfig<T>,
    data: &T::Data,
    placement: &Placement,
    samples: usize,
) -> Result<usize> {
    let device = &placement.device;
    device.trim_memory()?;
    let monitor = Monitor::start(device)?;
    let delta = (|| {
        let (mut trainer, mut steps) = start::<T>(config, data, placement)?;
        let loading = run::loading(placement);
        let indices = longest(data, samples);
        let mut batches = std::iter::repeat_with(|| -> gradewise_nn::Result<Part<Batch<T>>> {
            Ok(Part::whole(data.batch(&indices, &loading)?))
        });
        for _ in 0..STEPS {
            steps.take(&mut trainer, &mut batches)?;
        }
        monitor.delta().map_err(Error::from)
    })();
    // Also after a failure, because the next measurement needs the memory.
    device.trim_memory()?;
    Ok(delta?.peak)
}

/// Measures the needs of steps with two batch sizes below the wanted `batch`, or with one sample if two do not fit.
///
/// # Errors
/// From the steps; a single sample that does not fit.
pub fn needs<T: Task>(
    config: &TaskConfig<T>,
    data: &T::Data,
    placement: &Placement,
    batch: usize,
) -> Result<Needs> {
    let mut many = (batch / 4).max(2);
    loop {
        let few = many / 2;
        let little = measured::<T>(config, data, placement, few);
        let both = little.and_then(|little| match measured::<T>(config, data, placement, many) {
            Ok(much) => Ok(Needs::through([(few, little), (many, much)])),
            Err(error) if error.is_out_of_memory() && few == 1 => Ok(Needs::of_one(little)),
            Err(error) => Err(error),
        });
        match both {
            Err(error) if error.is_out_of_memory() && many > 2 => many = (many / 4).max(2),
            found => return found,
        }
    }
}

/// The settings with the batch divided into as many parts as needed to fit. Gradients of the parts are averaged, so a step uses the same
/// samples. Reports the division.
///
/// # Errors
/// From the steps; not even one sample fits.
pub fn fit<T: Task>(
    config: &TaskConfig<T>,
    data: &T::Data,
    placement: &Placement,
    team: &Team,
) -> Result<TaskConfig<T>> {
    let found = match available(&placement.device, config.runtime.memory_mib)? {
        Some(free) => divide::<T>(config, data, placement, team.world(), free)?,
        None => Division {
            parts: 1,
            words: format!("{} does not tell how much is free; the batch stays as it is", placement.device),
        },
    };
    // The process with the least memory determines the number of parts for all.
    let parts = team.most(found.parts)?;
    output::note(&format!("memory: {}", found.words));
    let (batch, accumulation) = (config.train.batch_size / parts, config.train.trainer.accumulation * parts);
    if parts > 1 {
        let samples = batch * accumulation;
        output::note(&format!(
            "memory: train.batch_size={batch} train.accumulation={accumulation}, still {samples} samples a step"
        ));
    }
    let mut fitted = config.clone();
    // The run's configuration stores the chosen division instead.
    fitted.runtime.fit_memory = false;
    (fitted.train.batch_size, fitted.train.trainer.accumulation) = (batch, accumulation);
    Ok(fitted)
}

/// The number of parts of a batch, and the reason.
struct Division {
    parts: usize,
    words: String,
}

/// The fewest parts that fit, by measurement. `free` is for this process alone; each of `world` processes has its part of a batch.
fn divide<T: Task>(
    config: &TaskConfig<T>,
    data: &T::Data,
    placement: &Placement,
    world: usize,
    free: usize,
) -> Result<Division> {
    let wanted = config.train.batch_size;
    let usable = (free as f64 * USED) as usize;
    let part = |parts: usize| (wanted / parts).div_ceil(world);
    let mut probe = config.clone();
    // Accumulated gradients take memory while those of the next part are computed.
    probe.train.trainer.accumulation = config.train.trainer.accumulation.max(2);
    let needs = needs::<T>(&probe, data, placement, part(1))?;
    let words = |parts: usize, bytes: usize| {
        let (bytes, free) = (Bytes(bytes), Bytes(free));
        match (parts, needs.of(part(1))) {
            (1, _) => format!("a batch of {wanted} takes {bytes} of {free} that are free"),
            (_, Some(whole)) => format!(
                "a batch of {wanted} would take {} of {free} that are free; in {parts} parts it takes {bytes}",
                Bytes(whole)
            ),
            (_, None) => format!(
                "of {free} that are free a step takes {}; a batch of {wanted} in {parts} parts takes {bytes}",
                needs.describe()
            ),
        }
    };
    // A part that fits without a reserve is the last resort.
    let mut tight = None;
    for parts in (1..=wanted).filter(|parts| wanted.is_multiple_of(*parts)) {
        let hopeless = |bytes: usize| bytes as f64 > usable as f64 * HOPELESS;
        if needs.of(part(parts)).is_none_or(hopeless) {
            continue;
        }
        let config = if parts == 1 { config } else { &probe };
        match measured::<T>(config, data, placement, part(parts)) {
            Ok(bytes) if bytes <= usable => return Ok(Division { parts, words: words(parts, bytes) }),
            Ok(bytes) if bytes <= free => tight = Some(Division { parts, words: words(parts, bytes) }),
            Ok(_) => {}
            Err(error) if error.is_out_of_memory() => {}
            Err(error) => return Err(error),
        }
    }
    tight.ok_or_else(|| {
        Error::Failed(format!(
            "memory: {} are usable of {}, and a step takes {}; a smaller model is needed, or more memory",
            Bytes(usable),
            Bytes(free),
            needs.describe()
        ))
    })
}

/// Remedies for a batch that does not fit.
pub struct Advice {
    /// The memory of a step and of each remedy, one per line.
    pub text: String,
    /// `None` if not even one sample fits.
    pub needs: Option<Needs>,
}

/// Lists remedies for a batch that does not fit, with the memory of each, measured in this process alone. Each of `world` processes has its
/// part of a batch.
///
/// # Errors
/// From the steps, except out of memory.
pub fn advice<T: Task>(
    config: &TaskConfig<T>,
    data: &T::Data,
    placement: &Placement,
    world: usize,
) -> Result<Advice> {
    let wanted = config.train.batch_size;
    let part = |parts: usize| (wanted / parts).div_ceil(world);
    let try_needs = |config: &TaskConfig<T>| match needs::<T>(config, data, placement, part(1)) {
        Ok(needs) => Ok(Some(needs)),
        Err(error) if error.is_out_of_memory() => Ok(None),
        Err(error) => Err(error),
    };
    let plain = try_needs(config)?;
    let free = available(&placement.device, config.runtime.memory_mib)?;
    let usable = free.map_or(usize::MAX, |free| (free as f64 * USED) as usize);
    let mut text = match &plain {
        Some(needs) => {
            let whole = needs.of(part(1)).map(|bytes| format!("; {} samples {}", part(1), Bytes(bytes)));
            format!("a step takes {}{}", needs.describe(), whole.unwrap_or_default())
        }
        None => "not even a step with one sample fits".to_owned(),
    };
    if world > 1 {
        text += &format!(" on each of {world} devices");
    }
    if let Some(free) = free {
        text += &format!(", {} are free", Bytes(free));
        if let Some(needs) = &plain {
            text += &match needs.most(usable) {
                1 => ": at most 1 sample at once".to_owned(),
                most => format!(": at most {most} samples at once"),
            };
        }
    }
    let fits = |needs: &Needs, samples: usize| {
        samples <= needs.largest() || needs.of(samples).is_some_and(|bytes| bytes <= usable)
    };
    let mut lines = Vec::new();
    let mut line = |settings: &str, takes: &str, note: &str| {
        lines.push(format!("\n  {settings:<46} {takes:>10}{note}"));
    };
    if let Some(needs) = plain.as_ref().filter(|needs| !fits(needs, part(1))) {
        let mut probe = config.clone();
        probe.train.trainer.accumulation = config.train.trainer.accumulation.max(2);
        let divided = (2..=wanted).filter(|parts| wanted.is_multiple_of(*parts) && fits(needs, part(*parts)));
        // Accumulated gradients take memory while those of the next part are computed, so the first division may not fit.
        for parts in divided {
            match measured::<T>(&probe, data, placement, part(parts)) {
                Ok(bytes) => {
                    let (batch, accumulation) = (wanted / parts, config.train.trainer.accumulation * parts);
                    line(
                        &format!("train.batch_size={batch} train.accumulation={accumulation}"),
                        &Bytes(bytes).to_string(),
                        ", on the same samples a step: what --fit-memory chooses",
                    );
                    break;
                }
                Err(error) if error.is_out_of_memory() => {}
                Err(error) => return Err(error),
            }
        }
    }
    // Measures another configuration with the whole batch, or with the batch that fits.
    let mut other = |settings: &str, config: &TaskConfig<T>| -> Result<()> {
        let Some(needs) = try_needs(config)? else { return Ok(()) };
        match (needs.of(part(1)), needs.of(1)) {
            (Some(whole), _)
                if plain.as_ref().and_then(|plain| plain.of(part(1))).is_none_or(|p| whole < p) =>
            {
                let note = if whole > usable { ", more than is free" } else { "" };
                line(settings, &Bytes(whole).to_string(), note);
            }
            (None, Some(one)) if plain.is_none() => {
                line(settings, &Bytes(one).to_string(), " with 1 sample; 2 do not fit");
            }
            _ => {}
        }
        Ok(())
    };
    if let Some(model) = T::recomputing(&config.model) {
        other("model.recompute=true", &TaskConfig::<T> { model, ..config.clone() })?;
    }
    if config.runtime.precision == Precision::Full && config.runtime.dtype == DType::F32 {
        let mut mixed = config.clone();
        mixed.runtime.precision = Precision::Bf16;
        other("--precision bf16", &mixed)?;
    }
    text.extend(lines);
    Ok(Advice { text, needs: plain })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_a_line_and_its_inverse() {
        let needs = Needs::through([(4, 30 << 20), (8, 50 << 20)]);
        assert_eq!([0, 4, 20].map(|n| needs.of(n).unwrap()), [10 << 20, 30 << 20, 110 << 20]);
        assert_eq!((needs.most(110 << 20), needs.most(9 << 20)), (20, 0));
        assert_eq!(needs.describe(), "10.0 MiB + 5.0 MiB a sample (measured with 4 and 8)");
        // Measurement noise must not give a negative slope.
        let flat = Needs::through([(1, 100), (2, 90)]);
        assert!(flat.of(1000).is_some_and(|bytes| (90..=100).contains(&bytes)), "{flat:?}");
        // With one measured sample, only that sample is known to fit.
        let one = Needs::of_one(20 << 20);
        assert_eq!((one.of(1), one.of(2), one.most(1 << 30), one.largest()), (Some(20 << 20), None, 1, 1));
        assert_eq!(one.describe(), "20.0 MiB with 1 sample, and 2 do not fit");
    }

    #[test]
    fn this_machine_tells_what_is_free() {
        let free = available(&Device::Cpu, 0).unwrap();
        assert!(!cfg!(target_os = "linux") || free.is_some_and(|bytes| bytes > 1 << 20), "{free:?}");
        assert!(available(&Device::Cpu, 1).unwrap().unwrap() <= 1 << 20);
    }
}
