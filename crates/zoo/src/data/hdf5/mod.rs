//! HDF5 files, read a block of rows at a time by the `hdf5-reader` crate. This module adds the blosc filter.

mod blosc;
mod blosclz;
mod length;
mod names;
mod refusal;
mod table;

pub(super) use table::{Column, Table};

use crate::data::element::{Element, Kind};
use gradewise_nn::{Error, Result};
use hdf5_reader::{
    ByteOrder, Dataset, Datatype, FilterRegistry, H5Type, Hdf5File, OpenOptions, SliceInfo, SliceInfoElem,
    error::Error as ReaderError,
};
use refusal::refused;
use std::{
    ops::Range,
    path::{Path, PathBuf},
};

/// Decoded bytes read at a time, unless a chunk is larger.
const BLOCK: usize = 16 << 20;
/// Files whose chunks need larger reads are refused.
const LARGEST_BLOCK: usize = 2 << 30;

/// An open HDF5 file.
pub(super) struct Source {
    path: PathBuf,
    file: Hdf5File,
}

impl Source {
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Format`] if it is no HDF5 file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut filters = FilterRegistry::new();
        filters.register(
            blosc::FILTER,
            Box::new(|filter, chunk, _| blosc::decompress(chunk, &filter.client_data)),
        );
        let options = OpenOptions::default()
            .with_filter_registry(filters)
            // A block holds whole chunks, so no chunk is read twice.
            .with_chunk_cache_bytes(0)
            .with_max_read_bytes(LARGEST_BLOCK);
        gradewise_nn::checkpoint::require_regular("read HDF5 file", path)?;
        let file = Hdf5File::open_with_options(path, options).map_err(|error| refused(path, error))?;
        length::require_whole(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The dataset at the path `name`; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Format`] for a damaged file.
    pub(super) fn rows(&self, name: &str) -> Result<Option<Rows>> {
        match self.file.dataset(name) {
            Ok(dataset) => Ok(Some(Rows { path: self.path.clone(), name: name.to_owned(), dataset })),
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(refused(&self.path, error)),
        }
    }

    /// Names of the groups and datasets of the group `name`, `/` for the root; none if there is no such group.
    ///
    /// # Errors
    /// [`Error::Format`] for a damaged file.
    pub(super) fn names(&self, name: &str) -> Result<Vec<String>> {
        match self.file.group(name).and_then(|group| group.member_names()) {
            Ok((mut groups, datasets)) => {
                groups.extend(datasets);
                Ok(groups)
            }
            Err(error) if is_absence(&error) => Ok(Vec::new()),
            Err(error) => Err(refused(&self.path, error)),
        }
    }

    /// An error about this file.
    pub(super) fn unusable(&self, reason: String) -> Error {
        refusal::format(&self.path, reason)
    }
}

fn is_absence(error: &ReaderError) -> bool {
    match error {
        ReaderError::Context { source, .. } => is_absence(source),
        ReaderError::GroupNotFound(_) | ReaderError::DatasetNotFound(_) => true,
        _ => false,
    }
}

/// A dataset as rows along its first axis.
pub(super) struct Rows {
    path: PathBuf,
    name: String,
    dataset: Dataset,
}

impl Rows {
    /// Sizes along the axes.
    pub(super) fn shape(&self) -> &[u64] {
        self.dataset.shape()
    }

    /// Ranges of rows that cover the first `limit` of them, each of whole chunks.
    ///
    /// # Errors
    /// [`Error::Format`] if there are no rows, or impossibly large ones.
    pub(super) fn blocks(&self, limit: usize) -> Result<impl Iterator<Item = Range<usize>> + use<>> {
        self.blocks_of(BLOCK, limit)
    }

    /// As [`Rows::blocks`], with blocks of about `bytes` bytes if the chunks allow it.
    fn blocks_of(&self, bytes: usize, limit: usize) -> Result<impl Iterator<Item = Range<usize>> + use<>> {
        let row = self.dataset.raw_element_size().map_err(|error| refused(&self.path, error))?;
        let row = self.shape().iter().skip(1).try_fold(row, |bytes, &size| {
            usize::try_from(size).ok().and_then(|size| bytes.checked_mul(size.max(1)))
        });
        let (Some(row), Some(&rows)) = (row, self.shape().first()) else {
            return Err(self.unusable(format!("its shape is {:?}", self.shape())));
        };
        let chunk =
            self.dataset.chunks().and_then(|sizes| sizes.first().copied()).unwrap_or(1).max(1) as usize;
        let step = (bytes / row.max(1)).max(1).next_multiple_of(chunk);
        let rows = usize::try_from(rows).unwrap_or(usize::MAX).min(limit);
        Ok((0..rows).step_by(step).map(move |start| start..start.saturating_add(step).min(rows)))
    }

    /// The numbers of these rows, row-major.
    ///
    /// # Errors
    /// [`Error::Format`] if the elements are not numbers, or the file is damaged.
    pub(super) fn numbers(&self, rows: Range<usize>) -> Result<Vec<f64>> {
        if element(self.dataset.dtype()).is_none() {
            return Err(self.unusable("its elements are no numbers of 1 to 8 bytes".to_owned()));
        }
        Ok(self.slice::<Number>(rows)?.into_iter().map(|Number(value)| value).collect())
    }

    fn slice<T: H5Type + Sync>(&self, rows: Range<usize>) -> Result<Vec<T>> {
        let mut selection = SliceInfo::all(self.shape().len());
        if let Some(first) = selection.selections.first_mut() {
            *first = SliceInfoElem::Slice { start: rows.start as u64, end: rows.end as u64, step: 1 };
        }
        let array = self.dataset.read_slice_parallel::<T>(&selection);
        Ok(array.map_err(|error| refused(&self.path, error))?.into_raw_vec_and_offset().0)
    }

    /// An error about this dataset.
    pub(super) fn unusable(&self, reason: String) -> Error {
        refusal::format(&self.path, format!("dataset `{}`: {reason}", self.name))
    }
}

/// The type of numbers of 1, 2, 4 or 8 bytes; `None` for anything else.
fn element(datatype: &Datatype) -> Option<Element> {
    let (kind, size, order) = match datatype {
        Datatype::FixedPoint { size, signed: true, byte_order } => (Kind::Signed, *size, byte_order),
        Datatype::FixedPoint { size, signed: false, byte_order }
        | Datatype::Bitfield { size, byte_order } => (Kind::Unsigned, *size, byte_order),
        Datatype::FloatingPoint { size: size @ (4 | 8), byte_order } => (Kind::Float, *size, byte_order),
        // h5py stores booleans as an enum.
        Datatype::Enum { base, .. } => return element(base),
        _ => return None,
    };
    let element = Element { kind, size: size.into(), big_endian: matches!(order, ByteOrder::BigEndian) };
    matches!(element.size, 1 | 2 | 4 | 8).then_some(element)
}

/// Any number, as f64.
#[derive(Clone, Copy)]
struct Number(f64);

impl H5Type for Number {
    fn hdf5_type() -> Datatype {
        f64::hdf5_type()
    }

    fn from_bytes(bytes: &[u8], datatype: &Datatype) -> hdf5_reader::error::Result<Self> {
        match element(datatype).and_then(|element| Some((element, bytes.get(..element.size)?))) {
            Some((element, bytes)) => Ok(Self(element.decode(bytes))),
            None => Err(ReaderError::InvalidData("an element is no number".to_owned())),
        }
    }

    fn element_size(datatype: &Datatype) -> usize {
        element(datatype).map_or(0, |element| element.size)
    }

    fn decode_vec(
        raw: &[u8],
        datatype: &Datatype,
        count: usize,
    ) -> Option<hdf5_reader::error::Result<Vec<Self>>> {
        let element = element(datatype)?;
        let values = raw.chunks_exact(element.size).take(count);
        (values.len() == count).then(|| Ok(values.map(|bytes| Self(element.decode(bytes))).collect()))
    }
}

#[cfg(test)]
mod tests;
