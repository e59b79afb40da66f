//! Products and joins of multivectors, and the layers behind attention.

use super::MlpConfig;
use crate::{
    Channels, Space,
    layers::{EquiLinear, FeaturePlanes, Gate, GradeDropout, Initialization, Nonlinearity, product},
};
use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::ops::clifford::table_product::Table;
use gradewise_nn::{DeepClone, Error, Module, Placement, Result, Visitor, in_layer};
use std::sync::Arc;

/// Geometric products of linear maps of the input, and joins of others, mapped linearly.
///
/// The join of two multivectors flips its sign under reflections. Multiplied by a pseudoscalar number, it is equivariant. That number comes
/// from a reference, such as the weight of the input's points.
///
/// Parameters: those of `linear_left`, `linear_right`, `linear_join_left`, `linear_join_right` and `linear_out`.
#[derive(Debug, Module, DeepClone)]
pub struct GeometricBilinear {
    #[module(skip)]
    geometric: Arc<Table>,
    #[module(skip)]
    join: Arc<Table>,
    linear_left: EquiLinear,
    linear_right: EquiLinear,
    linear_join_left: EquiLinear,
    linear_join_right: EquiLinear,
    linear_out: EquiLinear,
}

impl GeometricBilinear {
    /// Draws the parameters; half of the output's number of multivectors are products, half are joins.
    ///
    /// # Errors
    /// An odd number of multivectors in the output, none in the input, or no scalars there; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (inputs, outputs): (Channels, Channels),
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let hidden = outputs.multivectors;
        if !hidden.is_multiple_of(2) {
            return Err(Error::Argument {
                operation: "GeometricBilinear",
                argument: "outputs.multivectors",
                actual: hidden.to_string(),
                expected: "an even number: half of them are joins".to_owned(),
            });
        }
        let (placement, space) = (&placement.into(), Space::projective());
        let mut factor = |initialization: Initialization| {
            EquiLinear::new(inputs, Channels::new(hidden / 2, 0), &space)
                .initialization(initialization)
                .init(placement, rng)
        };
        let plain = Initialization::Default;
        let (linear_left, linear_right) = (factor(plain)?, factor(Initialization::AlmostUnitScalar)?);
        let (linear_join_left, linear_join_right) = (factor(plain)?, factor(plain)?);
        let products = Channels::new(hidden, inputs.scalars);
        Ok(Self {
            geometric: space.geometric(true),
            join: space.join(),
            linear_left,
            linear_right,
            linear_join_left,
            linear_join_right,
            linear_out: EquiLinear::new(products, outputs, &space).init(placement, rng)?,
        })
    }

    /// The products of `x`; joins are multiplied by `reference`, `[1, rows]`, a number for each token, if there is one.
    ///
    /// # Errors
    /// Other channels than the layer's.
    pub fn forward(&self, x: &FeaturePlanes, reference: Option<&Tensor>) -> Result<FeaturePlanes> {
        in_layer("GeometricBilinear::forward", || {
            let of = |table: &Arc<Table>, left: &EquiLinear, right: &EquiLinear| {
                product(table, left.forward(x)?.whole(), right.forward(x)?.whole())
            };
            let products = of(&self.geometric, &self.linear_left, &self.linear_right)?;
            let mut joins = of(&self.join, &self.linear_join_left, &self.linear_join_right)?;
            if let Some(reference) = reference {
                joins = joins.mul(reference)?;
            }
            let both = concat(&[&products, &joins], 1)?;
            let height = both.shape()[0] * both.shape()[1];
            self.linear_out.apply(&both.reshape([height, x.rows()])?, Some(&x.scalars()?))
        })
    }
}

/// Products and joins, a gate and a linear map.
///
/// Parameters: those of `layers`, by number: 0 and 2, or with dropout 0 and 3.
#[derive(Debug, DeepClone)]
pub struct GeoMlp {
    space: Space,
    bilinear: GeometricBilinear,
    gate: Gate,
    linear: EquiLinear,
    dropouts: Option<[GradeDropout; 2]>,
}

impl Module for GeoMlp {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.module("layers.0", &self.bilinear);
        visitor.module(if self.dropouts.is_some() { "layers.3" } else { "layers.2" }, &self.linear);
    }
}

impl GeoMlp {
    /// For features of `channels`, in and out; twice as many are hidden.
    ///
    /// # Errors
    /// An activation that the published network does not have; no multivectors or no scalars; a dtype the device does not serve, or no
    /// memory.
    pub fn init<R: rand::Rng + ?Sized>(
        channels: Channels,
        config: &MlpConfig,
        dropouts: Option<[GradeDropout; 2]>,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let kind = config.activation;
        if !matches!(kind, Nonlinearity::Relu | Nonlinearity::Gelu | Nonlinearity::Sigmoid) {
            return Err(Error::Argument {
                operation: "GeoMlp",
                argument: "activation",
                actual: kind.to_string(),
                expected: "relu, gelu or sigmoid".to_owned(),
            });
        }
        let (placement, space) = (&placement.into(), Space::projective());
        let hidden = Channels::new(2 * channels.multivectors, 2 * channels.scalars);
        Ok(Self {
            bilinear: GeometricBilinear::init((channels, hidden), placement, rng)?,
            gate: Gate { multivectors: kind.approximate(), scalars: kind.exact() },
            linear: EquiLinear::new(hidden, channels, &space).init(placement, rng)?,
            dropouts,
            space,
        })
    }

    /// Features of the same channels; `reference` as in [`GeometricBilinear::forward`].
    ///
    /// # Errors
    /// Other channels than the layer's.
    pub fn forward(&self, x: &FeaturePlanes, reference: Option<&Tensor>) -> Result<FeaturePlanes> {
        in_layer("GeoMlp::forward", || {
            let drop = |number: usize, x: FeaturePlanes| match &self.dropouts {
                Some(dropouts) => dropouts[number].forward(&x),
                None => Ok(x),
            };
            let products = drop(0, self.bilinear.forward(x, reference)?)?;
            drop(1, self.linear.forward(&self.gate.forward(&self.space, &products)?)?)
        })
    }
}
