//! Copies, joins, padding, selection and constants on every device: nothing is changed on the way.

mod common;

use common::{Pair, for_all, rng, shape, size, view};
use gradewise_kernels::{Array, DType, Device, Index, ops};
use rand::{Rng, RngExt};

fn views_are_copied_as_they_are_seen() {
    for_all(48, |device, dtype, rng, context| {
        let x = view(&shape(rng), dtype, device, rng);
        x.check_exact(context);
        x.map(Array::contiguous).check_exact(context);
    });
}

fn many_views_are_copied_as_they_are_seen() {
    for_all(24, |device, dtype, rng, context| {
        let count = rng.random_range(0..36);
        let mut views: Vec<Pair> = (0..count).map(|_| view(&shape(rng), dtype, device, rng)).collect();
        // Matrices of a parameter, turned, as the modules of PyTorch give them.
        let [out, inputs, grades] = [size(rng), size(rng), size(rng)];
        let turned = |rng: &mut _| {
            Pair::randn([out, inputs, grades], dtype, device, rng).map(|x| x.permute(&[2, 1, 0]))
        };
        views.extend((0..5).map(|_| turned(rng)));
        let of = |side: fn(&Pair) -> &Array| {
            Array::contiguous_all(&views.iter().map(|pair| side(pair).clone()).collect::<Vec<_>>()).unwrap()
        };
        let (tested, reference) = (of(|pair| &pair.tested), of(|pair| &pair.reference));
        for ((tested, reference), given) in tested.into_iter().zip(reference).zip(&views) {
            assert!(tested.is_contiguous() && tested.dims() == given.tested.dims(), "{context}");
            assert_eq!(reference.to_f64_vec().unwrap(), given.reference.to_f64_vec().unwrap(), "{context}");
            Pair { tested, reference }.check_exact(context);
        }
    });
}

fn large_transposes_go_by_tiles() {
    for_all(6, |device, dtype, rng, context| {
        let [a, b, c] = [1, 2, 3].map(|_| [1, 15, 16, 17, 31, 32, 33, 65][rng.random_range(0..8)]);
        let x = Pair::randn([a, b, c], dtype, device, rng);
        for order in [[0, 2, 1], [2, 1, 0], [1, 0, 2], [2, 0, 1], [1, 2, 0]] {
            let copied = x.map(|x| x.permute(&order)?.contiguous());
            copied.check_exact(&format!("{a}×{b}×{c} by {order:?}, {context}"));
        }
    });
}

fn arrays_move_between_devices_unchanged(device: &Device) {
    // A stream of its own makes it another device, to which memory goes without the host.
    let beside = device.beside().unwrap();
    for (seed, dtype) in (0..12).flat_map(|seed| DType::ALL.map(|dtype| (seed, dtype))) {
        let (mut rng, context) = (rng(seed), format!("{dtype}, seed {seed}"));
        let x = view(&shape(&mut rng), dtype, device, &mut rng);
        for place in [&Device::Cpu, &beside] {
            let there = x.tested.to_device(place).unwrap();
            assert_eq!((there.device(), there.is_contiguous()), (place.clone(), true), "{context}");
            Pair { tested: there, reference: x.reference.clone() }.check_exact(&context);
        }
    }
}

fn constants_fill_every_element() {
    for_all(4, |device, dtype, rng, context| {
        for elements in [0, 1, 2, 3, 7, 8, 9, 31, 1000, 65_537] {
            let value = rng.random_range(-2.0..2.0);
            let tested = Array::full([elements], value, dtype, device).unwrap();
            let reference = Array::full([elements], value, DType::F64, &Device::Cpu).unwrap();
            Pair { tested, reference }.check_exact(context);
        }
    });
}

fn joined(parts: &[Pair], axis: usize) -> Pair {
    let of =
        |side: fn(&Pair) -> &Array| ops::concat(&parts.iter().map(side).collect::<Vec<_>>(), axis).unwrap();
    Pair { tested: of(|pair| &pair.tested), reference: of(|pair| &pair.reference) }
}

fn joins_and_padding() {
    for_all(24, |device, dtype, rng, context| {
        let mut sizes = shape(rng);
        sizes.push(size(rng).max(1));
        let axis = rng.random_range(0..sizes.len());
        let mut part = |rng: &mut _| {
            sizes[axis] = size(rng);
            view(&sizes, dtype, device, rng)
        };
        let parts = [part(rng), part(rng), part(rng)];
        joined(&parts, axis).check_exact(context);
        let length = parts[0].tested.dims()[axis];
        let start = rng.random_range(0..4);
        let after = rng.random_range(0..3) * 4;
        parts[0].map(|x| ops::pad(x, axis, start, start + length + after)).check_exact(context);
    });
}

/// A list of `count` indices below `bound`, on both devices.
fn index(count: usize, bound: usize, device: &Device, rng: &mut impl Rng) -> (Index, Index) {
    let values: Vec<usize> = (0..count).map(|_| rng.random_range(0..bound)).collect();
    (Index::new(&values, bound, device).unwrap(), Index::new(&values, bound, &Device::Cpu).unwrap())
}

fn selection_by_index() {
    for_all(32, |device, dtype, rng, context| {
        let mut sizes = [size(rng).min(17), size(rng).max(1), size(rng)].to_vec();
        sizes.swap(1, rng.random_range(0..3));
        let axis = rng.random_range(0..3);
        sizes[axis] = sizes[axis].max(1);
        let x = view(&sizes, dtype, device, rng);
        let (tested, reference) = index(size(rng), sizes[axis], device, rng);
        Pair {
            tested: ops::index_select(&x.tested, axis, &tested).unwrap(),
            reference: ops::index_select(&x.reference, axis, &reference).unwrap(),
        }
        .check_exact(context);
    });
}

fn sums_by_segment() {
    for_all(32, |device, dtype, rng, context| {
        // Short segments, empty ones, and few long ones.
        let bound = [1, 2, 7, 100][rng.random_range(0..4)];
        let count = [0, 1, 5, 64, 1000][rng.random_range(0..5)];
        let (axis, sizes) = match rng.random_range(0..3) {
            0 => (0, vec![count, size(rng)]),
            1 => (1, vec![3, count, size(rng).min(33)]),
            _ => (1, vec![size(rng).min(33), count]),
        };
        let x = view(&sizes, dtype, device, rng);
        let (tested, reference) = index(count, bound, device, rng);
        let pair = Pair {
            tested: ops::segment_sum(&x.tested, axis, &tested).unwrap(),
            reference: ops::segment_sum(&x.reference, axis, &reference).unwrap(),
        };
        pair.check(context);
        let again = ops::segment_sum(&x.tested, axis, &tested).unwrap();
        assert_eq!(again.to_f64_vec().unwrap(), pair.tested.to_f64_vec().unwrap(), "same bits, {context}");
    });
}

gradewise_testing::main!(
    views_are_copied_as_they_are_seen,
    many_views_are_copied_as_they_are_seen,
    large_transposes_go_by_tiles,
    arrays_move_between_devices_unchanged,
    constants_fill_every_element,
    joins_and_padding,
    selection_by_index,
    sums_by_segment,
);
