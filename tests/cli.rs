//! The program as its users meet it: exit codes, messages, files.

#[path = "common/program.rs"]
mod program;

use gradewise_nn::{
    checkpoint::{Checkpoint, StoredTensor, TensorFile},
    train::MetricsLog,
};
use gradewise_zoo::data::npy::{self, NpyArray};
use program::program;
use std::{
    path::Path,
    process::{Command, Output},
};

fn gradewise(folder: &Path, arguments: &str) -> Output {
    Command::new(program())
        .current_dir(folder)
        .args(arguments.split_whitespace())
        .output()
        .expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs what must succeed.
fn succeed(folder: &Path, arguments: &str) -> String {
    let output = gradewise(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", stderr(&output));
    stdout(&output)
}

/// Runs what must fail with `code`, saying each of `parts`.
fn refuse(folder: &Path, arguments: &str, code: i32, parts: &[&str]) {
    let output = gradewise(folder, arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {message}");
    assert!(!message.contains("panicked"), "{arguments}: {message}");
    for part in parts {
        assert!(message.contains(part), "{arguments}: `{part}` is not in: {message}");
    }
}

const TINY: &str = "data.source=simulate data.train=24 data.valid=8 data.test=8 data.particles=3 model.hidden=4 model.layers=1 \
                    train.batch_size=6 train.warmup_steps=2 train.decay_steps=4 train.log_every=2 train.eval_every=4 \
                    train.checkpoint_every=4";

#[test]
fn a_run_leaves_its_folder_and_is_used_by_the_other_commands() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let text = succeed(here, &format!("train nbody {TINY} train.steps=8 train.ema=0.5"));
    for part in ["test MSE", "runs/nbody-1", "--preset paper", "symmetry "] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(!text.contains("CGENN"), "three particles are not the published task: {text}");
    let run = here.join("runs/nbody-1");
    for (file, part) in
        [("config.toml", "hidden = 4"), ("loss.svg", "learning rate"), ("trajectories.svg", "prediction")]
    {
        assert!(std::fs::read_to_string(run.join(file)).unwrap().contains(part), "{file}");
    }
    let records = MetricsLog::read(run.join("metrics.jsonl")).unwrap();
    let logged = |key: &str| records.iter().filter(|record| record[key].is_number()).count();
    assert_eq!((logged("train_loss"), logged("valid_mse"), logged("test_mse")), (4, 2, 1));
    assert!(records[0]["gradient_norms"]["embedding.weight"].as_f64().unwrap() > 0.0);
    let memory = &records.iter().find(|record| record["test_mse"].is_number()).unwrap()["memory"];
    let bytes = |key: &str| memory[key].as_u64().unwrap();
    assert!(bytes("peak") > bytes("allocated") && bytes("reserved") >= bytes("peak"), "{memory}");
    assert!(
        bytes("allocated") > 0 && text.contains("memory      peak ") && text.contains("MiB on cpu"),
        "{text}"
    );

    // eval finds the run's configuration beside the checkpoint and the same error as the run.
    let evaluated = succeed(here, "eval --checkpoint runs/nbody-1/checkpoint.safetensors --json");
    let evaluated: serde_json::Value = serde_json::from_str(&evaluated).unwrap();
    let reported = records.iter().find_map(|record| record["test_mse"].as_f64()).unwrap();
    assert_eq!(evaluated["mse"].as_f64().unwrap(), reported);

    // export: all numbers for other programs, all figures for people.
    let written = succeed(here, "export runs/nbody-1");
    let paths: Vec<&str> = written.lines().collect();
    let [events, page] = paths[..] else { panic!("{written}") };
    let bytes = std::fs::read(here.join(events)).unwrap();
    for part in ["brain.Event:2", "train_loss", "valid_mse", "memory/peak", "gradient_norms/embedding.weight"]
    {
        assert!(
            bytes.windows(part.len()).any(|window| window == part.as_bytes()),
            "{part} is not in {events}"
        );
    }
    let page = std::fs::read_to_string(here.join(page)).unwrap();
    assert!(page.contains("hidden = 4") && page.contains("test MSE") && page.contains("id=\"systems\""));
    assert!(!page.contains("src=\"http") && !page.contains("href="), "it needs nothing beside itself");
    refuse(here, "export nowhere", 2, &["nowhere does not exist"]);
    refuse(here, "export runs", 2, &["runs is not the folder of a run", "runs/nbody-1"]);
    let said = std::fs::read_to_string(run.join("result.txt")).unwrap();
    assert!(text.contains(&said) && said.starts_with("test MSE"), "{said}");
    let about: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.join("run.json")).unwrap()).unwrap();
    assert_eq!((&about["task"], &about["sittings"][0]["from_step"]), (&"nbody".into(), &0.into()));
    let environment = std::fs::read_to_string(run.join("environment.txt")).unwrap();
    for part in ["begun       2", "command     gradewise train nbody", "device      cpu", "threads     "] {
        assert!(environment.contains(part), "`{part}` is not in: {environment}");
    }

    // infer gives the same predictions for both kinds of input and output.
    let (loc, vel, charges) = ([0.5, -1.0, 2.0, 0.1, 0.2, 0.3, -0.4, 0.9, 1.1], [0.25; 9], [1.0, -1.0, 1.0]);
    npy::write(here.join("in.npy"), &[1, 7, 3], &[&loc[..], &vel, &charges].concat()).unwrap();
    let mut file = TensorFile::new();
    for (name, shape, values) in
        [("loc", &[1, 3, 3][..], &loc[..]), ("vel", &[1, 3, 3], &vel), ("charges", &[1, 3], &charges)]
    {
        file.insert(name, StoredTensor::from_f64(shape, values, gradewise_core::DType::F64).unwrap());
    }
    file.write(here.join("in.safetensors")).unwrap();
    let infer = "infer --checkpoint runs/nbody-1/checkpoint.safetensors --dtype f64 --input";
    succeed(here, &format!("{infer} in.npy --output out.npy"));
    succeed(here, &format!("{infer} in.safetensors --output out.safetensors"));
    let predicted = NpyArray::read(here.join("out.npy")).unwrap();
    assert_eq!(predicted.shape, [1, 3, 3]);
    let other = TensorFile::read(here.join("out.safetensors")).unwrap();
    assert_eq!(other.get("prediction").unwrap().to_f64_vec().unwrap(), predicted.values);
    assert_ne!(predicted.values, loc);

    let shown = succeed(here, "inspect runs/nbody-1");
    assert!(shown.contains("gradewise checkpoint") && shown.contains("embedding.weight"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&succeed(here, "inspect in.npy --json")).unwrap();
    assert_eq!(json["tensors"][0]["shape"], serde_json::json!([1, 7, 3]));

    // Damage to inputs is named, and no output is written.
    let bytes = std::fs::read(here.join("in.npy")).unwrap();
    std::fs::write(here.join("cut.npy"), &bytes[..bytes.len() - 5]).unwrap();
    refuse(here, &format!("{infer} cut.npy --output no.npy"), 2, &["cut.npy", "truncated"]);
    npy::write(here.join("nan.npy"), &[1, 7, 3], &[f64::NAN; 21]).unwrap();
    refuse(here, &format!("{infer} nan.npy --output no.npy"), 2, &["NaN", "index"]);
    // A configuration file can ask for debug mode, too, which names the operation at fault.
    let far = (0..9).map(|i| 1e308 * (1.0 + f64::from(i) / 20.0));
    let huge: Vec<f64> = far.chain(vel).chain(charges).collect();
    npy::write(here.join("huge.npy"), &[1, 7, 3], &huge).unwrap();
    refuse(here, &format!("{infer} huge.npy --output no.npy"), 1, &["prediction 0 is NaN"]);
    std::fs::write(here.join("debug.toml"), "[runtime]\ndebug_cuda = true\n").unwrap();
    let origin = ["debug mode", "` gave ", " infinite values from finite values"];
    refuse(here, &format!("{infer} huge.npy --output no.npy --config debug.toml"), 1, &origin);
    refuse(here, &format!("{infer} in.npy --output no.txt"), 2, &[".safetensors or .npy"]);
    refuse(
        here,
        "infer --checkpoint in.safetensors --input in.npy --output no.npy",
        2,
        &["checkpoint metadata"],
    );
    assert!(!here.join("no.npy").exists());
    refuse(here, &format!("train nbody {TINY} --out runs/nbody-1"), 2, &["holds a run already", "--resume"]);
}

#[test]
fn a_run_stopped_half_way_goes_on_to_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let settings = format!("{TINY} train.steps=12 train.clip_norm=1.0 --seed 5");
    succeed(here, &format!("train nbody {settings} --out straight"));
    // The budget is over after the first step.
    let text = succeed(
        here,
        &format!("train nbody {settings} --out stopped train.time_budget=1e-9 train.budget_of=process"),
    );
    assert!(text.contains("out of time") && text.contains("--resume stopped"), "{text}");
    let read = |run: &str| Checkpoint::read(here.join(run).join("checkpoint.safetensors")).unwrap();
    assert_eq!(read("stopped").metadata.step, 1);
    succeed(here, "train nbody --resume stopped train.time_budget=0");
    assert_eq!(read("stopped").metadata, read("straight").metadata);
    let bytes = |run: &str| std::fs::read(here.join(run).join("checkpoint.safetensors")).unwrap();
    assert_eq!(bytes("stopped"), bytes("straight"));
    // The same seed gives the same bytes, another one does not.
    succeed(here, &format!("train nbody {settings} --out again"));
    assert_eq!(bytes("again"), bytes("straight"));
    succeed(here, &format!("train nbody {settings} --out other train.seed=6"));
    assert_ne!(bytes("other"), bytes("straight"));
}

#[test]
fn a_run_with_dropout_goes_on_to_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let settings = "data.window=8 data.train=64 data.valid=4 data.test=4 model.block=8 model.width=8 model.heads=2 model.layers=1 \
                    model.dropout=0.3 model.attention_dropout=0.2 train.batch_size=4 train.steps=6 train.eval_every=3 train.checkpoint_every=3";
    succeed(here, &format!("train gpt {settings} --out straight"));
    succeed(
        here,
        &format!("train gpt {settings} --out stopped train.time_budget=1e-9 train.budget_of=process"),
    );
    let bytes = |run: &str| std::fs::read(here.join(run).join("checkpoint.safetensors")).unwrap();
    assert_ne!(bytes("stopped"), bytes("straight"));
    succeed(here, "train gpt --resume stopped train.time_budget=0");
    assert_eq!(bytes("stopped"), bytes("straight"));
    // Evaluation drops nothing, so it repeats; a block that is computed again draws the masks it drew.
    succeed(here, &format!("train gpt {settings} --out again model.recompute=true"));
    let weights = |run: &str| {
        let checkpoint = Checkpoint::read(here.join(run).join("checkpoint.safetensors")).unwrap();
        checkpoint.tensors.iter().map(|(_, tensor)| tensor.to_f64_vec().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(weights("again"), weights("straight"));
}

#[test]
fn several_seeds_are_the_runs_of_each_and_their_mean() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let settings = format!("{TINY} train.steps=6");
    let text = succeed(here, &format!("train nbody {settings} --seeds 3,1 --out several"));
    let summary = std::fs::read_to_string(here.join("several/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let errors: Vec<f64> =
        summary["seeds"].as_array().unwrap().iter().map(|seed| seed["test_mse"].as_f64().unwrap()).collect();
    assert_eq!((&summary["seeds"][0]["seed"], &summary["seeds"][1]["folder"]), (&3.into(), &"seed-1".into()));
    assert_eq!((&summary["device"], &summary["seeds"][1]["steps"]), (&"cpu".into(), &6.into()));
    let [first, second] = errors[..] else { panic!("{summary}") };
    assert_ne!(first, second);
    let (mean, deviation) = ((first + second) / 2.0, (first - second).abs() / 2f64.sqrt());
    assert!((summary["mean"].as_f64().unwrap() / mean - 1.0).abs() < 1e-12, "{summary}");
    assert!((summary["standard_deviation"].as_f64().unwrap() / deviation - 1.0).abs() < 1e-9, "{summary}");
    for part in [&format!("test MSE {mean:.5} ± {deviation:.5} over 2 seeds"), "summary.json", "seed-3"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    // Each is the run that --seed gives, and can be used like it.
    succeed(here, &format!("train nbody {settings} --seed 1 --out alone"));
    let bytes = |run: &str| std::fs::read(here.join(run).join("checkpoint.safetensors")).unwrap();
    assert_eq!(bytes("several/seed-1"), bytes("alone"));
    assert_ne!(bytes("several/seed-3"), bytes("alone"));
    succeed(here, "eval --checkpoint several/seed-3/checkpoint.safetensors");

    // A number of seeds counts from train.seed on, in a folder of its own.
    let text = succeed(here, &format!("train nbody {settings} train.seed=7 --seeds 1"));
    assert!(text.contains("one seed") && here.join("runs/nbody-1/seed-7/metrics.jsonl").exists(), "{text}");
    let refused = format!("train nbody {settings} --seeds 5,3 --out several");
    refuse(here, &refused, 2, &["seed-3 exists already"]);
    assert!(!here.join("several/seed-5").exists(), "refused before the first run");
}

#[test]
fn several_checkpoints_predict_together() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let text = succeed(here, &format!("train nbody {TINY} train.steps=6 --dtype f64 --seeds 2 --out runs"));
    let (a, b) = (
        "--checkpoint runs/seed-0/checkpoint.safetensors",
        "--checkpoint runs/seed-1/checkpoint.safetensors",
    );
    let eval = |checkpoints: &str| -> serde_json::Value {
        serde_json::from_str(&succeed(here, &format!("eval {checkpoints} --json"))).unwrap()
    };
    let together = eval(&format!("{a} {b}"));
    let summary: serde_json::Value =
        serde_json::from_slice(&std::fs::read(here.join("runs/summary.json")).unwrap()).unwrap();
    assert_eq!(
        (&summary["mean_prediction"]["test_mse"], &together["step"]),
        (&together["mse"], &[6, 6].into())
    );
    let error = |of: &serde_json::Value| of["mse"].as_f64().unwrap();
    assert!(
        text.contains(&format!("test MSE {:.5} of the mean of their predictions", error(&together))),
        "{text}"
    );
    // All of that in one file, beside the settings of its runs.
    let e = "--checkpoint runs/ensemble.safetensors";
    assert!(text.contains("ensemble runs/ensemble.safetensors"), "{text}");
    assert_eq!(eval(e), together);
    let ends: Vec<f64> =
        together["mse_interval"].as_array().unwrap().iter().map(|end| end.as_f64().unwrap()).collect();
    assert!(ends[0] < error(&together) && error(&together) < ends[1], "{together}");
    assert!(succeed(here, &format!("eval {e}")).contains("of 2 models\ntest MSE of other such samples: "));
    let (first, second) = (eval(a), eval(b));
    // The squared error is convex, strictly where predictions differ.
    assert!(error(&together) < (error(&first) + error(&second)) / 2.0, "{together} {first} {second}");
    let asymmetry = |of: &serde_json::Value| of["asymmetry"].as_f64().unwrap();
    assert_eq!(asymmetry(&together), asymmetry(&first).max(asymmetry(&second)));

    let systems =
        [&[0.5, -1.0, 2.0, 0.1, 0.2, 0.3, -0.4, 0.9, 1.1][..], &[0.25; 9], &[1.0, -1.0, 1.0]].concat();
    npy::write(here.join("in.npy"), &[1, 7, 3], &systems).unwrap();
    let infer = |checkpoints: &str| {
        succeed(here, &format!("infer {checkpoints} --dtype f64 --input in.npy --output out.safetensors"));
        let file = TensorFile::read(here.join("out.safetensors")).unwrap();
        ["prediction", "deviation"].map(|name| file.get(name).map(|tensor| tensor.to_f64_vec().unwrap()))
    };
    let [Some(mean), Some(deviation)] = infer(&format!("{a} {b}")) else { panic!("both are there") };
    let ([Some(first), None], [Some(second), None]) = (infer(a), infer(b)) else {
        panic!("one has no deviation")
    };
    for k in 0..9 {
        let (middle, apart) = ((first[k] + second[k]) / 2.0, (first[k] - second[k]).abs());
        assert!(
            (mean[k] - middle).abs() < 1e-14 && (deviation[k] - apart / 2f64.sqrt()).abs() < 1e-14,
            "{k}"
        );
        assert!(apart > 0.0);
    }
    assert_eq!(infer(e), [Some(mean.clone()), Some(deviation.clone())]);
    succeed(here, &format!("infer {e} --dtype f64 --input in.npy --output out.npy"));
    let read = |name: &str| npy::NpyArray::read(here.join(name)).unwrap();
    assert_eq!((read("out.npy").values, read("out.deviation.npy").values), (mean, deviation));
    assert_eq!(read("out.deviation.npy").shape, [1, 3, 3]);
    for (command, part) in [
        ("eval --rollout motion", "--rollout follows one model"),
        ("eval --dump layers.0", "--dump shows one model"),
        ("infer --dump layers.0 --input in.npy --output out.npy", "--dump shows one model"),
        ("symmetry", "an ensemble of 2 models"),
    ] {
        refuse(here, &format!("{command} {e}"), 2, &[part]);
    }
    assert!(succeed(here, "inspect runs/ensemble.safetensors").contains("member.1::embedding.weight"));
    refuse(here, &format!("eval {a} {b} --rollout motion"), 2, &["--rollout follows one model"]);
    succeed(
        here,
        "train volumes data.train=8 data.valid=4 data.test=4 train.batch_size=4 train.steps=1 train.eval_every=0 --out other",
    );
    let other = "--checkpoint other/checkpoint.safetensors";
    refuse(here, &format!("eval {a} {other}"), 2, &["other/checkpoint.safetensors", "`volumes`", "`nbody`"]);
}

#[test]
fn the_first_operation_that_leaves_the_finite_numbers_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // Weights that leap to 1e30 overflow in the products of the next step.
    let run = format!(
        "train nbody {TINY} train.steps=20 train.lr=1e30 train.schedule=constant runtime.detect_anomaly=true --out run"
    );
    refuse(folder.path(), &run, 1, &["infinite values from finite values", "input 0", "computed through"]);
}

/// Runs of a second of every task, whose weights leave the finite numbers with a large learning rate.
const TASKS: [(&str, &str); 8] = [
    ("nbody", "data.source=simulate data.particles=3 model.hidden=4 model.layers=1"),
    ("volumes", "model.hidden=4 model.layers=1"),
    ("hulls", "model.hidden=4 model.layers=1"),
    ("hulls8", "model.hidden=4 model.layers=1"),
    ("o5", "model.hidden=8"),
    ("forces", "data.particles=3 model.hidden=4 model.layers=1 data.follow=3"),
    ("lorentz", "data.particles=4 model.hidden=4 model.layers=1 model.units=4"),
    ("gpt", "data.window=8 model.block=8 model.width=8 model.heads=2 model.layers=1"),
];

#[test]
fn a_diverged_run_fails_and_its_weights_are_blamed_not_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (task, model) in TASKS {
        let run = format!(
            "train {task} {model} data.train=8 data.valid=4 data.test=4 train.batch_size=4 train.steps=4 train.lr=1e30 \
             train.schedule=constant train.clip_norm=0 train.eval_every=2 train.checkpoint_every=2 --out {task}"
        );
        let output = gradewise(here, &run);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{task}: {said}{}", stdout(&output));
        for part in
            ["diverged: the test ", "the weights after 4 steps", "the data are not at fault", "train.lr"]
        {
            assert!(said.contains(part), "{task}: `{part}` is not in: {said}");
        }
        assert!(!said.contains("repair the sample"), "{task}: {said}");
        let records = MetricsLog::read(here.join(task).join("metrics.jsonl")).unwrap();
        assert!(records.iter().any(|record| record["test_verdict"] == "diverged"), "{task}: {records:?}");
        let kept = std::fs::read_to_string(here.join(task).join("error.json")).unwrap();
        assert!(kept.contains("diverged: the test "), "{kept}");
        // So do the commands that use the weights.
        let checkpoint = format!("--checkpoint {task}/checkpoint.safetensors");
        for command in ["eval", "symmetry"] {
            let parts =
                ["diverged: the ", "(step 4) give no finite predictions", "the data are not at fault"];
            refuse(here, &format!("{command} {checkpoint}"), 1, &parts);
        }
    }
    refuse(
        here,
        "sample --checkpoint gpt/checkpoint.safetensors --bytes 9",
        1,
        &["diverged: no byte is likelier"],
    );
    // Several seeds: all are trained, and those that diverged named.
    let run = "train volumes model.hidden=4 model.layers=1 data.train=8 data.valid=4 data.test=4 train.batch_size=4 \
               train.steps=4 train.lr=1e30 train.schedule=constant train.eval_every=2 --seeds 2 --out seeds";
    refuse(here, run, 1, &["of 2 of 2 seeds is", "the weights of seed 0, 1"]);
    assert!(here.join("seeds/summary.json").exists() && here.join("seeds/seed-1/metrics.jsonl").exists());
}

#[test]
fn a_run_that_skips_every_step_says_so_once_and_what_helps() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = format!(
        "train nbody {TINY} train.steps=60 train.lr=1e30 train.schedule=constant train.checkpoint_every=0 --out run"
    );
    let output = gradewise(here, &run);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches(" skipped: ").count(), 1, "{said}");
    for part in [
        "20 steps in a row were skipped",
        "run/failed.safetensors",
        "there is no checkpoint yet to go on from: start again",
        "runtime.detect_anomaly=true names the operation",
    ] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    assert!(!said.contains("from the last checkpoint"), "{said}");
    refuse(here, "eval --checkpoint run/failed.safetensors", 1, &["diverged: the test MSE is"]);
    // Weights that failed are nothing to go on from: no checkpoint is made of them.
    let run = run.replace("train.checkpoint_every=0 --out run", "train.checkpoint_every=4 --out other");
    refuse(here, &run, 1, &["there is no checkpoint yet to go on from: start again"]);
    assert!(!here.join("other/checkpoint.safetensors").exists());
}

#[test]
fn redirected_logs_hold_no_escapes_unless_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let run = |variables: &[(&str, &str)]| {
        let arguments = format!(
            "train nbody {TINY} train.steps=6 train.lr=1e30 train.schedule=constant --out {}",
            variables.len()
        );
        let mut command = Command::new(program());
        command.current_dir(folder.path()).args(arguments.split_whitespace());
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "GRADEWISE_LOG"] {
            command.env_remove(name);
        }
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let said = stderr(&output);
        assert!(said.contains(" skipped: "), "{said}");
        (said.contains('\x1b'), stdout(&output).contains('\x1b'))
    };
    assert_eq!(run(&[]), (false, false));
    assert_eq!(run(&[("CLICOLOR_FORCE", "1")]), (true, false));
    assert_eq!(run(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), (false, false));
}

#[test]
fn the_number_of_steps_alone_is_a_valid_override() {
    let folder = tempfile::tempdir().unwrap();
    let data = "data.source=simulate data.train=8 data.valid=4 data.test=4 train.batch_size=4 model.hidden=4 model.layers=1";
    for steps in [1, 3] {
        let text = succeed(folder.path(), &format!("train nbody train.steps={steps} {data}"));
        assert!(text.contains(&format!("after {steps} steps")), "{text}");
    }
    let resolved = std::fs::read_to_string(folder.path().join("runs/nbody-2/config.toml")).unwrap();
    assert!(resolved.contains("warmup_steps = 0") && resolved.contains("decay_steps = 3"), "{resolved}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_a_checkpoint_to_go_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let arguments = format!("train nbody {TINY} train.steps=100000000 --out run");
    let mut child = Command::new(program())
        .current_dir(here)
        .args(arguments.split_whitespace())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let checkpoint = here.join("run/checkpoint.safetensors");
    for _ in 0..600 {
        if checkpoint.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let step = Checkpoint::read(&checkpoint).unwrap().metadata.step;
    assert!(step >= 4);
    succeed(here, &format!("train nbody --resume run train.steps={}", step + 2));
    assert_eq!(Checkpoint::read(&checkpoint).unwrap().metadata.step, step + 2);
}

#[test]
fn bad_usage_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("bad.toml"), "[train]\nstepz = 3\n").unwrap();
    for (arguments, parts) in [
        ("train nbody batch_size=4", &["unknown key `batch_size`, did you mean `train.batch_size`?"][..]),
        (
            "train nbody train.batch_size=-3",
            &["`train.batch_size` is -3, expected a whole number, at least 1"],
        ),
        ("train nbody --dtype f16", &["--precision f16"]),
        ("train nbody --devices 1 --min-devices 2", &["--min-devices 2 is more than --devices 1"]),
        ("train nbody train.bacth_size=4", &["did you mean `train.batch_size`?", "weight_decay"]),
        ("train nbody --config bad.toml", &["bad.toml", "did you mean `train.steps`?"]),
        ("train nbody --config none.toml", &["none.toml"]),
        ("train nbody train.steps=many", &["a whole number"]),
        ("train nbody --device cuda:99", &["cuda:99"]),
        ("train nbody --device gpu", &["`gpu`", "cuda:N"]),
        ("train nbody --dtype bf16", &["bf16", "f32 and f64"]),
        ("train nbody --dtype f12", &["f12"]),
        ("train nbody --compute tf32", &["tf32", "exact"]),
        ("train nbody --compute fast", &["exact, tf32"]),
        ("train nbody data.source=nowhere", &["nowhere"]),
        ("train nbody --resume nowhere", &["config.toml is missing"]),
        ("train nbody --resume nowhere --seeds 3", &["cannot be used with"]),
        ("train nbody --seeds 1,x", &["--seeds 1,x", "0,1,2"]),
        ("train nbody data.train=10 train.batch_size=11", &["at most data.train = 10"]),
        ("eval --checkpoint none.safetensors", &["none.safetensors"]),
        ("eval --checkpoint bad.toml", &["bad.toml", "safetensors"]),
        ("train nbody runtime.backends.glue=reference", &["runtime.backends", "`glue`", "gelu"]),
        ("train nbody --precision bf8", &["--precision", "full, bf16, f16", "a similar value exists"]),
        ("train nbody runtime.precision=bf8", &["runtime.precision", "one of full, bf16, f16"]),
        ("train nbody --precision bf16 --dtype f64", &["runtime.dtype", "mixed precision"]),
        ("train nbody --precision bf16 runtime.autocast.glue=f32", &["runtime.autocast", "`glue`"]),
        ("bisect", &["<TASK>"]),
        ("bisect mars", &["`mars`", "nbody"]),
        ("bisect --replay none.safetensors", &["none.safetensors"]),
        ("compare-precision nbody --precisions f32,f8", &["`f8`", "bf16"]),
        ("verify .", &["no .safetensors files"]),
        ("verify nowhere", &["nowhere"]),
        ("inspect bad.toml", &["bad.toml"]),
        ("gradcheck --signature 9,0,0", &["9"]),
        ("gradcheck --only nothing", &["table_product"]),
        ("train", &["Usage"]),
        ("fly", &["fly"]),
    ] {
        refuse(here, arguments, 2, parts);
    }
    assert!(!here.join("runs").exists(), "a refused run leaves no folder");
}

#[test]
fn profile_accounts_for_the_time_of_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let small = TINY.replace("train.warmup_steps=2 train.decay_steps=4", "");
    let text = succeed(here, &format!("profile nbody {small} --steps 2 --json --trace trace.json"));
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let profile = &found["profile"];
    let rows = profile["rows"].as_array().unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let seconds: Vec<f64> = rows.iter().map(|row| number(&row["seconds"])).collect();
    assert!(seconds.windows(2).all(|pair| pair[0] >= pair[1]), "{text}");
    let sum = seconds.iter().sum::<f64>() + number(&profile["other_seconds"]);
    assert!((sum / number(&profile["step_seconds"]) - 1.0).abs() < 1e-6, "{text}");
    for (operation, pass) in [("mv_linear", "forward"), ("steerable_layer", "backward")] {
        let row = rows.iter().find(|row| row["operation"] == operation && row["pass"] == pass).unwrap();
        assert!(number(&row["flops"]) > 0.0 && number(&row["bytes"]) > 0.0 && number(&row["roofline"]) > 0.0);
    }
    assert!(number(&profile["ceilings"]["copy_bytes_per_s"]) > 1e6);
    assert!(found["parts"].as_array().unwrap().iter().any(|part| part["name"] == "forward"));
    let trace = std::fs::read(here.join("trace.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    let called =
        |name: &str| trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["name"] == name).count();
    assert!(called("mv_linear") > 4 && called("steerable_layer") > 4);
    let mixed = succeed(here, &format!("profile nbody {small} --steps 1 --precision bf16"));
    assert!(mixed.contains("parameters, bf16 mixed precision with weights in f32 on cpu"), "{mixed}");
    // A profile trains nothing.
    assert!(!here.join("runs").exists());
    refuse(here, "profile mars", 2, &["`mars`", "nbody"]);
}

#[test]
fn help_teaches_by_examples() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        "",
        "train nbody",
        "train volumes",
        "train hulls",
        "train hulls8",
        "train o5",
        "train lorentz",
        "train forces",
        "train potential",
        "eval",
        "infer",
        "gradcheck",
        "verify",
        "inspect",
        "doctor",
        "kernels",
        "hardware",
        "memory",
        "compare",
        "stability",
        "symmetry",
        "report",
        "bisect",
        "compare-precision",
        "debug",
        "profile",
    ] {
        let text = succeed(folder.path(), &format!("{command} --help"));
        assert!(
            text.contains("Examples:") && text.contains(&format!("gradewise {command}")),
            "{command}: {text}"
        );
    }
}

#[test]
fn verify_fails_on_a_wrong_golden_file_and_on_an_unknown_operation() {
    let golden = std::env::current_dir().unwrap().join("tests/golden/optim");
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    assert!(
        succeed(here, &format!("verify {} --dtype f64", golden.display()))
            .contains("3 files in f64 on cpu: all pass")
    );
    let mut file = TensorFile::read(golden.join("adam.safetensors")).unwrap();
    let trajectory = file.get("out.trajectory").unwrap();
    let mut values = trajectory.to_f64_vec().unwrap();
    values[3] += 1e-3;
    let shape = trajectory.shape().to_vec();
    file.insert(
        "out.trajectory",
        StoredTensor::from_f64(&shape, &values, gradewise_core::DType::F64).unwrap(),
    );
    file.write(here.join("wrong.safetensors")).unwrap();
    refuse(here, "verify .", 1, &["1 of 1 files fail"]);
    file.metadata.insert("op".to_owned(), "levitate".to_owned());
    file.write(here.join("wrong.safetensors")).unwrap();
    refuse(here, "verify .", 1, &["1 of 1 files fail"]);
}

#[test]
fn gradcheck_agrees_on_every_operator() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeed(folder.path(), "gradcheck --signature 2,0,0 --samples 6 --second");
    assert!(text.contains("all agree") && text.contains("steerable_gp"), "{text}");
}

#[test]
fn bisect_agrees_on_a_healthy_model_and_the_backend_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let small = TINY.replace("train.warmup_steps=2 train.decay_steps=4", "");
    let text = succeed(folder.path(), &format!("bisect nbody {small}"));
    assert!(text.contains("agree with the reference") && text.contains("nearest to its tolerance"), "{text}");
    // Operations that are right make NaN of weights that are not.
    let run = format!("train nbody {TINY} train.steps=3 train.lr=1e30 train.schedule=constant --out run");
    assert_eq!(gradewise(folder.path(), &run).status.code(), Some(1));
    refuse(
        folder.path(),
        &format!("bisect nbody {small} --checkpoint run/checkpoint.safetensors"),
        1,
        &["diverged: the loss is ", "every operation computes what it should", "run/checkpoint.safetensors"],
    );
    let chosen = gradewise(
        folder.path(),
        &format!(
            "bisect nbody {small} runtime.backends.mv_linear=reference runtime.backends.mv_silu.backward=cuda"
        ),
    );
    assert_eq!(chosen.status.code(), Some(0), "{}", stderr(&chosen));
    let said = stderr(&chosen);
    assert!(
        said.contains("backends by runtime.backends: mv_linear=reference,mv_silu.backward=cuda"),
        "{said}"
    );
    let environment = Command::new(program())
        .current_dir(folder.path())
        .args(["gradcheck", "--only", "gelu"])
        .env("GRADEWISE_BACKEND", "glue=reference")
        .output()
        .unwrap();
    assert!(stderr(&environment).contains("`glue`"), "{}", stderr(&environment));
}

#[test]
fn mixed_precision_trains_shows_its_scale_and_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for precision in ["bf16", "f16-mixed"] {
        succeed(here, &format!("train nbody {TINY} train.steps=6 --precision {precision} --out {precision}"));
    }
    let records = MetricsLog::read(here.join("f16-mixed/metrics.jsonl")).unwrap();
    let steps: Vec<_> = records.iter().filter(|record| record["train_loss"].is_f64()).collect();
    assert!(!steps.is_empty());
    for record in steps {
        assert!(record["loss_scale"].as_f64().is_some_and(|scale| scale > 0.0), "{record}");
        assert!(
            record["zero_gradients"].as_f64().is_some_and(|zeros| (0.0..0.5).contains(&zeros)),
            "{record}"
        );
    }
    let records = MetricsLog::read(here.join("bf16/metrics.jsonl")).unwrap();
    assert!(records.iter().all(|record| record["loss_scale"].is_null()));

    let small = TINY.replace("train.warmup_steps=2 train.decay_steps=4", "");
    let text =
        succeed(here, &format!("compare-precision nbody --checkpoint bf16/checkpoint.safetensors {small}"));
    for part in [
        "bf16 against f32",
        "mv_linear",
        "layers.0.edge.0",
        "gradient of",
        "no result of the forward pass diverges",
        " of 44 gradients diverge by more than 0.02",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text =
        succeed(here, &format!("compare-precision nbody --threshold 1e-5 --precisions f64,bf16 {small}"));
    assert!(
        text.contains("the first to diverge by more than 0.00001: `mv_linear` of layer embedding"),
        "{text}"
    );
    // A gradient that f16 cannot hold is part of the verdict, and fails.
    let scaled = format!("compare-precision nbody --precisions f32,f16 runtime.loss_scale=1e12 {small}");
    let output = gradewise(here, &scaled);
    let text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(" gradients diverge by more than 0.02, most that of `"), "{text}");
    assert!(text.contains("error: in f16 not finite: ") && text.contains("gradient"), "{text}");
    let json = succeed(here, &format!("compare-precision nbody --precisions f64,f32 --json {small}"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["first_diverged"].is_null(), "{json}");
    let errors: Vec<f64> =
        json["operations"].as_array().unwrap().iter().map(|row| row["error"].as_f64().unwrap()).collect();
    assert!(
        errors.len() > 20
            && errors.iter().all(|&error| error < 1e-4)
            && errors.iter().any(|&error| error > 0.0)
    );
}
