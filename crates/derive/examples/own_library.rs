//! `#[derive(Module)]` over a library other than gradewise-nn: what the derived code calls, in forty lines.
//!
//! ```text
//! cargo run -p gradewise-derive --example own_library
//! ```

use gradewise_derive::Module;

/// What the derived method walks through.
trait Module {
    fn visit(&self, visitor: &mut Visitor<'_>);
}

/// A field of a module, which reports itself under its name.
trait Part {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>);
}

/// The names on the way to a parameter, and what is done with each one.
struct Visitor<'a> {
    path: Vec<String>,
    found: &'a mut dyn FnMut(&str, &[f64]),
}

impl<M: Module> Part for M {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        visitor.path.push(name.to_owned());
        self.visit(visitor);
        visitor.path.pop();
    }
}

/// A parameter is a part without parts.
impl Part for Vec<f64> {
    fn report(&self, name: &str, visitor: &mut Visitor<'_>) {
        let path: Vec<&str> = visitor.path.iter().map(String::as_str).chain([name]).collect();
        (visitor.found)(&path.join("."), self);
    }
}

#[derive(Module)]
#[module(crate = "crate")]
struct Linear {
    weight: Vec<f64>,
    bias: Vec<f64>,
}

#[derive(Module)]
#[module(crate = "crate")]
struct Network {
    first: Linear,
    #[module(rename = "out")]
    last: Linear,
    /// No parameter, and no part that has any.
    #[module(skip)]
    width: usize,
}

fn main() {
    let linear = |inputs: usize, outputs: usize| Linear {
        weight: vec![0.0; inputs * outputs],
        bias: vec![0.0; outputs],
    };
    let network = Network { first: linear(3, 8), last: linear(8, 1), width: 8 };
    let mut names = Vec::new();
    let mut found = |name: &str, values: &[f64]| {
        println!("{name:<16}{} numbers", values.len());
        names.push(name.to_owned());
    };
    network.visit(&mut Visitor { path: Vec::new(), found: &mut found });
    assert_eq!(names, ["first.weight", "first.bias", "out.weight", "out.bias"]);
    println!("of a network of width {}", network.width);
}
