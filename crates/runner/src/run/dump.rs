//! Intermediate results by the name of their layer, written to .npy files.

use crate::{
    error::{Error, Result},
    output,
};
use gradewise_autograd::{
    TensorId,
    observe::{Event, Observer, Pass, observe},
};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{Module, data::npy};
use gradewise_verify::precision::layer_of;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    path::Path,
};

/// The folder of the files, below that of the run or the current one.
const FOLDER: &str = "dump";

/// The key of a result: the parameters that the operation read, and the operation.
type Key = (Vec<String>, &'static str);

/// Records the first result of each operation of the requested layers.
struct Dump {
    names: Vec<String>,
    parameters: HashMap<TensorId, String>,
    results: BTreeMap<Key, Array>,
    /// All layers that computed something.
    layers: BTreeSet<String>,
}

/// Whether `layer` is `name`, or a part of it.
fn belongs(layer: &str, name: &str) -> bool {
    layer.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Observer for Dump {
    fn observe(&mut self, event: &Event<'_>) -> gradewise_autograd::Result<()> {
        if event.pass != Pass::Forward || event.within.is_some() {
            return Ok(());
        }
        let leaves = event.leaves().into_iter().flatten();
        let read: Vec<String> = leaves.filter_map(|leaf| self.parameters.get(&leaf).cloned()).collect();
        let (Some(layer), Some(output)) = (layer_of(&read), event.outputs.first()) else { return Ok(()) };
        self.layers.insert(layer.to_owned());
        if self.names.iter().any(|name| belongs(layer, name))
            && let Entry::Vacant(free) = self.results.entry((read.clone(), event.operation))
        {
            free.insert(output.to_device(&Device::Cpu)?);
        }
        Ok(())
    }
}

/// Runs `work` and writes results of the layers of `model` listed in `names`, separated by commas, into `folder`/dump: the first result of
/// each operation that reads parameters of such a layer, as LAYER.npy, or LAYER.OPERATION.npy if a layer has several. Without `names`, only
/// runs `work`.
///
/// # Errors
/// Those of `work`; an unknown layer, with the list of layers; from writing.
pub fn dumped<M: Module, R, E>(
    names: Option<&str>,
    folder: &Path,
    model: &M,
    work: impl FnOnce() -> Result<R, E>,
) -> Result<R>
where
    Error: From<E>,
{
    let Some(names) = names else { return Ok(work()?) };
    let names: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
    let parameters = model.named_parameters();
    let parameters = parameters.iter().map(|(name, parameter)| (parameter.tensor().id(), name.clone()));
    let dump =
        Dump { names, parameters: parameters.collect(), results: BTreeMap::new(), layers: BTreeSet::new() };
    let (result, dump) = observe(dump, work);
    // After an error, too: the results before it help to find the cause.
    let written = dump.write(&folder.join(FOLDER));
    let value = result?;
    written.map(|()| value)
}

impl Dump {
    fn write(&self, folder: &Path) -> Result<()> {
        for name in &self.names {
            let mut layers = self.results.keys().filter_map(|(read, _)| layer_of(read));
            if !layers.any(|layer| belongs(layer, name)) {
                let layers: Vec<&str> = self.layers.iter().map(String::as_str).collect();
                return Err(Error::Usage(format!(
                    "--dump {name}: no layer of this name computed anything; there are {}",
                    layers.join(", ")
                )));
            }
        }
        let failed =
            |error: std::io::Error| Error::Output { path: folder.to_owned(), reason: error.to_string() };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut taken = BTreeSet::new();
        for ((read, operation), array) in &self.results {
            let layer = layer_of(read).unwrap_or_default();
            let alone = self.results.keys().filter(|(read, _)| layer_of(read) == Some(layer)).count() == 1;
            let base = if alone { layer.to_owned() } else { format!("{layer}.{operation}") };
            let name = (1..)
                .map(|number| if number == 1 { base.clone() } else { format!("{base}.{number}") })
                .find(|name| !taken.contains(name))
                .unwrap_or_default();
            let path = folder.join(format!("{name}.npy"));
            npy::write(&path, array.dims(), &array.to_f64_vec()?)?;
            output::note(&format!(
                "dump: {} has the result of `{operation}`, {} {}",
                path.display(),
                array.dtype(),
                array.shape()
            ));
            taken.insert(name);
        }
        Ok(())
    }
}
