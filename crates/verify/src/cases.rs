//! Evaluates the operators of golden files.

use super::{Golden, Options, TensorReport, fields, general, inputs::Inputs};
use gradewise_autograd::{
    BackwardOptions, Tensor,
    clifford::{self, Bias, FullSteerableLayer, ProductOptions, SteerableLayer},
};
use gradewise_core::{Algebra, DType};
use gradewise_kernels::{Array, Device};
use std::collections::BTreeMap;

/// The output and the gradients that a file contains, by the names in the report.
type Values = Vec<(String, Vec<f64>)>;

pub(super) fn run(golden: &Golden<'_>) -> Result<Vec<TensorReport>, String> {
    let of_general = general::layout(golden.operation).unwrap_or("blades,batch,features");
    let expected = fields::layouts(golden.operation).unwrap_or(std::slice::from_ref(&of_general));
    if let Some(layout) = golden.file.metadata.get("layout")
        && !expected.contains(&layout.as_str())
    {
        return Err(format!("layout `{layout}` is not supported, only {}", expected.join(" and ")));
    }
    let Options { device, dtype } = golden.options;
    let actual =
        values(golden, |name| golden.file.array(name, *dtype, device).map_err(|error| error.to_string()))?;
    if matches!(dtype, DType::F32 | DType::F64) {
        let compare = |(name, values): &(String, Vec<f64>)| {
            golden.compare(name, if name == "y" { "out.y" } else { name }, values)
        };
        return actual.iter().map(compare).collect();
    }
    // Rounding an input to 16 bits changes it by more than the tolerance of the operator. The reference is therefore
    // evaluated at the rounded inputs, on the CPU in double precision (which the same files verify to 1e-12).
    let stored = |name: &str| -> Result<Array, String> {
        let text = |error: gradewise_kernels::Error| error.to_string();
        let array = golden.file.array(name, DType::F64, &Device::Cpu).map_err(|error| error.to_string())?;
        array.cast(*dtype).map_err(text)?.cast(DType::F64).map_err(text)
    };
    let expected = values(golden, stored)?;
    actual.iter().zip(&expected).map(|((name, a), (_, b))| golden.measure(name, a, b)).collect()
}

/// Evaluates the file's operation on the arrays that `read` returns for its tensors.
fn values(golden: &Golden<'_>, read: impl Fn(&str) -> Result<Array, String>) -> Result<Values, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let mut inputs = BTreeMap::new();
    for (name, _) in golden.file.iter() {
        let Some(short) = name.strip_prefix("in.") else { continue };
        inputs.insert(short.to_owned(), Tensor::new(read(name)?).requires_grad());
    }
    let inputs = Inputs(inputs);
    let (output, more) = evaluate(golden, &inputs)?;
    let values = |tensor: &Tensor| tensor.array().to_f64_vec().map_err(|e| text(&e));
    let mut found = vec![("y".to_owned(), values(&output)?)];
    for (name, tensor) in &more {
        found.push((format!("out.{name}"), values(tensor)?));
    }
    // Outputs of the file that were not computed must not pass.
    let outputs = golden.file.iter().filter_map(|(name, _)| name.strip_prefix("out."));
    for name in outputs.filter(|name| *name != "y") {
        if !more.iter().any(|(made, _)| *made == name) {
            return Err(format!("the file holds `out.{name}`, which `{}` does not give", golden.operation));
        }
    }
    // A loss may have a wider dtype than its inputs.
    let cotangent = read("cot.y")?.cast(output.dtype()).map_err(|e| text(&e))?;
    let cotangent = Tensor::new(cotangent);
    let gradients = output.backward_with(&BackwardOptions::seed(cotangent)).map_err(|e| text(&e))?;
    for (short, input) in &inputs.0 {
        let name = format!("grad.{short}");
        // The table of errors lists the gradients of a file; a file that lacks one of them must not pass.
        let promised = golden.f32_error.is_empty() || golden.f32_error.contains_key(&name);
        if promised || golden.file.get(&name).is_some() {
            let gradient = gradients.get(input).map_err(|e| text(&e))?;
            found.push((name, values(gradient)?));
        }
    }
    Ok(found)
}

fn evaluate(golden: &Golden<'_>, inputs: &Inputs) -> Result<fields::Evaluated, String> {
    if let Some(evaluated) = fields::evaluate(golden, inputs)? {
        return Ok(evaluated);
    }
    match general::evaluate(golden, inputs)? {
        Some(output) => Ok((output, Vec::new())),
        None => Ok((of_algebra(golden, inputs)?, Vec::new())),
    }
}

fn of_algebra(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
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
    let left = inputs.0.get("wl").zip(inputs.0.get("bl"));
    let result = if golden.operation == "fc_steerable_gp" {
        clifford::fc_steerable_layer(algebra, &FullSteerableLayer { x, right: wr, a: na, w, left })
    } else {
        clifford::steerable_layer(algebra, &SteerableLayer { x, right: wr, a: na, w, left })
    };
    result.map_err(|error| error.to_string())
}
