//! Products of blades as kernels generated for their terms.
//!
//! The kernels of csrc/clifford/product/table_product.cu look up each term and read its factors from memory, for every result. Here a thread
//! holds the factors at its position in registers, and the terms are its instructions: in the same order, so that products have the same
//! bits. Sums over rows are cut into other chunks.

#[cfg(test)]
mod tests;

use crate::{
    CudaDevice, DType, Result,
    runtime::{
        cuda::generated::{Code, Library, stored},
        growing::Growing,
    },
};
use gradewise_ffi::Function;
use std::{collections::BTreeSet, fmt::Write, ops::Range};

/// Threads of a block of a product.
pub(super) const THREADS: u32 = 128;
/// The most threads of a block that sums over rows.
const MOST_THREADS: u32 = 256;
/// The most factors that a thread holds.
const MOST_FACTORS: usize = 64;
/// The most terms of a kernel: compiling takes about a millisecond for each.
const MOST_TERMS: usize = 1 << 10;
/// The most sums over rows that a thread keeps, in single and in double precision.
const MOST_SUMS: [usize; 2] = [64, 24];

/// One term of a product: the places of both factors and the sign.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub a: u32,
    pub b: u32,
    pub positive: bool,
}

/// Terms of one result that share a weight, the positive ones first.
pub(super) struct List {
    pub result: u32,
    pub path: u32,
    pub terms: Vec<Term>,
}

impl List {
    /// Terms in any order; positive ones keep theirs, as do negative ones.
    pub fn new(result: u32, path: u32, mut terms: Vec<Term>) -> Self {
        terms.sort_by_key(|term| !term.positive);
        Self { result, path, terms }
    }
}

/// What a product is made of besides its terms.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub dtype: DType,
    pub weighted: bool,
    pub based: bool,
}

/// The kernels of one product on one device.
pub(super) struct Generated {
    lists: Vec<List>,
    /// The lists of each result or of each path.
    spans: Vec<Range<usize>>,
    products: Growing<Form, Option<Function>>,
    weights: Growing<DType, Option<Function>>,
}

impl Generated {
    pub fn new(lists: Vec<List>, spans: Vec<Range<usize>>) -> Self {
        Self { lists, spans, products: Growing::new(), weights: Growing::new() }
    }

    /// Whether the factors fit into registers.
    fn fits(&self) -> bool {
        let places = |of: fn(&Term) -> u32| factors(&self.lists, of).len();
        let terms: usize = self.lists.iter().map(|list| list.terms.len()).sum();
        places(|term| term.a) + places(|term| term.b) <= MOST_FACTORS && terms <= MOST_TERMS
    }

    /// The kernel of the product, in parameters a, b, weights `[paths, features]` if there are any, base if there is one, out, the positions
    /// of each blade, features and scale. `None` where there is no compiler, or a thread cannot hold the factors.
    pub fn product(&self, device: &CudaDevice, form: Form) -> Result<Option<Function>> {
        self.function(device, &self.products, form, || self.product_code(form))
    }

    /// The kernel of the gradient of the weights, in parameters a, b, grad, partial sums `[chunks, features, paths]`, rows, features, rows
    /// of a chunk, and scale. [`parts`](Self::parts) blocks along y.
    pub fn weights(&self, device: &CudaDevice, dtype: DType) -> Result<Option<Function>> {
        self.function(device, &self.weights, dtype, || self.weights_code(dtype))
    }

    fn function<K: Copy + Eq + std::hash::Hash>(
        &self,
        device: &CudaDevice,
        known: &Growing<K, Option<Function>>,
        key: K,
        code: impl FnOnce() -> Code,
    ) -> Result<Option<Function>> {
        if let Some(found) = known.get(&key) {
            return Ok(found);
        }
        let library = Library::of(device)?;
        let function = if self.fits() { library.get(device, &code()) } else { None };
        Ok(known.add(key, function))
    }

    /// The kernel of [`product`](Self::product).
    pub fn product_code(&self, form: Form) -> Code {
        let Form { dtype, weighted, based } = form;
        let mut body = "for (i64 at = thread_index(); at < plane; at += thread_count()) {\n".to_owned();
        if weighted {
            body.push_str("const i64 feature = at % features;\n");
        }
        load(&mut body, &self.lists, "a", |term| term.a);
        load(&mut body, &self.lists, "b", |term| term.b);
        for (result, span) in self.spans.iter().enumerate() {
            let start = if based { format!("widen(base[{result} * plane + at])") } else { "C(0)".to_owned() };
            let _ = writeln!(body, "{{ C sum = {start};");
            for list in &self.lists[span.clone()] {
                let weight = if weighted {
                    format!(" * widen(w[{} * features + feature])", list.path)
                } else {
                    String::new()
                };
                let _ = writeln!(body, "{{ {} sum += value{weight}; }}", value(&list.terms));
            }
            let _ = writeln!(body, "out[{result} * plane + at] = narrow<T>(sum * C(scale)); }}");
        }
        body.push_str("}\n");
        let arrays = [("w", weighted), ("base", based)];
        let arrays = arrays.iter().filter(|(_, there)| *there).map(|(name, _)| input(name));
        let all: Vec<String> = [input("a"), input("b")].into_iter().chain(arrays).collect();
        let parameters =
            format!("{}, T* __restrict__ out, i64 plane, i64 features, double scale", all.join(", "));
        Code::new("gw_table_product_terms", &header("types", dtype), THREADS, &parameters, &body)
    }

    /// The kernel of [`weights`](Self::weights).
    pub fn weights_code(&self, dtype: DType) -> Code {
        let paths = self.spans.len();
        let mut body =
            "const Chunk chunk(rows, features, size);\nconst i64 plane = rows * features;\n".to_owned();
        for (part, own) in self.parts_of(dtype).into_iter().enumerate() {
            let lists = || own.clone().flat_map(|path| &self.lists[self.spans[path].clone()]);
            let _ = writeln!(body, "if (blockIdx.y == {part}) chunk.each_feature([&](i64 feature) {{");
            for path in own.clone() {
                let _ = writeln!(body, "C total{path} = 0;");
            }
            body.push_str("chunk.each_row(feature, [&](i64, i64 at) {\n");
            load(&mut body, lists(), "a", |term| term.a);
            load(&mut body, lists(), "b", |term| term.b);
            for result in lists().map(|list| list.result).collect::<BTreeSet<_>>() {
                let _ = writeln!(body, "const C g{result} = widen(grad[{result} * plane + at]);");
            }
            for path in own.clone() {
                for list in &self.lists[self.spans[path].clone()] {
                    let _ = writeln!(
                        body,
                        "{{ {} total{path} += value * g{}; }}",
                        value(&list.terms),
                        list.result
                    );
                }
            }
            body.push_str("});\n");
            for path in own {
                let _ = writeln!(
                    body,
                    "partial[chunk.place(feature) * {paths} + {path}] = total{path} * C(scale);"
                );
            }
            body.push_str("});\n");
        }
        let inputs = ["a", "b", "grad"].map(input).join(", ");
        let parameters =
            format!("{inputs}, C* __restrict__ partial, i64 rows, i64 features, i64 size, double scale");
        Code::new("gw_table_product_terms_weights", &header("chunk", dtype), MOST_THREADS, &parameters, &body)
    }

    /// Into how many parts the paths are divided.
    pub fn parts(&self, dtype: DType) -> usize {
        self.parts_of(dtype).len()
    }

    fn parts_of(&self, dtype: DType) -> Vec<Range<usize>> {
        let (paths, most) = (self.spans.len(), MOST_SUMS[usize::from(dtype == DType::F64)]);
        let parts = paths.div_ceil(most).max(1);
        (0..parts).map(|part| part * paths / parts..(part + 1) * paths / parts).collect()
    }
}

/// The places of a factor that the terms read.
fn factors<'a>(lists: impl IntoIterator<Item = &'a List>, of: fn(&Term) -> u32) -> BTreeSet<u32> {
    lists.into_iter().flat_map(|list| &list.terms).map(of).collect()
}

fn load<'a>(body: &mut String, lists: impl IntoIterator<Item = &'a List>, name: &str, of: fn(&Term) -> u32) {
    for place in factors(lists, of) {
        let _ = writeln!(body, "const C {name}{place} = widen({name}[{place} * plane + at]);");
    }
}

/// The declaration of `value`, the sum of terms.
fn value(terms: &[Term]) -> String {
    let mut text = "C value = 0;".to_owned();
    for Term { a, b, positive } in terms {
        let _ = write!(text, " value {} a{a} * b{b};", if *positive { "+=" } else { "-=" });
    }
    text
}

fn input(name: &str) -> String {
    format!("const T* __restrict__ {name}")
}

fn header(file: &str, dtype: DType) -> String {
    let stored = stored(dtype);
    format!("#include \"gradewise/{file}.cuh\"\nusing T = {stored};\nusing C = Compute<T>;\n")
}
