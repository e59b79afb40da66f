//! Evaluates the operators of ordinary networks in golden files.

use super::{Golden, inputs::Inputs};
use gradewise_autograd::Tensor;
use gradewise_kernels::{
    Device, Index,
    ops::{AttentionOptions, CrossEntropyOptions},
};

/// The layout of an operation's operands; `None` for other operations, or without a layout.
pub(super) fn layout(operation: &str) -> Option<&'static str> {
    (operation == "attention").then_some("batch,heads,tokens,head_dim")
}

/// Evaluates the file's operation; `None` if it is not an operator of ordinary networks.
pub(super) fn evaluate(golden: &Golden<'_>, inputs: &Inputs) -> Result<Option<Tensor>, String> {
    let x = || inputs.get("x");
    let pair = || Ok::<_, String>((inputs.get("a")?, inputs.get("b")?));
    let result = match golden.operation {
        "add" => pair().map(|(a, b)| a.add(b))?,
        "sub" => pair().map(|(a, b)| a.sub(b))?,
        "mul" => pair().map(|(a, b)| a.mul(b))?,
        "div" => pair().map(|(a, b)| a.div(b))?,
        "matmul" | "bmm" => pair().map(|(a, b)| a.matmul(b))?,
        "gelu" => x()?.gelu(),
        "softmax" => {
            let x = x()?;
            x.softmax(x.shape().rank().max(1) - 1)
        }
        "layer_norm" => {
            let (gamma, beta) = (inputs.get("gamma")?, inputs.get("beta")?);
            x()?.layer_norm(Some(gamma), Some(beta), golden.option("eps", 1e-5)?)
        }
        "embedding" => {
            let table = inputs.get("table")?;
            let (ids, shape) = numbers(golden, "ids")?;
            let bound = table.shape().first().copied().unwrap_or(0);
            table.embedding(&index(&ids, bound, &table.device())?, shape)
        }
        "cross_entropy" => {
            let x = x()?;
            let (targets, _) = numbers(golden, "targets")?;
            let classes = x.shape().last().copied().unwrap_or(0);
            let loss =
                x.cross_entropy(&index(&targets, classes, &x.device())?, &CrossEntropyOptions::default());
            // The file stores the loss as a vector of one element.
            loss.and_then(|loss| loss.reshape([1]))
        }
        "attention" => {
            let options =
                AttentionOptions { causal: golden.flag("causal", false)?, ..AttentionOptions::default() };
            inputs.get("q")?.attention(inputs.get("k")?, inputs.get("v")?, &options)
        }
        _ => return Ok(None),
    };
    result.map(Some).map_err(|error| error.to_string())
}

fn index(values: &[usize], bound: usize, device: &Device) -> Result<Index, String> {
    Index::new(values, bound, device).map_err(|error| error.to_string())
}

/// Parses a list, or a list of lists, of whole numbers in the metadata; returns its shape, too.
fn numbers(golden: &Golden<'_>, key: &str) -> Result<(Vec<usize>, Vec<usize>), String> {
    let text = golden.file.metadata.get(key).ok_or_else(|| format!("the metadata has no key `{key}`"))?;
    let refuse = || format!("metadata `{key}` is not a list of whole numbers: {text}");
    if let Ok(row) = serde_json::from_str::<Vec<usize>>(text) {
        let shape = vec![row.len()];
        return Ok((row, shape));
    }
    let rows: Vec<Vec<usize>> = serde_json::from_str(text).map_err(|_| refuse())?;
    let columns = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() != columns) {
        return Err(refuse());
    }
    let shape = vec![rows.len(), columns];
    Ok((rows.concat(), shape))
}
