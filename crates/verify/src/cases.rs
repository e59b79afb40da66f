//! Evaluates the operators of golden files.

use super::{Golden, Options, TensorReport, fields, general, inputs::Inputs};
use gradewise_autograd::{
    Attributes, BackwardOptions, Presence, Tensor,
    clifford::{self, FullSteerableLayer},
    registry,
};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_kernels::{Array, Device};
use serde_json::json;
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
        None => Ok((of_registry(golden, inputs)?, Vec::new())),
    }
}

/// Runs the operation of the registry that the file's is, on its inputs, which have shorter names in the file.
fn of_registry(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let (normalize, Signature { p, q, r }) = (golden.flag("normalize", true)?, golden.signature()?);
    let product = json!({ "gate": true, "normalize": normalize });
    let (name, product, written): (_, _, &[&str]) = match golden.operation {
        "geometric_product" => ("table_product", json!("geometric"), &[]),
        "clifford_layer" => {
            let full = golden.flag("fully_connected", false)?;
            (if full { "fc_clifford_layer" } else { "clifford_layer" }, product, &["x", "lw", "gw", "lb"])
        }
        "steerable_gp" => ("steerable_layer", product, &["x", "wr", "na", "w", "wl", "bl"]),
        "fc_steerable_gp" => return full_steerable_layer(golden, inputs),
        same => (same, product, &[]),
    };
    let entry = registry::find(name).ok_or_else(|| {
        format!("unknown operation `{name}`: nothing to check it with, so it does not pass")
    })?;
    let (mut given, mut bias) = (Vec::new(), None);
    for (index, operand) in entry.operands().iter().enumerate() {
        let usual = match operand.name {
            "weight" => "w",
            "bias" => "b",
            "gain" => "a",
            same => same,
        };
        let short = written.get(index).copied().unwrap_or(usual);
        if operand.presence == Presence::Optional && inputs.optional(short).is_none() {
            continue;
        }
        given.push(inputs.get(short)?.clone());
        bias = if operand.name == "bias" { Some(blades_of_bias(golden)?) } else { bias };
    }
    // Each operation reads the attributes that it has.
    let attributes = json!({
        "algebra": format!("{p},{q},{r}"), "bias": bias, "product": product, "recompute": false,
        "normalize": normalize && name.starts_with("gelu"),
    });
    Attributes::of(entry.name(), &attributes)
        .and_then(|attributes| registry::rerun(name, &attributes, &given))
        .map_err(|error| error.to_string())
}

/// The blades that a bias is added to, as attributes have them.
fn blades_of_bias(golden: &Golden<'_>) -> Result<&'static str, String> {
    match golden.file.metadata.get("bias").map_or("scalar", String::as_str) {
        "scalar" | "" => Ok("scalar"),
        "all" => Ok("all_blades"),
        text => Err(format!("metadata `bias` has the value `{text}`, expected scalar or all")),
    }
}

/// A composition of several operations.
fn full_steerable_layer(golden: &Golden<'_>, inputs: &Inputs) -> Result<Tensor, String> {
    let algebra = Algebra::new(golden.signature()?).map_err(|error| error.to_string())?;
    let (x, right, a, w) = (inputs.get("x")?, inputs.get("wr")?, inputs.get("na")?, inputs.get("w")?);
    let left = inputs.optional("wl").zip(inputs.optional("bl"));
    clifford::fc_steerable_layer(&algebra, &FullSteerableLayer { x, right, a, w, left })
        .map_err(|error| error.to_string())
}
