//! Gradients of a round of messages on the GPU, where the rule of the differences adds to gradients that came before.

use gradewise_autograd::{
    BackwardOptions, Result, Tensor, grad,
    observe::{Event, Observer, observe},
};
use gradewise_kernels::{DType, Index};
use gradewise_testing::gpu;
use rand::SeedableRng;

/// Sees everything and does nothing: a backward pass that is watched adds gradients up one operation at a time.
struct Watching;

impl Observer for Watching {
    fn observe(&mut self, _: &Event<'_>) -> Result<()> {
        Ok(())
    }
}

#[test]
fn gradients_of_messages_have_the_bits_of_sums_by_themselves() -> Result<()> {
    let Some(device) = gpu() else { return Ok(()) };
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
    // Gradients that wait for one another, and larger ones, which are added at once.
    for (nodes, features) in [(50, 28), (50, 13), (10_000, 28)] {
        let receivers: Vec<usize> = (0..4 * nodes).map(|edge| edge / 4).collect();
        let senders: Vec<usize> = (0..4 * nodes).map(|edge| (7 * edge + 1) % nodes).collect();
        let [receivers, senders] =
            [receivers, senders].map(|ends| Index::new(&ends, nodes, &device).unwrap());
        for dtype in [DType::F32, DType::BF16] {
            let mut random = |rows: usize, features: usize| {
                Tensor::randn([8, rows, features], dtype, &device, &mut rng).unwrap().requires_grad()
            };
            let (x, own, seed) =
                (random(nodes, features), random(4 * nodes, 1), random(nodes, 2 * features + 1));
            let h = x.mul_scalar(0.5)?;
            let messages = h.edge_difference(Some(&own), &receivers, &senders)?;
            let joined = h.concat_segment_mean(&messages, &receivers)?;
            let axis = joined.shape().rank() - 1;
            let residual = h.add(&joined.slice(axis, 1..1 + features)?)?;
            let run = || -> Result<Vec<Vec<f64>>> {
                let options = |seed: Tensor| BackwardOptions::seed(seed.detach());
                let of_both = [
                    grad(&residual, &[&x, &own], &options(seed.slice(axis, 0..features)?))?,
                    grad(&joined, &[&x, &own], &options(seed.clone()))?,
                ];
                of_both
                    .into_iter()
                    .flatten()
                    .map(|gradient| Ok(gradient.unwrap().array().to_f64_vec()?))
                    .collect()
            };
            let (alone, watched) = (run()?, observe(Watching, run).0?);
            assert!(alone == watched, "{nodes} nodes, {features} features, {dtype}");
        }
    }
    Ok(())
}
