//! Launching kernels: the one place where arguments meet the code on the device.

use super::{
    CudaDevice,
    kernel::{Args, Grid, Kernel},
};
use crate::{Device, Error, Result};
use gradewise_ffi::{Function, LaunchConfig};

impl CudaDevice {
    /// Queues `kernel` for `operation`.
    pub(crate) fn launch(
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
            return self.launch_function(operation, function, grid, args);
        }
        let function = kernels.function(self.context(), operation, kernel, &args.all.sizes())?;
        self.launch_function(operation, &function, grid, args)
    }

    /// Queues a kernel whose parameters are known to be of the sizes of the arguments.
    pub(crate) fn launch_function(
        &self,
        operation: &'static str,
        function: &Function,
        grid: Grid,
        args: Args<'_>,
    ) -> Result<()> {
        if args.is_on_host {
            let (actual, expected) = (Device::Cpu, Device::Cuda(self.clone()));
            return Err(Error::DeviceMismatch { operation, argument: "kernel argument", actual, expected });
        }
        let _gate = self.gate().enter();
        let describe = || {
            let LaunchConfig { grid, block, shared, .. } = grid.0;
            let of = |sizes: [u32; 3]| match sizes {
                [x, 1, 1] => x.to_string(),
                [x, y, z] => format!("({x}, {y}, {z})"),
            };
            let shared =
                if shared > 0 { format!(", {shared} bytes of shared memory") } else { String::new() };
            format!("{} <<<{}, {}>>>{shared}", function.name(), of(grid), of(block))
        };
        self.queue(operation, describe, || {
            // SAFETY: number and sizes of the arguments are those of the compiled kernel, all of which were compared when it was resolved;
            // `args` borrows the arrays, so their memory is returned after this launch in the order of this same stream; the launcher
            // gives the kernel the sizes of these arrays.
            unsafe { function.launch(&grid.0, self.stream(), &args.all) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, DType};
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
        let launch = |args| device.launch("test", Kernel::new("any", DType::F32), Grid::linear(1), args);
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
        let (mut pending, mut kernels) = (vec![gradewise_testing::manifest_dir!().join("csrc")], 0);
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
