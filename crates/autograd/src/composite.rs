//! Nodes of a graph that stand for several operations.

use crate::{
    Attributes, BackwardContext, Cost, Derivative, Error, Forward, Operand, Result, Rule, Tensor, Traffic,
    observe,
    tensor::{Body, Saved},
};
use gradewise_core::DType;
use gradewise_kernels::Array;
use std::sync::Arc;

/// A node of a graph that is not an operation: its backward rule, without a forward pass that could run again.
pub(crate) struct Composite<R> {
    pub name: &'static str,
    pub rule: R,
}

impl<R> Body for Composite<R>
where
    R: Fn(&BackwardContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn attributes(&self) -> Result<Attributes> {
        Ok(Attributes::default())
    }

    fn rule(&self) -> Rule {
        Rule::Widest
    }

    fn operands(&self) -> &[Operand] {
        const { &[Operand::array("input").repeated()] }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Differentiable
    }

    fn traffic(&self) -> Traffic {
        Traffic::View
    }

    fn shows_input(&self) -> bool {
        false
    }

    fn cost(&self, _: &[&[usize]]) -> Cost {
        Cost::default()
    }

    fn forward(&self, _: &[Array]) -> Result<Forward> {
        let message = "it stands for several operations and cannot run as one".to_owned();
        Err(Error::Argument { operation: self.name, message })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        (self.rule)(context, grad)
    }

    fn reexpress(&self, _: &[Tensor]) -> Result<Tensor> {
        Err(Error::NotTwiceDifferentiable { operation: self.name })
    }

    fn serves(&self, _: &[Array]) -> bool {
        true
    }

    fn output_dtype(&self, _: &[DType], computed: DType) -> DType {
        computed
    }

    fn is_whole(&self) -> bool {
        false
    }
}

impl Tensor {
    /// The result of several operations as one node of the graph, whose backward rule is not theirs.
    pub(crate) fn with_history(
        name: &'static str,
        array: Array,
        inputs: &[&Tensor],
        rule: impl Fn(&BackwardContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        Self::with_node(array, inputs, || Arc::new(Composite { name, rule }), Saved::nothing())
    }

    /// The same data as a new node of the graph: gradients pass through.
    pub(crate) fn alias(&self) -> Tensor {
        Tensor::with_history("alias", self.array().clone(), &[self], |_, grad| Ok(vec![Some(grad.clone())]))
    }

    /// The result of several operations as one node of the graph, whose backward rule is not theirs.
    ///
    /// # Errors
    /// From an observer.
    pub(crate) fn composite(
        name: &'static str,
        array: Array,
        inputs: &[&Tensor],
        rule: impl Fn(&BackwardContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let body: Arc<dyn Body> = Arc::new(Composite { name, rule });
        observe::forward(inputs, &array, body.as_ref())?;
        Ok(Self::with_node(array, inputs, || body, Saved::nothing()))
    }
}
