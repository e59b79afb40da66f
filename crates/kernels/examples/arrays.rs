//! Arrays alone: views without copies, broadcasting, reductions, and what the memory pool did.
//!
//! `cargo run --release -p gradewise-kernels --example arrays`

use gradewise_kernels::{Array, DType, Device, Index, Result, memory, ops};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn main() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let positions = Array::randn([5, 3], DType::F64, &Device::Cpu, &mut rng)?;
    println!("positions   {positions}");

    // All differences x_i − x_j by broadcasting two views of one array.
    let differences = ops::sub(&positions.unsqueeze(1)?, &positions.unsqueeze(0)?)?;
    let distances = ops::sqrt(&ops::sum(&ops::square(&differences)?, &[2], false)?)?;
    println!("distances   {distances}");

    // A view knows its strides, and is refused rather than misread where adjacent elements are needed.
    let x_coordinates = positions.slice(1, 0..1)?.squeeze(1)?;
    println!("a column    shape {}, strides {:?}", x_coordinates.shape(), x_coordinates.strides());
    if let Err(error) = x_coordinates.as_slice::<f64>() {
        println!("            {error}");
    }

    // The mean position of two groups, in a fixed order of addition.
    let groups = Index::new(&[0, 1, 0, 1, 1], 2, &Device::Cpu)?;
    let sums = ops::segment_sum(&positions, 0, &groups)?;
    let sizes = Array::from_slice(&[2.0, 3.0], [2, 1], &Device::Cpu)?;
    println!("group means {}", ops::div(&sums, &sizes)?);

    // A training loop makes and drops the same sizes again and again: after the first step, the pool serves them.
    let wide = Array::randn([8, 2000, 28], DType::F32, &Device::Cpu, &mut rng)?;
    for _ in 0..100 {
        ops::mul(&ops::add(&wide, &wide)?, &wide)?;
    }
    let memory::Stats { allocated, reserved, peak } = memory::stats();
    println!(
        "memory      {allocated} bytes in use, {peak} at most, {reserved} reserved after 200 operations"
    );
    println!("            {} bytes returned to the system", memory::trim());
    Ok(())
}
