//! Text as sequences of bytes.

use gradewise_kernels::{Device, Index};
use gradewise_nn::data::{Batch, Samples, Split, at_least_one};
use gradewise_nn::{Error, Placement, Result};
use std::{ops::Range, path::Path, sync::Arc};

/// Size of the vocabulary. A model of bytes reads any text and needs no stored vocabulary.
pub const BYTES: usize = 256;

/// A text of our own about geometric algebra: an introduction, and worked examples with their numbers.
pub const SAMPLE: &str = include_str!("sample.txt");

/// Windows of a part of a text, evenly spaced.
#[derive(Clone, Debug)]
pub struct TextData {
    text: Arc<[u8]>,
    /// The byte range of the split, in which the windows lie.
    part: Range<usize>,
    block: usize,
    windows: usize,
}

/// Rows of tokens and, for each token, the one that follows.
#[derive(Clone, Debug)]
pub struct TextBatch {
    /// Number of rows.
    pub rows: usize,
    /// The tokens, row after row.
    pub tokens: Index,
    /// The token that follows each token.
    pub targets: Index,
}

impl TextData {
    /// At most `windows` windows of `block` tokens and the token after them, from a split of the text: the first nine tenths for training,
    /// a twentieth each for validation and test.
    ///
    /// # Errors
    /// A split too short for a window; `windows` or `block` of 0.
    pub fn new(text: impl Into<Arc<[u8]>>, split: Split, block: usize, windows: usize) -> Result<Self> {
        let text = text.into();
        let (nine_tenths, rest) = (text.len() / 10 * 9, text.len() - text.len() / 10 * 9);
        let middle = nine_tenths + rest / 2;
        let part = match split {
            Split::Train => 0..nine_tenths,
            Split::Valid => nine_tenths..middle,
            Split::Test => middle..text.len(),
        };
        at_least_one("TextData", &[("block", block), ("windows", windows)])?;
        // A window has one token more than its block.
        let places = part.len().saturating_sub(block);
        if places == 0 {
            return Err(Error::Argument {
                operation: "TextData",
                argument: "text",
                actual: format!("{} bytes, {} of them in the {split} split", text.len(), part.len()),
                expected: format!("more than {block} bytes in each split, for a window"),
            });
        }
        Ok(Self { text, part, block, windows: windows.min(places) })
    }

    /// [`new`](Self::new) of the bytes of a file.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read; as [`new`](Self::new).
    pub fn read(path: &Path, split: Split, block: usize, windows: usize) -> Result<Self> {
        let text = gradewise_nn::checkpoint::read_file("read text", path)?;
        Self::new(text, split, block, windows)
    }

    /// The window's tokens and the one after them.
    ///
    /// # Errors
    /// [`Error::Argument`] for an index that is not below the number of windows.
    pub fn window(&self, index: usize) -> Result<&[u8]> {
        if index >= self.windows {
            return Err(Error::Argument {
                operation: "TextData",
                argument: "index",
                actual: index.to_string(),
                expected: format!("less than {}, the number of windows", self.windows),
            });
        }
        let places = self.part.len() - self.block;
        let start = self.part.start + (index as u128 * places as u128 / self.windows as u128) as usize;
        Ok(&self.text[start..=start + self.block])
    }

    /// Tokens of a window.
    pub fn block(&self) -> usize {
        self.block
    }
}

impl TextBatch {
    /// From windows of one length.
    ///
    /// # Errors
    /// If the device has no memory.
    pub fn new<'a>(windows: impl Iterator<Item = &'a [u8]>, device: &Device) -> Result<Self> {
        let (mut tokens, mut targets, mut rows) = (Vec::new(), Vec::new(), 0);
        for window in windows {
            let numbers = || window.iter().map(|&byte| usize::from(byte));
            tokens.extend(numbers().take(window.len().saturating_sub(1)));
            targets.extend(numbers().skip(1));
            rows += 1;
        }
        let index = |values: &[usize]| Index::new(values, BYTES, device);
        Ok(Self { rows, tokens: index(&tokens)?, targets: index(&targets)? })
    }
}

impl Samples for TextData {
    type Batch = TextBatch;

    fn len(&self) -> usize {
        self.windows
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<TextBatch> {
        let windows = indices.iter().map(|&index| self.window(index)).collect::<Result<Vec<_>>>()?;
        TextBatch::new(windows.into_iter(), &placement.device)
    }
}

impl Batch for TextBatch {
    fn to_device(&self, device: &Device) -> Result<Self> {
        let (tokens, targets) = (self.tokens.to_device(device)?, self.targets.to_device(device)?);
        Ok(Self { rows: self.rows, tokens, targets })
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        Ok(self.rows == source.rows
            && self.tokens.overwrite(&source.tokens)?
            && self.targets.overwrite(&source.targets)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_do_not_overlap_and_windows_cover_them() {
        let text: Vec<u8> = (0..200u8).collect();
        let mut ends = 0;
        for split in Split::ALL {
            let data = TextData::new(text.clone(), split, 4, usize::MAX).unwrap();
            assert_eq!(usize::from(data.window(0).unwrap()[0]), ends);
            ends = usize::from(*data.window(data.len() - 1).unwrap().last().unwrap()) + 1;
            let few = TextData::new(text.clone(), split, 4, 3).unwrap();
            assert_eq!((few.len(), few.window(0).unwrap()), (3, data.window(0).unwrap()));
            assert!(few.window(3).unwrap_err().to_string().contains("less than 3"));
            assert!(few.batch(&[0, 3], &Placement::from(&Device::Cpu)).is_err());
            assert!(TextData::new(text.clone(), split, 4, 0).is_err());
        }
        assert_eq!(ends, 200);
        assert!(TextData::new(text, Split::Valid, 10, 1).is_err());
    }

    #[test]
    fn targets_are_the_tokens_that_follow() {
        let data =
            TextData::new(*b"the quick brown fox jumps over the lazy dog", Split::Train, 5, 100).unwrap();
        let batch = data.batch(&[4, 10], &Placement::from(&Device::Cpu)).unwrap();
        let bytes =
            |index: &Index| index.to_vec().unwrap().into_iter().map(|byte| byte as u8).collect::<Vec<_>>();
        assert_eq!((batch.rows, bytes(&batch.tokens)), (2, b"quickbrown".to_vec()));
        assert_eq!(bytes(&batch.targets), b"uick rown ");
        let other = data.batch(&[0, 1], &Placement::from(&Device::Cpu)).unwrap();
        assert!(batch.overwrite(&other).unwrap() && bytes(&batch.tokens) == b"the qhe qu");
        assert!(!batch.overwrite(&data.batch(&[0], &Placement::from(&Device::Cpu)).unwrap()).unwrap());
    }

    #[test]
    fn the_sample_is_plain_text_of_some_length() {
        assert!(SAMPLE.len() > 40_000 && SAMPLE.is_ascii());
    }
}
