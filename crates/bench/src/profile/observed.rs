//! The bytes and operations of an observed operation.

use crate::Work;
use gradewise_autograd::{
    Cost, Traffic,
    observe::{Event, Pass},
};
use gradewise_kernels::Array;

impl Work {
    /// The work of an observed operation: its inputs and outputs, read and written once, and the arithmetic that the operation declares. An
    /// operation without matrix products has none, so its floor follows from its bytes.
    pub fn observed(event: &Event<'_>) -> Self {
        let size = |array: &Array| (array.elements() * array.dtype().size()) as u64;
        let outputs: u64 = event.outputs.iter().map(|output| size(output)).sum();
        let is_forward = event.pass == Pass::Forward;
        let bytes = match event.traffic() {
            Traffic::View if is_forward => 0,
            Traffic::AsWritten if is_forward => 2 * outputs,
            _ => {
                let inputs: u64 = event.inputs.iter().map(|input| size(input.array())).sum();
                inputs + outputs + event.arriving.map_or(0, |gradient| size(gradient.array()))
            }
        };
        let is_empty = event.outputs.first().is_none_or(|output| output.elements() == 0);
        let Cost { matrix_flops, element_flops } = event.cost();
        // The backward pass has one product for each of two factors.
        let times = if is_forward || is_empty { 1 } else { 2 };
        Self { bytes, matrix_flops: times * matrix_flops, flops: times * (matrix_flops + element_flops) }
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
    use gradewise_core::{Algebra, DType, Signature};
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

    /// Observed operations have the same counts as the cases of the benches.
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
