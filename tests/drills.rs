//! Drills: what goes wrong in a run is named, says what to do next, and costs no more than the steps since the last checkpoint.
#![cfg(unix)]

#[path = "common/program.rs"]
mod program;

use gradewise_nn::checkpoint::{Checkpoint, TensorFile};
use program::program;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

fn gradewise(folder: &Path, arguments: &str) -> Output {
    let arguments = arguments.split_whitespace();
    Command::new(program()).current_dir(folder).args(arguments).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeed(folder: &Path, arguments: &str) {
    let output = gradewise(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", stderr(&output));
}

/// What fails with `code`, saying each of `parts`.
#[track_caller]
fn refuse(output: &Output, code: i32, parts: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

/// Where the runs are: `GRADEWISE_DRILL_DEVICE=cuda` takes the drills to a GPU.
fn device() -> String {
    std::env::var("GRADEWISE_DRILL_DEVICE").unwrap_or_else(|_| "cpu".to_owned())
}

/// The settings of a small run.
fn small() -> String {
    let device = device();
    format!(
        "data.source=simulate data.train=24 data.valid=8 data.test=8 data.particles=3 model.hidden=4 model.layers=1 train.batch_size=6 \
         train.schedule=constant train.warmup_steps=2 train.log_every=2 train.eval_every=4 train.checkpoint_every=4 \
         runtime.device={device}"
    )
}

fn checkpoint(folder: &Path, run: &str) -> PathBuf {
    folder.join(run).join("checkpoint.safetensors")
}

fn step(path: &Path) -> u64 {
    Checkpoint::read(path).unwrap().metadata.step
}

/// Going on gives the bits of a run that nothing happened to.
#[track_caller]
fn assert_goes_on(here: &Path, run: &str, steps: u64) {
    succeed(here, &format!("train nbody --resume {run} train.steps={steps}"));
    succeed(here, &format!("train nbody {small} train.steps={steps} --out straight", small = small()));
    let weights = |run: &str| Checkpoint::read(checkpoint(here, run)).unwrap();
    let (found, expected) = (weights(run), weights("straight"));
    assert_eq!(found.metadata.step, steps);
    for ((name, found), (_, expected)) in found.tensors.iter().zip(expected.tensors.iter()) {
        assert!(found == expected, "{name} differs");
    }
}

#[test]
fn a_killed_run_goes_on_from_its_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let arguments = format!("train nbody {small} train.steps=100000000 --out run", small = small());
    let mut child = Command::new(program())
        .current_dir(here)
        .args(arguments.split_whitespace())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if checkpoint(here, "run").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // No handler runs.
    child.kill().unwrap();
    child.wait().unwrap();
    let reached = step(&checkpoint(here, "run"));
    assert!(reached >= 4 && reached.is_multiple_of(4), "{reached}");
    // The schedule of a run of that length was that of a hundred million steps.
    succeed(here, &format!("train nbody --resume run train.steps={}", reached + 3));
    assert_eq!(step(&checkpoint(here, "run")), reached + 3);
    let records = gradewise_nn::train::MetricsLog::read(here.join("run/metrics.jsonl")).unwrap();
    let steps: Vec<u64> = records
        .iter()
        .filter(|record| record["train_loss"].is_number())
        .map(|record| record["step"].as_u64().unwrap())
        .collect();
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "no step is recorded twice");
}

#[test]
fn a_damaged_checkpoint_is_refused_and_a_copy_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &format!("train nbody {small} train.steps=8 --out run", small = small()));
    let path = checkpoint(here, "run");
    let good = std::fs::read(&path).unwrap();
    let mut damaged = good.clone();
    let position = good.len() - 5;
    damaged[position] ^= 4;
    for (bytes, part) in [
        (&good[..good.len() / 2], "truncated"),
        (&good[..0], "not a usable safetensors file"),
        (&damaged[..], "damaged since"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        for command in ["train nbody --resume run", "eval --checkpoint run/checkpoint.safetensors"] {
            refuse(&gradewise(here, command), 2, &["run/checkpoint.safetensors", part]);
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "refused, not written over");
    }
    std::fs::write(&path, &good).unwrap();
    assert_goes_on(here, "run", 12);
}

#[test]
fn a_full_disk_ends_the_run_and_keeps_its_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &format!("train nbody {small} train.steps=4 --out run", small = small()));
    let size = std::fs::metadata(checkpoint(here, "run")).unwrap().len();
    // A limit of file sizes below that of a checkpoint, in blocks of 512 bytes, whose signal is ignored: writing fails half-way.
    let script = format!(
        "trap '' XFSZ; ulimit -f {}; exec '{}' train nbody --resume run train.steps=12",
        size / 1024,
        program().display()
    );
    let output = Command::new("bash").current_dir(here).args(["-c", &script]).output().unwrap();
    refuse(
        &output,
        1,
        &[
            "write run/checkpoint.safetensors",
            "ulimit -f",
            "go on after step 4 with: gradewise train nbody --resume run",
        ],
    );
    assert_eq!(step(&checkpoint(here, "run")), 4);
    assert!(!here.join("run/checkpoint.safetensors.partial").exists());
    let noted = std::fs::read_to_string(here.join("run/error.json")).unwrap();
    assert!(noted.contains("checkpoint.safetensors"), "{noted}");
    assert_goes_on(here, "run", 12);
}

#[test]
fn weights_that_make_nan_are_named_and_do_not_replace_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &format!("train nbody {small} train.steps=4 --out run", small = small()));
    // A NaN in one weight of one layer, as a checkpoint would have it.
    let path = checkpoint(here, "run");
    let good = std::fs::read(&path).unwrap();
    let mut broken = Checkpoint::read(&path).unwrap();
    let name = "layers.0.node.0.weight";
    let names: Vec<String> = broken.tensors.iter().map(|(name, _)| name.to_owned()).collect();
    let stored = broken.tensors.get(name).unwrap_or_else(|| panic!("{names:?}"));
    let mut values = stored.to_f64_vec().unwrap();
    values[2] = f64::NAN;
    let shape = stored.shape().to_vec();
    let array = gradewise_kernels::Array::from_slice(
        &values.iter().map(|&value| value as f32).collect::<Vec<_>>(),
        shape,
        &gradewise_kernels::Device::Cpu,
    );
    broken.tensors.insert_array(name, &array.unwrap()).unwrap();
    broken.write(&path).unwrap();
    let output = gradewise(here, "train nbody --resume run train.steps=12 --debug-cuda");
    refuse(
        &output,
        1,
        &[
            "debug mode: new memory is poisoned",
            // On a GPU the layer is one operation.
            if device() == "cpu" { "`mv_linear` gave" } else { "`mv_block` gave" },
            "from a source that has NaN already",
            &format!("parameter `{name}`"),
            "computed through",
            "run/failed.safetensors",
            "go on after step 4",
        ],
    );
    assert!(TensorFile::read(here.join("run/failed.safetensors")).is_ok());
    std::fs::write(&path, good).unwrap();
    assert_goes_on(here, "run", 12);
}

#[test]
fn debug_runs_another_command_after_the_information() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let output =
        gradewise(here, &format!("debug -- train nbody {small} train.steps=4 --out run", small = small()));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in ["[CUDA Info]\navailable ", "debug mode: new memory is poisoned", "data: 24 train"] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    // Debug mode changes no result.
    succeed(here, &format!("train nbody {small} train.steps=4 --out plain", small = small()));
    let bytes = |run: &str| std::fs::read(checkpoint(here, run)).unwrap();
    assert_eq!(bytes("run"), bytes("plain"));
    refuse(&gradewise(here, "debug -- fly"), 2, &["fly"]);
    refuse(&gradewise(here, "debug -- debug -- doctor"), 2, &["not itself"]);
    let evaluated = gradewise(here, "debug -- eval --checkpoint run/checkpoint.safetensors");
    assert_eq!(evaluated.status.code(), Some(0), "{}", stderr(&evaluated));
}

/// The stand-in for the driver refuses to load the kernel of the drill, which is a kernel of the user's as far as the library knows.
#[test]
fn a_kernel_that_cannot_be_loaded_comes_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for (code, part) in [
        (100, "CUDA_VISIBLE_DEVICES hides none"),
        (101, "a device that nvidia-smi lists"),
        (200, "the code is damaged"),
        (201, "start a new process"),
        (209, "the code is for other devices: compile it with -arch=sm_"),
        (218, "ptxas names the line"),
        (222, "written by a newer CUDA"),
        (801, "update the NVIDIA driver"),
        (803, "reboot"),
    ] {
        let output = Command::new(program())
            .current_dir(folder.path())
            .args(["debug", "--drill", "illegal-address"])
            .env("LD_LIBRARY_PATH", gradewise_fake_driver::folder())
            .env("FAKE_CUDA", format!("devices=1;fail=cuModuleLoadDataEx:1:{code}"))
            .output()
            .unwrap();
        refuse(&output, 1, &[&format!("({code})"), "`illegal_address`", part, "gradewise doctor checks"]);
    }
}
