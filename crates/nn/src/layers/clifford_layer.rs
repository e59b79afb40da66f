//! The layer of the Flash-Clifford family.

use super::{Layer, mv_linear::Bias};
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{
    Tensor,
    clifford::{self, LayerOptions, ProductOptions},
};
use gradewise_core::{Algebra, Signature};

/// `y = mv_linear(x) + bias`, then `norm(product(gate(x), gate(y), weight))`.
///
/// Parameters, named as in the Python reference: `gp_weight` `[features, paths]` with variance 1/(n+1), or
/// `[paths, features, features]` when fully connected; `linear_weight` `[grades, features, features]` with variance
/// 1/(features·(n+1)), or 1/features when fully connected; `linear_bias` `[features]`, zero.
///
/// ```
/// use gradewise_core::{DType, Signature};
/// use gradewise_kernels::Device;
/// use gradewise_nn::layers::{CliffordLayer, Layer};
/// use gradewise_autograd::Tensor;
/// use rand::SeedableRng;
///
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
/// let layer = CliffordLayer::new(16, Signature::CL3).normalize(true).init(&Device::Cpu, &mut rng)?;
/// let x = Tensor::randn([8, 4, 16], DType::F32, &Device::Cpu, &mut rng)?.requires_grad();
/// let grads = layer.forward(&x)?.square()?.mean_all()?.backward()?;
/// assert_eq!(grads.get(&x)?.shape(), x.shape());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Module, DeepClone)]
pub struct CliffordLayer {
    #[module(skip)]
    algebra: Algebra,
    gp_weight: Parameter,
    linear_weight: Parameter,
    linear_bias: Parameter,
    #[module(skip)]
    normalize: bool,
    #[module(skip)]
    fully_connected: bool,
    #[module(skip)]
    bias: Bias,
    #[module(skip)]
    recompute: bool,
}

/// Settings of a [`CliffordLayer`] of `features` over the algebra of `signature`.
#[derive(Clone, Debug, Builder)]
pub struct CliffordLayerBuilder {
    features: usize,
    signature: Signature,
    /// Whether the output is RMS-normalised by grade (the default). The norm is a Euclidean sum of squares: it keeps the
    /// layer equivariant under O(n), not under boosts of an indefinite metric.
    #[builder(default = true)]
    normalize: bool,
    /// Whether the product mixes features with a matrix per path; by default it has a weight per feature and path.
    #[builder(default = false)]
    fully_connected: bool,
    /// Which blades the bias goes to: the scalar by default. [`Bias::AllBlades`] reproduces the Python reference and is
    /// **not** equivariant.
    #[builder(default = Bias::Scalar)]
    bias: Bias,
    /// Whether the linearly mapped input is recomputed in the backward pass instead of being stored: saves an array of the size of the
    /// input, for one more matrix product. It is stored by default.
    #[builder(default = false)]
    recompute: bool,
}

impl CliffordLayerBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<CliffordLayer> {
        at_least_one("CliffordLayer", &[("features", self.features)])?;
        let placement = placement.into();
        let Self { features: n, signature, normalize, fully_connected, bias, recompute } = self;
        let algebra = Algebra::new(signature)?;
        let (paths, grades) = (algebra.paths().len(), algebra.grade_count());
        let deviation = |fan_in: usize| (fan_in.max(1) as f64).sqrt().recip();
        let shape = if fully_connected { vec![paths, n, n] } else { vec![n, paths] };
        let gp_weight = placement.normal(shape, deviation(grades), rng)?;
        let fan_in = if fully_connected { n } else { n * grades };
        let linear_weight = placement.normal([grades, n, n], deviation(fan_in), rng)?;
        let linear_bias = placement.filled([n], 0.0)?;
        Ok(CliffordLayer {
            algebra,
            gp_weight,
            linear_weight,
            linear_bias,
            normalize,
            fully_connected,
            bias,
            recompute,
        })
    }
}

impl Layer for CliffordLayer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("CliffordLayer::forward", x, || {
            let bias = self.linear_bias.tensor();
            let operands = clifford::CliffordLayer {
                x,
                linear: &self.linear_weight.tensor(),
                bias: Some((&bias, self.bias)),
                w: &self.gp_weight.tensor(),
            };
            let options = LayerOptions {
                fully_connected: self.fully_connected,
                product: ProductOptions { gate: true, normalize: self.normalize },
                recompute: self.recompute,
            };
            Ok(clifford::clifford_layer(&self.algebra, &operands, options)?)
        })
    }
}
