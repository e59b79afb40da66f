//! Weights of the published networks for fields predict here what they predict there.
//!
//! `benches/golden_cliffordlayers.py` made the files: weights in single precision, as `save_model` writes them, and in
//! `fields-predictions.safetensors` fields with what the published code makes of them in double precision.

use super::{golden, succeeds, values};
use gradewise_autograd::Tensor;
use gradewise_core::{DType, Shape};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Module,
    checkpoint::{Checkpoint, StoredTensor, TensorFile},
    fields::{
        FieldNet, G3ResNet, G3UNet, field_from_channels_first as from_published,
        field_to_channels_first as to_published,
    },
    layers::Layer,
};
use gradewise_zoo::published::{self, Library, PublishedModel};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::de::DeserializeOwned;

const MODELS: [(&str, PublishedModel); 6] = [
    ("fluid", PublishedModel::Fluid),
    ("fluid-rotation", PublishedModel::Fluid),
    ("fluid-fourier", PublishedModel::Fluid),
    ("maxwell", PublishedModel::Maxwell),
    ("g3-resnet", PublishedModel::G3ResNet),
    ("g3-unet", PublishedModel::G3UNet),
];

fn published(name: &str) -> TensorFile {
    TensorFile::read(golden(&format!("{name}.safetensors"))).unwrap()
}

fn config<T: DeserializeOwned>(checkpoint: &Checkpoint) -> T {
    serde_json::from_value(checkpoint.metadata.model_config.clone()).unwrap()
}

/// The network of a checkpoint with its weights, in double precision.
fn network(checkpoint: &Checkpoint) -> Box<dyn Layer> {
    fn loaded<M: Module + Layer + 'static>(model: M, checkpoint: &Checkpoint) -> Box<dyn Layer> {
        model.load(&|name| checkpoint.tensors.find_array(name, DType::F64, &Device::Cpu)).unwrap();
        Box::new(model)
    }
    let (place, mut rng) = ((&Device::Cpu, DType::F64), ChaCha8Rng::seed_from_u64(0));
    let placement = gradewise_nn::Placement::new(place.0, place.1);
    match checkpoint.metadata.model.as_str() {
        "field_net" => loaded(FieldNet::init(&config(checkpoint), placement, &mut rng).unwrap(), checkpoint),
        "g3_resnet" => loaded(G3ResNet::init(&config(checkpoint), placement, &mut rng).unwrap(), checkpoint),
        "g3_unet" => loaded(G3UNet::init(&config(checkpoint), placement, &mut rng).unwrap(), checkpoint),
        other => panic!("a network for fields, not {other}"),
    }
}

#[test]
fn published_fields_are_predicted_as_in_pytorch() {
    let fields = TensorFile::read(golden("fields-predictions.safetensors")).unwrap();
    for (name, model) in MODELS {
        let (checkpoint, _) = published::import(&published(name), Library::CliffordLayers, model).unwrap();
        let [input, output] = ["input", "output"].map(|part| {
            let name = format!("{name}.{part}");
            let shape = Shape::from(fields.get(&name).unwrap().shape());
            Tensor::new(Array::from_f64(&values(&fields, &name), shape, DType::F64, &Device::Cpu).unwrap())
        });
        let found = network(&checkpoint).forward(&from_published(&input).unwrap()).unwrap();
        let found = to_published(&found).unwrap();
        assert_eq!(found.shape(), output.shape(), "{name}");
        let (found, expected) = (found.to_vec::<f64>().unwrap(), output.to_vec::<f64>().unwrap());
        let scale = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let error = found.iter().zip(&expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs())) / scale;
        println!("{name}: {error:.1e} of {scale:.2}");
        assert!(scale > 0.01 && found.iter().all(|x| x.is_finite()), "{name}");
        assert!(error < 1e-12, "{name}: {error:e}");
    }
}

#[test]
fn weights_of_fields_survive_the_round_trip_with_all_their_names() {
    for (name, model) in MODELS {
        let file = published(name);
        let (checkpoint, account) = published::import(&file, Library::CliffordLayers, model).unwrap();
        assert_eq!(account.used.len() + account.derived.len(), file.len(), "{name}");
        let (back, written) = published::export(&checkpoint, Library::CliffordLayers).unwrap();
        for (tensor, theirs) in file.iter() {
            assert_eq!(back.get(tensor), Some(theirs), "{name}: {tensor}");
        }
        // `load_state_dict` asks for both names of what rotational layers keep twice.
        let turns = file.iter().filter(|(name, _)| name.ends_with("scale_param")).count();
        assert_eq!(written.derived.len(), account.derived.len() + 2 * turns, "{name}");
        let (again, _) = published::import(&back, Library::CliffordLayers, model).unwrap();
        assert_eq!(again.tensors, checkpoint.tensors, "{name}");
        assert_eq!(again.metadata.model_config, checkpoint.metadata.model_config, "{name}");
    }
}

#[test]
fn files_of_other_fields_are_refused_by_name() {
    let refused = |file: &TensorFile, model, why: &str| {
        let error = published::import(file, Library::CliffordLayers, model).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&published("maxwell"), PublishedModel::Fluid, "expected 4 axes");
    refused(&published("g3-unet"), PublishedModel::G3ResNet, "conv_in1.weights.0");
    refused(&published("fluid"), PublishedModel::NBody, "cliffordlayers has no model `nbody`");
    let rebuilt = |change: &dyn Fn(&str) -> Option<String>| {
        let mut file = TensorFile::new();
        for (name, tensor) in published("fluid-rotation").iter() {
            if let Some(name) = change(name) {
                file.insert(name, tensor.clone());
            }
        }
        file
    };
    let file = rebuilt(&|name| (name != "layers.1.0.conv2.bias").then(|| name.to_owned()));
    refused(&file, PublishedModel::Fluid, "layers.1.0.conv2.bias");
    let file = rebuilt(&|name| Some(name.replace("layers.1.", "layers.3.")));
    refused(&file, PublishedModel::Fluid, "not all before it");
    let mut file = rebuilt(&|name| Some(name.to_owned()));
    file.insert("encoder.weight.4", StoredTensor::from_f64(&[4, 2, 1, 1], &[1.0; 8], DType::F32).unwrap());
    refused(&file, PublishedModel::Fluid, "second name of `encoder.scale_param`");
    // A kernel of as many channels as would take terabytes.
    let mut file = rebuilt(&|name| (!name.starts_with("encoder.w")).then(|| name.to_owned()));
    for blade in 0..4 {
        let kernel = StoredTensor::from_f64(&[1 << 16, 1, 1, 1], &vec![0.0; 1 << 16], DType::F32).unwrap();
        file.insert(format!("encoder.weight.{blade}"), kernel);
    }
    refused(&file, PublishedModel::Fluid, "too few weights");
}

#[test]
fn the_program_imports_and_exports_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (checkpoint, back) = (path("c.safetensors"), path("back.safetensors"));
    let file = golden("maxwell.safetensors");
    let file = file.to_str().unwrap();
    let from = ["--from", "cliffordlayers", "--model", "maxwell"];
    let said = succeeds(&[&["import", file], &from[..], &["--out", &checkpoint]].concat());
    assert!(said.contains("none missing"), "{said}");
    succeeds(&["export", &checkpoint, "--to", "cliffordlayers", "--out", &back]);
    let (ours, theirs) = (TensorFile::read(&back).unwrap(), TensorFile::read(file).unwrap());
    assert!(theirs.iter().all(|(name, tensor)| ours.get(name) == Some(tensor)));
}
