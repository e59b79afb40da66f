//! Memory: what scopes change, who holds it, what is alive, what grows, and limits: on the host, and over a stand-in for the driver.

use gradewise_fake_driver::Fake;
use gradewise_ffi::Driver;
use gradewise_kernels::{
    Array, CudaDevice, DType, Device, Error,
    memory::{self, Bytes, LeakWatcher, Monitor, census, within},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

const KIB: usize = 1 << 10;

/// The counters of the host, and the census, are one for the process.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A CUDA device, as far as memory goes.
fn fake() -> (Fake, Device) {
    let fake = Fake::new();
    let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
    (fake, Device::Cuda(device))
}

fn array(device: &Device, kib: usize) -> Array {
    Array::from_slice(&vec![1.5f32; kib * KIB / 4], [kib * KIB / 4], device).unwrap()
}

fn on_both(test: impl Fn(&Device)) {
    let _alone = alone();
    test(&Device::Cpu);
    let (fake, device) = fake();
    test(&device);
    drop(device);
    assert_eq!(fake.remains(), []);
}

#[test]
fn scopes_measure_their_own_peak_and_leave_that_of_others() {
    on_both(|device| {
        device.reset_peak();
        let before = device.memory().unwrap();
        drop(array(device, 512));
        let outer = Monitor::start(device).unwrap();
        let kept = array(device, 64);
        let inner = Monitor::start(device).unwrap();
        drop(array(device, 128));
        assert_eq!(inner.delta().unwrap().peak, 128 * KIB);
        assert_eq!(inner.finish().unwrap().allocated, 0);
        let delta = outer.finish().unwrap();
        assert_eq!((delta.allocated, delta.peak), (64 * KIB as i64, 192 * KIB));
        assert!(delta.to_string().starts_with("peak +192.0 KiB, allocated +64.0 KiB"), "{delta}");
        let after = device.memory().unwrap();
        assert_eq!(after.peak - before.allocated, 512 * KIB, "the peak before all of it");
        drop(kept);
        assert_eq!(device.memory().unwrap().allocated, before.allocated);
    });
    assert_eq!(
        [Bytes(5), Bytes(3 << 19), Bytes(5 << 30)].map(|b| b.to_string()),
        ["5 B", "1.5 MiB", "5.00 GiB"]
    );
}

#[test]
fn what_is_alive_has_a_name_an_operation_and_a_place() {
    on_both(|device| {
        drop(array(device, 1));
        let unseen = array(device, 4);
        census::start(census::Detail::Sites);
        let mark = census::mark();
        let _scope = census::scope("epoch 1");
        let weights = array(device, 8);
        weights.name("layer.weight");
        let other = array(device, 2);
        drop(array(device, 100));
        census::stop();
        let later = array(device, 4);
        let live: Vec<_> = census::live().into_iter().filter(|entry| entry.number >= mark).collect();
        assert_eq!(live.len(), 2, "{live:?}");
        let (first, second) = (&live[0], &live[1]);
        assert_eq!((first.name.as_deref(), first.bytes), (Some("layer.weight"), 8 * KIB));
        assert_eq!((&*second.scope, second.operation, second.bytes), ("epoch 1", "from_slice", 2 * KIB));
        assert_eq!(second.device, device.to_string());
        // A program whose symbols were taken out, as for a GPU elsewhere, cannot tell; one without line tables tells the function alone.
        let by = if let Some(site) = &second.site {
            let has_lines = site.contains('(');
            assert!(site.contains("array") && (!has_lines || site.contains("tests/memory.rs")), "{site}");
            ", by "
        } else {
            ""
        };
        let groups = census::grouped(&live);
        assert_eq!((&*groups[0].label, groups[0].arrays), ("layer.weight", 1));
        assert!(groups[1].label.starts_with(&format!("`from_slice` in epoch 1{by}")), "{}", groups[1].label);
        drop((unseen, weights, other, later));
        assert!(census::live().iter().all(|entry| entry.number < mark), "what was dropped is out of it");
    });
}

#[test]
fn memory_of_the_host_is_on_account_of_the_operation_that_runs() {
    let _alone = alone();
    let held = || memory::holders().into_iter().find(|holder| holder.operation == "test operation");
    let account = within("test operation");
    let kept = array(&Device::Cpu, 32);
    drop(account);
    let other = array(&Device::Cpu, 32);
    let holder = held().unwrap();
    assert_eq!((holder.arrays, holder.bytes), (1, 32 * KIB));
    drop((kept, other));
    assert_eq!(held(), None);
}

#[test]
fn growth_is_noticed_with_its_slope_and_suspects_and_nothing_else_is() {
    on_both(|device| {
        let _base = array(device, 100);
        // A saw-tooth, and one large array for a while: no leak.
        let mut watcher = LeakWatcher::new(device);
        for iteration in 0..40 {
            let _tooth = array(device, 1 + 40 * (iteration % 2));
            assert_eq!(watcher.see(iteration as u64).unwrap(), None, "{iteration}");
        }
        // What an evaluation leaves on the device, from one iteration on: no leak either.
        let mut watcher = LeakWatcher::new(device);
        let mut left = None;
        for iteration in 0..60 {
            if iteration == 13 {
                left = Some(array(device, 90));
            }
            assert_eq!(watcher.see(iteration).unwrap(), None, "{iteration}");
        }
        drop(left);
        // A kibibyte an iteration, every fourth of which is looked at.
        census::start(census::Detail::Operations);
        let (mut watcher, mut kept, mut found) = (LeakWatcher::new(device), Vec::new(), None);
        for iteration in 0..400u64 {
            kept.push(array(device, 1));
            if iteration % 4 == 0 && found.is_none() {
                found = watcher.see(iteration).unwrap();
            }
        }
        census::stop();
        let leak = found.expect("the growth is noticed");
        assert!((leak.slope - KIB as f64).abs() < 1.0, "{leak:?}");
        assert!(
            leak.to.1 - leak.from.1 == (leak.to.0 - leak.from.0) as usize * KIB && leak.to.0 < 60,
            "{leak:?}"
        );
        let suspect = &leak.suspects[0];
        assert_eq!((suspect.operation, suspect.bytes), ("from_slice", suspect.arrays * KIB as i64));
        assert_eq!((&*leak.living[0].label, leak.living[0].arrays as u64), ("`from_slice`", leak.to.0 + 1));
        let text = leak.to_string();
        for part in ["memory grows: ", " after iteration 0, ", "1.0 KiB each", "`from_slice` +"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        // Growth is reported again when it has gone on.
        let mut again = None;
        for iteration in 400..1200 {
            kept.push(array(device, 1));
            again = again.or(watcher.see(iteration).unwrap());
        }
        assert!(again.is_some_and(|again| again.from.0 == leak.to.0));
    });
}

#[test]
fn a_limit_is_the_end_of_memory_and_says_who_has_it() {
    on_both(|device| {
        let before = device.memory().unwrap().allocated;
        device.limit_memory(before + 300 * KIB);
        let kept = array(device, 256);
        let error = Array::zeros([64 * KIB], DType::F32, &Device::Cpu)
            .and_then(|zeros| zeros.to_device(device))
            .unwrap_err();
        assert!(error.is_out_of_memory(), "{error:?}");
        let (Error::OutOfMemory { holders, requested, .. }
        | Error::DeviceOutOfMemory { holders, requested, .. }) = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(*requested, 256 * KIB);
        assert!(
            holders[0].bytes >= 256 * KIB && error.to_string().contains("largest: from_slice ("),
            "{error}"
        );
        device.limit_memory(0);
        drop(array(device, 1024));
        drop(kept);
        assert_eq!(device.memory().unwrap().allocated, before);
    });
}
