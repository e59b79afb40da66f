//! Tables of PyTables, as pandas writes them: records in which a member holds one column, or all columns of one type.

use super::{Rows, element, names::list_of_strings, refusal::refused};
use crate::data::element::Element;
use gradewise_nn::{Error, Result};
use hdf5_reader::{Dataset, Datatype, H5Type, error::Error as ReaderError};
use std::{collections::HashMap, ops::Range};

/// The position of a column in a record.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct Column {
    offset: usize,
    element: Element,
}

impl Column {
    /// The number of this column in a record of its table.
    pub(in crate::data) fn of(self, record: &Record) -> f64 {
        // `Table::new` refuses columns outside the record. NaN would be refused later.
        record
            .0
            .get(self.offset..self.offset + self.element.size)
            .map_or(f64::NAN, |bytes| self.element.decode(bytes))
    }
}

/// A row.
#[derive(Clone)]
pub(in crate::data) struct Record(Vec<u8>);

impl H5Type for Record {
    fn hdf5_type() -> Datatype {
        Datatype::Compound { size: 0, fields: Vec::new() }
    }

    fn from_bytes(bytes: &[u8], _: &Datatype) -> hdf5_reader::error::Result<Self> {
        Ok(Self(bytes.to_vec()))
    }

    fn element_size(datatype: &Datatype) -> usize {
        hdf5_reader::dtype_element_size(datatype).unwrap_or(0)
    }
}

/// Records with named columns.
pub(in crate::data) struct Table {
    rows: Rows,
    columns: HashMap<String, Column>,
}

impl Table {
    /// # Errors
    /// [`Error::Format`] if the elements of `rows` are not records, or the names of their columns are unreadable.
    pub(in crate::data) fn new(rows: Rows) -> Result<Self> {
        let Datatype::Compound { size, fields } = rows.dataset.dtype() else {
            return Err(rows.unusable("its rows are no records".to_owned()));
        };
        if rows.shape().len() != 1 {
            return Err(rows.unusable(format!("its shape is {:?}, expected one axis", rows.shape())));
        }
        let mut columns = HashMap::new();
        for field in fields {
            let (base, count) = match &field.datatype {
                Datatype::Array { base, dims } => {
                    (base.as_ref(), dims.iter().try_fold(1u64, |count, &size| count.checked_mul(size)))
                }
                other => (other, Some(1)),
            };
            // Members that are not numbers, such as text, are skipped.
            let Some(element) = element(base) else { continue };
            let names =
                match columns_of(&rows.dataset, &field.name).map_err(|error| refused(&rows.path, error))? {
                    Some(names) => names,
                    None if count == Some(1) => vec![field.name.clone()],
                    None => {
                        let reason = format!(
                            "the names of the columns in `{}` are not there, or not readable",
                            field.name
                        );
                        return Err(rows.unusable(reason));
                    }
                };
            let offset = field.byte_offset as usize;
            let end = names.len().checked_mul(element.size).and_then(|bytes| bytes.checked_add(offset));
            if count != Some(names.len() as u64) || end.is_none_or(|end| end > *size as usize) {
                return Err(rows.unusable(format!(
                    "`{}` does not hold its {} columns",
                    field.name,
                    names.len()
                )));
            }
            columns.extend(
                names
                    .into_iter()
                    .enumerate()
                    .map(|(i, name)| (name, Column { offset: offset + i * element.size, element })),
            );
        }
        Ok(Self { rows, columns })
    }

    /// The column of this name, if there is one and it holds numbers.
    pub(in crate::data) fn column(&self, name: &str) -> Option<Column> {
        self.columns.get(name).copied()
    }

    /// Ranges of records that cover the first `limit` of them.
    ///
    /// # Errors
    /// As [`Rows::blocks`].
    pub(in crate::data) fn blocks(&self, limit: usize) -> Result<impl Iterator<Item = Range<usize>> + use<>> {
        self.rows.blocks(limit)
    }

    /// These records.
    ///
    /// # Errors
    /// [`Error::Format`] for a damaged file.
    pub(in crate::data) fn records(&self, range: Range<usize>) -> Result<Vec<Record>> {
        self.rows.slice(range)
    }

    /// An error about this table.
    pub(in crate::data) fn unusable(&self, reason: String) -> Error {
        self.rows.unusable(reason)
    }
}

/// Names of the columns that pandas put into a member, from an attribute; `None` if there is no such list.
fn columns_of(dataset: &Dataset, member: &str) -> hdf5_reader::error::Result<Option<Vec<String>>> {
    match dataset.attribute(&format!("{member}_kind")) {
        Ok(attribute) => Ok(list_of_strings(&attribute.raw_data)),
        Err(ReaderError::AttributeNotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
