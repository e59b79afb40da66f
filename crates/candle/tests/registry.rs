//! Every operation of the registry gives in candle what it gives in gradewise, bit for bit, forward and backward.

mod common;

use common::{Place, compare, every_sample};
use gradewise_autograd::registry::entries;

#[test]
fn an_operation_gives_the_bits_that_it_gives_without_candle() {
    assert!(entries().len() > 50, "the registry is empty");
    for (signature, batch, features) in
        [((3, 0, 0), 3, 5), ((3, 0, 1), 1, 4), ((1, 1, 0), 2, 1), ((2, 0, 0), 0, 2)]
    {
        every_sample(signature, batch, features, |sample| compare::<f64>(sample, true, &Place::CPU));
        every_sample(signature, batch, features, |sample| compare::<f32>(sample, false, &Place::CPU));
    }
}

#[test]
fn sixteen_bit_dtypes_are_computed_wide_and_rounded() {
    every_sample((3, 0, 0), 2, 4, |sample| {
        if sample.operation().starts_with("mv_") || sample.operation().ends_with("gp") {
            compare::<half::bf16>(sample, false, &Place::CPU);
            compare::<half::f16>(sample, false, &Place::CPU);
        }
    });
}
