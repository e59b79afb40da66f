//! Recorded work of cudarc, over the stand-in for the driver; `tests/gpu.rs` has the same on a GPU.

#[path = "../src/replay.rs"]
mod replay;
mod replays;

use std::{env, process::Command};

/// cudarc finds the driver by its name alone, so the tests run in a process whose library path has the stand-in first.
#[test]
fn replays_over_the_stand_in() {
    const INSIDE: &str = "GRADEWISE_TEST_INSIDE";
    if env::var_os(INSIDE).is_some() {
        for case in replays::ALL {
            case(0);
        }
        return;
    }
    let output = Command::new(env::current_exe().expect("the test's own program"))
        .args(["--exact", "replays_over_the_stand_in", "--nocapture"])
        .env("LD_LIBRARY_PATH", gradewise_fake_driver::folder())
        .env(INSIDE, "1")
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
