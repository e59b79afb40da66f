//! Headers of launches, csrc/**/*_launch.cuh, in Rust: the sizes that a kernel and its launcher agree on stand once, beside the kernel.
//!
//! What such a header may have is said in csrc/gradewise/host_device.cuh. Everything is an unsigned number: `int` becomes `usize`, a
//! namespace a module, `c ? a : b` a conditional expression.

use super::{Result, sources::Sources};
use std::fmt::Write;

/// The text of `csrc.rs`: a module for each namespace of the headers of launches.
pub fn generate(sources: &Sources) -> Result<String> {
    let mut modules = String::new();
    for path in sources.headers().filter(|path| path.ends_with("_launch.cuh")) {
        let text = sources.text(path).unwrap_or_default();
        modules += &translate(text).map_err(|error| format!("csrc/{path}: {error}"))?;
    }
    Ok(modules)
}

/// The modules of one header.
pub fn translate(header: &str) -> Result<String> {
    let mut parser = Parser { words: words(header)?, at: 0 };
    let mut text = String::new();
    while !parser.is_done() {
        let docs = parser.docs();
        parser.expect("namespace")?;
        let name = parser.name()?;
        parser.expect("{")?;
        let _ = writeln!(text, "{docs}pub(crate) mod {name} {{");
        while !parser.take("}") {
            text += &parser.item()?;
        }
        text += "}\n";
    }
    Ok(text)
}

/// A word of the header: a name, a number, a sign, or a line of documentation.
#[derive(Clone, Debug, PartialEq)]
struct Word {
    text: String,
    line: usize,
}

/// Signs of more than one character.
const SIGNS: [&str; 9] = ["::", "<=", ">=", "==", "!=", "&&", "||", "<<", ">>"];

fn words(header: &str) -> Result<Vec<Word>> {
    let mut words = Vec::new();
    for (number, line) in header.lines().enumerate() {
        let mut rest = line.trim_start();
        if rest.starts_with('#') {
            continue;
        }
        while !rest.is_empty() {
            if let Some(doc) = rest.strip_prefix("///") {
                words.push(Word { text: format!("///{doc}"), line: number + 1 });
                break;
            }
            if rest.starts_with("//") {
                break;
            }
            let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
            let length = match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => sign.len(),
                None if rest.starts_with(is_of_name) => rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()),
                None if rest.is_ascii() => 1,
                None => return Err(format!("line {}: `{rest}`", number + 1)),
            };
            words.push(Word { text: rest[..length].to_owned(), line: number + 1 });
            rest = rest[length..].trim_start();
        }
    }
    Ok(words)
}

/// Operators of two operands by precedence as in C++, the loosest first. Rust binds some of them otherwise, so every one gets parentheses.
const LEVELS: [&[&str]; 7] =
    [&["||"], &["&&"], &["|"], &["==", "!="], &["<", ">", "<=", ">="], &["<<", ">>"], &["+", "-"]];

struct Parser {
    words: Vec<Word>,
    at: usize,
}

impl Parser {
    fn is_done(&self) -> bool {
        self.at == self.words.len()
    }

    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", |word| &word.text)
    }

    fn next(&mut self) -> String {
        let word = self.peek().to_owned();
        self.at += 1;
        word
    }

    fn take(&mut self, text: &str) -> bool {
        let is_next = self.peek() == text;
        self.at += usize::from(is_next);
        is_next
    }

    fn error<T>(&self, expected: &str) -> Result<T> {
        let found = self.words.get(self.at).or(self.words.last());
        let line = found.map_or(0, |word| word.line);
        Err(format!(
            "line {line}: `{}` where {expected} is expected; csrc/gradewise/host_device.cuh says what a header of launches may have",
            self.peek()
        ))
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        if self.take(text) { Ok(()) } else { self.error(&format!("`{text}`")) }
    }

    fn name(&mut self) -> Result<String> {
        if self.peek().starts_with(|character: char| character.is_ascii_alphabetic()) {
            Ok(self.next())
        } else {
            self.error("a name")
        }
    }

    fn docs(&mut self) -> String {
        let mut docs = String::new();
        while self.peek().starts_with("///") {
            docs += &self.next();
            docs.push('\n');
        }
        docs
    }

    /// Constants of one declaration, or a function.
    fn item(&mut self) -> Result<String> {
        let docs = self.docs();
        let is_function = self.take("GW_HOST_DEVICE");
        self.expect("constexpr")?;
        self.expect("int")?;
        let mut text = String::new();
        if is_function {
            let name = self.name()?;
            let parameters = self.parameters()?;
            self.expect("{")?;
            self.expect("return")?;
            let value = self.expression()?;
            self.expect(";")?;
            self.expect("}")?;
            let _ = writeln!(text, "{docs}pub(crate) const fn {name}({parameters}) -> usize {{\n{value}\n}}");
            return Ok(text);
        }
        loop {
            let name = self.name()?;
            self.expect("=")?;
            let value = self.expression()?;
            let _ = writeln!(text, "{docs}pub(crate) const {name}: usize = {value};");
            if !self.take(",") {
                break;
            }
        }
        self.expect(";")?;
        Ok(text)
    }

    fn parameters(&mut self) -> Result<String> {
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.take(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            self.expect("int")?;
            parameters.push(format!("{}: usize", self.name()?));
        }
        Ok(parameters.join(", "))
    }

    fn expression(&mut self) -> Result<String> {
        let condition = self.operation(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let if_so = self.expression()?;
        self.expect(":")?;
        let otherwise = self.expression()?;
        Ok(format!("(if {condition} {{ {if_so} }} else {{ {otherwise} }})"))
    }

    fn operation(&mut self, level: usize) -> Result<String> {
        let operators = LEVELS.get(level).copied().unwrap_or(&["*", "/", "%"]);
        let inner = |parser: &mut Self| {
            if level < LEVELS.len() { parser.operation(level + 1) } else { parser.operand() }
        };
        let mut value = inner(self)?;
        while operators.contains(&self.peek()) {
            let operator = self.next();
            value = format!("({value} {operator} {})", inner(self)?);
        }
        Ok(value)
    }

    fn operand(&mut self) -> Result<String> {
        if self.take("(") {
            let value = self.expression()?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.peek().starts_with(|character: char| character.is_ascii_digit()) {
            let number = self.next();
            return match number.parse::<u32>() {
                Ok(number) => Ok(number.to_string()),
                Err(_) => {
                    self.at -= 1;
                    self.error("a whole number")
                }
            };
        }
        let mut name = self.name()?;
        if self.take("::") {
            name = format!("super::{name}::{}", self.name()?);
        }
        if !self.take("(") {
            return Ok(name);
        }
        let mut arguments = Vec::new();
        while !self.take(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.expression()?);
        }
        Ok(format!("{name}({})", arguments.join(", ")))
    }
}
