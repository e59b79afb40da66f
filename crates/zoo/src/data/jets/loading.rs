//! Batches made of jets: rest frames and products in double precision, on all threads.

use super::{
    FourMomentum, JetBatch, JetSets,
    batch::{CHANNELS, FILLED, REFERENCES},
};
use gradewise_autograd::Tensor;
use gradewise_core::DType;
use gradewise_kernels::{Array, Device, Element};
use gradewise_nn::{Placement, Result, data::Samples};
use half::{bf16, f16};
use rayon::prelude::*;
use std::sync::OnceLock;

impl Samples for JetSets {
    type Batch = JetBatch;

    fn len(&self) -> usize {
        self.labels().len()
    }

    fn lengths(&self) -> Option<Vec<u32>> {
        Some((0..self.labels().len()).map(|jet| self.count(jet) as u32).collect())
    }

    fn batch(&self, indices: &[usize], Placement { device, dtype }: &Placement) -> Result<JetBatch> {
        match dtype {
            DType::F64 => batch::<f64>(self, indices, device),
            DType::F32 => batch::<f32>(self, indices, device),
            DType::F16 => batch::<f16>(self, indices, device),
            DType::BF16 => batch::<bf16>(self, indices, device),
        }
    }
}

fn batch<T: Element>(sets: &JetSets, indices: &[usize], device: &Device) -> Result<JetBatch> {
    let jets = indices.len();
    let longest = indices.iter().map(|&jet| sets.count(jet)).max().unwrap_or(0);
    let particles = sets.padded(longest);
    let nodes = jets * particles;
    let zeros = |elements: usize| vec![T::zero(); elements];
    let mut features = zeros(FILLED * nodes * CHANNELS);
    let mut products = zeros(nodes * particles);
    let (mut particle_weights, mut neighbour_weights) = (zeros(nodes), zeros(nodes));
    let (scalars, rest) = features.split_at_mut(nodes * CHANNELS);
    let (energies, rest) = rest.split_at_mut(nodes * CHANNELS);
    let (x, rest) = rest.split_at_mut(nodes * CHANNELS);
    let (y, z) = rest.split_at_mut(nodes * CHANNELS);
    let of_jet = |blade| <[T]>::par_chunks_mut(blade, particles * CHANNELS);
    let rows = (
        indices.par_iter(),
        (of_jet(scalars), of_jet(energies), of_jet(x), of_jet(y), of_jet(z)),
        products.par_chunks_mut(particles * particles),
        particle_weights.par_chunks_mut(particles),
        neighbour_weights.par_chunks_mut(particles),
    );
    let axes: Vec<[FourMomentum; REFERENCES]> = rows
        .into_par_iter()
        .map(|(&jet, (scalars, energies, x, y, z), products, particle_weights, neighbour_weights)| {
            let resting = Resting::of(sets, jet);
            resting.write_features(scalars, [energies, x, y, z]);
            resting.write_products(products, particles);
            let count = resting.momenta.len();
            particle_weights[..count].fill(T::narrow(1.0 / count as f64));
            neighbour_weights[..count].fill(T::narrow(1.0 / (count as f64 - 1.0).max(1.0)));
            resting.references
        })
        .collect();
    let mut references = zeros(4 * jets * REFERENCES);
    for (position, axes) in axes.iter().enumerate() {
        for (channel, axis) in axes.iter().enumerate() {
            for component in 0..4 {
                references[(component * jets + position) * REFERENCES + channel] =
                    T::narrow(axis.0[component]);
            }
        }
    }
    let class = |&jet: &usize| if sets.labels()[jet] { [T::zero(), T::one()] } else { [T::one(), T::zero()] };
    let target: Vec<T> = indices.iter().flat_map(class).collect();
    let tensor = |values: Vec<T>, shape: &[usize]| -> Result<Tensor> {
        Ok(Tensor::new(Array::from_vec(values, shape, device)?))
    };
    Ok(JetBatch {
        features: tensor(features, &[FILLED, nodes, CHANNELS])?,
        products: tensor(products, &[jets, particles, particles])?,
        references: tensor(references, &[4, jets, REFERENCES])?,
        particle_weights: tensor(particle_weights, &[1, nodes, 1])?,
        neighbour_weights: tensor(neighbour_weights, &[jets, particles])?,
        target: tensor(target, &[jets, 2])?,
        jets,
        particles,
        edges: OnceLock::new(),
    })
}

/// A jet in its rest frame, in units of its mass.
struct Resting {
    mass: f64,
    momenta: Vec<FourMomentum>,
    /// The directions of time and beam.
    references: [FourMomentum; REFERENCES],
}

impl Resting {
    fn of(jets: &JetSets, jet: usize) -> Self {
        let total = jets.total(jet);
        let mass = total.square().sqrt();
        let scaled = |momentum: FourMomentum| FourMomentum(momentum.0.map(|number| number / mass));
        let momenta = jets.jet(jet).map(|momentum| scaled(momentum.at_rest_with(&total, mass))).collect();
        let axes = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        let references = axes.map(|axis| FourMomentum(axis).at_rest_with(&total, mass));
        Self { mass, momenta, references }
    }

    /// Rows `[particles, CHANNELS]` of the scalar and of each component of the vectors, zero before.
    fn write_features<T: Element>(&self, scalars: &mut [T], vectors: [&mut [T]; 4]) {
        let logarithm = T::narrow((self.mass / 100.0).ln());
        for (row, momentum) in scalars.chunks_exact_mut(CHANNELS).zip(&self.momenta) {
            (row[2], row[3]) = (T::narrow(2.0 * momentum.0[0]), logarithm);
        }
        // The jet at rest.
        for (axis, (rows, of_jet)) in vectors.into_iter().zip([1.0, 0.0, 0.0, 0.0]).enumerate() {
            for (row, momentum) in rows.chunks_exact_mut(CHANNELS).zip(&self.momenta) {
                (row[0], row[1]) = (T::narrow(momentum.0[axis]), T::narrow(of_jet));
            }
        }
    }

    /// `[particles, particles]`, zero before.
    fn write_products<T: Element>(&self, products: &mut [T], particles: usize) {
        // Components apart, so that the compiler computes several products at once.
        let component =
            |axis: usize| self.momenta.iter().map(|momentum| momentum.0[axis]).collect::<Vec<_>>();
        let [energies, x, y, z] = [0, 1, 2, 3].map(component);
        for (row, own) in products.chunks_exact_mut(particles).zip(&self.momenta) {
            let others = energies.iter().zip(&x).zip(&y).zip(&z);
            for (product, (((&e, &x), &y), &z)) in row.iter_mut().zip(others) {
                *product = T::narrow(own.dot(&FourMomentum([e, x, y, z])).max(0.0));
            }
        }
    }
}

#[cfg(test)]
mod tests;
