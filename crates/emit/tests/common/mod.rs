//! Programs compiled by the machine's compiler of C, and run.

use gradewise_autograd::{
    Tensor,
    program::{Program, View},
};
use gradewise_core::DType;
use gradewise_emit::{Argument, Source, c_source};
use std::{
    fmt::Write,
    process::{Command, Output},
};

/// A program with the numbers that it is run on, and what it should give.
pub struct Case {
    pub about: String,
    pub program: Program,
    pub inputs: Vec<Tensor>,
    pub expected: Vec<Tensor>,
}

/// The compiler: `CC`, or `cc`; none where there is none.
pub fn compiler(variable: &str, usual: &str) -> Option<String> {
    let name = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    match Command::new(&name).arg("--version").output() {
        Ok(_) => Some(name),
        Err(_) => {
            eprintln!("skipped: there is no compiler `{name}`");
            None
        }
    }
}

fn arguments(first: &str, views: &[View]) -> Vec<Argument> {
    (0..views.len()).map(|index| Argument::new(format!("{first}{index}"), "numbers")).collect()
}

/// The source of a case.
pub fn source(case: &Case, name: &str) -> String {
    let (inputs, outputs) = (arguments("x", &case.program.inputs), arguments("y", &case.program.outputs));
    let about = [case.about.clone()];
    let text = c_source(&case.program, &Source { name, about: &about, inputs: &inputs, outputs: &outputs });
    text.unwrap_or_else(|error| panic!("{}: {error}", case.about))
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {} {}",
        output.status,
        text.chars().take(4000).collect::<String>()
    );
    output
}

/// Compiles cases into one program and runs it: the results of each.
pub fn results(compiler: &str, flags: &[&str], cases: &[Case]) -> Vec<Vec<Vec<f64>>> {
    let folder = tempfile::tempdir().unwrap();
    let mut main = String::from("#include <stdio.h>\n");
    let (mut body, mut input) = (String::new(), Vec::<u8>::new());
    for (index, case) in cases.iter().enumerate() {
        let name = format!("case{index}");
        let text = source(case, &name);
        main.push_str(&text);
        let dtype = |view: &View| case.program.buffers[view.buffer].dtype;
        let kind = |view: &View| if dtype(view) == DType::F64 { "double" } else { "float" };
        let elements = |view: &View| view.sizes.iter().product::<usize>();
        let mut call = Vec::new();
        let (mut reads, mut writes) = (String::new(), String::new());
        for (letter, views) in [('x', &case.program.inputs), ('y', &case.program.outputs)] {
            for (number, view) in views.iter().enumerate() {
                let (array, count) = (format!("{name}_{letter}{number}"), elements(view));
                let _ = writeln!(main, "static {} {array}[{count}];", kind(view));
                let line = if letter == 'x' {
                    format!("if (fread({array}, sizeof *{array}, {count}, stdin) != {count}) return 1;\n")
                } else {
                    format!("fwrite({array}, sizeof *{array}, {count}, stdout);\n")
                };
                if letter == 'x' {
                    reads.push_str(&line)
                } else {
                    writes.push_str(&line)
                }
                call.push(array);
            }
        }
        for (kind, size) in [("float", "FLOATS"), ("double", "DOUBLES")] {
            if text.contains(&format!("{kind} *{kind}_work)"))
                || text.contains(&format!("{kind} *{kind}_work,"))
            {
                let array = format!("{name}_{kind}_work");
                let _ = writeln!(main, "static {kind} {array}[CASE{index}_{size}];");
                call.push(array);
            }
        }
        let _ = write!(body, "{reads}{name}_predict({});\n{writes}", call.join(", "));
        for tensor in &case.inputs {
            for value in tensor.array().to_f64_vec().unwrap() {
                match tensor.dtype() {
                    DType::F64 => input.extend(value.to_ne_bytes()),
                    _ => input.extend((value as f32).to_ne_bytes()),
                }
            }
        }
    }
    let _ = write!(main, "int main(void)\n{{\n{body}return 0;\n}}\n");
    let (file, program, numbers) =
        (folder.path().join("main.c"), folder.path().join("main"), folder.path().join("numbers"));
    std::fs::write(&file, main).unwrap();
    std::fs::write(&numbers, input).unwrap();
    run(Command::new(compiler).args(flags).arg(&file).arg("-o").arg(&program).arg("-lm"));
    let stdin = std::fs::File::open(&numbers).unwrap();
    let bytes = run(Command::new(&program).stdin(stdin)).stdout;
    let mut bytes = &bytes[..];
    let mut next = |dtype: DType| {
        let (number, rest) = bytes.split_at(dtype.size());
        bytes = rest;
        match dtype {
            DType::F64 => f64::from_ne_bytes(number.try_into().unwrap()),
            _ => f32::from_ne_bytes(number.try_into().unwrap()).into(),
        }
    };
    let mut of = |tensor: &Tensor| (0..tensor.shape().elements()).map(|_| next(tensor.dtype())).collect();
    cases.iter().map(|case| case.expected.iter().map(&mut of).collect()).collect()
}

/// What a number is compared with at least: sums that cancel leave the rounding of their summands, which are of order one.
const SMALLEST: f64 = 1e-2;

/// The largest difference, in units of the largest number.
pub fn difference(found: &[f64], expected: &Tensor) -> f64 {
    let expected = expected.array().to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(SMALLEST, |most, x| most.max(x.abs()));
    let differs = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() / largest };
    // NaN is no difference to `f64::max`.
    let mut differences = found.iter().zip(&expected).map(differs);
    differences.try_fold(0.0f64, |most, x| (!x.is_nan()).then_some(most.max(x))).unwrap_or(f64::INFINITY)
}

/// What the compiler must accept without a word.
pub const STRICT: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Runs cases and refuses results that differ by more than their type allows.
pub fn agree(cases: &[Case]) {
    let Some(compiler) = compiler("CC", "cc") else { return };
    let flags: Vec<&str> = STRICT.into_iter().chain(["-O0"]).collect();
    let mut wrong = Vec::new();
    for (case, found) in cases.iter().zip(results(&compiler, &flags, cases)) {
        for (found, expected) in found.iter().zip(&case.expected) {
            let bound = if expected.dtype() == DType::F64 { 1e-12 } else { 1e-6 };
            let difference = difference(found, expected);
            if difference > bound {
                wrong.push(format!("{}: {difference:e}", case.about));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
