//! The networks of "Clifford Group Equivariant Neural Networks" (Ruhe et al. 2023, arXiv:2305.11141) in PyTorch.

use super::{Layout, Weight};
use crate::{data::nbody::batch::CHANNELS, models::NBodyConfig};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_nn::checkpoint::{Checkpoint, StoredTensor, TensorFile};
use std::collections::BTreeSet;

/// The name of the model, in the published code and in checkpoints.
const MODEL: &str = "nbody";
/// Modules of a block: linear map, activation, product, norm.
const MODULES: usize = 4;
/// Blocks of each of the two networks of a layer.
const BLOCKS: usize = 2;

/// The layout of a published file, by the sizes of its weights.
pub(super) fn published(file: &TensorFile) -> Result<Layout, String> {
    let embedding = file
        .get("embedding.weight")
        .ok_or("it has no `embedding.weight`, so it is not the state_dict of an NBodyCGGNN")?;
    let hidden = match *embedding.shape() {
        [hidden, CHANNELS] => hidden,
        ref shape => {
            return Err(format!(
                "`embedding.weight` has shape {shape:?}, expected [features, {CHANNELS}] for charge, position and velocity"
            ));
        }
    };
    // Counts the layers by distinct names, whatever their numbers; missing tensors are reported later.
    let layers: BTreeSet<&str> =
        file.iter().filter_map(|(name, _)| name.strip_prefix("layers.")?.split('.').next()).collect();
    layout(NBodyConfig { hidden, layers: layers.len(), ..NBodyConfig::default() })
}

/// The layout of a gradewise checkpoint, if the published network can represent its model.
pub(super) fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Layout, String> {
    let metadata = &checkpoint.metadata;
    if metadata.model != MODEL {
        return Err(format!(
            "it is a checkpoint of `{}`, and cgenn's model here is `{MODEL}`",
            metadata.model
        ));
    }
    let config: NBodyConfig = serde_json::from_value(metadata.model_config.clone())
        .map_err(|error| format!("its model configuration is malformed: {error}"))?;
    // Collects all settings that differ from the publication, including those of later versions. `robust` changes the
    // loss, not the network.
    let NBodyConfig { hidden, layers, robust, .. } = config;
    let published = NBodyConfig { hidden, layers, robust, ..NBodyConfig::default() };
    let settings = |config| serde_json::to_value(config).map_err(|error| error.to_string());
    let (found, expected) = (settings(config)?, settings(published)?);
    let own: Vec<&str> = found
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(setting, value)| expected.get(setting) != Some(value))
        .map(|(setting, _)| setting.as_str())
        .collect();
    if !own.is_empty() {
        return Err(format!("it has {}, which the published network has not", own.join(", ")));
    }
    layout(config)
}

fn layout(config: NBodyConfig) -> Result<Layout, String> {
    let algebra = Algebra::new(Signature::CL3).map_err(|error| error.to_string())?;
    let (grades, paths, width) = (algebra.grade_count(), algebra.paths().len(), config.hidden);
    let mut weights = Vec::new();
    // Modules with a buffer `algebra`: the state_dict repeats its tables for each.
    let mut modules = vec![String::new(), "embedding.".to_owned(), "projection.0.".to_owned()];
    let mut add = |published: String, here: String, shape: &[usize], axes: &[usize], turned: &[usize]| {
        weights.push(Weight::new(published, here, shape, axes, turned));
    };
    let matrix = [2, 1, 0];
    // One matrix for all grades.
    let name = "embedding.weight".to_owned();
    add(name.clone(), name, &[width, CHANNELS], &[1, 0], &[CHANNELS, width]);
    let name = "embedding.bias".to_owned();
    add(name.clone(), name, &[1, width, 1], &[0, 1, 2], &[width]);
    for layer in 0..config.layers {
        for (part, inputs) in [("edge", width + 1), ("node", 2 * width)] {
            let network = format!("layers.{layer}.{part}_model.");
            modules.push(network.clone());
            for block in 0..BLOCKS {
                let inputs = if block == 0 { inputs } else { width };
                let names = |module: usize, rest: &str| {
                    (
                        format!("{network}layers.{block}.{module}.{rest}"),
                        format!("layers.{layer}.{part}.{}.{rest}", block * MODULES + module),
                    )
                };
                let mut weight = |module, rest, shape: &[usize], axes: &[usize], turned: &[usize]| {
                    let (published, here) = names(module, rest);
                    add(published, here, shape, axes, turned);
                };
                weight(0, "weight", &[width, inputs, grades], &matrix, &[grades, inputs, width]);
                weight(0, "bias", &[1, width, 1], &[0, 1, 2], &[width]);
                for gate in ["a", "b"] {
                    weight(1, gate, &[1, width, grades], &[0, 1, 2], &[width, grades]);
                }
                weight(2, "weight", &[width, paths], &[0, 1], &[width, paths]);
                weight(2, "normalization.a", &[width, grades], &[0, 1], &[width, grades]);
                for side in ["linear_right.weight", "linear_left.weight"] {
                    weight(2, side, &[width, width, grades], &matrix, &[grades, width, width]);
                }
                weight(2, "linear_left.bias", &[1, width, 1], &[0, 1, 2], &[width]);
                weight(3, "a", &[1, width], &[0, 1], &[width]);
                let inner =
                    ["normalization.", "linear_right.", "linear_left."].map(|inner| names(2, inner).0);
                modules.extend((0..MODULES).map(|module| names(module, "").0).chain(inner));
            }
        }
    }
    add(
        "projection.0.weight".to_owned(),
        "projection.weight".to_owned(),
        &[1, width, grades],
        &matrix,
        &[grades, width, 1],
    );
    add("projection.0.bias".to_owned(), "projection.bias".to_owned(), &[1, 1, 1], &[0, 1, 2], &[1]);
    let tables = tables(&algebra).map_err(|error| error.to_string())?;
    let table = |module: &String| {
        tables
            .iter()
            .map(move |(name, table)| (format!("{module}algebra.{name}"), table.clone()))
            .collect::<Vec<_>>()
    };
    let derived = modules.iter().flat_map(table).collect();
    let config = serde_json::to_value(config).map_err(|error| error.to_string())?;
    Ok(Layout { model: MODEL, config, weights, derived, copies: Vec::new() })
}

/// The buffers of the published algebra.
fn tables(algebra: &Algebra) -> gradewise_nn::Result<[(&'static str, StoredTensor); 6]> {
    let (signature, blades) = (algebra.signature(), algebra.blade_count());
    let metric: Vec<f64> = (0..algebra.dimension()).map(|index| signature.square(index).into()).collect();
    let sizes: Vec<i64> =
        (0..algebra.grade_count()).map(|grade| algebra.blades_of_grade(grade).len() as i64).collect();
    let grades: Vec<f64> = algebra.grades().iter().map(|&grade| grade.into()).collect();
    let even: Vec<bool> = algebra.grades().iter().map(|grade| grade % 2 == 0).collect();
    let odd: Vec<bool> = even.iter().map(|even| !even).collect();
    // Left factor, product, right factor.
    let mut cayley = vec![0.0; blades.pow(3)];
    for term in algebra.terms() {
        let [left, out, right] = [term.left, term.out, term.right].map(usize::from);
        if let Some(entry) = cayley.get_mut((left * blades + out) * blades + right) {
            *entry = term.sign.into();
        }
    }
    Ok([
        ("metric", StoredTensor::from_f64(&[metric.len()], &metric, DType::F32)?),
        ("subspaces", StoredTensor::from_integers(&[sizes.len()], &sizes)),
        ("bbo_grades", StoredTensor::from_f64(&[blades], &grades, DType::F32)?),
        ("even_grades", StoredTensor::from_booleans(&[blades], &even)),
        ("odd_grades", StoredTensor::from_booleans(&[blades], &odd)),
        ("cayley", StoredTensor::from_f64(&[blades; 3], &cayley, DType::F32)?),
    ])
}
