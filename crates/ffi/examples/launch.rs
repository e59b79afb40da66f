//! Loads kernels from a file, or from the PTX below, launches one and checks its result.
//!
//! ```text
//! cargo run -p gradewise-ffi --example launch                  # the PTX below
//! nvcc -fatbin -o scale.fatbin scale.cu                        # or .cubin, or .ptx
//! cargo run -p gradewise-ffi --example launch -- scale.fatbin  # a file that has the same kernel
//! ```
//!
//! The kernel, in CUDA C++:
//!
//! ```cuda
//! extern "C" __global__ void scale_f32(float *x, float factor, unsigned n) {
//!     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//!     if (i < n) x[i] *= factor;
//! }
//! ```

use gradewise_ffi::{Arguments, Context, DeviceMemory, Driver, LaunchConfig, Module, Stream};
use std::{error::Error, process::ExitCode};

/// That kernel for any device from compute capability 7.5 on; the driver compiles it for the one it finds.
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

fn main() -> ExitCode {
    let file = std::env::args_os().nth(1);
    let image = match &file {
        None => Ok(SCALE.as_bytes().to_vec()),
        Some(file) => std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()).into()),
    };
    let name = file.as_ref().map_or("the PTX of this example".into(), |file| file.to_string_lossy());
    match image.and_then(|image| scale(&Driver::load()?, &name, &image)) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole way, from a driver and an image to numbers back on the host.
pub fn scale(driver: &Driver, name: &str, image: &[u8]) -> Result<String, Box<dyn Error>> {
    let context = Context::primary(driver, 0)?;
    let stream = Stream::new(&context)?;
    let kernel = Module::load(&context, name, image)?.function("scale_f32")?;
    if let Ok(sizes) = kernel.parameter_sizes() // drivers from 12.4 on know them
        && sizes != [8, 4, 4]
    {
        return Err(format!("scale_f32 has parameters of {sizes:?} bytes, [8, 4, 4] are expected").into());
    }

    let input: Vec<f32> = (0..1000).map(|i| i as f32 / 8.0).collect();
    let memory = DeviceMemory::new(&stream, size_of_val(input.as_slice()))?;
    memory.write(0, &input.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>())?;

    let (factor, n) = (3.0, input.len());
    let arguments = Arguments::new().buffer(&memory).float(factor).int(n as i32);
    let config = LaunchConfig::linear(n.div_ceil(256) as u32, 256);
    // SAFETY: 1: these are the parameters' types, and the sizes were compared above; 2: `memory` outlives the kernel, since reading waits
    // for it; 3: it holds `n` elements, past which the kernel does nothing; 4: the kernel takes blocks of any size.
    unsafe { kernel.launch(&config, &stream, &arguments)? };

    let mut bytes = vec![0; memory.bytes()];
    memory.read(0, &mut bytes)?;
    let output =
        bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    // Three times an eighth of a small integer is exact.
    let wrong = input.iter().zip(output).filter(|(input, output)| **input * factor != *output).count();
    if wrong > 0 {
        return Err(format!("{wrong} of {n} elements are wrong").into());
    }
    Ok(format!("scaled {n} elements on {} with {name}: all of them right\n", context.info().name))
}
