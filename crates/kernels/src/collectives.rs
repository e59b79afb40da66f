//! Collective operations over several devices, in a stream beside the device's own.

use crate::{Array, CudaDevice, DType, Device, Error, Result, runtime::debug};
use gradewise_ffi::{
    Event, Nccl, Stream,
    nccl::{Communicator, Options, ncclDataType_t, ncclUniqueId},
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// A device's membership in a group of devices, each of a process of its own.
///
/// Collectives run in a stream of their own: each waits for the work that the device's stream holds when it is queued, and overlaps with
/// work queued later. All processes queue the same operations in the same order. Inside a capture they become part of the graph.
pub struct Collectives(Arc<Inner>);

struct Inner {
    // Declared first, so that it is dropped before its stream.
    communicator: Communicator,
    device: CudaDevice,
    stream: Stream,
    /// Events that are not in use.
    events: Mutex<Vec<Event>>,
}

/// A result that the device's stream does not wait for yet.
pub struct InFlight {
    group: Arc<Inner>,
    array: Option<Array>,
    done: Option<Event>,
}

impl Collectives {
    /// Joins the group `id` as `rank` of `world`; returns when all processes have joined.
    ///
    /// # Errors
    /// [`Error::Cuda`] from NCCL, such as a timeout if other processes do not join.
    pub fn new(
        device: &CudaDevice,
        library: &Nccl,
        id: ncclUniqueId,
        rank: usize,
        world: usize,
        options: Options,
    ) -> Result<Self> {
        const NAME: &str = "join a group of devices";
        device.refuse_in_capture(NAME)?;
        let fail = |source| device.error(NAME, source);
        let best = Stream::best_priority(device.context()).map_err(fail)?;
        // The highest priority: other processes wait for this stream's work.
        let stream = Stream::with_priority(device.context(), best).map_err(fail)?;
        let communicator =
            Communicator::new(library, device.context(), id, rank, world, options).map_err(fail)?;
        Ok(Self(Arc::new(Inner { communicator, device: device.clone(), stream, events: Mutex::default() })))
    }

    /// Which process this is.
    pub fn rank(&self) -> usize {
        self.0.communicator.rank()
    }

    /// Number of processes.
    pub fn world(&self) -> usize {
        self.0.communicator.world()
    }

    /// Queues the sum of an array over all processes, in place; an array that shares its storage is copied first.
    ///
    /// # Errors
    /// An array of another device; [`Error::Cuda`] from NCCL.
    pub fn all_reduce(&self, array: Array) -> Result<InFlight> {
        self.queue("all_reduce", array, |communicator, address, count, dtype, stream| {
            // SAFETY: see `queue`.
            unsafe { communicator.all_reduce(address, address, count, dtype, stream) }
        })
    }

    /// Queues a broadcast of the array of process 0 to the others, in place.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn broadcast(&self, array: Array) -> Result<InFlight> {
        self.queue("broadcast", array, |communicator, address, count, dtype, stream| {
            // SAFETY: see `queue`.
            unsafe { communicator.broadcast(address, count, dtype, 0, stream) }
        })
    }

    /// Reports asynchronous errors that the library knows of.
    ///
    /// # Errors
    /// [`Error::Cuda`] with such an error.
    pub fn check(&self) -> Result<()> {
        let inner = &self.0;
        inner.communicator.check().map_err(|source| inner.device.error("check the group of devices", source))
    }

    /// Aborts operations that wait for other processes; their results are invalid. Any thread may call it, to release a thread that waits
    /// for the device.
    pub fn abort(&self) {
        self.0.communicator.abort();
    }

    fn queue(
        &self,
        operation: &'static str,
        mut array: Array,
        work: impl FnOnce(&Communicator, u64, usize, ncclDataType_t, &Stream) -> Result<(), gradewise_ffi::Error>,
    ) -> Result<InFlight> {
        let inner = &self.0;
        let device = &inner.device;
        if array.device() != Device::Cuda(device.clone()) {
            let (actual, expected) = (array.device(), Device::Cuda(device.clone()));
            return Err(Error::DeviceMismatch { operation, argument: "array", actual, expected });
        }
        array.make_unique()?;
        device.settle()?;
        let dtype = match array.dtype() {
            DType::F64 => ncclDataType_t::FLOAT64,
            DType::F32 => ncclDataType_t::FLOAT32,
            DType::F16 => ncclDataType_t::FLOAT16,
            DType::BF16 => ncclDataType_t::BFLOAT16,
        };
        let _gate = device.gate().enter();
        if debug::is_on() {
            debug::keep(operation, format!("{} elements with the other processes", array.elements()));
        }
        let fail = |source| device.error(operation, source);
        let (ready, done) = (inner.event().map_err(fail)?, inner.event().map_err(fail)?);
        ready.record(device.stream()).map_err(fail)?;
        inner.stream.wait(&ready).map_err(fail)?;
        // `work` is sound: the array is contiguous and its storage is not shared. The stream waits for the work queued on the array before.
        // The array is neither handed out nor freed (in the order of the device's stream) before the device's stream waits for `done`.
        let queued = work(&inner.communicator, array.cuda_address(), array.elements(), dtype, &inner.stream);
        let recorded = done.record(&inner.stream);
        inner.give(ready);
        let in_flight = InFlight { group: Arc::clone(inner), array: Some(array), done: Some(done) };
        queued.and(recorded).map_err(fail)?;
        Ok(in_flight)
    }
}

impl Inner {
    fn event(&self) -> Result<Event, gradewise_ffi::Error> {
        let kept = self.events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| Event::new(self.device.context(), false), Ok)
    }

    fn give(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl InFlight {
    /// The result. Work queued on the device from now on waits for it; the host does not.
    ///
    /// # Errors
    /// [`Error::Cuda`] from the driver.
    pub fn wait(mut self) -> Result<Array> {
        let joined = self.join();
        let Some(array) = self.array.take() else { unreachable!("taken once, here") };
        joined.map(|()| array)
    }

    fn join(&mut self) -> Result<()> {
        let Some(done) = self.done.take() else { return Ok(()) };
        let device = &self.group.device;
        let _gate = device.gate().enter();
        let waited =
            device.stream().wait(&done).map_err(|source| device.error("wait for other devices", source));
        self.group.give(done);
        waited
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Makes the device's stream wait first: the array is freed in its order, so not while others still write to the array.
        let _ = self.join();
    }
}

impl fmt::Debug for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collectives({:?}, {:?})", self.0.communicator, self.0.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_fake_driver::Fake;
    use gradewise_ffi::{Driver, Dynamic};
    use std::thread;

    #[test]
    fn arrays_of_devices_are_summed_and_copied() {
        let library = Dynamic::open("NCCL", &[gradewise_fake_driver::nccl()], "").unwrap();
        let library = Nccl::new(library).unwrap();
        let id = library.unique_id().unwrap();
        let run = |rank: usize| {
            let fake = Fake::new();
            {
                let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
                let group = Collectives::new(&device, &library, id, rank, 2, Options::default()).unwrap();
                assert_eq!((group.rank(), group.world()), (rank, 2));
                let on = Device::Cuda(device.clone());
                let own =
                    Array::from_slice(&[1.0f32, 2.0, 3.0].map(|x| x * (rank + 1) as f32), [3], &on).unwrap();
                device.synchronize().unwrap(); // the stand-in computes at once
                let sum = group.all_reduce(own).unwrap().wait().unwrap();
                assert_eq!(sum.to_vec::<f32>().unwrap(), [3.0, 6.0, 9.0]);
                let copy = Array::from_slice(&[rank as f64; 2], [2], &on).unwrap();
                device.synchronize().unwrap();
                let copy = group.broadcast(copy).unwrap().wait().unwrap();
                assert_eq!(copy.to_vec::<f64>().unwrap(), [0.0; 2]);
                group.check().unwrap();
                let host =
                    group.all_reduce(Array::from_slice(&[1f32], [1], &Device::Cpu).unwrap()).map(|_| ());
                assert!(matches!(host.unwrap_err(), Error::DeviceMismatch { .. }));
                group.abort();
                assert!(group.check().unwrap_err().to_string().contains("aborted"));
            }
            assert_eq!(fake.remains(), [], "rank {rank}");
        };
        thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..2).map(|rank| scope.spawn(move || run(rank))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
