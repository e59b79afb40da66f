//! `train --sweep`: a grid of runs, of which one that fails does not end the others, and which goes on where it was interrupted.

mod common;

use common::{INTERRUPT_AT, LOSSES, run};
use serde_json::Value;
use std::{path::Path, process::Command, sync::atomic::Ordering};

fn record(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("sweep.json")).unwrap()).unwrap()
}

/// The folders of the runs of a sweep, with their status.
fn statuses(folder: &Path) -> Vec<(String, String)> {
    let record = record(folder);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    record["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (text(&run["folder"]), text(&run["status"])))
        .collect()
}

/// Runs a command line in a process of its own, for a process has one handler of Ctrl-C, which is sent at a loss unless that is 0. Returns
/// the exit status, the number of losses, and what was printed.
fn in_a_process(line: &str, interrupt_at: usize) -> (u8, usize, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("SWEEP_LINE", line).env("SWEEP_INTERRUPT", interrupt_at.to_string());
    let output = command.args(["child", "--exact", "--nocapture"]).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let number = |label: &str| {
        let rest = said.split(label).nth(1).unwrap_or_else(|| panic!("{label}: {said}"));
        rest.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    (number("child status") as u8, number("child losses"), said.clone())
}

/// The process of [`in_a_process`].
#[test]
fn child() {
    let Ok(line) = std::env::var("SWEEP_LINE") else { return };
    let at = std::env::var("SWEEP_INTERRUPT").unwrap().parse().unwrap();
    INTERRUPT_AT.store(at, Ordering::SeqCst);
    let status = run(&line);
    println!("child status {status}\nchild losses {}", LOSSES.load(Ordering::SeqCst));
}

#[test]
fn an_interrupted_sweep_goes_on_and_leaves_alone_what_is_done() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    let line =
        format!("train line --sweep train.lr=1e-1,1e-2 --sweep model.outputs=1,2 --out {}", folder.display());
    // Ctrl-C in the third of the second run's 6 steps.
    let (status, losses, said) = in_a_process(&line, 9);
    assert_eq!((status, losses), (1, 9), "nothing begins after it: {said}");
    assert!(said.contains("interrupted with 1 of 4 runs done"), "{said}");
    let names = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(lr, n)| format!("train.lr=1e-{lr},model.outputs={n}"));
    assert_eq!(statuses(&folder), [(names[0].clone(), "done".to_owned())]);
    let first = folder.join(&names[0]).join("checkpoint.safetensors");
    let (kept, before) = (std::fs::read(&first).unwrap(), std::fs::read(folder.join("sweep.json")).unwrap());

    // The second run goes on after its last whole step or begins again, the first is as it was.
    let (status, losses, said) = in_a_process(&line, 0);
    assert_eq!(status, 0, "{said}");
    assert!((12..=18).contains(&losses), "the first run is skipped: {losses} losses");
    assert_eq!(statuses(&folder), names.clone().map(|name| (name, "done".to_owned())));
    assert_eq!(std::fs::read(&first).unwrap(), kept);
    for name in &names {
        let config = std::fs::read_to_string(folder.join(name).join("config.toml")).unwrap();
        let rate = if name.contains("1e-2") { "lr = 0.01" } else { "lr = 0.1" };
        assert!(config.contains(rate) && said.contains(name), "{name}: {config}{said}");
    }
    assert!(said.contains("model.outputs  train.lr  test mse"), "a table at the end: {said}");

    // All done: nothing is left to do. Killed before the record was written, runs go on from their last checkpoints.
    assert_eq!(in_a_process(&line, 0).1, 0);
    std::fs::write(folder.join("sweep.json"), before).unwrap();
    let (status, losses, _) = in_a_process(&line, 0);
    assert_eq!((status, losses), (0, 0), "checkpoints of the last step");
    assert_eq!(statuses(&folder).len(), 4);
}

#[test]
fn failed_runs_are_recorded_and_the_others_go_on() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sweep");
    let out = folder.display();
    let line =
        format!("train line --sweep model.outputs=0,1 --sweep model.panics=true,false --seeds 2 --out {out}");
    assert_eq!(run(&line), 1, "some runs failed");
    let found = statuses(&folder);
    assert_eq!(found.len(), 8);
    for (name, status) in &found {
        let good = name.starts_with("model.outputs=1,model.panics=false/seed-");
        assert_eq!(status, if good { "done" } else { "failed" }, "{name}");
    }
    let runs = record(&folder);
    let tests: Vec<f64> =
        runs["runs"].as_array().unwrap().iter().filter_map(|run| run["test"].as_f64()).collect();
    assert!(tests.len() == 2 && tests[0] != tests[1], "each seed has weights of its own: {tests:?}");
    assert!(runs["runs"][0]["error"].as_str().unwrap().contains("outputs"), "{runs}");
    assert_eq!(run(&line), 1, "failed runs are tried again, and fail again");
    assert_eq!(statuses(&folder), found);
}

#[test]
fn other_settings_data_and_mistakes() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let sweep = |rest: &str, name: &str| run(&format!("train line {rest} --out {}", at(name).display()));
    // Each run has the data of its settings.
    assert_eq!(sweep("--sweep data.slope=0,3 --sweep train.steps=1", "data"), 0);
    let found = record(&at("data"));
    let tests: Vec<f64> =
        found["runs"].as_array().unwrap().iter().filter_map(|run| run["test"].as_f64()).collect();
    assert!(tests.len() == 2 && tests[0] != tests[1], "{tests:?}");
    assert_eq!(found["settings"]["data"].get("slope"), None, "what is swept is no common setting");
    // A longer list goes on; other common settings do not fit.
    assert_eq!(sweep("--sweep data.slope=0,3,4 --sweep train.steps=1", "data"), 0);
    assert_eq!(statuses(&at("data")).len(), 3);
    assert_eq!(sweep("--sweep data.slope=0,3 --sweep train.steps=1 train.batch_size=4", "data"), 2);
    for (line, name) in [
        ("--sweep train.lr", "a"),
        ("--sweep train.rate=1,2", "b"),
        ("--sweep train.lr=fast,slow", "c"),
        ("--sweep train.seed=1,2 --seeds 2", "d"),
        ("--sweep train.lr=1e-2 --seeds 2 --at-once 2", "e"),
        ("--sweep runtime.device=cpu", "f"),
        ("--sweep train.lr=1e-2 --curve 4,8", "g"),
    ] {
        assert_eq!(sweep(line, name), 2, "{line}");
        assert!(!at(name).join("sweep.json").exists(), "{line}: refused before anything is written");
    }
}
