//! What a run shows of its inside: operations in the log, results of layers, ranges for profilers, warnings about gradients.

use super::{TINY, bytes, command, has_gpu, refuse, succeed, text};
use gradewise_nn::checkpoint::Checkpoint;
use gradewise_zoo::data::npy::NpyArray;
use std::path::Path;

/// Lines of the log about operations.
fn operations(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.contains("gradewise::operations")).collect()
}

#[test]
fn operations_are_logged_with_shapes_and_times_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {TINY} train.steps=2");
    let (_, said) = succeed(here, &format!("{run} --out quiet"));
    assert!(operations(&said).is_empty(), "{said}");
    let (_, said) = succeed(here, &format!("{run} --out verbose -v"));
    let lines = operations(&said);
    for (operation, shape) in [("mv_linear forward: ", "f32 [8, "), ("mv_linear backward: ", " → f32 [")] {
        let line = lines.iter().find(|line| line.contains(operation));
        let line = line.unwrap_or_else(|| panic!("no `{operation}` in {lines:?}"));
        assert!(line.contains(shape) && line.contains(" on cpu, ") && line.ends_with(" ms"), "{line}");
    }
    let mut traced = command(here, &format!("{run} --out traced"));
    let output = traced.env("GRADEWISE_LOG", "gradewise::operations=trace").output().unwrap();
    let said = text(&output.stderr);
    assert!(!operations(&said).is_empty(), "{said}");
    assert!(operations(&said).len() <= lines.len(), "{} and {}", operations(&said).len(), lines.len());
    assert_eq!(bytes(here, "quiet"), bytes(here, "verbose"), "watching changes nothing");
    assert_eq!(bytes(here, "quiet"), bytes(here, "traced"), "watching changes nothing");
}

#[test]
fn operations_of_a_gpu_are_logged_with_times_of_their_own() {
    if !has_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_, said) =
        succeed(folder.path(), &format!("train nbody {TINY} train.steps=3 --device cuda -v --out run"));
    let lines = operations(&said);
    let timed = lines.iter().filter(|line| line.contains(" on cuda:0, ") && line.ends_with(" ms")).count();
    assert!(timed > 100, "every operation of all three steps: {timed} of {}", lines.len());
    assert!(lines.iter().all(|line| !line.ends_with("recorded")), "steps are not captured");
}

fn dumped(folder: &Path, name: &str) -> NpyArray {
    NpyArray::read(folder.join("dump").join(format!("{name}.npy"))).unwrap()
}

#[test]
fn results_of_a_layer_are_written_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {TINY} train.steps=2");
    let (_, said) = succeed(here, &format!("{run} --out run --dump layers.0.edge.0,embedding"));
    assert!(
        said.contains("dump: run/dump/layers.0.edge.0.npy has the result of `mv_linear`, f32 ["),
        "{said}"
    );
    let found = dumped(&here.join("run"), "layers.0.edge.0");
    // Blades of Cl(3,0), edges of 6 systems of 3 particles, features.
    assert_eq!(found.shape, [8, 6 * 3 * 2, 4]);
    assert!(found.values.iter().any(|&value| value != 0.0));
    let embedded = dumped(&here.join("run"), "embedding");
    assert_eq!((embedded.shape[0], embedded.shape[1]), (8, 6 * 3));
    // Looking changes nothing.
    succeed(here, &format!("{run} --out plain"));
    assert_eq!(bytes(here, "plain"), bytes(here, "run"));

    let eval = "eval --checkpoint run/checkpoint.safetensors";
    succeed(here, &format!("{eval} --dump embedding"));
    // A grade-wise map: the scalar of the embedding is that of its inputs by the weights.
    let weights = Checkpoint::read(here.join("run/checkpoint.safetensors")).unwrap();
    let features = *weights.tensors.get("embedding.weight").unwrap().shape().last().unwrap();
    assert_eq!(dumped(here, "embedding").shape, [8, 8 * 3, features]);
    refuse(
        command(here, &format!("{eval} --dump layers.9")),
        2,
        &["--dump layers.9", "embedding", "layers.0"],
    );
    let twice = format!("{eval} --checkpoint run/checkpoint.safetensors --dump embedding");
    refuse(command(here, &twice), 2, &["--dump shows one model"]);
}

/// The ranges that a profiler hears, each with those around it: `step/forward`.
fn ranges(log: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    for line in log.lines() {
        match line.strip_prefix("push ") {
            Some(name) => {
                open.push(name);
                all.push(open.join("/"));
            }
            None => drop(open.pop()),
        }
    }
    all
}

#[test]
fn profilers_see_steps_and_their_parts() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let log = here.join("log");
    let mut run = command(here, &format!("train nbody {TINY} train.steps=4 train.accumulation=2 --out run"));
    run.env("NVTX_INJECTION64_PATH", gradewise_fake_driver::nvtx()).env("FAKE_NVTX_LOG", &log);
    assert!(run.output().unwrap().status.success());
    let ranges = ranges(&std::fs::read_to_string(&log).unwrap());
    let count = |name: &str| ranges.iter().filter(|range| *range == name).count();
    assert_eq!(["step", "step/update", "evaluate", "checkpoint"].map(count), [4, 4, 1, 1], "{ranges:?}");
    let parts = ["step/wait for a batch", "step/forward", "step/backward"];
    assert_eq!(parts.map(count), [8, 8, 8], "{ranges:?}");
}

#[test]
fn gradients_that_leave_their_past_are_told_once_before_numbers_stop_being_finite() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let settings = TINY
        .replace("train.warmup_steps=2 train.decay_steps=4", "train.schedule=constant")
        .replace("train.log_every=2", "train.log_every=50");
    let run = format!("train nbody {settings} train.steps=60");
    let count = |said: &str| said.matches("the gradient norm of").count();
    let (report, said) = succeed(here, &format!("{run} --out calm"));
    assert_eq!(count(&said), 0, "nothing to warn of: {said}");
    assert!(!report.contains("gradients   of a layer"), "{report}");
    // A learning rate that rises until nothing is left of the weights.
    let (report, said) = succeed(here, &format!("{run} train.lr=30 train.warmup_steps=60 --out rising"));
    assert_eq!(count(&said), 1, "once: {said}");
    for part in
        ["warning: step ", "the median of the steps before", "gradients may ", "runtime.detect_anomaly=true"]
    {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    assert!(report.contains("gradients   of a layer beyond 100 times their median"), "{report}");
}

#[test]
fn debug_mode_begins_with_the_information_block_however_it_is_switched_on() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {TINY} train.steps=2");
    let blocks = |said: &str| said.lines().filter(|line| *line == "[CUDA Info]").count();
    let (_, said) = succeed(here, &format!("{run} --out plain"));
    assert_eq!(blocks(&said), 0, "{said}");
    let (_, said) = succeed(here, &format!("{run} --out option --debug-cuda"));
    assert_eq!(blocks(&said), 1, "{said}");
    assert!(
        said.contains("\ngradewise            ") && said.contains("debug mode: new memory is poisoned"),
        "{said}"
    );
    let mut variable = command(here, &format!("{run} --out variable"));
    let said = text(&variable.env("GRADEWISE_DEBUG_CUDA", "1").output().unwrap().stderr);
    assert_eq!(blocks(&said), 1, "{said}");
    let (_, said) = succeed(here, &format!("debug -- {run} --out command"));
    assert_eq!(blocks(&said), 1, "not once more by the command: {said}");
    // Also where the device does not open: what is known of it is of use then.
    let mut absent = command(here, &format!("{run} --out absent --device cuda:7 --debug-cuda"));
    absent.env("LD_LIBRARY_PATH", gradewise_fake_driver::folder()).env("FAKE_CUDA", "devices=1");
    let said = refuse(absent, 2, &["[CUDA Info]"]);
    assert!(said.contains("count                1"), "{said}");
}

#[test]
fn cards_stand_for_their_presets() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        format!("train nbody {TINY} train.steps=2 --device cpu runtime.compute=exact runtime.precision=full");
    for (card, preset) in [("rtx3060", "gpu-12gb"), ("a100", "a100"), ("rtx4090", "gpu-24gb")] {
        let (_, said) = succeed(folder.path(), &format!("{run} --hardware {card} --out {card}"));
        assert!(said.contains(&format!("hardware: {preset} (")), "{said}");
    }
}

#[test]
fn elements_of_gradients_are_clipped_by_a_setting() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {TINY} train.steps=4");
    succeed(here, &format!("{run} --out free"));
    succeed(here, &format!("{run} --out clipped train.clip_value=1e-3"));
    assert_ne!(bytes(here, "free"), bytes(here, "clipped"));
    let config = std::fs::read_to_string(here.join("clipped/config.toml")).unwrap();
    assert!(config.contains("clip_value = 0.001"), "{config}");
    for refused in ["-1", "nan"] {
        refuse(
            command(here, &format!("{run} train.clip_value={refused}")),
            2,
            &["train.clip_value", "at least 0"],
        );
    }
}

#[test]
fn copies_between_host_and_device_have_rows_in_a_profile() {
    if !has_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let profile = "profile nbody data.train=24 model.hidden=4 model.layers=1 train.batch_size=6 --steps 2 --device cuda";
    let (report, _) = succeed(folder.path(), profile);
    assert!(report.contains("copy between host and device") && report.contains("to device"), "{report}");
    let (json, _) = succeed(folder.path(), &format!("{profile} --json"));
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let copies = report["copies"].as_array().unwrap();
    assert!(copies.iter().any(|copy| copy["direction"] == "to host" && copy["bytes"].as_f64() > Some(0.0)));
}
