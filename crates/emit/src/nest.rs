//! The steps of a program as loops over memory.

use crate::index::{Composed, Index, Term, composed};
use gradewise_autograd::{
    formula::{At, Formula, Function, Loops, Operator, Scalar, Update},
    program::{Buffer, Contents, Program, View},
};
use gradewise_core::DType;
use std::sync::Arc;

/// A formula over memory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Expr {
    Number(f64),
    Listed(usize, Arc<[f64]>),
    Load(usize, Index),
    Unary(Function, Box<Expr>),
    Binary(Operator, Box<[Expr; 2]>),
    Select(Box<[Expr; 3]>),
    /// Converted to a type.
    Cast(DType, Box<Expr>),
    /// What has been accumulated, in the tail of a nest.
    Accumulated,
}

impl Expr {
    /// Calls `see` with each load.
    pub fn loads(&self, see: &mut impl FnMut(usize, &Index)) {
        match self {
            Self::Load(buffer, index) => see(*buffer, index),
            Self::Unary(_, x) | Self::Cast(_, x) => x.loads(see),
            Self::Binary(_, both) => both.iter().for_each(|x| x.loads(see)),
            Self::Select(all) => all.iter().for_each(|x| x.loads(see)),
            Self::Number(_) | Self::Listed(..) | Self::Accumulated => {}
        }
    }

    /// Calls `see` with the counter of each list of numbers.
    pub fn lists(&self, see: &mut impl FnMut(usize, &Arc<[f64]>)) {
        match self {
            Self::Listed(counter, list) => see(*counter, list),
            Self::Unary(_, x) | Self::Cast(_, x) => x.lists(see),
            Self::Binary(_, both) => both.iter().for_each(|x| x.lists(see)),
            Self::Select(all) => all.iter().for_each(|x| x.lists(see)),
            Self::Number(_) | Self::Load(..) | Self::Accumulated => {}
        }
    }

    /// Each load replaced; `None` as soon as `with` gives none.
    pub fn map_loads(self, with: &mut impl FnMut(usize, Index) -> Option<Self>) -> Option<Self> {
        Some(match self {
            Self::Load(buffer, index) => with(buffer, index)?,
            Self::Unary(function, x) => Self::Unary(function, Box::new(x.map_loads(with)?)),
            Self::Cast(dtype, x) => Self::Cast(dtype, Box::new(x.map_loads(with)?)),
            Self::Binary(operator, both) => {
                let [a, b] = *both;
                Self::Binary(operator, Box::new([a.map_loads(with)?, b.map_loads(with)?]))
            }
            Self::Select(all) => {
                let [a, b, c] = *all;
                Self::Select(Box::new([a.map_loads(with)?, b.map_loads(with)?, c.map_loads(with)?]))
            }
            Self::Number(_) | Self::Listed(..) | Self::Accumulated => self,
        })
    }

    /// With each counter replaced, in loops of these sizes.
    pub fn substituted(&self, by: &[Index], sizes: &[usize]) -> Option<Self> {
        Some(match self {
            Self::Load(buffer, index) => Self::Load(*buffer, index.substituted(by, sizes)?),
            Self::Listed(counter, list) => match composed(&by[*counter], sizes, |at| list[at])? {
                Composed::Fixed(value) => Self::Number(value),
                Composed::Listed(counter, values) => Self::Listed(counter, values.into()),
            },
            Self::Unary(function, x) => Self::Unary(*function, Box::new(x.substituted(by, sizes)?)),
            Self::Cast(dtype, x) => Self::Cast(*dtype, Box::new(x.substituted(by, sizes)?)),
            Self::Binary(operator, both) => {
                let [a, b] = &**both;
                Self::Binary(*operator, Box::new([a.substituted(by, sizes)?, b.substituted(by, sizes)?]))
            }
            Self::Select(all) => {
                let [a, b, c] = &**all;
                let all = [a.substituted(by, sizes)?, b.substituted(by, sizes)?, c.substituted(by, sizes)?];
                Self::Select(Box::new(all))
            }
            Self::Number(_) | Self::Accumulated => self.clone(),
        })
    }

    /// How much work an evaluation is, in additions.
    pub fn work(&self) -> usize {
        match self {
            Self::Number(_) | Self::Listed(..) | Self::Load(..) | Self::Accumulated => 0,
            Self::Cast(_, x) => x.work(),
            Self::Unary(Function::Abs | Function::Relu | Function::Square, x) => 1 + x.work(),
            Self::Unary(_, x) => 16 + x.work(),
            Self::Binary(Operator::Div, both) => 8 + both.iter().map(Self::work).sum::<usize>(),
            Self::Binary(Operator::Pow, both) => 32 + both.iter().map(Self::work).sum::<usize>(),
            Self::Binary(_, both) => 1 + both.iter().map(Self::work).sum::<usize>(),
            Self::Select(all) => 1 + all.iter().map(Self::work).sum::<usize>(),
        }
    }
}

/// Nested loops that write a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Nest {
    /// The operations that it came from.
    pub operations: Vec<&'static str>,
    pub sizes: Vec<usize>,
    pub buffer: usize,
    pub to: Index,
    pub update: Update,
    /// What elements are before, if the nest accumulates and every element is written by it alone.
    pub start: Option<f64>,
    pub value: Expr,
    /// Whether no other nest writes the elements that this one sets.
    pub is_part: bool,
    /// What is stored once an element is complete, where that is not what was accumulated.
    pub tail: Option<Expr>,
}

impl Nest {
    /// Counters that the accumulation goes over.
    pub fn reduced(&self) -> Vec<usize> {
        (0..self.sizes.len()).filter(|&counter| !self.to.has(counter)).collect()
    }

    /// How often the value is evaluated.
    pub fn evaluations(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Calls `see` with each load.
    pub fn loads(&self, see: &mut impl FnMut(usize, &Index)) {
        self.value.loads(see);
        if let Some(tail) = &self.tail {
            tail.loads(see);
        }
    }
}

/// The position in memory of an element of a view.
fn position(view: &View, at: &[At]) -> Index {
    let mut index = Index { offset: view.offset, terms: Vec::new() };
    for (at, &stride) in at.iter().zip(&view.strides) {
        index.offset += at.offset * stride;
        if let Some((counter, list)) = &at.counter {
            index.push(Term { counter: *counter, list: list.clone(), stride });
        }
    }
    index
}

fn expr(scalar: &Scalar, inputs: &[View]) -> Expr {
    let boxed = |x: &Scalar| Box::new(expr(x, inputs));
    match scalar {
        Scalar::Number(value) => Expr::Number(*value),
        Scalar::Listed(counter, list) => Expr::Listed(*counter, Arc::clone(list)),
        Scalar::Load(input, at) => Expr::Load(inputs[*input].buffer, position(&inputs[*input], at)),
        Scalar::Unary(function, x) => Expr::Unary(*function, boxed(x)),
        Scalar::Binary(operator, both) => {
            Expr::Binary(*operator, Box::new([expr(&both[0], inputs), expr(&both[1], inputs)]))
        }
        Scalar::Select(all) => {
            Expr::Select(Box::new([expr(&all[0], inputs), expr(&all[1], inputs), expr(&all[2], inputs)]))
        }
    }
}

/// The counters of row-major loops over `sizes`, where their digits are the axes of a view of the same elements in other sizes.
fn copied(operation: &'static str, from: &View, to: &View) -> Nest {
    // A copy whose sizes differ is written in the order of the input: the output is contiguous in row-major order then.
    let same = from.sizes == to.sizes;
    let mut target = Index { offset: to.offset, terms: Vec::new() };
    let mut stride = 1;
    for (counter, &size) in from.sizes.iter().enumerate().rev() {
        target.push(Term { counter, list: None, stride: if same { to.strides[counter] } else { stride } });
        stride *= size;
    }
    let at = At::counters(from.sizes.len());
    Nest {
        operations: vec![operation],
        sizes: from.sizes.clone(),
        buffer: to.buffer,
        to: target,
        update: Update::Set,
        start: None,
        value: Expr::Load(from.buffer, position(from, &at)),
        is_part: true,
        tail: None,
    }
}

/// The nests of a program, in order, each in a normal form.
pub(crate) fn nests(program: &Program) -> Vec<Nest> {
    let mut nests = Vec::new();
    for step in &program.steps {
        let Formula { start, loops } = &step.formula;
        let output = &step.output;
        let dtype = program.buffers[output.buffer].dtype;
        if start.is_none() && is_copy(loops) {
            nests.push(copied(step.operation, &step.inputs[0], output));
        } else {
            // Loops over nothing leave what the elements are at the start.
            let loops: Vec<&Loops> = loops.iter().filter(|one| !one.sizes.contains(&0)).collect();
            // One nest that accumulates alone starts by itself; several start from a buffer that is filled first.
            let alone =
                matches!(&loops[..], [one] if one.update != Update::Set && !one.to.iter().any(is_listed));
            if let (Some(value), false) = (start, alone) {
                nests.push(Nest {
                    operations: vec![step.operation],
                    sizes: output.sizes.clone(),
                    buffer: output.buffer,
                    to: position(output, &At::counters(output.sizes.len())),
                    update: Update::Set,
                    start: None,
                    value: Expr::Number(*value),
                    is_part: false,
                    tail: None,
                });
            }
            for one in loops {
                nests.push(Nest {
                    operations: vec![step.operation],
                    sizes: one.sizes.clone(),
                    buffer: output.buffer,
                    to: position(output, &one.to),
                    update: one.update,
                    start: if alone { *start } else { None },
                    value: expr(&one.value, &step.inputs),
                    is_part: start.is_none(),
                    tail: None,
                });
            }
        }
        for nest in nests.iter_mut().rev().take_while(|nest| nest.buffer == output.buffer) {
            nest.value =
                typed(std::mem::replace(&mut nest.value, Expr::Accumulated), dtype, &program.buffers);
        }
    }
    nests.iter_mut().for_each(|nest| normalize(nest, &program.buffers));
    nests
}

/// Whether loops copy their only input, element by element in row-major order; the output may have other sizes.
fn is_copy(loops: &[Loops]) -> bool {
    let [Loops { sizes, to, update: Update::Set, value: Scalar::Load(0, at) }] = loops else { return false };
    let same = |(axis, at): (usize, &At)| *at == At::counter(axis) || sizes[axis] == 1 && *at == At::fixed(0);
    *to == At::counters(sizes.len()) && at.len() == sizes.len() && at.iter().enumerate().all(same)
}

fn is_listed(at: &At) -> bool {
    matches!(at.counter, Some((_, Some(_))))
}

/// The value with loads converted to `dtype`, where they are of another one.
fn typed(value: Expr, dtype: DType, buffers: &[Buffer]) -> Expr {
    let convert = &mut |buffer: usize, index: Index| {
        let load = Expr::Load(buffer, index);
        Some(if buffers[buffer].dtype == dtype { load } else { Expr::Cast(dtype, Box::new(load)) })
    };
    value.map_loads(convert).unwrap_or(Expr::Number(0.0))
}

/// The number that all elements of a constant are.
fn uniform(buffer: &Buffer) -> Option<f64> {
    let Contents::Constant(array, _) = &buffer.contents else { return None };
    let values = array.to_f64_vec().ok()?;
    let first = *values.first()?;
    values.iter().all(|value| value.to_bits() == first.to_bits()).then_some(first)
}

/// Drops loops that run once, puts those of the output first and by falling stride, and merges neighbours that all positions step through
/// evenly; constants of one value become numbers.
pub(crate) fn normalize(nest: &mut Nest, buffers: &[Buffer]) {
    let replace = &mut |buffer: usize, index: Index| {
        Some(uniform(&buffers[buffer]).map_or(Expr::Load(buffer, index), Expr::Number))
    };
    if let Some(value) = nest.value.clone().map_loads(replace) {
        nest.value = value;
    }
    let key =
        |counter: usize| (!nest.to.has(counter), std::cmp::Reverse(nest.to.stride(counter).unwrap_or(0)));
    let mut order: Vec<usize> = (0..nest.sizes.len()).filter(|&counter| nest.sizes[counter] != 1).collect();
    // The order of lists matters: what is added where they repeat is added in their order.
    if !nest.to.has_lists() {
        order.sort_by_key(|&counter| key(counter));
    }
    let mut by = vec![Index::default(); nest.sizes.len()];
    for (new, &old) in order.iter().enumerate() {
        by[old] = Index::counter(new);
    }
    let sizes: Vec<usize> = order.iter().map(|&counter| nest.sizes[counter]).collect();
    rewrite(nest, &by, sizes);
    let mut inner = nest.sizes.len();
    while inner > 1 {
        inner -= 1;
        merge(nest, inner - 1);
    }
}

/// Replaces the loops of a nest.
fn rewrite(nest: &mut Nest, by: &[Index], sizes: Vec<usize>) -> bool {
    let tail = match &nest.tail {
        Some(tail) => match tail.substituted(by, &sizes) {
            Some(tail) => Some(tail),
            None => return false,
        },
        None => None,
    };
    let (Some(to), Some(value)) = (nest.to.substituted(by, &sizes), nest.value.substituted(by, &sizes))
    else {
        return false;
    };
    (nest.to, nest.value, nest.tail, nest.sizes) = (to, value, tail, sizes);
    true
}

/// Merges loop `outer` with the next one, if all positions step through both evenly.
fn merge(nest: &mut Nest, outer: usize) {
    let inner_size = nest.sizes[outer + 1];
    let even = |index: &Index| match (index.stride(outer), index.stride(outer + 1)) {
        (Some(far), Some(near)) => far == near * inner_size,
        _ => false,
    };
    let mut all = even(&nest.to);
    nest.loads(&mut |_, index| all &= even(index));
    let mut listed = |counter: usize, _: &Arc<[f64]>| all &= counter != outer && counter != outer + 1;
    nest.value.lists(&mut listed);
    if let Some(tail) = &nest.tail {
        tail.lists(&mut listed);
    }
    if !all {
        return;
    }
    // The inner counter runs on over both; the outer one is 0.
    let by: Vec<Index> = (0..nest.sizes.len())
        .map(|counter| match counter {
            _ if counter == outer => Index::default(),
            _ if counter > outer => Index::counter(counter - 1),
            _ => Index::counter(counter),
        })
        .collect();
    let mut sizes = nest.sizes.clone();
    sizes[outer + 1] *= sizes[outer];
    sizes.remove(outer);
    rewrite(nest, &by, sizes);
}
