//! Deliberate errors, to show how a faulty kernel is reported.

use crate::error::{Error, Result};
use clap::ValueEnum;
use gradewise_ffi::Driver;
use gradewise_kernels::{Array, CudaDevice, Device, DeviceName, custom::CudaKernel, custom::Signature};

/// The kind of error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Drill {
    /// A kernel writes to an unallocated address.
    IllegalAddress,
    /// A kernel writes a word to an odd address.
    MisalignedAddress,
    /// A kernel executes an illegal instruction.
    IllegalInstruction,
    /// A kernel leaves its output unwritten.
    Unwritten,
}

impl Drill {
    fn name(self) -> &'static str {
        match self {
            Self::IllegalAddress => "illegal_address",
            Self::MisalignedAddress => "misaligned_address",
            Self::IllegalInstruction => "illegal_instruction",
            Self::Unwritten => "unwritten",
        }
    }

    /// The body of the kernel, in PTX.
    fn body(self) -> &'static str {
        match self {
            Self::IllegalAddress => "mov.u64 %a, 4096; mov.u32 %v, 7; st.global.u32 [%a], %v;",
            Self::MisalignedAddress => "ld.param.u64 %a, [y]; mov.u32 %v, 7; st.global.u32 [%a+1], %v;",
            // A barrier for 8 threads: hardware barriers need a multiple of a warp, which is checked only at run time.
            Self::IllegalInstruction => "ld.param.u64 %a, [n]; cvt.u32.u64 %v, %a; bar.sync 1, %v;",
            Self::Unwritten => "",
        }
    }

    /// Runs the kernel on a device, which this process cannot use afterwards.
    ///
    /// # Errors
    /// The intended error; no device.
    pub fn run(self, device: DeviceName) -> Result<()> {
        let Some(ordinal) = device.ordinal() else {
            return Err(Error::Usage(format!("--device {device}: a drill needs a GPU: cuda or cuda:N")));
        };
        let found = |source| gradewise_kernels::Error::Cuda {
            operation: "find the device",
            device: ordinal,
            source,
            launches: Default::default(),
        };
        // The kernel is PTX of its own, so a build without kernels suffices.
        let device = CudaDevice::with_driver(&Driver::load().map_err(found)?, ordinal)?;
        let name = self.name();
        let signature: Signature = format!("fn {name}(x: &[f32; n], y: &mut [f32; n], n: usize)").parse()?;
        let ptx = format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n\
             .visible .entry {name}(.param .u64 x, .param .u64 y, .param .u64 n)\n\
             {{\n.reg .b64 %a;\n.reg .b32 %v;\n{}\nret;\n}}\n",
            self.body()
        );
        let kernel = CudaKernel::from_image("drill.ptx", ptx.as_bytes(), signature)?;
        let x = Array::from_slice(&[1f32; 8], [8], &Device::Cuda(device.clone()))?;
        let outputs = kernel.launch(&[&x], &[])?;
        device.synchronize()?;
        match outputs[0].unwritten()? {
            0 => Err(Error::Failed(format!("`{name}` did nothing wrong"))),
            unwritten => Err(Error::Failed(format!(
                "`{name}` left {unwritten} of {} elements of its output unwritten: their memory is as it was poisoned; {}",
                outputs[0].elements(),
                gradewise_kernels::sanitizer("initcheck")
            ))),
        }
    }
}
