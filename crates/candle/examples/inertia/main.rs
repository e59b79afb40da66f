//! Trains a network of gradewise's operators in candle: from masses at places that turn with an angular velocity to their
//! angular momentum. docs/inertia.md tells more of the task.
//!
//! ```text
//! cd crates/candle && cargo run --release --example inertia      # with --features cuda on a GPU, if there is one
//! ```

mod network;

use candle_core::{DType, Device, Result};
use gradewise_core::{Algebra, Signature};
use network::{Clouds, Descent, Draws, Network, initial};

fn main() -> Result<()> {
    let (device, mut draws) = (Device::cuda_if_available(0)?, Draws::new(1));
    println!("on {:?}", device.location());
    let clouds = Clouds::draw(128, &mut draws);
    let (x, y) = (clouds.input(&device)?, clouds.target(&device)?);
    let algebra = Algebra::new(Signature::CL3).map_err(candle_core::Error::wrap)?;
    let network = Network::new(&algebra, &initial(&mut draws), DType::F64, &device)?;
    let mut descent = Descent::new(&network.parameters);
    for step in 0..=400 {
        let loss = network.loss(&x, &y)?;
        if step % 100 == 0 {
            println!("step {step:>3}  mean squared error {:.2e}", loss.to_scalar::<f64>()?);
        }
        descent.step(&network.parameters, &loss)?;
    }
    let unseen = Clouds::draw(128, &mut draws);
    let error = network.loss(&unseen.input(&device)?, &unseen.target(&device)?)?;
    println!("unseen: mean squared error {:.2e}", error.to_scalar::<f64>()?);
    Ok(())
}
