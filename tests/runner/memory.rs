//! Memory: what is said when it ends, how batches are made to fit, what is alive.

use super::{TINY, checkpoint, command, refuse, succeed};
use gradewise_nn::train::MetricsLog;

/// Larger batches, whose activations are most of what a step takes.
const LARGE: &str = "data.source=simulate data.train=96 data.valid=8 data.test=8 data.particles=4 model.hidden=8 model.layers=2 \
                     train.batch_size=48 train.warmup_steps=2 train.decay_steps=2 train.steps=4 runtime.threads=1";

#[test]
fn a_batch_that_does_not_fit_is_explained_by_its_own_numbers_and_divided_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {LARGE} --dtype f64");
    succeed(here, &format!("{run} --out whole"));
    let records = MetricsLog::read(here.join("whole/metrics.jsonl")).unwrap();
    let peak = records.last().unwrap()["memory"]["peak"].as_u64().unwrap();
    let limit = peak / 3 / (1 << 20);
    assert!(limit >= 1, "{peak} bytes are too few to divide");

    let limited = format!("{run} runtime.memory_mib={limit}");
    let said = refuse(
        command(here, &format!("{limited} --out refused")),
        1,
        &["out of memory", "largest: ", "a step takes", "a sample (measured with", "MiB are free: at most "],
    );
    assert!(said.contains("train.batch_size=") && said.contains("what --fit-memory chooses"), "{said}");

    let (_, said) = succeed(here, &format!("{limited} --fit-memory --out fitted"));
    assert!(
        said.contains("memory: a batch of 48 would take") && said.contains("still 48 samples a step"),
        "{said}"
    );
    let config = std::fs::read_to_string(here.join("fitted/config.toml")).unwrap();
    let number = |key: &str| -> usize {
        let line = config.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
        line.unwrap_or_else(|| panic!("{key}: {config}")).parse().unwrap()
    };
    let (batch, accumulation) = (number("batch_size"), number("accumulation"));
    assert!(batch < 48 && batch * accumulation == 48, "{batch} × {accumulation}");
    assert!(config.contains("fit_memory = false"), "the choice is kept, not made anew");
    // The same samples a step: the same run, but for rounding.
    let (whole, fitted) = (checkpoint(here, "whole"), checkpoint(here, "fitted"));
    let weight = "embedding.weight";
    let values =
        |c: &gradewise_nn::checkpoint::Checkpoint| c.tensors.get(weight).unwrap().to_f64_vec().unwrap();
    let distance = gradewise_nn::symmetry::relative_distance(&values(&fitted), &values(&whole));
    assert!(distance < 1e-9, "{distance}");

    // Several processes agree on the parts.
    let (_, said) = succeed(
        here,
        &format!("{run} runtime.memory_mib={} --fit-memory --devices 2 --out two", limit.div_ceil(2)),
    );
    assert!(said.contains("2 processes started") && said.contains("still 48 samples a step"), "{said}");

    // What fits stays as it is, and what never will is refused.
    let (_, said) = succeed(here, &format!("{run} --fit-memory --out roomy"));
    assert!(said.contains("memory: a batch of 48 takes"), "{said}");
    refuse(
        command(here, &format!("{run} model.hidden=96 runtime.memory_mib=1 --fit-memory")),
        1,
        &["out of memory"],
    );
}

#[test]
fn a_batch_of_one_is_found_where_two_samples_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run =
        "train gpt train.steps=2 train.eval_every=0 data.train=64 data.valid=2 data.test=2 runtime.threads=1";
    // The least limit at which single samples train, and two at once do not.
    let one = format!("{run} train.batch_size=1 train.accumulation=16");
    let limit = (12..60)
        .find(|limit| {
            let output =
                command(here, &format!("{one} runtime.memory_mib={limit} --out one-{limit}")).output();
            output.unwrap().status.success()
        })
        .unwrap();
    let limited = format!("{run} runtime.memory_mib={limit}");
    refuse(command(here, &format!("{limited} train.batch_size=2 --out two")), 1, &["out of memory"]);
    let (_, said) = succeed(here, &format!("{limited} --fit-memory --out fitted"));
    assert!(
        said.contains("1 sample, and 2 do not fit") && said.contains("still 16 samples a step"),
        "{said}"
    );
    assert!(said.contains("train.batch_size=1 train.accumulation=16"), "{said}");
    // Without the flag, the advice is the same, and the way to go on is one that works.
    let said = refuse(
        command(here, &format!("{limited} --out refused")),
        1,
        &[
            "a step takes ",
            "1 sample, and 2 do not fit",
            "at most 1 sample at once",
            "--resume refused --fit-memory",
        ],
    );
    assert!(said.contains("MiB requested") && !said.contains(" bytes"), "{said}");
    succeed(here, "train gpt --resume refused --fit-memory");
    // The memory of a step that does not fit is shown by one that does.
    let (text, _) = succeed(here, &format!("memory gpt runtime.memory_mib={limit} runtime.threads=1"));
    assert!(text.contains("a step with 16 samples does not fit: "), "{text}");
    assert!(text.contains("a step with 1 sample, by operation:") && text.contains("kept: left"), "{text}");
    // Where not even one sample fits, that is said, and what was measured of other ways.
    let parts = ["not even a step with one sample fits", "out of memory"];
    refuse(command(here, &format!("{run} runtime.memory_mib=4 --out never")), 1, &parts);
    refuse(command(here, &format!("{run} runtime.memory_mib=4 --fit-memory --out never-fitted")), 1, &parts);
    refuse(command(here, "memory gpt runtime.memory_mib=4 runtime.threads=1"), 1, &parts);
}

#[test]
fn processes_that_run_out_of_memory_give_advice_too() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!("train nbody {LARGE} --dtype f64 --devices 2 runtime.memory_mib=2 --out two");
    refuse(
        command(here, &run),
        1,
        &[
            "out of memory",
            "a step takes ",
            " on each of 2 devices",
            "what --fit-memory chooses",
            "--fit-memory",
        ],
    );
    // What each process takes has its rank.
    let (text, _) = succeed(here, &format!("train nbody {LARGE} --devices 2 --out roomy"));
    assert!(text.contains("on cpu (rank 0)\n") && text.contains("on cpu (rank 1)\n"), "{text}");
}

#[test]
fn a_steps_memory_is_shown_by_the_batch_by_operation_and_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let small = TINY.replace("train.warmup_steps=2 train.decay_steps=4", "");
    let (text, _) = succeed(folder.path(), &format!("memory nbody {small} --limit 400"));
    for part in [
        "on cpu: a step takes",
        "at most",
        "a step with 6 samples, by operation:",
        "mv_linear",
        "backward",
        "peak of all: ",
        "alive after it:",
        "embedding.weight",
        "embedding.weight: first_moment",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let (text, _) =
        succeed(folder.path(), "memory gpt train.batch_size=4 data.window=16 model.block=16 model.layers=2");
    assert!(text.contains("model.recompute=true"), "{text}");
    refuse(command(folder.path(), "memory mars"), 2, &["`mars`", "nbody"]);
}

#[test]
fn a_run_that_keeps_nothing_is_not_accused_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        format!("train nbody {TINY} train.steps=60 train.log_every=1 runtime.census=operations --out run");
    let (_, said) = succeed(folder.path(), &run);
    assert!(!said.contains("memory grows"), "{said}");
}

#[test]
fn on_a_gpu_batches_are_divided_too() {
    if !super::has_gpu() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = "train nbody --device cuda data.train=512 data.valid=8 data.test=8 train.batch_size=512 train.steps=5";
    succeed(here, &format!("{run} --out whole"));
    let records = MetricsLog::read(here.join("whole/metrics.jsonl")).unwrap();
    let reserved = records.last().unwrap()["memory"]["reserved"].as_u64().unwrap();
    let limit = reserved / 3 / (1 << 20);
    let limited = format!("{run} runtime.memory_mib={limit}");
    let (_, said) = succeed(here, &format!("{limited} --fit-memory --out fitted"));
    assert!(said.contains("still 512 samples a step"), "{said}");
    let (text, _) = succeed(here, &format!("memory nbody {} --limit 5", &run["train nbody ".len()..]));
    assert!(text.contains("on cuda:0: a step takes") && text.contains("peak of all: "), "{text}");
}
