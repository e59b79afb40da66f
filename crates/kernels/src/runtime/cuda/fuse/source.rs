//! The source text of a kernel that computes several values.
//!
//! A thread computes the elements at one position of all values that the kernel writes. What they are computed from is computed by the
//! same thread, at whatever positions the operands' views and the indices of edges lead to, or read from memory.

use super::{
    parts::{Node, Tree, View},
    pending::{Id, Pending},
    value::{Axes, Function, Groups, Operand},
};
use crate::{
    DType,
    runtime::cuda::generated::{Code, stored},
};
use std::{collections::HashMap, fmt::Write};

/// The most arrays that a kernel reads and writes before no further value joins it: their addresses are its parameters.
const MOST_ARRAYS: usize = 64;

/// The most values that one kernel computes before no further one joins it.
const MOST_VALUES: usize = 128;

/// A kernel, and the addresses that are its arguments.
pub(super) struct Source {
    pub code: Code,
    pub addresses: Vec<u64>,
    /// Positions, one for a thread.
    pub elements: usize,
    /// What it computes, from which arrays.
    pub tree: Tree,
    /// The operators whose values it computes first.
    pub operations: Vec<&'static str>,
    text: Text,
}

/// What a kernel does at a position.
struct Text {
    body: String,
    /// The types of what is at the addresses, and whether they are written.
    kinds: Vec<(&'static str, bool)>,
    is_wide: bool,
}

/// Headers of all generated kernels.
const HEADERS: &str = "#include \"gradewise/functions.cuh\"\n";

fn index_type(is_wide: bool) -> &'static str {
    if is_wide { "i64" } else { "u32" }
}

impl Source {
    /// The same as a function of a block: `name(addresses)` computes the positions of the parts of the block, `together` of `parts` parts. A
    /// part has every `parts`th stretch of `run` positions.
    pub fn function(&self, name: &str, parts: usize, together: usize, run: usize) -> String {
        let Text { body, kinds, is_wide } = &self.text;
        let mut text = format!("GW_DEVICE void {name}(const u64* addresses) {{\n");
        let _ = writeln!(text, "using I = {};", index_type(*is_wide));
        let inputs = kinds.iter().filter(|(_, written)| !written).count();
        for (number, (kind, is_written)) in kinds.iter().enumerate() {
            let _ = if *is_written {
                let output = number - inputs;
                writeln!(text, "{kind}* const o{output} = reinterpret_cast<{kind}*>(addresses[{number}]);")
            } else {
                writeln!(
                    text,
                    "const {kind}* const a{number} = reinterpret_cast<const {kind}*>(addresses[{number}]);"
                )
            };
        }
        let (count, stretch, step) = (self.elements / parts * together, run * together, run * parts);
        let _ = writeln!(text, "for (I own = threadIdx.x; own < {count}u; own += blockDim.x) {{");
        let _ = writeln!(text, "const I line = own / {stretch}u;");
        let _ = writeln!(
            text,
            "const I {POSITION} = line * {step}u + static_cast<I>(blockIdx.x) * {stretch}u + (own - line * {stretch}u);"
        );
        text + body + "}\n}\n"
    }
}

/// A kernel of several such functions, each followed by a barrier of the block: `functions` by number, with their text.
pub(super) fn staged(operations: &[&str], functions: &[String], threads: u32) -> Code {
    let mut header = HEADERS.to_owned();
    header += &format!(
        "struct Stages {{\nu64 addresses[{MOST_ADDRESSES}];\nu32 stages[{MOST_STAGES}];\ni32 count, unused;\n}};\n"
    );
    header += &functions.concat();
    header += "GW_DEVICE void run_stage(const Stages& all, i32 number) {\n\
               const u64* const addresses = all.addresses + (all.stages[number] & 0xffff);\n\
               switch (all.stages[number] >> 16) {\n";
    for number in 0..functions.len() {
        header += &format!("case {number}: stage_{number}(addresses); break;\n");
    }
    header += "}\n}\n";
    let body = "for (i32 number = 0; number < all.count; ++number) {\n\
                run_stage(all, number);\n\
                __syncthreads();\n}\n";
    let family = format!("gw_stages_{}", operations.join("_"));
    Code::new(&family, &header, threads, "const __grid_constant__ Stages all", body)
}

/// The most addresses and the most stages of a [`staged`] kernel. They are one argument, and arguments take 4 KiB at most.
pub(super) const MOST_ADDRESSES: usize = 416;
pub(super) const MOST_STAGES: usize = 160;

/// The type of arithmetic.
fn computed(dtype: DType) -> &'static str {
    if dtype == DType::F64 { "double" } else { "float" }
}

/// A number as C++, to the last bit.
fn number(value: f64) -> String {
    if value.is_finite() && value.fract() == 0.0 && value.abs() < 1e15 && value.to_bits() != 1 << 63 {
        format!("{value:.1}")
    } else {
        format!("__longlong_as_double(0x{:016x}LL)", value.to_bits())
    }
}

/// Names of a block of the text: visible in it and in the blocks inside.
#[derive(Default)]
struct Scope {
    values: HashMap<(Id, String), String>,
    loads: HashMap<(usize, String), String>,
    indices: HashMap<String, String>,
}

/// Writes a kernel, value by value.
pub(super) struct Writer<'a> {
    pending: &'a Pending,
    elements: usize,
    scopes: Vec<Scope>,
    body: String,
    /// Addresses of arrays and of lists of indices, with the type of what is there.
    inputs: Vec<(u64, &'static str)>,
    outputs: Vec<(u64, &'static str)>,
    operations: Vec<&'static str>,
    tree: Tree,
    names: usize,
    count: usize,
    is_wide: bool,
}

/// The name of the position of a thread.
const POSITION: &str = "p";

impl<'a> Writer<'a> {
    /// A kernel for values of as many elements as `first` has.
    pub fn new(pending: &'a Pending, first: Id) -> Self {
        Self {
            pending,
            elements: pending.value(first).elements,
            scopes: vec![Scope::default()],
            body: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            operations: Vec::new(),
            tree: Tree::default(),
            names: 0,
            count: 0,
            is_wide: pending.value(first).elements >= 1 << 31,
        }
    }

    /// Whether no further value should join.
    pub fn is_full(&self) -> bool {
        self.inputs.len() + self.outputs.len() >= MOST_ARRAYS || self.count >= MOST_VALUES
    }

    /// How many values it computes; one that is computed at two positions counts twice.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The values that each thread computes at its own position, whether or not they are written.
    pub fn computed(&self) -> Vec<Id> {
        let own = self.scopes[0].values.keys().filter(|(_, at)| at == POSITION).map(|&(id, _)| id);
        let mut own: Vec<Id> = own.filter(|&id| self.pending.value(id).elements == self.elements).collect();
        own.sort_unstable();
        own
    }

    /// Writes a value to memory.
    pub fn root(&mut self, id: Id) {
        let variable = self.value(id, POSITION);
        let value = self.pending.value(id);
        let kind = stored(value.dtype);
        self.tree.roots.push((id, value.out.pointer()));
        let output = self.outputs.len();
        self.outputs.push((value.out.pointer(), kind));
        self.line(&format!("o{output}[{POSITION}] = narrow<{kind}>({variable});"));
    }

    /// The kernel.
    pub fn finish(self) -> Source {
        let Self { body, inputs, outputs, operations, elements, is_wide, tree, .. } = self;
        let inputs_of =
            inputs.iter().enumerate().map(|(n, (_, kind))| format!("const {kind}* __restrict__ a{n}"));
        let outputs_of =
            outputs.iter().enumerate().map(|(n, (_, kind))| format!("{kind}* __restrict__ o{n}"));
        let parameters: Vec<String> = inputs_of.chain(outputs_of).collect();
        let parameters = parameters.join(", ");
        let loop_head = format!(
            "for (I {POSITION} = static_cast<I>(thread_index()); {POSITION} < {elements}u; \
             {POSITION} += static_cast<I>(thread_count())) {{\n"
        );
        let header = format!("{HEADERS}using I = {};\n", index_type(is_wide));
        let family = format!("gw_fused_{}", operations.join("_"));
        let code =
            Code::new(&family, &header, super::THREADS, &parameters, &format!("{loop_head}{body}}}\n"));
        let addresses = inputs.iter().chain(&outputs).map(|&(address, _)| address).collect();
        let read = inputs.iter().map(|&(_, kind)| (kind, false));
        let kinds = read.chain(outputs.iter().map(|&(_, kind)| (kind, true))).collect();
        Source { code, addresses, elements, tree, operations, text: Text { body, kinds, is_wide } }
    }

    fn line(&mut self, text: &str) {
        self.body.push_str(text);
        self.body.push('\n');
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    fn find<T>(&self, get: impl Fn(&Scope) -> Option<&T>) -> Option<T>
    where
        T: Clone,
    {
        self.scopes.iter().rev().find_map(|scope| get(scope).cloned())
    }

    fn scope(&mut self) -> &mut Scope {
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    /// Writes a block: names in it are forgotten afterwards.
    fn block(&mut self, head: &str, write: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.scopes.push(Scope::default());
        write(self);
        self.scopes.pop();
        self.line("}");
    }

    /// A name for an index; the same for the same expression.
    fn index(&mut self, expression: String) -> String {
        let is_name = expression.chars().all(|c| c.is_ascii_alphanumeric());
        if is_name {
            return expression;
        }
        if let Some(name) = self.find(|scope| scope.indices.get(&expression)) {
            return name;
        }
        let name = self.name("i");
        self.line(&format!("const I {name} = {expression};"));
        self.scope().indices.insert(expression, name.clone());
        name
    }

    /// A number of a list of indices.
    fn listed(&mut self, address: u64, at: &str) -> String {
        let list = self.input(address, "u32");
        self.index(format!("a{list}[{at}]"))
    }

    /// The number of a parameter.
    fn input(&mut self, address: u64, kind: &'static str) -> usize {
        let known = self.inputs.iter().position(|&known| known == (address, kind));
        known.unwrap_or_else(|| {
            self.inputs.push((address, kind));
            self.inputs.len() - 1
        })
    }

    /// The terms of an offset: those of a position in these axes.
    fn terms(&mut self, at: &str, axes: (&[usize], &[usize])) -> Vec<String> {
        let (mut terms, mut rest) = (Vec::new(), at.to_owned());
        let last = axes.0.len().saturating_sub(1);
        for (number, (&size, &stride)) in axes.0.iter().zip(axes.1).rev().enumerate() {
            let coordinate = if number == last {
                rest.clone()
            } else {
                let quotient = self.index(format!("{rest} / {size}u"));
                let coordinate = self.index(format!("{rest} - {quotient} * {size}u"));
                rest = quotient;
                coordinate
            };
            match stride {
                0 => {}
                1 => terms.push(coordinate),
                _ => terms.push(format!("{coordinate} * {stride}u")),
            }
        }
        terms
    }

    /// The element of an operand's buffer at a position of its view.
    fn offset(&mut self, operand: &Operand, at: &str) -> String {
        let mut terms = self.terms(at, (&operand.sizes, &operand.strides));
        if operand.offset > 0 || terms.is_empty() {
            terms.push(format!("{}u", operand.offset));
        }
        self.index(terms.join(" + "))
    }

    /// The value of an operand at a position of its view.
    fn operand(&mut self, operand: &Operand, at: &str) -> String {
        let offset = self.offset(operand, at);
        self.element(operand, &offset)
    }

    /// The value of an element of an operand's buffer: computed here, or read.
    fn element(&mut self, operand: &Operand, offset: &str) -> String {
        self.is_wide |= operand.buffer.bytes() >= 1 << 31;
        if let Some(id) = self.pending.producer(operand) {
            return self.value(id, offset);
        }
        let input = self.input(operand.buffer.pointer(), stored(operand.dtype));
        let key = (input, offset.to_owned());
        if let Some(name) = self.find(|scope| scope.loads.get(&key)) {
            return name;
        }
        let name = self.name("x");
        self.line(&format!("const {} {name} = widen(a{input}[{offset}]);", computed(operand.dtype)));
        self.scope().loads.insert(key, name.clone());
        name
    }

    /// The name of an element of a value, after the text that computes it.
    fn value(&mut self, id: Id, at: &str) -> String {
        let key = (id, at.to_owned());
        if let Some(name) = self.find(|scope| scope.values.get(&key)) {
            return name;
        }
        self.count += 1;
        let pending = self.pending;
        let value = pending.value(id);
        let (operation, dtype) = (value.operation, value.dtype);
        self.tree.nodes.entry(id).or_insert_with(|| Node {
            function: value.function.clone(),
            operands: value
                .operands
                .iter()
                .map(|operand| View::of(operand, pending.producer(operand)))
                .collect(),
            elements: value.elements,
        });
        if self.operations.len() < 4 && !self.operations.contains(&operation) {
            self.operations.push(operation);
        }
        let operands = &value.operands;
        let name = match &value.function {
            Function::Constant { bits } => {
                let constant = match dtype {
                    DType::F64 => format!("__longlong_as_double(0x{bits:016x}LL)"),
                    DType::F32 => format!("__uint_as_float(0x{:08x}u)", *bits as u32),
                    DType::BF16 | DType::F16 => format!("widen({}{{0x{:04x}}})", stored(dtype), *bits as u16),
                };
                self.result(dtype, &constant)
            }
            Function::Copy => self.operand(&operands[0], at),
            Function::Unary { name, parameters: [p, q] } => {
                let x = self.operand(&operands[0], at);
                self.result(dtype, &format!("unary<{name}>({x}, {}, {})", number(*p), number(*q)))
            }
            Function::Binary { name } => {
                let [a, b] = [0, 1].map(|n| self.operand(&operands[n], at));
                self.result(dtype, &format!("binary<{name}>({a}, {b})"))
            }
            Function::Choose => {
                let [mask, a, b] = [0, 1, 2].map(|n| self.operand(&operands[n], at));
                self.result(dtype, &format!("choose({mask}, {a}, {b})"))
            }
            Function::Sum => {
                let mut sum = self.operand(&operands[0], at);
                for operand in &operands[1..] {
                    let term = self.operand(operand, at);
                    sum = format!("plus({sum}, {term})");
                }
                self.result(dtype, &sum)
            }
            Function::Cast => {
                let x = self.operand(&operands[0], at);
                let name = self.name("v");
                let (from, to) = (stored(operands[0].dtype), stored(dtype));
                self.line(&format!(
                    "const {} {name} = widen(Convert<{from}, {to}>::one({x}));",
                    computed(dtype)
                ));
                name
            }
            Function::Reduce { kept, reduced, count, scale } => {
                self.reduce(dtype, &operands[0], at, (kept, reduced), *count, *scale)
            }
            Function::Join { row, parts } => {
                let line = self.index(format!("{at} / {row}u"));
                let column = self.index(format!("{at} - {line} * {row}u"));
                let name = self.name("v");
                self.line(&format!("{} {name} = 0;", computed(dtype)));
                for (operand, part) in operands.iter().zip(parts) {
                    let end = part.start + part.count;
                    let head = format!("if ({column} >= {}u && {column} < {end}u)", part.start);
                    self.block(&head, |writer| {
                        let at = format!("{line} * {}u + ({column} - {}u)", part.count, part.start);
                        let at = writer.index(at);
                        let x = writer.operand(operand, &at);
                        writer.line(&format!("{name} = {x};"));
                    });
                }
                name
            }
            &Function::Select { index, count, bound, inner, .. } => {
                let row = self.index(format!("{at} / {inner}u"));
                let block = self.index(format!("{row} / {count}u"));
                let position = self.index(format!("{row} - {block} * {count}u"));
                let entry = self.listed(index, &position);
                let at = self
                    .index(format!("({block} * {bound}u + {entry}) * {inner}u + ({at} - {row} * {inner}u)"));
                self.operand(&operands[0], &at)
            }
            &Function::Difference { to, from, edges, nodes, features, .. } => {
                let row = self.index(format!("{at} / {features}u"));
                let block = self.index(format!("{row} / {edges}u"));
                let edge = self.index(format!("{row} - {block} * {edges}u"));
                let ends = [to, from].map(|list| {
                    let node = self.listed(list, &edge);
                    let at =
                        format!("({block} * {nodes}u + {node}) * {features}u + ({at} - {row} * {features}u)");
                    let at = self.index(at);
                    self.operand(&operands[0], &at)
                });
                self.result(dtype, &format!("minus({}, {})", ends[0], ends[1]))
            }
            &Function::SegmentSum { groups, segments, count, inner } => {
                let total = self.segment(&operands[0], at, groups, [segments, count, inner]);
                self.result(dtype, &format!("widen(narrow<{}>({total}))", stored(dtype)))
            }
            &Function::NetInflow { arriving, leaving, nodes, edges, features } => {
                let totals = [arriving, leaving]
                    .map(|groups| self.segment(&operands[0], at, groups, [nodes, edges, features]));
                self.result(
                    dtype,
                    &format!("static_cast<{}>({} - {})", computed(dtype), totals[0], totals[1]),
                )
            }
        };
        self.scope().values.insert(key, name.clone());
        name
    }

    /// A name for a value that was computed, rounded to its dtype.
    fn result(&mut self, dtype: DType, expression: &str) -> String {
        let (kind, name) = (computed(dtype), self.name("v"));
        self.line(&match dtype {
            DType::F64 | DType::F32 => format!("const {kind} {name} = {expression};"),
            DType::BF16 | DType::F16 => {
                format!("const {kind} {name} = widen(narrow<{}>({expression}));", stored(dtype))
            }
        });
        name
    }

    /// As csrc/ops/reduce.cu sums the few elements of a column.
    fn reduce(
        &mut self,
        dtype: DType,
        operand: &Operand,
        at: &str,
        (kept, reduced): (&Axes, &Axes),
        count: usize,
        scale: f64,
    ) -> String {
        let mut first = self.terms(at, (&kept.sizes, &kept.strides));
        first.push(format!("{}u", operand.offset));
        let first = self.index(first.join(" + "));
        let (total, step) = (self.name("t"), self.name("k"));
        self.line(&format!("double {total} = 0;"));
        if count <= 8 {
            self.line("#pragma unroll");
        }
        self.block(&format!("for (I {step} = 0; {step} < {count}u; ++{step})"), |writer| {
            let mut terms = writer.terms(&step, (&reduced.sizes, &reduced.strides));
            terms.insert(0, first);
            let offset = writer.index(terms.join(" + "));
            let x = writer.element(operand, &offset);
            writer.line(&format!("{total} += {x};"));
        });
        self.result(dtype, &format!("widen(narrow<{}>(times({total}, {})))", stored(dtype), number(scale)))
    }

    /// As `segment_totals` of csrc/gradewise/segments.cuh sums: the name of the total of the segment that a position is in.
    fn segment(
        &mut self,
        operand: &Operand,
        at: &str,
        Groups { starts, order, .. }: Groups,
        [segments, count, inner]: [usize; 3],
    ) -> String {
        let row = self.index(format!("{at} / {inner}u"));
        let block = self.index(format!("{row} / {segments}u"));
        let segment = self.index(format!("{row} - {block} * {segments}u"));
        let begin = self.listed(starts, &segment);
        let end = self.listed(starts, &format!("{segment} + 1u"));
        let (total, step) = (self.name("t"), self.name("k"));
        self.line(&format!("double {total} = 0;"));
        self.block(&format!("for (I {step} = {begin}; {step} < {end}; ++{step})"), |writer| {
            let entry = writer.listed(order, &step);
            let at = format!("({block} * {count}u + {entry}) * {inner}u + ({at} - {row} * {inner}u)");
            let at = writer.index(at);
            let x = writer.operand(operand, &at);
            writer.line(&format!("{total} += {x};"));
        });
        total
    }
}
