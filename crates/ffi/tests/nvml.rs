//! The management library, over a stand-in whose numbers are known.

mod common;

use common::Without;
use gradewise_fake_driver::Fake;
use gradewise_ffi::{Context, Dynamic, Error, Nvml, nvml::Clock};
use std::ffi::c_int;

fn open() -> Dynamic {
    Dynamic::open("NVML", &[gradewise_fake_driver::nvml()], "").unwrap()
}

/// One test for all, since the stand-in counts how often it was started in the process.
#[test]
fn devices_tell_what_they_do_and_the_library_ends_with_its_last_user() {
    let nvml = Nvml::new(open()).unwrap();
    assert_eq!(nvml.driver_version(), Ok("580.00.01".to_owned()));
    assert_eq!(nvml.version(), Ok("13.580.00.01".to_owned()));
    assert_eq!(nvml.device_count(), Ok(2));

    let fake = Fake::new();
    let context = Context::primary(&common::driver(&fake), 1).unwrap();
    let second = nvml.device_of(context.info()).unwrap();
    assert_eq!(second.name(), Ok("Fake GPU 1".to_owned()));
    let first = nvml.device(0).unwrap();
    let memory = first.memory().unwrap();
    assert_eq!((memory.total, memory.total - memory.free, memory.used), (80 << 30, 1000, 1000));
    assert_eq!(second.utilization().map(|rates| (rates.gpu, rates.memory)), Ok((71, 30)));
    assert_eq!(first.power(), Ok(123.456));
    assert_eq!(first.energy(), Ok(5.0));
    assert_eq!(first.temperature(), Ok(45));
    assert_eq!((first.clock(Clock::Multiprocessor), first.clock(Clock::Memory)), (Ok(1000), Ok(2000)));
    assert_eq!(second.max_clock(Clock::Memory), Ok(4001));
    assert_eq!((first.throttle_reasons(), second.throttle_reasons()), (Ok(1), Ok(4)));

    let error = second.energy().unwrap_err();
    assert!(matches!(error, Error::Status { code: 3, .. }), "{error:?}");
    assert!(error.to_string().contains("nvmlDeviceGetTotalEnergyConsumption: Not Supported (3)"), "{error}");
    assert!(nvml.device(2).is_err() && nvml.device(usize::MAX).is_err());

    assert_eq!(second.processes(), Ok(vec![]));
    let processes = first.processes().unwrap();
    assert_eq!(processes.len(), 100, "more than fit at first");
    assert_eq!((processes[0].name.as_deref(), processes[0].memory), (Some("trainer"), None));
    assert_eq!((processes[1].name.as_deref(), processes[1].memory), (None, Some(1 << 20)));

    // SAFETY: the stand-in's function of this name has this type.
    let library = unsafe { libloading::Library::new(gradewise_fake_driver::nvml()) }.unwrap();
    // SAFETY: as above.
    let started =
        || unsafe { library.get::<unsafe extern "C" fn() -> c_int>(b"fake_nvml_started\0").unwrap()() };
    drop(nvml);
    assert_eq!(started(), 1, "the devices hold it");
    drop((first, second));
    assert_eq!(started(), 0);

    let old = Without { library: open(), missing: &["nvmlDeviceGetComputeRunningProcesses_v3"] };
    let error = Nvml::new(old).unwrap().device(0).unwrap().processes().unwrap_err();
    assert!(
        matches!(error, Error::Symbol { .. }) && error.to_string().contains("update the NVIDIA driver"),
        "{error}"
    );
}

#[test]
fn without_the_driver_the_library_is_missing() {
    let Err(Error::Library { tried, .. }) = Nvml::load() else {
        println!("skipped: there is a driver on this machine");
        return;
    };
    assert_eq!(tried.len(), Nvml::PATHS.len());
}
