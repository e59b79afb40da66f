//! The registry of operations: those of this crate, and those that other crates add.
//!
//! Gradient checks, choices of backends and of precision, replays of records, comparisons between devices, determinism tests and
//! benchmarks go over [`entries`], so that an operation which is in its list is in all of them.

pub use crate::entry::Entry;

use crate::{
    AnySample, Attributes, Error, GradcheckOptions, Result, Sizes, Tensor, clifford, fields, gradcheck,
    gradgradcheck, operation, ops,
};
use gradewise_core::DType;
use gradewise_kernels::Device;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// The operations that are not in one folder with others of their kind.
static OTHERS: &[Entry] = &[Entry::of::<operation::Cast>()];

/// Runs an operation from its attributes and inputs.
type Rerun = Arc<dyn Fn(&Attributes, &[&Tensor]) -> Result<Tensor> + Send + Sync>;

/// An operation that was added at run time.
#[derive(Clone)]
enum Added {
    Entry(Entry),
    /// One whose name and kernels are known at run time only.
    Custom(Rerun),
}

static ADDED: RwLock<BTreeMap<&'static str, Added>> = RwLock::new(BTreeMap::new());

fn added<R>(read: impl FnOnce(&BTreeMap<&'static str, Added>) -> R) -> R {
    read(&ADDED.read().unwrap_or_else(PoisonError::into_inner))
}

fn built_in() -> impl Iterator<Item = &'static Entry> {
    ops::OPERATIONS.iter().chain(clifford::OPERATIONS).chain(fields::OPERATIONS).chain(OTHERS)
}

/// The operations that have samples, in the order of their names.
pub fn entries() -> Vec<Entry> {
    let mut entries: BTreeMap<&str, Entry> = built_in().map(|entry| (entry.name(), *entry)).collect();
    added(|added| {
        for (name, added) in added {
            if let Added::Entry(entry) = added {
                entries.insert(name, *entry);
            }
        }
    });
    entries.into_values().collect()
}

/// The names of all operations, in order: also of those that have no samples, such as kernels compiled at run time.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = built_in().map(Entry::name).collect();
    added(|added| names.extend(added.keys()));
    names.sort_unstable();
    names.dedup();
    names
}

/// The operation called `name`; `None` if there is none, or if it has no entry because it exists at run time only.
pub fn find(name: &str) -> Option<Entry> {
    let of_added = added(|added| match added.get(name) {
        Some(Added::Entry(entry)) => Some(*entry),
        _ => None,
    });
    of_added.or_else(|| built_in().find(|entry| entry.name() == name).copied())
}

/// The error of `operation` for an unknown operation's name; lists the valid ones.
pub(crate) fn unknown(operation: &'static str, name: &str) -> Error {
    let message = format!("there is no operation `{name}`; there are {}", names().join(", "));
    Error::Argument { operation, message }
}

/// Adds an operation to the registry; a later one of the same name takes its place, unless it is an operation of this crate.
///
/// # Errors
/// [`Error::Argument`] for the name of an operation of this crate.
pub fn register(entry: Entry) -> Result<()> {
    add(entry.name(), Added::Entry(entry))
}

/// Adds an operation that exists at run time only.
pub(crate) fn register_custom(
    name: &'static str,
    rerun: impl Fn(&Attributes, &[&Tensor]) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<()> {
    add(name, Added::Custom(Arc::new(rerun)))
}

fn add(name: &'static str, operation: Added) -> Result<()> {
    if built_in().any(|entry| entry.name() == name) {
        let message = format!("`{name}` is an operation of gradewise; choose another name");
        return Err(Error::Argument { operation: "register", message });
    }
    ADDED.write().unwrap_or_else(PoisonError::into_inner).insert(name, operation);
    Ok(())
}

/// Runs the operation called `name` on `inputs`, with recorded attributes.
///
/// # Errors
/// [`Error::Argument`] for an unknown operation, listing the valid ones, or for attributes or a number of inputs that are not the
/// operation's; from the operation.
pub fn rerun(name: &str, attributes: &Attributes, inputs: &[Tensor]) -> Result<Tensor> {
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    if let Some(entry) = built_in().find(|entry| entry.name() == name) {
        return entry.rerun(attributes, &inputs);
    }
    match added(|added| added.get(name).cloned()) {
        Some(Added::Entry(entry)) => entry.rerun(attributes, &inputs),
        Some(Added::Custom(rerun)) => rerun(attributes, &inputs),
        None => Err(unknown("rerun", name)),
    }
}

/// Which derivatives [`Entry::check`] compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The backward pass with central differences of the forward pass.
    First,
    /// The recorded graph of the gradient with central differences of the gradient, and with the backward pass: of an operation
    /// with kernels of its own, these compare its backward kernel with its re-expression.
    Second,
}

impl Entry {
    /// Compares derivatives of the operation's samples with central differences, in double precision; returns how many elements
    /// agree. Inputs at which an operation is nearly singular, as norms are near the null cones of an indefinite metric, are drawn again,
    /// a few times.
    ///
    /// # Errors
    /// [`Error::Sample`] around what is wrong, naming the sample.
    pub fn check(
        &self,
        device: &Device,
        sizes: &Sizes,
        order: Order,
        options: &GradcheckOptions,
    ) -> Result<usize> {
        self.check_samples(sizes, |sample| {
            let mut attempt = 0;
            loop {
                attempt += 1;
                match self.check_drawn(sample, device, order, options, attempt) {
                    Err(Error::IllConditioned { .. }) if attempt < DRAWS => {}
                    result => return result,
                }
            }
        })
    }

    /// As [`check`](Self::check), of the inputs of one draw, wherever they are.
    ///
    /// # Errors
    /// As [`check`](Self::check); [`Error::IllConditioned`] for inputs near a singularity.
    pub fn check_once(
        &self,
        device: &Device,
        sizes: &Sizes,
        order: Order,
        options: &GradcheckOptions,
    ) -> Result<usize> {
        self.check_samples(sizes, |sample| self.check_drawn(sample, device, order, options, 1))
    }

    /// The sum of what `check` counts for each sample; an error names the sample.
    fn check_samples(&self, sizes: &Sizes, check: impl Fn(&AnySample) -> Result<usize>) -> Result<usize> {
        let named = |sample: &AnySample| {
            check(sample)
                .map_err(|error| Error::Sample { sample: sample.to_string(), error: Box::new(error) })
        };
        self.samples(sizes)?.iter().map(named).sum()
    }

    fn check_drawn(
        &self,
        sample: &AnySample,
        device: &Device,
        order: Order,
        options: &GradcheckOptions,
        attempt: u64,
    ) -> Result<usize> {
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
        rng.set_stream(attempt - 1);
        let inputs = sample.place(&sample.draw(DType::F64, &mut rng)?, DType::F64, device)?;
        // Central differences of a conversion to fewer digits measure its rounding, not its derivative.
        if sample.run(&inputs)?.dtype() != DType::F64 {
            return Ok(0);
        }
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let report = match order {
            Order::First => gradcheck(&inputs, options, |inputs| sample.run(inputs)),
            Order::Second => gradgradcheck(&inputs, options, |inputs| sample.run(inputs)),
        };
        Ok(report?.checked)
    }
}

/// Draws of the inputs of a sample until the operation is not nearly singular at them.
const DRAWS: u64 = 16;
