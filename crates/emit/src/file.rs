//! The file.

use crate::{
    error::{Error, Result},
    fuse::fused,
    memory::Plan,
    nest::nests,
    text::{Writer, constant, literal, type_of, wrapped},
};
use gradewise_autograd::program::{Contents, Program, View};
use gradewise_core::DType;
use std::fmt::Write;

/// More bytes than these are not taken from the stack: the caller gives them.
const STACK: usize = 64 << 10;

/// An argument of the function.
#[derive(Clone, Debug)]
pub struct Argument {
    /// Its name in C.
    pub name: String,
    /// What it is: order, units.
    pub about: String,
    /// Whether it is a number instead of an array: how many of the input's elements are 1, the first ones, before zeros.
    pub is_count: bool,
}

impl Argument {
    /// An array.
    pub fn new(name: impl Into<String>, about: impl Into<String>) -> Self {
        Self { name: name.into(), about: about.into(), is_count: false }
    }

    /// A number of items that are there, for an input that is 1 for these and 0 for the others.
    pub fn count(name: impl Into<String>, about: impl Into<String>) -> Self {
        Self { is_count: true, ..Self::new(name, about) }
    }
}

/// What the file says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The first part of all names.
    pub name: &'a str,
    /// Lines of the comment at the top.
    pub about: &'a [String],
    /// By input of the program.
    pub inputs: &'a [Argument],
    /// By result.
    pub outputs: &'a [Argument],
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Refuses what C and ONNX have no words for.
pub(crate) fn check(program: &Program, source: &Source<'_>) -> Result<()> {
    let arguments = source.inputs.iter().chain(source.outputs);
    if let Some(name) = std::iter::once(source.name)
        .chain(arguments.map(|one| one.name.as_str()))
        .find(|name| !is_identifier(name))
    {
        return Err(Error::Name { name: name.to_owned() });
    }
    for (what, described, actual) in [
        ("inputs", source.inputs.len(), program.inputs.len()),
        ("results", source.outputs.len(), program.outputs.len()),
    ] {
        if described != actual {
            return Err(Error::Arguments { what, described, actual });
        }
    }
    for step in &program.steps {
        let views = step.inputs.iter().chain([&step.output]);
        for dtype in views.map(|view| program.buffers[view.buffer].dtype) {
            if !matches!(dtype, DType::F32 | DType::F64) {
                return Err(Error::Type { operation: step.operation, dtype });
            }
        }
    }
    Ok(())
}

/// The program as a file of C99, which compilers of C++ take too.
///
/// The function `NAME_predict` takes the inputs, then the results, then, if it needs more than 64 KiB, arrays for its work, of
/// `NAME_FLOATS` and `NAME_DOUBLES` elements.
///
/// # Errors
/// [`Error::Name`] for what is no identifier, [`Error::Type`] for numbers of 16 bits, [`Error::Arguments`] for inputs or results without a
/// description.
pub fn c_source(program: &Program, source: &Source<'_>) -> Result<String> {
    check(program, source)?;
    let name = source.name;
    let nests = fused(program, nests(program));
    let made: Vec<usize> = (0..program.inputs.len()).filter(|&input| source.inputs[input].is_count).collect();
    let plan = Plan::of(program, &nests, &made);
    let mut writer = Writer::new(program, &plan, name);
    nests.iter().for_each(|nest| writer.nest(nest));
    let (loops, lists, functions) = writer.finish();
    let on_stack = plan.bytes() <= STACK;
    let signature = signature(program, source, &plan, on_stack);
    let mut text = header(source, program, &plan, on_stack);
    let upper = name.to_uppercase();
    let _ = write!(
        text,
        "#include <math.h>\n\n\
         #ifdef __cplusplus\n#define {upper}_RESTRICT\nextern \"C\" {{\n#else\n#define {upper}_RESTRICT restrict\n#endif\n\n\
         {signature};\n\n"
    );
    if !on_stack {
        let [floats, doubles] = plan.elements;
        let _ = write!(text, "#define {upper}_FLOATS {floats}\n#define {upper}_DOUBLES {doubles}\n\n");
    }
    text.push_str(&functions.definitions(name));
    text.push('\n');
    constants(&mut text, program, &nests, name)?;
    text.push_str(&lists);
    let _ = write!(text, "\n{signature}\n{{\n");
    for (array, kind) in ["float", "double"].iter().enumerate() {
        if on_stack && plan.elements[array] > 0 {
            let _ = writeln!(text, "    {kind} {kind}_work[{}];", plan.elements[array]);
        }
    }
    for &input in &made {
        let view = &program.inputs[input];
        let dtype = program.buffers[view.buffer].dtype;
        if let Some(place) = plan.places[view.buffer] {
            let (kind, elements) = (type_of(dtype), view.sizes.iter().product::<usize>());
            let [one, zero] = [1.0, 0.0].map(|value| literal(value, dtype));
            let count = &source.inputs[input].name;
            let _ = writeln!(
                text,
                "    for (int i = 0; i < {elements}; ++i) {kind}_work[{place} + i] = i < {count} ? {one} : {zero};"
            );
        }
    }
    for (input, argument) in source.inputs.iter().enumerate().filter(|(_, argument)| !argument.is_count) {
        let kind = type_of(program.buffers[program.inputs[input].buffer].dtype);
        let used = loops.contains(&format!("in{input}["));
        let is_output = program.outputs.iter().any(|view| view.buffer == program.inputs[input].buffer);
        if used || is_output {
            let _ = writeln!(text, "    const {kind} *in{input} = {};", argument.name);
        } else {
            let _ = writeln!(text, "    (void){};", argument.name);
        }
    }
    text.push_str(&loops);
    for (view, argument) in program.outputs.iter().zip(source.outputs) {
        output(&mut text, program, &plan, name, view, &argument.name);
    }
    text.push_str("}\n\n#ifdef __cplusplus\n}\n#endif\n");
    Ok(text)
}

/// The function's head.
fn signature(program: &Program, source: &Source<'_>, plan: &Plan, on_stack: bool) -> String {
    let kind = |view: &View| type_of(program.buffers[view.buffer].dtype);
    let inputs = program.inputs.iter().zip(source.inputs).map(|(view, argument)| match argument.is_count {
        true => format!("int {}", argument.name),
        false => format!("const {} *{}", kind(view), argument.name),
    });
    let outputs = program
        .outputs
        .iter()
        .zip(source.outputs)
        .map(|(view, argument)| format!("{} *{}", kind(view), argument.name));
    let work = ["float", "double"]
        .into_iter()
        .enumerate()
        .filter(|&(array, _)| !on_stack && plan.elements[array] > 0)
        .map(|(_, kind)| format!("{kind} *{kind}_work"));
    let all: Vec<String> = inputs.chain(outputs).chain(work).collect();
    format!("void {}_predict({})", source.name, all.join(", "))
}

/// The comment at the top.
fn header(source: &Source<'_>, program: &Program, plan: &Plan, on_stack: bool) -> String {
    let mut lines: Vec<String> = source.about.to_vec();
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines.push(format!("void {}_predict(...): arrays in row-major order.", source.name));
    for (views, arguments) in [(&program.inputs, source.inputs), (&program.outputs, source.outputs)] {
        for (view, argument) in views.iter().zip(arguments) {
            let shape = if argument.is_count { String::new() } else { format!(" {:?}", view.sizes) };
            lines.push(format!("  {}{shape}: {}", argument.name, argument.about));
        }
    }
    let (bytes, upper) = (plan.bytes(), source.name.to_uppercase());
    lines.push(match on_stack {
        true => format!("It takes {bytes} bytes of the stack"),
        false => {
            let [floats, doubles] = plan.elements;
            let arrays = [(floats, "float", "FLOATS"), (doubles, "double", "DOUBLES")];
            let named: Vec<String> = arrays
                .iter()
                .filter(|(elements, ..)| *elements > 0)
                .map(|(_, kind, size)| format!("{kind}_work[{upper}_{size}]"))
                .collect();
            format!("It works in arrays of the caller, {}, {bytes} bytes", named.join(" and "))
        }
    });
    lines.push("and no heap, has no state, and may run in several threads at once.".to_owned());
    lines.push("cc -std=c99 -O2, or -O3 -march=native -fno-math-errno for speed; link with -lm.".to_owned());
    let body: String = lines
        .iter()
        .map(|line| format!(" * {}", line.replace("*/", "* /")).trim_end().to_owned() + "\n")
        .collect();
    format!("/*\n{body} */\n")
}

/// The constants that nests or results read.
fn constants(text: &mut String, program: &Program, nests: &[crate::nest::Nest], name: &str) -> Result<()> {
    let mut read = vec![false; program.buffers.len()];
    nests.iter().for_each(|nest| nest.loads(&mut |buffer, _| read[buffer] = true));
    program.outputs.iter().for_each(|view| read[view.buffer] = true);
    for (buffer, _) in read.iter().enumerate().filter(|(_, read)| **read) {
        let about = &program.buffers[buffer];
        let Contents::Constant(array, parameter) = &about.contents else { continue };
        let entries: Vec<String> =
            array.to_f64_vec()?.into_iter().map(|value| literal(value, about.dtype)).collect();
        let (kind, constant) = (type_of(about.dtype), constant(name, buffer));
        if let Some(parameter) = parameter {
            let _ = writeln!(text, "/* {} */", parameter.replace("*/", "* /"));
        }
        let _ = write!(
            text,
            "static const {kind} {constant}[{}] = {{\n{}}};\n",
            entries.len(),
            wrapped(&entries)
        );
    }
    Ok(())
}

/// Copies a result to the caller's array.
fn output(text: &mut String, program: &Program, plan: &Plan, name: &str, view: &View, argument: &str) {
    let buffer = &program.buffers[view.buffer];
    let source = match (&buffer.contents, plan.places[view.buffer]) {
        (_, Some(place)) => format!("{}_work[{place} + ", type_of(buffer.dtype)),
        (Contents::Input(input), None) => format!("in{input}["),
        _ => format!("{}[", constant(name, view.buffer)),
    };
    let mut loops = String::new();
    let mut position = vec![view.offset.to_string()];
    let mut target = vec!["0".to_owned()];
    let mut stride: usize = view.sizes.iter().product();
    for (axis, (&size, &step)) in view.sizes.iter().zip(&view.strides).enumerate() {
        stride /= size;
        if size > 1 {
            let _ = write!(loops, "for (int i{axis} = 0; i{axis} < {size}; ++i{axis}) ");
            position.push(format!("{step} * i{axis}"));
            target.push(format!("{stride} * i{axis}"));
        }
    }
    let _ =
        writeln!(text, "    {loops}{argument}[{}] = {source}{}];", target.join(" + "), position.join(" + "));
}
