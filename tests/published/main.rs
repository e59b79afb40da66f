//! Weights of the published n-body network predict here what they predict there.
//!
//! `nbody.safetensors` are weights of the published PyTorch model, in single precision as `save_model` writes them;
//! `nbody-predictions.safetensors` are systems and what the published code predicts for them in double precision. `benches/golden_cgenn.py`
//! made both.

mod fields;
#[path = "../common/program.rs"]
mod program;
mod transformers;

use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_nn::{Module, Placement, checkpoint::TensorFile};
use gradewise_zoo::{
    data::nbody::NBodyData,
    models::{NBody, NBodyConfig},
    published::{self, Library, PublishedModel},
    train::nbody::predict,
};
use program::program;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn golden(name: &str) -> PathBuf {
    gradewise_testing::manifest_dir!().join("tests/published").join(name)
}

fn values(file: &TensorFile, name: &str) -> Vec<f64> {
    file.get(name).and_then(|tensor| tensor.to_f64_vec()).unwrap_or_else(|| panic!("a tensor `{name}`"))
}

/// The largest difference in units of the predicted displacements.
fn distance(found: &[f64], expected: &[f64], start: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |most: f64, x| most.max(x.abs()));
    // Not a number would be passed over by `max`.
    assert!(found.iter().all(|x| x.is_finite()));
    let error = largest(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    error / largest(&mut expected.iter().zip(start).map(|(a, b)| a - b))
}

fn run(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().expect("the program starts")
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn published_weights_predict_what_they_predict_in_pytorch() {
    let file = TensorFile::read(golden("nbody.safetensors")).unwrap();
    let (checkpoint, account) = published::import(&file, Library::Cgenn, PublishedModel::NBody).unwrap();
    // Every tensor of the file is either a weight or one of the six tables, which `save_model` keeps once.
    assert_eq!(account.used.len() + 6, file.len());
    assert_eq!(account.derived.len(), 6);
    let config: NBodyConfig = serde_json::from_value(checkpoint.metadata.model_config.clone()).unwrap();
    assert_eq!((config.hidden, config.layers), (8, 2));

    let placement = Placement { device: Device::Cpu, dtype: DType::F64 };
    let model = NBody::init(&config, placement, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
    assert_eq!(model.named_parameters().len(), account.used.len());
    model.load(&|name| checkpoint.tensors.find_array(name, DType::F64, &Device::Cpu)).unwrap();
    let systems = TensorFile::read(golden("nbody-predictions.safetensors")).unwrap();
    let [loc, vel, charges, expected] =
        ["loc", "vel", "charges", "prediction"].map(|name| values(&systems, name));
    let data = NBodyData::new(5, loc.clone(), vel, charges, loc.clone()).unwrap();
    let error = distance(&predict(&model, &data, 4).unwrap(), &expected, &loc);
    assert!(error < 1e-12, "{error:e}");
}

#[test]
fn the_program_imports_evaluates_predicts_and_exports() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (checkpoint, predicted, back, again) =
        (path("c.safetensors"), path("p.safetensors"), path("back.safetensors"), path("again.safetensors"));
    let published = golden("nbody.safetensors");
    let said = succeeds(&["import", published.to_str().unwrap(), "--from", "cgenn", "--out", &checkpoint]);
    assert!(said.contains("84 tensors of weights, 6 tables") && said.contains("none missing"), "{said}");

    let input = golden("nbody-predictions.safetensors");
    let input = input.to_str().unwrap();
    succeeds(&[
        "infer",
        "--checkpoint",
        &checkpoint,
        "--input",
        input,
        "--output",
        &predicted,
        "--dtype",
        "f64",
    ]);
    let (systems, predicted) = (TensorFile::read(input).unwrap(), TensorFile::read(&predicted).unwrap());
    let error = distance(
        &values(&predicted, "prediction"),
        &values(&systems, "prediction"),
        &values(&systems, "loc"),
    );
    assert!(error < 1e-12, "{error:e}");
    // Untrained, but a model of the task like any other, symmetric up to rounding.
    let said = succeeds(&["eval", "--checkpoint", &checkpoint, "--json", "data.test=50", "--dtype", "f64"]);
    let record: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(record["mse"].as_f64().unwrap() > 0.0 && record["asymmetry"].as_f64().unwrap() < 1e-10, "{said}");

    // There and back: the same checkpoint, and the same weights under their published names.
    succeeds(&["export", &checkpoint, "--to", "cgenn", "--out", &back]);
    succeeds(&["import", &back, "--from", "cgenn", "--model", "nbody", "--out", &again]);
    assert_eq!(std::fs::read(&again).unwrap(), std::fs::read(&checkpoint).unwrap());
    let (ours, theirs) = (TensorFile::read(&back).unwrap(), TensorFile::read(&published).unwrap());
    for (name, tensor) in theirs.iter() {
        assert_eq!(ours.get(name), Some(tensor), "{name}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("c.safetensors");
    let out = out.to_str().unwrap();
    let foreign = golden("nbody-predictions.safetensors");
    let foreign = foreign.to_str().unwrap();
    let refused = |arguments: &[&str], why: &str| {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!Path::new(out).exists());
    };
    refused(&["import", foreign, "--from", "cgenn", "--out", out], "embedding.weight");
    refused(&["import", foreign, "--from", "flash-clifford", "--model", "layer", "--out", out], "gp_weight");
    refused(&["import", foreign, "--from", "flash-clifford", "--out", out], "no model `nbody`");
    refused(&["import", foreign, "--from", "cgen", "--out", out], "cgenn");
    refused(&["export", foreign, "--to", "cgenn", "--out", out], "checkpoint metadata");
    refused(&["export", foreign, "--to", "cgenn"], "--out");
}
