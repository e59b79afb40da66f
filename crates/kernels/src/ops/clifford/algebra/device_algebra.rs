//! Tables of an algebra on a CUDA device, for the kernels that serve any algebra: its products, its grades, its quadratic form.

use super::{
    contract::Planes,
    generated::{Form, Generated, List, THREADS, Term},
    program::{Program, Programs},
    table::{Table, TableTerm},
};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::{Chunks, sum_partials},
    runtime::cuda::{Args, Grid, Kernel, Key, Words},
};
use gradewise_core::{Algebra, Shape};
use std::{collections::BTreeMap, ops::Range, sync::Arc};

const NAME: &str = "algebra tables";

/// A product of blades: as csrc/clifford/product/table_product.cu reads it, and as kernels generated for it.
pub(crate) struct DeviceProgram {
    groups: Words,
    spans: Words,
    pairs: Words,
    results: usize,
    pub(super) generated: Generated,
}

/// Operands of the terms of a product: scale·(base + Σ weight·±a·b).
pub(crate) struct Terms<'a> {
    /// Factors `[…, plane]`.
    pub a: &'a Array,
    pub b: &'a Array,
    /// `[features, paths]`; 1 without.
    pub weights: Option<&'a Array>,
    pub base: Option<&'a Array>,
    pub scale: f64,
}

impl<'a> Terms<'a> {
    /// Σ ±a·b.
    pub const fn plain(a: &'a Array, b: &'a Array) -> Self {
        Self { a, b, weights: None, base: None, scale: 1.0 }
    }

    /// Σ weight·±a·b.
    pub const fn weighted(a: &'a Array, b: &'a Array, weights: &'a Array) -> Self {
        Self { weights: Some(weights), ..Self::plain(a, b) }
    }
}

impl DeviceProgram {
    /// From lists of terms that share a weight, with the range of lists of each span.
    fn new(device: &CudaDevice, lists: Vec<List>, spans: Vec<Range<usize>>) -> Result<Self> {
        let (mut groups, mut pairs) = (Vec::new(), Vec::new());
        for List { result, path, terms } in &lists {
            let start = pairs.len() as u32;
            pairs.extend(terms.iter().map(|term| term.a | term.b << 16));
            let split = start + terms.iter().filter(|term| term.positive).count() as u32;
            groups.extend([result | path << 16, start, split, pairs.len() as u32]);
        }
        let flat: Vec<u32> = spans.iter().flat_map(|span| [span.start as u32, span.end as u32]).collect();
        Ok(Self {
            groups: Words::new(device, NAME, &groups)?,
            spans: Words::new(device, NAME, &flat)?,
            pairs: Words::new(device, NAME, &pairs)?,
            results: spans.len(),
            generated: Generated::new(lists, spans),
        })
    }

    fn from_program(device: &CudaDevice, program: &Program) -> Result<Self> {
        let spans = program.spans.iter().map(|range| range.start as usize..range.end as usize).collect();
        Self::new(device, lists(program), spans)
    }

    /// One span for each result, with the terms of a table.
    pub fn from_table(device: &CudaDevice, table: &Table) -> Result<Self> {
        let term = |t: &TableTerm| Term { a: t.a.into(), b: t.b.into(), positive: t.sign > 0 };
        let lists = (0..table.out)
            .map(|out| List::new(out as u32, 0, table.by_out[out].iter().map(term).collect()))
            .collect();
        Self::new(device, lists, each(table.out))
    }

    fn tables(&self) -> Args<'_> {
        Args::new().pointer(self.groups.address()).pointer(self.spans.address()).pointer(self.pairs.address())
    }

    /// The sums of the terms of each result, in a new array `[results, …]`.
    pub fn product(&self, device: &CudaDevice, operation: &'static str, terms: &Terms<'_>) -> Result<Array> {
        let Terms { a, b, weights, base, scale } = *terms;
        let rest = &a.dims()[1..];
        let plane: usize = rest.iter().product();
        let features = rest.last().copied().unwrap_or(1);
        let shape: Shape = std::iter::once(self.results).chain(rest.iter().copied()).collect();
        let out = Array::for_kernel(operation, shape, a.dtype(), device)?;
        let form = Form { dtype: a.dtype(), weighted: weights.is_some(), based: base.is_some() };
        if out.elements() == 0 {
            return Ok(out);
        }
        if let Some(function) = self.generated.product(device, form)? {
            // Neighbouring threads, which have neighbouring features, read neighbouring weights.
            let weights = weights.map(|weights| weights.transpose(0, 1)?.contiguous()).transpose()?;
            let factors = Args::new().array(a).array(b);
            let inputs = weights.iter().chain(base).fold(factors, Args::array);
            let args = inputs.array(&out).size(plane).size(features).double(scale);
            let blocks = plane.div_ceil(THREADS as usize).clamp(1, 1 << 16);
            let grid = Grid::blocks(blocks, THREADS);
            // SAFETY: 1: callers have compared the factors, weights and base with the algebra or table that this program was made for; all
            // are contiguous, and `out` has a plane for each result. 2: `out` is new. 3: linear, and the kernel strides. 4: there are no
            // addresses but those of arrays.
            unsafe { device.launch_generated(operation, &function, grid, args)? };
        } else {
            let args = self
                .tables()
                .array(a)
                .array(b)
                .optional(weights)
                .optional(base)
                .array(&out)
                .size(plane)
                .size(features)
                .size(weights.map_or(1, |weights| weights.dims()[1]))
                .double(scale);
            let grid = Grid::linear_by(plane, self.results);
            // SAFETY: 1: callers have compared the factors, weights and base with the algebra or table that this program was made for; all
            // are contiguous, and `out` has a plane for each result. 2: `out` is new. 3: linear, with the results along y. 4: the tables
            // are borrowed.
            unsafe { device.launch(operation, Kernel::new("table_product", a.dtype()), grid, args)? };
        }
        Ok(out)
    }

    /// The gradient `[features, paths]` of the weights of a product ordered by path, times `scale`.
    pub fn weights(
        &self,
        device: &CudaDevice,
        operation: &'static str,
        a: &Array,
        b: &Array,
        grad: &Array,
        scale: f64,
    ) -> Result<Array> {
        let Planes { rows, features, .. } = Planes::of(operation, a)?;
        let results = features * self.results;
        let function = if results > 0 { self.generated.weights(device, a.dtype())? } else { None };
        let parts = self.generated.parts(a.dtype());
        // A generated kernel sums for many paths in each thread.
        let chunks = Chunks::new(rows, features, if function.is_some() { parts } else { self.results });
        let partials = chunks.partials(operation, results, a.dtype(), device)?;
        if let Some(function) = function {
            let args = Args::new().array(a).array(b).array(grad).array(&partials);
            let args = args.size(rows).size(features).size(chunks.rows).double(scale);
            let grid = chunks.grid(features, parts);
            // SAFETY: 1 to 3: as below, with blocks along y for the parts of the paths. 4: there are no addresses but those of arrays.
            unsafe { device.launch_generated(operation, &function, grid, args)? };
        } else if results > 0 {
            let args = self
                .tables()
                .array(a)
                .array(b)
                .array(grad)
                .array(&partials)
                .size(rows)
                .size(features)
                .size(chunks.rows)
                .double(scale);
            let grid = chunks.grid(features, self.results);
            // SAFETY: 1: as in `product`, with a gradient of the shape of the product; each chunk of rows writes its sums for all features
            // and results. 2: `partials` is new. 3: the chunks' grid, results along y. 4: the tables are borrowed.
            unsafe { device.launch(operation, Kernel::new("table_product_weights", a.dtype()), grid, args)? };
        }
        sum_partials(device, operation, &partials, [features, self.results], a.dtype(), 1.0)
    }
}

/// The lists of terms of a program, in its order.
pub(super) fn lists(program: &Program) -> Vec<List> {
    let terms = |start: u32, end: u32, positive: bool| {
        program.pairs[start as usize..end as usize].iter().map(move |&(a, b)| Term {
            a: a.into(),
            b: b.into(),
            positive,
        })
    };
    let groups = program.groups.iter().map(|group| {
        let list = terms(group.start, group.split, true).chain(terms(group.split, group.end, false));
        List::new(group.result.into(), group.path.into(), list.collect())
    });
    groups.collect()
}

/// A span for each of so many lists.
fn each(lists: usize) -> Vec<Range<usize>> {
    (0..lists).map(|list| list..list + 1).collect()
}

/// The tables of one algebra on one device.
pub(crate) struct DeviceAlgebra {
    pub forward: DeviceProgram,
    pub grad_left: DeviceProgram,
    pub grad_right: DeviceProgram,
    pub by_path: DeviceProgram,
    /// The first blade of each grade, and one past the last.
    pub first: Words,
    /// The diagonal of the quadratic form, `int` on the device.
    pub metric: Words,
    /// The grade of each blade.
    pub grades: Words,
    pub grade_count: usize,
    /// The most blades of any grade.
    pub widest: usize,
}

impl DeviceAlgebra {
    /// The tables of `algebra`, put on the device once.
    pub fn of(device: &CudaDevice, algebra: &Algebra) -> Result<Arc<Self>> {
        device.constant(Key::Algebra(algebra.signature()), || Self::new(device, algebra))
    }

    fn new(device: &CudaDevice, algebra: &Algebra) -> Result<Self> {
        let programs = Programs::of(algebra);
        let mut first: Vec<u32> = programs.blades_of_grade.iter().map(|range| range.start as u32).collect();
        first.push(programs.blades as u32);
        let metric: Vec<u32> = programs.metric.iter().map(|&sign| i32::from(sign) as u32).collect();
        let grades: Vec<u32> = programs.grades.iter().map(|&grade| grade.into()).collect();
        Ok(Self {
            forward: DeviceProgram::from_program(device, &programs.forward)?,
            grad_left: DeviceProgram::from_program(device, &programs.grad_left)?,
            grad_right: DeviceProgram::from_program(device, &programs.grad_right)?,
            by_path: DeviceProgram::from_program(device, &programs.by_path)?,
            first: Words::new(device, NAME, &first)?,
            metric: Words::new(device, NAME, &metric)?,
            grades: Words::new(device, NAME, &grades)?,
            grade_count: programs.blades_of_grade.len(),
            widest: programs.blades_of_grade.iter().map(ExactSizeIterator::len).max().unwrap_or(0),
        })
    }
}

/// The fully connected product resolved into pairwise sums `P[group] = Σ ±x_i·y_k`, one group for each path and result
/// blade, and the lists that say which groups and weights make which result.
pub(crate) struct DevicePairing {
    /// (x, y) → P.
    pub sums: DeviceProgram,
    /// (∂P, y) → ∂x and (∂P, x) → ∂y.
    pub grad_left: DeviceProgram,
    pub grad_right: DeviceProgram,
    /// Number of groups.
    pub groups: usize,
    /// For each result: its groups, listed in `order` with their paths.
    pub result_starts: Words,
    pub result_groups: Words,
    pub result_paths: Words,
    /// The most groups of any result.
    pub most_of_result: usize,
    /// For each path: its groups are consecutive.
    pub path_starts: Words,
    pub most_of_path: usize,
    /// Result and path of each group.
    pub group_results: Words,
    pub group_paths: Words,
}

impl DevicePairing {
    /// The lists of `algebra`, put on the device once.
    pub fn of(device: &CudaDevice, algebra: &Algebra) -> Result<Arc<Self>> {
        device.constant(Key::Algebra(algebra.signature()), || Self::new(device, algebra))
    }

    fn new(device: &CudaDevice, algebra: &Algebra) -> Result<Self> {
        let programs = Programs::of(algebra);
        let groups = lists(&programs.by_path);
        let count = groups.len();
        // The gradients: every term (i, k) of group g contributes ±∂P[g]·y[k] to ∂x[i] and ±∂P[g]·x[i] to ∂y[k].
        let blades = programs.blades as u32;
        let gradient = |left: bool| {
            let mut by_blade: BTreeMap<u32, Vec<Term>> =
                (0..blades).map(|blade| (blade, Vec::new())).collect();
            for (group, list) in groups.iter().enumerate() {
                for term in &list.terms {
                    let (target, other) = if left { (term.a, term.b) } else { (term.b, term.a) };
                    by_blade.entry(target).or_default().push(Term { a: group as u32, b: other, ..*term });
                }
            }
            let lists = by_blade.into_iter().map(|(blade, terms)| List::new(blade, 0, terms)).collect();
            DeviceProgram::new(device, lists, each(blades as usize))
        };
        let mut of_result: Vec<Vec<u32>> = vec![Vec::new(); programs.blades];
        let mut of_path = vec![0u32; programs.paths];
        for (group, &List { result, path, .. }) in groups.iter().enumerate() {
            of_result[result as usize].push(group as u32);
            of_path[path as usize] += 1;
        }
        let starts = |lengths: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
            let mut starts = vec![0];
            for length in lengths {
                starts.push(starts[starts.len() - 1] + length);
            }
            starts
        };
        let words = |values: &[u32]| Words::new(device, NAME, values);
        let order: Vec<u32> = of_result.concat();
        let paths_of = |groups_in_order: &[u32]| -> Vec<u32> {
            groups_in_order.iter().map(|&group| groups[group as usize].path).collect()
        };
        let [grad_left, grad_right] = [gradient(true)?, gradient(false)?];
        let [group_results, group_paths] = [|list: &List| list.result, |list: &List| list.path]
            .map(|of| groups.iter().map(of).collect::<Vec<u32>>());
        let paths = paths_of(&order);
        Ok(Self {
            sums: DeviceProgram::new(device, groups, each(count))?,
            grad_left,
            grad_right,
            groups: count,
            result_starts: words(&starts(&mut of_result.iter().map(|list| list.len() as u32)))?,
            result_groups: words(&order)?,
            result_paths: words(&paths)?,
            most_of_result: of_result.iter().map(Vec::len).max().unwrap_or(0),
            path_starts: words(&starts(&mut of_path.iter().copied()))?,
            most_of_path: of_path.iter().copied().max().unwrap_or(0) as usize,
            group_results: words(&group_results)?,
            group_paths: words(&group_paths)?,
        })
    }
}

/// An empty parameter gradient: zeros of a shape, for batches without rows.
pub(crate) fn zeros(device: &CudaDevice, shape: impl Into<Shape>, dtype: DType) -> Result<Array> {
    Array::zeros(shape, dtype, &crate::Device::Cuda(device.clone()))
}
