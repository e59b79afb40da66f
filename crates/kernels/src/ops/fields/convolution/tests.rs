//! The three faces against their definition.

use super::{Axis, Geometry, adjoint, forward, kernel};
use crate::{Array, DType, Device};
use proptest::prelude::*;
use rand::SeedableRng;

/// All terms of the trilinear form: positions in y, w and x.
fn terms(geometry: &Geometry, batch: usize, [i, c, j, o]: [usize; 4]) -> Vec<[usize; 3]> {
    let axes = geometry.axes();
    let (cg, og) = (c / geometry.groups(), o / geometry.groups());
    let space = |size: fn(&Axis) -> usize| axes.iter().map(size).product::<usize>();
    let (inputs, outputs, taps) = (space(|a| a.input), space(|a| a.output), space(|a| a.kernel));
    let unravel = |mut index: usize, size: fn(&Axis) -> usize| {
        let mut at = vec![0; axes.len()];
        for (at, axis) in at.iter_mut().zip(axes).rev() {
            (*at, index) = (index % size(axis), index / size(axis));
        }
        at
    };
    let mut found = Vec::new();
    for (b, p, t) in itertools(batch, outputs, taps) {
        let (to, tap) = (unravel(p, |a| a.output), unravel(t, |a| a.kernel));
        let mut q = Some(0);
        for (axis, (to, tap)) in axes.iter().zip(to.iter().zip(&tap)) {
            let at = (to * axis.stride + tap * axis.dilation) as isize - axis.before as isize;
            q = q.filter(|_| (0..axis.input as isize).contains(&at)).map(|q| q * axis.input + at as usize);
        }
        let Some(q) = q else { continue };
        for (jo, i_at, k) in itertools(j * o, i, cg) {
            let channel = jo % o / og * cg + k;
            let x = ((i_at * batch + b) * inputs + q) * c + channel;
            let y = ((jo / o * batch + b) * outputs + p) * o + jo % o;
            found.push([y, ((jo * i + i_at) * taps + t) * cg + k, x]);
        }
    }
    found
}

fn itertools(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a * b * c).map(move |index| (index / (b * c), index / c % b, index % c))
}

fn random(shape: &[usize], seed: u64) -> Array {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    Array::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap()
}

/// Checks the three faces at these sizes.
fn check(geometry: &Geometry, batch: usize, sizes: [usize; 4], seed: u64) {
    let [i, c, j, o] = sizes;
    let shape = |blades, size: fn(&Axis) -> usize, channels| {
        [&[blades, batch], &geometry.extents(size)[..], &[channels]].concat()
    };
    let x = random(&shape(i, |a| a.input, c), seed);
    let y = random(&shape(j, |a| a.output, o), seed ^ 1);
    let w = random(
        &[&[j, o, i], &geometry.extents(|a| a.kernel)[..], &[c / geometry.groups()]].concat(),
        seed ^ 2,
    );
    let terms = terms(geometry, batch, sizes);
    let [xv, yv, wv] = [&x, &y, &w].map(|array| array.to_f64_vec().unwrap());
    let compare = |name: &str, found: Array, like: &Array, sum: &dyn Fn(&mut [f64])| {
        assert_eq!(found.shape(), like.shape(), "{name}");
        let mut expected = vec![0.0; like.elements()];
        sum(&mut expected);
        for (a, b) in found.to_f64_vec().unwrap().iter().zip(&expected) {
            assert!(
                (a - b).abs() <= 1e-11 * (1.0 + b.abs()),
                "{name} {geometry:?} {sizes:?}: {a} against {b}"
            );
        }
    };
    compare("forward", forward(geometry, &x, &w).unwrap(), &y, &|out| {
        terms.iter().for_each(|&[y, w, x]| out[y] += wv[w] * xv[x]);
    });
    compare("adjoint", adjoint(geometry, &y, &w).unwrap(), &x, &|out| {
        terms.iter().for_each(|&[y, w, x]| out[x] += wv[w] * yv[y]);
    });
    compare("kernel", kernel(geometry, &x, &y).unwrap(), &w, &|out| {
        terms.iter().for_each(|&[y, w, x]| out[w] += yv[y] * xv[x]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn all_faces_agree_with_the_definition(
        axes in proptest::collection::vec((0usize..6, 1usize..4, 1usize..4, 1usize..3, 0usize..3, 0usize..3), 1..4),
        batch in 0usize..3, i in 1usize..4, j in 1usize..4, c in 1usize..4, o in 1usize..4, groups in 1usize..4, seed: u64,
    ) {
        let axes: Vec<Axis> = axes
            .into_iter()
            .map(|(n, k, s, d, before, after)| Axis::convolution(n, k, s, d, [before, after]))
            .collect();
        let geometry = Geometry::new(&axes, groups).unwrap();
        check(&geometry, batch, [i, c * groups, j, o * groups], seed);
    }
}

#[test]
fn sums_over_many_blocks_of_rows_are_complete() {
    // More rows than a block and a chunk have; with one channel in a group, too.
    let axes = [Axis::convolution(70, 3, 1, 1, [1, 1]), Axis::convolution(71, 3, 1, 1, [1, 1])];
    check(&Geometry::new(&axes, 1).unwrap(), 1, [2, 2, 2, 2], 3);
    check(&Geometry::new(&axes, 3).unwrap(), 1, [2, 3, 2, 3], 4);
}

#[test]
fn outputs_may_lie_beyond_the_last_input() {
    // A transposed convolution with more padding of its output than its stride: nothing lands on the last positions.
    let axis = Axis { input: 9, output: 3, kernel: 2, stride: 2, dilation: 1, before: 0 };
    check(&Geometry::new(&[axis], 1).unwrap(), 2, [1, 2, 2, 1], 5);
}

#[test]
fn what_does_not_fit_is_named() {
    let geometry = Geometry::new(&[Axis::convolution(5, 3, 1, 1, [1, 1])], 2).unwrap();
    let (x, w) = (random(&[4, 2, 5, 4], 1), random(&[4, 6, 4, 3, 2], 2));
    assert!(forward(&geometry, &x, &w).is_ok());
    let refused =
        |x: &[usize], w: &[usize]| forward(&geometry, &random(x, 1), &random(w, 2)).unwrap_err().to_string();
    assert!(refused(&[4, 2, 6, 4], &[4, 6, 4, 3, 2]).contains("[blades, batch, 5, channels]"));
    assert!(refused(&[4, 2, 5, 4], &[4, 6, 4, 2, 2]).contains("blades out"));
    assert!(refused(&[4, 2, 5, 4], &[4, 5, 4, 3, 2]).contains("groups"));
    assert!(refused(&[3, 2, 5, 4], &[4, 6, 4, 3, 2]).contains("blades and channels"));
    assert!(Geometry::new(&[Axis::convolution(5, 3, 0, 1, [0, 0])], 1).is_err());
    assert!(Geometry::new(&[], 1).is_err());
}
