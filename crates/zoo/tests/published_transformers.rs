//! Weights of the published transformers: there and back bit for bit, with settings that show in the shapes and others that are asked for.

use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_nn::{
    Module, Placement, Result,
    checkpoint::{Checkpoint, CheckpointMetadata, FORMAT_VERSION, StoredTensor, TensorFile},
};
use gradewise_transformers::{
    gatr::{AxialGATr, AxialGATrConfig, GATr, GATrConfig},
    lgatr::{ConditionalLGATrConfig, LGATr, LGATrConfig},
    slim::{ConditionalLGATrSlimConfig, LGATrSlimConfig},
};
use gradewise_zoo::{
    models::{
        GravityConfig, GravityKind, GravityModel, JetKind, JetTagger, JetTaggerConfig, NBodyBatch, Reference,
    },
    published::{Account, Library, PublishedModel, Settings, export, import, import_with},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A golden file of a published package: its state_dict, the class and the constructor's arguments.
fn golden(name: &str) -> (TensorFile, Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../python/tests/transformers");
    let file = TensorFile::read(path.join(format!("{name}.safetensors"))).unwrap();
    let mut weights = TensorFile::new();
    for (name, tensor) in file.iter() {
        if let Some(name) = name.strip_prefix("weight.") {
            weights.insert(name, tensor.clone());
        }
    }
    (weights, serde_json::from_str(&file.metadata["arguments"]).unwrap())
}

fn with(
    file: &TensorFile,
    from: Library,
    model: PublishedModel,
    settings: &[&str],
) -> Result<(Checkpoint, Account)> {
    import_with(file, from, model, &Settings::parse(settings)?)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
    let message = result.expect_err("refused").to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

/// Every published state_dict comes back bit for bit, and the settings are the constructor's arguments.
#[test]
fn published_weights_come_back_bit_for_bit() {
    use Library::{Gatr, Lgatr};
    use PublishedModel::{AxialGATr, Conditional, ConditionalSlim, GATr, LGATr, Slim};
    let heads = "attention.num_heads=2";
    let cases: [(&str, Library, PublishedModel, &[&str]); 16] = [
        ("lgatr_full_group", Lgatr, LGATr, &[heads]),
        ("lgatr_head_scale", Lgatr, LGATr, &[]),
        ("lgatr_multi_query", Lgatr, LGATr, &[]),
        ("lgatr_no_bivector", Lgatr, LGATr, &[heads, "primitives.bivector=false"]),
        ("lgatr_no_product", Lgatr, LGATr, &[heads]),
        ("lgatr_reinsert", Lgatr, LGATr, &[heads, "reinsert_mv_channels=[0]", "reinsert_s_channels=[0, 2]"]),
        ("lgatr_conditional", Lgatr, Conditional, &[heads, "crossattention.num_heads=2"]),
        ("slim_conditional", Lgatr, ConditionalSlim, &["num_heads=2"]),
        ("slim_plain", Lgatr, Slim, &["num_heads=2"]),
        ("slim_no_affine", Lgatr, Slim, &["num_heads=2"]),
        ("slim_ratio", Lgatr, Slim, &["num_heads=2"]),
        ("slim_three_layers", Lgatr, Slim, &["num_heads=2"]),
        ("gatr_multi_head", Gatr, GATr, &[]),
        ("gatr_positions", Gatr, GATr, &[]),
        ("gatr_axial", Gatr, AxialGATr, &[]),
        ("gatr_reinsert", Gatr, GATr, &["reinsert_mv_channels=[0, 1]", "reinsert_s_channels=[0]"]),
    ];
    for (name, library, model, settings) in cases {
        let (file, arguments) = golden(name);
        let (checkpoint, account) =
            with(&file, library, model, settings).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(account.used.len(), file.len(), "{name}");
        let config = checkpoint.metadata.model_config.clone();
        let expected = match model {
            LGATr => serde_json::to_value(serde_json::from_value::<LGATrConfig>(arguments).unwrap()),
            Conditional => {
                serde_json::to_value(serde_json::from_value::<ConditionalLGATrConfig>(arguments).unwrap())
            }
            ConditionalSlim => {
                serde_json::to_value(serde_json::from_value::<ConditionalLGATrSlimConfig>(arguments).unwrap())
            }
            AxialGATr => serde_json::to_value(serde_json::from_value::<AxialGATrConfig>(arguments).unwrap()),
            Slim => serde_json::to_value(serde_json::from_value::<LGATrSlimConfig>(arguments).unwrap()),
            _ => serde_json::to_value(serde_json::from_value::<GATrConfig>(arguments).unwrap()),
        };
        assert_eq!(config, expected.unwrap(), "{name}");
        let (back, exported) = export(&checkpoint, library).unwrap();
        assert_eq!(back, file, "{name}");
        assert_eq!(exported.used, account.used);
        let (again, _) = with(&back, library, model, settings).unwrap();
        assert_eq!(again, checkpoint, "{name}");
    }
}

/// What does not show in the weights is asked for, and what contradicts them is refused.
#[test]
fn settings_are_asked_for_and_checked() {
    let (lgatr, gatr) = (PublishedModel::LGATr, PublishedModel::GATr);
    let (file, _) = golden("lgatr_full_group");
    let of = |settings: &[&str]| with(&file, Library::Lgatr, lgatr, settings);
    refused(of(&[]), &["number of heads", "attention.num_heads", "1, 2"]);
    refused(of(&["attention.num_heads=3"]), &["attention.num_heads=3 does not fit", "one of 1, 2"]);
    refused(of(&["attention.num_heads=2", "attention.attn_ratio=2"]), &["no number of heads fits"]);
    refused(of(&["attention.num_heads=2", "mlp.ratio=2"]), &["`ratio`", "mlp_ratio"]);
    refused(of(&["attention.num_heads=2", "mlp.nonlinearity=swish"]), &["swish", "silu"]);
    refused(of(&["attention.num_heads=2", "num_blocks=3"]), &["lacks", "blocks.2."]);
    refused(
        of(&["attention.num_heads=2", "reinsert_mv_channels=[0]"]),
        &["reinsert_mv_channels", "0 channels"],
    );
    assert!(of(&["attention.num_heads=2", "mlp.nonlinearity=silu", "dropout_prob=null"]).is_ok());
    refused(with(&file, Library::Gatr, gatr, &[]), &["5 coefficients", "expected 9"]);
    refused(with(&file, Library::Lgatr, gatr, &[]), &["lgatr has no model `gatr`"]);
    refused(
        with(&file, Library::Cgenn, PublishedModel::NBody, &["hidden=3"]),
        &["cgenn", "no settings", "hidden"],
    );

    let (file, _) = golden("lgatr_reinsert");
    let of = |settings: &[&str]| with(&file, Library::Lgatr, lgatr, settings);
    refused(of(&["attention.num_heads=2"]), &["reinsert_mv_channels=[…]", "1 numbers below 2"]);
    let settings = ["attention.num_heads=2", "reinsert_mv_channels=[2]", "reinsert_s_channels=[0, 1]"];
    refused(of(&settings), &["reinsert_mv_channels", "below 2"]);

    let (file, _) = golden("gatr_positions");
    let base = |settings: &[&str]| {
        let (checkpoint, _) = with(&file, Library::Gatr, gatr, settings).unwrap();
        checkpoint.metadata.model_config["attention"]["pos_enc_base"].clone()
    };
    assert_eq!((base(&[]), base(&["attention.pos_enc_base=100"])), (json!(4096.0), json!(100.0)));
    let mut more = file.clone();
    more.insert("blocks.1.norm.weight", StoredTensor::from_f64(&[1], &[1.0], DType::F32).unwrap());
    refused(import(&more, Library::Gatr, gatr), &["nothing takes (1)", "blocks.1.norm.weight"]);
    let mut gap = TensorFile::new();
    for (name, tensor) in file.iter() {
        gap.insert(name.replace("blocks.1.", "blocks.7."), tensor.clone());
    }
    refused(import(&gap, Library::Gatr, gatr), &["blocks.7", "no `blocks.1`"]);
    refused(import(&TensorFile::new(), Library::Gatr, gatr), &["linear_in.weight"]);
    // Sizes beyond the file are refused before anything is allocated.
    let mut large = file.clone();
    large.insert("linear_in.weight", StoredTensor::from_f64(&[300_000, 0, 9], &[], DType::F32).unwrap());
    refused(import(&large, Library::Gatr, gatr), &["too few weights"]);
}

/// A checkpoint of a model, in f32.
fn checkpoint(model: &impl Module, name: &str, config: Value) -> Checkpoint {
    let mut tensors = TensorFile::new();
    for (name, parameter) in model.named_parameters() {
        tensors.insert_array(name, &parameter.array()).unwrap();
    }
    let metadata = CheckpointMetadata {
        format_version: FORMAT_VERSION,
        model: name.to_owned(),
        model_config: config,
        step: 0,
        training: Value::Null,
        members: Vec::new(),
    };
    Checkpoint { metadata, tensors }
}

fn place() -> Placement {
    Placement::from(&Device::Cpu)
}

/// The networks of the tasks leave and come back, under the names of the published package.
#[test]
fn networks_of_tasks_come_back_bit_for_bit() {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    for kind in [JetKind::LGATr, JetKind::Slim] {
        let config = JetTaggerConfig {
            kind,
            hidden: 4,
            layers: 2,
            units: 1,
            scalars: 8,
            heads: 2,
            reference: Reference::None,
        };
        let model = JetTagger::init(&config, place(), rng).unwrap();
        let ours = checkpoint(&model, "lorentz", serde_json::to_value(config).unwrap());
        let (file, _) = export(&ours, Library::Lgatr).unwrap();
        assert!(file.get("blocks.1.norm2.weight_s").is_some());
        // Without outputs of vectors the published network has a parameter without elements.
        assert_eq!(file.len(), ours.tensors.len() + usize::from(kind == JetKind::Slim));
        let heads = if kind == JetKind::Slim { "num_heads=2" } else { "attention.num_heads=2" };
        let (back, _) = with(&file, Library::Lgatr, PublishedModel::Tagger, &[heads]).unwrap();
        assert_eq!(back, ours);
        refused(
            with(&file, Library::Lgatr, PublishedModel::Tagger, &[heads, "norm_elementwise_affine=false"]),
            &["lorentz", "norm_elementwise_affine=false"],
        );
        refused(export(&ours, Library::Gatr), &["`lorentz`", "gatr"]);
    }
    let config = GravityConfig {
        kind: GravityKind::Transformer,
        hidden: 4,
        layers: 1,
        scalars: 8,
        heads: 2,
        substeps: 1,
        kicks: 1,
        softening: 0.0,
        corrections: false,
        robust: 0.0,
    };
    let model = GravityModel::init(&config, place(), rng).unwrap();
    let ours = checkpoint(&model, "gravity", serde_json::to_value(config).unwrap());
    let (file, _) = export(&ours, Library::Gatr).unwrap();
    assert!(file.get("net.blocks.0.attention.attention.log_weights").is_some());
    let (back, _) = import(&file, Library::Gatr, PublishedModel::NBody).unwrap();
    assert_eq!(back, ours);
    refused(
        with(&file, Library::Gatr, PublishedModel::NBody, &["mlp.activation=relu"]),
        &["gravity has no such network", "relu"],
    );
    let messages = GravityConfig { kind: GravityKind::Messages, ..config };
    let other = checkpoint(&model, "gravity", serde_json::to_value(messages).unwrap());
    refused(export(&other, Library::Gatr), &["messages"]);
}

/// Blocks of even and of odd number of the network along two axes have positions each for themselves.
#[test]
fn positions_of_either_axis_come_back() {
    let rng = &mut ChaCha8Rng::seed_from_u64(11);
    for pos_encodings in [[false, false], [true, false], [false, true], [true, true]] {
        for (scalars, num_heads, increase_hidden_channels) in [(16, 2, 2), (8, 4, 1)] {
            let config: AxialGATrConfig = serde_json::from_value(json!({
                "in_mv_channels": 1, "out_mv_channels": 2, "hidden_mv_channels": 4, "hidden_s_channels": scalars,
                "attention": {
                    "num_heads": num_heads, "increase_hidden_channels": increase_hidden_channels, "pos_enc_base": 512.0,
                },
                "num_blocks": 3, "pos_encodings": pos_encodings,
            }))
            .unwrap();
            let model = AxialGATr::init(&config, place(), rng).unwrap();
            let ours = checkpoint(&model, "gatr-axial", serde_json::to_value(&config).unwrap());
            let (file, _) = export(&ours, Library::Gatr).unwrap();
            let settings: &[&str] = match pos_encodings {
                // Heads are at least so large, and frequencies are not there.
                [false, false] => &["attention.pos_enc_base=512"],
                _ => &[],
            };
            let (back, account) = with(&file, Library::Gatr, PublishedModel::AxialGATr, settings).unwrap();
            assert_eq!(back, ours, "{pos_encodings:?}");
            assert_eq!(account.used.len(), file.len());
            refused(
                import(&file, Library::Lgatr, PublishedModel::AxialGATr),
                &["lgatr has no model `gatr-axial`"],
            );
        }
    }
}

/// The task's transformer predicts what the published wrapper predicts with the same weights, and is regularised alike. `gatr_nbody` holds
/// weights, systems and predictions of gatr 1.4 in double precision.
#[test]
fn the_published_network_of_gravity_predicts_what_it_predicts_in_pytorch() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gatr_nbody.safetensors");
    let file = TensorFile::read(path).unwrap();
    let values = |name: &str| file.get(name).unwrap().to_f64_vec().unwrap();
    let mut weights = TensorFile::new();
    for (name, tensor) in file.iter() {
        if let Some(name) = name.strip_prefix("weight.") {
            weights.insert(name, tensor.clone());
        }
    }
    let (found, _) = import(&weights, Library::Gatr, PublishedModel::NBody).unwrap();
    let config: GravityConfig = serde_json::from_value(found.metadata.model_config).unwrap();
    let place = Placement::new(&Device::Cpu, DType::F64);
    let model = GravityModel::init(&config, &place, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
    model.load(&|name| found.tensors.find_array(name, DType::F64, &Device::Cpu)).unwrap();
    let (positions, velocities, masses) = (values("position"), values("velocity"), values("mass"));
    let batch = NBodyBatch::gravity((&positions, &velocities, &masses), 4, &place).unwrap();
    let (predicted, expected) = (model.forward(&batch).unwrap(), values("prediction"));
    let by_system = batch.by_system(&predicted).unwrap();
    assert_eq!(by_system.len(), 36);
    for (ours, theirs) in by_system.iter().zip(&expected) {
        assert!((ours - theirs).abs() < 1e-11, "{ours} {theirs}");
    }
    // Beside its own predictions the loss is the regulariser alone.
    let loss = model.loss(&batch, &predicted).unwrap().array().to_f64_vec().unwrap()[0];
    let regulariser = values("regulariser").iter().sum::<f64>() / 3.0;
    assert!((loss - 0.01 * regulariser).abs() < 1e-12, "{loss} {regulariser}");
}

/// Parameters without elements are in published files, and not in checkpoints.
#[test]
fn gains_of_no_scalars_are_written() {
    let rng = &mut ChaCha8Rng::seed_from_u64(9);
    let mut config: LGATrConfig = serde_json::from_value(json!({
        "num_blocks": 1, "in_mv_channels": 1, "out_mv_channels": 1, "hidden_mv_channels": 4,
        "attention": {"num_heads": 2}, "primitives": {"geometric_product": false}, "dropout_prob": 0.5,
    }))
    .unwrap();
    let model = LGATr::init(&config, place(), rng).unwrap();
    let ours = checkpoint(&model, "lgatr", serde_json::to_value(&config).unwrap());
    let (file, account) = export(&ours, Library::Lgatr).unwrap();
    assert_eq!(account.derived, ["blocks.0.norm1.weight_s", "blocks.0.norm2.weight_s"]);
    assert_eq!(file.get("blocks.0.norm1.weight_s").unwrap().shape(), [0]);
    let settings = ["attention.num_heads=2"];
    let (back, _) = with(&file, Library::Lgatr, PublishedModel::LGATr, &settings).unwrap();
    assert_eq!(back.tensors, ours.tensors);
    // There was dropout; how much does not show.
    config.dropout_prob = Some(0.0);
    assert_eq!(back.metadata.model_config, serde_json::to_value(&config).unwrap());
    let gatr: GATrConfig = serde_json::from_value(json!({
        "num_blocks": 0, "in_mv_channels": 1, "out_mv_channels": 1, "hidden_mv_channels": 2, "hidden_s_channels": 3,
    }))
    .unwrap();
    let model = GATr::init(&gatr, place(), rng).unwrap();
    let ours = checkpoint(&model, "gatr", serde_json::to_value(&gatr).unwrap());
    let (file, _) = export(&ours, Library::Gatr).unwrap();
    assert_eq!(import(&file, Library::Gatr, PublishedModel::GATr).unwrap().0, ours);
}
