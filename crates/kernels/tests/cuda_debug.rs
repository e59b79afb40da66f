//! Debug mode, over a stand-in for the driver: the launch at fault is named, with those before it. One test, for the mode is that of
//! the whole process.

use gradewise_fake_driver::Fake;
use gradewise_ffi::Driver;
use gradewise_kernels::{
    Array, CudaDevice, Device, Error, Fault,
    custom::CudaKernel,
    debug::{self, Outcome},
    signature,
};
use std::ffi::c_void;

const PTX: &[u8] = b".version 8.0\n.target sm_75\n.address_size 64\n\
    .visible .entry good(.param .u64 x, .param .u64 y, .param .u64 n) { ret; }\n\
    .visible .entry bad(.param .u64 x, .param .u64 y, .param .u64 n) { ret; }\n";

fn kernel(name: &'static str) -> CudaKernel {
    let signature = match name {
        "good" => signature!(fn good(x: &[f32; n], y: &mut [f32; n], n: usize)),
        _ => signature!(fn bad(x: &[f32; n], y: &mut [f32; n], n: usize)),
    };
    CudaKernel::from_image("test.ptx", PTX, signature.unwrap()).unwrap()
}

macro_rules! ends_with {
    ($($name:ident = $code:literal;)*) => {
        $(
            unsafe extern "C" fn $name(_: *const *const c_void, _: *const [u32; 3], _: *const [u32; 3], _: u32) -> u32 {
                $code
            }
        )*
    };
}

ends_with! {
    fine = 0;
    illegal_address = 700;
    illegal_instruction = 715;
    misaligned = 716;
    failure = 719;
    timeout = 702;
    ecc = 214;
}

#[test]
fn every_class_of_error_names_its_launch_and_the_next_step() {
    let cases: [(gradewise_fake_driver::Kernel, Fault, &str); 6] = [
        (illegal_address, Fault::IllegalAddress, "compute-sanitizer --tool memcheck"),
        (illegal_instruction, Fault::IllegalInstruction, "gradewise doctor"),
        (misaligned, Fault::MisalignedAddress, "compute-sanitizer --tool memcheck"),
        (failure, Fault::LaunchFailure, "compute-sanitizer --tool synccheck"),
        (timeout, Fault::Timeout, "smaller batch"),
        (ecc, Fault::Ecc, "another device"),
    ];
    for (run, fault, step) in cases {
        for on in [false, true] {
            debug::set(on);
            // A context of its own, as in a process of its own.
            let fake = Fake::new();
            fake.register("good", fine);
            fake.register("bad", run);
            let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
            let x = Array::from_slice(&[1f32; 8], [8], &Device::Cuda(device.clone())).unwrap();
            let (good, bad) = (kernel("good"), kernel("bad"));
            good.launch(&[&x], &[]).unwrap();
            let launched = bad.launch(&[&x], &[]);
            let after = |_| good.launch(&[&x], &[]).and_then(|y| y[0].to_vec::<f32>());
            let error = launched.and_then(after).unwrap_err();
            let text = error.to_string();
            let Error::Cuda { source, launches, operation, .. } = &error else { panic!("{error:?}") };
            assert_eq!(Fault::of(source), Some(fault), "{text}");
            for part in [fault.name(), fault.meaning(), step, "start a new process"] {
                assert!(text.contains(part), "`{part}` is not in: {text}");
            }
            if !on {
                assert_eq!((*operation, launches.len()), ("to_vec", 0), "{text}");
                assert!(
                    matches!(fault, Fault::Timeout | Fault::Ecc)
                        || text.contains("gradewise debug -- COMMAND"),
                    "{text}"
                );
                continue;
            }
            let latest = launches.last().unwrap();
            assert_eq!(latest.outcome, Outcome::Failed, "{text}");
            assert!(latest.work.contains("bad <<<"), "{text}");
            let before = &launches[launches.len() - 2];
            assert!(before.work.contains("good <<<") && before.outcome == Outcome::Done, "{text}");
            assert!(text.contains(&format!("cause: launch #{} below", latest.number)), "{text}");
            assert!(text.contains("copy of 32 bytes from the host"), "{text}");
        }
    }

    // What a kernel leaves unwritten has the bits that the memory was poisoned with.
    debug::set(true);
    let fake = Fake::new();
    fake.register("good", fine);
    let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
    let x = Array::from_slice(&[f32::NAN; 8], [8], &Device::Cuda(device.clone())).unwrap();
    assert_eq!(x.unwritten().unwrap(), 0, "NaN as arithmetic makes it was written");
    let y = kernel("good").launch(&[&x], &[]).unwrap();
    assert_eq!(y[0].unwritten().unwrap(), 8);
    drop((x, y, device));
    assert_eq!(fake.remains(), []);
}
