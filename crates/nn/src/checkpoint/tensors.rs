//! safetensors files: named tensors of any real dtype with text metadata.

use super::{format, stored::StoredTensor};
use crate::{Error, Result};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The number of updates that PyTorch's `AveragedModel` keeps beside the parameters.
const AVERAGED: &str = "n_averaged";

impl TensorFile {
    /// The SHA-256 of all tensors: names, dtypes, shapes and bytes, in hexadecimal digits; `None` in a build without files.
    pub fn digest(&self) -> Option<String> {
        format::sha256(self.digested())
    }

    /// The SHA-256 of a text and all tensors.
    pub(super) fn digest_with(&self, text: &str) -> Option<String> {
        let head = Cow::Owned(format!("{}\0{text}", text.len()).into_bytes());
        format::sha256(std::iter::once(head).chain(self.digested()))
    }

    fn digested(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let head = |(name, tensor): (&String, &StoredTensor)| {
            let StoredTensor { shape, bytes, .. } = tensor;
            format!("{name}\0{}\0{shape:?}\0{}\0", tensor.dtype_name(), bytes.len()).into_bytes()
        };
        self.tensors
            .iter()
            .flat_map(move |entry| [Cow::Owned(head(entry)), Cow::Borrowed(&entry.1.bytes[..])])
    }
}

/// Named tensors and text metadata, as read from or to be written to a safetensors file. Names are in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TensorFile {
    /// Text metadata.
    pub metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, StoredTensor>,
    path: PathBuf,
}

impl TensorFile {
    /// An empty set of tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty set of tensors that will be read from `path`.
    pub(super) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), ..Self::default() }
    }

    /// Reads a safetensors file, in a build with the feature `files`, which is on by default.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] if the file is truncated or foreign.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = super::read_file("read tensor file", path)?;
        Self::from_bytes(&bytes, path)
    }

    /// Parses the contents of a safetensors file; `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn from_bytes(bytes: &[u8], path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let (metadata, tensors) = format::parse(bytes, &path)?;
        Ok(Self { metadata, tensors, path })
    }

    /// Writes the file in one step (see [`replace_file`](super::replace_file)).
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let bytes = self.to_bytes(path.as_ref())?;
        super::replace_file(path, |file| file.write_all(&bytes))
    }

    pub(super) fn to_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        format::serialize(&self.tensors, &self.metadata, path)
    }

    /// The file this was read from; empty if it was not.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds or replaces a tensor.
    pub fn insert(&mut self, name: impl Into<String>, tensor: StoredTensor) {
        self.tensors.insert(name.into(), tensor);
    }

    /// Adds or replaces a tensor with an array's values.
    ///
    /// # Errors
    /// As [`StoredTensor::from_array`].
    pub fn insert_array(&mut self, name: impl Into<String>, array: &Array) -> Result<()> {
        self.insert(name, StoredTensor::from_array(array)?);
        Ok(())
    }

    /// A tensor by name.
    pub fn get(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    /// All tensors in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &StoredTensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The tensors named `section::…`, without that prefix.
    pub fn section(&self, section: &str) -> impl Iterator<Item = (&str, &StoredTensor)> {
        self.iter()
            .filter_map(move |(name, tensor)| Some((name.strip_prefix(section)?.strip_prefix("::")?, tensor)))
    }

    /// The weights of a model by their own names: their moving average, in the section `ema`, if one was kept.
    pub(super) fn weights(&self) -> impl Iterator<Item = (&str, &StoredTensor)> {
        let averaged = self.section("ema").next().is_some();
        self.iter().filter_map(move |(name, tensor)| match name.strip_prefix("ema::") {
            Some(own) => averaged.then_some((own, tensor)),
            None => (!averaged && !name.contains("::")).then_some((name, tensor)),
        })
    }

    /// The prefix that wrappers of PyTorch's models put before the names of all parameters: `module.` of `DistributedDataParallel`,
    /// `DataParallel` and `AveragedModel`, `_orig_mod.` of `torch.compile`, or several of them; `None` if not all names have one.
    pub fn wrapping(&self) -> Option<String> {
        const WRAPPERS: [&str; 3] = ["module.", "_orig_mod.", "_fsdp_wrapped_module."];
        let names = || self.tensors.keys().filter(|name| *name != AVERAGED);
        let first = names().next()?;
        let mut prefix = String::new();
        while let Some(wrapper) = WRAPPERS.iter().find(|wrapper| first[prefix.len()..].starts_with(**wrapper))
        {
            let longer = format!("{prefix}{wrapper}");
            if !names().all(|name| name.starts_with(&longer)) {
                break;
            }
            prefix = longer;
        }
        (!prefix.is_empty()).then_some(prefix)
    }

    /// The tensors under their names without a prefix that all have.
    pub fn without_prefix(&self, prefix: &str) -> Self {
        let tensors = self.tensors.iter().filter(|(name, _)| *name != AVERAGED);
        let tensors = tensors
            .map(|(name, tensor)| (name.strip_prefix(prefix).unwrap_or(name).to_owned(), tensor.clone()));
        Self { tensors: tensors.collect(), ..self.clone() }
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The tensor `name` as an array of `dtype` on `device`; exact unless `dtype` is narrower than the stored one.
    ///
    /// # Errors
    /// [`Error::Tensor`] if there is none of that name, or it does not hold real numbers.
    pub fn array(&self, name: &str, dtype: DType, device: &Device) -> Result<Array> {
        let tensor = self.get(name).ok_or_else(|| self.refuse(name, self.missing(name)))?;
        let values = tensor.to_f64_vec().ok_or_else(|| {
            self.refuse(name, format!("it has dtype {}, expected real numbers", tensor.dtype_name()))
        })?;
        Ok(Array::from_f64(&values, tensor.shape(), dtype, device)?)
    }

    /// Like [`TensorFile::array`], but `None` if there is no tensor of that name, as [`Module::load`](crate::Module::load) expects.
    ///
    /// # Errors
    /// [`Error::Tensor`] if it does not hold real numbers; no memory.
    pub fn find_array(&self, name: &str, dtype: DType, device: &Device) -> Result<Option<Array>> {
        self.get(name).map(|_| self.array(name, dtype, device)).transpose()
    }

    /// Like [`TensorFile::array`], refusing any other shape.
    ///
    /// # Errors
    /// [`Error::Tensor`] naming both shapes.
    pub fn array_of_shape(
        &self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<Array> {
        if let Some(tensor) = self.get(name).filter(|tensor| tensor.shape() != shape) {
            return Err(self.refuse(name, format!("its shape is {:?}, expected {shape:?}", tensor.shape())));
        }
        self.array(name, dtype, device)
    }

    fn missing(&self, name: &str) -> String {
        if let Some(prefix) = self.wrapping() {
            let wrapped = format!("{prefix}{name}");
            if self.get(&wrapped).is_some() {
                return format!(
                    "it is missing; the file has `{wrapped}`, as PyTorch names the parameters of a wrapped model: save those of the \
                     model inside, or drop the prefix by {{name.removeprefix(\"{prefix}\"): tensor for name, tensor in state.items()}}"
                );
            }
        }
        const SHOWN: usize = 12;
        let mut names: Vec<&str> = self.tensors.keys().map(String::as_str).take(SHOWN).collect();
        if self.len() > SHOWN {
            names.push("…");
        }
        format!("it is missing; the file's {} tensors are {}", self.len(), names.join(", "))
    }

    fn refuse(&self, name: &str, reason: String) -> Error {
        Error::Tensor { path: self.path.clone(), name: name.to_owned(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_survive_bit_for_bit() {
        let device = Device::Cpu;
        let single: Vec<f32> = vec![0.1, -0.0, f32::MIN_POSITIVE / 2.0, 3.4e38, f32::INFINITY, 1.0 / 3.0];
        let double: Vec<f64> = vec![0.1, -0.0, 5e-324, 1.7e308, 1.0 / 3.0, 2.0];
        let mut file = TensorFile::new();
        file.insert_array("single", &Array::from_slice(&single, [2, 3], &device).unwrap()).unwrap();
        file.insert_array("double", &Array::from_slice(&double, [6], &device).unwrap()).unwrap();
        let back = TensorFile::from_bytes(&file.to_bytes(Path::new("x")).unwrap(), "x").unwrap();
        let bits = back.array("single", DType::F32, &device).unwrap().to_vec::<f32>().unwrap();
        assert!(bits.iter().zip(&single).all(|(a, b)| a.to_bits() == b.to_bits()));
        let bits = back.array("double", DType::F64, &device).unwrap().to_vec::<f64>().unwrap();
        assert!(bits.iter().zip(&double).all(|(a, b)| a.to_bits() == b.to_bits()));
    }

    #[test]
    fn half_precision_is_rounded_and_read() {
        for (dtype, error) in [(DType::F16, 5e-4), (DType::BF16, 4e-3)] {
            let stored = StoredTensor::from_f64(&[3], &[1.0 / 3.0, -7.1, 0.02], dtype).unwrap();
            assert_eq!((stored.dtype(), stored.byte_len()), (Some(dtype), 6));
            for (a, b) in stored.to_f64_vec().unwrap().iter().zip([1.0 / 3.0, -7.1, 0.02]) {
                assert!((a / b - 1.0).abs() < error && a != &b, "{dtype} {a} {b}");
            }
        }
    }

    #[test]
    fn missing_names_and_wrong_shapes_are_named() {
        let mut file = TensorFile::new();
        file.insert("weight", StoredTensor::from_f64(&[2, 2], &[1.0; 4], DType::F32).unwrap());
        let error = file.array("wieght", DType::F32, &Device::Cpu).unwrap_err().to_string();
        assert!(error.contains("`wieght`") && error.contains("weight"), "{error}");
        let error = file.array_of_shape("weight", &[4], DType::F32, &Device::Cpu).unwrap_err().to_string();
        assert!(error.contains("[2, 2]") && error.contains("[4]"), "{error}");
        assert!(StoredTensor::from_f64(&[2, 2], &[1.0; 3], DType::F32).is_err());
    }

    #[test]
    fn sections_are_separate() {
        let mut file = TensorFile::new();
        for name in ["a", "adam.m::a", "adam.v::a", "adam.m::b"] {
            file.insert(name, StoredTensor::from_f64(&[1], &[1.0], DType::F32).unwrap());
        }
        assert_eq!(file.section("adam.m").map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
    }
}
