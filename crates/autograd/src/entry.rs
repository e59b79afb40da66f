//! What the registry knows of an operation.

use crate::{
    AnySample, Attributes, Derivative, Operand, Operation, Result, Rule, SavedArray, Sizes, Tensor,
    operation::erased, tensor::Body,
};
use std::sync::Arc;

/// An operation of the registry: its properties, its samples, and how to run it from a record.
#[derive(Clone, Copy)]
pub struct Entry {
    name: &'static str,
    rule: Rule,
    derivative: Derivative,
    has_matrix_products: bool,
    operands: &'static [Operand],
    saved: &'static [SavedArray],
    samples: fn(&Sizes) -> Result<Vec<AnySample>>,
    body: fn(&Attributes) -> Result<Arc<dyn Body>>,
}

impl Entry {
    /// The entry of an operation.
    pub const fn of<O: Operation>() -> Self {
        Self {
            name: O::NAME,
            rule: O::RULE,
            derivative: O::DERIVATIVE,
            has_matrix_products: O::HAS_MATRIX_PRODUCTS,
            operands: O::OPERANDS,
            saved: O::SAVED,
            samples: |sizes| Ok(O::samples(sizes)?.into_iter().map(AnySample::of).collect()),
            body: |attributes| Ok(erased(attributes.read::<O>(O::NAME)?)),
        }
    }

    /// The name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The precision class.
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// How its gradient is differentiated.
    pub const fn derivative(&self) -> Derivative {
        self.derivative
    }

    /// Whether it multiplies matrices.
    pub const fn has_matrix_products(&self) -> bool {
        self.has_matrix_products
    }

    /// Its inputs, in order.
    pub const fn operands(&self) -> &'static [Operand] {
        self.operands
    }

    /// What its forward pass may leave for its backward pass, in order.
    pub const fn saved(&self) -> &'static [SavedArray] {
        self.saved
    }

    /// Its samples at these sizes.
    ///
    /// # Errors
    /// Attributes that cannot be made.
    pub fn samples(&self, sizes: &Sizes) -> Result<Vec<AnySample>> {
        (self.samples)(sizes)
    }

    /// Runs the operation with recorded attributes.
    ///
    /// # Errors
    /// Attributes that are not those of the operation; from the operation.
    pub fn rerun(&self, attributes: &Attributes, inputs: &[&Tensor]) -> Result<Tensor> {
        Tensor::run(self.body(attributes)?, inputs)
    }

    /// The operation with recorded attributes.
    ///
    /// # Errors
    /// Attributes that are not those of the operation.
    pub(crate) fn body(&self, attributes: &Attributes) -> Result<Arc<dyn Body>> {
        (self.body)(attributes)
    }
}
