//! Operators of ordinary networks on every device: cross-entropy, RMS norm, rotary embedding, cumulative sums, order and positions.

mod common;

use common::{Pair, for_all, shape, view};
use gradewise_kernels::{
    Array, DType, Device, Index, Positions, Result,
    ops::{self, CrossEntropyOptions, Order, RotaryTable},
};
use rand::{Rng, RngExt};

fn pair(tested: Array, reference: Array) -> Pair {
    Pair { tested, reference }
}

/// Sizes around those of warps, blocks and tiles.
fn length(rng: &mut impl Rng) -> usize {
    [1, 2, 5, 31, 32, 33, 255, 257, 1000, 1024, 1025, 2049, 5000][rng.random_range(0..13)]
}

#[test]
fn cross_entropy_and_its_gradient() {
    for_all(24, |device, dtype, rng, context| {
        let (rows, classes) = ([0, 1, 3, 40, 300][rng.random_range(0..5)], length(rng).min(1100));
        let ignore = [None, Some(0), Some(classes)][rng.random_range(0..3)];
        let options = CrossEntropyOptions { ignore, label_smoothing: [0.0, 0.2][rng.random_range(0..2)] };
        let bound = classes + usize::from(ignore == Some(classes));
        let targets: Vec<usize> = (0..rows).map(|_| rng.random_range(0..bound)).collect();
        let x = view(&[rows, classes], dtype, device, rng);
        let index = |device: &Device| Index::new(&targets, bound, device).unwrap();
        let seed = |x: &ops::CrossEntropy| x.loss.full_like(1.25).unwrap();
        let run = |x: &Array, targets: &Index| {
            let forward = ops::cross_entropy(x, targets, &options).unwrap();
            let grad = ops::cross_entropy_backward(x, targets, &options, &forward, &seed(&forward)).unwrap();
            (forward, grad)
        };
        let (tested, reference) = (run(&x.tested, &index(device)), run(&x.reference, &index(&Device::Cpu)));
        let context = format!("{rows}×{classes}, {options:?}, {context}");
        // A mean of few rows may be anything near zero, where targets are certain: compare what it is the mean of.
        let loss = pair(tested.0.loss, reference.0.loss).map(|loss| ops::add_scalar(loss, 1.0));
        loss.check(&format!("loss, {context}"));
        pair(tested.1, reference.1).check(&format!("gradient, {context}"));
    });
}

#[test]
fn cross_entropy_of_extremes() {
    let inf = f64::INFINITY;
    for_all(1, |device, dtype, _, context| {
        let values = [1e4, -1e4, 0.0, 0.0, -inf, 1.0, 3.0, 3.0, 3.0];
        let x = Pair::of(&Array::from_slice(&values, [3, 3], &Device::Cpu).unwrap(), dtype, device);
        let options = CrossEntropyOptions { ignore: Some(2), label_smoothing: 0.0 };
        for targets in [[0, 0, 2], [2, 2, 2], [1, 2, 1]] {
            let run = |x: &Array| {
                let targets = Index::new(&targets, 3, &x.device()).unwrap();
                let forward = ops::cross_entropy(x, &targets, &options).unwrap();
                let one = forward.loss.full_like(1.0).unwrap();
                let gradient = ops::cross_entropy_backward(x, &targets, &options, &forward, &one).unwrap();
                (forward.loss, gradient)
            };
            let (tested, reference) = (run(&x.tested), run(&x.reference));
            assert!(reference.0.item().unwrap().is_finite(), "{context}");
            pair(tested.0, reference.0).check(&format!("loss of {targets:?}, {context}"));
            pair(tested.1, reference.1).check(&format!("gradient of {targets:?}, {context}"));
        }
    });
}

#[test]
fn rms_norm_forward_and_backward() {
    for_all(16, |device, dtype, rng, context| {
        let (rows, features) = ([0, 1, 2, 7, 33, 300][rng.random_range(0..6)], length(rng).min(1100));
        let context = format!("{rows}×{features}, {context}");
        let x = Pair::randn([features, rows], dtype, device, rng).map(|x| x.transpose(0, 1));
        let weight = view(&[features], dtype, device, rng);
        let grad = view(&[rows, features], dtype, device, rng);
        for scaled in [false, true] {
            let run = |side: fn(&Pair) -> &Array| {
                let weight = scaled.then(|| side(&weight));
                let forward = ops::rms_norm(side(&x), weight, 1e-5).unwrap();
                let backward =
                    ops::rms_norm_backward(side(&x), weight, &forward.inverse_rms, side(&grad)).unwrap();
                (forward.output, backward)
            };
            let (tested, reference) = (run(|pair| &pair.tested), run(|pair| &pair.reference));
            pair(tested.0, reference.0).check(&format!("output, {context}"));
            if features > 1 {
                pair(tested.1.x, reference.1.x).check(&format!("gradient of x, {context}"));
            }
            assert_eq!((tested.1.weight.is_some(), tested.1.bias.is_some()), (scaled, false));
            if let (Some(tested), Some(reference)) = (tested.1.weight, reference.1.weight) {
                pair(tested, reference).check(&format!("gradient of the weight, {context}"));
            }
        }
    });
}

#[test]
fn rotary_embedding_and_its_transpose() {
    for_all(16, |device, dtype, rng, context| {
        let [heads, positions, pairs] = [&[1, 2, 3][..], &[0, 1, 7, 33], &[0, 1, 5, 16, 33]]
            .map(|sizes| sizes[rng.random_range(0..sizes.len())]);
        let x = view(&[2, heads, positions, 2 * pairs], dtype, device, rng);
        for inverse in [false, true] {
            x.map(|x| {
                let table = RotaryTable::new(positions + 3, 2 * pairs, 10_000.0, x.dtype(), &x.device())?;
                ops::rotary(x, &table.slice(3..positions + 3)?, inverse)
            })
            .check(&format!("{heads} {positions} {pairs} inverse {inverse}, {context}"));
        }
    });
}

#[test]
fn cumulative_sums_along_any_axis() {
    for_all(24, |device, dtype, rng, context| {
        let mut sizes = shape(rng);
        sizes.push([1, 3, 31, 256, 257, 1025][rng.random_range(0..6)]);
        let x = view(&sizes, dtype, device, rng);
        let axis = rng.random_range(0..sizes.len());
        for reverse in [false, true] {
            x.map(|x| ops::cumsum(x, axis, reverse))
                .check(&format!("{sizes:?} along {axis}, {reverse}, {context}"));
        }
    });
}

/// Few different values, so that many are equal, and some that are no numbers.
fn with_ties(x: &Array) -> Result<Array> {
    let rounded: Vec<f64> = x
        .to_f64_vec()?
        .into_iter()
        .map(|value| match (value * 4.0).round() / 4.0 {
            value if value > 2.0 => f64::NAN,
            value if value < -2.0 => f64::NEG_INFINITY,
            value => value,
        })
        .collect();
    Array::from_slice(&rounded, x.shape(), &Device::Cpu)
}

#[test]
fn order_and_extrema_are_exact() {
    for_all(24, |device, dtype, rng, context| {
        let (rows, size) = ([0, 1, 3, 17][rng.random_range(0..4)], length(rng));
        let values = with_ties(&Array::randn([rows, size], DType::F64, &Device::Cpu, rng).unwrap()).unwrap();
        let x = Pair::of(&values, dtype, device);
        let transposed = x.map(|x| x.transpose(0, 1)?.contiguous());
        let context = format!("{rows}×{size}, {context}");
        let same = |tested: &Positions, reference: &Positions, what: &str| {
            assert_eq!(tested.shape(), reference.shape(), "{what}, {context}");
            assert_eq!(tested.to_vec().unwrap(), reference.to_vec().unwrap(), "{what}, {context}");
        };
        for (x, axis) in [(&x, 1), (&transposed, 0)] {
            for order in [Order::Ascending, Order::Descending] {
                for count in [size, size.min(3), 0] {
                    let tested = ops::top_k(&x.tested, axis, count, order).unwrap();
                    let reference = ops::top_k(&x.reference, axis, count, order).unwrap();
                    pair(tested.0.clone(), reference.0).check_exact(&format!("{count} {order:?}, {context}"));
                    same(&tested.1, &reference.1, &format!("{count} {order:?}"));
                    // The positions are where the values came from.
                    let gathered = ops::gather(&x.tested, axis, &tested.1).unwrap();
                    let again = tested.0.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
                    pair(gathered, again).check_exact(&context);
                }
            }
            for (name, find) in
                [("argmax", ops::argmax as fn(&Array, usize) -> Result<Positions>), ("argmin", ops::argmin)]
            {
                same(&find(&x.tested, axis).unwrap(), &find(&x.reference, axis).unwrap(), name);
            }
        }
    });
}

#[test]
fn gather_and_scatter() {
    for_all(24, |device, dtype, rng, context| {
        let [outer, size, count, inner] = [3, 9, 20, 5].map(|most| rng.random_range(0..most));
        let size = size + 1;
        let shape = [outer, count, inner];
        let values: Vec<usize> = (0..outer * count * inner).map(|_| rng.random_range(0..size)).collect();
        let positions = |x: &Array| Positions::new(&values, shape, size, &x.device()).unwrap();
        let context = format!("{outer} {size} {count} {inner}, {context}");
        let x = view(&[outer, size, inner], dtype, device, rng);
        x.map(|x| ops::gather(x, 1, &positions(x))).check_exact(&context);
        let y = view(&shape, dtype, device, rng);
        y.map(|y| ops::scatter_add(y, 1, &positions(y), size)).check(&context);
        // Without repetition, as sorting gives them.
        let x = view(&[outer, size, inner], dtype, device, rng);
        x.map(|x| ops::scatter_add(x, 1, &ops::sort(x, 1, Order::Ascending)?.1, size)).check_exact(&context);
    });
}

#[test]
fn replaced_indices_are_what_is_read() {
    for_all(4, |device, dtype, rng, context| {
        let x = Pair::randn([7, 5], dtype, device, rng);
        let draw = |rng: &mut _| -> Vec<usize> { (0..9).map(|_| Rng::next_u32(rng) as usize % 7).collect() };
        let (first, second) = (draw(rng), draw(rng));
        let index = Index::new(&first, 7, device).unwrap();
        let reference = Index::new(&second, 7, &Device::Cpu).unwrap();
        index.reciprocal_counts(dtype).unwrap();
        assert!(index.overwrite(&reference).unwrap());
        let chosen = |index: &Index, x: &Array| ops::index_select(x, 0, index).unwrap();
        let selected = pair(chosen(&index, &x.tested), chosen(&reference, &x.reference));
        selected.check_exact(context);
        let sum = |index: &Index, x: &Array| ops::segment_sum(x, 0, index).unwrap();
        pair(sum(&index, &selected.tested), sum(&reference, &selected.reference)).check(context);
        let counts = |index: &Index, dtype| index.reciprocal_counts(dtype).unwrap();
        pair(counts(&index, dtype), counts(&reference, DType::F64)).check(context);
    });
}
