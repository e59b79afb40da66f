//! Runs and their files: one writer, nothing lost, and a run that was stopped goes on as if it had not been.
#![cfg(unix)]

#[path = "common/program.rs"]
mod program;

use gradewise_nn::{
    checkpoint::{Checkpoint, StoredTensor, TensorFile},
    train::MetricsLog,
};
use gradewise_zoo::data::npy;
use program::program;
use std::{
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

const TINY: &str = "data.source=simulate data.train=24 data.valid=8 data.test=8 data.particles=3 model.hidden=4 model.layers=1 \
                    train.batch_size=6 train.warmup_steps=2 train.decay_steps=4 runtime.threads=1";

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(program());
    command.current_dir(folder).args(arguments.split_whitespace());
    command
}

fn gradewise(folder: &Path, arguments: &str) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn succeed(folder: &Path, arguments: &str) -> String {
    let output = gradewise(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output)
}

#[track_caller]
fn refuse(folder: &Path, arguments: &str, code: i32, parts: &[&str]) {
    let output = gradewise(folder, arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {message}");
    for part in parts {
        assert!(message.contains(part), "{arguments}: `{part}` is not in: {message}");
    }
}

/// A run in the background.
fn start(folder: &Path, arguments: &str) -> Child {
    command(folder, arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

/// Waits until the program has done something.
fn wait(what: &str, mut is_done: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if is_done() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} does not come");
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn step(folder: &Path, run: &str) -> u64 {
    Checkpoint::read(folder.join(run).join("checkpoint.safetensors")).unwrap().metadata.step
}

fn has_records(folder: &Path, run: &str) -> bool {
    MetricsLog::read(folder.join(run).join("metrics.jsonl")).is_ok_and(|records| !records.is_empty())
}

#[test]
fn the_rate_follows_the_time_budget() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let data = "data.source=simulate data.train=24 data.valid=8 data.test=8 data.particles=3 model.hidden=4 model.layers=1";
    let settings = "train.batch_size=6 train.steps=100000000 train.time_budget=4 train.log_every=1 train.eval_every=0 \
                    train.checkpoint_every=0 train.lr=4e-3 runtime.threads=1";
    let text = succeed(here, &format!("train nbody {data} {settings} --out timed"));
    assert!(text.contains("out of time") && text.contains("train.time_budget=8"), "{text}");
    let rates = |run: &str| -> Vec<f64> {
        let text = std::fs::read_to_string(here.join(run).join("metrics.jsonl")).unwrap();
        let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        records.filter_map(|record| record["lr"].as_f64()).collect()
    };
    let found = rates("timed");
    let top = found.iter().copied().fold(0.0, f64::max);
    assert!(top == 4e-3, "the plateau: {top}");
    assert!(found[found.len() - 1] < 0.02 * top, "the fall: {:?}", found.last());
    // All of the time is spent, but a process that goes on takes a step; with more of it, the rate rises again.
    succeed(here, "train nbody --resume timed");
    succeed(here, "train nbody --resume timed train.time_budget=5");
    let after = rates("timed");
    assert!(after[found.len()] < 0.02 * top && after[after.len() - 1] < 0.02 * top);
    assert!(after[found.len() + 1..].iter().any(|&rate| rate > 0.05 * top), "{:?}", &after[found.len()..]);
}

#[test]
fn a_run_folder_has_one_writer_and_the_second_is_told_who_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let endless = format!(
        "train nbody {TINY} train.steps=100000000 train.log_every=1 train.checkpoint_every=5 --out run"
    );
    let mut first = start(here, &endless);
    wait("a checkpoint", || here.join("run/checkpoint.safetensors").exists());
    let id = format!("process {} on the host ", first.id());
    std::fs::copy(here.join("run/checkpoint.safetensors"), here.join("weights.safetensors")).unwrap();
    let values: Vec<f64> = (0..21).map(f64::from).collect();
    npy::write(here.join("in.npy"), &[1, 7, 3], &values).unwrap();
    for second in [
        "train nbody --resume run".to_owned(),
        "train nbody --resume run --devices 2".to_owned(),
        endless.clone(),
        "infer --checkpoint weights.safetensors --input in.npy --output run/predicted.npy".to_owned(),
        "infer --checkpoint weights.safetensors --input in.npy --output run/checkpoint.safetensors --overwrite".to_owned(),
        "export weights.safetensors --to cgenn --out run/best.safetensors --overwrite".to_owned(),
    ] {
        refuse(here, &second, 2, &["run is in use", &id, "since 20", "gradewise train nbody", "one writer"]);
    }
    // The first one is not disturbed.
    let before = step(here, "run");
    wait("another checkpoint", || step(here, "run") > before);
    signal(&first, "TERM");
    assert_eq!(first.wait().unwrap().code(), Some(1));
    let (records, last) = (MetricsLog::read(here.join("run/metrics.jsonl")).unwrap(), step(here, "run"));
    let steps: Vec<u64> =
        records.iter().filter(|r| r["train_loss"].is_f64()).map(|r| r["step"].as_u64().unwrap()).collect();
    assert!(steps.iter().copied().eq(1..=last), "every record is there once");
    // The lock is gone with its holder, also with one that was killed.
    assert!(!here.join("run/.lock").exists());
    let mut killed = start(here, "train nbody --resume run");
    wait("more steps", || MetricsLog::read(here.join("run/metrics.jsonl")).unwrap().len() > records.len());
    signal(&killed, "KILL");
    killed.wait().unwrap();
    assert!(here.join("run/.lock").exists());
    let next = step(here, "run") + 2;
    succeed(here, &format!("train nbody --resume run train.steps={next}"));
    assert_eq!(step(here, "run"), next);
}

#[test]
fn two_processes_that_begin_one_folder_at_once_do_not_share_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {TINY} train.steps=400 train.log_every=1 --out run");
    let mut all: Vec<Child> = (0..3).map(|_| start(here, &run)).collect();
    let codes: Vec<Option<i32>> = all.iter_mut().map(|child| child.wait().unwrap().code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == Some(2)).count(), 2, "{codes:?}");
    let records = MetricsLog::read(here.join("run/metrics.jsonl")).unwrap();
    assert_eq!(records.iter().filter(|record| record["train_loss"].is_f64()).count(), 400);
}

#[test]
fn a_run_that_was_killed_before_its_first_checkpoint_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let settings = format!(
        "train nbody {TINY} train.log_every=1 train.eval_every=2 train.checkpoint_every=0 train.select=best"
    );
    let mut child = start(here, &format!("{settings} train.steps=100000000 --out run"));
    wait("records", || has_records(here, "run") && here.join("run/best.safetensors").exists());
    signal(&child, "KILL");
    child.wait().unwrap();
    assert!(!here.join("run/checkpoint.safetensors").exists());
    refuse(
        here,
        &format!("{settings} train.steps=6 --out run"),
        2,
        &["before its first checkpoint", "--resume run"],
    );
    let said = succeed(here, "train nbody --resume run train.steps=6 train.decay_steps=4");
    assert!(said.contains("begins again"), "{said}");
    succeed(here, &format!("{settings} train.steps=6 --out straight"));
    succeed(here, "compare run straight");
    let best = |run: &str| std::fs::read(here.join(run).join("best.safetensors")).unwrap();
    assert_eq!(best("run"), best("straight"));
}

/// The records of a run without what depends on the machine.
fn records(here: &Path, run: &str) -> Vec<serde_json::Value> {
    let mut records = MetricsLog::read(here.join(run).join("metrics.jsonl")).unwrap();
    for record in &mut records {
        let record = record.as_object_mut().unwrap();
        record.retain(|key, _| {
            !["seconds", "joules", "memory", "devices", "utilization"].contains(&key.as_str())
        });
    }
    records
}

#[test]
fn an_interrupted_run_has_the_records_of_an_undisturbed_one() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // Records, evaluations and checkpoints at steps that do not coincide.
    for (name, settings) in [
        (
            "plain",
            "train.log_every=5 train.eval_every=3 train.checkpoint_every=7 train.select=best train.ema=0.9",
        ),
        ("clipped", "train.log_every=4 train.eval_every=4 train.checkpoint_every=0 train.clip_value=1e-3"),
    ] {
        let settings = format!("train nbody {TINY} train.steps=23 {settings}");
        let (straight, stopped) = (format!("{name}-straight"), format!("{name}-stopped"));
        succeed(here, &format!("{settings} --out {straight}"));
        // Each session ends after its first step.
        succeed(here, &format!("{settings} train.time_budget=1e-9 train.budget_of=process --out {stopped}"));
        for _ in 0..5 {
            succeed(
                here,
                &format!("train nbody --resume {stopped} train.time_budget=1e-9 train.budget_of=process"),
            );
        }
        assert_eq!(step(here, &stopped), 6);
        succeed(here, &format!("train nbody --resume {stopped} train.time_budget=0"));
        assert_eq!(records(here, &stopped), records(here, &straight));
        succeed(here, &format!("compare {stopped} {straight}"));
        let clipped = records(here, &stopped).iter().any(|record| record["clipped"] == true);
        assert_eq!(clipped, name == "clipped", "clipping by value is counted");
    }
}

#[test]
fn a_signal_ends_a_long_step_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // A step of 200,000 batches, which takes minutes.
    let settings =
        format!("train nbody {TINY} train.log_every=1 train.eval_every=0 train.checkpoint_every=0");
    let mut child = start(here, &format!("{settings} train.steps=3 train.accumulation=200000 --out run"));
    wait("the folder", || here.join("run/config.toml").exists());
    thread::sleep(Duration::from_millis(300));
    signal(&child, "TERM");
    wait("the end", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(step(here, "run"), 0, "the step was not taken");
    succeed(here, "train nbody --resume run train.accumulation=2");
    succeed(here, &format!("{settings} train.steps=3 train.accumulation=2 --out straight"));
    succeed(here, "compare run straight");
}

#[test]
fn outputs_replace_results_of_their_kind_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let train = TINY.replace("data.particles=3", "data.particles=5");
    succeed(here, &format!("train nbody {train} train.steps=2 --out run"));
    let run = here.join("run/checkpoint.safetensors");
    let before = std::fs::read(&run).unwrap();
    let systems: Vec<f64> = (0..35).map(|k| f64::from(k) * 0.1).collect();
    npy::write(here.join("in.npy"), &[1, 7, 5], &systems).unwrap();
    let mut file = TensorFile::new();
    for (name, shape, from, to) in
        [("loc", &[1, 3, 5][..], 0, 15), ("vel", &[1, 3, 5], 15, 30), ("charges", &[1, 5], 30, 35)]
    {
        let values = StoredTensor::from_f64(shape, &systems[from..to], gradewise_core::DType::F64);
        file.insert(name, values.unwrap());
    }
    file.write(here.join("in.safetensors")).unwrap();
    let inputs = ["in.npy", "in.safetensors"].map(|name| std::fs::read(here.join(name)).unwrap());
    std::os::unix::fs::symlink("in.npy", here.join("link.npy")).unwrap();
    std::fs::write(here.join("notes.npy"), "not an array").unwrap();

    let infer = "infer --checkpoint run/checkpoint.safetensors --input";
    for (arguments, parts) in [
        (format!("{infer} in.npy --output in.npy"), ["an input of this command", "--overwrite"]),
        (format!("{infer} in.npy --output ./in.npy"), ["an input of this command", "--overwrite"]),
        (format!("{infer} in.npy --output link.npy"), ["an input of this command", "--overwrite"]),
        (
            format!("{infer} in.safetensors --output in.safetensors"),
            ["an input of this command", "--overwrite"],
        ),
        (format!("{infer} in.npy --output in.safetensors"), ["other tensors", "--overwrite"]),
        (format!("{infer} in.safetensors --output in.npy"), ["a file that", "--overwrite"]),
        (format!("{infer} in.npy --output notes.npy"), ["a file that", "--overwrite"]),
        (
            format!("{infer} in.npy --output run/checkpoint.safetensors"),
            ["an input of this command", "--overwrite"],
        ),
    ] {
        refuse(here, &arguments, 2, &parts);
    }
    for _ in 0..2 {
        succeed(here, &format!("{infer} in.npy --output out.npy"));
        succeed(here, &format!("{infer} in.npy --output out.safetensors"));
    }
    succeed(here, &format!("{infer} in.npy --output notes.npy --overwrite"));

    for _ in 0..2 {
        succeed(here, "export run --to cgenn --out state.safetensors");
        succeed(here, "import state.safetensors --from cgenn --out imported.safetensors");
    }
    for (arguments, part) in [
        (
            "import state.safetensors --from cgenn --out run/checkpoint.safetensors",
            "training can go on from, after step 2",
        ),
        ("import state.safetensors --from cgenn --out state.safetensors", "an input of this command"),
        ("import state.safetensors --from cgenn --out in.npy", "a file that"),
        ("export run --to cgenn --out run/checkpoint.safetensors", "an input of this command"),
        ("export run --to cgenn --out imported.safetensors", "a checkpoint of `nbody`"),
        ("report run --yes --out run/metrics.jsonl", "a file that"),
        ("profile nbody --trace run/config.toml", "a file that"),
    ] {
        refuse(here, arguments, 2, &[part, "--overwrite"]);
    }
    for _ in 0..2 {
        succeed(here, "report run --yes --out issue.tar.gz");
    }
    assert_eq!(std::fs::read(&run).unwrap(), before);
    assert_eq!(["in.npy", "in.safetensors"].map(|name| std::fs::read(here.join(name)).unwrap()), inputs);
    succeed(here, "import state.safetensors --from cgenn --out run/checkpoint.safetensors --overwrite");
    assert_eq!(step(here, "run"), 0);
}

#[test]
fn checkpoints_of_a_streak_of_skipped_steps_do_not_replace_the_last_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let settings = format!("{TINY} train.log_every=2 train.eval_every=4 train.checkpoint_every=4");
    succeed(here, &format!("train nbody {settings} train.steps=8 --out run"));
    let checkpoint = here.join("run/checkpoint.safetensors");
    let good = std::fs::read(&checkpoint).unwrap();
    // The weights leap to 1e30, and every step after that gives no number.
    let leap = "train.lr=1e30 train.schedule=constant train.warmup_steps=0";
    refuse(
        here,
        &format!("train nbody --resume run train.steps=100 {leap}"),
        1,
        &["diverged", "go on after step 8"],
    );
    assert_eq!(std::fs::read(&checkpoint).unwrap(), good);
    // A run that ends during the streak.
    refuse(
        here,
        &format!("train nbody --resume run train.steps=14 {leap}"),
        1,
        &["stays that of step 8", "failed.safetensors"],
    );
    assert_eq!(std::fs::read(&checkpoint).unwrap(), good);
    succeed(here, "train nbody --resume run train.steps=12 train.lr=0.004");
    assert_eq!(step(here, "run"), 12);
}

#[test]
fn numbers_beyond_all_use_are_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (setting, part) in [
        ("runtime.threads=5000", "`runtime.threads` is 5000, expected at most 1024"),
        ("runtime.threads=200000", "at most 1024"),
        ("runtime.devices=100000", "at most 1024"),
        ("model.layers=100000", "`model.layers` is 100000, expected at most 1024"),
        ("model.hidden=10000000", "`model.hidden` is 10000000, expected at most 16384"),
        ("data.valid=10000000000", "at most 100000000"),
        ("train.lr=inf", "`train.lr` is inf, expected greater than 0 and at most 1e30"),
        ("train.lr=nan", "`train.lr` is NaN"),
        ("train.lr=1e200", "at most 1e30"),
        ("train.weight_decay=inf", "`train.weight_decay` is inf"),
        ("train.accumulation=100000000000", "at most 1000000"),
        ("train.batch_size=100000000000", "at most data.train"),
        ("model.softening=inf", "`model.softening` is inf, expected a finite number"),
        ("runtime.autocast.glue=f32", "`glue`"),
    ] {
        let source = if setting.starts_with("data.") { "data.source=simulate" } else { "" };
        refuse(here, &format!("train nbody {source} {setting}"), 2, &[part]);
    }
    assert!(!here.join("runs").exists());
}

#[test]
fn files_of_pytorch_are_named_and_wrapped_names_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let train = TINY.replace("data.particles=3", "data.particles=5");
    succeed(here, &format!("train nbody {train} train.steps=2 --out run"));
    succeed(here, "export run --to cgenn --out state.safetensors");
    let plain = TensorFile::read(here.join("state.safetensors")).unwrap();
    let wrapped = |prefix: &str, averaged: bool| {
        let mut file = TensorFile::new();
        plain.iter().for_each(|(name, tensor)| file.insert(format!("{prefix}{name}"), tensor.clone()));
        if averaged {
            file.insert(
                "n_averaged",
                StoredTensor::from_f64(&[1], &[3.0], gradewise_core::DType::F32).unwrap(),
            );
        }
        file.write(here.join("wrapped.safetensors")).unwrap();
    };
    succeed(here, "import state.safetensors --from cgenn --out plain.safetensors");
    let expected = std::fs::read(here.join("plain.safetensors")).unwrap();
    for (prefix, averaged) in
        [("module.", false), ("_orig_mod.", false), ("_orig_mod.module.", false), ("module.", true)]
    {
        wrapped(prefix, averaged);
        let said = succeed(here, "import wrapped.safetensors --from cgenn --out here.safetensors");
        assert!(said.contains(prefix), "{said}");
        assert_eq!(std::fs::read(here.join("here.safetensors")).unwrap(), expected);
    }
    for (name, bytes) in [
        ("model.pt", &b"PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00model/data.pkl"[..]),
        ("model.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."),
    ] {
        std::fs::write(here.join(name), bytes).unwrap();
        for reader in ["import --from cgenn --out o.safetensors", "eval --checkpoint", "inspect", "symmetry --checkpoint"] {
            refuse(here, &format!("{reader} {name}"), 2, &[name, "PyTorch checkpoint", "torch.save", "save_file"]);
        }
    }
    let mut nan = plain.clone();
    let (name, weight) = plain.iter().find(|(name, _)| name.ends_with("weight")).unwrap();
    let mut values = weight.to_f64_vec().unwrap();
    values[1] = f64::NAN;
    nan.insert(name, StoredTensor::from_f64(weight.shape(), &values, gradewise_core::DType::F32).unwrap());
    nan.write(here.join("nan.safetensors")).unwrap();
    refuse(
        here,
        "import nan.safetensors --from cgenn --out o.safetensors",
        2,
        &[name, "1 of its", "NaN", "at position 1"],
    );
    assert!(!here.join("o.safetensors").exists());
}
