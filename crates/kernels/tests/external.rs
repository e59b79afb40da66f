//! Memory and streams of other libraries: on the host, and over a stand-in for the driver.

use gradewise_fake_driver::Fake;
use gradewise_ffi::{DeviceMemory, Driver, Stream};
use gradewise_kernels::{
    Array, Borrowed, BorrowedIndex, CudaDevice, DType, Device, Error, Index,
    external::{Allocation, AllocationError, Allocator, Place, with_allocator},
    ops,
};
use proptest::prelude::*;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A vector of another library, shown with strides of its own.
fn borrow(values: &Arc<Vec<f32>>, offset: usize, shape: &[usize], strides: &[usize]) -> Result<Array, Error> {
    let address = values.as_ptr().expose_provenance() as u64 + 4 * offset as u64;
    let owner = Box::new(Arc::clone(values));
    let borrowed = Borrowed { address, dtype: DType::F32, shape, strides, owner, is_known: false };
    // SAFETY: the tests reach no further than the vector, which nobody changes.
    unsafe { Array::borrow(borrowed, &Device::Cpu) }
}

fn numbers(count: usize) -> Arc<Vec<f32>> {
    Arc::new((0..count).map(|index| (index as f32).sin() + 2.0).collect())
}

proptest! {
    /// Whatever the strides, operators read what the other library sees.
    #[test]
    fn borrowed_values_are_read_in_place(
        shape in prop::collection::vec(1usize..5, 0..4),
        order in any::<prop::sample::Index>(),
        step in 1usize..4,
        offset in 0usize..7,
    ) {
        let rank = shape.len();
        let (mut strides, mut next) = (vec![0; rank], step);
        for turn in 0..rank {
            let axis = (order.index(rank.max(1)) + turn) % rank;
            strides[axis] = next;
            next *= shape[axis];
        }
        let values = numbers(offset + next.max(1));
        let array = borrow(&values, offset, &shape, &strides).unwrap();
        prop_assert!(array.is_borrowed() && !array.is_unique());
        prop_assert_eq!(array.address(), values[offset..].as_ptr().addr() as u64);
        let mut expected = vec![];
        for mut index in 0..array.elements() {
            let mut place = offset;
            for axis in (0..rank).rev() {
                place += index % shape[axis] * strides[axis];
                index /= shape[axis];
            }
            expected.push(values[place]);
        }
        prop_assert_eq!(array.to_vec::<f32>().unwrap(), expected.clone());
        let doubled = ops::add(&array, &array).unwrap();
        prop_assert_eq!(doubled.to_vec::<f32>().unwrap(), expected.iter().map(|v| v + v).collect::<Vec<_>>());
        prop_assert!(!doubled.is_borrowed());
    }
}

#[test]
fn the_owner_goes_with_the_last_array_and_writing_leaves_the_values_alone() {
    let values = numbers(6);
    let array = borrow(&values, 0, &[2, 3], &[3, 1]).unwrap();
    let mut view = array.slice(1, 1..2).unwrap().contiguous().unwrap().reshape([2]).unwrap();
    let mut all = array.reshape([6]).unwrap();
    drop(array);
    assert_eq!(Arc::strong_count(&values), 2, "one owner, whatever the number of views");
    all.as_mut_slice::<f32>().unwrap().fill(0.0);
    view.as_mut_slice::<f32>().unwrap().fill(0.0);
    assert_eq!(Arc::strong_count(&values), 1, "what is written is a copy");
    assert_eq!(values, numbers(6));
    // The last array may go on any thread.
    let array = borrow(&values, 0, &[6], &[1]).unwrap();
    std::thread::spawn(move || drop(array)).join().unwrap();
    assert_eq!(Arc::strong_count(&values), 1);
}

#[test]
fn what_cannot_be_an_array_is_refused_with_the_reason() {
    let values = numbers(8);
    let of = |address: u64, shape: &[usize], strides: &[usize]| {
        let borrowed = Borrowed {
            address,
            dtype: DType::F32,
            shape,
            strides,
            owner: Box::new(Arc::clone(&values)),
            is_known: false,
        };
        // SAFETY: refused before anything is read.
        unsafe { Array::borrow(borrowed, &Device::Cpu) }
    };
    let start = values.as_ptr().expose_provenance() as u64;
    for (address, shape, strides, reason) in [
        (0, &[2usize, 3][..], &[3usize, 1][..], "null"),
        (start + 2, &[2, 3], &[3, 1], "multiple of 4"),
        (start, &[2, 3], &[3], "1 strides for 2 axes"),
        (start, &[2, usize::MAX], &[1, 8], "reach beyond"),
        (start, &[1 << 40, 1 << 40], &[0, 0], "reach beyond"),
    ] {
        let error = of(address, shape, strides).unwrap_err();
        assert!(matches!(&error, Error::Borrow { reason: text, .. } if text.contains(reason)), "{error}");
        assert_eq!(Arc::strong_count(&values), 1, "{reason}");
    }
    // Without elements there is nothing to point to.
    assert_eq!(of(0, &[0, 3], &[3, 1]).unwrap().dims(), [0, 3]);
}

/// Memory of another library: aligned, full of NaN, counted.
#[derive(Default)]
struct Lender {
    asked: Mutex<Vec<(Place, usize)>>,
    alive: Arc<AtomicUsize>,
    empty: bool,
}

struct Lent {
    _memory: Vec<[u64; 8]>,
    alive: Arc<AtomicUsize>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

// SAFETY: the vector has room for the bytes and to begin at a multiple of 64; it is kept by the owner.
unsafe impl Allocator for Lender {
    fn allocate(&self, place: Place, bytes: usize) -> Result<Allocation, AllocationError> {
        self.asked.lock().unwrap().push((place, bytes));
        if self.empty {
            return Err("the lender has nothing left".into());
        }
        let mut memory = vec![[u64::MAX; 8]; bytes.div_ceil(64) + 1];
        let start = memory.as_mut_ptr().expose_provenance().next_multiple_of(64);
        self.alive.fetch_add(1, Ordering::SeqCst);
        let owner = Box::new(Lent { _memory: memory, alive: Arc::clone(&self.alive) });
        Ok(Allocation { address: start as u64, owner })
    }
}

#[test]
fn results_are_in_memory_of_the_allocator_in_force() {
    let lender = Arc::new(Lender::default());
    let x = Array::from_slice(&[1.0f64, 2.0, 3.0], [3], &Device::Cpu).unwrap();
    let before = gradewise_kernels::memory::stats().allocated;
    let y = with_allocator(lender.clone(), || ops::add(&x, &x)).unwrap();
    assert_eq!(*lender.asked.lock().unwrap(), [(Place::Host, 24)]);
    assert!(y.owner().is_some_and(|owner| owner.is::<Lent>()) && x.owner().is_none());
    assert_eq!(gradewise_kernels::memory::stats().allocated, before, "memory of others is not counted");
    assert_eq!(y.to_vec::<f64>().unwrap(), [2.0, 4.0, 6.0]);
    // New memory is the array's to write to.
    assert!(y.is_unique() && !y.is_borrowed());
    assert_eq!(lender.alive.load(Ordering::SeqCst), 1);
    drop(y);
    assert_eq!(lender.alive.load(Ordering::SeqCst), 0);
    // Afterwards, also after a panic, memory is this library's again.
    let panicked = catch_unwind(AssertUnwindSafe(|| with_allocator(lender.clone(), || panic!("as told"))));
    assert!(panicked.is_err());
    assert!(ops::add(&x, &x).unwrap().owner().is_none());
    assert_eq!(lender.asked.lock().unwrap().len(), 1);
}

#[test]
fn an_allocator_without_memory_is_heard() {
    let lender = Arc::new(Lender { empty: true, ..Lender::default() });
    let x = Array::ones([5], DType::F32, &Device::Cpu).unwrap();
    let error = with_allocator(lender, || ops::add(&x, &x)).unwrap_err();
    assert!(
        matches!(&error, Error::Allocator { operation: "add", place: Place::Host, requested: 20, message }
            if message.contains("nothing left")),
        "{error:?}"
    );
}

fn open(fake: &Fake) -> CudaDevice {
    CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap()
}

#[test]
fn device_memory_of_others_is_read_and_checked() {
    let fake = Fake::new();
    fake.set("devices", 2);
    let device = open(&fake);
    let other = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 1).unwrap();
    let theirs = Arc::new(DeviceMemory::new(device.stream(), 24).unwrap());
    theirs.write(0, bytemuck_of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
    let borrow = |address: u64, shape: &[usize], strides: &[usize], on: &CudaDevice| {
        let owner = Box::new(Arc::clone(&theirs));
        let borrowed = Borrowed { address, dtype: DType::F32, shape, strides, owner, is_known: false };
        // SAFETY: the block has six elements.
        unsafe { Array::borrow(borrowed, &Device::Cuda(on.clone())) }
    };
    let array = borrow(theirs.pointer() + 4, &[5], &[1], &device).unwrap();
    assert_eq!(array.to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!((array.address(), device.allocated()), (theirs.pointer() + 4, 0));
    assert!(array.is_borrowed() && array.owner().is_some_and(|owner| owner.is::<Arc<DeviceMemory>>()));
    assert!(!array.is_unique(), "nothing writes to values of others");
    assert_eq!(Arc::strong_count(&theirs), 2);
    drop(array);
    assert_eq!(Arc::strong_count(&theirs), 1);
    for (address, on, reason) in
        [(theirs.pointer(), &other, "on cuda:0"), (theirs.pointer() ^ (1 << 62), &device, "no device memory")]
    {
        let error = borrow(address, &[5], &[1], on).unwrap_err();
        assert!(matches!(&error, Error::Borrow { reason: text, .. } if text.contains(reason)), "{error}");
    }
    drop((theirs, device, other));
    assert_eq!(fake.remains(), []);
}

#[test]
fn lists_of_indices_of_others_are_read_when_the_host_asks_and_kept_until_then() {
    let fake = Fake::new();
    let device = open(&fake);
    let theirs = Arc::new(DeviceMemory::new(device.stream(), 40).unwrap());
    // The indices, where each value's positions begin, and the positions by value.
    let lists: [u32; 10] = [2, 0, 2, 0, 1, 1, 3, 1, 0, 2];
    let bits = lists.map(f32::from_bits);
    theirs.write(0, bytemuck_of(&bits)).unwrap();
    let [values, starts, order] = [0, 3, 7].map(|list| theirs.pointer() + 4 * list);
    let described = |length, bound| {
        let owner = Box::new(Arc::clone(&theirs));
        BorrowedIndex { values, starts, order, length, bound, owner }
    };
    // SAFETY: the lists are what is described.
    let index = unsafe { Index::borrow(described(3, 3), &device) }.unwrap();
    assert_eq!((index.len(), index.bound(), index.device()), (3, 3, &Device::Cuda(device.clone())));
    assert_eq!(device.allocated(), 0);
    let clone = index.clone();
    drop(index);
    assert_eq!(clone.to_vec().unwrap(), [2, 0, 2]);
    let here = Index::new(&[2, 0, 2], 3, &Device::Cpu).unwrap();
    assert!(clone.same_indices(&here).unwrap() && here.same_indices(&clone).unwrap());
    assert!(!clone.same_indices(&Index::new(&[2, 0, 1], 3, &Device::Cpu).unwrap()).unwrap());
    assert!(!clone.overwrite(&here).unwrap(), "nothing writes to lists of others");
    assert!(Arc::strong_count(&theirs) > 1);
    drop(clone);
    assert_eq!(Arc::strong_count(&theirs), 1);
    for (length, bound) in [(1 << 32, 1), (1, 1 << 32)] {
        // SAFETY: refused before anything is read.
        let refused = unsafe { Index::borrow(described(length, bound), &device) };
        assert!(matches!(refused, Err(Error::Argument { operation: "Index::borrow", .. })));
    }
    drop((theirs, device));
    assert_eq!(fake.remains(), []);
}

fn bytemuck_of(values: &[f32]) -> &[u8] {
    // SAFETY: floats have no padding and any byte is valid.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

#[test]
fn work_goes_into_the_stream_of_another_library_and_back() {
    let fake = Fake::new();
    let device = open(&fake);
    let theirs = Stream::new(device.context()).unwrap();
    let own = device.stream().raw();
    let place = Device::Cuda(device.clone());
    let run = |work: &dyn Fn()| {
        // SAFETY: the stream lives to the end of the test.
        unsafe { device.on_stream(theirs.raw(), work) }.unwrap();
    };
    run(&|| {
        assert_eq!(device.stream().raw(), theirs.raw());
        let x = Array::from_slice(&[1.0f32, 2.0], [2], &place).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
        // Another thread is not concerned.
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(device.stream().raw(), own)).join().unwrap();
        });
        // Constants outlive the stream, so they are made in the device's own.
        let constant = Array::constant(&[5.0, 6.0], [2], DType::F32, &place).unwrap();
        assert_eq!(constant.to_vec::<f32>().unwrap(), [5.0, 6.0]);
        let error = device.capture(|| Ok(())).map(|_| ()).unwrap_err();
        assert!(matches!(&error, Error::OtherStream { operation: "capture" }), "{error:?}");
    });
    assert_eq!(device.stream().raw(), own);
    let panicked = catch_unwind(AssertUnwindSafe(|| run(&|| panic!("as told"))));
    assert!(panicked.is_err() && device.stream().raw() == own);
    let ((), graph) = device
        .capture(|| {
            // SAFETY: as above.
            let refused = unsafe { device.on_stream(theirs.raw(), || ()) };
            assert!(matches!(refused, Err(Error::InCapture { .. })));
            Ok(())
        })
        .unwrap();
    // A constant holds the device as the device holds it.
    device.forget_constants();
    drop((graph, theirs, place, device));
    assert_eq!(fake.remains(), []);
}

#[test]
fn small_blocks_are_kept_for_the_next_arrays_and_given_back() {
    let fake = Fake::new();
    let device = open(&fake);
    let place = Device::Cuda(device.clone());
    let make = |elements: usize| Array::from_slice(&vec![1.0f32; elements], [elements], &place).unwrap();
    drop(make(100));
    let calls = fake.stat("cuMemAllocAsync");
    (0..3).for_each(|_| drop(make(100)));
    assert_eq!(fake.stat("cuMemAllocAsync"), calls, "a block of the same size is there");
    assert_eq!(device.allocated(), 0);
    drop(make(1 << 20));
    let large = fake.stat("cuMemAllocAsync");
    drop(make(1 << 20));
    assert_eq!(fake.stat("cuMemAllocAsync"), large + 1, "large blocks are the pool's");
    // Two arrays at a time are two blocks.
    let (x, y) = (make(100), make(100));
    assert_ne!(x.address(), y.address());
    drop((x, y));
    device.trim().unwrap();
    assert_eq!(fake.stat("blocks"), 0);
    drop((place, device));
    assert_eq!(fake.remains(), []);
}
