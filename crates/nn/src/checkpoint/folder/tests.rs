use super::*;
use crate::checkpoint::StoredTensor;
use gradewise_core::DType;
use std::path::PathBuf;

/// Five tensors of 16 bytes and one of 64.
fn model() -> ModelFolder {
    let mut tensors = TensorFile::new();
    for number in 0..5 {
        let values = [f64::from(number), -0.0];
        tensors.insert(
            format!("layers.{number}.weight"),
            StoredTensor::from_f64(&[2], &values, DType::F64).unwrap(),
        );
    }
    tensors.insert("layers.2.bias", StoredTensor::from_f64(&[4, 4], &[0.5; 16], DType::F32).unwrap());
    let arguments =
        serde_json::json!({"num_blocks": 2, "dropout_prob": null, "eps": 0.001, "name": "größer"});
    let config = FolderConfig::new("gradewise.torch.lgatr.LGATr", arguments.as_object().unwrap().clone());
    ModelFolder { config, tensors }
}

fn files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn written(shard_bytes: u64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    model().write(&path, shard_bytes).unwrap();
    (folder, path)
}

#[track_caller]
fn refused_with(path: &Path, parts: &[&str]) {
    let error = ModelFolder::read(path).unwrap_err();
    assert!(error.is_input(), "{error:?}");
    let message = error.to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

#[test]
fn whole_and_sharded_folders_come_back_bit_for_bit() {
    for shard_bytes in [SHARD_BYTES, 40, 1] {
        let (_folder, path) = written(shard_bytes);
        let back = ModelFolder::read(&path).unwrap();
        assert_eq!(back.config, model().config);
        assert_eq!(back.tensors.len(), 6);
        for (name, tensor) in model().tensors.iter() {
            assert_eq!(back.tensors.get(name), Some(tensor), "{name}");
        }
    }
}

#[test]
fn shards_are_filled_in_the_order_of_names_and_larger_tensors_stand_alone() {
    let (_folder, path) = written(40);
    let index: Value = serde_json::from_slice(&std::fs::read(path.join(INDEX)).unwrap()).unwrap();
    assert_eq!(index["metadata"]["total_size"], 5 * 16 + 64);
    let places: Vec<&str> =
        index["weight_map"].as_object().unwrap().values().map(|file| file.as_str().unwrap()).collect();
    // layers.0.weight, layers.1.weight | layers.2.bias | layers.2.weight, layers.3.weight | layers.4.weight
    let shards = [1, 1, 2, 3, 3, 4].map(|number| format!("model-0000{number}-of-00004.safetensors"));
    assert_eq!(places, shards);
}

#[test]
fn an_earlier_model_leaves_no_weights_and_other_files_stay() {
    let (_folder, path) = written(40);
    std::fs::write(path.join("README.md"), "a model").unwrap();
    model().write(&path, SHARD_BYTES).unwrap();
    assert_eq!(files(&path), ["README.md", CONFIG, WHOLE]);
    model().write(&path, 40).unwrap();
    assert_eq!(files(&path).len(), 4 + 3);
    ModelFolder::read(&path).unwrap();
    assert!(matches!(model().write(&path, 0), Err(Error::Argument { .. })));
}

#[test]
fn folders_that_are_none_say_what_to_do() {
    let (_folder, path) = written(SHARD_BYTES);
    refused_with(&path.join("nowhere"), &["no config.json", "save_pretrained"]);
    let rewrite = |from: &str, to: &str| {
        let text = std::fs::read_to_string(path.join(CONFIG)).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(path.join(CONFIG), text.replace(from, to)).unwrap();
    };
    rewrite("\"library\": \"gradewise\"", "\"library\": \"transformers\"");
    refused_with(&path, &["another library", "--from"]);
    rewrite("transformers", "gradewise");
    rewrite("\"format_version\": 1", "\"format_version\": 2");
    refused_with(&path, &["format_version 2", "newer gradewise"]);
    rewrite("\"format_version\": 2", "\"format_version\": \"one\"");
    refused_with(&path, &["\"one\"", "expected 1"]);
    rewrite("\"format_version\": \"one\"", "\"format_version\": 1");
    rewrite("\"class\"", "\"klass\"");
    refused_with(&path, &["class", "write the folder again"]);
    std::fs::write(path.join(CONFIG), "{").unwrap();
    refused_with(&path, &["no JSON"]);
}

#[test]
fn missing_foreign_and_surplus_weights_are_refused() {
    let (_folder, path) = written(40);
    let shard = |number: usize| path.join(format!("model-{number:05}-of-00004.safetensors"));
    std::fs::copy(shard(1), path.join(WHOLE)).unwrap();
    refused_with(&path, &["both"]);
    std::fs::remove_file(path.join(WHOLE)).unwrap();

    let kept = std::fs::read(shard(2)).unwrap();
    std::fs::remove_file(shard(2)).unwrap();
    refused_with(&path, &["model-00002-of-00004.safetensors", "not there", "whole"]);
    std::fs::write(shard(2), &kept[..kept.len() - 3]).unwrap();
    refused_with(&path, &["model-00002-of-00004.safetensors", "truncated"]);
    std::fs::copy(shard(1), shard(2)).unwrap();
    refused_with(&path, &["model-00002-of-00004.safetensors", "layers.2.bias", "layers.0.weight"]);
    std::fs::write(shard(2), &kept).unwrap();
    ModelFolder::read(&path).unwrap();

    let index = std::fs::read_to_string(path.join(INDEX)).unwrap();
    for outside in ["../secret.safetensors", "model-1-of-2.safetensors", "/model-00001-of-00004.safetensors"]
    {
        let changed = index.replacen("model-00001-of-00004.safetensors", outside, 1);
        std::fs::write(path.join(INDEX), changed).unwrap();
        refused_with(&path, &["layers.0.weight", outside]);
    }
    std::fs::write(path.join(INDEX), "{\"metadata\": {}}").unwrap();
    refused_with(&path, &["weight_map"]);
    std::fs::remove_file(path.join(INDEX)).unwrap();
    refused_with(&path, &["neither model.safetensors nor"]);
}
