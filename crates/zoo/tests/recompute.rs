//! Memory for time: blocks of the transformer that are computed again in the backward pass. One test, for the counters of memory are
//! those of the process.

use gradewise_autograd::{Policy, autocast_with, training};
use gradewise_kernels::{DType, Device, memory::Monitor};
use gradewise_nn::{Module, Parameter, Placement, data::Split, train::Samples};
use gradewise_zoo::{
    data::text::TextData,
    models::{Gpt, GptConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const LINE: &str = "pack my box with five dozen liquor jugs. ";

#[test]
fn blocks_that_are_computed_again_give_the_same_gradients_in_less_memory() {
    let placement = Placement::from(&Device::Cpu);
    let data = TextData::new(LINE.repeat(20).into_bytes(), Split::Train, 16, 100).unwrap();
    let batch = data.batch(&[3, 1, 4, 15, 9, 26, 5, 35], &placement).unwrap();
    let step = |dropout: f64, recompute: bool, policy: Option<&Policy>| {
        let config = GptConfig {
            block: 16,
            width: 32,
            heads: 2,
            layers: 6,
            dropout,
            attention_dropout: dropout,
            recompute,
        };
        let model = Gpt::init(&config, &placement, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
        let monitor = Monitor::start(&Device::Cpu).unwrap();
        // The backward pass is outside: what is computed again is a pass of training all the same.
        let loss = training(2, || match policy {
            Some(policy) => autocast_with(policy, || model.loss(&batch)),
            None => model.loss(&batch),
        });
        let gradients = loss.unwrap().backward().unwrap();
        let peak = monitor.delta().unwrap().peak;
        let parameters = model.named_parameters();
        let values = |(_, parameter): &(String, Parameter)| {
            gradients.get(&parameter.tensor()).unwrap().array().to_f64_vec().unwrap()
        };
        (parameters.iter().map(values).collect::<Vec<_>>(), peak)
    };
    let bf16 = Policy::new(DType::BF16).unwrap();
    for (dropout, policy) in [(0.0, None), (0.0, Some(&bf16)), (0.3, None)] {
        let ((kept, more), (again, less)) = (step(dropout, false, policy), step(dropout, true, policy));
        assert_eq!(kept, again, "the same bits with dropout {dropout}");
        assert!((less as f64) < 0.7 * more as f64, "{less} of {more}");
    }
}
