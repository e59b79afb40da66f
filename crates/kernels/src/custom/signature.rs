//! Signatures of custom kernels, in the syntax of a Rust function.

use crate::{DType, Error, Result};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// The elements of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elements {
    /// Of this dtype.
    Of(DType),
    /// Of the dtype that the first array written `T` has; the source is compiled for it, with `T` defined.
    Generic,
}

/// The size of an axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Size {
    /// A number.
    Is(usize),
    /// A name; all axes of this name have the same size.
    Called(String),
}

/// The kind of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An array that is read: `const T*`.
    Input(Elements, Vec<Size>),
    /// An array that is made and written: `T*`.
    Output(Elements, Vec<Size>),
    /// A size, 8 bytes (`long long`): that of the axes of this name, or a number given at the call.
    Size,
    /// An `int`.
    Int,
    /// A `float`.
    Float,
    /// A `double`.
    Double,
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// The name and the parameters of a kernel, in the order of the CUDA source:
///
/// ```text
/// fn scale_rows(x: &[T; rows, columns], s: &[T; rows], y: &mut [T; rows, columns], rows: usize, columns: usize, bias: f32)
/// ```
///
/// `&[…]` is read, `&mut […]` is allocated by the launcher and written. Elements are `f32`, `f64`, `bf16`, `f16`, or `T`, any of them.
/// Sizes have names or are numbers; a `usize` with the name of an axis gets its size. Other scalars are given at the call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The kernel, an `extern "C" __global__` function.
    pub name: String,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
}

/// A [`Signature`] from the declaration of a Rust function.
///
/// ```
/// let signature = gradewise_kernels::signature!(fn scale(x: &[f32; n], y: &mut [f32; n], n: usize, s: f32))?;
/// assert_eq!(signature.name, "scale");
/// assert_eq!(signature.to_string(), "fn scale(x: &[f32; n], y: &mut [f32; n], n: usize, s: f32)");
/// # Ok::<(), gradewise_kernels::Error>(())
/// ```
#[macro_export]
macro_rules! signature {
    ($($token:tt)*) => { stringify!($($token)*).parse::<$crate::custom::Signature>() };
}

impl Signature {
    /// The inputs, in order.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Elements, &[Size])> {
        self.parameters.iter().filter_map(|parameter| match &parameter.kind {
            Kind::Input(elements, sizes) => Some((parameter.name.as_str(), *elements, sizes.as_slice())),
            _ => None,
        })
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, Elements, &[Size])> {
        self.parameters.iter().filter_map(|parameter| match &parameter.kind {
            Kind::Output(elements, sizes) => Some((parameter.name.as_str(), *elements, sizes.as_slice())),
            _ => None,
        })
    }

    /// The scalars that are given at a call, in order: those that are no sizes of inputs.
    pub fn scalars(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| match parameter.kind {
            Kind::Input(..) | Kind::Output(..) => false,
            Kind::Size => !self.names_input_axis(&parameter.name),
            Kind::Int | Kind::Float | Kind::Double => true,
        })
    }

    fn names_input_axis(&self, name: &str) -> bool {
        self.inputs().any(|(.., sizes)| sizes.iter().any(|size| *size == Size::Called(name.to_owned())))
    }

    /// Whether an array is written `T`.
    pub fn is_generic(&self) -> bool {
        let mut arrays = self.inputs().chain(self.outputs());
        arrays.any(|(_, elements, _)| elements == Elements::Generic)
    }

    /// The names of the axes.
    pub fn axes(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for (.., sizes) in self.inputs().chain(self.outputs()) {
            for size in sizes {
                if let Size::Called(name) = size
                    && !names.contains(&name.as_str())
                {
                    names.push(name.as_str());
                }
            }
        }
        names
    }

    /// Bytes of each parameter.
    pub(super) fn parameter_sizes(&self) -> Vec<usize> {
        let bytes = |parameter: &Parameter| match parameter.kind {
            Kind::Int | Kind::Float => 4,
            _ => 8,
        };
        self.parameters.iter().map(bytes).collect()
    }

    pub(super) fn refuse(&self, problem: impl Into<String>) -> Error {
        Error::CustomKernel { kernel: self.name.clone(), problem: problem.into() }
    }

    fn validate(self) -> Result<Self> {
        for (index, parameter) in self.parameters.iter().enumerate() {
            if self.parameters[..index].iter().any(|other| other.name == parameter.name) {
                return Err(self.refuse(format!("`{}` occurs twice among the parameters", parameter.name)));
            }
        }
        if self.outputs().next().is_none() {
            return Err(self.refuse("no parameter is written; say `name: &mut [f32; n]`"));
        }
        for (name, _, sizes) in self.outputs() {
            for size in sizes {
                let Size::Called(axis) = size else { continue };
                let given = self.parameters.iter().any(|p| p.kind == Kind::Size && p.name == *axis);
                if !(given || self.names_input_axis(axis)) {
                    return Err(self.refuse(format!(
                        "the size `{axis}` of `{name}` follows from nothing; take it from an input, or add `{axis}: usize`"
                    )));
                }
            }
        }
        let generic = self.inputs().any(|(_, elements, _)| elements == Elements::Generic);
        if self.is_generic() && !generic {
            return Err(self.refuse("no input is written with T, so that nothing says what T is"));
        }
        Ok(self)
    }
}

/// The words and signs of a signature.
struct Tokens<'a> {
    text: &'a str,
    tokens: std::iter::Peekable<std::vec::IntoIter<String>>,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        let mut tokens: Vec<String> = Vec::new();
        let mut word = String::new();
        for sign in text.chars() {
            if sign.is_alphanumeric() || sign == '_' {
                word.push(sign);
                continue;
            }
            tokens.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            tokens.extend((!sign.is_whitespace()).then(|| sign.to_string()));
        }
        tokens.extend((!word.is_empty()).then_some(word));
        Self { text, tokens: tokens.into_iter().peekable() }
    }

    fn refuse(&self, problem: impl fmt::Display) -> Error {
        Error::CustomKernel {
            kernel: self.text.trim().to_owned(),
            problem: format!("its signature: {problem}"),
        }
    }

    fn next(&mut self) -> Option<String> {
        self.tokens.next()
    }

    fn expect(&mut self, expected: &str) -> Result<()> {
        match self.next() {
            Some(token) if token == expected => Ok(()),
            Some(token) => Err(self.refuse(format!("`{token}`, expected `{expected}`"))),
            None => Err(self.refuse(format!("it ends, expected `{expected}`"))),
        }
    }

    fn is_next(&mut self, expected: &str) -> bool {
        self.tokens.next_if(|token| token == expected).is_some()
    }

    fn name(&mut self, what: &str) -> Result<String> {
        let is_name = |token: &String| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
        match self.next() {
            Some(token) if is_name(&token) => Ok(token),
            Some(token) => Err(self.refuse(format!("`{token}`, expected {what}"))),
            None => Err(self.refuse(format!("it ends, expected {what}"))),
        }
    }

    fn kind(&mut self) -> Result<Kind> {
        if !self.is_next("&") {
            let name = self.name("a type")?;
            return match name.as_str() {
                "usize" => Ok(Kind::Size),
                "i32" => Ok(Kind::Int),
                "f32" => Ok(Kind::Float),
                "f64" => Ok(Kind::Double),
                other => {
                    Err(self
                        .refuse(format!("there is no scalar `{other}`; there are usize, i32, f32 and f64")))
                }
            };
        }
        let written = self.is_next("mut");
        self.expect("[")?;
        let name = self.name("the type of elements")?;
        let elements = match name.as_str() {
            "T" => Elements::Generic,
            name => Elements::Of(name.parse().map_err(|_| {
                self.refuse(format!("there are no elements `{name}`; there are f64, f32, bf16, f16 and T"))
            })?),
        };
        let mut sizes = Vec::new();
        if self.is_next(";") {
            loop {
                let Some(token) = self.next() else { return Err(self.refuse("it ends within sizes")) };
                sizes.push(match token.parse::<usize>() {
                    Ok(number) => Size::Is(number),
                    Err(_) if token.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                        Size::Called(token)
                    }
                    Err(_) => return Err(self.refuse(format!("`{token}`, expected a size"))),
                });
                if !self.is_next(",") {
                    break;
                }
            }
        }
        self.expect("]")?;
        Ok(if written { Kind::Output(elements, sizes) } else { Kind::Input(elements, sizes) })
    }
}

impl FromStr for Signature {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut tokens = Tokens::new(text);
        tokens.expect("fn")?;
        let name = tokens.name("the kernel's name")?;
        tokens.expect("(")?;
        let mut parameters = Vec::new();
        while !tokens.is_next(")") {
            let name = tokens.name("a parameter's name")?;
            tokens.expect(":")?;
            parameters.push(Parameter { name, kind: tokens.kind()? });
            if !tokens.is_next(",") {
                tokens.expect(")")?;
                break;
            }
        }
        match tokens.next() {
            Some(token) => Err(tokens.refuse(format!("`{token}` after its end"))),
            None => Self { name, parameters }.validate(),
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fn {}(", self.name)?;
        for (index, Parameter { name, kind }) in self.parameters.iter().enumerate() {
            write!(f, "{}{name}: ", if index == 0 { "" } else { ", " })?;
            match kind {
                Kind::Input(elements, sizes) => write!(f, "&{}", Listed(*elements, sizes))?,
                Kind::Output(elements, sizes) => write!(f, "&mut {}", Listed(*elements, sizes))?,
                Kind::Size => f.write_str("usize")?,
                Kind::Int => f.write_str("i32")?,
                Kind::Float => f.write_str("f32")?,
                Kind::Double => f.write_str("f64")?,
            }
        }
        f.write_str(")")
    }
}

/// An array's type.
struct Listed<'a>(Elements, &'a [Size]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Elements::Of(dtype) => write!(f, "[{dtype}")?,
            Elements::Generic => f.write_str("[T")?,
        }
        for (index, size) in self.1.iter().enumerate() {
            f.write_str(if index == 0 { "; " } else { ", " })?;
            match size {
                Size::Is(number) => write!(f, "{number}")?,
                Size::Called(name) => f.write_str(name)?,
            }
        }
        f.write_str("]")
    }
}

/// Sizes by name, and what they were taken from.
#[derive(Default)]
pub(super) struct Bound(BTreeMap<String, (usize, String)>);

impl Bound {
    /// The size of an axis, which is `actual` in what `of` names, or an explanation.
    pub fn bind(&mut self, size: &Size, actual: usize, of: &str) -> Result<(), String> {
        match size {
            Size::Is(number) if *number == actual => Ok(()),
            Size::Is(number) => Err(format!("is {actual}, expected {number}")),
            Size::Called(name) => {
                let (known, from) = self.0.entry(name.clone()).or_insert_with(|| (actual, of.to_owned()));
                if *known == actual {
                    Ok(())
                } else {
                    Err(format!("is {actual}, but `{name}` is {known} by `{from}`"))
                }
            }
        }
    }

    pub fn get(&self, name: &str) -> Option<usize> {
        self.0.get(name).map(|(size, _)| *size)
    }

    pub fn of(&self, size: &Size) -> Option<usize> {
        match size {
            Size::Is(number) => Some(*number),
            Size::Called(name) => self.get(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_survive_being_written() {
        for text in [
            "fn scale(x: &[f32; n], y: &mut [f32; n], n: usize, s: f32)",
            "fn rows(x: &[T; rows, 3], g: &[f64], y: &mut [T; rows], k: i32, rows: usize, e: f64)",
            "fn fill(y: &mut [bf16; n, m], n: usize, m: usize)",
        ] {
            let signature: Signature = text.parse().unwrap();
            assert_eq!(signature.to_string(), text);
            assert_eq!(signature.to_string().parse::<Signature>().unwrap(), signature);
        }
        let signature = signature!(fn fill(y: &mut [bf16; n, m], n: usize, m: usize,)).unwrap();
        assert_eq!(signature.scalars().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["n", "m"]);
        assert_eq!(signature.axes(), ["n", "m"]);
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, part) in [
            ("scale(x: &[f32])", "expected `fn`"),
            ("fn scale(x: &[f31; n])", "no elements `f31`"),
            ("fn scale(x: &[f32; n], s: f16)", "no scalar `f16`"),
            ("fn scale(x: &[f32; n])", "no parameter is written"),
            ("fn scale(x: &[f32; n], y: &mut [f32; m])", "`m` of `y` follows from nothing"),
            ("fn scale(x: &[f32; n], x: &mut [f32; n])", "`x` occurs twice"),
            ("fn scale(y: &mut [T; n], n: usize)", "what T is"),
            ("fn scale(x: &[f32; ], y: &mut [f32])", "expected a size"),
            ("fn scale(x: &[f32; n", "it ends"),
            ("fn scale(y: &mut [f32]) -> f32", "after its end"),
            ("fn 3(y: &mut [f32])", "the kernel's name"),
        ] {
            let message = text.parse::<Signature>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
