//! Normalisations of fields.

use super::{identities, refuse};
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor,
    fields::{self, BatchNorm, NormOptions, Whitening},
};

/// The memory order of a stored bias `[blades, groups]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BiasOrder {
    /// `[blades, groups]`, as its shape says.
    #[default]
    BladeChannel,
    /// The stored elements are read as `[groups, blades]`: the published implementation reshapes where it should transpose, and its trained
    /// weights depend on that.
    ChannelBlade,
}

impl BiasOrder {
    /// The bias `[blades, groups]` that the stored one stands for.
    pub(super) fn applied(self, bias: &Tensor) -> Result<Tensor> {
        match (self, bias.shape().dims()) {
            (Self::ChannelBlade, &[blades, groups]) => Ok(bias.reshape([groups, blades])?.transpose(0, 1)?),
            _ => Ok(bias.clone()),
        }
    }
}

/// Whitens the blades of each group of adjacent channels, sample by sample ([`fields::clifford_group_norm`]).
///
/// Parameters: `weight` `[blades, blades, groups]`, the identity, and `bias` `[blades, groups]`, zero.
#[derive(Debug, Module, DeepClone)]
pub struct CliffordGroupNorm {
    weight: Parameter,
    bias: Parameter,
    #[module(skip)]
    channels_per_group: usize,
    #[module(skip)]
    options: NormOptions,
    #[module(skip)]
    order: BiasOrder,
}

/// Settings of a [`CliffordGroupNorm`] for fields of `blades` blades and `channels` channels, in groups of `channels_per_group`: 1
/// normalises each channel separately, `channels` the whole sample. (The published implementation calls this number `num_groups`.)
#[derive(Clone, Copy, Debug, Builder)]
pub struct CliffordGroupNormBuilder {
    blades: usize,
    channels: usize,
    channels_per_group: usize,
    #[builder(default, skip)]
    options: NormOptions,
    #[builder(default, skip)]
    order: BiasOrder,
}

impl CliffordGroupNormBuilder {
    /// Uses the whitening and the bias order of the published implementation.
    #[must_use]
    pub fn reference(mut self) -> Self {
        self.options.whitening = Whitening::Reference;
        self.order = BiasOrder::ChannelBlade;
        self
    }

    /// Makes the parameters.
    ///
    /// # Errors
    /// A group size that does not divide the channels, a dtype the device does not serve, or no memory.
    pub fn init(self, placement: impl Into<Placement>) -> Result<CliffordGroupNorm> {
        at_least_one("CliffordGroupNorm", &[("blades", self.blades), ("channels", self.channels)])?;
        let Self { blades, channels, channels_per_group, options, order } = self;
        if channels_per_group == 0 || !channels.is_multiple_of(channels_per_group) {
            let expected = format!("a divisor of {channels} channels");
            return refuse("CliffordGroupNorm", "channels_per_group", channels_per_group, expected);
        }
        let (placement, groups) = (placement.into(), channels / channels_per_group);
        let weight = identities(blades, groups, placement.dtype, &placement.device)?;
        let bias = placement.filled([blades, groups], 0.0)?;
        Ok(CliffordGroupNorm { weight: Parameter::new(weight), bias, channels_per_group, options, order })
    }
}

impl Layer for CliffordGroupNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("CliffordGroupNorm::forward", x, || {
            let (weight, bias) = (self.weight.tensor(), self.order.applied(&self.bias.tensor())?);
            let parameters = BatchNorm { weight: Some(&weight), bias: Some(&bias) };
            Ok(fields::clifford_group_norm(x, parameters, self.channels_per_group, self.options)?)
        })
    }
}

/// Subtracts the mean of each component over space and groups of channels ([`fields::g3_group_norm`]), and optionally divides by the mean
/// length.
///
/// Parameters: `weight` `[channels]`, one, and `bias` `[channels, blades]`, zero.
#[derive(Debug, Module, DeepClone)]
pub struct G3GroupNorm {
    weight: Parameter,
    bias: Parameter,
    #[module(skip)]
    groups: usize,
    #[module(skip)]
    scale: Option<f64>,
}

impl G3GroupNorm {
    /// For fields of `blades` blades and `channels` channels in `groups` groups. With `scale`, vectors are divided by their mean length
    /// plus `scale`.
    ///
    /// # Errors
    /// Groups that do not divide the channels, a dtype the device does not serve, or no memory.
    pub fn init(
        blades: usize,
        channels: usize,
        groups: usize,
        scale: Option<f64>,
        placement: impl Into<Placement>,
    ) -> Result<Self> {
        at_least_one("G3GroupNorm", &[("blades", blades), ("channels", channels)])?;
        if groups == 0 || !channels.is_multiple_of(groups) {
            return refuse("G3GroupNorm", "groups", groups, format!("a divisor of {channels} channels"));
        }
        let placement = placement.into();
        let (weight, bias) = (placement.filled([channels], 1.0)?, placement.filled([channels, blades], 0.0)?);
        Ok(Self { weight, bias, groups, scale })
    }
}

impl Layer for G3GroupNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("G3GroupNorm::forward", x, || {
            let (weight, bias) = (self.weight.tensor(), self.bias.tensor());
            Ok(fields::g3_group_norm(x, &weight, &bias, self.groups, self.scale)?)
        })
    }
}
