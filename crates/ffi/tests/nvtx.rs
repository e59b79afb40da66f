//! Ranges, with and without a profiler that listens. A profiler attaches when a process begins, so that each case is one.

use gradewise_ffi::nvtx;
use std::{env, process::Command};

/// What the child processes do.
fn work() {
    let _outer = nvtx::range("outer");
    {
        let _inner = nvtx::range("inner\0cut off");
        nvtx::mark("here");
    }
    drop(nvtx::range(""));
}

/// Runs [`child`] in a process of its own, with the library as its profiler; what it printed.
fn with(library: Option<&str>, log: &str) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture", "--ignored"]).env("FAKE_NVTX_LOG", log);
    command
        .env_remove("NVTX_INJECTION64_PATH")
        .envs(library.map(|library| ("NVTX_INJECTION64_PATH", library)));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "the other tests run it, in a process of its own"]
fn child() {
    println!("attached: {:?}", nvtx::attach());
    work();
}

#[test]
fn a_profiler_hears_every_range() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let said = with(Some(gradewise_fake_driver::nvtx()), log.path().to_str().unwrap());
    assert!(said.contains("attached: Ok(true)"), "{said}");
    let heard = std::fs::read_to_string(log.path()).unwrap();
    assert_eq!(heard, "push outer\npush inner\nmark here\npop\npush \npop\npop\n");
}

#[test]
fn without_a_profiler_nothing_happens() {
    let said = with(None, "/nonexistent/log");
    assert!(said.contains("attached: Ok(false)"), "{said}");
}

#[test]
fn a_profiler_that_is_none_is_named_and_ranges_go_on_without() {
    let said = with(Some("/no/such/profiler.so"), "");
    assert!(said.contains("attached: Err(Library") && said.contains("/no/such/profiler.so"), "{said}");
    let said = with(Some(gradewise_fake_driver::nvml()), "");
    assert!(said.contains("attached: Err(Symbol"), "{said}");
    let said = with(Some(gradewise_fake_driver::nvtx()), "/nonexistent/log");
    assert!(said.contains("attached: Err(Status"), "{said}");
}
