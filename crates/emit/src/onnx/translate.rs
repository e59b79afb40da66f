//! Nests of loops as nodes.

use super::graph::{Graph, element, integer, text};
use crate::{
    error::Result,
    file::Source,
    index::Index,
    nest::{Expr, Nest},
};
use gradewise_autograd::{
    formula::{Function, Operator, Update},
    program::{Contents, Program, View},
};
use gradewise_core::DType;

/// A tensor with an axis for the batch, whose size is 1 if no input is in it.
#[derive(Clone)]
struct Value {
    name: String,
    has_batch: bool,
}

/// A value within loops.
struct Operand {
    value: Value,
    /// Whether it depends on the counter of each loop; the axes of the others have size 1.
    axes: Vec<bool>,
}

/// Parts that were written to a buffer and not read yet, each with the elements that it is.
type Parts = Vec<(Value, Vec<usize>)>;

pub(super) struct Translation<'a> {
    program: &'a Program,
    graph: Graph,
    buffers: Vec<Parts>,
    /// The input that tells the size of a batch.
    batch: Option<String>,
}

/// The positions that an index takes in row-major order of some counters of loops of these sizes.
fn positions(index: &Index, counters: &[usize], sizes: &[usize]) -> Vec<usize> {
    let mut all = vec![index.offset];
    for &counter in counters {
        let step = |at: usize| -> usize {
            let of_counter = index.terms.iter().filter(|term| term.counter == counter);
            of_counter.map(|term| term.stride * term.list.as_ref().map_or(at, |list| list[at])).sum()
        };
        let steps: Vec<usize> = (0..sizes[counter]).map(step).collect();
        all = all.iter().flat_map(|from| steps.iter().map(move |step| from + step)).collect();
    }
    all
}

fn is_identity(positions: &[usize], elements: usize) -> bool {
    positions.len() == elements && positions.iter().enumerate().all(|(at, &position)| at == position)
}

/// The factors of a product.
fn factors<'e>(value: &'e Expr, found: &mut Vec<&'e Expr>) {
    match value {
        Expr::Binary(Operator::Mul, both) => both.iter().for_each(|factor| factors(factor, found)),
        other => found.push(other),
    }
}

impl<'a> Translation<'a> {
    pub fn new(program: &'a Program, source: &Source<'_>) -> Self {
        let mut translation = Self {
            program,
            graph: Graph::default(),
            buffers: vec![Vec::new(); program.buffers.len()],
            batch: source.inputs.first().map(|argument| argument.name.clone()),
        };
        for (view, argument) in program.inputs.iter().zip(source.inputs) {
            let (buffer, elements) = (&program.buffers[view.buffer], view.sizes.iter().product());
            let graph = &mut translation.graph;
            let name = if argument.is_count {
                let axis = graph.integers(&[1]);
                let count = graph.node("Unsqueeze", &[&argument.name, &axis], Vec::new());
                let order: Vec<i64> = (0..elements as i64).collect();
                let (order, row) = (graph.integers(&order), graph.integers(&[1, -1]));
                let order = graph.node("Reshape", &[&order, &row], Vec::new());
                let is_there = graph.node("Less", &[&order, &count], Vec::new());
                graph.node("Cast", &[&is_there], vec![integer("to", element(buffer.dtype).into())])
            } else {
                graph.reshaped(&argument.name, &[elements])
            };
            let value = Value { name, has_batch: true };
            translation.buffers[view.buffer] = vec![(value, (0..elements).collect())];
        }
        translation
    }

    pub fn finish(self) -> Graph {
        self.graph
    }

    /// A tensor `[1 or batch, elements]` with a batch.
    fn with_batch(&mut self, value: &Value, elements: usize) -> Value {
        let Some(input) = self.batch.clone().filter(|_| !value.has_batch) else { return value.clone() };
        let graph = &mut self.graph;
        let batch = graph.node("Shape", &[&input], vec![integer("start", 0), integer("end", 1)]);
        let elements = graph.integers(&[elements as i64]);
        let shape = graph.node("Concat", &[&batch, &elements], vec![integer("axis", 0)]);
        let name = graph.node("Expand", &[&value.name, &shape], Vec::new());
        Value { name, has_batch: true }
    }

    /// The whole of a buffer, `[1 or batch, elements]`. Elements that nothing has written are any that something has.
    fn buffer(&mut self, buffer: usize) -> Value {
        let parts = std::mem::take(&mut self.buffers[buffer]);
        let elements = self.program.buffers[buffer].elements;
        let whole = match &parts[..] {
            [(value, positions)] if is_identity(positions, elements) => value.clone(),
            _ => self.joined(&parts, elements),
        };
        self.buffers[buffer] = vec![(whole.clone(), (0..elements).collect())];
        whole
    }

    fn joined(&mut self, parts: &Parts, elements: usize) -> Value {
        let has_batch = parts.iter().any(|(value, _)| value.has_batch);
        let mut from = vec![0; elements];
        let mut first = 0;
        let mut names = Vec::new();
        for (value, positions) in parts {
            // A later part replaces an earlier one.
            for (at, &position) in positions.iter().enumerate() {
                from[position] = first + at;
            }
            first += positions.len();
            names.push(if has_batch {
                self.with_batch(value, positions.len()).name
            } else {
                value.name.clone()
            });
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = match &names[..] {
            [one] => (*one).to_owned(),
            several => self.graph.node("Concat", several, vec![integer("axis", 1)]),
        };
        let name = if is_identity(&from, first) { all } else { self.graph.gathered(&all, &from) };
        Value { name, has_batch }
    }

    /// Elements of a buffer, `[1 or batch, sizes of the counters]`.
    fn load(&mut self, buffer: usize, index: &Index, counters: &[usize], sizes: &[usize]) -> Result<Value> {
        let (about, places) = (&self.program.buffers[buffer], positions(index, counters, sizes));
        let mut shape: Vec<usize> = counters.iter().map(|&counter| sizes[counter]).collect();
        if let Contents::Constant(array, _) = &about.contents {
            let values = array.to_f64_vec()?;
            let chosen: Vec<f64> = places.iter().map(|&place| values[place]).collect();
            shape.insert(0, 1);
            return Ok(Value { name: self.graph.numbers(about.dtype, &shape, &chosen), has_batch: false });
        }
        let whole = self.buffer(buffer);
        let name = match is_identity(&places, about.elements) {
            true => whole.name,
            false => self.graph.gathered(&whole.name, &places),
        };
        let name = if shape.len() == 1 { name } else { self.graph.reshaped(&name, &shape) };
        Ok(Value { name, has_batch: whole.has_batch })
    }

    /// The value of a formula in loops of these sizes.
    fn operand(&mut self, value: &Expr, dtype: DType, sizes: &[usize]) -> Result<Operand> {
        let constant =
            |name: String, axes: Vec<bool>| Operand { value: Value { name, has_batch: false }, axes };
        Ok(match value {
            Expr::Number(number) => constant(self.graph.number(dtype, *number), vec![false; sizes.len()]),
            Expr::Listed(counter, list) => {
                let mut shape = vec![1; 1 + sizes.len()];
                shape[1 + counter] = sizes[*counter];
                let axes = (0..sizes.len()).map(|axis| axis == *counter).collect();
                constant(self.graph.numbers(dtype, &shape, &list[..sizes[*counter]]), axes)
            }
            Expr::Load(buffer, index) => {
                let axes: Vec<bool> = (0..sizes.len()).map(|counter| index.has(counter)).collect();
                let counters: Vec<usize> = (0..sizes.len()).filter(|&counter| axes[counter]).collect();
                let Value { name, has_batch } = self.load(*buffer, index, &counters, sizes)?;
                let shape: Vec<usize> =
                    axes.iter().zip(sizes).map(|(&own, &size)| if own { size } else { 1 }).collect();
                let name =
                    if counters.len() == sizes.len() { name } else { self.graph.reshaped(&name, &shape) };
                Operand { value: Value { name, has_batch }, axes }
            }
            Expr::Unary(function, x) => {
                let x = self.operand(x, dtype, sizes)?;
                let name = self.function(*function, &x.value.name, dtype);
                Operand { value: Value { name, ..x.value }, axes: x.axes }
            }
            Expr::Cast(to, x) => {
                let x = self.operand(x, dtype, sizes)?;
                let to = vec![integer("to", element(*to).into())];
                Operand {
                    value: Value { name: self.graph.node("Cast", &[&x.value.name], to), ..x.value },
                    axes: x.axes,
                }
            }
            Expr::Binary(operator, both) => {
                let name = match operator {
                    Operator::Add => "Add",
                    Operator::Sub => "Sub",
                    Operator::Mul => "Mul",
                    Operator::Div => "Div",
                    Operator::Max => "Max",
                    Operator::Min => "Min",
                    Operator::Pow => "Pow",
                };
                self.combined(name, &both[..], dtype, sizes)?
            }
            Expr::Select(all) => self.combined("Where", &all[..], dtype, sizes)?,
            // Only fusion makes tails, and these nests are not fused.
            Expr::Accumulated => constant(self.graph.number(dtype, 0.0), vec![false; sizes.len()]),
        })
    }

    fn combined(&mut self, operator: &str, of: &[Expr], dtype: DType, sizes: &[usize]) -> Result<Operand> {
        let of = of.iter().map(|x| self.operand(x, dtype, sizes)).collect::<Result<Vec<_>>>()?;
        let mut names: Vec<String> = of.iter().map(|x| x.value.name.clone()).collect();
        if operator == "Where" {
            let kind = vec![integer("to", super::proto::data_type::BOOL.into())];
            names[0] = self.graph.node("Cast", &[&names[0]], kind);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let name = self.graph.node(operator, &names, Vec::new());
        let has_batch = of.iter().any(|x| x.value.has_batch);
        let axes = (0..sizes.len()).map(|axis| of.iter().any(|x| x.axes[axis])).collect();
        Ok(Operand { value: Value { name, has_batch }, axes })
    }

    fn function(&mut self, function: Function, x: &str, dtype: DType) -> String {
        let graph = &mut self.graph;
        let standard = match function {
            Function::Abs => "Abs",
            Function::Cos => "Cos",
            Function::Erf => "Erf",
            Function::Exp => "Exp",
            Function::Log => "Log",
            Function::Recip => "Reciprocal",
            Function::Relu => "Relu",
            Function::Sigmoid => "Sigmoid",
            Function::Sin => "Sin",
            Function::Sqrt => "Sqrt",
            Function::Tanh => "Tanh",
            Function::Square => return graph.node("Mul", &[x, x], Vec::new()),
            Function::Rsqrt => {
                let root = graph.node("Sqrt", &[x], Vec::new());
                return graph.node("Reciprocal", &[&root], Vec::new());
            }
            Function::Silu => {
                let gate = graph.node("Sigmoid", &[x], Vec::new());
                return graph.node("Mul", &[x, &gate], Vec::new());
            }
            // σ(x)·(1 + x·(1 − σ(x)))
            Function::SiluDerivative => {
                let (gate, one) = (graph.node("Sigmoid", &[x], Vec::new()), graph.number(dtype, 1.0));
                let rest = graph.node("Sub", &[&one, &gate], Vec::new());
                let slope = graph.node("Mul", &[x, &rest], Vec::new());
                let slope = graph.node("Add", &[&one, &slope], Vec::new());
                return graph.node("Mul", &[&gate, &slope], Vec::new());
            }
            // x·Φ(x)
            Function::Gelu => {
                let normal = self.normal(x, dtype);
                return self.graph.node("Mul", &[x, &normal], Vec::new());
            }
            // Φ(x) + x·φ(x)
            Function::GeluDerivative => {
                let normal = self.normal(x, dtype);
                let graph = &mut self.graph;
                let half = graph.number(dtype, -0.5);
                let square = graph.node("Mul", &[x, x], Vec::new());
                let exponent = graph.node("Mul", &[&square, &half], Vec::new());
                let density = graph.node("Exp", &[&exponent], Vec::new());
                let factor = graph
                    .number(dtype, std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0);
                let density = graph.node("Mul", &[&density, &factor], Vec::new());
                let slope = graph.node("Mul", &[x, &density], Vec::new());
                return graph.node("Add", &[&normal, &slope], Vec::new());
            }
        };
        graph.node(standard, &[x], Vec::new())
    }

    /// The normal distribution function, ½(1 + erf(x/√2)).
    fn normal(&mut self, x: &str, dtype: DType) -> String {
        let graph = &mut self.graph;
        let [scale, one, half] =
            [std::f64::consts::FRAC_1_SQRT_2, 1.0, 0.5].map(|value| graph.number(dtype, value));
        let scaled = graph.node("Mul", &[x, &scale], Vec::new());
        let erf = graph.node("Erf", &[&scaled], Vec::new());
        let sum = graph.node("Add", &[&one, &erf], Vec::new());
        graph.node("Mul", &[&half, &sum], Vec::new())
    }

    /// A sum of products over `reduced` counters as `Einsum`, `[1 or batch, sizes of the others]`; `None` if that says less than the loops.
    fn contraction(&mut self, nest: &Nest, dtype: DType, kept: &[usize]) -> Result<Option<Value>> {
        let mut found = Vec::new();
        factors(&nest.value, &mut found);
        let letters = "abcdefghijklmnopqrstuvwxy";
        if found.len() < 2 || nest.sizes.len() > letters.len() {
            return Ok(None);
        }
        let mut operands = Vec::new();
        for factor in found {
            operands.push(self.operand(factor, dtype, &nest.sizes)?);
        }
        if !(0..nest.sizes.len()).all(|axis| operands.iter().any(|x| x.axes[axis])) {
            return Ok(None);
        }
        let has_batch = operands.iter().any(|x| x.value.has_batch);
        let (mut names, mut equation) = (Vec::new(), Vec::new());
        for Operand { value, axes } in &operands {
            let own: Vec<usize> = (0..axes.len()).filter(|&axis| axes[axis]).collect();
            let subscripts: String = own.iter().map(|&axis| &letters[axis..=axis]).collect();
            let shape: Vec<i64> = own.iter().map(|&axis| nest.sizes[axis] as i64).collect();
            // Operands that are the same for all samples have no axis for the batch.
            let (shape, subscripts) = match value.has_batch {
                true => (std::iter::once(0).chain(shape).collect(), format!("z{subscripts}")),
                false => (shape, subscripts),
            };
            let shape = self.graph.integers(&shape);
            names.push(self.graph.node("Reshape", &[&value.name, &shape], Vec::new()));
            equation.push(subscripts);
        }
        let result: String = kept.iter().map(|&axis| &letters[axis..=axis]).collect();
        let batch = if has_batch { "z" } else { "" };
        let equation = format!("{}->{batch}{result}", equation.join(","));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut name = self.graph.node("Einsum", &names, vec![text("equation", &equation)]);
        if !has_batch {
            let axis = self.graph.integers(&[0]);
            name = self.graph.node("Unsqueeze", &[&name, &axis], Vec::new());
        }
        Ok(Some(Value { name, has_batch }))
    }

    /// What a nest's loops make for each element that they write, `[1 or batch, elements]`.
    fn reduced(&mut self, nest: &Nest, dtype: DType, kept: &[usize]) -> Result<Value> {
        let over = nest.reduced();
        let count = kept.iter().map(|&counter| nest.sizes[counter]).product();
        if nest.update == Update::Add
            && !over.is_empty()
            && let Some(sum) = self.contraction(nest, dtype, kept)?
        {
            return Ok(Value { name: self.graph.reshaped(&sum.name, &[count]), ..sum });
        }
        let Operand { value, axes } = self.operand(&nest.value, dtype, &nest.sizes)?;
        let has_batch = value.has_batch;
        // The axes of loops that nothing depends on are filled, so that a sum adds as often as the loops do.
        let whole: Vec<i64> = std::iter::once(1).chain(nest.sizes.iter().map(|&size| size as i64)).collect();
        let mut name = value.name;
        if !axes.iter().all(|&own| own) || axes.is_empty() {
            let whole = self.graph.integers(&whole);
            name = self.graph.node("Expand", &[&name, &whole], Vec::new());
        }
        if !over.is_empty() {
            let axes: Vec<i64> = over.iter().map(|&counter| 1 + counter as i64).collect();
            let axes = self.graph.integers(&axes);
            let operator = if nest.update == Update::Max { "ReduceMax" } else { "ReduceSum" };
            name = self.graph.node(operator, &[&name, &axes], vec![integer("keepdims", 0)]);
        }
        Ok(Value { name: self.graph.reshaped(&name, &[count]), has_batch })
    }

    /// The nodes of a nest.
    pub fn nest(&mut self, nest: &Nest) -> Result<()> {
        let dtype = self.program.buffers[nest.buffer].dtype;
        let kept: Vec<usize> = (0..nest.sizes.len()).filter(|&counter| nest.to.has(counter)).collect();
        let places = positions(&nest.to, &kept, &nest.sizes);
        let mut made = self.reduced(nest, dtype, &kept)?;
        let combine = match nest.update {
            Update::Set => {
                self.buffers[nest.buffer].push((made, places));
                return Ok(());
            }
            Update::Add => "Add",
            Update::Max => "Max",
        };
        if let Some(start) = nest.start {
            let neutral = if nest.update == Update::Max { f64::NEG_INFINITY } else { 0.0 };
            if start != neutral {
                let start = self.graph.number(dtype, start);
                made.name = self.graph.node(combine, &[&made.name, &start], Vec::new());
            }
            self.buffers[nest.buffer].push((made, places));
            return Ok(());
        }
        let before = self.buffer(nest.buffer);
        let elements = self.program.buffers[nest.buffer].elements;
        let mut seen = vec![false; elements];
        let is_repeated = places.iter().any(|&place| std::mem::replace(&mut seen[place], true));
        if !is_repeated {
            let earlier = match is_identity(&places, elements) {
                true => before.name,
                false => self.graph.gathered(&before.name, &places),
            };
            let has_batch = made.has_batch || before.has_batch;
            let name = self.graph.node(combine, &[&earlier, &made.name], Vec::new());
            self.buffers[nest.buffer].push((Value { name, has_batch }, places));
            return Ok(());
        }
        let (before, made) = match made.has_batch || before.has_batch {
            true => (self.with_batch(&before, elements), self.with_batch(&made, places.len())),
            false => (before, made),
        };
        let graph = &mut self.graph;
        let row: Vec<i64> = vec![1, -1];
        let (index, row) = (graph.positions(&places), graph.integers(&row));
        let index = graph.node("Reshape", &[&index, &row], Vec::new());
        let shape = graph.node("Shape", &[&made.name], Vec::new());
        let index = graph.node("Expand", &[&index, &shape], Vec::new());
        let reduction = if nest.update == Update::Max { "max" } else { "add" };
        let attributes = vec![integer("axis", 1), text("reduction", reduction)];
        let name = graph.node("ScatterElements", &[&before.name, &index, &made.name], attributes);
        let value = Value { name, has_batch: before.has_batch };
        self.buffers[nest.buffer] = vec![(value, (0..elements).collect())];
        Ok(())
    }

    /// A result under its name.
    pub fn output(&mut self, view: &View, name: &str) -> Result<()> {
        let mut index = Index { offset: view.offset, terms: Vec::new() };
        for (counter, &stride) in view.strides.iter().enumerate() {
            index.push(crate::index::Term { counter, list: None, stride });
        }
        let counters: Vec<usize> = (0..view.sizes.len()).collect();
        let value = self.load(view.buffer, &index, &counters, &view.sizes)?;
        let count = view.sizes.iter().product();
        let flat = Value { name: self.graph.reshaped(&value.name, &[count]), ..value };
        let flat = self.with_batch(&flat, count);
        let shaped = self.graph.reshaped(&flat.name, &view.sizes);
        self.graph.named("Identity", &shaped, name);
        Ok(())
    }
}
