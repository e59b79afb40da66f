//! Bilinear products of multivectors.

use super::{Channels, EquiLinear, Space, Streams};
use crate::{Error, Module, Placement, Result, error::at_least_one};
use gradewise_autograd::{Tensor, clifford, concat};

/// Geometric products and, in algebras with points, joins of linear maps of the input, concatenated and followed by a linear map.
///
/// The join x ∨ y of two multivectors flips its sign under reflections. Multiplied by a pseudoscalar number, it is equivariant. That number
/// comes from `reference`, such as the weight of the input's points.
///
/// Parameters: those of `operands` and of `out`.
#[derive(Debug, Module)]
pub struct GeometricBilinear {
    #[module(skip)]
    space: Space,
    operands: EquiLinear,
    out: EquiLinear,
    #[module(skip)]
    hidden: usize,
}

impl GeometricBilinear {
    /// Draws the parameters, with `hidden` channels for each product.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (inputs, hidden, outputs): (Channels, Channels, Channels),
        space: &Space,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one(
            "GeometricBilinear",
            &[("hidden.multivectors", hidden.multivectors), ("hidden.scalars", hidden.scalars)],
        )?;
        let placement = &placement.into();
        let products = if space.has_points() { 2 } else { 1 };
        let operands = Channels::new(2 * products * hidden.multivectors, hidden.scalars);
        let results = Channels::new(products * hidden.multivectors, hidden.scalars);
        Ok(Self {
            space: space.clone(),
            operands: EquiLinear::init((inputs, operands), space, placement, rng)?,
            out: EquiLinear::init((results, outputs), space, placement, rng)?,
            hidden: hidden.multivectors,
        })
    }

    /// The products of `x`; `reference` is `[1, tokens, 1]`, one number for each token, and is used only in algebras with points.
    ///
    /// # Errors
    /// Other channels than the layer's; no reference where one is needed.
    pub fn forward(&self, x: &Streams, reference: Option<&Tensor>) -> Result<Streams> {
        let Streams { multivectors, scalars } = self.operands.forward(x)?;
        let operand = |index: usize| multivectors.slice(2, index * self.hidden..(index + 1) * self.hidden);
        let algebra = self.space.algebra();
        let mut products = clifford::geometric_product(algebra, &operand(0)?, &operand(1)?)?;
        if self.space.has_points() {
            let Some(reference) = reference else {
                return Err(Error::Argument {
                    operation: "GeometricBilinear",
                    argument: "reference",
                    actual: "none".to_owned(),
                    expected: "[1, tokens, 1], such as TokenBatch::reference of the network's input"
                        .to_owned(),
                });
            };
            let join = clifford::regressive_product(algebra, &operand(2)?, &operand(3)?)?;
            products = concat(&[&products, &join.mul(reference)?], 2)?;
        }
        self.out.forward(&Streams { multivectors: products, scalars })
    }
}
