//! Settings of machines and runs.

use super::{TINY, bytes, checkpoint, command, refuse, succeed};
use gradewise_nn::train::MetricsLog;
use std::path::Path;

#[test]
fn presets_of_machines_are_listed_shown_detected_and_lie_under_the_users_settings() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (list, _) = succeed(here, "hardware");
    for part in ["cpu", "gpu-12gb", "h200", "9.0 130 GiB", "runtime.compute=tf32", "* this machine: "] {
        assert!(list.contains(part), "`{part}` is not in: {list}");
    }
    assert_eq!(list.lines().filter(|line| line.starts_with("* ")).count(), 2, "one is marked: {list}");
    let (file, _) = succeed(here, "hardware gpu-12gb");
    assert!(file.starts_with("# Consumer cards") && file.contains("precision = \"bf16\""), "{file}");

    // No GPU is needed to see what would be set: options and key=value win over the preset, the preset over the defaults.
    let run = format!("train nbody {TINY} train.steps=2 --out run --device cpu runtime.compute=exact");
    let (_, said) = succeed(here, &format!("{run} --hardware gpu-12gb"));
    assert!(
        said.contains("hardware: gpu-12gb (as asked): runtime.compute=tf32 runtime.device=cuda"),
        "{said}"
    );
    let config = std::fs::read_to_string(here.join("run/config.toml")).unwrap();
    for part in ["device = \"cpu\"", "compute = \"exact\"", "precision = \"bf16\""] {
        assert!(config.contains(part), "`{part}` is not in: {config}");
    }
    let detected =
        if cfg!(feature = "cuda") { "hardware: " } else { "hardware: cpu (this build has no CUDA kernels)" };
    let (_, said) = succeed(here, &format!("{} --hardware auto", run.replace("--out run", "--out auto")));
    assert!(said.contains(detected), "{said}");
    refuse(command(here, "train nbody --hardware h20"), 2, &["did you mean `h200`", "gradewise hardware"]);
}

#[test]
fn devices_can_be_asked_for_by_settings() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(
        here.join("run.toml"),
        "[runtime]\ndevice = \"cuda\"\ndevices = 977\nmin_devices = 976\nfallback = \"cpu\"\n",
    )
    .unwrap();
    let (_, said) = succeed(here, &format!("train nbody {TINY} train.steps=2 --config run.toml --out run"));
    assert!(said.contains("devices: cpu (976 GPUs needed"), "{said}");
    let config = std::fs::read_to_string(here.join("run/config.toml")).unwrap();
    assert!(
        config.contains("devices = \"1\"") && config.contains("device = \"cpu\""),
        "what came of it: {config}"
    );
    for (arguments, parts) in [
        ("runtime.devices=none", &["none", "auto"][..]),
        ("runtime.devices=0", &["auto"]),
        ("runtime.fallback=tpu", &["runtime.fallback", "none, cpu"]),
        ("runtime.strategy=pipeline", &["runtime.strategy", "data-parallel, the only one there is"]),
        ("runtime.prefetch=100000", &["runtime.prefetch", "at most"]),
        ("runtime.devices=2 --seeds 2", &["--seeds", "one after another"]),
        ("--device rocm:0", &["AMD", "not supported", "cuda:N"]),
    ] {
        refuse(command(here, &format!("train nbody {TINY} {arguments}")), 2, parts);
    }
}

#[test]
fn a_run_that_no_longer_gets_better_stops_and_can_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // So small a rate that the valid error moves by rounding alone, or not at all.
    let run = format!(
        "train nbody {TINY} train.steps=400 train.lr=1e-30 train.final_lr=0 train.eval_every=2 train.patience=3 --out run"
    );
    let (text, _) = succeed(here, &run);
    assert!(text.contains("stopped early: 3 evaluations without a valid MSE below"), "{text}");
    assert!(text.contains("--resume run train.patience=0"), "{text}");
    let records = MetricsLog::read(here.join("run/metrics.jsonl")).unwrap();
    let valid: Vec<f64> = records.iter().filter_map(|record| record["valid_mse"].as_f64()).collect();
    let best = valid.iter().copied().fold(f64::INFINITY, f64::min);
    let since = valid.len() - 1 - valid.iter().position(|&error| error == best).unwrap();
    assert_eq!(since, 3, "{valid:?}");
    assert_eq!(checkpoint(here, "run").metadata.step, 2 * valid.len() as u64);
    assert!(records.iter().any(|record| record["test_mse"].is_f64()), "the run is reported");
    // What was counted goes on counting: one more step shows it, and without patience it trains to the end.
    let (text, _) = succeed(here, "train nbody --resume run train.steps=20 train.patience=0");
    assert!(!text.contains("stopped early") && text.contains("after 20 steps"), "{text}");
}

#[test]
fn the_same_settings_give_the_same_bits_whatever_prepares_the_batches() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {TINY} train.steps=6 train.clip_norm=1.0");
    succeed(here, &format!("{run} --out one"));
    for (name, settings) in [
        ("again", ""),
        ("threads", "runtime.threads=1"),
        ("unprepared", "runtime.prefetch=0"),
        ("prepared", "runtime.prefetch=7"),
    ] {
        succeed(here, &format!("{run} {settings} --out {name}"));
        assert!(bytes(here, "one") == bytes(here, name), "{name}");
    }
    let refused = |settings: &str, code, parts: &[&str]| {
        let mut command = command(here, &format!("{run} --device cuda {settings}"));
        command.env("GRADEWISE_CUBLASLT", "1");
        refuse(command, code, parts)
    };
    refused("", 2, &["GRADEWISE_CUBLASLT=1", "runtime.deterministic=false"]);
    // Allowed; that there is no such device is another matter.
    let said = refused("runtime.device=cuda:977 runtime.deterministic=false", 2, &["cuda:977"]);
    assert!(!said.contains("CUBLASLT"), "{said}");
}

/// The bits of runs that are made at once and one after another, and what the former say.
fn at_once_and_in_turn(here: &Path, settings: &str) -> (String, String) {
    let run = format!("train nbody {TINY} train.steps=8 {settings} --seeds 2,0,5");
    let (text, said) = succeed(here, &format!("{run} --at-once 2 --out once"));
    succeed(here, &format!("{run} --out turn"));
    for seed in [2, 0, 5] {
        let [once, turn] = ["once", "turn"].map(|out| checkpoint(here, &format!("{out}/seed-{seed}")));
        assert_eq!(once.metadata.step, 8);
        for ((name, once), (_, turn)) in once.tensors.iter().zip(turn.tensors.iter()) {
            assert!(once == turn, "{name} of seed {seed} differs");
        }
    }
    let summary = |out: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(here.join(out).join("summary.json")).unwrap()).unwrap()
    };
    let (once, turn) = (summary("once"), summary("turn"));
    assert_eq!((&once["mean"], &once["measures"]), (&turn["mean"], &turn["measures"]));
    let seeds = |summary: &serde_json::Value| -> Vec<u64> {
        summary["seeds"].as_array().unwrap().iter().map(|seed| seed["seed"].as_u64().unwrap()).collect()
    };
    assert_eq!(seeds(&once), [2, 0, 5], "in the order in which they were asked for");
    (text, said)
}

#[test]
fn runs_at_once_are_those_one_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (_, said) = at_once_and_in_turn(here, "train.log_every=1");
    assert!(!said.contains("memory grows"), "what another run takes is no leak: {said}");
    assert!(said.lines().any(|line| line.starts_with("seed 5: step")), "who speaks is named: {said}");
    // What goes wrong in one does not cost the others.
    let run =
        format!("train nbody {TINY} train.steps=8 train.lr=1e30 train.schedule=constant train.clip_norm=0");
    let failing =
        command(here, &format!("{run} runtime.detect_anomaly=true --seeds 2 --at-once 2 --out failed"));
    let said = refuse(failing, 1, &["runs that are under way go on"]);
    assert!(said.contains("seed 0: ") && here.join("failed/seed-0/config.toml").exists(), "{said}");
    refuse(
        command(here, "train nbody --seeds 2 --at-once 2 --fit-memory"),
        2,
        &["--fit-memory", "--at-once"],
    );
    refuse(command(here, "train nbody --at-once 2"), 2, &["--seeds"]);
}

#[test]
fn on_a_gpu_runs_at_once_are_those_one_after_another() {
    if super::has_gpu() {
        let folder = tempfile::tempdir().unwrap();
        let (text, _) = at_once_and_in_turn(folder.path(), "--device cuda");
        assert!(text.contains("over 3 seeds"), "{text}");
    }
}
