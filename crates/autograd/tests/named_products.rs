//! Products that one operator computes by a table: errors name the function that was called, and its arguments.

use gradewise_autograd::{
    Result, Tensor,
    clifford::{
        geometric_product, metric_product, metric_sgp, regressive_product, tensor_dot, tensor_tensor,
        tensor_vector,
    },
};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_kernels::Device;

/// A function of two factors, its name, and the names and numbers of components of the factors.
type Case = (&'static str, [(&'static str, usize); 2], Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor>>);

fn ones(shape: [usize; 2], dtype: DType) -> Tensor {
    Tensor::ones(shape, dtype, &Device::Cpu).unwrap()
}

#[test]
fn errors_name_the_function_that_was_called() {
    let algebra = || Algebra::new(Signature::CL3).unwrap();
    let metric = || Tensor::ones([3], DType::F64, &Device::Cpu).unwrap();
    let cases: [Case; 7] = [
        (
            "geometric_product",
            [("x", 8), ("y", 8)],
            Box::new(move |x, y| geometric_product(&algebra(), x, y)),
        ),
        (
            "regressive_product",
            [("x", 8), ("y", 8)],
            Box::new(move |x, y| regressive_product(&algebra(), x, y)),
        ),
        ("metric_product", [("x", 8), ("y", 8)], Box::new(move |x, y| metric_product(&metric(), x, y))),
        (
            "metric_sgp",
            [("x", 8), ("y", 8)],
            Box::new(move |x, y| metric_sgp(&metric(), x, y, &ones([4, 20], DType::F64))),
        ),
        ("tensor_vector", [("s", 5), ("v", 3)], Box::new(tensor_vector)),
        ("tensor_dot", [("s", 5), ("t", 5)], Box::new(tensor_dot)),
        ("tensor_tensor", [("s", 5), ("t", 5)], Box::new(tensor_tensor)),
    ];
    for (name, [(_, a), (second, b)], call) in &cases {
        let left = ones([*a, 4], DType::F64);
        for (wrong, what) in [
            (ones([*b + 1, 4], DType::F64), "components"),
            (ones([*b, 6], DType::F64), "another number of columns"),
            (ones([*b, 4], DType::F32), "another dtype"),
        ] {
            let message = call(&left, &wrong).unwrap_err().to_string();
            assert!(message.contains(name), "{name}, {what}: {message}");
            assert!(!message.contains("table"), "{name}, {what}: {message}");
            assert!(message.contains(&format!("`{second}`")), "{name}, {what}: {message}");
        }
    }
}
