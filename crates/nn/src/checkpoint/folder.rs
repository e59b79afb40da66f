//! Folders in the layout of model hubs: `config.json` beside the weights, whole or in shards.
//!
//! `gradewise.torch` writes and reads the same folders (`save_pretrained`, `from_pretrained`).

use super::{TensorFile, read_file, replace_file};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    path::Path,
};

/// Version of the layout of `config.json`. Readers refuse later ones.
pub const FOLDER_VERSION: u32 = 1;

/// Bytes of a file of weights, unless the caller says otherwise: as hubs have them.
pub const SHARD_BYTES: u64 = 5_000_000_000;

const LIBRARY: &str = "gradewise";
const CONFIG: &str = "config.json";
const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const FORMAT: &str = "model folder";

/// What a folder says of its model: `config.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FolderConfig {
    /// The arguments of the constructor, by name.
    pub arguments: Map<String, Value>,
    /// The path of the PyTorch class, such as `gradewise.torch.lgatr.LGATr`.
    pub class: String,
    format_version: u32,
    library: String,
    /// The version of gradewise that wrote the folder.
    pub library_version: String,
}

impl FolderConfig {
    /// The configuration of a model of this class, with these arguments of its constructor.
    pub fn new(class: impl Into<String>, arguments: Map<String, Value>) -> Self {
        Self {
            arguments,
            class: class.into(),
            format_version: FOLDER_VERSION,
            library: LIBRARY.to_owned(),
            library_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        let value = json(
            &path,
            "it is no folder of a model: save_pretrained and `gradewise export --pretrained` write one",
        )?;
        let refused = |reason: String| Err(refused(&path, reason));
        if value["library"] != LIBRARY {
            return refused(
                "it is of another library: it has no \"library\": \"gradewise\"; import the weights alone, with --from".to_owned(),
            );
        }
        match value["format_version"].as_u64() {
            Some(1..) if value["format_version"].as_u64() <= Some(FOLDER_VERSION.into()) => {}
            Some(version @ 1..) => {
                return refused(format!(
                    "it has format_version {version}, this program reads up to {FOLDER_VERSION}; use a newer gradewise"
                ));
            }
            _ => {
                return refused(format!(
                    "its format_version is {}, expected {FOLDER_VERSION}",
                    value["format_version"]
                ));
            }
        }
        serde_json::from_value(value).or_else(|error| refused(format!("{error}; write the folder again")))
    }
}

/// The folder of a model, in the layout of model hubs: `config.json`, and `model.safetensors` or shards of it with
/// `model.safetensors.index.json`.
///
/// ```
/// use gradewise_core::DType;
/// use gradewise_nn::checkpoint::{FolderConfig, ModelFolder, SHARD_BYTES, StoredTensor, TensorFile};
///
/// let mut tensors = TensorFile::new();
/// tensors.insert("linear.weight", StoredTensor::from_f64(&[2], &[1.0, 2.0], DType::F32)?);
/// let config = FolderConfig::new("gradewise.torch.lgatr.LGATr", serde_json::Map::new());
/// let folder = std::env::temp_dir().join(format!("gradewise-folder-{}", std::process::id()));
/// ModelFolder { config: config.clone(), tensors }.write(&folder, SHARD_BYTES)?;
///
/// let back = ModelFolder::read(&folder)?;
/// assert_eq!((back.config, back.tensors.len()), (config, 1));
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct ModelFolder {
    /// `config.json`
    pub config: FolderConfig,
    /// The weights of all files.
    pub tensors: TensorFile,
}

/// The index of shards.
#[derive(Serialize, Deserialize)]
struct Index {
    metadata: Map<String, Value>,
    /// The file of each tensor.
    weight_map: BTreeMap<String, String>,
}

impl ModelFolder {
    /// Reads a folder.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a folder without `config.json` or weights, of another library or a later version, for an index
    /// that does not fit its shards, and for damaged files.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let config = FolderConfig::read(folder)?;
        let (whole, index) = (folder.join(WHOLE), folder.join(INDEX));
        let mut tensors = match (whole.exists(), index.exists()) {
            (true, true) => {
                return Err(refused(
                    folder,
                    format!("it has both {WHOLE} and {INDEX}; remove the one that is out of date"),
                ));
            }
            (true, false) => TensorFile::read(&whole)?,
            (false, true) => shards(folder, &index)?,
            (false, false) => {
                return Err(refused(
                    folder,
                    format!("it has neither {WHOLE} nor {INDEX}; download or copy it whole"),
                ));
            }
        };
        tensors.metadata.clear();
        Ok(Self { config, tensors })
    }

    /// Writes the folder, which is made if it is not there: files of at most `shard_bytes` of weights each, except for single tensors that
    /// are larger. Weights of an earlier model are replaced; other files stay.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Argument`] for shards of 0 bytes.
    pub fn write(&self, folder: impl AsRef<Path>, shard_bytes: u64) -> Result<()> {
        let folder = folder.as_ref();
        if shard_bytes == 0 {
            return Err(Error::Argument {
                operation: "write model folder",
                argument: "shard_bytes",
                actual: "0".to_owned(),
                expected: "at least 1".to_owned(),
            });
        }
        std::fs::create_dir_all(folder).map_err(|source| Error::Write { path: folder.to_owned(), source })?;
        let shards = self.split(shard_bytes);
        let mut written = BTreeSet::new();
        let mut places = BTreeMap::new();
        let count = shards.len();
        for (number, shard) in shards.iter().enumerate() {
            let name = match count {
                1 => WHOLE.to_owned(),
                _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
            };
            shard.write(folder.join(&name))?;
            places.extend(shard.iter().map(|(tensor, _)| (tensor.to_owned(), name.clone())));
            written.insert(name);
        }
        if count > 1 {
            let total: usize = self.tensors.iter().map(|(_, tensor)| tensor.byte_len()).sum();
            let metadata = Map::from_iter([("total_size".to_owned(), total.into())]);
            write_json(&folder.join(INDEX), &Index { metadata, weight_map: places })?;
            written.insert(INDEX.to_owned());
        }
        write_json(&folder.join(CONFIG), &self.config)?;
        remove_others(folder, &written)
    }

    /// The tensors in the order of their names, in files of so many bytes.
    fn split(&self, shard_bytes: u64) -> Vec<TensorFile> {
        // As PyTorch's own files say; some loaders ask for it.
        let empty = || {
            let mut file = TensorFile::new();
            file.metadata.insert("format".to_owned(), "pt".to_owned());
            file
        };
        let mut shards = vec![empty()];
        let mut room = shard_bytes;
        for (name, tensor) in self.tensors.iter() {
            let size = tensor.byte_len() as u64;
            if size > room && shards.last().is_some_and(|shard| !shard.is_empty()) {
                shards.push(empty());
                room = shard_bytes;
            }
            if let Some(shard) = shards.last_mut() {
                shard.insert(name, tensor.clone());
            }
            room = room.saturating_sub(size);
        }
        shards
    }
}

/// The tensors of the files that an index names.
fn shards(folder: &Path, index: &Path) -> Result<TensorFile> {
    let Index { weight_map, .. } = serde_json::from_value(json(index, "it is not there")?)
        .map_err(|error| refused(index, format!("{error}; write the folder again")))?;
    let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, file) in &weight_map {
        // Files of other folders are not read because an index says so.
        if !is_shard(file) {
            let reason =
                format!("it places `{name}` in {file:?}, expected model-00001-of-00002.safetensors or such");
            return Err(refused(index, reason));
        }
        files.entry(file).or_default().insert(name);
    }
    let mut tensors = TensorFile::at(folder);
    for (file, expected) in files {
        let path = folder.join(file);
        if !path.exists() {
            return Err(refused(
                index,
                format!("{file}, which it names, is not there; download or copy the folder whole"),
            ));
        }
        let shard = TensorFile::read(&path)?;
        let found: BTreeSet<&str> = shard.iter().map(|(name, _)| name).collect();
        if found != expected {
            let differing: Vec<&str> = found.symmetric_difference(&expected).copied().collect();
            let reason = format!(
                "it does not hold the tensors that {INDEX} says, {} of them in one of both: {}; write the folder again",
                differing.len(),
                differing[..differing.len().min(8)].join(", ")
            );
            return Err(refused(&path, reason));
        }
        for (name, tensor) in shard.iter() {
            tensors.insert(name, tensor.clone());
        }
    }
    Ok(tensors)
}

/// Whether a name is that of a shard, `model-00001-of-00002.safetensors`.
fn is_shard(name: &str) -> bool {
    let numbers = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.and_then(|numbers| numbers.split_once("-of-")).is_some_and(|(a, b)| is_number(a) && is_number(b))
}

/// Removes the weights of an earlier model.
fn remove_others(folder: &Path, written: &BTreeSet<String>) -> Result<()> {
    let failed = |source| Error::Write { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !written.contains(*name)) else { continue };
        if name == WHOLE || name == INDEX || is_shard(name) {
            std::fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

/// The JSON of a file; `missing` is what its absence means.
fn json(path: &Path, missing: &str) -> Result<Value> {
    let bytes = read_file("read model folder", path).map_err(|error| match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(path);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            refused(folder, format!("it has no {name}: {missing}"))
        }
        other => other,
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| refused(path, format!("it is no JSON: {error}; write the folder again")))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    // By way of `Value`, whose keys are in order.
    let text = serde_json::to_value(value).and_then(|value| serde_json::to_string_pretty(&value));
    let text = text.map_err(|error| refused(path, format!("it cannot be written as JSON: {error}")))?;
    replace_file(path, |file| writeln!(file, "{text}"))
}

fn refused(path: &Path, reason: String) -> Error {
    Error::Format { path: path.to_owned(), format: FORMAT, reason }
}

#[cfg(test)]
mod tests;
