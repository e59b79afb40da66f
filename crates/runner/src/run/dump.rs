//! Intermediate results by the name of their layer, written to .npy files.

use super::Target;
use crate::{
    error::{Error, Result},
    output,
};
use gradewise_autograd::{
    TensorId,
    observe::{Event, Observer, Pass, observe},
};
use gradewise_kernels::{Array, Device};
use gradewise_nn::Module;
use gradewise_verify::precision::layer_of;
use gradewise_zoo::data::npy::{self, NpyArray};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    path::{Path, PathBuf},
};

/// What `--dump` asks for.
#[derive(Clone, Copy, Debug)]
pub struct DumpRequest<'a> {
    /// Names of layers, separated by commas.
    pub layers: &'a str,
    /// The folder in which there is or will be a folder `dump` of the files.
    pub folder: &'a Path,
    /// The files that the command reads.
    pub inputs: &'a [&'a Path],
    /// Whether any file may be replaced, and not just arrays.
    pub overwrite: bool,
}

impl<'a> DumpRequest<'a> {
    /// The request of a command that predicts with so many models, into the folder where it runs.
    ///
    /// # Errors
    /// [`Error::Usage`] for several models.
    pub fn of_one(
        layers: Option<&'a str>,
        models: usize,
        inputs: &'a [&'a Path],
        overwrite: bool,
    ) -> Result<Option<Self>> {
        if layers.is_some() && models > 1 {
            return Err(Error::Usage(
                "--dump shows one model; leave out all but one --checkpoint, and take that of a single model"
                    .to_owned(),
            ));
        }
        Ok(layers.map(|layers| Self { layers, folder: Path::new(""), inputs, overwrite }))
    }

    fn names(&self) -> Vec<String> {
        self.layers.split(',').map(|name| name.trim().to_owned()).collect()
    }

    fn folder(&self) -> PathBuf {
        self.folder.join(FOLDER)
    }

    /// Refuses to write `file` over an input, or over anything but an array.
    fn require_free(&self, file: &Path) -> Result<()> {
        let is_array = |path: &Path| NpyArray::read(path).is_ok();
        Target::new("--dump", file, self.overwrite).require_free(self.inputs, is_array)
    }

    /// Refuses files of the requested layers that are there and may not be replaced. Which files there will be, only the work shows.
    fn check(&self) -> Result<()> {
        let (names, Ok(files)) = (self.names(), std::fs::read_dir(self.folder())) else { return Ok(()) };
        for file in files.flatten() {
            let layer = file.file_name().to_string_lossy().strip_suffix(".npy").map(str::to_owned);
            if layer.is_some_and(|layer| names.iter().any(|name| belongs(&layer, name))) {
                self.require_free(&file.path())?;
            }
        }
        Ok(())
    }
}

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

/// Runs `work` and writes results of the requested layers of `model`: the first result of each operation that reads parameters of such a
/// layer, as LAYER.npy, or LAYER.OPERATION.npy if a layer has several. Without a request, only runs `work`.
///
/// # Errors
/// A file in the way, before the work where its name tells; those of `work`; an unknown layer, with the list of layers; from writing.
pub fn dumped<M: Module, R, E>(
    request: Option<DumpRequest<'_>>,
    model: &M,
    work: impl FnOnce() -> Result<R, E>,
) -> Result<R>
where
    Error: From<E>,
{
    let Some(request) = request else { return Ok(work()?) };
    request.check()?;
    let names = request.names();
    let parameters = model.named_parameters();
    let parameters = parameters.iter().map(|(name, parameter)| (parameter.tensor().id(), name.clone()));
    let dump =
        Dump { names, parameters: parameters.collect(), results: BTreeMap::new(), layers: BTreeSet::new() };
    let (result, dump) = observe(dump, work);
    // After an error, too: the results before it help to find the cause.
    let written = dump.write(&request);
    let value = result?;
    written.map(|()| value)
}

impl Dump {
    fn write(&self, request: &DumpRequest<'_>) -> Result<()> {
        let folder = &request.folder();
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
        let mut files = Vec::with_capacity(self.results.len());
        for (read, operation) in self.results.keys() {
            let layer = layer_of(read).unwrap_or_default();
            let alone = self.results.keys().filter(|(read, _)| layer_of(read) == Some(layer)).count() == 1;
            let base = if alone { layer.to_owned() } else { format!("{layer}.{operation}") };
            let name = (1..)
                .map(|number| if number == 1 { base.clone() } else { format!("{base}.{number}") })
                .find(|name| !taken.contains(name))
                .unwrap_or_default();
            let path = folder.join(format!("{name}.npy"));
            request.require_free(&path)?;
            files.push(path);
            taken.insert(name);
        }
        for (((_, operation), array), path) in self.results.iter().zip(&files) {
            let replaced = if path.exists() { ", in place of an earlier array" } else { "" };
            npy::write(path, array.dims(), &array.to_f64_vec()?)?;
            output::note(&format!(
                "dump: {} has the result of `{operation}`, {} {}{replaced}",
                path.display(),
                array.dtype(),
                array.shape()
            ));
        }
        Ok(())
    }
}
