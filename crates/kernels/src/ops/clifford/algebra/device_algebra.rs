//! Tables of an algebra on a CUDA device, for the kernels that serve any algebra: its products, its grades, its quadratic form.

use super::{
    contract::Planes,
    program::{Program, Programs},
    table::{Table, TableTerm},
};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::{Chunks, sum_partials},
    runtime::cuda::{Args, Grid, Kernel, Key, Words},
};
use gradewise_core::{Algebra, Shape};
use std::{collections::BTreeMap, sync::Arc};

const NAME: &str = "algebra tables";

/// A product of blades as csrc/clifford/product/table_product.cu reads it.
pub(crate) struct DeviceProgram {
    groups: Words,
    spans: Words,
    pairs: Words,
    results: usize,
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

/// One term of a product: blades of both operands and the sign.
#[derive(Clone, Copy)]
struct Term {
    a: u32,
    b: u32,
    positive: bool,
}

impl DeviceProgram {
    /// From lists of terms that share a weight: (result, path, terms), with the range of lists of each span.
    fn new(device: &CudaDevice, lists: &[(u32, u32, Vec<Term>)], spans: &[(u32, u32)]) -> Result<Self> {
        let (mut groups, mut pairs) = (Vec::new(), Vec::new());
        for (result, path, terms) in lists {
            let start = pairs.len() as u32;
            let pair = |term: &Term| term.a | term.b << 16;
            pairs.extend(terms.iter().filter(|term| term.positive).map(pair));
            let split = pairs.len() as u32;
            pairs.extend(terms.iter().filter(|term| !term.positive).map(pair));
            groups.extend([result | path << 16, start, split, pairs.len() as u32]);
        }
        let flat: Vec<u32> = spans.iter().flat_map(|&(first, last)| [first, last]).collect();
        Ok(Self {
            groups: Words::new(device, NAME, &groups)?,
            spans: Words::new(device, NAME, &flat)?,
            pairs: Words::new(device, NAME, &pairs)?,
            results: spans.len(),
        })
    }

    fn from_program(device: &CudaDevice, program: &Program) -> Result<Self> {
        let spans: Vec<(u32, u32)> = program.spans.iter().map(|range| (range.start, range.end)).collect();
        Self::new(device, &lists(program), &spans)
    }

    /// One span for each result, with the terms of a table.
    pub fn from_table(device: &CudaDevice, table: &Table) -> Result<Self> {
        let term = |t: TableTerm| Term { a: t.a.into(), b: t.b.into(), positive: t.sign > 0 };
        let lists: Vec<_> = (0..table.out)
            .map(|out| (out as u32, 0, table.by_out[out].iter().copied().map(term).collect()))
            .collect();
        let spans: Vec<(u32, u32)> = (0..table.out as u32).map(|out| (out, out + 1)).collect();
        Self::new(device, &lists, &spans)
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
        if out.elements() > 0 {
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
        let chunks = Chunks::new(rows, results);
        let partials = chunks.partials(operation, results, a.dtype(), device)?;
        if results > 0 {
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

fn lists(program: &Program) -> Vec<(u32, u32, Vec<Term>)> {
    let terms = |start: u32, end: u32, positive: bool| {
        program.pairs[start as usize..end as usize].iter().map(move |&(a, b)| Term {
            a: a.into(),
            b: b.into(),
            positive,
        })
    };
    program
        .groups
        .iter()
        .map(|group| {
            let list =
                terms(group.start, group.split, true).chain(terms(group.split, group.end, false)).collect();
            (group.result.into(), group.path.into(), list)
        })
        .collect()
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
        let each: Vec<(u32, u32)> = (0..count as u32).map(|group| (group, group + 1)).collect();
        // The gradients: every term (i, k) of group g contributes ±∂P[g]·y[k] to ∂x[i] and ±∂P[g]·x[i] to ∂y[k].
        let blades = programs.blades as u32;
        let gradient = |left: bool| {
            let mut by_blade: BTreeMap<u32, Vec<Term>> =
                (0..blades).map(|blade| (blade, Vec::new())).collect();
            for (group, (_, _, terms)) in groups.iter().enumerate() {
                for term in terms {
                    let (target, other) = if left { (term.a, term.b) } else { (term.b, term.a) };
                    by_blade.entry(target).or_default().push(Term { a: group as u32, b: other, ..*term });
                }
            }
            let lists: Vec<_> = by_blade.into_iter().map(|(blade, terms)| (blade, 0, terms)).collect();
            let spans: Vec<(u32, u32)> = (0..blades).map(|blade| (blade, blade + 1)).collect();
            DeviceProgram::new(device, &lists, &spans)
        };
        let mut of_result: Vec<Vec<u32>> = vec![Vec::new(); programs.blades];
        let mut of_path = vec![0u32; programs.paths];
        for (group, &(result, path, _)) in groups.iter().enumerate() {
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
            groups_in_order.iter().map(|&group| groups[group as usize].1).collect()
        };
        Ok(Self {
            sums: DeviceProgram::new(device, &groups, &each)?,
            grad_left: gradient(true)?,
            grad_right: gradient(false)?,
            groups: count,
            result_starts: words(&starts(&mut of_result.iter().map(|list| list.len() as u32)))?,
            result_groups: words(&order)?,
            result_paths: words(&paths_of(&order))?,
            most_of_result: of_result.iter().map(Vec::len).max().unwrap_or(0),
            path_starts: words(&starts(&mut of_path.iter().copied()))?,
            most_of_path: of_path.iter().copied().max().unwrap_or(0) as usize,
            group_results: words(&groups.iter().map(|group| group.0).collect::<Vec<_>>())?,
            group_paths: words(&groups.iter().map(|group| group.1).collect::<Vec<_>>())?,
        })
    }
}

/// An empty parameter gradient: zeros of a shape, for batches without rows.
pub(crate) fn zeros(device: &CudaDevice, shape: impl Into<Shape>, dtype: DType) -> Result<Array> {
    Array::zeros(shape, dtype, &crate::Device::Cuda(device.clone()))
}
