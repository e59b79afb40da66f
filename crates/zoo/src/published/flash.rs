//! The layer of Flash Clifford: one layer, or several layers within a user's model.
//!
//! Its bias goes to all blades: build the layers that take the weights with
//! [`Bias::AllBlades`](gradewise_nn::layers::Bias::AllBlades).

use super::{Layout, Weight};
use gradewise_core::{Algebra, Signature};
use gradewise_nn::checkpoint::{Checkpoint, StoredTensor, TensorFile};
use serde_json::{Map, Value, json};

/// Model name in the checkpoints of such layers. No task of the program trains them.
const MODEL: &str = "clifford_layer";
/// The weight that identifies a layer.
const MARK: &str = "gp_weight";

/// The layout of a published file, by the sizes of its weights.
pub(super) fn published(file: &TensorFile) -> Result<Layout, String> {
    layout(file)
}

/// The layout of a gradewise checkpoint: the weights have the same names.
pub(super) fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Layout, String> {
    layout(&checkpoint.tensors)
}

fn layout(file: &TensorFile) -> Result<Layout, String> {
    let (mut weights, mut derived, mut layers) = (Vec::new(), Vec::new(), Map::new());
    for (name, product) in file.iter() {
        // Names with `::` are sections of a checkpoint, not weights.
        let Some(prefix) = name
            .strip_suffix(MARK)
            .filter(|prefix| !prefix.contains("::") && (prefix.is_empty() || prefix.ends_with('.')))
        else {
            continue;
        };
        let linear = file
            .get(&format!("{prefix}linear_weight"))
            .ok_or_else(|| format!("it has `{name}` and no `{prefix}linear_weight`"))?;
        let &[grades, features, _] = linear.shape() else {
            return Err(format!(
                "`{prefix}linear_weight` has shape {:?}, expected [grades, features, features]",
                linear.shape()
            ));
        };
        // The published layer supports 2 and 3 dimensions.
        let signature = match grades {
            3 => Signature::CL2,
            4 => Signature::CL3,
            _ => return Err(format!("`{prefix}linear_weight` is of {grades} grades, expected 3 or 4")),
        };
        let algebra = Algebra::new(signature).map_err(|error| error.to_string())?;
        let paths = algebra.paths().len();
        let full = product.shape().len() == 3;
        let shape = if full { vec![paths, features, features] } else { vec![features, paths] };
        let mut add = |rest: &str, shape: &[usize], here: &[usize]| {
            let name = format!("{prefix}{rest}");
            let axes: Vec<usize> = (0..shape.len()).collect();
            weights.push(Weight::new(name.clone(), name, shape, &axes, here));
        };
        add(MARK, &shape, &shape);
        add("linear_weight", &[grades, features, features], &[grades, features, features]);
        add("linear_bias", &[1, 1, features], &[features]);
        let expansion: Vec<i64> = algebra.grades().iter().map(|&grade| grade.into()).collect();
        let table = StoredTensor::from_integers(&[expansion.len()], &expansion);
        derived.push((format!("{prefix}weight_expansion"), table));
        let counts = [signature.p, signature.q, signature.r];
        let config = json!({ "features": features, "signature": counts, "fully_connected": full });
        layers.insert(prefix.trim_end_matches('.').to_owned(), config);
    }
    if weights.is_empty() {
        return Err(format!("it has no `{MARK}`, so there is no layer of Flash Clifford in it"));
    }
    let config = json!({ "layers": Value::Object(layers) });
    Ok(Layout { model: MODEL, config, weights, derived, copies: Vec::new() })
}
