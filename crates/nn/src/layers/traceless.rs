//! Products of rank 2 from vectors.

use super::Layer;
use crate::{Module, Parameter, Placement, Result, Visitor};
use gradewise_autograd::{Tensor, clifford::traceless_product};
use gradewise_core::Signature;

/// The symmetric traceless parts of products of linear maps of vectors: `[n, batch, inputs]` to
/// `[n(n+1)/2 − 1, batch, features]` ([`traceless_product`]), of three dimensions the spherical tensors of degree 2 that the
/// geometric product leaves out. The maps mix features alone, so the layer commutes with every isometry of the metric, reflections and
/// the inversion included.
///
/// Parameters: `left` and `right` `[inputs, features]`, normal with variance 1/inputs.
#[derive(Debug)]
pub struct TracelessProduct {
    signature: Signature,
    left: Parameter,
    right: Parameter,
}

/// A [`TracelessProduct`] to be.
#[derive(Clone, Copy, Debug)]
pub struct TracelessProductBuilder {
    inputs: usize,
    features: usize,
    signature: Signature,
}

impl TracelessProduct {
    /// From `inputs` vectors to `features` tensors in the metric of `signature`, none of whose generators squares to 0.
    ///
    /// ```
    /// use gradewise_autograd::Tensor;
    /// use gradewise_core::{DType, Signature};
    /// use gradewise_kernels::Device;
    /// use gradewise_nn::layers::{Layer, TracelessProduct};
    /// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
    ///
    /// let mut rng = ChaCha8Rng::seed_from_u64(1);
    /// let layer = TracelessProduct::new(4, 8, Signature::CL3).init(&Device::Cpu, &mut rng)?;
    /// let vectors = Tensor::randn([3, 10, 4], DType::F32, &Device::Cpu, &mut rng)?;
    /// assert_eq!(layer.forward(&vectors)?.shape().dims(), [5, 10, 8]);
    /// # Ok::<(), gradewise_nn::Error>(())
    /// ```
    #[expect(clippy::new_ret_no_self, reason = "a layer is built before it has parameters")]
    pub fn new(inputs: usize, features: usize, signature: Signature) -> TracelessProductBuilder {
        TracelessProductBuilder { inputs, features, signature }
    }
}

impl TracelessProductBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<TracelessProduct> {
        let (placement, Self { inputs, features, signature }) = (placement.into(), self);
        let deviation = (inputs.max(1) as f64).sqrt().recip();
        let left = placement.normal([inputs, features], deviation, rng)?;
        let right = placement.normal([inputs, features], deviation, rng)?;
        Ok(TracelessProduct { signature, left, right })
    }
}

impl Module for TracelessProduct {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("left", &self.left);
        visitor.parameter("right", &self.right);
    }
}

impl Layer for TracelessProduct {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (left, right) = (x.matmul(&self.left.tensor())?, x.matmul(&self.right.tensor())?);
        Ok(traceless_product(self.signature, &left, &right)?)
    }
}
