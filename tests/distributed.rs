//! Runs of several processes, started by the program itself and as launchers do: the numbers of one process, and what happens when
//! one of them is lost.

#[path = "common/program.rs"]
mod program;

use gradewise_nn::{checkpoint::Checkpoint, train::MetricsLog};
use program::program;
use std::{
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(program());
    command.current_dir(folder).args(arguments.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs what must succeed; what it says on both outputs.
fn succeed(folder: &Path, arguments: &str) -> String {
    let output = command(folder, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output)
}

/// Runs what must fail with `code`, saying each of `parts`.
fn refuse(command: &mut Command, code: i32, parts: &[&str]) {
    let output = command.output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

const TINY: &str = "train nbody data.source=simulate data.train=26 data.valid=8 data.test=8 data.particles=3 model.hidden=4 model.layers=1 \
                    train.batch_size=5 train.warmup_steps=2 train.decay_steps=4 train.log_every=2 train.eval_every=4 \
                    train.checkpoint_every=4 train.clip_norm=1.0 --seed 5";

fn weights(run: &Path) -> Vec<f64> {
    let checkpoint = Checkpoint::read(run.join("checkpoint.safetensors")).unwrap();
    checkpoint.tensors.iter().flat_map(|(_, tensor)| tensor.to_f64_vec().unwrap()).collect()
}

fn distance(one: &[f64], other: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut one.iter().zip(other).map(|(a, b)| a - b)) / norm(&mut one.iter().copied())
}

#[test]
fn several_processes_leave_the_run_of_one_and_resume_as_any_number() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &format!("{TINY} --dtype f64 train.steps=12 --out one"));
    let text = succeed(here, &format!("{TINY} --dtype f64 train.steps=12 --devices 2 --out two"));
    for part in ["devices: cpu cpu", "2 processes started by this program", "summed by TCP", "test MSE"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let (one, two) = (weights(&here.join("one")), weights(&here.join("two")));
    assert!(distance(&one, &two) < 1e-10, "{}", distance(&one, &two));
    let log = std::fs::read_to_string(here.join("two/logs/rank-1.log")).unwrap();
    assert!(log.contains("rank 1 of 2") && log.contains("done after step 12"), "{log}");

    // Only rank 0 wrote, the measures are those of one process, and every process's memory is there.
    let records = |run: &str| MetricsLog::read(here.join(run).join("metrics.jsonl")).unwrap();
    let (one, two) = (records("one"), records("two"));
    assert_eq!(one.len(), two.len());
    for (one, two) in one.iter().zip(&two) {
        for key in ["train_loss", "valid_mse", "gradient_norm", "test_mse"] {
            let (one, two) = (one[key].as_f64(), two[key].as_f64());
            assert!(one.zip(two).map_or(one == two, |(a, b)| (a - b).abs() < 1e-9 * a.abs()), "{key}");
        }
    }
    let devices = two.last().unwrap()["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    assert!(devices.iter().all(|device| device["peak"].as_u64().unwrap() > 0), "{devices:?}");

    // The same bits again.
    succeed(here, &format!("{TINY} --dtype f64 train.steps=12 --devices 2 --out again"));
    let bytes = |run: &str| std::fs::read(here.join(run).join("checkpoint.safetensors")).unwrap();
    assert_eq!(bytes("two"), bytes("again"));

    // Stopped with two, on with three, to the same weights.
    succeed(
        here,
        &format!(
            "{TINY} --dtype f64 train.steps=12 --devices 2 --out stopped train.time_budget=1e-9 train.budget_of=process"
        ),
    );
    let step =
        |run: &str| Checkpoint::read(here.join(run).join("checkpoint.safetensors")).unwrap().metadata.step;
    assert!(step("stopped") < 4, "after {} steps", step("stopped"));
    succeed(here, "train nbody --resume stopped --devices 3 train.time_budget=0");
    assert_eq!(step("stopped"), 12);
    let (one, stopped) = (weights(&here.join("one")), weights(&here.join("stopped")));
    assert!(distance(&one, &stopped) < 1e-10, "{}", distance(&one, &stopped));
}

/// Waits until `found` finds something.
fn wait<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    // Many attempts: a loaded machine may take long.
    for _ in 0..20_000 {
        if let Some(found) = found() {
            return found;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} does not come");
}

#[test]
fn a_killed_process_ends_the_others_by_name_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = command(here, &format!("{TINY} train.steps=1000000 train.log_every=100 --devices 3 --out run"));
    let mut run = { run }.spawn().unwrap();
    let process: u32 = wait("the log of rank 2", || {
        let log = std::fs::read_to_string(here.join("run/logs/rank-2.log")).ok()?;
        log.split_once("process ")?.1.split_once(' ')?.0.parse().ok()
    });
    wait("a checkpoint", || here.join("run/checkpoint.safetensors").exists().then_some(()));
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
    let output = wait_for(&mut run);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    // Rank 0 names it, and so does the process that started all; the third one, too.
    for part in [
        "rank 2 (",
        &format!("process {process}) ended without a word"),
        "rank 2 failed first, with signal: 9",
    ] {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(message.contains("--resume run"), "{message}");
    let other = std::fs::read_to_string(here.join("run/logs/rank-1.log")).unwrap();
    assert!(other.contains(&format!("process {process}) ended without a word")), "{other}");
    let step = Checkpoint::read(here.join("run/checkpoint.safetensors")).unwrap().metadata.step;
    let steps = step + 3;
    succeed(here, &format!("train nbody --resume run --devices 2 train.steps={steps} train.decay_steps=1"));
    assert_eq!(Checkpoint::read(here.join("run/checkpoint.safetensors")).unwrap().metadata.step, steps);
}

fn wait_for(child: &mut Child) -> Output {
    let status = wait("the end", || child.try_wait().unwrap());
    let read = |stream: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let (stdout, stderr) = (read(child.stdout.as_mut().unwrap()), read(child.stderr.as_mut().unwrap()));
    Output { status, stdout, stderr }
}

/// The processes as `torchrun` would start them.
fn launched(folder: &Path, rank: usize, port: u16) -> Command {
    let mut command = command(folder, &format!("{TINY} train.steps=4 --out run"));
    for (name, value) in
        [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", 2), ("MASTER_PORT", port.into())]
    {
        command.env(name, value.to_string());
    }
    command.env("GRADEWISE_TOKEN", "of the test").env("GRADEWISE_TIMEOUT", "20");
    command
}

#[test]
fn launchers_start_processes_too() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut ranks: Vec<Child> = (0..2).map(|rank| launched(here, rank, port).spawn().unwrap()).collect();
    for child in &mut ranks {
        let output = wait_for(child);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    assert!(here.join("run/checkpoint.safetensors").exists());

    // Alone, rank 0 says who is missing.
    let parts = ["1 of 2 processes missing after 0.5 s: rank 1"];
    let mut alone = command(here, &format!("{TINY} --out alone"));
    for (name, value) in [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2"), ("GRADEWISE_TOKEN", "x")] {
        alone.env(name, value);
    }
    refuse(alone.env("GRADEWISE_TIMEOUT", "0.5").env("MASTER_PORT", port.to_string()), 1, &parts);
    assert!(!here.join("alone").exists());
}

#[test]
fn what_cannot_be_started_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let with = |arguments: &str| command(here, &format!("{TINY} {arguments}"));
    refuse(with("").env("RANK", "0"), 2, &["torchrun", "WORLD_SIZE, LOCAL_RANK"]);
    let torchrun = |command: &mut Command| {
        for (name, value) in [("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")] {
            command.env(name, value);
        }
    };
    let mut untold = with("");
    torchrun(&mut untold);
    refuse(&mut untold, 2, &["GRADEWISE_TOKEN"]);
    let mut twice = with("--devices 2");
    torchrun(&mut twice);
    refuse(twice.env("GRADEWISE_TOKEN", "x"), 2, &["--devices", "torchrun"]);
    refuse(&mut with("--devices none"), 2, &["auto"]);
    refuse(&mut with("--devices 2 --seeds 3"), 2, &["--seeds"]);
    refuse(&mut with("--devices 977 --device cuda"), 2, &["977 GPUs", "--min-devices", "--fallback cpu"]);
    let text = succeed(
        here,
        &format!("{TINY} train.steps=2 --devices 977 --device cuda --fallback cpu --out fallback"),
    );
    assert!(text.contains("devices: cpu (977 GPUs needed"), "{text}");
    assert!(!here.join("fallback/logs").exists());
}

#[test]
fn steps_and_scaling_are_measured_without_a_gpu_too() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let json = |path: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(here.join(path)).unwrap()).unwrap()
    };
    let figure = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let text = succeed(here, "bench scaling --quick --counts 1,2 --steps 2 --dtype f64 --out s");
    for part in ["layer stack", "n-body", "weak", "strong", "sums over 2 processes by TCP", "results in s"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let report = json("s/scaling.json");
    assert_eq!(report["measured"].as_array().unwrap().len(), 2);
    let efficiencies = report["efficiency"].as_array().unwrap();
    assert_eq!(efficiencies.iter().filter(|one| one["world"] == 2).count(), 4, "{efficiencies:?}");
    assert!(efficiencies.iter().all(|one| one["efficiency"].as_f64().is_some_and(|e| e > 0.0)));
    assert!(figure("s/scaling.svg").starts_with("<svg"));
    refuse(&mut command(here, "bench scaling --counts 0"), 2, &["--counts"]);

    let step = "bench step --batches 1,3 --widths 4,5 --layers 1 --steps 2";
    let text = succeed(here, &format!("{step} --out one"));
    assert!(text.contains("width  systems") && text.contains("results in one"), "{text}");
    let times = json("one/step.json")["times"].as_array().unwrap().clone();
    assert_eq!(times.len(), 4);
    assert!(times.iter().all(|time| time["milliseconds"].as_f64().is_some_and(|ms| ms > 0.0)));
    assert!(times.iter().all(|time| time["peak_bytes"].as_u64().is_some_and(|bytes| bytes > 0)));
    succeed(here, &format!("{step} --dtype f64 --with one/step.json --out two"));
    for part in ["f32, width 4", "f64, width 5", "systems of a batch"] {
        assert!(figure("two/step.svg").contains(part), "{part}");
    }
    refuse(&mut command(here, "bench step --with s/scaling.json"), 2, &["not written by bench step"]);
    refuse(&mut command(here, "bench step --batches 0"), 2, &["--batches"]);
}
