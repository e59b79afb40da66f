//! Operators of gradewise on memory of the crate `cudarc`, in a stream of its own: the weights of a product are trained where cudarc
//! has them. And work of cudarc alone as a graph that keeps its memory (`replay`).
//!
//! ```text
//! cd examples/cudarc && cargo run --release --features cuda
//! ```

mod learn;
mod replay;
mod slices;

use gradewise_core::{Algebra, Signature};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let learned = learn::learn(0, 400)?;
    for (step, loss) in learned.losses.iter().enumerate().step_by(100) {
        println!("step {step:>3}  mean squared error {loss:.2e}");
    }
    let algebra = Algebra::new(Signature::CL3)?;
    println!("grades of the factors and of the product, and the weight: 1 where the grades add up");
    for (path, weight) in algebra.paths().iter().zip(&learned.weights) {
        println!("{} {} → {}  {weight:+.6}", path.left, path.right, path.out);
    }
    let stream = replay::stream(0)?;
    let memory = replay::Memory::new(&stream, &[1.0, 2.0])?;
    let mut graph = replay::record(&stream, memory, &[3.0, 0.5])?;
    for _ in 0..3 {
        graph.replay()?;
    }
    println!("recorded once, replayed three times: {:?}", stream.clone_dtoh(&graph.memory().x)?);
    Ok(())
}
