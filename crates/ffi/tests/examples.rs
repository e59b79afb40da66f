//! The examples, over the stand-ins.

mod common;
#[path = "../examples/devices.rs"]
#[allow(dead_code)]
mod devices;
#[path = "../examples/launch.rs"]
#[allow(dead_code)]
mod launch;

use gradewise_fake_driver::Fake;
use gradewise_ffi::{Dynamic, Error, Nvml};

#[test]
fn devices_are_listed_with_and_without_the_management_library() {
    let fake = Fake::new();
    let driver = common::driver(&fake);
    let nvml = Nvml::new(Dynamic::open("NVML", &[gradewise_fake_driver::nvml()], "").unwrap());
    let text = devices::report(&driver, nvml).unwrap();
    for expected in [
        "driver: CUDA 13.0",
        "version: 580.00.01",
        "device 1: Fake GPU 1",
        "compute capability 9.0",
        "memory            1.00 GiB",
        "shared memory     227 KiB per block",
        "busy              71 %",
        "power             123 W at 46 degrees C",
    ] {
        assert!(text.contains(expected), "`{expected}` is not in\n{text}");
    }
    let missing = Error::Library { library: "NVML", tried: vec!["libx.so".into()], hint: "install it" };
    let text = devices::report(&driver, Err(missing)).unwrap();
    assert!(text.contains("no management library: NVML was not found") && !text.contains("busy"), "{text}");
    drop(driver);
    common::assert_clean(&fake);
}

#[test]
fn a_device_that_is_in_exclusive_use_is_listed_all_the_same() {
    let fake = Fake::new();
    let driver = common::driver(&fake);
    fake.fail("cuDevicePrimaryCtxRetain", 1, 46);
    let text = devices::report(&driver, Nvml::load()).unwrap();
    assert!(text.contains("free memory       unknown: cuDevicePrimaryCtxRetain"), "{text}");
    assert!(text.contains("device 1"), "{text}");
}

#[test]
fn the_kernel_of_the_example_runs_and_another_is_not_launched() {
    let fake = Fake::new();
    let driver = common::driver(&fake);
    let text = launch::scale(&driver, "test", common::PTX).unwrap();
    assert!(text.contains("scaled 1000 elements on Fake GPU 0 with test: all of them right"), "{text}");
    let other =
        b".version 8.0\n.target sm_75\n.visible .entry scale_f32(.param .u64 x, .param .f64 factor) { ret; }";
    let error = launch::scale(&driver, "test", other).unwrap_err().to_string();
    assert!(error.contains("[8, 8] bytes"), "{error}");
    unsafe extern "C" fn idle(
        _: *const *const std::ffi::c_void,
        _: *const [u32; 3],
        _: *const [u32; 3],
        _: u32,
    ) -> u32 {
        0
    }
    fake.register("scale_f32", idle);
    let error = launch::scale(&driver, "test", common::PTX).unwrap_err().to_string();
    assert_eq!(error, "999 of 1000 elements are wrong", "zero is right by itself");
    drop(driver);
    common::assert_clean(&fake);
}
