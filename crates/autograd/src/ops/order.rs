//! Order along an axis, and elements by their position.

use super::prelude::*;
use gradewise_kernels::ops::Order;

/// An operation that takes the elements at `positions` along `axis`.
macro_rules! gather {
    ($(#[$doc:meta])* $type:ident, $name:literal, $rule:expr, $values:expr, |$sizes:ident| $positions:expr) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize)]
        pub(crate) struct $type {
            axis: usize,
            #[serde(with = "attributes::positions")]
            positions: Positions,
        }

        impl Operation for $type {
            const NAME: &'static str = $name;
            const RULE: Rule = $rule;
            const DERIVATIVE: Derivative = Derivative::Differentiable;
            const TRAFFIC: Traffic = Traffic::AsWritten;

            fn samples($sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
                let [batch, features] = matrix($sizes);
                let (values, count): (Vec<usize>, usize) = $positions;
                let positions = Positions::new(&values, [batch, count], features, &Device::Cpu)?;
                Ok(vec![Sample::new($type { axis: 1, positions }, [Input::with([batch, features], $values)])])
            }

            fn forward(&self, inputs: &[Array]) -> Result<Forward> {
                let positions = self.positions.to_device(&inputs[0].device())?;
                Ok(ops::gather(&inputs[0], self.axis, &positions)?.into())
            }

            fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
                let size = context.inputs[0].shape()[self.axis];
                let positions = self.positions.to_device(&grad.device())?;
                Ok(vec![Some(grad.scatter_add(self.axis, &positions, size)?)])
            }
        }
    };
}

/// The positions that turn each row around: a permutation like that of a sort.
fn reversed(batch: usize, features: usize) -> (Vec<usize>, usize) {
    ((0..batch).flat_map(|_| (0..features).rev()).collect(), features)
}

gather!(
    /// The elements at given positions, of which some occur several times.
    Gather, "gather", Rule::Widest, Values::Normal,
    |sizes| (sizes.indices(2 * sizes.batch, sizes.features), 2)
);
gather!(
    /// The elements in order, at the positions that the sort found.
    Sort, "sort", Rule::Widest, Values::Distinct,
    |sizes| reversed(sizes.batch, sizes.features)
);
gather!(
    /// The first elements in order, at the positions that the sort found.
    TopK, "top_k", Rule::Widest, Values::Distinct,
    |sizes| ((0..sizes.batch).map(|row| row % sizes.features).collect(), 1)
);

/// The transpose of [`Gather`].
#[derive(Serialize, Deserialize)]
pub(crate) struct ScatterAdd {
    axis: usize,
    #[serde(with = "attributes::positions")]
    positions: Positions,
    size: usize,
}

impl Operation for ScatterAdd {
    const NAME: &'static str = "scatter_add";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        let size = features + 1;
        let values = sizes.indices(batch * features, size);
        let positions = Positions::new(&values, [batch, features], size, &Device::Cpu)?;
        Ok(vec![Sample::new(ScatterAdd { axis: 1, positions, size }, [Input::normal([batch, features])])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let positions = self.positions.to_device(&inputs[0].device())?;
        Ok(ops::scatter_add(&inputs[0], self.axis, &positions, self.size)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.gather(self.axis, &self.positions.to_device(&grad.device())?)?)])
    }
}

impl Tensor {
    /// The elements along `axis` in order, and where they were. Equal ones stay in the order of their positions.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn sort(&self, axis: usize, order: Order) -> Result<(Tensor, Positions)> {
        let (_, positions) = ops::sort(self.array(), axis, order)?;
        let operation = Sort { axis, positions: positions.clone() };
        Ok((Self::apply(operation, &[self])?, positions))
    }

    /// The first `count` elements of [`sort`](Self::sort) along `axis`: with [`Order::Descending`] the greatest, in order.
    ///
    /// # Errors
    /// An axis out of range, or more elements than there are along it.
    pub fn top_k(&self, axis: usize, count: usize, order: Order) -> Result<(Tensor, Positions)> {
        let (_, positions) = ops::top_k(self.array(), axis, count, order)?;
        let operation = TopK { axis, positions: positions.clone() };
        Ok((Self::apply(operation, &[self])?, positions))
    }

    /// Where along `axis` the greatest element is, the first of several; NaN is greater than every number.
    ///
    /// # Errors
    /// An axis that is out of range or empty.
    pub fn argmax(&self, axis: usize) -> Result<Positions> {
        Ok(ops::argmax(self.array(), axis)?)
    }

    /// Where along `axis` the least element is, the first of several; NaN is less than every number.
    ///
    /// # Errors
    /// As [`argmax`](Self::argmax).
    pub fn argmin(&self, axis: usize) -> Result<Positions> {
        Ok(ops::argmin(self.array(), axis)?)
    }

    /// The elements at `positions` along `axis`: out[…, p, …] = self[…, positions[…, p, …], …]. All other sizes agree.
    ///
    /// # Errors
    /// An axis out of range, sizes that differ, positions past the end, another device.
    pub fn gather(&self, axis: usize, positions: &Positions) -> Result<Tensor> {
        require_beside("gather", "positions", &positions.device(), self.array())?;
        Self::apply(Gather { axis, positions: positions.clone() }, &[self])
    }

    /// Zeros with `size` entries along `axis`, plus each element at its position: the transpose of [`gather`](Self::gather). The
    /// order of the additions is fixed.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), with the shape of this tensor that of the positions.
    pub fn scatter_add(&self, axis: usize, positions: &Positions, size: usize) -> Result<Tensor> {
        require_beside("scatter_add", "positions", &positions.device(), self.array())?;
        Self::apply(ScatterAdd { axis, positions: positions.clone(), size }, &[self])
    }
}
