//! Products of multivectors, and the layers behind attention.

use super::{EPSILON, MlpConfig, PrimitivesConfig};
use crate::{
    Channels, Space,
    layers::{EquiLayerNorm, EquiLinear, FeaturePlanes, Gate, GradeDropout, Initialization, product},
};
use gradewise_kernels::ops::clifford::table_product::Table;
use gradewise_nn::{DeepClone, Module, Placement, Result, Visitor, data::at_least_one, in_layer};
use std::sync::Arc;

/// The geometric product of two linear maps of the input, mapped linearly and normalised.
///
/// Parameters: those of `linear_left`, `linear_right` and `linear_out`.
#[derive(Debug, Module, DeepClone)]
pub struct GeometricBilinear {
    #[module(skip)]
    table: Arc<Table>,
    linear_left: EquiLinear,
    linear_right: EquiLinear,
    linear_out: EquiLinear,
    #[module(skip)]
    norm: EquiLayerNorm,
}

impl GeometricBilinear {
    /// Draws the parameters; there are as many products as multivectors of the output, without bivectors unless `bivectors`.
    ///
    /// # Errors
    /// No multivectors, or no scalars in the input; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (inputs, outputs): (Channels, Channels),
        bivectors: bool,
        space: &Space,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let factors = Channels::new(outputs.multivectors, 0);
        let products = Channels::new(outputs.multivectors, inputs.scalars);
        let linear = |from: Channels, to: Channels| EquiLinear::new(from, to, space);
        // A product of two small factors would be too small.
        let around_one = Initialization::AlmostUnitScalar;
        Ok(Self {
            table: space.geometric(bivectors),
            linear_left: linear(inputs, factors).init(placement, rng)?,
            linear_right: linear(inputs, factors).initialization(around_one).init(placement, rng)?,
            linear_out: linear(products, outputs).init(placement, rng)?,
            norm: EquiLayerNorm::new(outputs, space).epsilon(EPSILON).init(placement)?,
        })
    }

    /// The products of `x`.
    ///
    /// # Errors
    /// Other channels than the layer's.
    pub fn forward(&self, x: &FeaturePlanes) -> Result<FeaturePlanes> {
        in_layer("GeometricBilinear::forward", || self.gated(x, None))
    }

    fn gated(&self, x: &FeaturePlanes, gate: Option<Gate>) -> Result<FeaturePlanes> {
        let (left, right) = (self.linear_left.forward(x)?, self.linear_right.forward(x)?);
        let products = product(&self.table, left.whole(), right.whole())?;
        let products = products.reshape([left.whole().shape()[0], x.rows()])?;
        self.norm.gated(&self.linear_out.apply(&products, Some(&x.scalars()?))?, gate)
    }
}

/// A product of multivectors, then gates and linear maps.
///
/// Parameters: those of `layers`, by number; gates and dropout count.
#[derive(Debug, Module, DeepClone)]
pub struct GeoMlp {
    #[module(skip)]
    space: Space,
    layers: Vec<MlpLayer>,
}

#[derive(Debug, DeepClone)]
enum MlpLayer {
    Bilinear(Box<GeometricBilinear>),
    Gate(Gate),
    Linear(EquiLinear),
    Dropout(GradeDropout),
}

impl Module for MlpLayer {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Self::Bilinear(layer) => layer.visit(visitor),
            Self::Linear(layer) => layer.visit(visitor),
            Self::Gate(_) | Self::Dropout(_) => {}
        }
    }
}

impl GeoMlp {
    /// For features of `channels`, in and out; each layer is followed by a `dropout`, if there is one.
    ///
    /// # Errors
    /// No layers or a ratio of 0; products without scalars; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        channels: Channels,
        (config, primitives): (&MlpConfig, &PrimitivesConfig),
        space: &Space,
        dropout: &mut dyn FnMut() -> Result<Option<GradeDropout>>,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let MlpConfig { nonlinearity, mlp_ratio, num_layers_mlp } = *config;
        at_least_one("GeoMlp", &[("mlp_ratio", mlp_ratio), ("num_layers_mlp", num_layers_mlp)])?;
        let kind = nonlinearity.approximate();
        let gate = Gate { multivectors: kind, scalars: kind };
        let hidden = Channels::new(mlp_ratio * channels.multivectors, mlp_ratio * channels.scalars);
        let mut layers = Vec::new();
        for number in 0..num_layers_mlp {
            let from = if number == 0 { channels } else { hidden };
            let to = if number + 1 == num_layers_mlp { channels } else { hidden };
            if number == 0 && primitives.geometric_product {
                let bilinear =
                    GeometricBilinear::init((from, to), primitives.bivector, space, placement, rng)?;
                layers.push(MlpLayer::Bilinear(Box::new(bilinear)));
            } else {
                layers.push(MlpLayer::Gate(gate));
                layers.push(MlpLayer::Linear(EquiLinear::new(from, to, space).init(placement, rng)?));
            }
            layers.extend(dropout()?.map(MlpLayer::Dropout));
        }
        Ok(Self { space: space.clone(), layers })
    }

    /// Features of the same channels.
    ///
    /// # Errors
    /// Other channels than the layer's.
    pub fn forward(&self, x: &FeaturePlanes) -> Result<FeaturePlanes> {
        in_layer("GeoMlp::forward", || {
            let (mut x, mut layers) = (x.clone(), self.layers.iter().peekable());
            while let Some(layer) = layers.next() {
                x = match layer {
                    MlpLayer::Bilinear(bilinear) => {
                        // The norm at the end of the product gates in the same pass.
                        let gate = match layers.peek() {
                            Some(MlpLayer::Gate(gate)) => Some(*gate),
                            _ => None,
                        };
                        if gate.is_some() {
                            layers.next();
                        }
                        bilinear.gated(&x, gate)?
                    }
                    MlpLayer::Gate(gate) => gate.forward(&self.space, &x)?,
                    MlpLayer::Linear(linear) => linear.forward(&x)?,
                    MlpLayer::Dropout(dropout) => dropout.forward(&x)?,
                };
            }
            Ok(x)
        })
    }
}
