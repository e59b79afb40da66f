//! Elementwise functions of one array on CUDA.

use crate::{
    Array, CudaDevice, Result,
    array::strided::elementwise,
    runtime::cuda::{Kernel, fuse::Function},
};

/// A function of csrc/gradewise/functions.cuh: its number and its name, which has a `k` in front there, and its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    number: i32,
    name: &'static str,
    parameters: [f64; 2],
}

impl Code {
    pub fn new(number: i32, name: &'static str, parameters: &[f64]) -> Self {
        let parameter = |index: usize| parameters.get(index).copied().unwrap_or(0.0);
        Self { number, name, parameters: [parameter(0), parameter(1)] }
    }
}

pub(super) fn run(device: &CudaDevice, operation: &'static str, x: &Array, code: Code) -> Result<Array> {
    let out = Array::for_kernel(operation, x.shape(), x.dtype(), device)?;
    let [p, q] = code.parameters;
    let describe = || {
        let name = format!("k{}", code.name);
        out.described(Function::Unary { name, parameters: code.parameters }, &[x])
    };
    // SAFETY: `out` is new and has shape and dtype of x; the kernel takes the function's number and two parameters.
    unsafe {
        let kernel = Kernel::new("unary", x.dtype());
        elementwise(
            device,
            operation,
            kernel,
            &out,
            [x],
            |args| args.int(code.number).double(p).double(q),
            describe,
        )?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::functions::NAMES;
    use crate::array::strided::tests::numbers;

    #[test]
    fn host_and_device_number_the_functions_alike() {
        assert_eq!(NAMES, numbers("gradewise/functions.cuh", "GW_FOR_UNARY_FUNCTIONS"));
    }
}
