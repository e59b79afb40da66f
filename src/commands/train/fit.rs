//! How large a batch the memory holds, by the model's own numbers.

use super::{session::Steps, trainer_of};
use crate::{
    error::{Error, Result},
    output, run,
    run::Team,
    tasks::{self, Batch, Task, TaskConfig},
};
use gradewise_kernels::{
    Device,
    memory::{Bytes, Monitor},
};
use gradewise_nn::{
    Placement,
    train::{Part, Samples, Trainer},
};

/// Steps until memory is what it stays: the first makes the optimiser's state, and on a GPU a later one captures and owns what it needs.
const STEPS: usize = 3;
/// Of what is free, the part that is used: the rest is for what fits into no gap.
const USED: f64 = 0.95;
/// A prediction that is so far above is not tried.
const HOPELESS: f64 = 1.25;
const MIB: usize = 1 << 20;

/// What a training step takes: a part that does not depend on the batch, and one that grows with it. In bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Needs {
    fixed: f64,
    sample: f64,
    /// Samples and bytes, as measured.
    measured: [(usize, usize); 2],
}

impl Needs {
    /// The line through two measurements.
    fn through(measured: [(usize, usize); 2]) -> Self {
        let [(few, little), (many, much)] = measured.map(|(samples, bytes)| (samples as f64, bytes as f64));
        let sample = ((much - little) / (many - few)).max(0.0);
        Self { fixed: (little - sample * few).max(0.0), sample, measured }
    }

    /// What a batch takes.
    pub fn of(&self, samples: usize) -> usize {
        (self.fixed + self.sample * samples as f64) as usize
    }

    /// The largest batch that so many bytes hold.
    pub fn most(&self, bytes: usize) -> usize {
        ((bytes as f64 - self.fixed).max(0.0) / self.sample.max(1.0)) as usize
    }

    /// For readers: `12.0 MiB + 4.1 MiB a sample (measured with 4 and 8)`.
    pub fn describe(&self) -> String {
        let [fixed, sample] = [self.fixed, self.sample].map(|bytes| Bytes(bytes as usize));
        let [(few, _), (many, _)] = self.measured;
        format!("{fixed} + {sample} a sample (measured with {few} and {many})")
    }
}

/// What arrays may take on a device, beside those there are; `None` where the system does not tell.
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

/// What Linux says could be had without swapping.
fn free_on_host() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<usize>().ok()? * 1024)
}

/// A new model with what trains it.
///
/// # Errors
/// As those of [`Task::init`].
pub fn start<T: Task>(
    config: &TaskConfig<T>,
    placement: &Placement,
) -> Result<(Trainer<T::Model>, Steps<T>)> {
    let model = tasks::new_model::<T>(&config.model, placement, config.train.seed)?;
    let trainer = trainer_of::<T>(model, config, run::mixed_precision(&config.runtime)?.as_ref())?;
    Ok((trainer, Steps::new(config, &placement.device)?))
}

/// What a few steps with batches of so many samples take, of a model that is made for it and dropped.
///
/// # Errors
/// From the steps; above all, that memory does not suffice.
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
        let (mut trainer, mut steps) = start::<T>(config, placement)?;
        let loading = run::loading(placement);
        let indices: Vec<usize> = (0..samples).map(|index| index % data.len()).collect();
        let mut batches = std::iter::repeat_with(|| -> gradewise_nn::Result<Part<Batch<T>>> {
            Ok(Part::whole(data.batch(&indices, &loading)?))
        });
        for _ in 0..STEPS {
            steps.take(&mut trainer, &mut batches)?;
        }
        monitor.delta().map_err(Error::from)
    })();
    // Also after a failure: what follows needs the room.
    device.trim_memory()?;
    Ok(delta?.peak)
}

/// The needs of steps, from two batch sizes below the `batch` that is wanted.
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
        let both = measured::<T>(config, data, placement, few)
            .and_then(|little| Ok([(few, little), (many, measured::<T>(config, data, placement, many)?)]));
        match both {
            Ok(both) => return Ok(Needs::through(both)),
            Err(error) if error.is_out_of_memory() && many > 2 => many = (many / 4).max(2),
            Err(error) => return Err(error),
        }
    }
}

/// The settings with the batch divided into as many parts as it takes to fit; their gradients are averaged, so that a step is on the
/// same samples. Says what was done.
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
    // The process with the least memory decides for all.
    let parts = team.most(found.parts)?;
    output::note(&format!("memory: {}", found.words));
    let (batch, accumulation) = (config.train.batch_size / parts, config.train.accumulation * parts);
    if parts > 1 {
        let samples = batch * accumulation;
        output::note(&format!(
            "memory: train.batch_size={batch} train.accumulation={accumulation}, still {samples} samples a step"
        ));
    }
    let mut fitted = config.clone();
    // What was chosen is what the run's configuration keeps.
    fitted.runtime.fit_memory = false;
    (fitted.train.batch_size, fitted.train.accumulation) = (batch, accumulation);
    Ok(fitted)
}

/// Into how many parts a batch is divided, and why.
struct Division {
    parts: usize,
    words: String,
}

/// The fewest parts that fit, measured; `free` is shared with nobody, and each of `world` processes has its part of a batch.
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
    // Gradients are kept while the next part's are computed.
    probe.train.accumulation = config.train.accumulation.max(2);
    let needs = needs::<T>(&probe, data, placement, part(1))?;
    for parts in (1..=wanted).filter(|parts| wanted.is_multiple_of(*parts)) {
        if needs.of(part(parts)) as f64 > usable as f64 * HOPELESS {
            continue;
        }
        let bytes =
            match measured::<T>(if parts == 1 { config } else { &probe }, data, placement, part(parts)) {
                Ok(bytes) if bytes <= usable => Bytes(bytes),
                Ok(_) => continue,
                Err(error) if error.is_out_of_memory() => continue,
                Err(error) => return Err(error),
            };
        let free = Bytes(free);
        let words = if parts == 1 {
            format!("a batch of {wanted} takes {bytes} of {free} that are free")
        } else {
            let whole = Bytes(needs.of(part(1)));
            format!(
                "a batch of {wanted} would take {whole} of {free} that are free; in {parts} parts it takes {bytes}"
            )
        };
        return Ok(Division { parts, words });
    }
    Err(Error::Failed(format!(
        "memory: {} are usable of {}, and a step takes {}; a smaller model is needed, or more memory",
        Bytes(usable),
        Bytes(free),
        needs.describe()
    )))
}

/// What could be done about a batch that does not fit, with what each would take.
///
/// # Errors
/// From the steps.
pub fn advice<T: Task>(config: &TaskConfig<T>, data: &T::Data, placement: &Placement) -> Result<String> {
    let wanted = config.train.batch_size;
    let plain = needs::<T>(config, data, placement, wanted)?;
    let free = available(&placement.device, config.runtime.memory_mib)?;
    let mut text = format!("a step takes {}; {wanted} samples {}", plain.describe(), Bytes(plain.of(wanted)));
    let usable = free.map_or(usize::MAX, |free| (free as f64 * USED) as usize);
    if let Some(free) = free {
        text += &format!(", {} are free: at most {} samples at once", Bytes(free), plain.most(usable));
    }
    let mut line = |settings: String, needs: usize, note: &str| {
        text += &format!("\n  {settings:<46} {:>10}{note}", Bytes(needs).to_string());
    };
    let divided = (2..=wanted).filter(|parts| wanted.is_multiple_of(*parts));
    let fitting = divided.filter(|parts| plain.of(wanted / parts) <= usable).min();
    if let Some(parts) = fitting.filter(|_| plain.of(wanted) > usable) {
        let (batch, accumulation) = (wanted / parts, config.train.accumulation * parts);
        line(
            format!("train.batch_size={batch} train.accumulation={accumulation}"),
            plain.of(batch),
            ", on the same samples a step: what --fit-memory chooses",
        );
    }
    if let Some(model) = T::recomputing(&config.model) {
        let again = TaskConfig::<T> { model, ..config.clone() };
        line("model.recompute=true".to_owned(), needs::<T>(&again, data, placement, wanted)?.of(wanted), "");
    }
    if config.runtime.precision == "full" && config.runtime.dtype == "f32" {
        let mut mixed = config.clone();
        "bf16".clone_into(&mut mixed.runtime.precision);
        let mixed = needs::<T>(&mixed, data, placement, wanted)?;
        if mixed.of(wanted) < plain.of(wanted) {
            line("--precision bf16".to_owned(), mixed.of(wanted), "");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_a_line_and_its_inverse() {
        let needs = Needs::through([(4, 30 << 20), (8, 50 << 20)]);
        assert_eq!((needs.of(0), needs.of(4), needs.of(20)), (10 << 20, 30 << 20, 110 << 20));
        assert_eq!((needs.most(110 << 20), needs.most(9 << 20)), (20, 0));
        assert_eq!(needs.describe(), "10.0 MiB + 5.0 MiB a sample (measured with 4 and 8)");
        // Noise does not make a batch give memory back.
        let flat = Needs::through([(1, 100), (2, 90)]);
        assert!(flat.of(1000) >= 90 && flat.of(1000) <= 100, "{flat:?}");
    }

    #[test]
    fn this_machine_tells_what_is_free() {
        let free = available(&Device::Cpu, 0).unwrap();
        assert!(!cfg!(target_os = "linux") || free.is_some_and(|bytes| bytes > 1 << 20), "{free:?}");
        assert!(available(&Device::Cpu, 1).unwrap().unwrap() <= 1 << 20);
    }
}
