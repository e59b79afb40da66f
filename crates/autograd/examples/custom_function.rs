//! An operation with a kernel of one's own: softplus, ln(1 + eˣ), in its stable form, with both derivatives checked.
//!
//! `cargo run --release -p gradewise-autograd --example custom_function`

use gradewise_autograd::{
    BackwardContext, Function, GradcheckOptions, Result, Tensor, gradcheck, gradgradcheck,
};
use gradewise_kernels::{Array, DType, Device, ops};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

struct Softplus;

impl Function for Softplus {
    fn name(&self) -> &'static str {
        "softplus"
    }

    /// max(x, 0) + ln(1 + e^(−|x|)): no exponential of a large number.
    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let x = &inputs[0];
        let decay = ops::exp(&ops::neg(&ops::abs(x)?)?)?;
        let output = ops::add(&ops::relu(x)?, &ops::log(&ops::add_scalar(&decay, 1.0)?)?)?;
        Ok((output, vec![]))
    }

    /// The derivative is the logistic function.
    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        Ok(vec![Some(ops::mul(grad, &ops::sigmoid(&context.inputs()[0])?)?)])
    }

    /// For derivatives of second order: the same function, in operations that have derivatives of every order.
    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let x = &inputs[0];
        // ln(1 + eˣ) = x − ln σ(x).
        x.sub(&x.sigmoid()?.log()?)
    }
}

fn softplus(x: &Tensor) -> Result<Tensor> {
    Tensor::apply(Softplus, &[x])
}

fn main() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let x = Tensor::randn([4, 7], DType::F64, &Device::Cpu, &mut rng)?;
    let options = GradcheckOptions::default();
    println!("first derivative:  {}", gradcheck(|x| softplus(&x[0]), &[&x], &options)?);
    println!("second derivative: {}", gradgradcheck(|x| softplus(&x[0]), &[&x], &options)?);

    let extreme = Tensor::from_slice(&[-1000.0, 0.0, 1000.0], [3], &Device::Cpu)?.requires_grad();
    let y = softplus(&extreme)?;
    let slope = y.sum_all()?.backward()?.take(&extreme)?;
    println!("softplus of −1000, 0, 1000: {:?}, slopes {:?}", y.to_vec::<f64>()?, slope.to_vec::<f64>()?);
    Ok(())
}
