//! Sums an array over all processes that a launcher started.
//!
//! ```text
//! cargo build --release -p gradewise-distributed --example sum
//! torchrun --nproc-per-node 3 --no-python target/release/examples/sum
//! ```
//!
//! `mpirun` and `srun` do as well; without a launcher there is one process, and nothing to sum.

use gradewise_distributed::{Communicator, Group, Launch, Tcp};
use gradewise_kernels::{Array, Device};
use std::{error::Error, sync::Arc};

fn main() -> Result<(), Box<dyn Error>> {
    let Some(launch) = Launch::from_env()? else {
        println!("one process: start this by torchrun, mpirun or srun for more");
        return Ok(());
    };
    let group = Arc::new(Group::join(&launch)?);
    let communicator = Tcp::new(&group)?;
    let mine = Array::from_slice(&[1.0f64, group.rank() as f64], [2], &Device::Cpu)?;
    let sum = communicator.all_reduce(mine)?.wait()?.to_vec::<f64>()?;
    println!(
        "rank {} of {}: {} processes, and their ranks add up to {}",
        group.rank(),
        group.world(),
        sum[0],
        sum[1]
    );
    Ok(())
}
