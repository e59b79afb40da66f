//! Messages on graphs. All four operations are linear and each other's transposes, so that every derivative runs their kernels.

use super::require_beside;
use crate::{Attributes, Result, Tensor};
use gradewise_kernels::{Array, Device, Index, ops};

/// The receivers and the senders of edges.
#[derive(Clone)]
struct Ends([Index; 2]);

impl Ends {
    /// Refuses lists that are not where `x` is.
    fn of(operation: &'static str, receivers: &Index, senders: &Index, x: &Tensor) -> Result<Self> {
        require_beside(operation, "receivers", receivers.device(), x.array())?;
        require_beside(operation, "senders", senders.device(), x.array())?;
        Ok(Self([receivers.clone(), senders.clone()]))
    }

    fn on(&self, device: &Device) -> Result<[Index; 2]> {
        let [receivers, senders] = &self.0;
        Ok([receivers.to_device(device)?, senders.to_device(device)?])
    }

    fn attributes(&self) -> Attributes {
        let [receivers, senders] = &self.0;
        Attributes::new()
            .list("receivers", receivers.to_vec())
            .list("senders", senders.to_vec())
            .with("bound", receivers.bound())
    }
}

impl Tensor {
    /// For each edge the features of its receiver less those of its sender and, after them, the edge's own: this tensor
    /// `[…, nodes, F]` and `attributes` `[…, edges, A]` → `[h[receivers] − h[senders], attributes]`, `[…, edges, F + A]`.
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
        const NAME: &str = "edge_difference";
        let ends = Ends::of(NAME, receivers, senders, self)?;
        let (told, given) = (ends.clone(), ends.clone());
        let inputs: Vec<&Tensor> = std::iter::once(self).chain(attributes).collect();
        let forward = move |x: &[Array]| {
            let [receivers, senders] = given.on(&x[0].device())?;
            Ok(ops::edge_difference(&x[0], x.get(1), &receivers, &senders)?)
        };
        Tensor::operate(
            NAME,
            &inputs,
            move || told.attributes(),
            forward,
            move |context, grad| {
                let axis = grad.shape().rank() - 1;
                let (features, width) = (context.inputs[0].shape()[axis], grad.shape()[axis]);
                let of_nodes = || {
                    let [receivers, senders] = ends.on(&grad.device())?;
                    // Read in place, as columns of the rows of `grad`.
                    grad.slice(axis, 0..features)?.net_inflow(&receivers, &senders)
                };
                let mut gradients = vec![context.needs(0).then(of_nodes).transpose()?];
                if context.inputs.len() > 1 {
                    gradients.push(context.needs(1).then(|| grad.slice(axis, features..width)).transpose()?);
                }
                Ok(gradients)
            },
        )
    }

    /// What arrives at each node less what leaves it: `[…, edges, F]` → `[…, nodes, F]`, the transpose of
    /// [`edge_difference`](Self::edge_difference). The order of the additions is fixed.
    ///
    /// # Errors
    /// Another number of edges than the length of `receivers` and `senders`, or these do not fit together; another device.
    pub fn net_inflow(&self, receivers: &Index, senders: &Index) -> Result<Tensor> {
        const NAME: &str = "net_inflow";
        let ends = Ends::of(NAME, receivers, senders, self)?;
        let (told, given) = (ends.clone(), ends.clone());
        let forward = move |x: &[Array]| {
            let [receivers, senders] = given.on(&x[0].device())?;
            Ok(ops::net_inflow(&x[0], &receivers, &senders)?)
        };
        Tensor::operate(
            NAME,
            &[self],
            move || told.attributes(),
            forward,
            move |_, grad| {
                let [receivers, senders] = ends.on(&grad.device())?;
                Ok(vec![Some(grad.edge_difference(None, &receivers, &senders)?)])
            },
        )
    }

    /// This tensor `[…, nodes, F]` and beside it the mean of the `messages` `[…, edges, M]` that arrive at each node, zeros where none
    /// does: `[…, nodes, F + M]` (Hamilton et al. 2017, arXiv:1706.02216, the mean aggregator). The order of the additions is fixed.
    ///
    /// # Errors
    /// Another number of nodes than the bound of `receivers`, of messages than their number; other dtypes or devices.
    pub fn concat_segment_mean(&self, messages: &Tensor, receivers: &Index) -> Result<Tensor> {
        const NAME: &str = "concat_segment_mean";
        require_beside(NAME, "receivers", receivers.device(), self.array())?;
        let (receivers, told, given) = (receivers.clone(), receivers.clone(), receivers.clone());
        let attributes = move || of_segments(&told);
        let forward =
            move |x: &[Array]| Ok(ops::concat_segment_mean(&x[0], &x[1], &given.to_device(&x[0].device())?)?);
        Tensor::operate(NAME, &[self, messages], attributes, forward, move |context, grad| {
            let axis = grad.shape().rank() - 1;
            let (features, width) = (context.inputs[0].shape()[axis], grad.shape()[axis]);
            let of_messages = || {
                let receivers = receivers.to_device(&grad.device())?;
                grad.slice(axis, features..width)?.segment_spread(&receivers)
            };
            Ok(vec![
                context.needs(0).then(|| grad.slice(axis, 0..features)).transpose()?,
                context.needs(1).then(of_messages).transpose()?,
            ])
        })
    }

    /// To each position an equal share of what its segment has: `[…, segments, F]` → `[…, positions, F]`, the transpose of
    /// [`segment_mean`](Self::segment_mean) along the axis before the last.
    ///
    /// # Errors
    /// Another number of segments than the bound of `segments`; another device.
    pub fn segment_spread(&self, segments: &Index) -> Result<Tensor> {
        const NAME: &str = "segment_spread";
        require_beside(NAME, "segments", segments.device(), self.array())?;
        let (segments, told, given) = (segments.clone(), segments.clone(), segments.clone());
        let forward = move |x: &[Array]| Ok(ops::segment_spread(&x[0], &given.to_device(&x[0].device())?)?);
        Tensor::operate(
            NAME,
            &[self],
            move || of_segments(&told),
            forward,
            move |_, grad| {
                let axis = grad.shape().rank() - 2;
                Ok(vec![Some(grad.segment_mean(axis, &segments.to_device(&grad.device())?)?)])
            },
        )
    }
}

fn of_segments(segments: &Index) -> Attributes {
    Attributes::new().list("segments", segments.to_vec()).with("bound", segments.bound())
}
