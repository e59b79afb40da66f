//! Kernels of the user's own: the documented example on every device, mistakes, and a wrong kernel that is found.

#[path = "../examples/custom_kernel.rs"]
mod example;

use gradewise_autograd::{
    Error, Tensor,
    backend::{Backends, with_backends},
    custom::{CheckOptions, CustomOp},
    registry::{names, rerun},
};
use gradewise_kernels::{Device, custom::CudaKernel, ops, signature};
use gradewise_testing::gpu;

fn text() -> String {
    let path = gradewise_testing::manifest_dir!().join("../../docs/custom-kernels.md");
    std::fs::read_to_string(path).unwrap()
}

fn the_documented_example_is_the_one_that_runs() {
    let text = text();
    for source in [include_str!("../examples/swish.cu"), include_str!("../examples/custom_kernel.rs")] {
        // From the first line of code on.
        let code = source.split_once("\n\n").unwrap().1;
        assert!(
            text.contains(code.split("#[allow(dead_code").next().unwrap().trim_end()),
            "docs/custom-kernels.md differs"
        );
    }
}

fn the_example_runs_on_every_device() {
    example::run(&Device::Cpu).unwrap();
    if let Some(device) = gpu() {
        example::run(&device).unwrap();
    }
}

fn an_operation_of_ones_own_is_one_like_any_other() {
    let swish = example::swish(0.7).unwrap();
    assert!(names().contains(&"swish"));
    let x = Tensor::from_slice(&[0.3f64, -0.8], [2], &Device::Cpu).unwrap();
    let y = swish.apply(&[&x]).unwrap();
    let chosen: Backends = "swish=reference".parse().unwrap();
    assert_eq!(
        with_backends(&chosen, || swish.apply(&[&x])).unwrap().to_vec::<f64>().unwrap(),
        y.to_vec::<f64>().unwrap()
    );
    assert!(rerun("swish", &Default::default(), &[x]).is_ok());
}

fn mistakes_of_builders_are_explained() {
    let forward = || {
        let signature = signature!(fn f(x: &[f32; n], y: &mut [f32; n], n: usize, s: f32)).unwrap();
        CudaKernel::new("f.cu", "", signature)
    };
    let kernel = |signature: Result<_, _>| CudaKernel::new("g.cu", "", signature.unwrap());
    let reference = |x: &[Tensor]| x[0].mul_scalar(2.0);
    let refuse = |builder: gradewise_autograd::custom::CustomOpBuilder, part: &str| {
        let message = builder.build().err().unwrap().to_string();
        assert!(message.contains(part), "{part}: {message}");
    };
    refuse(CustomOp::builder("twice", forward(), reference), "0 scalars were given, and `f` takes 1 (s)");
    let strange = kernel(signature!(fn g(z: &[f32; n], grad_x: &mut [f32; n], n: usize, s: f32)));
    refuse(CustomOp::builder("twice", forward(), reference).scalars(&[2.0]).backward(strange), "`z`");
    let strange = kernel(signature!(fn g(x: &[f32; n], dx: &mut [f32; n], n: usize, s: f32)));
    refuse(CustomOp::builder("twice", forward(), reference).scalars(&[2.0]).backward(strange), "`dx`");
}

fn a_reference_with_a_wrong_slope_does_not_pass() {
    let signature = signature!(fn f(x: &[T; n], y: &mut [T; n], n: usize)).unwrap();
    let kernel = CudaKernel::new("f.cu", "", signature);
    let op = CustomOp::builder("wrong_slope", kernel, |x: &[Tensor]| {
        // The value of a square, the slope of a constant times x.
        let slope = Tensor::new(x[0].array().clone());
        x[0].mul(&slope)
    })
    .build()
    .unwrap();
    let message = op.check(&Device::Cpu, &CheckOptions::default()).unwrap_err();
    assert!(matches!(message, Error::GradientMismatch { .. }), "{message}");
}

/// Multiplies rows; the sign of its second gradient is wrong if `wrong`.
fn scaled_rows(wrong: bool) -> CustomOp {
    let source = r#"
#include "gradewise/types.cuh"
extern "C" __global__ void rows(const T* x, const T* s, T* y, long long n, long long m) {
    for (i64 i = threadIdx.x; i < m; i += blockDim.x)
        y[blockIdx.x * m + i] = narrow<T>(widen(x[blockIdx.x * m + i]) * widen(s[blockIdx.x]));
}
extern "C" __global__ void rows_backward(const T* x, const T* s, const T* grad_y, T* grad_x, T* grad_s, long long n, long long m) {
    __shared__ Compute<T> sums[64];
    Compute<T> sum = 0;
    for (i64 i = threadIdx.x; i < m; i += blockDim.x) {
        const i64 at = blockIdx.x * m + i;
        grad_x[at] = narrow<T>(widen(grad_y[at]) * widen(s[blockIdx.x]));
        sum += widen(grad_y[at]) * widen(x[at]);
    }
    sums[threadIdx.x] = sum;
    for (int width = 32; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];
    }
    if (threadIdx.x == 0) grad_s[blockIdx.x] = narrow<T>(SIGN sums[0]);
}
"#;
    let source = source.replace("SIGN", if wrong { "-" } else { "" });
    let forward =
        signature!(fn rows(x: &[T; n, m], s: &[T; n], y: &mut [T; n, m], n: usize, m: usize)).unwrap();
    let backward = signature!(fn rows_backward(
        x: &[T; n, m], s: &[T; n], grad_y: &[T; n, m], grad_x: &mut [T; n, m], grad_s: &mut [T; n], n: usize, m: usize
    ))
    .unwrap();
    let kernel =
        |signature| CudaKernel::new("rows.cu", source.clone(), signature).threads(64).blocks_along("n");
    CustomOp::builder("scaled_rows", kernel(forward), |x: &[Tensor]| x[0].mul(&x[1].unsqueeze(1)?))
        .backward(kernel(backward))
        .build()
        .unwrap()
}

fn references_of_kernels_with_blocks_along_rows_have_the_slopes_they_say() {
    scaled_rows(false).check(&Device::Cpu, &CheckOptions::default()).unwrap();
}

fn kernels_with_blocks_along_rows_agree_and_a_wrong_sign_is_named(device: &Device) {
    let options = CheckOptions::default();
    let report = scaled_rows(false).check(device, &options).unwrap();
    assert!(report.compared > 50 && report.differences > 20, "{report}");
    let message = scaled_rows(true).check(device, &options).unwrap_err().to_string();
    assert!(message.contains("scaled_rows") && message.contains("the gradient of `s`"), "{message}");
}

fn kernels_that_are_not_there_and_parameters_that_differ_are_named_on_a_gpu(device: &Device) {
    let x = ops::add_scalar(
        &gradewise_kernels::Array::ones([3], gradewise_kernels::DType::F32, device).unwrap(),
        0.5,
    )
    .unwrap();
    let launch = |text: &'static str, signature: Result<_, gradewise_kernels::Error>| {
        CudaKernel::new("mine.cu", text, signature.unwrap()).launch(&[&x], &[]).unwrap_err().to_string()
    };
    const GOOD: &str = "extern \"C\" __global__ void there(const float* x, float* y, long long n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }";
    let message = launch(GOOD, signature!(fn missing(x: &[f32; n], y: &mut [f32; n], n: usize)));
    assert!(message.contains("no kernel `missing`") && message.contains("it has there"), "{message}");
    // Under compute-sanitizer parameters are not counted: it reports the query that ends the count.
    if std::env::var_os("NV_SANITIZER_INJECTION_TRANSPORT_TYPE").is_none() {
        let message = launch(GOOD, signature!(fn there(x: &[f32; n], y: &mut [f32; n])));
        assert!(message.contains("parameters of"), "{message}");
    }
    const MANGLED: &str = "__global__ void there(const float* x, float* y, long long n) { y[0] = x[0]; }";
    let message = launch(MANGLED, signature!(fn there(x: &[f32; n], y: &mut [f32; n], n: usize)));
    assert!(message.contains("extern \"C\""), "{message}");
    const BROKEN: &str =
        "extern \"C\" __global__ void there(const float* x, float* y, long long n) {\n    y[0] = z[0];\n}";
    let message = launch(BROKEN, signature!(fn there(x: &[f32; n], y: &mut [f32; n], n: usize)));
    assert!(message.contains("mine.cu(2)") && message.contains("\"z\" is undefined"), "{message}");
}

/// Reads past the end of its input, which an assertion sees in builds with them.
fn out_of_bounds() -> CudaKernel {
    const SOURCE: &str = r#"#include "gradewise/debug.cuh"
extern "C" __global__ void shift(const float* x, float* y, long long n) {
    const i64 i = threadIdx.x;
    if (i < n) y[i] = x[GW_INDEX(i + 1, n)];
}
"#;
    let signature = signature!(fn shift(x: &[f32; n], y: &mut [f32; n], n: usize)).unwrap();
    CudaKernel::new("shift.cu", SOURCE, signature)
}

fn assertions_are_compiled_in_only_on_request() {
    let compile = |kernel: CudaKernel| kernel.compile("sm_90", None);
    match compile(out_of_bounds()) {
        Ok(plain) => {
            let checked = compile(out_of_bounds().option("-DGRADEWISE_DEBUG")).unwrap();
            let text = String::from_utf8_lossy(&checked).into_owned();
            assert!(text.contains("expected less than"), "the message is in the code");
            assert!(!String::from_utf8_lossy(&plain).contains("expected less than"));
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("nvrtc"), "{message}");
            eprintln!("nothing compiled: {message}");
        }
    }
}

fn an_index_out_of_bounds_is_printed_with_its_place_and_value(device: &Device) {
    // The assertion takes the context of its process down: that of a child.
    const CHILD: &str = "GRADEWISE_TEST_OUT_OF_BOUNDS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let x = gradewise_kernels::Array::ones([5], gradewise_kernels::DType::F32, device).unwrap();
        let result = out_of_bounds().launch(&[&x], &[]).and_then(|y| y[0].to_vec::<f32>());
        println!("came to: {}", result.unwrap_err());
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "an_index_out_of_bounds_is_printed_with_its_place_and_value", "--nocapture"])
        .envs([(CHILD, "1"), ("GRADEWISE_DEBUG_CUDA", "1")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["shift.cu:4", "thread (4, 0, 0)", "index `i + 1` is 5, expected less than 5", "came to:"] {
        assert!(text.contains(part), "{part}: {text} {}", String::from_utf8_lossy(&output.stderr));
    }
}

gradewise_testing::main!(
    the_documented_example_is_the_one_that_runs,
    the_example_runs_on_every_device,
    an_operation_of_ones_own_is_one_like_any_other,
    mistakes_of_builders_are_explained,
    a_reference_with_a_wrong_slope_does_not_pass,
    references_of_kernels_with_blocks_along_rows_have_the_slopes_they_say,
    kernels_with_blocks_along_rows_agree_and_a_wrong_sign_is_named,
    kernels_that_are_not_there_and_parameters_that_differ_are_named_on_a_gpu,
    assertions_are_compiled_in_only_on_request,
    an_index_out_of_bounds_is_printed_with_its_place_and_value,
);
