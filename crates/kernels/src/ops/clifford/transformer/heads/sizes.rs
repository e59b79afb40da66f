//! The sizes of feature planes and of heads, and where an element of one is in the other.

use crate::{Error, Result};

/// How the channels of heads are numbered in the planes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbering {
    /// (g·C + c)·H + h.
    HeadsInside,
    /// h·C + c, of one group.
    HeadsOutside,
}

/// The sizes of both sides. Those that a caller gives may be any numbers until an array was compared with the shapes, which saturate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub planes: usize,
    /// Channels of multivectors of each head.
    pub channels: usize,
    /// Scalars of each head.
    pub scalars: usize,
    pub groups: usize,
    pub heads: usize,
    pub batch: usize,
    pub items: usize,
    pub numbering: Numbering,
}

impl Sizes {
    /// Refuses sizes of nothing, of which strides make no sense. There may be no rows and no scalars.
    pub fn require_some(&self, operation: &'static str) -> Result<()> {
        let needed = [
            ("planes", self.planes),
            ("channels", self.channels),
            ("groups", self.groups),
            ("heads", self.heads),
        ];
        match needed.into_iter().find(|&(_, size)| size == 0) {
            Some((argument, size)) => {
                Err(Error::Argument { operation, argument, actual: size.to_string(), expected: "at least 1" })
            }
            None => Ok(()),
        }
    }

    /// Elements of multivectors in a row of a head.
    pub fn multivectors(&self) -> usize {
        self.planes.saturating_mul(self.channels)
    }

    /// Elements of a row of a head.
    pub fn width(&self) -> usize {
        self.multivectors().saturating_add(self.scalars)
    }

    pub fn rows(&self) -> usize {
        self.batch.saturating_mul(self.items)
    }

    /// Lines of the planes: a width of each head.
    pub fn lines(&self) -> usize {
        self.groups.saturating_mul(self.heads).saturating_mul(self.width())
    }

    pub fn planes_shape(&self) -> [usize; 2] {
        [self.lines(), self.rows()]
    }

    pub fn heads_shape(&self) -> [usize; 5] {
        [self.groups, self.batch, self.heads, self.items, self.width()]
    }

    /// What a group, a channel and a head add to the number of a line, of `channels` for each head.
    pub fn strides(&self, channels: usize) -> [usize; 3] {
        match self.numbering {
            Numbering::HeadsInside => [channels * self.heads, self.heads, 1],
            Numbering::HeadsOutside => [channels * self.heads, 1, channels],
        }
    }

    /// The line of each element of a row of head `head` in `group`.
    pub fn lines_of(&self, group: usize, head: usize) -> Vec<usize> {
        let line = |channels: usize, c: usize| {
            let [by_group, by_channel, by_head] = self.strides(channels);
            group * by_group + c * by_channel + head * by_head
        };
        let (scalars, plane) =
            (self.groups * self.heads * self.scalars, self.groups * self.heads * self.channels);
        let elements = (0..self.planes).flat_map(|p| (0..self.channels).map(move |c| (p, c)));
        let multivectors = elements.map(|(p, c)| scalars + p * plane + line(self.channels, c));
        multivectors.chain((0..self.scalars).map(|s| line(self.scalars, s))).collect()
    }
}
