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

/// The names of the threads that compute in a run of these settings, while it trains, and whether the main thread is one of them.
#[cfg(target_os = "linux")]
fn computing(settings: &str, cores: Option<&str>) -> (Vec<String>, bool) {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let arguments = format!("train nbody {SHARED} train.steps=100000000 --out run {settings}");
    let mut command = command(here, &arguments);
    command.env_remove("RAYON_NUM_THREADS").envs(cores.map(|cores| ("RAYON_NUM_THREADS", cores)));
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let runs = if settings.contains("--seeds") { "run/seed-0" } else { "run" };
    let begun = std::time::Instant::now();
    while !here.join(runs).join("checkpoint.safetensors").exists() && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let tasks: Vec<_> = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().flatten().collect();
    let read = |task: &std::fs::DirEntry, file| std::fs::read_to_string(task.path().join(file)).unwrap();
    // After the name in parentheses, the 12th number is the time of the processor in hundredths of a second.
    let ticks = |task: &std::fs::DirEntry| -> u64 {
        read(task, "stat").rsplit_once(')').unwrap().1.split_whitespace().nth(11).unwrap().parse().unwrap()
    };
    let main = tasks.iter().find(|task| *task.file_name() == *child.id().to_string()).unwrap();
    let all: u64 = tasks.iter().map(ticks).sum();
    let mut pool: Vec<String> = tasks.iter().map(|task| read(task, "comm").trim().to_owned()).collect();
    pool.retain(|name| name.starts_with("gradewise-cpu-"));
    pool.sort_unstable();
    let takes_part = 4 * ticks(main) > all;
    child.kill().unwrap();
    child.wait().unwrap();
    (pool, takes_part)
}

/// A run whose operators share their work among threads.
const SHARED: &str = "data.source=simulate data.train=96 data.valid=8 data.test=8 model.hidden=16 model.layers=1 train.batch_size=48 \
                      train.warmup_steps=2 train.decay_steps=4 train.log_every=100 train.eval_every=50 train.checkpoint_every=50";

#[cfg(target_os = "linux")]
#[test]
fn as_many_threads_compute_as_the_settings_say_and_the_main_thread_is_one_of_several() {
    let names = |numbers: &[usize]| -> Vec<String> {
        numbers.iter().map(|number| format!("gradewise-cpu-{number}")).collect()
    };
    assert_eq!(computing("runtime.threads=3", None), (names(&[1, 2]), true));
    assert_eq!(computing("", Some("2")), (names(&[1]), true));
    assert_eq!(
        computing("runtime.threads=2", Some("7")),
        (names(&[1]), true),
        "the setting is the nearer one"
    );
    // The one that is left may wait for work of another thread, which one alone in the pool could not do.
    assert_eq!(computing("runtime.threads=1", None).0, names(&[0]));
    // Runs at once have threads of their own.
    assert_eq!(computing("runtime.threads=2 --seeds 2 --at-once 2", None), (names(&[0, 1]), false));
}

#[test]
fn results_are_those_of_any_number_of_threads_and_one_thread_serves_runs_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {SHARED} train.steps=6");
    for threads in [1, 2, 3, 5] {
        succeed(here, &format!("{run} runtime.threads={threads} --out threads-{threads}"));
        succeed(
            here,
            &format!("{run} --seeds 0,1 --at-once 2 runtime.threads={threads} --out once-{threads}"),
        );
    }
    for threads in [2, 3, 5] {
        assert!(bytes(here, "threads-1") == bytes(here, &format!("threads-{threads}")), "{threads}");
        for seed in [0, 1] {
            let [one, several] =
                [1, threads].map(|threads| bytes(here, &format!("once-{threads}/seed-{seed}")));
            assert!(one == several, "{threads} threads, seed {seed}");
        }
    }
    let [alone, once] = ["threads-1", "once-1/seed-0"].map(|run| checkpoint(here, run));
    for ((name, alone), (_, once)) in alone.tensors.iter().zip(once.tensors.iter()) {
        assert!(alone == once, "{name}");
    }
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
