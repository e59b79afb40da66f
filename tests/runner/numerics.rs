//! Comparison of runs, the scale of inputs, and symmetry.

use super::{TINY, command, refuse, succeed};
use gradewise_core::DType;
use gradewise_nn::checkpoint::{Checkpoint, StoredTensor, TensorFile};
use serde_json::Value;

#[test]
fn two_runs_are_compared_by_parameters_numbers_and_settings() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {TINY} train.steps=8");
    succeed(here, &format!("{run} --out a"));
    succeed(here, &format!("{run} --out same"));
    succeed(here, &format!("{run} --out b train.lr=0.002"));
    let (text, _) = succeed(here, "compare a same");
    assert!(text.contains("0 differ") && text.contains("the same at all 4 steps"), "{text}");
    let said = refuse(
        command(here, "compare a b"),
        1,
        &["all together by ", "part at step ", "train_loss: ", "train.lr: 0.004 and 0.002", "and 0 more"]
            [..4],
    );
    assert!(!said.contains("seconds"), "{said}");
    // Within a tolerance they agree, and the numbers say by how much they do not.
    succeed(here, "compare a b --tolerance 1e9");
    let json = command(here, "compare a b --json").output().unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let difference = json["difference"].as_f64().unwrap();
    assert!(
        difference > 0.0 && json["parameters"][0]["difference"].as_f64().unwrap() >= difference,
        "{json}"
    );

    // What is past a tolerance is listed, the largest first, and what is within is not.
    let text = refuse(
        command(here, "compare a b --tolerance 0.9 --limit 400"),
        1,
        &["by more than 9e-1", "numbers part, "],
    );
    let apart: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split_once("at most ")?.1.split_once(" apart")?.0.parse().ok())
        .collect();
    assert!(!apart.is_empty() && apart.iter().all(|&difference| difference > 0.9), "{text}");
    assert!(apart.windows(2).all(|pair| pair[0] >= pair[1]), "{text}");
    assert!(text.contains("  lr: ") && !text.contains("and 0 more"), "{text}");

    // Files: what only one has, and what is no number, never passes.
    let file = |name: &str, values: &[f64], extra: bool| {
        let mut file = TensorFile::new();
        let tensor = |values: &[f64]| StoredTensor::from_f64(&[values.len()], values, DType::F64).unwrap();
        file.insert("w", tensor(values));
        if extra {
            file.insert("bias", tensor(&[1.0]));
        }
        file.write(here.join(name)).unwrap();
    };
    file("x.safetensors", &[1.0, 2.0], false);
    file("y.safetensors", &[1.0, 2.0], true);
    file("nan.safetensors", &[1.0, f64::NAN], false);
    file("long.safetensors", &[1.0, 2.0, 3.0], false);
    succeed(here, "compare x.safetensors x.safetensors");
    refuse(
        command(here, "compare x.safetensors y.safetensors --tolerance 9"),
        1,
        &["only in the second: bias"],
    );
    refuse(command(here, "compare x.safetensors nan.safetensors --tolerance 9"), 1, &["no number  w"]);
    refuse(command(here, "compare x.safetensors long.safetensors --tolerance 9"), 1, &["shapes [2] and [3]"]);
    refuse(command(here, "compare x.safetensors none.safetensors"), 2, &["none.safetensors"]);
}

#[test]
fn the_scale_at_which_a_model_breaks_is_found_with_the_layer_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let small = TINY.replace("train.warmup_steps=2 train.decay_steps=4", "");
    let (text, _) = succeed(here, &format!("stability nbody {small} --from 0.1 --to 10 --samples 3"));
    assert!(text.contains("nbody in f32 against f64") && text.lines().count() == 6, "{text}");
    // What f32 cannot hold is found, by name, and only there.
    let said = refuse(
        command(here, &format!("stability nbody {small} --from 1 --to 1e30 --samples 2 --json")),
        1,
        &["scales a result is not finite"],
    );
    let json: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let rows = json["factors"].as_array().unwrap();
    assert!(rows.len() == 31 && rows[0]["left"].is_null(), "{json}");
    assert!(rows[30]["left"]["operation"].is_string(), "{json}");
    // Every task whose inputs have a scale has its sweep.
    for task in ["volumes", "hulls", "hulls8", "o5", "forces", "lorentz"] {
        let output = command(
            here,
            &format!("stability {task} --from 1 --to 1 --samples 2 data.train=4 data.valid=4 data.test=4 train.batch_size=4"),
        )
        .output()
        .unwrap();
        assert_eq!(output.status.code(), Some(0), "{task}: {}", String::from_utf8_lossy(&output.stderr));
    }
    refuse(command(here, "stability gpt"), 2, &["gpt have no scale"]);
    refuse(command(here, "stability nbody --from 2 --to 1"), 2, &["--from 2", "the smaller first"]);
}

#[test]
fn a_checkpoint_has_its_symmetry_or_the_command_fails() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &format!("train nbody {TINY} train.steps=4 --out run"));
    let check = "symmetry --checkpoint run/checkpoint.safetensors";
    let (text, _) = succeed(here, check);
    assert!(
        text.contains("symmetry of nbody under rotations, reflections and translations")
            && text.contains("holds")
    );
    let (json, _) = succeed(here, &format!("{check} --dtype f64 --json --draws 3"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(
        json["worst"].as_f64().unwrap() < 1e-9 && json["changes"].as_array().unwrap().len() == 3,
        "{json}"
    );
    refuse(
        command(here, &format!("{check} --tolerance 1e-30")),
        1,
        &["does NOT hold", "not symmetric under"],
    );
    // Weights that are no numbers have no symmetry.
    let sizes = "data.train=16 data.valid=8 data.test=8 train.batch_size=8 model.hidden=4 model.layers=1 train.steps=2";
    succeed(here, &format!("train volumes {sizes} --out volumes"));
    let path = here.join("volumes/checkpoint.safetensors");
    let mut file = Checkpoint::read(&path).unwrap();
    let shape = file.tensors.get("0.weight").unwrap().shape().to_vec();
    let values = vec![f64::NAN; shape.iter().product()];
    file.tensors.insert("0.weight", StoredTensor::from_f64(&shape, &values, DType::F32).unwrap());
    file.write(&path).unwrap();
    refuse(
        command(here, "symmetry --checkpoint volumes/checkpoint.safetensors"),
        1,
        &[
            "inf relative",
            "does NOT hold",
            "diverged: the relative change is inf",
            "the data are not at fault",
        ],
    );
    refuse(command(here, "symmetry --checkpoint none.safetensors"), 2, &["none.safetensors"]);
}
