//! The bytes and operations of an operation that was seen.

use crate::Work;
use gradewise_autograd::observe::{Event, Pass};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::Array;
use std::collections::BTreeSet;

/// Operations that show memory otherwise and move nothing.
const VIEWS: [&str; 6] = ["broadcast_to", "permute", "reshape", "select", "slice", "transpose"];
/// Operations that read as much of their first input as they write.
const PARTIAL: [&str; 3] = ["embed", "gather", "index_select"];

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
        let output = event.outputs.first().map_or(0, |output| output.elements() as u64);
        // What it was told is asked for where it counts alone: to write a list of indices takes longer than small kernels do, and would
        // count as theirs.
        let flag = |name: &str| event.attributes().get(event.operation, name).unwrap_or(false);
        let (matrices, lanes) = match event.operation {
            "matmul" => (products(&inputs, flag("transpose_self")), 0),
            "attention" => (if flag("causal") { 2 } else { 4 } * attention(&inputs), 0),
            name => {
                clifford(name).and_then(|work| Some(work(&Operands::of(event, &inputs)?))).unwrap_or((0, 0))
            }
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

/// Shapes of an operation on multivectors, of which the first is `[blades, batch, features]`.
struct Operands<'a> {
    algebra: Algebra,
    inputs: &'a [&'a [usize]],
    blades: usize,
    batch: usize,
    features: usize,
}

impl<'a> Operands<'a> {
    fn of(event: &Event<'_>, inputs: &'a [&'a [usize]]) -> Option<Self> {
        let signature = event.attributes().get_list::<u32>(event.operation, "signature").ok()?;
        let [p, q, r] = <[u32; 3]>::try_from(signature).ok()?;
        let algebra = Algebra::new(Signature::new(p as _, q as _, r as _)).ok()?;
        let &[blades, batch, features] = *inputs.first()? else { return None };
        Some(Self { algebra, inputs, blades, batch, features })
    }

    /// Of the grade-wise map whose matrices are the operand of this number, `[grades, in, out]`, or one for all grades.
    fn linear(&self, operand: usize) -> u64 {
        match self.inputs.get(operand) {
            Some([.., inputs, outputs]) => 2 * count(&[self.blades, self.batch, *inputs, *outputs]),
            _ => 0,
        }
    }

    /// Of the fully connected product whose weights are the operand of this number.
    fn full(&self, operand: usize) -> u64 {
        let pairs: BTreeSet<_> = self.algebra.terms().iter().map(|term| (term.path, term.out)).collect();
        match self.inputs.get(operand) {
            Some([.., inputs, outputs]) => 2 * count(&[pairs.len(), self.batch, *inputs, *outputs]),
            _ => 0,
        }
    }

    /// Of a weighted product, lane by lane.
    fn terms(&self) -> u64 {
        3 * count(&[self.algebra.terms().len(), self.batch, self.features])
    }

    /// The operands that are matrices of grade-wise maps.
    fn maps(&self) -> impl Iterator<Item = usize> {
        let grades = self.algebra.grade_count();
        (1..self.inputs.len()).filter(move |&k| matches!(self.inputs[k], [first, _, _] if *first == grades))
    }
}

/// The operations of matrix products, and of terms of products lane by lane.
type Count = fn(&Operands<'_>) -> (u64, u64);

/// What an operation on multivectors computes; `None` for other operations.
fn clifford(name: &str) -> Option<Count> {
    Some(match name {
        "mv_linear" => |of| (of.linear(1), 0),
        "clifford_layer" => |of| (of.linear(1), of.terms()),
        "fc_clifford_layer" => |of| (of.linear(1) + of.full(2), 0),
        "fcgp" | "gelu_fcgp_norm" => |of| (of.full(2), 0),
        "sgp" | "gelu_sgp_norm" | "steerable_gp" => |of| (0, of.terms()),
        "steerable_layer" => |of| (of.linear(1) + of.linear(4), of.terms()),
        "mv_block" => |of| (of.maps().map(|map| of.linear(map)).sum(), of.terms()),
        _ => return None,
    })
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
