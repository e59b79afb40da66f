//! Every operation of the registry, as ONNX: a runtime in Python gives the library's numbers, for a batch of two samples.

mod operations;

use gradewise_autograd::{
    Tensor,
    program::{Program, View, record},
};
use gradewise_core::DType;
use gradewise_emit::{Argument, Error, Source, is_onnx_model, onnx_model};
use gradewise_kernels::Device;
use operations::{REFUSED, each};
use std::{fmt::Write, path::Path, process::Command};

/// The exit status of `onnx_numbers.py` where Python has no runtime of ONNX.
const NO_RUNTIME: i32 = 77;

fn arguments(first: &str, views: &[View]) -> Vec<Argument> {
    (0..views.len()).map(|index| Argument::new(format!("{first}{index}"), "numbers")).collect()
}

fn model(program: &Program) -> Vec<u8> {
    let (inputs, outputs) = (arguments("x", &program.inputs), arguments("y", &program.outputs));
    let source = Source { name: "case", about: &[], inputs: &inputs, outputs: &outputs };
    onnx_model(program, &source).unwrap()
}

/// Runs models on the numbers beside them; false where there is no runtime.
fn agree(folder: &Path, list: &str) -> bool {
    std::fs::write(folder.join("list.txt"), list).unwrap();
    let python = std::env::var("GRADEWISE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx_numbers.py");
    let Ok(output) = Command::new(&python).arg(script).arg(folder).output() else {
        eprintln!("skipped: there is no {python}");
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_RUNTIME) {
        eprintln!("skipped: {text}");
        return false;
    }
    println!("{text}");
    assert!(output.status.success(), "{text}");
    true
}

#[test]
fn operations_give_their_own_numbers_in_onnx() {
    let folder = tempfile::tempdir().unwrap();
    let (mut list, mut count) = (String::new(), 0);
    let refused = each(|about, program, draw| {
        let bytes = model(&program);
        assert!(is_onnx_model(&bytes), "{about}");
        assert_eq!(bytes, model(&program), "{about}: the bytes are the same each time");
        std::fs::write(folder.path().join(format!("{count}.onnx")), bytes).unwrap();
        let mut numbers = Vec::<u8>::new();
        for (inputs, expected) in [draw(3), draw(4)] {
            for tensor in inputs.iter().chain(&expected) {
                let values = tensor.array().to_f64_vec().unwrap();
                numbers.extend(values.into_iter().flat_map(f64::to_le_bytes));
            }
        }
        std::fs::write(folder.path().join(format!("{count}.bin")), numbers).unwrap();
        let _ = writeln!(list, "{about}");
        count += 1;
    });
    assert!(count > 200, "{count}");
    assert_eq!(refused, REFUSED);
    agree(folder.path(), &list);
}

#[test]
fn sixteen_bits_and_wrong_descriptions_are_refused() {
    let example = |value: f64, dtype: DType| {
        let x = Tensor::from_slice(&[value as f32, 1.0], [2], &Device::Cpu).unwrap();
        vec![x.cast(dtype).unwrap()]
    };
    let recorded = |dtype: DType| {
        record(&[example(1.0, dtype), example(2.0, dtype)], &[], |x| Ok(vec![x[0].silu()?])).unwrap()
    };
    let [x, y] = ["x", "y"].map(|name| Argument::new(name, "two numbers"));
    let written = |dtype: DType, name: &str, inputs: &[Argument]| {
        let source = Source { name, about: &[], inputs, outputs: std::slice::from_ref(&y) };
        onnx_model(&recorded(dtype), &source)
    };
    assert!(written(DType::F32, "gate", std::slice::from_ref(&x)).is_ok());
    assert!(matches!(written(DType::BF16, "gate", std::slice::from_ref(&x)), Err(Error::Type { .. })));
    assert!(matches!(written(DType::F32, "1", std::slice::from_ref(&x)), Err(Error::Name { .. })));
    assert!(matches!(written(DType::F32, "gate", &[]), Err(Error::Arguments { .. })));
    assert!(!is_onnx_model(b"something else"));
}
