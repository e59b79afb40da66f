//! The experiments in a short form, through the program: the loss falls, the error on new samples with it, and the trained model
//! has the symmetry it is built for.

#[path = "common/program.rs"]
mod program;

use gradewise_nn::{checkpoint::Checkpoint, data::Split, train::MetricsLog};
use gradewise_zoo::data::{
    jets::JetSets,
    npy::{self, encode_f32},
    points::{HULL_DIMENSION, HULL_POINTS, PointSets},
};
use program::program;
use std::{path::Path, process::Command};

/// Runs what must succeed, and returns what it says.
fn gradewise(folder: &Path, arguments: &str) -> String {
    let output = Command::new(program())
        .current_dir(folder)
        .args(arguments.split_whitespace())
        .output()
        .expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Trains a task in double precision: the mean loss of the first and of the last record, and the last record of all.
fn train(task: &str, settings: &str) -> (f64, f64, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let common = "--dtype f64 train.log_every=10 train.eval_every=0 train.checkpoint_every=0 --out run";
    let text = gradewise(folder.path(), &format!("train {task} {settings} {common}"));
    assert!(text.contains("symmetry "), "{text}");
    let records = MetricsLog::read(folder.path().join("run/metrics.jsonl")).unwrap();
    let losses: Vec<f64> = records.iter().filter_map(|record| record["train_loss"].as_f64()).collect();
    // The same numbers come from the checkpoint.
    let eval = |checkpoints: &str| -> serde_json::Value {
        serde_json::from_str(&gradewise(folder.path(), &format!("eval {checkpoints} --json"))).unwrap()
    };
    let checkpoint = "--checkpoint run/checkpoint.safetensors";
    let mut evaluated = eval(checkpoint);
    let last = records.last().unwrap();
    assert_eq!(evaluated["asymmetry"], last["asymmetry"], "{evaluated}");
    // The mean of what two equal models say is what each says, to the bit.
    let step = evaluated["step"].clone();
    evaluated["step"] = serde_json::json!([step, step]);
    assert_eq!(eval(&format!("{checkpoint} {checkpoint}")), evaluated);
    (losses[0], *losses.last().unwrap(), last.clone())
}

fn check(task: &str, settings: &str, fall: f64) {
    let (first, last, record) = train(task, settings);
    assert!(last < fall * first, "{task}: loss {first} -> {last}");
    let asymmetry = record["asymmetry"].as_f64().unwrap();
    assert!(asymmetry < 1e-10, "{task}: {asymmetry:e}");
}

#[test]
fn nbody() {
    check(
        "nbody",
        "data.train=64 data.valid=8 data.test=16 model.hidden=8 model.layers=1 train.batch_size=16 train.steps=120",
        0.7,
    );
}

/// The particles moved in steps, by a preset of its own.
#[test]
fn nbody_in_substeps() {
    check(
        "nbody",
        "--preset substeps data.train=64 data.valid=8 data.test=16 model.hidden=8 model.layers=1 model.substeps=2 \
         train.batch_size=16 train.steps=100 train.warmup_steps=5",
        0.7,
    );
}

/// Forces between pairs in many small steps, by a preset of its own.
#[test]
fn nbody_with_kicks() {
    check(
        "nbody",
        "--preset kicks data.train=64 data.valid=8 data.test=16 data.earlier=1 model.substeps=2 model.kicks=4 train.batch_size=16 train.steps=100 \
         train.warmup_steps=5 train.lr=0.01 train.ema=0",
        0.7,
    );
}

/// The moments before the one that is predicted.
#[test]
fn nbody_at_more_moments() {
    check(
        "nbody",
        "--preset moments data.train=32 data.valid=8 data.test=16 model.hidden=6 model.substeps=2 train.batch_size=16 \
         train.steps=100 train.warmup_steps=5 train.ema=0",
        0.7,
    );
}

/// Edges and triangles have features of their own.
#[test]
fn nbody_on_simplices() {
    check(
        "nbody",
        "model.graph=simplices data.train=64 data.valid=8 data.test=16 model.hidden=6 model.layers=1 train.batch_size=8 train.steps=120",
        0.7,
    );
}

#[test]
fn gravity() {
    check(
        "gravity",
        "--preset full data.train=64 data.valid=8 data.test=16 model.kicks=25 train.batch_size=16 train.steps=300 \
         train.warmup_steps=5 train.decay_steps=100",
        0.1,
    );
}

#[test]
fn gravity_by_a_transformer() {
    check(
        "gravity",
        "--preset transformer data.train=64 data.valid=8 data.test=16 model.hidden=4 model.scalars=8 model.layers=2 model.heads=2 \
         train.batch_size=16 train.steps=120 train.warmup_steps=5 train.decay_steps=60 train.lr=3e-3",
        0.5,
    );
}

/// A fluid, by steerable convolutions.
#[test]
fn navier_stokes() {
    check(
        "navier-stokes",
        "model.kind=steerable data.cells=16 data.factor=1 data.train=6 data.valid=1 data.test=2 model.hidden=4 model.blocks=1 \
         model.taps=3 train.batch_size=4 train.steps=120 train.warmup_steps=5 train.decay_steps=60 train.lr=5e-3",
        0.3,
    );
}

/// The same by steerable convolutions whose kernels depend on the field.
#[test]
fn maxwell_on_space_time_by_conditioned_kernels() {
    check(
        "maxwell2d",
        "data.points=16 data.factor=2 data.frames=8 data.window=4 data.train=4 data.valid=1 data.test=2 model.hidden=3 \
         model.kernel_hidden=4 model.conditioned=true train.batch_size=2 train.steps=60 train.warmup_steps=5 train.decay_steps=30 \
         train.lr=1e-2",
        0.7,
    );
}

/// An electromagnetic field in space, by steerable convolutions in three dimensions.
#[test]
fn maxwell() {
    check(
        "maxwell",
        "data.train=2 data.valid=1 data.test=1 model.hidden=2 model.kernel_hidden=4 train.batch_size=2 train.steps=60 \
         train.warmup_steps=5 train.decay_steps=30 train.lr=1e-2",
        // Batches are two of eight windows, whose losses differ.
        0.85,
    );
}

/// Fields on space-time, by convolutions that commute with the Lorentz group as far as a grid does.
#[test]
fn maxwell_on_space_time() {
    check(
        "maxwell2d",
        "data.points=16 data.factor=2 data.frames=8 data.window=4 data.train=4 data.valid=1 data.test=2 model.hidden=3 \
         model.kernel_hidden=4 train.batch_size=2 train.steps=100 train.warmup_steps=5 train.decay_steps=50 train.lr=1e-2",
        0.7,
    );
}

#[test]
fn signed_volumes_with_a_falling_rate() {
    let settings = "--preset falling data.train=512 data.valid=16 data.test=256 model.hidden=12 train.batch_size=32 train.steps=300 \
                    train.warmup_steps=10 train.decay_steps=200 train.lr=5e-3 train.ema=0.9";
    check("volumes", settings, 0.3);
}

#[test]
fn hull_volumes_in_many_orders() {
    let settings = "--preset falling data.train=128 data.valid=8 data.test=32 model.hidden=8 model.layers=2 train.batch_size=16 \
                    train.steps=120 train.warmup_steps=10 train.decay_steps=60 train.lr=5e-3 train.ema=0.9";
    check("hulls", settings, 0.5);
}

#[test]
fn o5_regression_with_a_falling_rate() {
    let settings = "--preset falling data.train=512 data.valid=16 data.test=64 model.hidden=32 train.batch_size=32 train.steps=300 \
                    train.warmup_steps=10 train.decay_steps=200 train.lr=3e-3 train.ema=0.9";
    check("o5", settings, 0.3);
}

#[test]
fn signed_volumes() {
    let settings = "data.train=512 data.valid=16 data.test=256 model.hidden=12 train.batch_size=32 train.steps=300 \
                    train.lr=5e-3";
    check("volumes", settings, 0.3);
}

#[test]
fn hull_volumes() {
    let settings = "data.train=128 data.valid=8 data.test=32 model.hidden=8 model.layers=2 train.batch_size=16 \
                    train.steps=120 train.lr=5e-3";
    check("hulls", settings, 0.5);
}

#[test]
fn hull_volumes_by_simplices() {
    let settings = "model.kind=simplices data.train=64 data.valid=4 data.test=8 model.hidden=4 model.layers=1 train.batch_size=4 \
                    train.steps=40 train.lr=2e-2";
    check("hulls", settings, 0.7);
}

#[test]
fn hull_volumes_of_few_points() {
    let settings = "--preset paper data.train=128 data.valid=8 data.test=32 model.hidden=4 model.layers=1 train.batch_size=8 \
                    train.steps=80 train.warmup_steps=5 train.decay_steps=40 train.lr=1e-2";
    check("hulls8", settings, 0.7);
}

#[test]
fn hull_volumes_of_few_points_by_products() {
    let settings = "--preset products data.train=64 data.orders=4 data.valid=8 data.test=32 model.hidden=8 model.layers=2 \
                    train.batch_size=32 train.steps=300 train.warmup_steps=10 train.decay_steps=150 train.lr=1e-2 train.ema=0.9";
    check("hulls8", settings, 0.4);
}

/// What learns its metric is not equivariant any more, and says so.
#[test]
fn hull_volumes_in_a_metric_that_is_learned() {
    let settings = "model.kind=metric data.train=128 data.valid=8 data.test=32 model.hidden=8 model.layers=2 train.batch_size=16 \
                    train.steps=60 train.lr=5e-3";
    let (first, last, record) = train("hulls", settings);
    assert!(last < 0.7 * first, "loss {first} -> {last}");
    let asymmetry = record["asymmetry"].as_f64().unwrap();
    assert!(asymmetry > 1e-6, "{asymmetry:e}");
}

#[test]
fn o5_regression() {
    let settings = "data.train=512 data.valid=16 data.test=64 model.hidden=32 train.batch_size=32 train.steps=300 \
                    train.lr=3e-3";
    check("o5", settings, 0.3);
}

#[test]
fn jets() {
    let settings = "data.train=256 data.valid=16 data.test=400 data.particles=8 model.hidden=4 model.layers=1 \
                    train.batch_size=16 train.steps=200 train.lr=1e-2";
    let (first, last, record) = train("lorentz", settings);
    assert!(last < 0.9 * first, "loss {first} -> {last}");
    let measure = |key: &str| record[format!("test_{key}")].as_f64().unwrap();
    assert!(measure("accuracy") > 0.7 && measure("auc") > 0.75 && measure("rejection_50") > 3.0, "{record}");
    // Momenta of a few hundred GeV, products of a few: boosts cost digits.
    let asymmetry = record["asymmetry"].as_f64().unwrap();
    assert!(asymmetry < 1e-7, "{asymmetry:e}");
}

/// The published transformers; they resume like any other model.
#[test]
fn jets_by_transformers() {
    for kind in ["lgatr", "slim", "pairs"] {
        let model = format!("model.kind={kind} model.hidden=4 model.scalars=8 model.layers=2 model.heads=2");
        let settings = format!(
            "{model} data.train=256 data.valid=16 data.test=200 data.particles=8 train.batch_size=16 train.steps=120 train.lr=1e-2"
        );
        let (first, last, record) = train("lorentz", &settings);
        assert!(last < 0.9 * first, "{kind}: loss {first} -> {last}");
        assert!(record["test_auc"].as_f64().unwrap() > 0.7, "{kind}: {record}");
        let asymmetry = record["asymmetry"].as_f64().unwrap();
        assert!(asymmetry < 1e-7, "{kind}: {asymmetry:e}");

        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let short = format!(
            "{model} data.train=32 data.valid=8 data.test=8 data.particles=5 train.batch_size=8 train.checkpoint_every=2 \
             train.eval_every=0 train.schedule=constant"
        );
        gradewise(here, &format!("train lorentz {short} train.steps=6 --out whole"));
        gradewise(here, &format!("train lorentz {short} train.steps=4 --out run"));
        gradewise(here, "train lorentz --resume run train.steps=6");
        let bytes = |run: &str| std::fs::read(here.join(run).join("checkpoint.safetensors")).unwrap();
        assert_eq!(bytes("whole"), bytes("run"), "{kind}");
        gradewise(here, "symmetry --checkpoint run/checkpoint.safetensors");
        // The network of pairs is our own, and has no published form.
        if kind != "pairs" {
            gradewise(here, "export run --to lgatr --out state_dict.safetensors");
        }
    }
}

#[test]
fn forces() {
    check(
        "forces",
        "data.train=64 data.valid=8 data.test=8 data.particles=3 data.follow=100 model.hidden=6 model.layers=1 train.batch_size=16 \
         train.steps=100",
        0.6,
    );
}

/// Potentials in which directions matter, and a model with tensors of rank 2.
#[test]
fn forces_of_quadrupoles_and_of_silicon() {
    let settings = "data.train=64 data.valid=8 data.test=8 data.particles=8 data.follow=10 model.hidden=6 train.steps=100 \
                    train.select=last";
    check("forces", &format!("--preset quadrupole {settings}"), 0.3);
    check("forces", &format!("--preset silicon {settings}"), 0.7);
}

#[test]
fn text() {
    let settings = "data.window=24 data.valid=4 data.test=8 model.block=24 model.width=16 model.heads=2 model.layers=1 \
                    train.batch_size=4 train.steps=150 train.lr=1e-2";
    check("gpt", settings, 0.7);
}

#[test]
fn a_text_of_ones_own_is_learnt_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("line.txt"), "pack my box with five dozen liquor jugs. ".repeat(60)).unwrap();
    let settings = "data.window=16 model.block=16 model.width=32 model.heads=2 model.layers=1 train.batch_size=8 \
                    train.steps=150 train.lr=5e-3";
    let text = gradewise(here, &format!("train gpt --text line.txt {settings} --out run"));
    assert!(text.contains("bits per byte") && text.contains("changes of what comes later"), "{text}");
    let sample = |more: &str| {
        gradewise(here, &format!("sample --checkpoint run/checkpoint.safetensors --prompt pack {more}"))
    };
    let written = sample("--bytes 20 --temperature 0");
    assert_eq!(written, "pack my box with five do\n");
    assert_eq!(sample("--bytes 30 --seed 4 --temperature 2"), sample("--bytes 30 --seed 4 --temperature 2"));
}

const TINY: &str =
    "data.valid=8 data.test=16 model.hidden=4 train.batch_size=8 train.steps=8 train.eval_every=2";

#[test]
fn a_learning_curve_is_the_runs_of_each_size() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let text = gradewise(here, &format!("train volumes {TINY} --curve 32,8 --seeds 2 --out curve"));
    assert!(text.contains("samples") && text.contains("±"), "{text}");
    let curve: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(here.join("curve/curve.json")).unwrap()).unwrap();
    let sizes: Vec<u64> =
        curve["points"].as_array().unwrap().iter().map(|point| point["samples"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [8, 32], "from few to many");
    assert!(std::fs::read_to_string(here.join("curve/curve.svg")).unwrap().contains("training samples"));
    // Each is the run with that many samples alone, though all share the largest data set.
    gradewise(here, &format!("train volumes {TINY} data.train=8 --seed 1 --out alone"));
    let bytes = |run: &str| std::fs::read(here.join(run).join("checkpoint.safetensors")).unwrap();
    assert_eq!(bytes("curve/train-8/seed-1"), bytes("alone"));
    assert_ne!(bytes("curve/train-32/seed-1"), bytes("alone"));
    let error = &curve["points"][0]["seeds"][1]["test_mse"];
    let records = MetricsLog::read(here.join("alone/metrics.jsonl")).unwrap();
    assert_eq!(&records.last().unwrap()["test_mse"], error);
}

#[test]
fn the_best_weights_are_kept_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // A rate so high that the last weights are not the best.
    let settings = format!("{TINY} data.train=32 train.select=best train.lr=0.5 train.schedule=constant");
    gradewise(here, &format!("train volumes {settings} --out run"));
    let records = MetricsLog::read(here.join("run/metrics.jsonl")).unwrap();
    let valid: Vec<(u64, f64)> = records
        .iter()
        .filter_map(|record| Some((record["step"].as_u64()?, record["valid_mse"].as_f64()?)))
        .collect();
    let best = valid.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert_ne!(best.0, 8, "the best was not the last: {valid:?}");
    assert_eq!(Checkpoint::read(here.join("run/best.safetensors")).unwrap().metadata.step, best.0);
    let eval = |file: &str, split: &str| -> f64 {
        let text =
            gradewise(here, &format!("eval --checkpoint run/{file}.safetensors --split {split} --json"));
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["mse"].as_f64().unwrap()
    };
    assert_eq!(eval("best", "valid"), best.1);
    assert_eq!(records.last().unwrap()["test_mse"].as_f64().unwrap(), eval("best", "test"));
    assert_ne!(eval("best", "test"), eval("checkpoint", "test"));
}

#[test]
fn a_model_of_velocities_is_followed_over_long_times() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let tiny = "data.train=64 data.valid=8 data.test=12 model.hidden=8 model.layers=1 train.batch_size=16 train.steps=100";
    gradewise(here, &format!("train nbody {tiny} model.velocities=true data.moments=3 --out run"));
    let records = MetricsLog::read(here.join("run/metrics.jsonl")).unwrap();
    assert!(records.last().unwrap()["test_velocity_mse"].as_f64().unwrap() > 0.0);
    let text = gradewise(here, "eval --checkpoint run/checkpoint.safetensors --dtype f64 --json");
    let asymmetry = serde_json::from_str::<serde_json::Value>(&text).unwrap()["asymmetry"].as_f64().unwrap();
    assert!(asymmetry < 1e-10, "velocities turn too: {asymmetry:e}");
    let follow = "eval --checkpoint run/checkpoint.safetensors --rollout motion --rollout-steps 3";
    let text = gradewise(here, follow);
    assert!(text.contains("without forces") && text.contains("rollout.svg"), "{text}");
    let json = std::fs::read_to_string(here.join("motion/rollout.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    // The first step is the task of the model itself.
    let (first, last) = (&json["steps"][0], &json["steps"][2]);
    let (mse, test) = (first["mse"].as_f64().unwrap(), records.last().unwrap()["test_mse"].as_f64().unwrap());
    assert!((mse / test - 1.0).abs() < 1e-4, "{mse} {test}");
    assert!(last["mse"].as_f64().unwrap() > mse && last["time"] == 3.0, "{json}");
    for (file, part) in [("rollout.svg", "<animate"), ("rollout-error.svg", "no forces")] {
        assert!(std::fs::read_to_string(here.join("motion").join(file)).unwrap().contains(part), "{file}");
    }
    // An earlier rollout is replaced, and so is an earlier dump; nothing else is without the flag.
    gradewise(here, follow);
    let dump = "eval --checkpoint run/checkpoint.safetensors --dump layers.0.edge.0";
    gradewise(here, dump);
    let arrays: Vec<_> =
        std::fs::read_dir(here.join("dump")).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!arrays.is_empty());
    gradewise(here, dump);
    std::fs::create_dir(here.join("report")).unwrap();
    for (file, command) in [
        (here.join("report/rollout.svg"), follow.replace("motion", "report")),
        (arrays[0].clone(), dump.to_owned()),
    ] {
        std::fs::write(&file, "by hand").unwrap();
        let output = Command::new(program()).current_dir(here).args(command.split(' ')).output();
        let output = output.expect("the program starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && message.contains("--overwrite"), "{command}: {message}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "by hand");
        gradewise(here, &format!("{command} --overwrite"));
        assert_ne!(std::fs::read(&file).unwrap(), b"by hand");
    }
    // A model of positions alone is no state to go on from.
    gradewise(here, &format!("train nbody {tiny} train.steps=1 --out plain"));
    let output = Command::new(program())
        .current_dir(here)
        .args(["eval", "--checkpoint", "plain/checkpoint.safetensors", "--rollout", "none"])
        .output()
        .expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && message.contains("model.velocities=true"), "{message}");
}

#[test]
fn a_model_of_fields_is_followed_over_whole_trajectories() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let tiny = "data.cells=16 data.factor=1 data.train=4 data.valid=1 data.test=2 model.hidden=4 model.blocks=1 model.taps=3 \
                train.batch_size=4 train.steps=60 train.warmup_steps=5 train.decay_steps=30 train.lr=5e-3";
    gradewise(here, &format!("train navier-stokes {tiny} --out run"));
    // The rollouts of the task's own measure, which sums over five steps.
    let text =
        gradewise(here, "eval --checkpoint run/checkpoint.safetensors --rollout five --rollout-steps 5");
    assert!(!text.contains("10 steps") && here.join("five/rollout.svg").is_file(), "{text}");
    let json = std::fs::read_to_string(here.join("five/rollout.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let sum: f64 = json["steps"].as_array().unwrap().iter().map(|step| step["mse"].as_f64().unwrap()).sum();
    let records = MetricsLog::read(here.join("run/metrics.jsonl")).unwrap();
    let measured = records.last().unwrap()["test_rollout"].as_f64().unwrap();
    assert!((sum / measured - 1.0).abs() < 1e-5, "{sum} {measured}");
}

/// A small run on jets.
const JETS: &str = "data.train=24 data.valid=8 data.test=20 data.particles=6 model.hidden=4 model.layers=1 train.batch_size=8 \
                    train.steps=4";

/// Writes 24 jets of so many particles as arrays.
fn write_jets(folder: &Path, split: Split, jets: &JetSets, particles: usize) {
    let labels: Vec<f64> = jets.labels().iter().map(|&label| f64::from(u8::from(label))).collect();
    let momenta = folder.join(format!("jets_{split}_momenta.npy"));
    npy::write(momenta, &[24, particles, 4], &jets.momenta()).unwrap();
    npy::write(folder.join(format!("jets_{split}_labels.npy")), &[24], &labels).unwrap();
}

#[test]
fn jets_are_read_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for split in Split::ALL {
        // More particles than are asked for.
        let jets = JetSets::simulate(24, 11, 3, split).unwrap();
        write_jets(here, split, &jets, 11);
    }
    gradewise(here, &format!("train lorentz {JETS} data.source=. --out files"));
    gradewise(here, &format!("train lorentz {JETS} data.seed=3 --out simulated"));
    let bytes = |run: &str| std::fs::read(here.join(run).join("checkpoint.safetensors")).unwrap();
    assert_eq!(bytes("files"), bytes("simulated"));
}

#[test]
fn published_jets_are_read_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let published = gradewise_testing::manifest_dir!().join("crates/zoo/tests/data/jets/published.h5");
    for (split, file) in [(Split::Train, "train.h5"), (Split::Valid, "val.h5"), (Split::Test, "test.h5")] {
        std::fs::copy(&published, here.join(file)).unwrap();
        let jets = JetSets::load(here, split, 12, 24).unwrap();
        let arrays = here.join("arrays");
        std::fs::create_dir_all(&arrays).unwrap();
        write_jets(&arrays, split, &jets, 12);
    }
    gradewise(here, &format!("train lorentz {JETS} data.source=. --out tables"));
    gradewise(here, &format!("train lorentz {JETS} data.source=arrays --out arrays/run"));
    let bytes = |run: &str| std::fs::read(here.join(run).join("checkpoint.safetensors")).unwrap();
    assert_eq!(bytes("tables"), bytes("arrays/run"));
    // A file of the wrong kind is the user's error, and says so.
    std::fs::write(here.join("val.h5"), "E,px,py,pz").unwrap();
    let output = Command::new(program())
        .current_dir(here)
        .args(format!("train lorentz {JETS} data.source=. --out broken").split_whitespace())
        .output()
        .expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && message.contains("val.h5 is not a usable HDF5 file"),
        "{message}"
    );
}

#[test]
fn published_files_are_read_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (split, name) in [(Split::Train, "train"), (Split::Valid, "val"), (Split::Test, "test")] {
        let data = PointSets::hull_volumes(HULL_POINTS, 20, 7, split).unwrap();
        let write = |kind: &str, shape: &[usize], values: &[f64]| {
            std::fs::write(here.join(format!("hulls_{name}_{kind}.npy")), encode_f32(shape, values).unwrap())
                .unwrap();
        };
        write("input", &[20, HULL_POINTS, HULL_DIMENSION], data.loc());
        write("target", &[20], data.target());
    }
    let settings = format!("{TINY} data.train=20 model.layers=1");
    gradewise(here, &format!("train hulls {settings} data.source=. --out files"));
    gradewise(here, &format!("train hulls {settings} data.seed=7 --out sampled"));
    let error = |run: &str| {
        let records = MetricsLog::read(here.join(run).join("metrics.jsonl")).unwrap();
        records.last().unwrap()["test_mse"].as_f64().unwrap()
    };
    let (files, sampled) = (error("files"), error("sampled"));
    assert!((files / sampled - 1.0).abs() < 1e-4, "up to the files' single precision: {files} {sampled}");
    std::fs::remove_file(here.join("hulls_val_target.npy")).unwrap();
    let output = Command::new(program())
        .current_dir(here)
        .args(["train", "hulls", "data.source=."])
        .output()
        .expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && message.contains("hulls_val_target.npy"), "{message}");
}
