//! Versors and their action on batches of multivectors, computed by the algebra crate alone: nothing of what is tested
//! takes part in the yardstick.

use crate::common::device;
use gradewise_autograd::Tensor;
use gradewise_core::{Algebra, Multivector, Rotor};
use gradewise_kernels::{Array, DType};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal, Uniform};

type Mv = Multivector<Algebra, f64>;

/// Which versors a law holds for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Products of reflections in any vectors that have an inverse: the whole Pin group.
    Pin,
    /// Products of reflections that mix no generators of different square: O(p) × O(q), no boosts, no translations.
    /// They preserve the sum of squares of the coefficients of each grade, too.
    Compact,
}

/// A vector to reflect along. Vectors near the null cone are passed over: reflections along them are boosts of large
/// rapidity, whose matrices have entries so large that the coefficients of u·x lose all digits against each other.
fn normal(algebra: &Algebra, group: Group, rng: &mut ChaCha8Rng) -> Mv {
    let signature = algebra.signature();
    let (p, q) = (usize::from(signature.p), usize::from(signature.q));
    loop {
        let mut components: Vec<f64> = (0..algebra.dimension()).map(|_| StandardNormal.sample(rng)).collect();
        if group == Group::Compact {
            let in_p = q == 0 || Uniform::new(0, p + q).expect("a range").sample(rng) < p;
            let kept = if in_p { 0..p } else { p..p + q };
            for (index, component) in components.iter_mut().enumerate() {
                *component *= f64::from(u8::from(kept.contains(&index)));
            }
        }
        // Components along null generators are translations, which have no such limit.
        let size: f64 = components.iter().take(p + q).map(|c| c * c).sum();
        let vector = algebra.vector(&components).expect("a vector");
        if vector.squared_norm().abs() > 0.8 * size {
            return vector.scaled(&(1.0 / size.sqrt()));
        }
    }
}

/// The matrix of a versor on coefficients.
pub struct Action {
    pub name: String,
    blades: usize,
    /// `[out][in]`
    matrix: Vec<f64>,
}

impl Action {
    fn of(name: String, versor: &Mv) -> Self {
        let algebra = versor.algebra().clone();
        let blades = algebra.blade_count();
        let mut matrix = vec![0.0; blades * blades];
        for column in 0..blades {
            let blade = Multivector::blade_in(&algebra, column, 1.0).expect("a blade");
            for (row, &value) in versor.sandwich(&blade).expect("a versor").coefficients().iter().enumerate()
            {
                matrix[row * blades + column] = value;
            }
        }
        Self { name, blades, matrix }
    }

    /// One product of each number of reflections from 1 to n, so both odd and even versors.
    pub fn reflections(algebra: &Algebra, group: Group, rng: &mut ChaCha8Rng) -> Vec<Self> {
        (1..=algebra.dimension())
            .map(|count| {
                let versor = (1..count).fold(normal(algebra, group, rng), |versor, _| {
                    versor.geometric_product(&normal(algebra, group, rng)).expect("one algebra")
                });
                Self::of(format!("{count} reflections of {group:?}({})", algebra.signature()), &versor)
            })
            .collect()
    }

    /// The rotation (or boost) by `angle` in the plane of generators `a` and `b`.
    pub fn rotor(algebra: &Algebra, (a, b): (usize, usize), angle: f64) -> Self {
        let generator = |index| algebra.generator::<f64>(index).expect("a generator");
        let plane = generator(a).outer_product(&generator(b)).expect("one algebra");
        let rotor = Rotor::from_plane_angle(&plane, angle).expect("a plane");
        Self::of(format!("angle {angle} in e{}{}", a + 1, b + 1), rotor.as_multivector())
    }

    /// The inversion x ↦ −x of vectors: the reflections in all coordinate planes.
    pub fn inversion(algebra: &Algebra) -> Self {
        let generator = |index| algebra.generator::<f64>(index).expect("a generator");
        let versor = (1..algebra.dimension()).fold(generator(0), |versor, index| {
            versor.geometric_product(&generator(index)).expect("one algebra")
        });
        Self::of("the inversion".to_owned(), &versor)
    }

    /// u·x on coefficients `[blades, …]`.
    pub fn apply_values(&self, values: &[f64]) -> Vec<f64> {
        let lane = values.len() / self.blades;
        let mut out = vec![0.0; values.len()];
        for (row, out) in out.chunks_exact_mut(lane).enumerate() {
            for (column, x) in values.chunks_exact(lane).enumerate() {
                let factor = self.matrix[row * self.blades + column];
                out.iter_mut().zip(x).for_each(|(out, x)| *out += factor * x);
            }
        }
        out
    }

    /// u·x, rounded to the dtype of x.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let values = self.apply_values(&x.array().to_f64_vec().expect("values"));
        tensor(&values, x.shape(), x.dtype())
    }

    /// The part of the matrix that acts on vectors, `[n][n]`, row-major.
    pub fn on_vectors(&self, dimension: usize) -> Vec<f64> {
        (0..dimension)
            .flat_map(|row| (0..dimension).map(move |column| (row + 1) * self.blades + column + 1))
            .map(|index| self.matrix[index])
            .collect()
    }
}

/// A constant from double-precision values.
pub fn tensor(values: &[f64], shape: &[usize], dtype: DType) -> Tensor {
    Tensor::new(Array::from_f64(values, shape, dtype, device()).expect("an array"))
}
