//! The runner as its users meet it: settings for machines, early stopping, the same bits again, memory, comparisons, reports.

mod diagnosis;
mod memory;
mod numerics;
#[path = "../common/program.rs"]
mod program;
mod report;
mod settings;

use gradewise_nn::checkpoint::Checkpoint;
use program::program;
use std::{
    path::Path,
    process::{Command, Output},
};

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(program());
    command.current_dir(folder).args(arguments.split_whitespace());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that must succeed says: its results, and its notes.
fn succeed(folder: &Path, arguments: &str) -> (String, String) {
    let Output { status, stdout, stderr } = command(folder, arguments).output().expect("the program starts");
    assert_eq!(status.code(), Some(0), "{arguments}: {}{}", text(&stdout), text(&stderr));
    (text(&stdout), text(&stderr))
}

/// Runs what must fail with `code`, saying each of `parts`; gives what it said.
fn refuse(mut command: Command, code: i32, parts: &[&str]) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let said = text(&stdout) + &text(&stderr);
    assert_eq!(status.code(), Some(code), "{command:?}: {said}");
    assert!(!said.contains("panicked"), "{command:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{command:?}: `{part}` is not in: {said}");
    }
    said
}

/// A run of a second.
const TINY: &str = "data.source=simulate data.train=24 data.valid=8 data.test=8 data.particles=3 model.hidden=4 model.layers=1 \
                    train.batch_size=6 train.warmup_steps=2 train.decay_steps=4 train.log_every=2 train.eval_every=4 \
                    train.checkpoint_every=4";

fn checkpoint(folder: &Path, run: &str) -> Checkpoint {
    Checkpoint::read(folder.join(run).join("checkpoint.safetensors")).unwrap()
}

fn bytes(folder: &Path, run: &str) -> Vec<u8> {
    std::fs::read(folder.join(run).join("checkpoint.safetensors")).unwrap()
}

/// Whether there is a GPU to test on; `GRADEWISE_REQUIRE_GPU=1` makes it a failure if not.
fn has_gpu() -> bool {
    gradewise_testing::gpu().is_some()
}
