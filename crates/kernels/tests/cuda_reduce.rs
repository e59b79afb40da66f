//! Reductions, softmax, layer normalisation and statistics on every device.

mod common;

use common::{Pair, for_all, shape, view, view_of};
use gradewise_core::Error as CoreError;
use gradewise_kernels::{Array, DType, Device, Error, Result, ops};
use rand::{Rng, RngExt};

type Reduction = (&'static str, fn(&Array, &[usize], bool) -> Result<Array>);

const SUMS: &[Reduction] = &[("sum", ops::sum), ("mean", ops::mean)];
const EXTREMA: &[Reduction] = &[("max", ops::max_over), ("min", ops::min_over)];

fn some_axes(rank: usize, rng: &mut impl Rng) -> Vec<usize> {
    (0..rank).filter(|_| rng.random_bool(0.5)).collect()
}

fn reductions_over_any_axes() {
    for_all(48, |device, dtype, rng, context| {
        let shape = shape(rng);
        // Numbers of one sign: how much is left when sums cancel is no matter of the device.
        let x = view_of(ops::abs, &shape, dtype, device, rng);
        let (axes, keep) = (some_axes(shape.len(), rng), rng.random_bool(0.5));
        for (name, reduce) in SUMS {
            if *name == "sum" && dtype == DType::F16 && x.tested.elements() > 10_000 {
                continue; // Its numbers end at 65504.
            }
            x.map(|x| reduce(x, &axes, keep)).check(&format!("{name} of {shape:?} over {axes:?}, {context}"));
        }
        let x = view(&shape, dtype, device, rng);
        if axes.iter().all(|&axis| shape[axis] > 0) {
            for (name, reduce) in EXTREMA {
                let reduced = x.map(|x| reduce(x, &axes, keep));
                reduced.check_exact(&format!("{name} of {shape:?} over {axes:?}, {context}"));
            }
        }
    });
}

fn mean_squared_errors_and_their_gradients() {
    let check = |a: &Pair, b: &Pair, grad: &Pair, context: &str| {
        Pair {
            tested: ops::mean_squared_error(&a.tested, &b.tested).unwrap(),
            reference: ops::mean_squared_error(&a.reference, &b.reference).unwrap(),
        }
        .check(context);
        Pair {
            tested: ops::mean_squared_error_backward(&a.tested, &b.tested, &grad.tested).unwrap(),
            reference: ops::mean_squared_error_backward(&a.reference, &b.reference, &grad.reference).unwrap(),
        }
        .check(&format!("gradient, {context}"));
    };
    for_all(16, |device, dtype, rng, context| {
        let shape = shape(rng);
        let [a, b] = [(); 2].map(|()| view(&shape, dtype, device, rng));
        check(&a, &b, &Pair::randn([], dtype, device, rng), &format!("{shape:?}, {context}"));
    });
    // Several blocks, and a second stage.
    for_all(1, |device, dtype, rng, context| {
        for elements in [4097, 100_003] {
            let [a, b] = [(); 2].map(|()| Pair::randn([elements], dtype, device, rng));
            let grad = Pair::of(&Array::full([], 1000.0, DType::F64, &Device::Cpu).unwrap(), dtype, device);
            check(&a, &b, &grad, &format!("{elements} elements, {context}"));
        }
    });
    let [a, b] = [[2, 3], [2, 1]].map(|shape| Array::ones(shape, DType::F32, &Device::Cpu).unwrap());
    let error = ops::mean_squared_error(&a, &b).unwrap_err();
    assert!(
        matches!(&error, Error::Core(CoreError::Shape { operation: "mean_squared_error", actual, .. }) if *actual == [2, 1]),
        "{error:?}"
    );
    assert!(ops::mean_squared_error(&a, &a.cast(DType::F64).unwrap()).is_err());
    assert!(ops::mean_squared_error_backward(&a, &a, &a).is_err(), "no scalar");
}

fn long_and_wide_sums_in_two_stages() {
    let shapes: &[(&[usize], &[usize])] = &[
        (&[1_000_003], &[0]),
        (&[3, 100_001], &[1]),
        (&[100_001, 3], &[0]),
        (&[40_000, 28], &[0]),
        (&[8, 5000, 28], &[1]),
        (&[5000, 1030], &[1]),
        (&[1030, 5000], &[0]),
        (&[70_000, 9], &[1]),
    ];
    for_all(1, |device, dtype, rng, context| {
        for (shape, axes) in shapes {
            let values = Array::uniform(*shape, DType::F64, &Device::Cpu, rng).unwrap();
            let x = Pair::of(&values, dtype, device);
            for (name, reduce) in SUMS {
                if *name == "sum" && dtype == DType::F16 {
                    continue; // Its numbers end at 65504.
                }
                x.map(|x| reduce(x, axes, false)).check(&format!("{name} {shape:?} {axes:?}, {context}"));
            }
            for (name, reduce) in EXTREMA {
                let reduced = x.map(|x| reduce(x, axes, false));
                reduced.check_exact(&format!("{name} {shape:?} {axes:?}, {context}"));
            }
        }
    });
}

fn ten_million_terms_keep_six_digits() {
    for_all(1, |device, dtype, rng, context| {
        if dtype.size() == 2 {
            return; // The result would be rounded to fewer.
        }
        let values = Array::uniform([10_000_000], DType::F64, &Device::Cpu, rng).unwrap();
        let x = Pair::of(&values, dtype, device);
        x.map(|x| ops::sum(x, &[0], false)).check(context);
    });
}

fn nothing_and_nan() {
    for_all(1, |device, dtype, _, context| {
        for (shape, axis) in [([0, 3], 0), ([3, 0], 1), ([0, 3], 1)] {
            let x = Pair::of(&Array::zeros(shape, DType::F64, &Device::Cpu).unwrap(), dtype, device);
            for (name, reduce) in SUMS {
                x.map(|x| reduce(x, &[axis], false)).check_exact(&format!("{name} of nothing, {context}"));
            }
        }
        let values = [1.0, f64::NAN, 2.0, f64::NEG_INFINITY, 5.0, -1.0];
        let x = Pair::of(&Array::from_slice(&values, [2, 3], &Device::Cpu).unwrap(), dtype, device);
        for (name, reduce) in SUMS.iter().chain(EXTREMA) {
            for axis in [0, 1] {
                x.map(|x| reduce(x, &[axis], false)).check_exact(&format!("{name} with NaN, {context}"));
            }
        }
    });
}

fn softmax_along_any_axis() {
    for_all(24, |device, dtype, rng, context| {
        let mut sizes = shape(rng);
        sizes.push(
            [1, 3, 8, 31, 33, 128, 257, 512, 1025, 1536, 4104, 16_384, 32_768, 33_000]
                [rng.random_range(0..14)],
        );
        let x = view(&sizes, dtype, device, rng);
        let axis = rng.random_range(0..sizes.len());
        x.map(|x| ops::softmax(x, axis)).check(&format!("softmax of {sizes:?} along {axis}, {context}"));
        x.map(|x| ops::log_softmax(x, axis)).check(&format!("logarithm, {sizes:?} along {axis}, {context}"));
    });
}

fn softmax_of_masked_rows_and_nan() {
    let inf = f64::INFINITY;
    let values = [1e4, -1e4, 0.0, -inf, -inf, -inf, f64::NAN, 0.0, 1.0, -inf, 2.0, 2.0];
    for_all(1, |device, dtype, _, context| {
        let x = Pair::of(&Array::from_slice(&values, [4, 3], &Device::Cpu).unwrap(), dtype, device);
        x.map(|x| ops::softmax(x, 1)).check(context);
        x.map(|x| ops::log_softmax(x, 1)).check(context);
    });
}

fn layer_norm_forward_and_backward() {
    for_all(20, |device, dtype, rng, context| {
        let features = [1, 5, 17, 32, 64, 100, 128, 160, 384, 1000, 1025, 512, 1032, 3000, 4104, 16_384]
            [rng.random_range(0..16)];
        let rows = [0, 1, 2, 7, 33, 300][rng.random_range(0..if features > 4000 { 5 } else { 6 })];
        let context = format!("{rows}×{features}, {context}");
        // Rows of one value have no direction to normalise: no repeated entries.
        let x = Pair::randn([features, rows], dtype, device, rng).map(|x| x.transpose(0, 1));
        let (weight, bias) = (view(&[features], dtype, device, rng), view(&[features], dtype, device, rng));
        let grad = Pair::randn([rows, features + 3], dtype, device, rng).map(|x| x.slice(1, 2..2 + features));
        for affine in [false, true] {
            let run = |side: fn(&Pair) -> &Array| {
                let (x, grad) = (side(&x), side(&grad));
                let (weight, bias) = (affine.then(|| side(&weight)), affine.then(|| side(&bias)));
                let forward = ops::layer_norm(x, weight, bias, 1e-5).unwrap();
                let ops::layer_norm::LayerNorm { mean, inverse_std, .. } = &forward;
                let gradients = ops::layer_norm_backward(x, weight, affine, mean, inverse_std, grad).unwrap();
                (forward.output, gradients)
            };
            let (tested, reference) = (run(|pair| &pair.tested), run(|pair| &pair.reference));
            let check = |tested: &Array, reference: &Array, what: &str| {
                let pair = Pair { tested: tested.clone(), reference: reference.clone() };
                pair.check(&format!("{what}, {context}"));
            };
            check(&tested.0, &reference.0, "output");
            if features == 1 {
                // A row of one value is constant whatever it is: the gradient is 0, up to the rounding of terms ∼ 1/√ε.
                let largest = tested.1.x.to_f64_vec().unwrap().into_iter().map(f64::abs).fold(0.0, f64::max);
                assert!(largest <= 1e4 * common::tolerance(dtype), "gradient of x, {context}: {largest:e}");
            } else {
                check(&tested.1.x, &reference.1.x, "gradient of x");
            }
            assert_eq!(tested.1.weight.is_some(), affine);
            for (what, tested, reference) in [
                ("gradient of the weight", &tested.1.weight, &reference.1.weight),
                ("gradient of the bias", &tested.1.bias, &reference.1.bias),
            ] {
                if let (Some(tested), Some(reference)) = (tested, reference) {
                    check(tested, reference, what);
                }
            }
        }
    });
}

/// Many rows at work at a time, each of which must come out as it does alone.
fn rows_do_not_depend_on_each_other(device: &Device) {
    for dtype in DType::ALL {
        // Of each way to hold a row, with more rows than any device has at work at a time; in the last one of each, not all threads have
        // something to do.
        for (rows, columns) in [
            (9000, 320),
            (9000, 1024),
            (5000, 2056),
            (1500, 4096),
            (1200, 8200),
            (600, 15_008),
            (600, 32_000),
        ] {
            let rng = &mut common::rng(columns as u64);
            let Pair { tested: x, .. } = Pair::randn([rows, columns], dtype, device, rng);
            let Pair { tested: weight, .. } = Pair::randn([columns], dtype, device, rng);
            let run = |x: &Array| {
                let (both, one) = (
                    ops::layer_norm(x, Some(&weight), Some(&weight), 1e-5).unwrap(),
                    ops::layer_norm(x, None, Some(&weight), 1e-5).unwrap(),
                );
                let rms = ops::rms_norm(x, Some(&weight), 1e-5).unwrap();
                let (mean, inverse_std) = (&both.mean, &both.inverse_std);
                let backward =
                    ops::layer_norm_backward(x, Some(&weight), false, mean, inverse_std, &one.output)
                        .unwrap();
                let rms_backward = ops::rms_norm_backward(x, None, &rms.inverse_rms, &one.output).unwrap();
                [
                    ops::softmax(x, 1).unwrap(),
                    ops::log_softmax(x, 1).unwrap(),
                    both.output,
                    one.output,
                    rms.output,
                    backward.x,
                    rms_backward.x,
                    both.mean.reshape([x.dims()[0], 1]).unwrap(),
                    both.inverse_std.reshape([x.dims()[0], 1]).unwrap(),
                    rms.inverse_rms.reshape([x.dims()[0], 1]).unwrap(),
                ]
            };
            let all = run(&x);
            for start in [0, 1, rows / 2, rows - 3] {
                let some = start..start + 3;
                let alone = run(&x.slice(0, some.clone()).unwrap().contiguous().unwrap());
                for (which, (all, alone)) in all.iter().zip(&alone).enumerate() {
                    let (all, alone) = (
                        all.slice(0, some.clone()).unwrap().to_f64_vec().unwrap(),
                        alone.to_f64_vec().unwrap(),
                    );
                    assert!(all == alone, "{which} of rows {some:?} of {rows}×{columns}, {dtype}");
                }
            }
        }
    }
}

fn statistics_of_ordinary_and_of_bad_values() {
    for_all(6, |device, dtype, rng, context| {
        let mut values = view(&shape(rng), DType::F64, &Device::Cpu, rng).reference.to_f64_vec().unwrap();
        for _ in 0..rng.random_range(0..4) {
            values.extend([f64::NAN, f64::INFINITY, 3e10, -f64::INFINITY, -2e11]);
        }
        values.truncate(values.len() - values.len() % 2);
        let rounded = Array::from_f64(&values, [2, values.len() / 2], dtype, &Device::Cpu).unwrap();
        let rounded = rounded.transpose(0, 1).unwrap();
        let tested = rounded.to_device(device).unwrap();
        assert_eq!(tested.validate().unwrap(), rounded.validate().unwrap(), "{context}");
        let (a, b) = (tested.summary().unwrap(), rounded.summary().unwrap());
        assert_eq!((a.nan, a.infinite, &a.shape), (b.nan, b.infinite, &b.shape), "{context}");
        let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
        assert!(same(a.min, b.min) && same(a.max, b.max), "{context}: {a:?} {b:?}");
        assert!(a.first.len() == b.first.len() && a.first.iter().zip(&b.first).all(|(&a, &b)| same(a, b)));
        let close = |a: f64, b: f64, scale: f64| same(a, b) || (a - b).abs() <= 1e-12 * scale;
        assert!(close(a.mean, b.mean, b.max.abs() + b.min.abs()), "{context}: {a:?} {b:?}");
        assert!(close(a.std, b.std, b.std), "{context}: {a:?} {b:?}");
    });
}

fn same_inputs_same_bits(device: &Device) {
    for dtype in DType::ALL {
        let rng = &mut common::rng(1);
        let x = Pair::randn([517, 1031], dtype, device, rng).tested;
        let runs = || {
            let statistics = ops::layer_norm(&x, None, None, 1e-5).unwrap();
            let weight = Array::ones([1031], dtype, device).unwrap();
            let gradients = ops::layer_norm_backward(
                &x,
                Some(&weight),
                true,
                &statistics.mean,
                &statistics.inverse_std,
                &x,
            )
            .unwrap();
            [
                ops::sum(&x, &[0], false).unwrap(),
                ops::sum(&x, &[1], false).unwrap(),
                ops::mean(&x, &[0, 1], false).unwrap(),
                ops::softmax(&x, 1).unwrap(),
                gradients.weight.unwrap(),
                gradients.bias.unwrap(),
            ]
            .map(|result| result.to_f64_vec().unwrap())
        };
        assert_eq!(runs(), runs(), "{dtype}");
    }
}

fn more_than_two_to_the_31_elements(device: &Device) {
    let Device::Cuda(cuda) = device else { return };
    let (columns, elements) = (1usize << 10, (1usize << 31) + (3 << 10));
    let needed = 4 * 2 * elements;
    let free = cuda.memory().unwrap().free;
    if free < needed {
        eprintln!("skipped: {free} bytes are free on {device}, {needed} are needed");
        return;
    }
    let x = Array::full([elements / columns, columns], 1.0, DType::BF16, device).unwrap();
    let row = Array::from_f64(
        &(0..columns).map(|column| (column % 4) as f64).collect::<Vec<_>>(),
        [columns],
        DType::BF16,
        device,
    )
    .unwrap();
    let y = ops::add(&x, &row).unwrap();
    drop(x);
    let last = y.slice(0, elements / columns - 1..elements / columns).unwrap();
    let expected: Vec<f64> = (0..columns).map(|column| 1.0 + (column % 4) as f64).collect();
    assert_eq!(last.to_f64_vec().unwrap(), expected, "the last row, past 2^31");
    assert_eq!(ops::mean(&y, &[0, 1], false).unwrap().item().unwrap(), 2.5);
    let columns_last = y.transpose(0, 1).unwrap().contiguous().unwrap();
    drop(y);
    let corner = columns_last.slice(0, columns - 1..columns).unwrap();
    assert_eq!(ops::min_over(&corner, &[0, 1], false).unwrap().item().unwrap(), 4.0);
    assert_eq!(ops::max_over(&columns_last, &[0], false).unwrap().to_f64_vec().unwrap()[0], 4.0);
    let flat = columns_last.reshape([elements]).unwrap();
    drop((columns_last, corner));
    let negative = ops::neg(&flat).unwrap();
    let tail = negative.slice(0, elements - 2..elements).unwrap();
    assert_eq!(tail.to_f64_vec().unwrap(), [-4.0, -4.0]);
}

fn sizes_one_by_one() {
    // Every size around the widths of packs, warps and blocks.
    for_all(1, |device, dtype, rng, context| {
        for size in (1..=40).chain([255, 256, 257, 1023, 1024, 1025]) {
            let x = Pair::of(&Array::uniform([size], DType::F64, &Device::Cpu, rng).unwrap(), dtype, device);
            x.map(|x| ops::mean(x, &[0], false)).check(context);
            x.map(ops::neg).check_exact(context);
            let pair = x.map(|x| ops::softmax(x, 0));
            pair.check(&format!("softmax of {size}, {context}"));
        }
    });
}

gradewise_testing::main!(
    reductions_over_any_axes,
    mean_squared_errors_and_their_gradients,
    long_and_wide_sums_in_two_stages,
    ten_million_terms_keep_six_digits,
    nothing_and_nan,
    softmax_along_any_axis,
    softmax_of_masked_rows_and_nan,
    layer_norm_forward_and_backward,
    rows_do_not_depend_on_each_other,
    statistics_of_ordinary_and_of_bad_values,
    same_inputs_same_bits,
    more_than_two_to_the_31_elements,
    sizes_one_by_one,
);
