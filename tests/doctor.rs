//! `doctor` as its users meet it: without a driver, and over a stand-in for the driver and for NVML.
#![cfg(unix)]

#[path = "common/program.rs"]
mod program;

use program::program;
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output},
};

/// Runs `doctor` with the stand-in set up by `fake`, or without any driver.
fn doctor(arguments: &[&str], fake: Option<&str>) -> Output {
    let mut command = Command::new(program());
    command.arg("doctor").args(arguments).env_remove("LD_LIBRARY_PATH").env_remove("FAKE_CUDA");
    if let Some(settings) = fake {
        command.env("LD_LIBRARY_PATH", gradewise_fake_driver::folder()).env("FAKE_CUDA", settings);
    }
    command.output().expect("the program starts")
}

/// The report, whose verdict the exit code repeats.
fn report(arguments: &[&str], fake: Option<&str>) -> Value {
    let output = doctor(&[&["--json"], arguments].concat(), fake);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let failed = checks(&report).filter(|check| check["verdict"] == "fail").count();
    assert_eq!(report["ok"], failed == 0);
    assert_eq!(output.status.code(), Some(i32::from(failed > 0)), "{report:#}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(failed == 0 || stderr.contains(&format!("{failed} check")), "{stderr}");
    for check in checks(&report).filter(|check| check["verdict"] == "fail" || check["verdict"] == "warn") {
        assert!(check["advice"].as_str().is_some_and(|advice| advice.len() > 10), "no advice: {check:#}");
    }
    report
}

fn checks(report: &Value) -> impl Iterator<Item = &Value> {
    report["checks"].as_array().expect("a list of checks").iter()
}

/// A check by its name: its verdict, and its detail with the advice.
#[track_caller]
fn check(report: &Value, name: &str) -> (String, String) {
    let found = checks(report).find(|check| check["check"] == name);
    let found = found.unwrap_or_else(|| panic!("no check `{name}` in {report:#}"));
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), format!("{} {}", text("detail"), text("advice")))
}

#[track_caller]
fn assert_check(report: &Value, name: &str, verdict: &str, parts: &[&str]) {
    let (actual, text) = check(report, name);
    assert_eq!(actual, verdict, "{name}: {text}");
    for part in parts {
        assert!(text.contains(part), "{name}: `{part}` is not in: {text}");
    }
}

const KERNELS: bool = cfg!(feature = "cuda");

#[test]
fn without_a_driver_it_says_what_was_tried_and_what_to_do() {
    if gradewise_ffi::Driver::load().is_ok() {
        eprintln!("not tested: this machine has a driver");
        return;
    }
    let found = report(&[], None);
    // Where neither the build nor the machine has anything of a GPU, that is no fault.
    let is_fault = KERNELS || ["/proc/driver/nvidia", "/dev/dxg"].iter().any(|node| Path::new(node).exists());
    assert_check(
        &found,
        "driver",
        if is_fault { "fail" } else { "info" },
        &["libcuda.so.1 (", "/usr/lib/wsl/lib", "install the NVIDIA driver"],
    );
    assert_eq!(
        (&found["cuda"]["available"], &found["cuda"]["count"]),
        (&Value::from(false), &Value::from(0))
    );
    assert_check(&found, "cpu", "ok", &["threads", "self-test: ", "operators"]);
    for name in ["build", "NVML", "nvcc", "NVRTC", "NCCL"] {
        check(&found, name);
    }
    let output = doctor(&[], None);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(i32::from(is_fault)));
    assert!(text.starts_with("CPU: works (") && text.contains("self-test passed). GPU: "), "{text}");
    for part in ["[CUDA Info]\navailable            no\n", "\n[Checks]\n", " → install the NVIDIA driver"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn a_container_is_named_with_how_to_give_it_a_gpu() {
    let podman = |fake: Option<&str>| {
        let mut command = Command::new(program());
        command.args(["doctor", "--json", "--quick"]).env("container", "podman");
        command.env_remove("LD_LIBRARY_PATH").env_remove("KUBERNETES_SERVICE_HOST");
        if let Some(settings) = fake {
            command.env("LD_LIBRARY_PATH", gradewise_fake_driver::folder()).env("FAKE_CUDA", settings);
        }
        serde_json::from_slice::<Value>(&command.output().unwrap().stdout).unwrap()
    };
    assert_check(&podman(Some("")), "container", "info", &["Podman"]);
    assert_check(&podman(Some("devices=0")), "container", "warn", &["Podman", "nvidia.com/gpu=all"]);
    let mut report = Command::new(program());
    report.args(["report", "--show", "environment.txt"]).env("container", "podman");
    let text = String::from_utf8(report.output().unwrap().stdout).unwrap();
    assert!(text.contains("\ncontainer   Podman"), "{text}");
}

#[test]
fn devices_are_described_with_what_goes_on_there() {
    let found = report(&["--quick"], Some(""));
    assert_check(&found, "driver", "ok", &["libcuda.so.1"]);
    assert_check(&found, "driver version", "ok", &["CUDA 13.0"]);
    assert_check(&found, "cuda:0", "ok", &["compute capability 9.0", "1.0 GiB", "multiprocessors"]);
    assert_check(
        &found,
        "cuda:0 now",
        "info",
        &["45 °C", "123 W", "1000 of 2000 MHz", "70 % busy", "80.0 GiB"],
    );
    assert_check(&found, "cuda:0 others", "warn", &["trainer", "1 MiB", "more", "--device cuda:N"]);
    assert_check(&found, "cuda:1 others", "info", &["no other process"]);
    assert_check(&found, "cuda:1 self-test", "info", &["left out"]);
    assert_check(&found, "NVML", "info", &["580.00.01"]);
    let cuda = &found["cuda"];
    assert_eq!((&cuda["count"], &cuda["current"]), (&Value::from(2), &Value::from(0)));
    assert_eq!(cuda["available"], KERNELS);
    assert_eq!(
        (&cuda["versions"]["cuda"], &cuda["versions"]["driver"]),
        (&"13.0".into(), &"580.00.01".into())
    );
    assert_eq!(cuda["compute_capability"], "9.0");
    assert_eq!(cuda["versions"]["gradewise"], env!("CARGO_PKG_VERSION"));
    if KERNELS {
        assert_check(&found, "build", "ok", &["machine code", "PTX"]);
    } else {
        assert_check(&found, "build", "fail", &["--features cuda", "scripts/get-nvcc"]);
        assert_check(&found, "cuda:0 code", "info", &["no CUDA kernels"]);
        assert_check(&report(&[], Some("")), "cuda:0 self-test", "info", &["no code"]);
    }
}

#[test]
fn what_is_wrong_with_driver_or_device_fails_with_advice() {
    for (settings, name, parts) in [
        ("version=11040", "driver", &["serves CUDA 11.4, at least 12.0", "update the NVIDIA driver"][..]),
        ("devices=0", "driver", &["NO_DEVICE", "CUDA_VISIBLE_DEVICES", "--gpus all"]),
        ("fail=cuInit:1:803", "driver", &["803", "reboot"]),
        ("fail=cuInit:1:4711", "driver", &["4711", "nvidia-smi"]),
        ("fail=cuDeviceGetName:2:999", "cuda:1", &["cuDeviceGetName", "nvidia-smi -q"]),
    ] {
        let found = report(&["--quick"], Some(settings));
        assert_check(&found, name, "fail", parts);
        let output = doctor(&["--quick", "--warn"], Some(settings));
        assert_eq!(output.status.code(), Some(0), "{settings}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("\nFAIL "), "{settings}");
    }
    if KERNELS {
        let found = report(&["--quick"], Some("version=12080"));
        assert_check(&found, "driver version", "fail", &["12.8", "GRADEWISE_NVCC"]);
        let found = report(&["--quick"], Some("major=5;minor=2"));
        assert_check(&found, "cuda:0 code", "fail", &["5.2", "too old"]);
        assert_eq!(found["cuda"]["available"], false);
    }
}

/// The stand-in has no kernels of ours: the self-test must not pass there.
#[cfg(feature = "cuda")]
#[test]
fn a_device_that_computes_nothing_fails_the_self_test() {
    let found = report(&[], Some("devices=1"));
    assert_check(&found, "cuda:0 self-test", "fail", &["operators fail", "GRADEWISE_LAUNCH_BLOCKING=1"]);
    assert_eq!(found["cuda"]["available"], false, "what computes something else is not to be computed on");
    // Debug mode says so and goes on: the command is about the CPU.
    let output = Command::new(program())
        .args(["debug", "--", "gradcheck", "--only", "sin"])
        .env("LD_LIBRARY_PATH", gradewise_fake_driver::folder())
        .env("FAKE_CUDA", "devices=1")
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("warning: the initialisation test fails on cuda:0; the command runs"), "{said}");
}
