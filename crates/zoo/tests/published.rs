//! Weights of published models: there and back bit for bit, and whatever is left over is refused.

use gradewise_core::{DType, Signature};
use gradewise_kernels::Device;
use gradewise_nn::{
    Module, Result,
    checkpoint::{Checkpoint, CheckpointMetadata, FORMAT_VERSION, StoredTensor, TensorFile},
    layers::CliffordLayer,
};
use gradewise_zoo::{
    models::{NBody, NBodyConfig},
    published::{self, Library, PublishedModel, export, import},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn one_number(shape: &[usize]) -> StoredTensor {
    StoredTensor::from_f64(shape, &[1.0], DType::F32).unwrap()
}

/// A checkpoint of a model with random weights, in f32.
fn checkpoint(model: &impl Module, name: &str, config: serde_json::Value) -> Checkpoint {
    let mut tensors = TensorFile::new();
    for (number, (name, parameter)) in model.named_parameters().into_iter().enumerate() {
        let tensor = parameter.tensor();
        let array = tensor.array();
        let elements = array.shape().elements();
        let values: Vec<f64> = (0..elements).map(|k| ((number * 1000 + k) as f64).sin()).collect();
        tensors.insert(name, StoredTensor::from_f64(array.dims(), &values, DType::F32).unwrap());
    }
    let (model, training) = (name.to_owned(), serde_json::Value::Null);
    let metadata = CheckpointMetadata {
        format_version: FORMAT_VERSION,
        model,
        model_config: config,
        step: 7,
        training,
        members: Vec::new(),
    };
    Checkpoint { metadata, tensors }
}

fn nbody(config: NBodyConfig) -> Checkpoint {
    let model = NBody::init(&config, &Device::Cpu, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
    checkpoint(&model, "nbody", serde_json::to_value(config).unwrap())
}

fn small() -> NBodyConfig {
    NBodyConfig { hidden: 5, layers: 2, ..NBodyConfig::default() }
}

#[test]
fn checkpoints_come_back_bit_for_bit() {
    for config in [small(), NBodyConfig { hidden: 1, layers: 1, ..small() }] {
        let ours = nbody(config);
        let (file, exported) = export(&ours, Library::Cgenn).unwrap();
        let (back, imported) = import(&file, Library::Cgenn, PublishedModel::NBody).unwrap();
        assert_eq!(back.tensors, ours.tensors);
        assert_eq!(back.metadata.model_config, ours.metadata.model_config);
        assert_eq!(imported.used, exported.used);
        assert_eq!(imported.used.len(), ours.tensors.len());
        assert_eq!(imported.used.len() + imported.derived.len(), file.len());
        // And the published file comes back from the checkpoint, tables included.
        assert_eq!(export(&back, Library::Cgenn).unwrap().0, file);
    }
}

#[test]
fn layers_come_back_bit_for_bit_under_any_name() {
    for (signature, full) in [(Signature::CL2, false), (Signature::CL3, true)] {
        let layer = CliffordLayer::new(6, signature).fully_connected(full);
        let layer = layer.init(&Device::Cpu, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let mut tensors = TensorFile::new();
        for (name, tensor) in checkpoint(&layer, "", serde_json::Value::Null).tensors.iter() {
            tensors.insert(format!("net.1.{name}"), tensor.clone());
            tensors.insert(format!("net.0.{name}"), tensor.clone());
        }
        let metadata = checkpoint(&layer, "clifford_layer", serde_json::Value::Null).metadata;
        let ours = Checkpoint { metadata, tensors };
        let (file, account) = export(&ours, Library::FlashClifford).unwrap();
        assert_eq!((account.used.len(), account.derived.len()), (6, 2));
        assert_eq!(file.get("net.0.linear_bias").unwrap().shape(), [1, 1, 6]);
        let (back, _) = import(&file, Library::FlashClifford, PublishedModel::Layer).unwrap();
        assert_eq!(back.tensors, ours.tensors);
        assert_eq!(back.metadata.model_config["layers"]["net.0"]["fully_connected"], full);
    }
}

/// Weights turn as the operators do: an entry of a matrix is found at the transposed place.
#[test]
fn matrices_turn() {
    let (file, _) = export(&nbody(small()), Library::Cgenn).unwrap();
    let ours = nbody(small()).tensors;
    let published = file.get("layers.1.edge_model.layers.0.0.weight").unwrap();
    let weight = ours.get("layers.1.edge.0.weight").unwrap();
    assert_eq!((published.shape(), weight.shape()), (&[5, 6, 4][..], &[4, 6, 5][..]));
    let (published, weight) = (published.to_f64_vec().unwrap(), weight.to_f64_vec().unwrap());
    for out in 0..5 {
        for from in 0..6 {
            for grade in 0..4 {
                assert_eq!(published[(out * 6 + from) * 4 + grade], weight[(grade * 6 + from) * 5 + out]);
            }
        }
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T>, why: &[&str]) {
    let message = result.expect_err("refused").to_string();
    assert!(why.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn whatever_is_left_over_is_refused() {
    let import = |file: &TensorFile| published::import(file, Library::Cgenn, PublishedModel::NBody);
    let whole = export(&nbody(small()), Library::Cgenn).unwrap().0;
    let without = |left_out: &str| {
        let mut file = TensorFile::new();
        whole.iter().filter(|(name, _)| *name != left_out).for_each(|(name, t)| file.insert(name, t.clone()));
        file
    };
    let name = "layers.1.node_model.layers.1.2.normalization.a";
    refusal(import(&without(name)), &["import", "lacks (1)", name]);
    // Tables follow from the algebra: a file may do without.
    assert!(import(&without("projection.0.algebra.cayley")).is_ok());
    let mut file = whole.clone();
    file.insert("layers.2.extra", one_number(&[1]));
    refusal(import(&file), &["layers.2"]);
    let mut file = whole.clone();
    file.insert("train_metrics.loss", one_number(&[1]));
    refusal(import(&file), &["nothing takes (1)", "train_metrics.loss"]);
    let mut file = whole.clone();
    file.insert("algebra.metric", StoredTensor::from_f64(&[3], &[1.0, 1.0, -1.0], DType::F32).unwrap());
    refusal(import(&file), &["algebra.metric", "table"]);
    let mut file = whole.clone();
    file.insert("projection.0.bias", one_number(&[1, 1]));
    refusal(import(&file), &["projection.0.bias", "[1, 1]", "[1, 1, 1]"]);
    refusal(import(&TensorFile::new()), &["embedding.weight"]);
    refusal(published::import(&whole, Library::FlashClifford, PublishedModel::NBody), &["no model `nbody`"]);
    refusal(published::import(&whole, Library::FlashClifford, PublishedModel::Layer), &["gp_weight"]);
}

#[test]
fn what_the_published_model_has_no_place_for_is_refused() {
    let config = NBodyConfig { velocities: true, ..small() };
    refusal(export(&nbody(config), Library::Cgenn), &["velocities"]);
    let mut other = nbody(small());
    other.metadata.model = "hulls".to_owned();
    refusal(export(&other, Library::Cgenn), &["hulls"]);
    let mut more = nbody(small());
    more.tensors.insert("pushes.weight", one_number(&[1]));
    refusal(export(&more, Library::Cgenn), &["nothing takes (1): pushes.weight"]);
    let several = Checkpoint::ensemble(&[(0, nbody(small())), (1, nbody(small()))]).unwrap();
    refusal(export(&several, Library::Cgenn), &["ensemble of 2 models"]);
    // How systems are weighed in the loss is not.
    assert!(export(&nbody(NBodyConfig { robust: 0.5, ..small() }), Library::Cgenn).is_ok());
    refusal(
        export(&nbody(NBodyConfig { kicks: 4, substeps: 2, ..small() }), Library::Cgenn),
        &["kicks, substeps"],
    );
    refusal(export(&nbody(small()), Library::FlashClifford), &["gp_weight"]);
}

#[test]
fn averages_are_exported_and_states_of_optimisers_are_left_out() {
    let mut ours = nbody(small());
    let names: Vec<String> = ours.tensors.iter().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let shape = ours.tensors.get(&name).unwrap().shape().to_vec();
        let ones = vec![1.0; shape.iter().product()];
        ours.tensors
            .insert(format!("ema::{name}"), StoredTensor::from_f64(&shape, &ones, DType::F32).unwrap());
        ours.tensors
            .insert(format!("adam.m::{name}"), StoredTensor::from_f64(&shape, &ones, DType::F32).unwrap());
    }
    let (file, account) = export(&ours, Library::Cgenn).unwrap();
    assert_eq!(account.left_out, ["adam.m"]);
    assert!(file.get("embedding.weight").unwrap().to_f64_vec().unwrap().iter().all(|&w| w == 1.0));
}
