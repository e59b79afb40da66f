//! The task and the network of the example, which `tests/training.rs` trains beside the same network in gradewise.

use candle_core::{DType, Device, Result, Tensor, Var};
use gradewise_autograd::clifford::Bias;
use gradewise_candle::Fused;
use gradewise_core::{Algebra, Cl3, Multivector};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// Points of a cloud.
pub const POINTS: usize = 6;
/// Features between the layers.
pub const WIDTH: usize = 8;
/// Blades, grades and paths of Cl(3,0).
const BLADES: usize = 8;
const GRADES: usize = 4;
const PATHS: usize = 20;
/// How far a step goes, and how much of the last one it repeats.
pub const RATE: f64 = 0.003;
pub const MOMENTUM: f64 = 0.9;

/// Numbers between −1 and 1.
pub struct Draws(ChaCha8Rng);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    fn next(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn many(&mut self, count: usize, scale: f64) -> Vec<f64> {
        (0..count).map(|_| scale * self.next()).collect()
    }
}

/// Clouds of masses at places that turn with an angular velocity ω, and their angular momenta L = Σ m x ∧ (x ⌋ ω).
pub struct Clouds {
    /// `[8, clouds × points, 3]`: the mass as a scalar, the place as a vector, ω as a bivector.
    pub input: Vec<f64>,
    /// `[3, clouds, 1]`: L over e12, e13 and e23.
    pub target: Vec<f64>,
    pub count: usize,
}

impl Clouds {
    pub fn draw(count: usize, draws: &mut Draws) -> Self {
        let rows = count * POINTS;
        let (mut input, mut target) = (vec![0.0; BLADES * rows * 3], vec![0.0; 3 * count]);
        for cloud in 0..count {
            let spin = !Multivector::<Cl3, f64>::vector([(); 3].map(|()| draws.next()));
            let mut momentum = Multivector::default();
            for row in cloud * POINTS..(cloud + 1) * POINTS {
                let mass = 0.6 + 0.4 * draws.next();
                let x = Multivector::<Cl3, f64>::vector([(); 3].map(|()| draws.next()));
                momentum += (x ^ x.left_contraction(&spin)) * mass;
                for blade in 0..BLADES {
                    let mut put = |feature: usize, value| input[(blade * rows + row) * 3 + feature] = value;
                    match blade {
                        0 => put(0, mass),
                        1..4 => put(1, x.coefficients()[blade]),
                        4..7 => put(2, spin.coefficients()[blade]),
                        _ => {}
                    }
                }
            }
            for plane in 0..3 {
                target[plane * count + cloud] = momentum.coefficients()[4 + plane];
            }
        }
        Self { input, target, count }
    }

    pub fn input(&self, device: &Device) -> Result<Tensor> {
        Tensor::from_slice(&self.input, (BLADES, self.count * POINTS, 3), device)
    }

    pub fn target(&self, device: &Device) -> Result<Tensor> {
        Tensor::from_slice(&self.target, (3, self.count, 1), device)
    }
}

/// The shapes of the parameters, and how far from 0 they begin, or that they begin at 1.
pub fn parameters() -> Vec<(Vec<usize>, Option<f64>)> {
    let uniform = |shape: &[usize], inputs: usize| (shape.to_vec(), Some((3.0 / inputs as f64).sqrt()));
    vec![
        uniform(&[GRADES, 3, WIDTH], 3),
        (vec![WIDTH], Some(0.1)),
        uniform(&[GRADES, WIDTH, WIDTH], WIDTH),
        (vec![WIDTH, GRADES], Some(0.1)),
        uniform(&[WIDTH, PATHS], PATHS / 2),
        uniform(&[GRADES, WIDTH, WIDTH], WIDTH),
        (vec![WIDTH], Some(0.1)),
        (vec![WIDTH, GRADES], None),
        (vec![WIDTH, GRADES], Some(0.1)),
        (vec![WIDTH], None),
        uniform(&[GRADES, WIDTH, WIDTH], WIDTH),
        uniform(&[WIDTH, PATHS], PATHS / 2),
        uniform(&[GRADES, WIDTH, 1], WIDTH),
    ]
}

/// Their first values.
pub fn initial(draws: &mut Draws) -> Vec<Vec<f64>> {
    let values = parameters().into_iter().map(|(shape, scale)| {
        let count = shape.iter().product();
        scale.map_or_else(|| vec![1.0; count], |scale| draws.many(count, scale))
    });
    values.collect()
}

/// Points one by one through the same layers, then summed.
pub struct Network {
    linear: Fused,
    layer: Fused,
    silu: Fused,
    map: Fused,
    product: Fused,
    norm: Fused,
    pub parameters: Vec<Var>,
}

impl Network {
    pub fn new(algebra: &Algebra, initial: &[Vec<f64>], dtype: DType, device: &Device) -> Result<Self> {
        let variable = |((shape, _), values): ((Vec<usize>, _), &Vec<f64>)| {
            Var::from_tensor(&Tensor::from_slice(values, shape, device)?.to_dtype(dtype)?)
        };
        Ok(Self {
            linear: Fused::mv_linear(algebra, Some(Bias::Scalar))?,
            layer: Fused::steerable_layer(algebra)?,
            silu: Fused::mv_silu(algebra)?,
            map: Fused::mv_linear(algebra, None)?,
            product: Fused::sgp(algebra, Default::default())?,
            norm: Fused::mv_layer_norm(algebra)?,
            parameters: parameters().into_iter().zip(initial).map(variable).collect::<Result<_>>()?,
        })
    }

    /// L as the network has it, `[3, clouds, 1]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let p: Vec<&Tensor> = self.parameters.iter().map(Var::as_tensor).collect();
        let x = self.linear.apply(&[x, p[0], p[1]])?;
        let y = self.layer.apply(&[&x, p[2], p[3], p[4], p[5], p[6]])?;
        let gated = self.silu.apply(&[&y, p[7], p[8]])?;
        let even = self.norm.apply(&[&gated, p[9]])?;
        let y = (y + self.map.apply(&[&even, p[10]])?)?;
        let z = (&y + self.product.apply(&[&x, &y, p[11]])?)?;
        let planes = self.map.apply(&[&z, p[12]])?.narrow(0, 4, 3)?;
        planes.reshape((3, x.dim(1)? / POINTS, POINTS))?.sum_keepdim(2)
    }

    pub fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        (self.forward(x)? - y)?.sqr()?.mean_all()
    }
}

/// Steps down the gradient with momentum.
pub struct Descent(Vec<Option<Tensor>>);

impl Descent {
    pub fn new(parameters: &[Var]) -> Self {
        Self(vec![None; parameters.len()])
    }

    pub fn step(&mut self, parameters: &[Var], loss: &Tensor) -> Result<()> {
        let gradients = loss.backward()?;
        for (parameter, velocity) in parameters.iter().zip(&mut self.0) {
            let Some(gradient) = gradients.get(parameter) else { continue };
            let next = match velocity.take() {
                Some(velocity) => ((velocity * MOMENTUM)? + gradient)?,
                None => gradient.clone(),
            };
            parameter.set(&(parameter.as_tensor() - (&next * RATE)?)?)?;
            *velocity = Some(next);
        }
        Ok(())
    }
}
