//! The names that `#[derive(Module)]` gives to the parameters of a network.
//!
//! ```text
//! cargo run --release -p gradewise-nn --example names
//! ```

use gradewise_core::Signature;
use gradewise_kernels::Device;
use gradewise_nn::{
    Module,
    layers::{MvLinear, MvSilu},
};
use rand::SeedableRng;

#[derive(Module)]
struct Part {
    linear: MvLinear,
    #[module(rename = "act")]
    activation: MvSilu,
    /// No parameter, and no part that has any.
    #[module(skip)]
    width: usize,
}

#[derive(Module)]
struct Network {
    parts: Vec<Part>,
    last: Option<MvLinear>,
}

fn main() -> gradewise_nn::Result<()> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
    let mut part = |width: usize| -> gradewise_nn::Result<Part> {
        let linear = MvLinear::new(2, width, Signature::CL3).init(&Device::Cpu, &mut rng)?;
        Ok(Part { linear, activation: MvSilu::new(width, Signature::CL3).init(&Device::Cpu)?, width })
    };
    let parts = vec![part(2)?, part(4)?];
    let width = parts.iter().map(|part| part.width).max().unwrap_or(1);
    let last = MvLinear::new(width, 1, Signature::CL3).init(&Device::Cpu, &mut rng)?;
    let network = Network { parts, last: Some(last) };
    for (name, parameter) in network.named_parameters() {
        println!("{name:<24}{}", parameter.tensor().shape());
    }
    Ok(())
}
