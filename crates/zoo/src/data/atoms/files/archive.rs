//! Arrays of a `.npz` archive: a ZIP of `.npy` files, stored or deflated, read as untrusted input.

use crate::data::npy::NpyArray;
use flate2::read::DeflateDecoder;
use std::{io::Read, path::Path};

/// The end of the central directory, and its size without a comment.
const END: (&[u8], usize) = (b"PK\x05\x06", 22);
const ENTRY: (&[u8], usize) = (b"PK\x01\x02", 46);
const LOCAL: (&[u8], usize) = (b"PK\x03\x04", 30);
/// Longest comment of an archive.
const COMMENT: usize = 0xffff;

/// The arrays by name, in the order of the archive. Arrays whose elements are no real numbers, such as names, are left out.
///
/// # Errors
/// What is wrong with the archive.
pub fn arrays(bytes: &[u8], path: &Path) -> Result<Vec<(String, NpyArray)>, String> {
    const DAMAGED: &str = "it is truncated or damaged: copy it again";
    let from = bytes.len().saturating_sub(END.1 + COMMENT);
    let end = bytes[from..].windows(END.0.len()).rposition(|window| window == END.0).map(|at| from + at);
    let end = end.and_then(|at| bytes.get(at..at + END.1)).ok_or(DAMAGED)?;
    let (entries, mut at) = (usize::from(u16_at(end, 10)), u32_at(end, 16) as usize);
    if entries == 0xffff || at == 0xffff_ffff {
        return Err("it is an archive of more than 4 GB, which is not read; save fewer frames".to_owned());
    }
    let mut found = Vec::new();
    for _ in 0..entries {
        let head = bytes.get(at..at + ENTRY.1).filter(|head| head.starts_with(ENTRY.0)).ok_or(DAMAGED)?;
        let method = u16_at(head, 10);
        let (packed, size) = (u32_at(head, 20) as usize, u32_at(head, 24) as usize);
        let lengths = [28, 30, 32].map(|place| usize::from(u16_at(head, place)));
        let local = u32_at(head, 42) as usize;
        if [packed, size, local].contains(&0xffff_ffff) {
            return Err("it has an array of more than 4 GB, which is not read; save fewer frames".to_owned());
        }
        let name = bytes.get(at + ENTRY.1..at + ENTRY.1 + lengths[0]).ok_or(DAMAGED)?;
        let name = String::from_utf8_lossy(name).into_owned();
        at += ENTRY.1 + lengths.iter().sum::<usize>();
        let head =
            bytes.get(local..local + LOCAL.1).filter(|head| head.starts_with(LOCAL.0)).ok_or(DAMAGED)?;
        let start = local + LOCAL.1 + usize::from(u16_at(head, 26)) + usize::from(u16_at(head, 28));
        let data = start.checked_add(packed).and_then(|end| bytes.get(start..end)).ok_or(DAMAGED)?;
        let unpacked;
        let data = match method {
            0 => data,
            8 => {
                let mut content = Vec::new();
                let limit = u64::from(u32_at_most(size)) + 1;
                DeflateDecoder::new(data).take(limit).read_to_end(&mut content).map_err(|_| DAMAGED)?;
                if content.len() != size {
                    return Err(DAMAGED.to_owned());
                }
                unpacked = content;
                &unpacked[..]
            }
            other => {
                return Err(format!(
                    "`{name}` is compressed by method {other}; numpy.savez writes what is read"
                ));
            }
        };
        let Some(name) = name.strip_suffix(".npy") else { continue };
        if let Ok(array) = NpyArray::from_bytes(data, path) {
            found.push((name.to_owned(), array));
        }
    }
    Ok(found)
}

fn u32_at_most(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// The number at a place of a header, whose length was checked.
fn u16_at(head: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([head[at], head[at + 1]])
}

fn u32_at(head: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}
