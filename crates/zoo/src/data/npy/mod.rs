//! NumPy `.npy` files, versions 1 to 3, read as untrusted input and written as version 1.
//!
//! The header is a Python dictionary literal; only the form NumPy writes is accepted, by a parser without
//! recursion, and the element count is compared with the bytes present before anything is allocated for it.

mod header;

use super::element::{Element, Kind};
use gradewise_nn::{
    Error, Result,
    checkpoint::{read_file, replace_file},
};
use header::{Header, parse_header};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
const FORMAT: &str = ".npy";

/// An array read from a `.npy` file: row-major `f64` values whatever the file's element type and order.
///
/// Integers beyond 2⁵³ are rounded.
#[derive(Clone, PartialEq, Debug)]
pub struct NpyArray {
    /// Sizes along the axes.
    pub shape: Vec<usize>,
    /// NumPy's name of the stored element type, such as `<f8`.
    pub descr: String,
    /// The elements in row-major order.
    pub values: Vec<f64>,
}

impl NpyArray {
    /// Reads a `.npy` file.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read, [`Error::Format`] if it is truncated, foreign, or of an element type that is
    /// not real.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = read_file("read .npy file", path)?;
        Self::from_bytes(&bytes, path)
    }

    /// Parses the contents of a `.npy` file; `path` is only for messages.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn from_bytes(bytes: &[u8], path: impl AsRef<Path>) -> Result<Self> {
        parse(bytes).map_err(|reason| Error::Format {
            path: path.as_ref().to_owned(),
            format: FORMAT,
            reason,
        })
    }

    /// Checks that the shape has as many axes as `expected` and agrees with every size that is not `None`.
    ///
    /// # Errors
    /// [`Error::Format`] that names `layout`, the expected shape in words.
    pub fn expect_shape(&self, path: &Path, expected: &[Option<usize>], layout: &str) -> Result<()> {
        let agrees = self.shape.len() == expected.len()
            && self.shape.iter().zip(expected).all(|(&actual, want)| want.is_none_or(|want| want == actual));
        if agrees {
            return Ok(());
        }
        let sizes: Vec<String> = expected
            .iter()
            .map(|size| size.map_or_else(|| "_".to_owned(), |size| size.to_string()))
            .collect();
        Err(Error::Format {
            path: path.to_owned(),
            format: FORMAT,
            reason: format!("its shape is {:?}, expected [{}] ({layout})", self.shape, sizes.join(", ")),
        })
    }
}

/// Encodes row-major `values` as a little-endian `<f8` file in C order.
///
/// # Errors
/// [`Error::Argument`] if the number of values does not fit the shape.
pub fn encode(shape: &[usize], values: &[f64]) -> Result<Vec<u8>> {
    encode_as(shape, values, "<f8", |value, out| out.extend_from_slice(&value.to_le_bytes()))
}

/// Like [`encode`], with the values rounded to `<f4`.
///
/// # Errors
/// As [`encode`].
pub fn encode_f32(shape: &[usize], values: &[f64]) -> Result<Vec<u8>> {
    encode_as(shape, values, "<f4", |value, out| out.extend_from_slice(&(value as f32).to_le_bytes()))
}

fn encode_as(
    shape: &[usize],
    values: &[f64],
    descr: &str,
    push: impl Fn(f64, &mut Vec<u8>),
) -> Result<Vec<u8>> {
    if checked_elements(shape) != Some(values.len()) {
        return Err(Error::Argument {
            operation: "write .npy file",
            argument: "values",
            actual: format!("{} values", values.len()),
            expected: format!("as many as the shape {shape:?} has elements"),
        });
    }
    let mut sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    if sizes.len() == 1 {
        sizes.push(String::new()); // Python's one-element tuple: (3,)
    }
    let dictionary = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}",
        sizes.join(", ").trim_end()
    );
    // NumPy aligns the data to 64 bytes: magic, version, length field and newline included.
    let unpadded = MAGIC.len() + 4 + dictionary.len() + 1;
    let padding = unpadded.next_multiple_of(64) - unpadded;
    let header_len = u16::try_from(dictionary.len() + padding + 1).map_err(|_| Error::Argument {
        operation: "write .npy file",
        argument: "shape",
        actual: format!("{} axes", shape.len()),
        expected: "a header of at most 65535 bytes".to_owned(),
    })?;
    let mut out = Vec::with_capacity(unpadded + padding + values.len() * 8);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[1, 0]);
    out.extend_from_slice(&header_len.to_le_bytes());
    out.extend_from_slice(dictionary.as_bytes());
    out.resize(out.len() + padding, b' ');
    out.push(b'\n');
    for &value in values {
        push(value, &mut out);
    }
    Ok(out)
}

/// Writes row-major `values` as a `<f8` file, in one step (see [`replace_file`]).
///
/// # Errors
/// [`Error::Argument`] as [`encode`]; [`Error::Write`].
pub fn write(path: impl AsRef<Path>, shape: &[usize], values: &[f64]) -> Result<()> {
    let bytes = encode(shape, values)?;
    replace_file(path, |file| file.write_all(&bytes))
}

fn checked_elements(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the array empty, however large the other sizes are.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size))
}

fn parse(bytes: &[u8]) -> Result<NpyArray, String> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("it does not begin with the .npy signature; write it with numpy.save (a .npz archive must be unpacked)")?;
    let (&[major, _minor], rest) = rest.split_first_chunk::<2>().ok_or("it ends inside the header")?;
    let (length, rest) = match major {
        1 => {
            let (&length, rest) = rest.split_first_chunk::<2>().ok_or("it ends inside the header")?;
            (usize::from(u16::from_le_bytes(length)), rest)
        }
        2 | 3 => {
            let (&length, rest) = rest.split_first_chunk::<4>().ok_or("it ends inside the header")?;
            (u32::from_le_bytes(length) as usize, rest)
        }
        _ => return Err(format!("format version {major} is unknown; versions 1 to 3 are read")),
    };
    let (header, data) = rest.split_at_checked(length).ok_or("it ends inside the header")?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text")?;
    let Header { descr, fortran_order, shape } = parse_header(header)?;
    let element = element(&descr)?;
    let elements =
        checked_elements(&shape).ok_or_else(|| format!("its shape {shape:?} is impossibly large"))?;
    let expected = elements
        .checked_mul(element.size)
        .ok_or_else(|| format!("its shape {shape:?} is impossibly large"))?;
    if data.len() != expected {
        let word = if data.len() < expected { "truncated" } else { "followed by foreign data" };
        return Err(format!(
            "it is {word}: shape {shape:?} of {descr} needs {expected} bytes, {} are there",
            data.len()
        ));
    }
    let mut values: Vec<f64> = data.chunks_exact(element.size).map(|bytes| element.decode(bytes)).collect();
    if fortran_order {
        values = row_major(&shape, &values);
    }
    Ok(NpyArray { shape, descr, values })
}

/// Reorders column-major `values` to row-major.
fn row_major(shape: &[usize], values: &[f64]) -> Vec<f64> {
    let mut strides = vec![1usize; shape.len()];
    for axis in 1..shape.len() {
        strides[axis] = strides[axis - 1].saturating_mul(shape[axis - 1]);
    }
    let mut index = vec![0usize; shape.len()];
    let mut out = Vec::with_capacity(values.len());
    for _ in 0..values.len() {
        out.push(values[index.iter().zip(&strides).map(|(i, stride)| i * stride).sum::<usize>()]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}

/// The element type that NumPy calls `descr`.
fn element(descr: &str) -> Result<Element, String> {
    let unsupported = || {
        format!(
            "its element type is {descr}; real numbers are needed: save it with array.astype('<f8') or '<f4'"
        )
    };
    let (&[order, kind], size) = descr.as_bytes().split_first_chunk::<2>().ok_or_else(unsupported)?;
    let (kind, size) = match (kind, size) {
        (b'f', b"8") => (Kind::Float, 8),
        (b'f', b"4") => (Kind::Float, 4),
        (b'f', b"2") => (Kind::Float, 2),
        (b'i', b"8") => (Kind::Signed, 8),
        (b'i', b"4") => (Kind::Signed, 4),
        (b'i', b"2") => (Kind::Signed, 2),
        (b'i', b"1") => (Kind::Signed, 1),
        (b'u', b"8") => (Kind::Unsigned, 8),
        (b'u', b"4") => (Kind::Unsigned, 4),
        (b'u', b"2") => (Kind::Unsigned, 2),
        (b'u' | b'b', b"1") => (Kind::Unsigned, 1),
        _ => return Err(unsupported()),
    };
    if !matches!(order, b'<' | b'>' | b'|' | b'=') {
        return Err(unsupported());
    }
    Ok(Element { kind, size, big_endian: order == b'>' })
}

#[cfg(test)]
mod tests;
