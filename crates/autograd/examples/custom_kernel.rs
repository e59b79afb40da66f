//! An operation from kernels of one's own: `cargo run -p gradewise-autograd --example custom_kernel`.

use gradewise_autograd::{
    Result, Tensor,
    custom::{CheckOptions, CustomOp},
};
use gradewise_kernels::{Device, custom::CudaKernel, signature};

/// The CUDA C++, and the name by which the compiler's messages call it.
const SOURCE: (&str, &str) = ("swish.cu", include_str!("swish.cu"));

/// x / (1 + e^(−bx)).
pub fn swish(b: f64) -> Result<CustomOp> {
    let forward = signature!(fn swish(x: &[T; n], y: &mut [T; n], n: usize, b: f64))?;
    let backward = signature!(
        fn swish_backward(x: &[T; n], grad_y: &[T; n], grad_x: &mut [T; n], n: usize, b: f64)
    )?;
    CustomOp::builder("swish", CudaKernel::new(SOURCE.0, SOURCE.1, forward), move |inputs: &[Tensor]| {
        inputs[0].mul(&inputs[0].mul_scalar(b)?.sigmoid()?)
    })
    .backward(CudaKernel::new(SOURCE.0, SOURCE.1, backward))
    .scalars(&[b])
    .build()
}

/// Tests the operation on a device and uses it.
pub fn run(device: &Device) -> Result<()> {
    let swish = swish(1.5)?;
    if let Device::Cuda(cuda) = device {
        swish.warm_up(cuda)?;
    }
    println!("swish on {device}: {}", swish.check(device, &CheckOptions::default())?);

    let x = Tensor::from_slice(&[-1.0f32, 0.0, 2.0], [3], device)?.requires_grad();
    let loss = swish.apply(&[&x])?.sum_all()?;
    println!("loss {:.6}, gradient {:?}", loss.item()?, loss.backward()?.get(&x)?.to_vec::<f32>()?);
    Ok(())
}

#[allow(dead_code, reason = "a test calls `run` for each device")]
fn main() -> Result<()> {
    run(&Device::Cpu)?;
    match Device::cuda(0) {
        Ok(device) => run(&device),
        Err(error) => {
            println!("on the CPU alone: {error}");
            Ok(())
        }
    }
}
