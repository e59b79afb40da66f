//! The container format of blosc 1, filter 32001 of HDF5: blocks whose bytes or bits may be shuffled, split into streams that are
//! compressed.

use super::blosclz;
use flate2::{Decompress, FlushDecompress, Status};
use hdf5_reader::error::{Error, Result};
use ruzstd::decoding::FrameDecoder;

/// The number under which the filter is registered.
pub(super) const FILTER: u16 = 32001;
/// Bytes of the header: format version, codec version, flags, element size; sizes of the content, of a block, and of the compressed chunk.
const HEADER: usize = 16;
/// Blocks of larger elements are not split into streams.
const MOST_STREAMS: usize = 16;
/// Blocks whose streams would be shorter than this are not split, either.
const SHORTEST_STREAM: usize = 128;

/// Flags of a chunk.
const SHUFFLED: u8 = 1;
const STORED: u8 = 1 << 1;
const BITS_SHUFFLED: u8 = 1 << 2;
const IN_ONE_STREAM: u8 = 1 << 4;

#[derive(Clone, Copy)]
enum Codec {
    BloscLz,
    Lz4,
    Zlib,
    Zstd,
}

/// The content of a chunk. `options` are the options of the filter; the fourth is the size of the content.
pub(super) fn decompress(chunk: &[u8], options: &[u32]) -> Result<Vec<u8>> {
    let limit =
        options.get(3).map_or(usize::MAX, |&bytes| bytes as usize).min(hdf5_reader::DEFAULT_MAX_CHUNK_BYTES);
    let (header, _) = chunk.split_first_chunk::<HEADER>().ok_or_else(damaged)?;
    let [version, _, flags, element, ..] = *header;
    let size = |at: usize| u32_at(header, at).ok_or_else(damaged);
    let (content, block, all) = (size(4)?, size(8)?, size(12)?);
    if !(1..=2).contains(&version) {
        return Err(Error::UnsupportedFilter(format!("blosc, version {version} of its format")));
    }
    let chunk = chunk.get(..all).ok_or_else(damaged)?;
    if content > limit || (content > 0 && (block == 0 || block > content)) {
        return Err(damaged());
    }
    let mut output = vec![0; content];
    if flags & STORED != 0 {
        output.copy_from_slice(chunk.get(HEADER..HEADER + content).ok_or_else(damaged)?);
        return Ok(output);
    }
    let layout = Layout { codec: codec(flags >> 5)?, flags, element: usize::from(element).max(1), block };
    let mut sorted = Vec::new();
    for (number, part) in output.chunks_mut(block.max(1)).enumerate() {
        let stream =
            u32_at(chunk, HEADER + 4 * number).and_then(|start| chunk.get(start..)).ok_or_else(damaged)?;
        layout.decompress_block(stream, part, &mut sorted)?;
    }
    Ok(output)
}

fn codec(number: u8) -> Result<Codec> {
    match number {
        0 => Ok(Codec::BloscLz),
        1 => Ok(Codec::Lz4),
        3 => Ok(Codec::Zlib),
        4 => Ok(Codec::Zstd),
        2 => Err(Error::UnsupportedFilter("blosc with Snappy".to_owned())),
        other => Err(Error::UnsupportedFilter(format!("blosc with its codec {other}"))),
    }
}

fn damaged() -> Error {
    Error::DecompressionError("a chunk compressed with blosc is damaged".to_owned())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let (&word, _) = bytes.get(at..)?.split_first_chunk()?;
    usize::try_from(u32::from_le_bytes(word)).ok()
}

struct Layout {
    codec: Codec,
    flags: u8,
    /// Bytes of an element, at least 1.
    element: usize,
    /// Bytes of a block; the last may be shorter.
    block: usize,
}

impl Layout {
    /// Fills `part` from the streams at the start of `input`, with `sorted` as scratch.
    fn decompress_block(&self, mut input: &[u8], part: &mut [u8], sorted: &mut Vec<u8>) -> Result<()> {
        let Self { codec, flags, element, block } = *self;
        let streams = if flags & IN_ONE_STREAM == 0
            && element <= MOST_STREAMS
            && block / element >= SHORTEST_STREAM
            && part.len() == block
        {
            element
        } else {
            1
        };
        if !part.len().is_multiple_of(streams) {
            return Err(damaged());
        }
        let bytes_sorted = flags & SHUFFLED != 0 && element > 1;
        // Bits are shuffled only if the number of elements is a multiple of 8.
        let bits_sorted =
            flags & BITS_SHUFFLED != 0 && part.len() >= element && (part.len() / element).is_multiple_of(8);
        sorted.clear();
        sorted.resize(if bytes_sorted || bits_sorted { part.len() } else { 0 }, 0);
        let target = if sorted.is_empty() { &mut *part } else { &mut sorted[..] };
        let length = target.len() / streams;
        for stream in target.chunks_mut(length.max(1)) {
            let size = u32_at(input, 0).ok_or_else(damaged)?;
            let packed = input.get(4..).and_then(|rest| rest.get(..size)).ok_or_else(damaged)?;
            input = &input[4 + size..];
            if size == stream.len() {
                // Incompressible streams are stored.
                stream.copy_from_slice(packed);
            } else {
                codec.decompress(packed, stream).ok_or_else(damaged)?;
            }
        }
        if bytes_sorted {
            unshuffle(sorted, part, element);
        } else if bits_sorted {
            unshuffle_bits(sorted, part, element);
        }
        Ok(())
    }
}

impl Codec {
    /// Fills `output`; `None` if `input` does not decode to exactly its length.
    fn decompress(self, input: &[u8], output: &mut [u8]) -> Option<()> {
        let written = match self {
            Self::BloscLz => return blosclz::decompress(input, output),
            Self::Lz4 => lz4_flex::block::decompress_into(input, output).ok()?,
            Self::Zlib => {
                let mut decoder = Decompress::new(true);
                match decoder.decompress(input, output, FlushDecompress::Finish).ok()? {
                    Status::StreamEnd => usize::try_from(decoder.total_out()).ok()?,
                    Status::Ok | Status::BufError => return None,
                }
            }
            Self::Zstd => FrameDecoder::new().decode_all(input, output).ok()?,
        };
        (written == output.len()).then_some(())
    }
}

/// Reverses the byte shuffle: `sorted` holds the first byte of all elements, then the second, and so on, and at the end the bytes of an
/// incomplete element.
fn unshuffle(sorted: &[u8], output: &mut [u8], element: usize) {
    let count = output.len() / element;
    let (whole, rest) = output.split_at_mut(count * element);
    for (byte, bytes) in sorted.chunks_exact(count.max(1)).take(element).enumerate() {
        for (slot, &value) in whole.iter_mut().skip(byte).step_by(element).zip(bytes) {
            *slot = value;
        }
    }
    rest.copy_from_slice(&sorted[count * element..]);
}

/// Reverses the bit shuffle of a multiple of 8 elements: the lowest bit of the first byte of all elements comes first.
fn unshuffle_bits(sorted: &[u8], output: &mut [u8], element: usize) {
    let count = output.len() / element;
    let (whole, rest) = output.split_at_mut(count * element);
    whole.fill(0);
    for (plane, bits) in sorted.chunks_exact((count / 8).max(1)).take(8 * element).enumerate() {
        let (byte, bit) = (plane / 8, plane % 8);
        for (position, slot) in whole.iter_mut().skip(byte).step_by(element).enumerate() {
            *slot |= (bits[position / 8] >> (position % 8) & 1) << bit;
        }
    }
    rest.copy_from_slice(&sorted[count * element..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A chunk of one stored block, with the header of blosc.
    fn frame(flags: u8, element: u8, content: &[u8]) -> Vec<u8> {
        let size = content.len() as u32;
        let mut bytes = vec![2, 1, flags | IN_ONE_STREAM, element];
        for word in [size, size, size + 24, 20, size] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(content);
        bytes
    }

    #[test]
    fn bytes_and_bits_come_back_to_their_elements() {
        let shuffled = frame(SHUFFLED, 4, &[1, 5, 2, 6, 3, 7, 4, 8, 9]);
        assert_eq!(decompress(&shuffled, &[]).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let mut planes = [0; 16];
        // Of eight elements of two bytes, the third has bit 0, the eighth has bit 9.
        (planes[0], planes[9]) = (1 << 2, 1 << 7);
        let content = decompress(&frame(BITS_SHUFFLED, 2, &planes), &[]).unwrap();
        assert_eq!(content, [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn unknown_codecs_and_false_sizes_are_refused() {
        let good = frame(0, 1, b"jets");
        let mut stored = good.clone();
        stored[2] |= STORED;
        assert_eq!(decompress(&stored, &[]).unwrap(), [20, 0, 0, 0], "what follows the header");
        assert_eq!(decompress(&good, &[2, 2, 1, 4]).unwrap(), b"jets");
        assert!(decompress(&good, &[2, 2, 1, 3]).is_err(), "more than the filter promises");
        for length in 0..good.len() {
            assert!(decompress(&good[..length], &[]).is_err(), "{length}");
        }
        let error = decompress(&frame(2 << 5, 1, b"jets"), &[]).unwrap_err().to_string();
        assert!(error.contains("Snappy"), "{error}");
        let mut huge = good.clone();
        huge[4..8].fill(255);
        assert!(decompress(&huge, &[]).is_err());
        let mut newer = good;
        newer[0] = 5;
        assert!(decompress(&newer, &[]).unwrap_err().to_string().contains("version 5"));
    }

    proptest! {
        #[test]
        fn arbitrary_frames_do_not_panic(
            flags: u8, element: u8, content: Vec<u8>, block in 0u32..300, size in 0u32..3000, start in 0u32..64,
        ) {
            let mut bytes = vec![2, 1, flags, element];
            for word in [size, block, content.len() as u32 + 20, start] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(content);
            let _ = decompress(&bytes, &[]);
        }
    }
}
