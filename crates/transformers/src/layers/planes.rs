//! Features as layers hand them on.

use crate::{Channels, Space, Streams};
use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::Index;
use gradewise_nn::{Error, Result};

/// Features within a network: a matrix `[scalars + blades · multivectors, rows]`, first the channels of scalars, then blade by blade those of
/// the multivectors. Blades that equivariant maps join lie next to each other. A row is a token.
#[derive(Clone, Debug)]
pub struct FeaturePlanes {
    whole: Tensor,
    channels: Channels,
}

impl FeaturePlanes {
    /// The planes of streams.
    ///
    /// # Errors
    /// Multivectors of another number of blades.
    pub fn new(space: &Space, x: &Streams) -> Result<Self> {
        let &[blades, tokens, channels] = x.multivectors.shape().dims() else {
            return Err(refused(space, x));
        };
        if blades != space.blades() {
            return Err(refused(space, x));
        }
        let order: Vec<usize> = space.order().iter().map(|&blade| blade.into()).collect();
        let index = Index::constant(&order, blades, &x.multivectors.device())?;
        let planes = x.multivectors.index_select(0, &index)?.transpose(1, 2)?;
        let channels = Channels::new(channels, x.scalars.shape()[1]);
        let multivectors = planes.reshape([blades * channels.multivectors, tokens])?;
        Self::of(&x.scalars.transpose(0, 1)?, &multivectors, channels)
    }

    /// Scalars `[scalars, rows]` above multivectors `[blades · multivectors, rows]`.
    pub(crate) fn of(scalars: &Tensor, multivectors: &Tensor, channels: Channels) -> Result<Self> {
        let whole = match channels.scalars {
            0 => multivectors.clone(),
            _ => concat(&[scalars, multivectors], 0)?,
        };
        Ok(Self { whole, channels })
    }

    /// A matrix of these channels.
    pub(crate) const fn of_whole(whole: Tensor, channels: Channels) -> Self {
        Self { whole, channels }
    }

    /// The streams of the planes.
    ///
    /// # Errors
    /// From the device.
    pub fn streams(&self, space: &Space) -> Result<Streams> {
        let (blades, rows) = (space.blades(), self.rows());
        let mut places = vec![0; blades];
        space.order().iter().enumerate().for_each(|(place, &blade)| places[usize::from(blade)] = place);
        let index = Index::constant(&places, blades, &self.whole.device())?;
        let planes = self.multivectors()?.reshape([blades, self.channels.multivectors, rows])?;
        let multivectors = planes.index_select(0, &index)?.transpose(1, 2)?.contiguous()?;
        Streams::new(multivectors, self.scalars()?.transpose(0, 1)?.contiguous()?)
    }

    /// `[scalars + blades · multivectors, rows]`
    pub const fn whole(&self) -> &Tensor {
        &self.whole
    }

    /// Channels of scalars and of multivectors.
    pub const fn channels(&self) -> Channels {
        self.channels
    }

    /// The number of tokens.
    pub fn rows(&self) -> usize {
        self.whole.shape()[1]
    }

    /// `[scalars, rows]`
    pub(crate) fn scalars(&self) -> Result<Tensor> {
        Ok(self.whole.slice(0, 0..self.channels.scalars)?)
    }

    /// `[blades · multivectors, rows]`
    pub(crate) fn multivectors(&self) -> Result<Tensor> {
        Ok(self.whole.slice(0, self.channels.scalars..self.whole.shape()[0])?)
    }

    /// The sum of both.
    ///
    /// # Errors
    /// Channels or rows that differ.
    pub fn add(&self, other: &Self) -> Result<Self> {
        Ok(Self { whole: self.whole.add(&other.whole)?, channels: self.channels })
    }

    /// With the channels of `other` behind those of each kind.
    pub(crate) fn beside(&self, space: &Space, other: &Self) -> Result<Self> {
        let (blades, rows) = (space.blades(), self.rows());
        let apart =
            |x: &Self| Ok::<_, Error>(x.multivectors()?.reshape([blades, x.channels.multivectors, rows])?);
        let channels = self.channels.plus(other.channels);
        let multivectors = concat(&[&apart(self)?, &apart(other)?], 1)?;
        let scalars = concat(&[&self.scalars()?, &other.scalars()?], 0)?;
        Self::of(&scalars, &multivectors.reshape([blades * channels.multivectors, rows])?, channels)
    }

    /// These channels of multivectors and of scalars, by number.
    pub(crate) fn select(&self, space: &Space, multivectors: &[usize], scalars: &[usize]) -> Result<Self> {
        let (blades, rows, device) = (space.blades(), self.rows(), self.whole.device());
        let Channels { multivectors: all, scalars: all_scalars } = self.channels;
        let lines: Vec<usize> = scalars
            .iter()
            .copied()
            .chain((0..blades).flat_map(|plane| {
                multivectors.iter().map(move |channel| all_scalars + plane * all + channel)
            }))
            .collect();
        let index = Index::constant(&lines, all_scalars + blades * all, &device)?;
        let channels = Channels::new(multivectors.len(), scalars.len());
        debug_assert_eq!(self.whole.shape()[1], rows);
        Ok(Self { whole: self.whole.index_select(0, &index)?, channels })
    }

    /// Refuses other channels than a layer's.
    pub(crate) fn require(&self, operation: &'static str, expected: Channels) -> Result<()> {
        if self.channels == expected {
            return Ok(());
        }
        Err(Error::Argument {
            operation,
            argument: "x",
            actual: self.channels.to_string(),
            expected: expected.to_string(),
        })
    }
}

fn refused(space: &Space, x: &Streams) -> Error {
    Error::Argument {
        operation: "FeaturePlanes",
        argument: "multivectors",
        actual: x.multivectors.shape().to_string(),
        expected: format!(
            "[{}, tokens, channels]: a plane for each blade of {}",
            space.blades(),
            space.algebra().signature()
        ),
    }
}
