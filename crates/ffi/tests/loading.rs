//! Finding the driver, and what is wrong with it.

mod common;

use common::*;
use gradewise_fake_driver::Fake;
use gradewise_ffi::{Calls, Context, Driver, Dynamic, Error, sys::CUresult};

#[test]
fn a_missing_library_lists_every_path_tried() {
    match Dynamic::open("the CUDA driver", &["libnone.so.1", "/no/such/libcuda.so"], "install it") {
        Err(Error::Library { tried, .. }) => {
            assert!(tried.len() == 2 && tried[0].starts_with("libnone.so.1 ("), "{tried:?}");
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("there is such a library"),
    }
    let text = Driver::open("/no/such/libcuda.so").unwrap_err().to_string();
    assert!(text.contains("/no/such/libcuda.so") && text.contains("check the path"), "{text}");
}

#[test]
fn a_file_that_is_no_library_says_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Driver::open(file.path().to_str().unwrap()).unwrap_err();
    assert!(matches!(&error, Error::Library { tried, .. } if tried.len() == 1), "{error}");
}

#[test]
fn a_driver_that_is_too_old_is_refused_by_its_version() {
    let fake = Fake::new();
    fake.set("version", 11080);
    let error = Driver::open(fake.path()).unwrap_err();
    assert!(matches!(error, Error::DriverTooOld { found: (11, 8), needed: Driver::OLDEST, .. }), "{error:?}");
    assert!(error.to_string().contains("CUDA 11.8") && error.to_string().contains("12.0"), "{error}");
    assert_eq!(fake.stat("cuInit"), 0);
    fake.set("version", 12000);
    assert_eq!(driver(&fake).version(), Ok((12, 0)));
}

#[test]
fn a_machine_without_devices_is_an_error_of_the_driver() {
    let fake = Fake::new();
    fake.set("devices", 0);
    assert_eq!(Driver::open(fake.path()).unwrap_err().code(), Some(CUresult::ERROR_NO_DEVICE));
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let fake = Fake::new();
    let driver = driver(&fake);
    assert_eq!(driver.device_count(), Ok(2));
    for ordinal in [2, usize::MAX] {
        let error = Context::primary(&driver, ordinal).unwrap_err();
        assert_eq!(error.code(), Some(CUresult::ERROR_INVALID_DEVICE));
    }
    drop(driver);
    assert_clean(&fake);
}

#[test]
fn a_missing_function_is_an_error_of_its_call_alone() {
    let fake = Fake::new();
    let library = Dynamic::open("the CUDA driver", &[fake.path()], "").unwrap();
    let driver = Driver::new(Without { library, missing: &["cuMemGetInfo_v2"] }).unwrap();
    let context = Context::primary(&driver, 0).unwrap();
    for _ in 0..2 {
        match context.memory() {
            Err(Error::Symbol { symbol: "cuMemGetInfo_v2", provider, .. }) => {
                assert_eq!(provider, "a library with holes");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(context.synchronize(), Ok(()));
    drop(context);
    assert_clean(&fake);
}

#[test]
fn without_the_functions_that_explain_codes_the_number_remains() {
    let fake = Fake::new();
    let library = Dynamic::open("the CUDA driver", &[fake.path()], "").unwrap();
    let driver = Driver::new(Without { library, missing: &["cuGetErrorName", "cuGetErrorString"] }).unwrap();
    let error = Context::primary(&driver, 7).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::ERROR_INVALID_DEVICE));
    assert!(error.to_string().contains("(101)"), "{error}");
}

#[test]
fn an_unknown_code_is_printed() {
    let fake = Fake::new();
    let driver = driver(&fake);
    fake.fail("cuDeviceGetCount", 1, UNKNOWN);
    let error = driver.device_count().unwrap_err();
    assert_eq!(error.code(), Some(CUresult(UNKNOWN)));
    let text = error.to_string();
    assert!(text.contains("cuDeviceGetCount") && text.contains("4711"), "{text}");
    assert_eq!(format!("{:?}", CUresult(UNKNOWN)), "CUresult(4711)");
}

#[test]
fn a_known_code_is_printed_in_the_words_of_the_driver() {
    let fake = Fake::new();
    let text = Context::primary(&driver(&fake), 9).unwrap_err().to_string();
    assert!(text.contains("CUDA_ERROR_INVALID_DEVICE (101): invalid device ordinal"), "{text}");
}

#[test]
fn the_stand_in_has_every_function_of_the_table() {
    let fake = Fake::new();
    let missing: Vec<_> = Calls::FUNCTIONS.iter().filter(|name| !fake.has(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn devices_describe_themselves() {
    let fake = Fake::new();
    fake.set("major", 8);
    fake.set("minor", 6);
    fake.set("memory", 123 << 20);
    let context = Context::primary(&driver(&fake), 1).unwrap();
    let info = context.info();
    assert_eq!((info.ordinal, info.compute_capability, info.memory), (1, (8, 6), 123 << 20));
    assert_eq!((info.name.as_str(), info.pci_bus_id.as_str()), ("Fake GPU 1", "0000:01:00.0"));
    assert_eq!(info.max_block, [1024, 1024, 64]);
    assert_eq!(info.max_grid, [i32::MAX as u32, 65535, 65535]);
}
