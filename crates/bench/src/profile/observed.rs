//! The bytes and operations of an operation that was seen.

use crate::Work;
use gradewise_autograd::{
    Attributes,
    observe::{Event, Pass},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::Array;
use std::collections::BTreeSet;

/// Operations that show memory otherwise and move nothing.
const VIEWS: [&str; 6] = ["broadcast_to", "permute", "reshape", "select", "slice", "transpose"];
/// Operations that read as much of their first input as they write.
const PARTIAL: [&str; 3] = ["embed", "gather", "index_select"];
/// Operations whose work depends on what they were told. Others are not asked: to write a list of indices takes longer than small kernels
/// do, and would count as theirs.
const TOLD: [&str; 12] = [
    "attention",
    "clifford_layer",
    "fc_clifford_layer",
    "fcgp",
    "gelu_fcgp_norm",
    "gelu_sgp_norm",
    "matmul",
    "mv_block",
    "mv_linear",
    "sgp",
    "steerable_gp",
    "steerable_layer",
];

impl Work {
    /// The work of an operation as it was seen: what it was given and what came of it, read and written once; the operations of its
    /// matrix products, and for weighted products three for each term, by the formulas of [`Work::of`]. Counting none where an
    /// operation has no matrix product is right; its floor is then that of its bytes.
    pub fn observed(event: &Event<'_>) -> Self {
        let size = |array: &Array| (array.elements() * array.dtype().size()) as u64;
        let outputs: u64 = event.outputs.iter().map(|output| size(output)).sum();
        let forward = event.pass == Pass::Forward;
        let bytes = match event.operation {
            name if VIEWS.contains(&name) && forward => 0,
            name if PARTIAL.contains(&name) && forward => 2 * outputs,
            _ => {
                let inputs: u64 = event.inputs.iter().map(|input| size(input.array())).sum();
                inputs + outputs + event.arriving.map_or(0, |gradient| size(gradient.array()))
            }
        };
        let inputs: Vec<&[usize]> = event.inputs.iter().map(|input| input.array().dims()).collect();
        let told = if TOLD.contains(&event.operation) { event.attributes() } else { Attributes::new() };
        let algebra = told
            .get_list::<u32>(event.operation, "signature")
            .ok()
            .and_then(|signature| <[u32; 3]>::try_from(signature).ok())
            .and_then(|[p, q, r]| Algebra::new(Signature::new(p as _, q as _, r as _)).ok());
        let output = event.outputs.first().map_or(0, |output| output.elements() as u64);
        let (matrices, lanes) = match (event.operation, &algebra) {
            ("matmul", _) => (products(&inputs, told.get("matmul", "transpose_self").unwrap_or(false)), 0),
            ("attention", _) => {
                let seen = if told.get("attention", "causal").unwrap_or(false) { 2 } else { 4 };
                (seen * attention(&inputs), 0)
            }
            (name, Some(algebra)) => clifford(name, algebra, &inputs),
            _ => (0, 0),
        };
        // One product for each of two factors.
        let times = if forward || output == 0 { 1 } else { 2 };
        Self { bytes, matrix_flops: times * matrices, flops: times * (matrices + lanes) }
    }
}

fn count(sizes: &[usize]) -> u64 {
    sizes.iter().map(|&size| size as u64).product()
}

/// Two operations for each multiply-add of `[…, m, k]` by `[…, k, n]`.
fn products(inputs: &[&[usize]], transposed: bool) -> u64 {
    let [a, b, ..] = inputs else { return 0 };
    let (Some([rows, columns]), Some([.., b_rows, b_columns])) =
        (a.last_chunk::<2>(), b.get(b.len().saturating_sub(2)..))
    else {
        return 0;
    };
    let (m, k) = if transposed { (*columns, *rows) } else { (*rows, *columns) };
    let n = if *b_rows == k { *b_columns } else { *b_rows };
    let batch = count(&a[..a.len() - 2]).max(count(&b[..b.len() - 2]));
    2 * batch * count(&[m, k, n])
}

/// One for each pair of query and key, in each feature of each head.
fn attention(inputs: &[&[usize]]) -> u64 {
    match inputs {
        [[batch, tokens, 3, heads, features]] => count(&[*batch, *heads, *tokens, *tokens, *features]),
        [[batch, heads, queries, features], [.., keys, _], ..] => {
            count(&[*batch, *heads, *queries, *keys, *features])
        }
        _ => 0,
    }
}

/// Of matrices, and of terms of products lane by lane.
fn clifford(name: &str, algebra: &Algebra, inputs: &[&[usize]]) -> (u64, u64) {
    let Some([blades, batch, features]) = inputs.first() else { return (0, 0) };
    let (rows, grades) = (count(&[*blades, *batch]), algebra.grade_count());
    // Grade-wise maps `[grades, in, out]`, or one for all grades.
    let linear = |weights: Option<&&[usize]>| match weights {
        Some([.., inputs, outputs]) => 2 * rows * count(&[*inputs, *outputs]),
        _ => 0,
    };
    let pairs: BTreeSet<_> = algebra.terms().iter().map(|term| (term.path, term.out)).collect();
    let full = |weights: Option<&&[usize]>| match weights {
        Some([.., inputs, outputs]) => 2 * pairs.len() as u64 * count(&[*batch, *inputs, *outputs]),
        _ => 0,
    };
    let terms = 3 * algebra.terms().len() as u64 * count(&[*batch, *features]);
    match name {
        "mv_linear" => (linear(inputs.get(1)), 0),
        "clifford_layer" => (linear(inputs.get(1)), terms),
        "fc_clifford_layer" => (linear(inputs.get(1)) + full(inputs.get(2)), 0),
        "fcgp" | "gelu_fcgp_norm" => (full(inputs.get(2)), 0),
        "sgp" | "gelu_sgp_norm" | "steerable_gp" => (0, terms),
        "steerable_layer" => {
            (linear(inputs.get(1)) + inputs.get(4).map_or(0, |left| linear(Some(left))), terms)
        }
        "mv_block" => {
            let maps = inputs[1..].iter().filter(|dims| dims.len() == 3 && dims[0] == grades);
            (maps.map(|dims| linear(Some(dims))).sum(), terms)
        }
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Case, Op, Pass as Timed};
    use gradewise_autograd::{
        Result, Tensor,
        clifford::{ProductOptions, fcgp, mv_linear, sgp},
        observe::{Observer, observe},
    };
    use gradewise_core::DType;
    use gradewise_kernels::{Compute, Device};

    #[derive(Default)]
    struct Seen(Vec<(String, Work)>);

    impl Observer for Seen {
        fn observe(&mut self, event: &Event<'_>) -> Result<()> {
            self.0.push((format!("{} {}", event.operation, event.pass), Work::observed(event)));
            Ok(())
        }
    }

    fn ones(shape: &[usize]) -> Tensor {
        Tensor::ones(shape.to_vec(), DType::F32, &Device::Cpu).unwrap().requires_grad()
    }

    fn seen(body: impl FnOnce() -> Result<Tensor>) -> Vec<(String, Work)> {
        let (result, Seen(all)) = observe(Seen::default(), || body()?.sum_all()?.backward());
        result.unwrap();
        all
    }

    #[track_caller]
    fn of(all: &[(String, Work)], name: &str) -> Work {
        all.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("{name} in {all:?}")).1
    }

    /// What is seen has the operations that the cases of the benches have.
    #[test]
    fn clifford_operators_are_counted_as_in_the_benches() {
        let algebra = Algebra::new(Signature::CL3).unwrap();
        let (batch, n) = (6, 4);
        let x = ones(&[8, batch, n]);
        let y = ones(&[8, batch, n]);
        let paths = algebra.paths().len();
        let (diagonal, full, linear) = (ones(&[n, paths]), ones(&[paths, n, n]), ones(&[4, n, n]));
        let options = ProductOptions::default();
        let all = [
            seen(|| mv_linear(&algebra, &x, &linear, None)),
            seen(|| sgp(&algebra, &x, &y, &diagonal, options)),
            seen(|| fcgp(&algebra, &x, &y, &full, options)),
        ]
        .concat();
        for (name, op) in [("mv_linear", Op::Linear), ("sgp", Op::Product), ("fcgp", Op::FcProduct)] {
            let case = Case::new(op, Signature::CL3, (batch, n), DType::F32, Compute::Exact);
            let [forward, both] = [Timed::Forward, Timed::Both].map(|pass| Work::of(&case, pass).unwrap());
            let found = [of(&all, &format!("{name} forward")), of(&all, &format!("{name} backward"))];
            assert_eq!(
                (found[0].flops, found[0].matrix_flops),
                (forward.flops, forward.matrix_flops),
                "{name}"
            );
            assert_eq!(found[0].flops + found[1].flops, both.flops, "{name}");
        }
        let work = of(&all, "sgp forward");
        assert_eq!(work.bytes, 4 * (3 * 8 * batch * n + n * paths) as u64);
    }

    #[test]
    fn matrix_products_and_views_are_counted() {
        let (a, b) = (ones(&[3, 5, 7]), ones(&[7, 2]));
        let all = seen(|| a.matmul(&b)?.reshape([3, 10])?.square());
        let work = of(&all, "matmul forward");
        assert_eq!((work.matrix_flops, work.bytes), (2 * 3 * 5 * 7 * 2, 4 * (105 + 14 + 30)));
        assert_eq!(of(&all, "reshape forward").bytes, 0);
        assert_eq!(of(&all, "square forward").bytes, 4 * 60);
        assert_eq!(of(&all, "matmul backward").matrix_flops, 2 * work.matrix_flops);
        let all = seen(|| ones(&[7, 5]).matmul_transposed(&ones(&[2, 7]), true, true));
        assert_eq!(of(&all, "matmul forward").matrix_flops, 2 * 5 * 7 * 2);
    }
}
