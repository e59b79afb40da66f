//! Messages on graphs. All four operations are linear and each other's transposes, so that every derivative runs their kernels.
//!
//! In mixed precision they take features as they come: kernels subtract and add in `f32` or wider whatever features are stored in, so that a
//! conversion before them would gain no digit. Positions in `f32` stay in `f32`; what a product in 16 bits left in 16 bits stays so.

use super::prelude::*;
use crate::formula::{Update, placed};
use crate::{current_policy, without_autocast};
use std::sync::Arc;

/// The receivers and the senders of edges.
#[derive(Serialize, Deserialize)]
struct Ends {
    #[serde(with = "attributes::index")]
    receivers: Index,
    #[serde(with = "attributes::index")]
    senders: Index,
}

impl Ends {
    /// Refuses lists that are not where `x` is.
    fn of(operation: &'static str, receivers: &Index, senders: &Index, x: &Tensor) -> Result<Self> {
        require_beside(operation, "receivers", receivers.device(), x.array())?;
        require_beside(operation, "senders", senders.device(), x.array())?;
        Ok(Self { receivers: receivers.clone(), senders: senders.clone() })
    }

    fn on(&self, device: &Device) -> Result<[Index; 2]> {
        Ok([self.receivers.to_device(device)?, self.senders.to_device(device)?])
    }

    /// As lists.
    fn lists(&self) -> Option<[Arc<[usize]>; 2]> {
        Some([self.receivers.to_vec().ok()?.into(), self.senders.to_vec().ok()?.into()])
    }

    /// Some edges between `nodes` nodes, of which some receive several messages and some none.
    fn sample(sizes: &Sizes, nodes: usize) -> Result<(Self, usize)> {
        let values = sizes.indices(2 * nodes + 1, nodes);
        let senders: Vec<usize> = values.iter().map(|&node| nodes - 1 - node).collect();
        let ends = Self {
            receivers: Index::new(&values, nodes, &Device::Cpu)?,
            senders: Index::new(&senders, nodes, &Device::Cpu)?,
        };
        Ok((ends, values.len()))
    }
}

/// Positions' segments, and one over the number of positions of each one's segment.
type Shares = (Arc<[usize]>, Arc<[f64]>);

fn shares(segments: &Index) -> Option<Shares> {
    let list = segments.to_vec().ok()?;
    let mut counts = vec![0usize; segments.bound()];
    list.iter().for_each(|&segment| counts[segment] += 1);
    let shares = list.iter().map(|&segment| 1.0 / counts[segment] as f64).collect();
    Some((list.into(), shares))
}

/// Features of the edges' own in samples.
const OWN: usize = 3;

#[derive(Serialize, Deserialize)]
pub(crate) struct EdgeDifference {
    #[serde(flatten)]
    ends: Ends,
}

impl Operation for EdgeDifference {
    const NAME: &'static str = "edge_difference";
    // Attributes follow features, of which there are many more.
    const RULE: Rule = Rule::First;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("x"), Operand::array("attributes").optional()];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [nodes, features] = matrix(sizes);
        let sample = |own: bool| -> Result<Sample<Self>> {
            let (ends, edges) = Ends::sample(sizes, nodes)?;
            let mut inputs = vec![Input::normal([2, nodes, features])];
            inputs.extend(own.then(|| Input::normal([2, edges, OWN])));
            Ok(Sample::new(EdgeDifference { ends }, inputs))
        };
        Ok(vec![sample(false)?, sample(true)?])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let [receivers, senders] = self.ends.on(&inputs[0].device())?;
        Ok(ops::edge_difference(&inputs[0], inputs.get(1), &receivers, &senders)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let axis = grad.shape().rank() - 1;
        let (features, width) = (context.inputs[0].shape()[axis], grad.shape()[axis]);
        let of_nodes = || {
            let [receivers, senders] = self.ends.on(&grad.device())?;
            // Read in place, as columns of the rows of `grad`.
            let columns = grad.slice(axis, 0..features)?;
            // The residual sum and the mean of the same round come later in a forward pass, and so earlier here.
            let earlier = match grad.device() {
                Device::Cuda(_) => context.take_earlier(0, 2),
                Device::Cpu => Vec::new(),
            };
            if earlier.is_empty() {
                return columns.net_inflow(&receivers, &senders);
            }
            let summands: Vec<&Array> = earlier.iter().map(Tensor::array).collect();
            Ok(Tensor::new(ops::net_inflow_onto(&summands, columns.array(), &receivers, &senders)?))
        };
        let mut gradients = vec![context.when_needed(0, of_nodes)?];
        if context.inputs.len() > 1 {
            // Attributes may be in f32 where features have 16 bits.
            let dtype = context.inputs[1].dtype();
            gradients.push(context.when_needed(1, || grad.slice(axis, features..width)?.cast(dtype))?);
        }
        Ok(gradients)
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        let (features, rank) = (*inputs.first()?.last()?, output.len());
        let [receivers, senders] = self.ends.lists()?;
        let of = |list: &Arc<[usize]>| {
            let mut at = At::counters(rank);
            at[rank - 2] = At::listed(rank - 2, list);
            Scalar::Load(0, at)
        };
        let mut sizes = output.to_vec();
        sizes[rank - 1] = features;
        let value = of(&receivers).with(Operator::Sub, of(&senders));
        let mut loops = vec![Loops { sizes, to: At::counters(rank), update: Update::Set, value }];
        loops.extend(inputs.get(1).map(|own| placed(1, own, rank - 1, features)));
        Some(Formula::parts(loops))
    }
}

/// The transpose of [`EdgeDifference`].
#[derive(Serialize, Deserialize)]
pub(crate) struct NetInflow {
    #[serde(flatten)]
    ends: Ends,
}

impl Operation for NetInflow {
    const NAME: &'static str = "net_inflow";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [nodes, features] = matrix(sizes);
        let (ends, edges) = Ends::sample(sizes, nodes)?;
        Ok(vec![Sample::new(NetInflow { ends }, [Input::normal([2, edges, features])])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let [receivers, senders] = self.ends.on(&inputs[0].device())?;
        Ok(ops::net_inflow(&inputs[0], &receivers, &senders)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [receivers, senders] = self.ends.on(&grad.device())?;
        Ok(vec![Some(grad.edge_difference(None, &receivers, &senders)?)])
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        let sizes = inputs.first()?;
        let rank = sizes.len();
        let [receivers, senders] = self.ends.lists()?;
        let onto = |list: &Arc<[usize]>, sign: f64| {
            let mut to = At::counters(rank);
            to[rank - 2] = At::listed(rank - 2, list);
            let value = Scalar::Load(0, At::counters(rank)).mul(Scalar::Number(sign));
            Loops { sizes: sizes.to_vec(), to, update: Update::Add, value }
        };
        Some(Formula { start: Some(0.0), loops: vec![onto(&receivers, 1.0), onto(&senders, -1.0)] })
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ConcatSegmentMean {
    #[serde(with = "attributes::index")]
    segments: Index,
}

impl Operation for ConcatSegmentMean {
    const NAME: &'static str = "concat_segment_mean";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("x"), Operand::array("messages")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [nodes, features] = matrix(sizes);
        let (ends, edges) = Ends::sample(sizes, nodes)?;
        let inputs = [Input::normal([2, nodes, features]), Input::normal([2, edges, OWN])];
        Ok(vec![Sample::new(ConcatSegmentMean { segments: ends.receivers }, inputs)])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let segments = self.segments.to_device(&inputs[0].device())?;
        Ok(ops::concat_segment_mean(&inputs[0], &inputs[1], &segments)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let axis = grad.shape().rank() - 1;
        let (features, width) = (context.inputs[0].shape()[axis], grad.shape()[axis]);
        let of_messages = || {
            let segments = self.segments.to_device(&grad.device())?;
            grad.slice(axis, features..width)?.segment_spread(&segments)
        };
        Ok(vec![
            context.when_needed(0, || grad.slice(axis, 0..features))?,
            context.when_needed(1, of_messages)?,
        ])
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        let [x, messages] = inputs else { return None };
        let (features, rank) = (*x.last()?, output.len());
        let (segments, shares) = shares(&self.segments)?;
        let mut to = At::counters(rank);
        to[rank - 2] = At::listed(rank - 2, &segments);
        to[rank - 1] = At::shifted(rank - 1, features);
        let value = Scalar::Load(1, At::counters(rank)).mul(Scalar::Listed(rank - 2, shares));
        let means = Loops { sizes: messages.to_vec(), to, update: Update::Add, value };
        Some(Formula { start: Some(0.0), loops: vec![placed(0, x, rank - 1, 0), means] })
    }
}

/// The transpose of the mean by segment.
#[derive(Serialize, Deserialize)]
pub(crate) struct SegmentSpread {
    #[serde(with = "attributes::index")]
    segments: Index,
}

impl Operation for SegmentSpread {
    const NAME: &'static str = "segment_spread";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [nodes, features] = matrix(sizes);
        let (ends, _) = Ends::sample(sizes, nodes)?;
        let input = Input::normal([2, nodes, features]);
        Ok(vec![Sample::new(SegmentSpread { segments: ends.receivers }, [input])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let segments = self.segments.to_device(&inputs[0].device())?;
        Ok(ops::segment_spread(&inputs[0], &segments)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let axis = grad.shape().rank() - 2;
        Ok(vec![Some(grad.segment_mean(axis, &self.segments.to_device(&grad.device())?)?)])
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        let (rank, (segments, shares)) = (inputs.first()?.len(), shares(&self.segments)?);
        let mut from = At::counters(rank);
        from[rank - 2] = At::listed(rank - 2, &segments);
        let value = Scalar::Load(0, from).mul(Scalar::Listed(rank - 2, shares));
        let (sizes, to) = (output.to_vec(), At::counters(rank));
        Some(Formula::parts(vec![Loops { sizes, to, update: Update::Set, value }]))
    }
}

impl Tensor {
    /// For each edge the features of its receiver less those of its sender and, after them, the edge's own: this tensor
    /// `[…, nodes, F]` and `attributes` `[…, edges, A]` → `[h[receivers] − h[senders], attributes]`, `[…, edges, F + A]`. Attributes may be
    /// in `f32` beside 16 bits: the result has the dtype of this tensor.
    ///
    /// # Errors
    /// Another number of nodes than the bound of `receivers` and `senders`, attributes of another number of edges, lists of
    /// different length; other dtypes or devices.
    pub fn edge_difference(
        &self,
        attributes: Option<&Tensor>,
        receivers: &Index,
        senders: &Index,
    ) -> Result<Tensor> {
        let ends = Ends::of(EdgeDifference::NAME, receivers, senders, self)?;
        let inputs: Vec<&Tensor> = std::iter::once(self).chain(attributes).collect();
        let run = || Self::apply(EdgeDifference { ends }, &inputs);
        // The kernels read attributes in f32 beside features of 16 bits, and round them themselves.
        let is_read = self.dtype().is_short() && attributes.is_some_and(|own| own.dtype() == DType::F32);
        match current_policy() {
            Some(policy)
                if is_read && policy.rule_of(EdgeDifference::NAME, EdgeDifference::RULE) == Rule::First =>
            {
                without_autocast(run)
            }
            _ => run(),
        }
    }

    /// What arrives at each node less what leaves it: `[…, edges, F]` → `[…, nodes, F]`, the transpose of
    /// [`edge_difference`](Self::edge_difference). The order of the additions is fixed.
    ///
    /// # Errors
    /// Another number of edges than the length of `receivers` and `senders`, or these do not fit together; another device.
    pub fn net_inflow(&self, receivers: &Index, senders: &Index) -> Result<Tensor> {
        let ends = Ends::of(NetInflow::NAME, receivers, senders, self)?;
        Self::apply(NetInflow { ends }, &[self])
    }

    /// This tensor `[…, nodes, F]` and beside it the mean of the `messages` `[…, edges, M]` that arrive at each node, zeros where none
    /// does: `[…, nodes, F + M]` (Hamilton et al. 2017, arXiv:1706.02216, the mean aggregator). The order of the additions is fixed.
    ///
    /// # Errors
    /// Another number of nodes than the bound of `receivers`, of messages than their number; other dtypes or devices.
    pub fn concat_segment_mean(&self, messages: &Tensor, receivers: &Index) -> Result<Tensor> {
        require_beside(ConcatSegmentMean::NAME, "receivers", receivers.device(), self.array())?;
        Self::apply(ConcatSegmentMean { segments: receivers.clone() }, &[self, messages])
    }

    /// Gives each position an equal share of its segment's value: `[…, segments, F]` → `[…, positions, F]`, the transpose of
    /// [`segment_mean`](Self::segment_mean) along the axis before the last.
    ///
    /// # Errors
    /// Another number of segments than the bound of `segments`; another device.
    pub fn segment_spread(&self, segments: &Index) -> Result<Tensor> {
        require_beside(SegmentSpread::NAME, "segments", segments.device(), self.array())?;
        Self::apply(SegmentSpread { segments: segments.clone() }, &[self])
    }
}
