//! Recorded work of cudarc, on whatever driver is found.

use super::replay::{Memory, Outcome, record, stream};
use cudarc::driver::CudaContext;
use std::sync::Arc;

/// All cases; each takes the number of a device.
pub const ALL: [fn(usize); 3] = [
    a_graph_keeps_the_slice_and_replays,
    what_broke_a_recording_is_named_by_its_step,
    events_that_track_slices_are_named,
];

fn a_graph_keeps_the_slice_and_replays(ordinal: usize) {
    let (mut graph, alive) = {
        let stream = stream(ordinal).unwrap();
        let memory = Memory::new(&stream, &[1.0, -2.0, 0.5]).unwrap();
        (record(&stream, memory, &[3.0, 2.0]).unwrap(), Arc::downgrade(&stream))
    };
    assert_eq!(graph.nodes().unwrap().kernels, 2);
    let stream = alive.upgrade().expect("the graph keeps the stream");
    assert_eq!(stream.clone_dtoh(&graph.memory().x).unwrap(), [1.0, -2.0, 0.5], "recorded, not run");
    for expected in [[6.0, -12.0, 3.0], [36.0, -72.0, 18.0]] {
        graph.replay().unwrap();
        assert_eq!(stream.clone_dtoh(&graph.memory().x).unwrap(), expected);
    }
    // New input for the next replay, at the same address.
    stream.memcpy_htod(&[1.0; 3], &mut graph.memory_mut().x).unwrap();
    graph.replay().unwrap();
    let memory = graph.into_memory().unwrap();
    assert_eq!(stream.clone_dtoh(&memory.x).unwrap(), [6.0; 3]);
    drop(memory);
    drop(stream);
    assert!(alive.upgrade().is_none(), "and gives it back");
}

/// A call of cudarc, of which gradewise-ffi sees nothing but what it did to the stream.
fn what_broke_a_recording_is_named_by_its_step(ordinal: usize) {
    let stream = stream(ordinal).unwrap();
    let memory = Memory::new(&stream, &[1.0]).unwrap();
    let driver = gradewise_ffi::Driver::load().unwrap();
    // SAFETY: both open the same library; the graph keeps the memory.
    let result = unsafe {
        gradewise_ffi::cudarc::shared(&driver, &stream).unwrap().record(memory, |recording, memory| {
            recording.step("scale", |_| -> Outcome<()> { Ok(memory.scale(&stream, 2.0)?) })?;
            recording.step("look", |_| -> Outcome<()> { Ok(stream.synchronize()?) })
        })
    };
    let text = result.map(drop).unwrap_err().to_string();
    assert!(text.starts_with("recording in step `look`: "), "{text}");
    assert!(text.contains("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"), "{text}");
    let memory = Memory::new(&stream, &[1.0]).unwrap();
    record(&stream, memory, &[2.0]).unwrap().replay().unwrap();
}

fn events_that_track_slices_are_named(ordinal: usize) {
    let context = CudaContext::new(ordinal).unwrap();
    let stream = context.new_stream().unwrap();
    let memory = Memory::new(&stream, &[1.0]).unwrap();
    assert!(context.is_managing_stream_synchronization());
    let text = record(&stream, memory, &[2.0]).map(drop).unwrap_err().to_string();
    assert!(text.contains("CUDA_ERROR_STREAM_CAPTURE_ISOLATION"), "{text}");
}
