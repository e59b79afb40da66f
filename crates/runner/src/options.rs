//! Options that commands share.

use crate::{
    config::{Hardware, Precision, Resolver, Runtime},
    error::{Error, Result},
    output,
};
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use gradewise_kernels::{Compute, DType};
use gradewise_nn::choice::Choice;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A parser for the names of a choice, whose error lists the valid names.
pub fn one_of<T: Choice>() -> impl TypedValueParser<Value = T> {
    let value = |choice: &T| {
        PossibleValue::new(choice.name()).help(choice.about()).aliases(choice.aliases().iter().copied())
    };
    PossibleValuesParser::new(T::ALL.iter().map(value)).try_map(|name| T::parse(&name))
}

/// Device, dtype and arithmetic.
#[derive(Clone, Debug, Args)]
pub struct RuntimeOptions {
    /// cpu, cuda or cuda:N. A missing device is an error: there is no fallback.
    #[arg(long)]
    device: Option<String>,
    /// Storage of numbers: f64, f32, bf16 or f16 (the CPU supports f64 and f32).
    #[arg(long, value_parser = one_of::<DType>(), ignore_case = true, hide_possible_values = true)]
    dtype: Option<DType>,
    /// Arithmetic of matrix products: exact or tf32.
    #[arg(long, value_parser = one_of::<Compute>(), ignore_case = true, hide_possible_values = true)]
    compute: Option<Compute>,
    /// Mixed precision: bf16 or f16, with weights in f32; or full, as --dtype says.
    #[arg(long, value_parser = one_of::<Precision>(), ignore_case = true, hide_possible_values = true)]
    precision: Option<Precision>,
    /// Debug mode: launches are synchronous and named in errors, memory is poisoned, results are checked (runtime.debug_cuda).
    #[arg(long)]
    debug_cuda: bool,
}

/// The settings of commands that do not train: only `[runtime]`.
#[derive(Serialize, Deserialize)]
struct Place {
    runtime: Runtime,
}

impl RuntimeOptions {
    /// These options over the defaults.
    ///
    /// # Errors
    /// Invalid values.
    pub fn alone(&self) -> Result<Runtime> {
        let mut resolver = Resolver::new(&Place { runtime: Runtime::default() })?;
        let Place { runtime } = self.apply(&mut resolver)?.finish()?;
        runtime.validate()?;
        Ok(runtime)
    }

    /// Applies the given options on top of a configuration.
    ///
    /// # Errors
    /// Values of another type than the settings'.
    pub fn apply<'a>(&self, resolver: &'a mut Resolver) -> Result<&'a mut Resolver> {
        let names = [
            ("device", self.device.as_deref()),
            ("dtype", self.dtype.map(Choice::name)),
            ("compute", self.compute.map(Choice::name)),
            ("precision", self.precision.map(Choice::name)),
        ];
        for (key, name) in names {
            if let Some(name) = name {
                resolver.set(&format!("runtime.{key}"), name, &format!("--{key} {name}"))?;
            }
        }
        if self.debug_cuda {
            resolver.set("runtime.debug_cuda", true, "--debug-cuda")?;
        }
        Ok(resolver)
    }
}

/// The layers of settings from the command line.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// A TOML file of settings, such as the config.toml of an earlier run.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Settings for a kind of machine, with the lowest precedence: a name that `gradewise hardware` lists, or auto for this machine.
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,
    #[command(flatten)]
    runtime: RuntimeOptions,
    /// Seed of the weights and of the order of batches (train.seed); data.seed chooses the simulated systems.
    #[arg(long)]
    seed: Option<u64>,
    /// Settings that take precedence, such as train.batch_size=4.
    #[arg(value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
}

impl Settings {
    /// The `[runtime]` settings alone, for commands that need no others.
    ///
    /// # Errors
    /// As [`apply`](Self::apply); settings of a task.
    pub fn runtime(&self) -> Result<Runtime> {
        let mut resolver = Resolver::new(&Place { runtime: Runtime::default() })?;
        let Place { runtime } = self.apply(&mut resolver)?.finish()?;
        runtime.validate()?;
        Ok(runtime)
    }

    /// Applies the settings of the machine, the file, the options and the overrides to a configuration, in that order.
    ///
    /// # Errors
    /// Files that cannot be read; unknown settings, or values of another type.
    pub fn apply<'a>(&self, resolver: &'a mut Resolver) -> Result<&'a mut Resolver> {
        self.apply_with(resolver, |_| Ok(()))
    }

    /// As [`apply`](Self::apply), with the options of the command applied before the overrides.
    ///
    /// # Errors
    /// As [`apply`](Self::apply); those of `options`.
    pub fn apply_with<'a>(
        &self,
        resolver: &'a mut Resolver,
        options: impl FnOnce(&mut Resolver) -> Result<()>,
    ) -> Result<&'a mut Resolver> {
        if let Some(name) = &self.hardware {
            let found = Hardware::find(name)?;
            found.hardware.apply(resolver)?;
            output::note(&format!(
                "hardware: {} ({}): {}",
                found.hardware.name,
                found.reason,
                found.hardware.summary()
            ));
        }
        if let Some(path) = &self.config {
            resolver.file(path)?;
        }
        self.runtime.apply(resolver)?;
        if let Some(seed) = self.seed {
            let seed = i64::try_from(seed).map_err(|_| {
                Error::Usage(format!("--seed {seed}: at most {}, the largest number of a file", i64::MAX))
            })?;
            resolver.set("train.seed", seed, &format!("--seed {seed}"))?;
        }
        options(resolver)?;
        for assignment in &self.overrides {
            resolver.assignment(assignment)?;
        }
        Ok(resolver)
    }
}
