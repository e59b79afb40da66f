//! Recognises the kind of an image and checks its size, before the driver reads as many bytes as the header states.

use crate::{Error, Result};
use std::borrow::Cow;

/// Compiled kernels in a form that the driver loads.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Image<'a> {
    /// A fat binary: machine code for several architectures, and PTX.
    FatBinary(&'a [u8]),
    /// Machine code for one architecture (a `cubin`).
    Machine(&'a [u8]),
    /// PTX, with a zero byte at the end.
    Ptx(Cow<'a, [u8]>),
}

impl<'a> Image<'a> {
    /// Recognises `bytes`; `module` is the name for messages. PTX without a terminating zero byte is copied to get one.
    ///
    /// # Errors
    /// [`Error::Image`] if the bytes are not an image that the driver loads, or are truncated.
    pub fn recognise(module: &str, bytes: &'a [u8]) -> Result<Self> {
        let refuse =
            |problem: String, hint: &'static str| Error::Image { module: module.to_owned(), problem, hint };
        let cut = |expected: u64| {
            let problem = format!("an image of {expected} bytes, of which {} are there", bytes.len());
            refuse(problem, "it was cut off; build it or copy it again")
        };
        let whole = |image, expected: u64| {
            if expected <= bytes.len() as u64 { Ok(image) } else { Err(cut(expected)) }
        };
        if bytes.starts_with(&FAT_MAGIC) {
            // The header: magic (32 bits), version and own size (16 bits each), size of the rest (64 bits).
            let sizes = number(bytes, 6, 2).zip(number(bytes, 8, 8));
            let expected = sizes.map_or(16, |(header, rest)| header.saturating_add(rest));
            return whole(Self::FatBinary(bytes), expected);
        }
        if bytes.starts_with(b"\x7fELF") {
            // Two tables come last, of sections and of segments: offset (64 bits), size and number of entries (16 bits).
            let table = |offset, entries| {
                let (size, count) = number(bytes, entries, 2).zip(number(bytes, entries + 2, 2))?;
                number(bytes, offset, 8).map(|offset| offset.saturating_add(size * count))
            };
            let expected =
                table(40, 58).zip(table(32, 54)).map_or(64, |(sections, segments)| sections.max(segments));
            return whole(Self::Machine(bytes), expected);
        }
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let Some(text) = std::str::from_utf8(text).ok().filter(|text| !text.trim().is_empty()) else {
            let begin = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
            let problem = format!("not an image ({} bytes that begin with {begin})", bytes.len());
            return Err(refuse(problem, "a fat binary, machine code or PTX is needed"));
        };
        if text.contains(".version") && text.contains(".target") {
            let text = if text.len() < bytes.len() {
                Cow::Borrowed(&bytes[..=text.len()])
            } else {
                Cow::Owned([bytes, &[0]].concat())
            };
            return Ok(Self::Ptx(text));
        }
        if text.contains("__global__") {
            let hint = "compile it first, with nvcc -fatbin or with Nvrtc::compile";
            return Err(refuse("CUDA C++ source, which the driver does not compile".to_owned(), hint));
        }
        Err(refuse("text that is not PTX".to_owned(), "PTX has the directives .version and .target"))
    }

    /// The bytes that the driver is given.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::FatBinary(bytes) | Self::Machine(bytes) => bytes,
            Self::Ptx(text) => text,
        }
    }
}

const FAT_MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

/// The unsigned number of `size` bytes at `offset`, lowest byte first.
fn number(bytes: &[u8], offset: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset + size)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(bytes: &[u8]) -> String {
        Image::recognise("m", bytes).unwrap_err().to_string()
    }

    fn fat(rest: u64) -> Vec<u8> {
        [&FAT_MAGIC[..], &1u16.to_le_bytes(), &16u16.to_le_bytes(), &rest.to_le_bytes(), &[0; 5]].concat()
    }

    #[test]
    fn a_fat_binary_must_be_there_to_its_end() {
        assert!(matches!(Image::recognise("m", &fat(5)), Ok(Image::FatBinary(_))));
        assert!(problem(&fat(6)).contains("22 bytes, of which 21"), "{}", problem(&fat(6)));
        assert!(problem(&fat(u64::MAX)).contains("cut off"));
        for length in 4..16 {
            assert!(problem(&fat(5)[..length]).contains("cut off"), "{length}");
        }
    }

    #[test]
    fn machine_code_must_be_there_to_its_end() {
        let mut elf = vec![0; 64];
        elf[..4].copy_from_slice(b"\x7fELF");
        elf[40] = 60; // table of sections
        elf[58] = 2;
        elf[60] = 2;
        assert!(matches!(Image::recognise("m", &elf), Ok(Image::Machine(_))));
        elf[60] = 3;
        assert!(problem(&elf).contains("66 bytes, of which 64"), "{}", problem(&elf));
        assert!(problem(b"\x7fELF").contains("64 bytes, of which 4"));
    }

    #[test]
    fn ptx_ends_with_a_zero_byte_and_is_copied_only_for_that() {
        let with = b".version 8.0\n.target sm_75\n\0";
        let Ok(Image::Ptx(Cow::Borrowed(bytes))) = Image::recognise("m", with) else { panic!() };
        assert_eq!(bytes, with);
        let without = &with[..with.len() - 1];
        let Ok(Image::Ptx(Cow::Owned(bytes))) = Image::recognise("m", without) else { panic!() };
        assert_eq!(bytes, with);
    }

    #[test]
    fn anything_else_is_called_by_its_name() {
        assert!(problem(b"extern \"C\" __global__ void f() {}").contains("CUDA C++ source"));
        assert!(problem(b"hello").contains("not PTX"));
        assert!(problem(&[1, 2, 0xff]).contains("begin with 01 02 ff"), "{}", problem(&[1, 2, 0xff]));
        assert!(problem(&[]).contains("0 bytes"));
        assert!(problem(&[0; 100]).contains("100 bytes"));
    }
}
