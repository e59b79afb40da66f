//! The operators that golden files name.

use super::{Golden, TensorReport};
use gradewise_autograd::{
    BackwardOptions, Tensor,
    clifford::{self, Bias, ProductOptions, Steerable, SteerableLayer},
};
use gradewise_core::Algebra;
use std::collections::BTreeMap;

/// The inputs of a case, by name.
struct Inputs(BTreeMap<String, Tensor>);

impl Inputs {
    fn get(&self, name: &str) -> Result<&Tensor, String> {
        self.0.get(name).ok_or_else(|| format!("the file has no tensor `in.{name}`"))
    }
}

pub(super) fn run(golden: &Golden<'_>) -> Result<Vec<TensorReport>, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let options = golden.options;
    if let Some(layout) = golden.file.metadata.get("layout")
        && layout != "blades,batch,features"
    {
        return Err(format!("layout `{layout}` is not supported, only blades,batch,features"));
    }
    let mut inputs = BTreeMap::new();
    for (name, _) in golden.file.iter() {
        let Some(short) = name.strip_prefix("in.") else { continue };
        let array = golden.file.array(name, options.dtype, &options.device).map_err(|e| text(&e))?;
        inputs.insert(short.to_owned(), Tensor::new(array).requires_grad());
    }
    let inputs = Inputs(inputs);
    let output = evaluate(golden, &inputs)?;
    let values = |tensor: &Tensor| tensor.array().to_f64_vec().map_err(|e| text(&e));
    let mut reports = vec![golden.compare("y", "out.y", &values(&output)?)?];

    let cotangent = golden.file.array("cot.y", options.dtype, &options.device).map_err(|e| text(&e))?;
    let gradients =
        output.backward_with(&BackwardOptions::seed(Tensor::new(cotangent))).map_err(|e| text(&e))?;
    for (short, input) in &inputs.0 {
        let name = format!("grad.{short}");
        // A file says by its table of errors which gradients it holds; one that has lost a gradient must not pass.
        let promised = golden.f32_error.is_empty() || golden.f32_error.contains_key(&name);
        if promised || golden.file.get(&name).is_some() {
            let gradient = gradients.get(input).map_err(|e| text(&e))?;
            reports.push(golden.compare(&name, &name, &values(gradient)?)?);
        }
    }
    Ok(reports)
}

fn evaluate(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let algebra = &Algebra::new(golden.signature()?).map_err(|error| error.to_string())?;
    let x = inputs.get("x")?;
    let normalize = golden.flag("normalize", true)?;
    let plain = ProductOptions::default();
    let result = match golden.operation {
        "geometric_product" => clifford::geometric_product(algebra, x, inputs.get("y")?),
        "sgp" => clifford::sgp(algebra, x, inputs.get("y")?, inputs.get("w")?, plain),
        "fcgp" => clifford::fcgp(algebra, x, inputs.get("y")?, inputs.get("w")?, plain),
        "gelu_sgp_norm" => clifford::gelu_sgp_norm(algebra, x, inputs.get("y")?, inputs.get("w")?, normalize),
        "gelu_fcgp_norm" => {
            clifford::gelu_fcgp_norm(algebra, x, inputs.get("y")?, inputs.get("w")?, normalize)
        }
        "mv_silu" => clifford::mv_silu(algebra, x, inputs.get("a")?, inputs.get("b")?),
        "mv_normalization" => clifford::mv_normalization(algebra, x, inputs.get("a")?),
        "mv_layer_norm" => clifford::mv_layer_norm(algebra, x, inputs.get("a")?),
        "mv_linear" => {
            let bias = inputs.0.get("b").map(|b| Ok::<_, String>((b, bias(golden)?))).transpose()?;
            clifford::mv_linear(algebra, x, inputs.get("w")?, bias)
        }
        "clifford_layer" => return clifford_layer(golden, algebra, inputs),
        "steerable_gp" | "fc_steerable_gp" => return steerable(golden, algebra, inputs),
        unknown => {
            return Err(format!(
                "unknown operation `{unknown}`: nothing to check it with, so it does not pass"
            ));
        }
    };
    result.map_err(|error| error.to_string())
}

fn bias(golden: &Golden<'_>) -> Result<Bias, String> {
    match golden.file.metadata.get("bias").map_or("scalar", String::as_str) {
        "scalar" | "" => Ok(Bias::Scalar),
        "all" => Ok(Bias::AllBlades),
        text => Err(format!("metadata `bias` has the value `{text}`, expected scalar or all")),
    }
}

fn clifford_layer(golden: &Golden<'_>, algebra: &Algebra, inputs: &Inputs) -> Result<Tensor, String> {
    let x = inputs.get("x")?;
    let bias = Some((inputs.get("lb")?, bias(golden)?));
    let y = clifford::mv_linear(algebra, x, inputs.get("lw")?, bias).map_err(|error| error.to_string())?;
    let product = if golden.flag("fully_connected", false)? { clifford::fcgp } else { clifford::sgp };
    let options = ProductOptions { gate: true, normalize: golden.flag("normalize", true)? };
    product(algebra, x, &y, inputs.get("gw")?, options).map_err(|error| error.to_string())
}

fn steerable(golden: &Golden<'_>, algebra: &Algebra, inputs: &Inputs) -> Result<Tensor, String> {
    let (x, wr, na, w) = (inputs.get("x")?, inputs.get("wr")?, inputs.get("na")?, inputs.get("w")?);
    let (wl, bl) = (inputs.0.get("wl"), inputs.0.get("bl"));
    let full = golden.operation == "fc_steerable_gp";
    let compute = || -> gradewise_autograd::Result<Tensor> {
        if let (false, Some(left), Some(bias)) = (full, wl, bl) {
            let operands = SteerableLayer { x, right: wr, a: na, w, left: Some((left, bias)) };
            return clifford::steerable_layer(algebra, &operands);
        }
        let right = clifford::mv_linear(algebra, x, wr, None)?;
        let bias = bl.map(|bias| (bias, Bias::Scalar));
        let left = wl.map(|left| clifford::mv_linear(algebra, x, left, bias)).transpose()?;
        if !full {
            let operands = Steerable { x, right: &right, a: na, w, left: left.as_ref() };
            return clifford::steerable_product(algebra, &operands);
        }
        let normalized = clifford::mv_normalization(algebra, &right, na)?;
        let product = clifford::fcgp(algebra, x, &normalized, w, ProductOptions::default())?;
        match left {
            Some(left) => left.add(&product)?.mul_scalar(std::f64::consts::FRAC_1_SQRT_2),
            None => Ok(product),
        }
    };
    compute().map_err(|error| error.to_string())
}
