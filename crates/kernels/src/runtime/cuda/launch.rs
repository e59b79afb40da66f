//! Launching kernels: the one place where arguments meet the code on the device.
//!
//! What is checked: number and sizes of the arguments, against the compiled kernel, at its first launch on a device; at every launch that no
//! array among them is on the host, and blocks, shared memory and clusters against the limits of the device. What a kernel does with its
//! arguments cannot be checked here. Launchers vouch for it, by the numbers of the [contract](CudaDevice::launch_function).

use super::{
    CudaDevice,
    fuse::{self, Description, PartialSum},
    kernel::{Args, Grid, Kernel},
    memory::Buffer,
    submit::submit_function,
};
use crate::Result;
use gradewise_ffi::Function;

impl CudaDevice {
    /// Queues `kernel` of csrc for `operation`.
    ///
    /// # Safety
    /// 1 to 4 of [`launch_function`](Self::launch_function). Every kernel of csrc begins by waiting, for which a test looks (5).
    pub(crate) unsafe fn launch(
        &self,
        operation: &'static str,
        kernel: Kernel,
        mut grid: Grid,
        args: Args<'_>,
    ) -> Result<()> {
        // Every kernel of csrc begins by waiting for what is ahead of it (csrc/ptx/grid.cuh).
        grid.0.overlapped = self.overlaps();
        let (kernels, id) = (self.kernels(), kernel.id());
        if let Some(function) = kernels.resolved().get(&id) {
            // SAFETY: 1 to 4: as for this function. 5: as above.
            return unsafe { self.launch_function(operation, function, grid, args) };
        }
        let function = kernels.function(self.context(), operation, kernel, &args.all.sizes())?;
        // SAFETY: 1 to 4: as for this function. 5: as above.
        unsafe { self.launch_function(operation, &function, grid, args) }
    }

    /// Queues a kernel whose parameters are known to be of the sizes of the arguments.
    ///
    /// The comment at each call says by number why the contract holds there.
    ///
    /// # Safety
    /// 1. The arguments are the kernel's parameters in order. Arrays are on this device and hold the elements that sizes, strides and positions
    ///    among the arguments tell, of the dtypes that the kernel takes. Those for which there are no strides are contiguous.
    /// 2. An array that the kernel writes is new or unique, or its caller's to write, and no other argument overlaps it, unless the kernel
    ///    says that it may.
    /// 3. Threads of a block, dynamic shared memory and cluster are those of the kernel's header, and its blocks cover all work or stride.
    /// 4. Addresses given as numbers, also inside of structs, are of memory of this device that lives at this call. Memory is returned in
    ///    the order of the stream, so it may be let go right after the call. Arrays given as such are borrowed by `args`.
    /// 5. If the grid is overlapped, the kernel begins by waiting for what is ahead of it.
    pub(crate) unsafe fn launch_function(
        &self,
        operation: &'static str,
        function: &Function,
        grid: Grid,
        args: Args<'_>,
    ) -> Result<()> {
        // Arrays among the arguments whose values wait are computed first.
        if fuse::is_recording(self) {
            fuse::settle_touched(self, operation, &args)?;
        }
        // SAFETY: as for this function.
        unsafe { submit_function(self, operation, function, grid, args) }
    }

    /// Queues a kernel that was [generated](super::generated::Code).
    ///
    /// # Safety
    /// 1 to 4 of [`launch_function`](Self::launch_function). Generated kernels begin by waiting (5).
    pub(crate) unsafe fn launch_generated(
        &self,
        operation: &'static str,
        function: &Function,
        mut grid: Grid,
        args: Args<'_>,
    ) -> Result<()> {
        grid.0.overlapped = self.overlaps();
        // SAFETY: 1 to 4: as for this function. 5: as above.
        unsafe { self.launch_function(operation, function, grid, args) }
    }

    /// Queues `kernel` of csrc for `operation`, or lets the value that it computes wait, to be computed by a kernel with others: if this
    /// thread's capture or scope records values, and `describe` has a description of this one.
    ///
    /// # Safety
    /// 1 to 4 of [`launch_function`](Self::launch_function). The description says what the kernel computes, from all arrays among its
    /// arguments, into all of an array that is new.
    pub(crate) unsafe fn launch_value(
        &self,
        operation: &'static str,
        kernel: Kernel,
        grid: Grid,
        args: Args<'_>,
        describe: impl FnOnce() -> Option<Description>,
    ) -> Result<()> {
        if fuse::is_recording(self)
            && !args.is_on_host
            && let Some(description) = describe()
            && fuse::may_wait(self, &description)
        {
            return fuse::defer(self, operation, kernel, grid, args, description);
        }
        // SAFETY: as for this function.
        unsafe { self.launch(operation, kernel, grid, args) }
    }

    /// Lets a sum of partial results wait for others, if this thread captures and records values; says whether it does.
    ///
    /// # Errors
    /// From launching sums that wait already.
    ///
    /// # Safety
    /// Its arrays are on this device, of the sizes and dtypes that it tells, and the result's is new.
    pub(crate) unsafe fn sum_later(&self, sum: PartialSum) -> Result<bool> {
        // SAFETY: as for this function.
        unsafe { fuse::defer_sum(self, sum) }.map(|left| left.is_none())
    }

    /// Whether operators of this thread should describe what they compute: a capture or a scope records it.
    pub(crate) fn records(&self) -> bool {
        fuse::is_recording(self)
    }

    /// Whether the value of a buffer waits in a capture or a scope of this thread.
    pub(crate) fn awaits(&self, buffer: &Buffer) -> bool {
        fuse::is_recording(self) && fuse::is_waiting(self, buffer.pointer())
    }

    /// Computes the value in whose memory an address is, if it waits in a capture or a scope of this thread.
    pub(crate) fn settle_at(&self, address: u64) -> Result<()> {
        if fuse::is_recording(self) { fuse::settle_at(self, address) } else { Ok(()) }
    }

    /// Launches kernels that a capture or a scope of this thread holds back.
    pub(super) fn flush(&self) -> Result<()> {
        if fuse::is_recording(self) { fuse::flush(self) } else { Ok(()) }
    }

    /// Computes the values of a capture or a scope of this thread that wait. To be called before work that reads or writes memory by other means
    /// than a kernel's arguments, and before a kernel that changes arrays which others hold.
    pub(crate) fn settle(&self) -> Result<()> {
        if fuse::is_recording(self) { fuse::settle(self) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, DType, Device, Error};
    use gradewise_fake_driver::Fake;
    use gradewise_ffi::{Driver, Module};
    use std::{ffi::c_void, fs};

    unsafe extern "C" fn nothing(
        _: *const *const c_void,
        _: *const [u32; 3],
        _: *const [u32; 3],
        _: u32,
    ) -> u32 {
        0
    }

    #[test]
    fn an_array_on_the_host_is_refused_as_an_argument() {
        let fake = Fake::new();
        let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
        fake.register("gw_any_f32", nothing);
        let text = ".version 8.0\n.target sm_90\n.visible .entry gw_any_f32(.param .u64 a, .param .u64 b)\n{ ret; }\n\0";
        device.kernels().adopt(Module::load(device.context(), "stand-ins", text.as_bytes()).unwrap());
        // SAFETY: the stand-in touches none of its arguments.
        let launch =
            |args| unsafe { device.launch("test", Kernel::new("any", DType::F32), Grid::linear(1), args) };
        let host = Array::zeros([2], DType::F32, &Device::Cpu).unwrap();
        for args in
            [Args::new().array(&host).optional(None), Args::new().optional(None).optional(Some(&host))]
        {
            let error = launch(args).unwrap_err();
            assert!(matches!(error, Error::DeviceMismatch { actual: Device::Cpu, .. }), "{error}");
        }
        // Absent arrays are null, which kernels look for.
        launch(Args::new().optional(None).optional(None)).unwrap();
    }

    /// What follows the brace that opens each kernel of a source.
    fn beginnings(text: &str) -> Vec<String> {
        let bodies = text.split("__global__").skip(1).filter_map(|rest| rest.split_once('{'));
        bodies
            .map(|(_, body)| body.trim_start_matches(|c: char| c == '\\' || c.is_whitespace()).into())
            .collect()
    }

    #[test]
    fn every_kernel_waits_for_what_is_ahead_before_anything_else() {
        let (mut pending, mut kernels) = (vec![gradewise_testing::manifest_dir!().join("../../csrc")], 0);
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                    continue;
                }
                for body in beginnings(&fs::read_to_string(&path).unwrap()) {
                    let start: String = body.chars().take(40).collect();
                    assert!(body.starts_with("begin_kernel();"), "{}: {start}", path.display());
                    kernels += 1;
                }
            }
        }
        assert!(kernels > 50, "{kernels} found");
    }
}
