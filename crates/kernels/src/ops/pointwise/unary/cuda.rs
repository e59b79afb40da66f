//! Elementwise functions of one array on CUDA.

use crate::{Array, CudaDevice, Result, array::strided::elementwise, runtime::cuda::Kernel};

/// The functions, numbered as in csrc/ops/unary.cu.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Name {
    Neg,
    Abs,
    Sign,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Recip,
    Square,
    Sin,
    Cos,
    Tanh,
    Erf,
    Sigmoid,
    Silu,
    Gelu,
    SiluDerivative,
    GeluDerivative,
    Relu,
    NotFinite,
    AddScalar,
    MulScalar,
    Clamp,
    Pow,
    PowInteger,
}

/// A function and its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    name: Name,
    parameters: [f64; 2],
}

impl Code {
    pub fn new(name: Name, parameters: &[f64]) -> Self {
        let parameter = |index: usize| parameters.get(index).copied().unwrap_or(0.0);
        Self { name, parameters: [parameter(0), parameter(1)] }
    }
}

pub(super) fn run(device: &CudaDevice, operation: &'static str, x: &Array, code: Code) -> Result<Array> {
    let out = Array::for_kernel(operation, x.shape(), x.dtype(), device)?;
    let [p, q] = code.parameters;
    elementwise(device, operation, Kernel::new("unary", x.dtype()), &out, [x], |args| {
        args.int(code.name as i32).double(p).double(q)
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::Name;
    use crate::array::strided::tests::numbers;

    #[test]
    fn host_and_device_number_the_functions_alike() {
        use Name::*;
        let host = [
            Neg,
            Abs,
            Sign,
            Exp,
            Log,
            Sqrt,
            Rsqrt,
            Recip,
            Square,
            Sin,
            Cos,
            Tanh,
            Erf,
            Sigmoid,
            Silu,
            Gelu,
            SiluDerivative,
            GeluDerivative,
            Relu,
            NotFinite,
            AddScalar,
            MulScalar,
            Clamp,
            Pow,
            PowInteger,
        ];
        let device = numbers(include_str!("../../../../csrc/ops/unary.cu"), "Function");
        assert_eq!(host.map(|name| format!("{name:?}")).to_vec(), device);
        assert!(host.iter().enumerate().all(|(number, &name)| name as usize == number));
    }
}
