//! Work of cudarc as a graph that keeps its memory: recorded once, replayed many times.

use cudarc::{
    driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg},
    nvrtc::Ptx,
};
use gradewise_ffi::{Driver, RecordedGraph, cudarc as borrow};
use std::{error::Error, sync::Arc};

/// x[i] *= factor, for any device from compute capability 7.5 on.
const SCALE: &str = "
.version 6.4
.target sm_75
.address_size 64
.visible .entry scale_f32(.param .u64 x, .param .f32 factor, .param .u32 n)
{
    .reg .pred %past;
    .reg .f32 %value, %by;
    .reg .b32 %i, %block, %size, %count;
    .reg .b64 %base, %offset;
    ld.param.u64 %base, [x];
    ld.param.f32 %by, [factor];
    ld.param.u32 %count, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %block, %size, %i;
    setp.ge.u32 %past, %i, %count;
    @%past bra DONE;
    cvta.to.global.u64 %base, %base;
    mul.wide.u32 %offset, %i, 4;
    add.s64 %base, %base, %offset;
    ld.global.f32 %value, [%base];
    mul.f32 %value, %value, %by;
    st.global.f32 [%base], %value;
DONE:
    ret;
}
";

/// Errors of both libraries.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// What the recorded work uses, which the graph keeps.
pub struct Memory {
    scale: CudaFunction,
    pub x: CudaSlice<f32>,
}

impl Memory {
    /// Values on the device, and the kernel.
    pub fn new(stream: &Arc<CudaStream>, values: &[f32]) -> Result<Self, DriverError> {
        let module = stream.context().load_module(Ptx::from_src(SCALE))?;
        Ok(Self { scale: module.load_function("scale_f32")?, x: stream.clone_htod(values)? })
    }

    /// Queues x *= factor.
    pub fn scale(&mut self, stream: &CudaStream, factor: f32) -> Result<(), DriverError> {
        let count = self.x.len() as u32;
        let mut launch = stream.launch_builder(&self.scale);
        launch.arg(&mut self.x).arg(&factor).arg(&count);
        // SAFETY: the arguments are those of the kernel, which stays within `count` elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }.map(drop)
    }
}

/// A stream that can be recorded.
pub fn stream(ordinal: usize) -> Result<Arc<CudaStream>, DriverError> {
    let context = CudaContext::new(ordinal)?;
    // The events by which cudarc orders streams are recorded outside of a capture, and waited for in it, which breaks it.
    // SAFETY: nothing was allocated yet, and the caller uses this one stream.
    unsafe { context.disable_event_tracking() };
    context.new_stream()
}

/// Records x *= factor for each factor.
pub fn record(stream: &Arc<CudaStream>, memory: Memory, factors: &[f32]) -> Outcome<RecordedGraph<Memory>> {
    // SAFETY: both open the same library. The graph keeps the slice and the kernel, of which nothing else knows.
    unsafe {
        borrow::shared(&Driver::load()?, stream)?.record(memory, |recording, memory| {
            for (index, &factor) in factors.iter().enumerate() {
                recording.step(format!("scale {index}"), |_| -> Outcome<()> {
                    Ok(memory.scale(stream, factor)?)
                })?;
            }
            Ok(())
        })
    }
}
