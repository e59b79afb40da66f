//! The archive for an issue.

use super::{TINY, command, refuse, succeed};
use flate2::read::GzDecoder;
use std::{collections::BTreeMap, io::Read, path::Path};

fn unpack(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(path).unwrap()));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().strip_prefix("gradewise-report").unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name, text)
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn a_report_has_what_an_issue_needs_and_nothing_that_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // A run that fails after some steps, with a path and a secret in its settings and its environment.
    let private = here.join("customer/set");
    let data = format!(
        "{TINY} train.steps=20 train.log_every=1 train.lr=1e30 train.schedule=constant runtime.detect_anomaly=true data.suffix={}",
        private.display()
    );
    let mut failing = command(here, &format!("train nbody {data} --out run"));
    failing.env("GRADEWISE_TOKEN", "of-this-test");
    refuse(failing, 1, &["infinite values from finite values"]);

    let report = || {
        let mut report = command(here, "report run");
        report
            .env("GRADEWISE_TOKEN", "of-this-test")
            .env("CUDA_VISIBLE_DEVICES", "3")
            .env("USER", "someone-here");
        report.stdin(std::process::Stdio::null());
        report
    };
    // Shown first; nobody agrees, and nothing is written.
    let said = refuse(
        report(),
        2,
        &["environment.txt", "doctor.json", "error.json", "config.toml", "metrics.jsonl", "--yes"],
    );
    assert!(said.contains("left out, ") && said.contains("is not written"), "{said}");
    assert!(!here.join("gradewise-report-run.tar.gz").exists());
    let (shown, _) = succeed(here, "report run --show config.toml");
    assert!(shown.contains("hidden = 4") && shown.contains("suffix = \"<path>\""), "{shown}");
    refuse(command(here, "report run --show weights"), 2, &["--show weights", "environment.txt"]);

    let mut written = report();
    written.arg("--yes");
    let output = written.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("file it at https://") && said.contains("/issues/new: attach"), "{said}");
    let entries = unpack(&here.join("gradewise-report-run.tar.gz"));
    for part in ["**Expected:**", "**Actual:**", "**Command**", "gradewise bisect"] {
        assert!(entries["issue.md"].contains(part), "`{part}` is not in: {}", entries["issue.md"]);
    }
    let error = &entries["error.json"];
    for part in [
        "infinite values from finite values",
        "computed through",
        "\"step\": ",
        "\"causes\"",
        "train.lr=1e30",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    // Nothing in the message is private, and its line breaks begin no paths.
    let kept = std::fs::read_to_string(here.join("run/error.json")).unwrap();
    let [kept, archived] =
        [&kept, error].map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
    assert_eq!(kept["error"], archived["error"]);
    assert_eq!(kept["details"], archived["details"]);
    assert!(kept["error"].as_str().unwrap().lines().count() > 3, "{kept}");
    assert!(
        entries["environment.txt"].contains("variable    CUDA_VISIBLE_DEVICES=3"),
        "{}",
        entries["environment.txt"]
    );
    assert!(
        entries["environment.txt"].contains("GRADEWISE_TOKEN=<secret>")
            && entries["metrics.jsonl"].contains("train_loss")
    );
    let doctor: serde_json::Value = serde_json::from_str(&entries["doctor.json"]).unwrap();
    assert!(doctor["checks"].is_array(), "{doctor}");
    for (name, text) in &entries {
        for hidden in ["of-this-test", "customer", "someone-here", &here.display().to_string()] {
            assert!(!text.contains(hidden), "`{hidden}` is in {name}: {text}");
        }
    }

    // Without a run, of the machine alone; what is no run is refused.
    succeed(here, "report --yes --out machine.tar.gz");
    assert_eq!(
        unpack(&here.join("machine.tar.gz")).keys().collect::<Vec<_>>(),
        ["doctor.json", "environment.txt", "issue.md"]
    );
    refuse(command(here, "report nowhere --yes"), 2, &["nowhere", "not the folder of a run"]);
}

#[test]
fn an_error_is_kept_until_the_run_has_gone_well() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let sizes = TINY
        .replace("train.batch_size=6", "train.batch_size=24")
        .replace("model.hidden=4", "model.hidden=16");
    let run = format!("train nbody {sizes} train.steps=8 runtime.memory_mib=1 --out run");
    refuse(command(here, &run), 1, &["out of memory"]);
    let error = std::fs::read_to_string(here.join("run/error.json")).unwrap();
    assert!(error.contains("out of memory") && error.contains("\"step\": 0"), "{error}");
    succeed(here, "train nbody --resume run runtime.memory_mib=0");
    assert!(!here.join("run/error.json").exists());
}
