//! Host cost of a launch: allocations, and time outside of the driver.

use crate::{
    Array, CudaDevice, DType, Device,
    ops::{
        self,
        clifford::{
            pointwise::mv_silu,
            product::{sgp, table_product},
        },
    },
};
use gradewise_core::{Algebra, Signature};
use gradewise_fake_driver::Fake;
use gradewise_ffi::{Driver, Dynamic, Module, Provider};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ffi::{CStr, c_void},
    ptr,
    sync::OnceLock,
    time::Instant,
};

/// The system's allocator with a count of each thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A kernel that does nothing.
unsafe extern "C" fn nothing(_: *const *const c_void, _: *const [u32; 3], _: *const [u32; 3], _: u32) -> u32 {
    0
}

/// The stand-in driver with the functions of a launch replaced by no-ops, so that only the host's work is measured.
struct Idle(Dynamic);

extern "system" fn allocate(pointer: *mut u64, _: usize, _: *mut c_void) -> u32 {
    // SAFETY: the driver's contract says that the pointer is valid for the write.
    unsafe { *pointer = 1 << 40 };
    0
}

extern "system" fn release(_: u64, _: *mut c_void) -> u32 {
    0
}

type Bind = extern "system" fn(*mut c_void) -> u32;

/// The stand-in's own function.
static BIND: OnceLock<Bind> = OnceLock::new();

/// Calls the stand-in only if the context is not bound to the thread already.
extern "system" fn bind(context: *mut c_void) -> u32 {
    thread_local! {
        static CURRENT: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
    }
    if CURRENT.replace(context) == context { 0 } else { BIND.get().map_or(201, |bind| bind(context)) }
}

extern "system" fn copy(_: u64, _: *const c_void, _: usize, _: *mut c_void) -> u32 {
    0
}

#[allow(clippy::too_many_arguments)]
extern "system" fn launch(
    _: *mut c_void,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: *mut c_void,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> u32 {
    0
}

impl Provider for Idle {
    fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        Some(match name.to_bytes() {
            b"cuMemAllocAsync" => allocate as *const c_void,
            b"cuMemFreeAsync" => release as *const c_void,
            b"cuCtxSetCurrent" => {
                let own = self.0.symbol(name)?;
                // SAFETY: the function of this name has this type.
                BIND.get_or_init(|| unsafe { std::mem::transmute::<*const c_void, Bind>(own) });
                bind as *const c_void
            }
            b"cuMemcpyHtoDAsync_v2" => copy as *const c_void,
            b"cuLaunchKernel" => launch as *const c_void,
            _ => return self.0.symbol(name),
        })
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// The kernels of the operators below, by the sizes of their parameters in bytes.
const KERNELS: [(&str, &[usize]); 4] = [
    ("gw_binary_f32", &[8, 8, 4, 136, 72, 72, 4]),
    ("gw_mv_silu_fwd_f32", &[8; 8]),
    ("gw_table_product_f32", &[8; 12]),
    ("gw_rms_norm_fwd_f32", &[8; 6]),
];

fn device(fake: &Fake, driver: &Driver) -> CudaDevice {
    let mut text = String::from(".version 8.0\n.target sm_90\n");
    for (name, sizes) in KERNELS {
        let parameter = |(index, size): (usize, &usize)| match size {
            4 => format!(".param .u32 p{index}"),
            8 => format!(".param .u64 p{index}"),
            _ => format!(".param .align 8 .b8 p{index}[{size}]"),
        };
        let parameters: Vec<String> = sizes.iter().enumerate().map(parameter).collect();
        text += &format!(".visible .entry {name}({})\n{{ ret; }}\n", parameters.join(", "));
        fake.register(name, nothing);
    }
    let device = CudaDevice::with_driver(driver, 0).unwrap();
    text.push('\0');
    device.kernels().adopt(Module::load(device.context(), "stand-ins", text.as_bytes()).unwrap());
    device
}

/// An operator, called once.
type Call<'a> = Box<dyn Fn() + 'a>;

/// The operators whose launches are measured, by name.
fn calls<'a>(device: &CudaDevice) -> Vec<(&'static str, Call<'a>)> {
    let place = Device::Cuda(device.clone());
    let full = |shape: &[usize]| {
        Array::from_f64(&vec![1.0; shape.iter().product()], shape, DType::F32, &place).unwrap()
    };
    let algebra = Algebra::new(Signature::new(4, 0, 0)).unwrap();
    let paths = algebra.paths().len();
    let x = full(&[16, 2, 4]);
    let (a, b, w) = (full(&[4, 5]), full(&[4, 5]), full(&[4, paths]));
    let table = table_product::Table::geometric(&algebra);
    let options = sgp::ProductOptions::default();
    let (y, z, u, v) = (x.clone(), x.clone(), x.clone(), algebra.clone());
    vec![
        ("add", Box::new(move || drop(ops::add(&x, &x).unwrap()))),
        ("mv_silu", Box::new(move || drop(mv_silu::forward(&algebra, &y, &a, &b).unwrap()))),
        (
            "sgp",
            Box::new(move || {
                drop(sgp::forward(&v, &sgp::Operands { x: &z, y: &z, w: &w }, options).unwrap())
            }),
        ),
        ("table_product", Box::new(move || drop(table_product::forward(&table, &u, &u).unwrap()))),
    ]
}

#[test]
#[ignore = "a measurement: cargo test --release -p gradewise-kernels --lib host_time -- --ignored --nocapture"]
fn host_time_of_a_launch() {
    const CALLS: u32 = 10_000;
    let fake = Fake::new();
    let library = Dynamic::open("the stand-in", &[fake.path()], "").unwrap();
    let device = device(&fake, &Driver::new(Idle(library)).unwrap());
    println!("{:16} {:>10} {:>12}", "operator", "ns", "allocations");
    for (name, call) in calls(&device) {
        let batch = || {
            let began = Instant::now();
            (0..CALLS).for_each(|_| call());
            let each = began.elapsed().as_secs_f64() / f64::from(CALLS);
            device.synchronize().unwrap();
            each
        };
        batch();
        let before = ALLOCATIONS.get();
        call();
        let allocations = ALLOCATIONS.get() - before;
        let least = (0..40).map(|_| batch()).fold(f64::INFINITY, f64::min);
        println!("{name:16} {:10.0} {allocations:12}", 1e9 * least);
    }
}

/// A launch allocates only the reference-counted owner of its result's memory.
#[test]
fn a_launch_allocates_nothing_but_the_owner_of_its_result() {
    let fake = Fake::new();
    let device = device(&fake, &Driver::open(fake.path()).unwrap());
    for (name, call) in calls(&device) {
        call();
        let before = ALLOCATIONS.get();
        call();
        assert_eq!(ALLOCATIONS.get() - before, 1, "{name}");
    }
}
