//! Recordings: what they keep, what they replay, and how they name what broke them.

mod common;

use common::*;
use gradewise_fake_driver::Fake;
use gradewise_ffi::{
    Arguments, DeviceMemory, Driver, Dynamic, Error, Event, Function, HostMemory, LaunchConfig, Provider,
    RecordedGraph, Stream,
    sys::{CUresult, CUstream, capture_mode},
};
use std::{error::Error as Any, sync::Arc};

/// What the recorded work of these tests uses.
#[derive(Debug)]
struct Memory {
    kernel: Function,
    x: DeviceMemory,
    host: HostMemory,
}

fn memory(stream: &Stream, values: &[f32]) -> Memory {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let mut host = HostMemory::new(stream.context(), bytes.len()).unwrap();
    host.as_mut_slice().copy_from_slice(&bytes);
    let x = DeviceMemory::new(stream, bytes.len()).unwrap();
    x.write(0, &bytes).unwrap();
    Memory { kernel: kernel(stream.context(), "scale_f32"), x, host }
}

fn scale(memory: &Memory, stream: &Stream, factor: f32) -> Result<(), Error> {
    let count = memory.x.bytes() / 4;
    let arguments = Arguments::new().buffer(&memory.x).float(factor).int(count as i32);
    // SAFETY: the arguments are those of the kernel, the block is kept by the graph.
    unsafe {
        memory.kernel.launch(&LaunchConfig::linear(count.div_ceil(128) as u32, 128), stream, &arguments)
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

/// x *= factor, twice.
fn twice(stream: &Stream, memory: Memory, factor: f32) -> Result<RecordedGraph<Memory>, Error> {
    // SAFETY: `memory` is all that the work uses.
    unsafe {
        stream.record(memory, |recording, memory| {
            for step in ["first", "second"] {
                recording.step(step, |stream| scale(memory, stream, factor))?;
            }
            Ok(())
        })
    }
}

#[test]
fn a_recording_keeps_its_memory_and_replays() {
    let fake = Fake::new();
    let mut graph = {
        let stream = stream(&fake);
        let memory = memory(&stream, &[1.0, -2.0, 0.5]);
        // Recorded: to the device, two kernels, a fill of the last element, back to the host.
        // SAFETY: `memory` is all that the work uses; the host's part is read after a wait.
        unsafe {
            stream.record(memory, |recording, memory: &mut Memory| {
                let stream = recording.stream().clone();
                recording.step("load", |_| memory.x.write_async(0, &memory.host))?;
                recording.step("scale", |stream| scale(memory, stream, 3.0))?;
                scale(memory, &stream, 2.0)?;
                recording.step("store", |_| memory.x.read_async(0, &mut memory.host))
            })
        }
        .unwrap()
    };
    assert_eq!(fake.stat("launches"), 0, "recorded, not run");
    let nodes = graph.nodes().unwrap();
    assert_eq!((nodes.kernels, nodes.copies, nodes.fills, nodes.total()), (2, 2, 0, 4));
    graph.upload().unwrap();
    for expected in [[6.0, -12.0, 3.0], [36.0, -72.0, 18.0]] {
        graph.replay().unwrap();
        graph.wait().unwrap();
        assert_eq!(floats(graph.memory().host.as_slice()), expected);
    }
    // What is written between replays is what the next one reads.
    graph.memory_mut().host.as_mut_slice().copy_from_slice(&[1f32; 3].map(f32::to_ne_bytes).concat());
    graph.replay().unwrap();
    let Memory { x, .. } = graph.into_memory().unwrap();
    let mut bytes = [0; 12];
    x.read(0, &mut bytes).unwrap();
    assert_eq!(floats(&bytes), [6.0; 3]);
    drop(x);
    assert_clean(&fake);
}

/// The same without a graph that keeps it: the stand-in sees what a device may not.
#[test]
fn memory_that_a_plain_graph_does_not_keep_is_used_after_its_release() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let memory = memory(&stream, &[1.0]);
    let graph = stream.capture(capture_mode::THREAD_LOCAL, |stream| scale(&memory, stream, 2.0)).unwrap();
    let exec = graph.instantiate().unwrap();
    let Memory { x, kernel, host } = memory;
    drop(x);
    // SAFETY: none; this is what the test is about.
    unsafe { exec.launch(&stream) }.unwrap();
    assert_eq!(stream.synchronize().unwrap_err().code(), Some(CUresult::ERROR_ILLEGAL_ADDRESS));
    assert!(fake.stat("uses_after_free") > 0);
    drop((kernel, host));
}

/// Counts, when it is dropped, what has run.
struct Probe<'a>(&'a Fake, u64);

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        assert_eq!(self.0.stat("launches"), self.1, "the memory goes after the last replay");
    }
}

#[test]
fn memory_is_dropped_after_the_last_replay_has_run() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let (block, probe) = (memory(&stream, &[1.0]), Probe(&fake, 2));
    // SAFETY: the graph keeps both.
    let graph = unsafe {
        stream.record((probe, block), |recording, (_, block)| {
            recording.step("scale", |stream| scale(block, stream, 2.0))
        })
    };
    let mut graph = graph.unwrap();
    graph.replay().unwrap();
    graph.replay().unwrap();
    assert_eq!(fake.stat("launches"), 0, "queued");
    // Another stream of this thread is being captured meanwhile, which the wait does not break.
    let other = Stream::new(stream.context()).unwrap();
    other.begin_capture(capture_mode::THREAD_LOCAL).unwrap();
    drop(graph);
    other.end_capture().unwrap();
    // If the replays cannot be marked, the stream is waited for.
    let mut graph = twice(&stream, memory(&stream, &[1.0]), 2.0).unwrap();
    fake.fail("cuEventRecord", 1, UNKNOWN);
    assert!(graph.replay().is_err());
    drop(graph);
    assert_eq!(fake.stat("launches"), 4);
    drop((stream, other));
    assert_clean(&fake);
}

/// The error of a recording of one step, and whether the stream works afterwards.
fn broken_by(
    stream: &Stream,
    name: &str,
    work: impl FnOnce(&Stream, &mut Memory) -> Result<(), Error>,
) -> String {
    // SAFETY: `memory` is all that the work uses.
    let result = unsafe {
        stream.record(memory(stream, &[1.0]), |recording, memory| {
            recording.step("whole", |stream| scale(memory, stream, 2.0))?;
            recording.step(name, |stream| work(stream, memory))
        })
    };
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, Error::Capture { .. }), "{error:?}");
    assert_eq!(stream.is_capturing(), Ok(false));
    let graph = twice(stream, memory(stream, &[1.0]), 2.0);
    assert!(graph.is_ok(), "after {name}: {graph:?}");
    error.to_string()
}

#[test]
fn what_broke_a_recording_is_named() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let context = stream.context().clone();
    let (inside, outside) = (Event::new(&context, false).unwrap(), Event::new(&context, false).unwrap());
    outside.record(&stream).unwrap();
    let says = |text: &str, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    };
    let text = broken_by(&stream, "wait", |stream, _| stream.synchronize());
    says(&text, &["recording in step `wait`: cuStreamSynchronize", "(900)", "cannot wait for the device"]);
    let text = broken_by(&stream, "copy", |_, memory| memory.x.write(0, &[0; 4]));
    says(&text, &["in step `copy`: cuMemcpyHtoDAsync_v2", "pageable memory"]);
    let text = broken_by(&stream, "track", |stream, _| stream.wait(&outside));
    says(&text, &["in step `track`: cuStreamWaitEvent", "(905)", "disable_event_tracking"]);
    let text = broken_by(&stream, "ask", |stream, _| {
        inside.record(stream)?;
        inside.is_done().map(drop)
    });
    says(&text, &["in step `ask`: cuEventQuery", "(907)", "when it is replayed"]);
    // The first call that was refused, though the last one's error is returned.
    let text = broken_by(&stream, "late", |stream, memory| {
        let _ = stream.synchronize();
        scale(memory, stream, 1.0)
    });
    says(&text, &["in step `late`: cuStreamSynchronize", "(901)"]);
    // An error that the work does not look at.
    let text = broken_by(&stream, "deaf", |stream, _| {
        let _ = stream.synchronize();
        Ok(())
    });
    says(&text, &["in step `deaf`: cuStreamSynchronize"]);
    // A call that this crate does not see.
    let library = Dynamic::open("the driver", &[fake.path()], "").unwrap();
    let address = library.symbol(c"cuStreamSynchronize").unwrap();
    // SAFETY: the function has this type.
    let synchronize = unsafe {
        std::mem::transmute::<*const std::ffi::c_void, unsafe extern "system" fn(CUstream) -> CUresult>(
            address,
        )
    };
    let text = broken_by(&stream, "foreign", |stream, _| {
        // SAFETY: the stream is alive.
        unsafe { synchronize(stream.raw()) };
        Ok(())
    });
    says(&text, &["in step `foreign`: a call of another library"]);
    // What the driver finds out at the end.
    fake.fail("cuStreamEndCapture", 1, CUresult::ERROR_STREAM_CAPTURE_UNJOINED.0);
    // SAFETY: `memory` is all that the work uses.
    let result = unsafe {
        stream.record(memory(&stream, &[1.0]), |recording, memory| {
            recording.step("fork", |stream| scale(memory, stream, 2.0))
        })
    };
    let text = result.map(drop).unwrap_err().to_string();
    says(&text, &["after step `fork`: cuStreamEndCapture", "must be waited for in turn"]);
}

#[test]
fn without_steps_the_call_is_named() {
    let fake = Fake::new();
    let stream = stream(&fake);
    for is_returned in [true, false] {
        // SAFETY: `memory` is all that the work uses.
        let result = unsafe {
            stream.record(memory(&stream, &[1.0]), |recording, _| {
                let result = recording.stream().synchronize();
                if is_returned { result } else { Ok(()) }
            })
        };
        let text = result.map(drop).unwrap_err().to_string();
        assert!(text.starts_with("recording outside of steps: cuStreamSynchronize: "), "{text}");
    }
    drop(stream);
    assert_clean(&fake);
}

#[test]
fn errors_and_panics_of_the_work_are_its_own() {
    let fake = Fake::new();
    let stream = stream(&fake);
    // SAFETY: nothing is used.
    let result = unsafe {
        stream.record((), |recording, ()| -> Result<(), Box<dyn Any>> {
            recording.step("shapes", |_| Err("3 is not 4".into()))
        })
    };
    assert_eq!(result.map(drop).unwrap_err().to_string(), "3 is not 4");
    assert_eq!(stream.is_capturing(), Ok(false));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // SAFETY: nothing is used.
        let _ = unsafe { stream.record((), |_, ()| -> Result<(), Error> { panic!("on purpose") }) };
    }));
    assert!(panicked.is_err());
    assert_eq!(stream.is_capturing(), Ok(false));
    drop(stream);
    assert_clean(&fake);
}

#[test]
fn what_cannot_be_recorded_or_replayed_is_refused() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let refused = |stream: &Stream, work: &mut dyn FnMut(&Stream) -> Result<(), Error>| {
        // SAFETY: what is used lives, or is refused.
        let result = unsafe { stream.record((), |recording, ()| work(recording.stream())) };
        assert_eq!(stream.context().take_parked(), None);
        result.map(drop).unwrap_err().to_string()
    };
    // SAFETY: the default stream outlives all.
    let default = unsafe { Stream::borrow(stream.context(), CUstream::NULL) };
    let text = refused(&default, &mut |_| Ok(()));
    assert!(text.contains("the default stream cannot be recorded"), "{text}");
    stream.begin_capture(capture_mode::THREAD_LOCAL).unwrap();
    let text = refused(&stream, &mut |_| Ok(()));
    assert!(text.contains("captured already"), "{text}");
    stream.end_capture().unwrap();
    let text = refused(&stream, &mut |_| Ok(()));
    assert!(text.contains("nothing was queued"), "{text}");
    // Memory of the graph that outlives the recording.
    let mut kept = None;
    let text = refused(&stream, &mut |stream| {
        kept = Some(DeviceMemory::new(stream, 4)?);
        Ok(())
    });
    assert!(text.contains("1 blocks of memory are taken in it and 0 returned"), "{text}");
    // Memory from before that is released in it.
    let mut block = Some(DeviceMemory::new(&stream, 4).unwrap());
    let x = DeviceMemory::new(&stream, 4).unwrap();
    let text = refused(&stream, &mut |_| {
        block = None;
        x.fill(0)
    });
    assert!(text.contains("cuMemFreeAsync") && text.contains("keep it in `memory`"), "{text}");
    // Drivers that take copies of pageable memory keep its address.
    fake.set("records_pageable", 1);
    let text = refused(&stream, &mut |_| x.write(0, &[1; 4]));
    assert!(text.contains("a copy of 4 bytes reads pageable host memory at 0x"), "{text}");
    let mut graph = twice(&stream, memory(&stream, &[1.0]), 2.0).unwrap();
    stream.begin_capture(capture_mode::THREAD_LOCAL).unwrap();
    let text = graph.replay().unwrap_err().to_string();
    assert!(text.contains("end that capture first"), "{text}");
    stream.end_capture().unwrap();
    graph.replay().unwrap();
}

/// Memory that is taken and returned while recording belongs to the graph.
#[test]
fn temporary_memory_is_taken_at_each_replay() {
    let fake = Fake::new();
    let stream = stream(&fake);
    // SAFETY: `memory` is all that the work uses besides memory of the graph.
    let graph = unsafe {
        stream.record(memory(&stream, &[3.0]), |recording, memory| {
            recording.step("through a copy", |stream| {
                let copy = DeviceMemory::new(stream, 4)?;
                copy.copy_from(0, &memory.x, 0, 4)?;
                scale(memory, stream, 0.0)?;
                memory.x.copy_from(0, &copy, 0, 4)?;
                scale(memory, stream, 2.0)
            })
        })
    };
    let mut graph = graph.unwrap();
    let nodes = graph.nodes().unwrap();
    assert_eq!((nodes.kernels, nodes.copies, nodes.allocations, nodes.frees), (2, 2, 1, 1));
    for _ in 0..3 {
        graph.replay().unwrap();
    }
    let memory = graph.into_memory().unwrap();
    let mut bytes = [0; 4];
    memory.x.read(0, &mut bytes).unwrap();
    assert_eq!(floats(&bytes), [24.0]);
    drop((memory, stream));
    assert_clean(&fake);
}

#[test]
fn other_work_takes_the_place_of_the_recorded() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let mut graph = twice(&stream, memory(&stream, &[1.0]), 3.0).unwrap();
    graph.replay().unwrap();
    let value = |graph: &RecordedGraph<Memory>| {
        let mut bytes = [0; 4];
        graph.memory().x.read(0, &mut bytes).unwrap();
        floats(&bytes)[0]
    };
    let again = |graph: &mut RecordedGraph<Memory>, times: usize, fails: bool| {
        // SAFETY: as before.
        unsafe {
            graph.record_again(|recording, memory| -> Result<(), Error> {
                for _ in 0..times {
                    scale(memory, recording.stream(), 5.0)?;
                }
                if fails { recording.step("wait", Stream::synchronize) } else { Ok(()) }
            })
        }
    };
    assert_eq!(value(&graph), 9.0);
    assert_eq!(again(&mut graph, 2, false), Ok(true), "other arguments");
    graph.replay().unwrap();
    assert_eq!(value(&graph), 225.0);
    let error = again(&mut graph, 1, true).unwrap_err().to_string();
    assert!(error.contains("in step `wait`"), "{error}");
    assert_eq!(again(&mut graph, 1, false), Ok(false), "other nodes");
    graph.replay().unwrap();
    assert_eq!((value(&graph), graph.nodes().unwrap().kernels), (1125.0, 1));
    drop((graph, stream));
    assert_clean(&fake);
}

/// A stream of another library, by its handle.
#[test]
fn the_owner_of_a_shared_stream_lives_as_long_as_the_graph() {
    let fake = Fake::new();
    let owner = Arc::new(stream(&fake));
    let alive = Arc::downgrade(&owner);
    let mut graph = {
        // SAFETY: the owner has the stream.
        let shared = unsafe { Stream::share(owner.context(), owner.raw(), Arc::clone(&owner)) };
        let memory = memory(&owner, &[1.0]);
        drop(owner);
        twice(&shared, memory, 2.0).unwrap()
    };
    graph.replay().unwrap();
    let Memory { x, .. } = graph.into_memory().unwrap();
    assert!(alive.upgrade().is_none(), "the graph is gone, and with it the owner");
    drop(x);
    assert_clean(&fake);
}

#[test]
fn a_failure_of_any_call_leaves_nothing_behind() {
    let fake = Fake::new();
    let mut failed = 0;
    for nth in 1.. {
        let stream = stream(&fake);
        let memory = memory(&stream, &[1.0]);
        fake.fail("*", nth, UNKNOWN);
        let before = fake.stat("calls");
        let work = || -> Result<(), Error> {
            let mut graph = twice(&stream, memory, 2.0)?;
            graph.replay()?;
            let mut bytes = [0; 4];
            graph.into_memory()?.x.read(0, &mut bytes)?;
            assert_eq!(floats(&bytes), [4.0]);
            Ok(())
        };
        failed += usize::from(work().is_err());
        let calls = fake.stat("calls") - before;
        drop(stream);
        if fake.stat("failed_releases") == 0 {
            assert_eq!(fake.remains(), [], "after failure of call {nth}");
        }
        fake.reset();
        if calls < nth {
            break;
        }
    }
    assert!(failed > 20, "{failed} calls failed");
}

/// Whatever driver a recording is told of, it is asked by functions that it may not have.
#[test]
fn a_driver_without_the_functions_says_which() {
    let fake = Fake::new();
    let library = Dynamic::open("the driver", &[fake.path()], "").unwrap();
    let driver = Driver::new(Without { library, missing: &["cuGraphNodeGetType"] }).unwrap();
    let stream = Stream::new(&gradewise_ffi::Context::primary(&driver, 0).unwrap()).unwrap();
    let error = twice(&stream, memory(&stream, &[1.0]), 2.0).map(drop).unwrap_err();
    assert!(matches!(error, Error::Symbol { symbol: "cuGraphNodeGetType", .. }), "{error}");
}
