//! An operation with a kernel of one's own: softplus, ln(1 + eˣ), in its stable form, with both derivatives checked.
//!
//! `cargo run --release -p gradewise-autograd --example custom_function`

use gradewise_autograd::{
    BackwardContext, Derivative, Forward, Input, Operation, Result, Rule, Sample, Sizes, Tensor,
    registry::{Entry, Order},
};
use gradewise_kernels::{Array, Device, ops};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Softplus;

impl Operation for Softplus {
    const NAME: &'static str = "softplus";
    /// In mixed precision it stays in f32: it takes exponentials.
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(vec![Sample::new(Softplus, [Input::normal([sizes.batch, sizes.features])])])
    }

    /// max(x, 0) + ln(1 + e^(−|x|)): no exponential of a large number.
    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let x = &inputs[0];
        let decay = ops::exp(&ops::neg(&ops::abs(x)?)?)?;
        let output = ops::add(&ops::relu(x)?, &ops::log(&ops::add_scalar(&decay, 1.0)?)?)?;
        Ok(output.into())
    }

    /// The derivative is the logistic function.
    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let slope = ops::sigmoid(context.inputs[0].array())?;
        Ok(vec![Some(Tensor::new(ops::mul(grad.array(), &slope)?))])
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
    let (softplus_entry, sizes) = (Entry::of::<Softplus>(), Sizes::new("0,0,0".parse()?, 4, 7)?);
    for (name, order) in [("first", Order::First), ("second", Order::Second)] {
        let checked = softplus_entry.check(&Device::Cpu, &sizes, order, &Default::default())?;
        println!("{name} derivative: {checked} elements agree with central differences");
    }

    let extreme = Tensor::from_slice(&[-1000.0, 0.0, 1000.0], [3], &Device::Cpu)?.requires_grad();
    let y = softplus(&extreme)?;
    let slope = y.sum_all()?.backward()?.take(&extreme)?;
    println!("softplus of −1000, 0, 1000: {:?}, slopes {:?}", y.to_vec::<f64>()?, slope.to_vec::<f64>()?);
    Ok(())
}
