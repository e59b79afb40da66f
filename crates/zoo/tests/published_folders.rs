//! Folders of PyTorch models become checkpoints and come back, with the arguments of their constructors in place of questions.

use gradewise_nn::{
    Result,
    checkpoint::{Checkpoint, CheckpointMetadata, FORMAT_VERSION, FolderConfig, ModelFolder, TensorFile},
};
use gradewise_zoo::published::{
    Library, PublishedModel, Settings, export, export_folder, import_folder, import_with,
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A published network with constructor's arguments, as `save_pretrained` writes it: with options that change no prediction.
fn golden(name: &str, class: &str) -> ModelFolder {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../python/tests/transformers");
    let file = TensorFile::read(path.join(format!("{name}.safetensors"))).unwrap();
    let mut tensors = TensorFile::new();
    for (name, tensor) in file.iter() {
        if let Some(name) = name.strip_prefix("weight.") {
            tensors.insert(name, tensor.clone());
        }
    }
    let mut arguments: Value = serde_json::from_str(&file.metadata["arguments"]).unwrap();
    for part in ["attention", "crossattention", "mlp", "primitives"] {
        let Some(options) = arguments.get_mut(part).and_then(Value::as_object_mut) else { continue };
        if part != "primitives" {
            options.insert("dropout_prob".to_owned(), Value::Null);
            options.insert("out_mv_channels".to_owned(), Value::Null);
            options.insert("additional_qk_s_channels".to_owned(), 0.into());
        }
        for key in ["output_init", "sparse_gp", "checkpoint"] {
            options.insert(key.to_owned(), true.into());
        }
    }
    let arguments = arguments.as_object_mut().unwrap();
    for (key, value) in
        [("checkpoint_blocks", json!(true)), ("compile_kwargs", Value::Null), ("naive_amp", json!(true))]
    {
        arguments.insert(key.to_owned(), value);
    }
    for key in ["reinsert_mv_channels", "reinsert_s_channels"] {
        arguments.entry(key).or_insert(Value::Null);
    }
    if class.ends_with("Slim") || class.contains("Conditional") {
        arguments.retain(|key, _| !key.starts_with("reinsert"));
    }
    ModelFolder { config: FolderConfig::new(class, arguments.clone()), tensors }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
    let message = result.expect_err("refused").to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn folders_come_back_bit_for_bit() {
    use Library::{Gatr, Lgatr};
    use PublishedModel::{AxialGATr, Conditional, ConditionalSlim, GATr, LGATr, Slim};
    let heads = "attention.num_heads=2";
    let cases: [(&str, &str, Library, PublishedModel, &[&str]); 13] = [
        ("lgatr_full_group", "lgatr.LGATr", Lgatr, LGATr, &[heads]),
        ("lgatr_head_scale", "lgatr.LGATr", Lgatr, LGATr, &[]),
        ("lgatr_no_bivector", "lgatr.LGATr", Lgatr, LGATr, &[heads, "primitives.bivector=false"]),
        ("lgatr_no_product", "lgatr.LGATr", Lgatr, LGATr, &[heads]),
        (
            "lgatr_reinsert",
            "lgatr.LGATr",
            Lgatr,
            LGATr,
            &[heads, "reinsert_mv_channels=[0]", "reinsert_s_channels=[0, 2]"],
        ),
        (
            "lgatr_conditional",
            "lgatr.ConditionalLGATr",
            Lgatr,
            Conditional,
            &[heads, "crossattention.num_heads=2"],
        ),
        ("slim_conditional", "lgatr.ConditionalLGATrSlim", Lgatr, ConditionalSlim, &["num_heads=2"]),
        ("slim_plain", "lgatr.LGATrSlim", Lgatr, Slim, &["num_heads=2"]),
        ("slim_three_layers", "lgatr.LGATrSlim", Lgatr, Slim, &["num_heads=2"]),
        ("gatr_multi_head", "gatr.GATr", Gatr, GATr, &[]),
        ("gatr_positions", "gatr.GATr", Gatr, GATr, &[]),
        ("gatr_axial", "gatr.AxialGATr", Gatr, AxialGATr, &[]),
        (
            "gatr_reinsert",
            "gatr.GATr",
            Gatr,
            GATr,
            &["reinsert_mv_channels=[0, 1]", "reinsert_s_channels=[0]"],
        ),
    ];
    for (name, class, library, model, settings) in cases {
        let folder = golden(name, &format!("gradewise.torch.{class}"));
        let (checkpoint, _) = import_folder(&folder, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        let asked = Settings::parse(settings).unwrap();
        let (expected, _) = import_with(&folder.tensors, library, model, &asked).unwrap();
        assert_eq!(checkpoint, expected, "{name}");
        let (back, _) = export_folder(&checkpoint, library).unwrap();
        assert_eq!(back.config.class, folder.config.class);
        assert!(back.tensors.iter().eq(folder.tensors.iter()), "{name}");
        // What Python is told is what it had said.
        for (key, value) in &back.config.arguments {
            let said = folder.config.arguments.get(key);
            let scalar = |value: &&Value| !value.is_object() && !value.is_null();
            if let Some(said) = said.filter(scalar) {
                assert_eq!(said, value, "{name}: {key}");
            }
        }
        assert_eq!(import_folder(&back, None).unwrap().0, checkpoint, "{name}");
    }
}

#[test]
fn other_classes_arguments_and_weights_are_refused() {
    let folder =
        golden("lgatr_full_group", "gradewise.torch.cliffordlayers.models.gca.twod.CliffordG3UNet2d");
    refused(
        import_folder(&folder, None),
        &["CliffordG3UNet2d", "expected one of", "gradewise.torch.gatr.GATr"],
    );
    let mut folder = golden("lgatr_full_group", "gradewise.torch.lgatr.LGATr");
    refused(import_folder(&folder, Some(PublishedModel::GATr)), &["lgatr has no model `gatr`"]);
    let kept = folder.clone();
    folder.config.arguments.insert("num_blocks".to_owned(), 3.into());
    refused(import_folder(&folder, None), &["lacks", "blocks.2."]);
    folder.config.arguments.insert("blocks".to_owned(), 3.into());
    refused(import_folder(&folder, None), &["`blocks`", "num_blocks"]);
    let mut folder = kept;
    let name = "blocks.0.attention.out_linear.weight";
    let shape = folder.tensors.get(name).unwrap().shape().to_vec();
    let values = vec![f64::NAN; shape.iter().product()];
    let broken =
        gradewise_nn::checkpoint::StoredTensor::from_f64(&shape, &values, gradewise_core::DType::F64);
    folder.tensors.insert(name, broken.unwrap());
    refused(import_folder(&folder, None), &[name, "NaN"]);
}

#[test]
fn the_n_body_network_has_no_other_arguments() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/published/nbody.safetensors");
    let tensors = TensorFile::read(path).unwrap();
    let found = import_with(&tensors, Library::Cgenn, PublishedModel::NBody, &Settings::default()).unwrap().0;
    let (folder, _) = export_folder(&found, Library::Cgenn).unwrap();
    assert_eq!(folder.config.class, "gradewise.torch.cgenn.NBodyCGGNN");
    assert_eq!(folder.config.arguments["hidden_features"], found.metadata.model_config["hidden"]);
    assert_eq!(import_folder(&folder, None).unwrap().0, found);
    for (key, value) in [("residual", json!(false)), ("n_layers", json!(7))] {
        let mut other = folder.clone();
        other.config.arguments.insert(key.to_owned(), value);
        refused(import_folder(&other, None), &[key, "the network here has"]);
    }
    let metadata = CheckpointMetadata {
        format_version: FORMAT_VERSION,
        model: "layer".to_owned(),
        model_config: json!({}),
        step: 0,
        training: Value::Null,
        members: Vec::new(),
    };
    let layer = Checkpoint { metadata, tensors: TensorFile::new() };
    assert_eq!(
        export_folder(&layer, Library::Lgatr).unwrap_err().to_string(),
        export(&layer, Library::Lgatr).unwrap_err().to_string()
    );
}
