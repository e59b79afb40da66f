//! What the tests across crates share.

#![allow(dead_code, reason = "each test file uses a part")]

use gradewise_kernels::{Array, Device, ops};
use gradewise_nn::Module;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::sync::OnceLock;

/// Where the tests compute: the CPU, or what `GRADEWISE_TEST_DEVICE` names, such as `cuda`.
pub fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| match std::env::var("GRADEWISE_TEST_DEVICE") {
        Ok(name) => name.parse().expect("GRADEWISE_TEST_DEVICE names a device of this machine"),
        Err(_) => Device::Cpu,
    })
}

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Moves every parameter away from its initial value, as training does: biases and gains, which start as constants,
/// become random numbers too. No parameter is left zero.
pub fn randomize(module: &dyn Module, rng: &mut ChaCha8Rng) {
    for (name, parameter) in module.named_parameters() {
        let old = parameter.array();
        let noise = Array::randn(old.shape(), old.dtype(), &old.device(), rng).unwrap();
        let values = old.to_f64_vec().unwrap();
        let size = (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt();
        let step = 0.3 * if size > 0.0 { size } else { 1.0 };
        let new = ops::add(&old, &ops::mul_scalar(&noise, step).unwrap()).unwrap();
        assert!(new.to_f64_vec().unwrap().iter().all(|&value| value != 0.0), "{name} has zeros");
        parameter.set(new).unwrap();
    }
}
