//! Formulas and loops as C.

use crate::{
    functions::Functions,
    index::Index,
    memory::{Plan, array_of},
    nest::{Expr, Nest},
};
use gradewise_autograd::{
    formula::{Operator, Update},
    program::{Contents, Program},
};
use gradewise_core::DType;
use std::{collections::BTreeMap, fmt::Write, sync::Arc};

/// The most elements that are accumulated at once, in variables.
const ACCUMULATORS: usize = 64;
/// Fewer elements than these are accumulated one after the other.
const FEWEST: usize = 4;

/// The C type.
pub(crate) fn type_of(dtype: DType) -> &'static str {
    ["float", "double"][array_of(dtype)]
}

/// A number as the shortest literal that reads back exactly.
pub(crate) fn literal(value: f64, dtype: DType) -> String {
    let text = match dtype {
        DType::F64 => format!("{value:?}"),
        _ => format!("{:?}f", value as f32),
    };
    match text.as_str() {
        "inf" | "inff" => "INFINITY".to_owned(),
        "-inf" | "-inff" => "-INFINITY".to_owned(),
        "NaN" | "NaNf" => "NAN".to_owned(),
        _ => text,
    }
}

/// Writes the loops of a program.
pub(crate) struct Writer<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    pub prefix: &'a str,
    pub functions: Functions,
    /// Lists of positions and of numbers, by their definitions.
    lists: BTreeMap<String, String>,
    order: Vec<String>,
    text: String,
    depth: usize,
}

impl<'a> Writer<'a> {
    pub fn new(program: &'a Program, plan: &'a Plan, prefix: &'a str) -> Self {
        let (functions, lists, order) = (Functions::default(), BTreeMap::new(), Vec::new());
        Self { program, plan, prefix, functions, lists, order, text: String::new(), depth: 1 }
    }

    /// What was written, and the definitions of the lists that it reads.
    pub fn finish(self) -> (String, String, Functions) {
        (self.text, self.order.concat(), self.functions)
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{}{text}", "    ".repeat(self.depth));
    }

    fn open(&mut self, counter: &str, size: usize) {
        self.line(&format!("for (int {counter} = 0; {counter} < {size}; ++{counter}) {{"));
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// The name of a list with this type and these entries.
    fn list(&mut self, kind: &str, entries: &[String]) -> String {
        let body = wrapped(entries);
        let key = format!("{kind}[{}] = {{\n{body}}};\n", entries.len());
        if let Some(name) = self.lists.get(&key) {
            return name.clone();
        }
        let name = format!("{}_list{}", self.prefix, self.lists.len());
        self.order.push(format!("static const {kind} {name}[{}] = {{\n{body}}};\n", entries.len()));
        self.lists.insert(key, name.clone());
        name
    }

    fn positions(&mut self, list: &Arc<[usize]>) -> String {
        let entries: Vec<String> = list.iter().map(ToString::to_string).collect();
        let small = list.iter().all(|&entry| entry < 1 << 15);
        self.list(if small { "short" } else { "int" }, &entries)
    }

    fn index(&mut self, index: &Index, counters: &[String]) -> String {
        let mut parts = Vec::new();
        for term in &index.terms {
            let counter = &counters[term.counter];
            let value = match &term.list {
                Some(list) => format!("{}[{counter}]", self.positions(list)),
                None => counter.clone(),
            };
            let factor = if term.stride == 1 { String::new() } else { format!("{} * ", term.stride) };
            parts.push(format!("{factor}{value}"));
        }
        if index.offset != 0 || parts.is_empty() {
            parts.insert(0, index.offset.to_string());
        }
        parts.join(" + ")
    }

    /// The array of a buffer, within a nest: those in the work arrays have a pointer each.
    fn array(&self, buffer: usize) -> String {
        match &self.program.buffers[buffer].contents {
            _ if self.plan.places[buffer].is_some() => format!("b{buffer}"),
            Contents::Constant(..) => constant(self.prefix, buffer),
            Contents::Input(input) => format!("in{input}"),
            Contents::Computed => format!("b{buffer}"),
        }
    }

    fn dtype(&self, value: &Expr) -> Option<DType> {
        match value {
            Expr::Load(buffer, _) => Some(self.program.buffers[*buffer].dtype),
            Expr::Cast(dtype, _) => Some(*dtype),
            Expr::Unary(_, x) => self.dtype(x),
            Expr::Binary(_, both) => both.iter().find_map(|x| self.dtype(x)),
            Expr::Select(all) => all.iter().find_map(|x| self.dtype(x)),
            Expr::Number(_) | Expr::Listed(..) | Expr::Accumulated => None,
        }
    }

    fn value(&mut self, value: &Expr, dtype: DType, counters: &[String], accumulated: &str) -> String {
        match value {
            Expr::Number(value) => {
                let text = literal(*value, dtype);
                if text.starts_with('-') { format!("({text})") } else { text }
            }
            Expr::Listed(counter, list) => {
                let entries: Vec<String> = list.iter().map(|&value| literal(value, dtype)).collect();
                format!("{}[{}]", self.list(type_of(dtype), &entries), counters[*counter])
            }
            Expr::Load(buffer, index) => format!("{}[{}]", self.array(*buffer), self.index(index, counters)),
            Expr::Unary(function, x) => {
                let x = self.value(x, dtype, counters, accumulated);
                self.functions.call(self.prefix, *function, dtype, &x)
            }
            Expr::Cast(to, x) => {
                let from = self.dtype(x).unwrap_or(*to);
                let x = self.value(x, from, counters, accumulated);
                if from == *to { x } else { format!("({})({x})", type_of(*to)) }
            }
            Expr::Binary(operator, both) => {
                let [a, b] = [0, 1].map(|side| self.value(&both[side], dtype, counters, accumulated));
                match operator {
                    Operator::Add => format!("({a} + {b})"),
                    Operator::Sub => format!("({a} - {b})"),
                    Operator::Mul => format!("{a} * {b}"),
                    Operator::Div => format!("({a} / ({b}))"),
                    Operator::Max => self.functions.extreme(self.prefix, true, dtype, &a, &b),
                    Operator::Min => self.functions.extreme(self.prefix, false, dtype, &a, &b),
                    Operator::Pow => format!("pow{}({a}, {b})", if dtype == DType::F64 { "" } else { "f" }),
                }
            }
            Expr::Select(all) => {
                let [a, b, c] = [0, 1, 2].map(|part| self.value(&all[part], dtype, counters, accumulated));
                format!("({a} != 0 ? {b} : {c})")
            }
            Expr::Accumulated => accumulated.to_owned(),
        }
    }

    /// Writes a nest in a block of its own, with pointers to what it reads and writes.
    pub fn nest(&mut self, nest: &Nest) {
        let mut names = nest.operations.clone();
        names.dedup();
        self.line(&format!("/* {} */", names.join(", ")));
        self.line("{");
        self.depth += 1;
        let mut read = Vec::new();
        nest.loads(&mut |buffer, _| read.push(buffer));
        read.retain(|&buffer| self.plan.places[buffer].is_some() && buffer != nest.buffer);
        read.sort_unstable();
        read.dedup();
        for (buffer, is_read) in read.into_iter().map(|buffer| (buffer, true)).chain([(nest.buffer, false)]) {
            let dtype = self.program.buffers[buffer].dtype;
            let (kind, place) = (type_of(dtype), self.plan.places[buffer].unwrap_or(0));
            let constant = if is_read { "const " } else { "" };
            let restrict = format!("{}_RESTRICT", self.prefix.to_uppercase());
            self.line(&format!("{constant}{kind} *{restrict} b{buffer} = {kind}_work + {place};"));
        }
        match (nest.update, nest.start) {
            (Update::Set, _) | (_, None) => self.plain(nest),
            (_, Some(start)) => self.accumulated(nest, start),
        }
        self.close();
    }

    fn update(update: Update, kind: &str, target: &str, value: &str) -> String {
        match update {
            Update::Set => format!("{target} = {value};"),
            Update::Add => format!("{target} += {value};"),
            Update::Max => format!("{{ const {kind} v = {value}; {target} = v > {target} ? v : {target}; }}"),
        }
    }

    /// Loops that write memory each time.
    fn plain(&mut self, nest: &Nest) {
        let dtype = self.program.buffers[nest.buffer].dtype;
        let counters: Vec<String> = (0..nest.sizes.len()).map(|counter| format!("i{counter}")).collect();
        for (counter, &size) in counters.iter().zip(&nest.sizes) {
            self.open(counter, size);
        }
        let target = format!("b{}[{}]", nest.buffer, self.index(&nest.to, &counters));
        let value = self.value(&nest.value, dtype, &counters, "");
        self.line(&Self::update(nest.update, type_of(dtype), &target, &value));
        counters.iter().for_each(|_| self.close());
    }

    /// Loops that accumulate in variables and store what is complete.
    fn accumulated(&mut self, nest: &Nest, start: f64) {
        let dtype = self.program.buffers[nest.buffer].dtype;
        let kind = type_of(dtype);
        let reduced = nest.reduced();
        let mut counters: Vec<String> = (0..nest.sizes.len()).map(|counter| format!("i{counter}")).collect();
        let kept: Vec<usize> = (0..nest.sizes.len()).filter(|&counter| nest.to.has(counter)).collect();
        // The loop whose elements are accumulated at once, in parts of one size.
        let inner = kept.iter().copied().rfind(|&counter| part(nest.sizes[counter]) >= FEWEST);
        for &counter in kept.iter().filter(|&&counter| Some(counter) != inner) {
            self.open(&counters[counter].clone(), nest.sizes[counter]);
        }
        let lanes = inner.map_or(1, |inner| part(nest.sizes[inner]));
        let in_parts = inner.filter(|&inner| nest.sizes[inner] > lanes);
        if let Some(inner) = in_parts {
            self.open("part", nest.sizes[inner] / lanes);
            counters[inner] = format!("(part * {lanes} + lane)");
        } else if let Some(inner) = inner {
            counters[inner] = "lane".to_owned();
        }
        let start = literal(start, dtype);
        let sum = if inner.is_some() { "sum[lane]" } else { "sum" };
        match inner {
            Some(_) => {
                self.line(&format!("{kind} sum[{lanes}];"));
                self.line(&format!("for (int lane = 0; lane < {lanes}; ++lane) sum[lane] = {start};"));
            }
            None => self.line(&format!("{kind} sum = {start};")),
        }
        for &counter in &reduced {
            self.open(&counters[counter].clone(), nest.sizes[counter]);
        }
        let value = self.value(&nest.value, dtype, &counters, "");
        let step = Self::update(nest.update, kind, sum, &value);
        match inner {
            Some(_) => self.line(&format!("for (int lane = 0; lane < {lanes}; ++lane) {step}")),
            None => self.line(&step),
        }
        reduced.iter().for_each(|_| self.close());
        let target = format!("b{}[{}]", nest.buffer, self.index(&nest.to, &counters));
        let done = match &nest.tail {
            Some(tail) => self.value(tail, dtype, &counters, sum),
            None => sum.to_owned(),
        };
        match inner {
            Some(_) => self.line(&format!("for (int lane = 0; lane < {lanes}; ++lane) {target} = {done};")),
            None => self.line(&format!("{target} = {done};")),
        }
        if in_parts.is_some() {
            self.close();
        }
        kept.iter().filter(|&&counter| Some(counter) != inner).for_each(|_| self.close());
    }
}

/// The largest part of a loop, at most [`ACCUMULATORS`], that divides it.
fn part(size: usize) -> usize {
    (1..=ACCUMULATORS.min(size)).rev().find(|&part| size.is_multiple_of(part)).unwrap_or(1)
}

/// The name of a constant.
pub(crate) fn constant(prefix: &str, buffer: usize) -> String {
    format!("{prefix}_c{buffer}")
}

/// Entries in lines of at most 120 columns.
pub(crate) fn wrapped(entries: &[String]) -> String {
    let mut text = String::new();
    let mut width = 0;
    for entry in entries {
        if width == 0 {
            text.push_str("    ");
            width = 4;
        }
        let _ = write!(text, "{entry},");
        width += entry.len() + 2;
        if width > 110 {
            text.push('\n');
            width = 0;
        } else {
            text.push(' ');
        }
    }
    if width > 0 {
        text.pop();
        text.push('\n');
    }
    text
}
