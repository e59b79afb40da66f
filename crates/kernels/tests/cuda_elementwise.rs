//! Elementwise operators on every device: views, broadcasting, every dtype.

mod common;

use common::{Pair, for_all, rng, shape, view};
use gradewise_kernels::{Array, DType, Device, Error, Result, ops};
use rand::RngExt;

type Unary = (&'static str, fn(&Array) -> Result<Array>);

fn functions_of_one_array() {
    let anywhere: &[Unary] = &[
        ("neg", ops::neg),
        ("abs", ops::abs),
        ("sign", ops::sign),
        ("exp", ops::exp),
        ("recip", ops::recip),
        ("square", ops::square),
        ("sin", ops::sin),
        ("cos", ops::cos),
        ("tanh", ops::tanh),
        ("erf", ops::erf),
        ("sigmoid", ops::sigmoid),
        ("silu", ops::silu),
        ("gelu", ops::gelu),
        ("silu_derivative", ops::silu_derivative),
        ("gelu_derivative", ops::gelu_derivative),
        ("relu", ops::relu),
        ("not_finite", ops::not_finite),
        ("add_scalar", |x| ops::add_scalar(x, -0.75)),
        ("mul_scalar", |x| ops::mul_scalar(x, 2.5)),
        ("clamp", |x| ops::clamp(x, -0.5, 0.75)),
        ("cube", |x| ops::pow_scalar(x, 3.0)),
        ("power -2", |x| ops::pow_scalar(x, -2.0)),
        ("power 0", |x| ops::pow_scalar(x, 0.0)),
    ];
    let positive: &[Unary] = &[
        ("log", ops::log),
        ("sqrt", ops::sqrt),
        ("rsqrt", ops::rsqrt),
        ("power 0.7", |x| ops::pow_scalar(x, 0.7)),
        ("power -1.5", |x| ops::pow_scalar(x, -1.5)),
    ];
    for_all(12, |device, dtype, rng, context| {
        let x = view(&shape(rng), dtype, device, rng);
        for (name, function) in anywhere {
            x.map(function).check(&format!("{name}, {context}"));
        }
        // Away from zero, so that the logarithm keeps its digits.
        let x = Pair::of(&ops::exp(&x.reference).unwrap(), dtype, device);
        for (name, function) in positive {
            x.map(function).check(&format!("{name}, {context}"));
        }
    });
}

fn functions_at_the_ends_of_the_range() {
    let functions: &[Unary] = &[
        ("neg", ops::neg),
        ("abs", ops::abs),
        ("sign", ops::sign),
        ("exp", ops::exp),
        ("log", ops::log),
        ("sqrt", ops::sqrt),
        ("rsqrt", ops::rsqrt),
        ("recip", ops::recip),
        ("tanh", ops::tanh),
        ("erf", ops::erf),
        ("sigmoid", ops::sigmoid),
        ("relu", ops::relu),
        ("not_finite", ops::not_finite),
        ("clamp", |x| ops::clamp(x, -1.0, 1.0)),
        ("cube", |x| ops::pow_scalar(x, 3.0)),
    ];
    let inf = f64::INFINITY;
    let values = [0.0, -0.0, 1.0, -1.0, inf, -inf, f64::NAN, 1e-3, -1e-3, 30.0, -30.0];
    for_all(1, |device, dtype, _, context| {
        let values = Array::from_slice(&values, [values.len()], &Device::Cpu).unwrap();
        let x = Pair::of(&values, dtype, device);
        for (name, function) in functions {
            for at in 0..values.elements() {
                // One by one: large values hide nothing. Results beyond the dtype's range are its infinities.
                let pair = x.map(|x| function(&x.slice(0, at..at + 1)?));
                let (tested, expected) = (pair.tested.item().unwrap(), pair.reference.cast(dtype).unwrap());
                let (expected, value) = (expected.item().unwrap(), values.to_vec::<f64>().unwrap()[at]);
                let close = (tested - expected).abs() <= 4.0 * common::tolerance(dtype) * expected.abs();
                let tiny = (tested - expected).abs() < 1e-7;
                assert!(
                    tested == expected || (tested.is_nan() && expected.is_nan()) || close || tiny,
                    "{name}({value}), {context}: {tested} instead of {expected}"
                );
            }
        }
    });
}

fn large_angles_are_reduced_exactly() {
    for_all(2, |device, dtype, rng, context| {
        if dtype == DType::F16 {
            return; // Its numbers end at 65504.
        }
        let x = Array::randn([777], DType::F64, &Device::Cpu, rng).unwrap();
        let x = Pair::of(&ops::mul_scalar(&x, 1e6).unwrap(), dtype, device);
        x.map(ops::sin).check(context);
        x.map(ops::cos).check(context);
    });
}

type Binary = (&'static str, fn(&Array, &Array) -> Result<Array>);

const ARITHMETIC: &[Binary] = &[("add", ops::add), ("sub", ops::sub), ("mul", ops::mul), ("div", ops::div)];

const EXACT: &[Binary] = &[
    ("max", ops::max),
    ("min", ops::min),
    ("equal", ops::equal),
    ("not_equal", ops::not_equal),
    ("greater", ops::greater),
    ("greater_equal", ops::greater_equal),
    ("less", ops::less),
    ("less_equal", ops::less_equal),
];

fn both(a: &Pair, b: &Pair, f: impl Fn(&Array, &Array) -> Result<Array>) -> Pair {
    Pair { tested: f(&a.tested, &b.tested).unwrap(), reference: f(&a.reference, &b.reference).unwrap() }
}

/// The shape, some of its axes 1 and some leading ones missing.
fn smaller(shape: &[usize], rng: &mut impl rand::Rng) -> Vec<usize> {
    let first = rng.random_range(0..=shape.len());
    shape[first..].iter().map(|&size| if rng.random_bool(0.3) { 1 } else { size }).collect()
}

fn functions_of_two_arrays() {
    for_all(24, |device, dtype, rng, context| {
        let shape = shape(rng);
        let a = view(&shape, dtype, device, rng);
        let b = view(&smaller(&shape, rng), dtype, device, rng);
        for (name, function) in ARITHMETIC {
            both(&a, &b, function).check(&format!("{name}, {context}"));
            both(&b, &a, function).check(&format!("{name} reversed, {context}"));
        }
        // Rounded to few values, so that some are equal.
        let round = |x: &Pair| {
            let few = ops::sign(&ops::clamp(&x.reference, -0.7, 0.7).unwrap()).unwrap();
            Pair::of(&few, dtype, device)
        };
        let (few_a, few_b) = (round(&a), round(&b));
        for (name, function) in EXACT {
            both(&a, &b, function).check_exact(&format!("{name}, {context}"));
            both(&few_a, &few_b, function).check_exact(&format!("{name} of few values, {context}"));
        }
    });
}

/// Neighbours are accessed sixteen or eight bytes at a time where a view lets them be, and one by one elsewhere.
fn views_at_every_offset_and_width() {
    for_all(1, |device, dtype, rng, context| {
        let stored = Pair::randn([5, 40], dtype, device, rng);
        for columns in [1, 4, 7, 8, 12, 16, 20, 24] {
            for start in (0..10).chain([12, 16]) {
                let x = stored.map(|x| x.slice(1, start..start + columns));
                let row = stored.map(|x| x.slice(0, 1..2)?.slice(1, start / 2..start / 2 + columns));
                let column = stored.map(|x| x.slice(1, start..start + 1));
                let context = format!("{columns} from {start}, {context}");
                x.map(|x| ops::mul_scalar(x, -2.0)).check_exact(&context);
                both(&x, &row, ops::max).check_exact(&context);
                both(&x, &column, ops::min).check_exact(&context);
            }
        }
    });
}

fn nan_wins_in_extrema_and_differs_from_everything() {
    for_all(1, |device, dtype, _, context| {
        let pair = |values: &[f64]| {
            Pair::of(&Array::from_slice(values, [values.len()], &Device::Cpu).unwrap(), dtype, device)
        };
        let (a, b) = (pair(&[f64::NAN, 1.0, f64::NAN, 2.0]), pair(&[1.0, f64::NAN, f64::NAN, 2.0]));
        for (name, function) in EXACT {
            both(&a, &b, function).check_exact(&format!("{name}, {context}"));
        }
    });
}

fn accumulation_in_place_and_into_copies() {
    for_all(16, |device, dtype, rng, context| {
        let shape = shape(rng);
        let b = view(&smaller(&shape, rng), dtype, device, rng);
        // Alone, it is changed in place; a view or a shared array is copied.
        let mut alone = Pair::randn(shape.clone(), dtype, device, rng);
        let mut shared = alone.clone();
        let before = shared.clone();
        for a in [&mut shared, &mut alone] {
            ops::add_assign(&mut a.tested, &b.tested).unwrap();
            ops::add_assign(&mut a.reference, &b.reference).unwrap();
            a.check(context);
        }
        let kept = before.map(|x| Ok(x.clone()));
        kept.check_exact(&format!("what shared the storage is as it was, {context}"));
        let mut strided = view(&shape, dtype, device, rng);
        ops::add_assign(&mut strided.tested, &b.tested).unwrap();
        ops::add_assign(&mut strided.reference, &b.reference).unwrap();
        strided.check(context);
    });
}

fn sums_of_several_arrays() {
    for_all(8, |device, dtype, rng, context| {
        let shape = shape(rng);
        let all: Vec<Pair> = (0..17).map(|_| view(&shape, dtype, device, rng)).collect();
        for count in [1, 2, 3, 4, 5, 8, 9, 17] {
            let context = format!("{count} arrays, {context}");
            let tested: Vec<&Array> = all[..count].iter().map(|pair| &pair.tested).collect();
            let reference: Vec<&Array> = all[..count].iter().map(|pair| &pair.reference).collect();
            // Beside the terms, which may cancel.
            let check = |sum: &Pair| {
                let beside =
                    |sum: &Array, terms: &[&Array]| ops::stack(&[&[sum], terms].concat(), 0).unwrap();
                Pair { tested: beside(&sum.tested, &tested), reference: beside(&sum.reference, &reference) }
                    .check(&context);
            };
            let total = |first: &Array, others: &[&Array]| {
                others.iter().fold(first.clone(), |sum, x| ops::add(&sum, x).unwrap())
            };
            let sum = Pair {
                tested: ops::add_n(&tested).unwrap(),
                reference: total(reference[0], &reference[1..]),
            };
            check(&sum);
            assert!(sum.tested.is_unique() && sum.tested.is_contiguous(), "{context}");
            // In place where it can be, into a copy of what is shared or strided.
            let mut alone = all[0].map(ops::neg);
            let (mut shared, mut strided) = (all[0].map(ops::neg), all[count - 1].clone());
            let before = shared.clone();
            for a in [&mut shared, &mut alone, &mut strided] {
                ops::add_n_assign(&mut a.tested, &tested).unwrap();
                a.reference = total(&a.reference, &reference);
                check(a);
            }
            before.check_exact(&format!("what shared the storage is as it was, {context}"));
        }
    });
}

fn a_sum_of_several_arrays_is_rounded_once() {
    for_all(4, |device, dtype, rng, context| {
        for elements in [1, 7, 8, 64, 1001] {
            // Whole numbers that every dtype holds, whose sums bf16 does not.
            let all: Vec<Pair> = (0..8)
                .map(|_| {
                    let values: Vec<f64> =
                        (0..elements).map(|_| f64::from(rng.random_range(-200..=200))).collect();
                    Pair::of(&Array::from_slice(&values, [elements], &Device::Cpu).unwrap(), dtype, device)
                })
                .collect();
            for count in 2..=8 {
                let of = |pick: fn(&Pair) -> &Array| {
                    ops::add_n(&all[..count].iter().map(pick).collect::<Vec<_>>()).unwrap()
                };
                Pair { tested: of(|pair| &pair.tested), reference: of(|pair| &pair.reference) }
                    .check_exact(&format!("{count} arrays of {elements}, {context}"));
            }
        }
    });
}

fn choices_are_exact_and_hide_what_is_not_chosen() {
    for_all(16, |device, dtype, rng, context| {
        let shape = shape(rng);
        let (x, b) = (view(&shape, dtype, device, rng), view(&shape, dtype, device, rng));
        let a = view(&smaller(&shape, rng), dtype, device, rng);
        let mask = x.map(|x| ops::greater(x, &ops::mul_scalar(x, 0.0)?));
        let nan = b.map(|b| ops::log(&ops::neg(&ops::square(b)?)?));
        let choose = |mask: &Pair, a: &Pair, b: &Pair| Pair {
            tested: ops::select(&mask.tested, &a.tested, &b.tested).unwrap(),
            reference: ops::select(&mask.reference, &a.reference, &b.reference).unwrap(),
        };
        choose(&mask, &a, &b).check_exact(context);
        choose(&mask, &a, &nan).check_exact(context);
    });
}

fn conversions_round_once(device: &Device) {
    for from in DType::ALL {
        for to in DType::ALL {
            for seed in 0..8 {
                let rng = &mut rng(seed);
                let context = format!("{from} to {to}, seed {seed}");
                // Magnitudes over the range of f16 and beyond; ties between neighbours in the narrower types.
                let scale = 2f64.powi(rng.random_range(-30..20));
                let x = view(&shape(rng), from, device, rng);
                let scaled = ops::mul_scalar(&x.reference, scale).unwrap().cast(from).unwrap();
                let ties = Array::from_f64(
                    &(0..512).map(|i| 1.0 + f64::from(i) / 512.0 / 8.0).collect::<Vec<_>>(),
                    [512],
                    from,
                    &Device::Cpu,
                )
                .unwrap();
                for x in [scaled, ties] {
                    let tested = x.to_device(device).unwrap().cast(to).unwrap();
                    assert_eq!(tested.dtype(), to);
                    let (a, b) = (tested.to_f64_vec().unwrap(), x.cast(to).unwrap().to_f64_vec().unwrap());
                    assert_eq!(a, b, "{context}");
                }
                // Views are read as they are seen.
                let seen = x.tested.cast(to).unwrap().to_f64_vec().unwrap();
                let expected = x.reference.cast(from).unwrap().cast(to).unwrap().to_f64_vec().unwrap();
                assert_eq!(seen, expected, "{context}");
            }
        }
    }
}

fn doubles_are_not_rounded_twice(device: &Device) {
    // Just above the middle of two neighbours: by way of f32 these would land on the middle, and then on the even one.
    let values =
        [1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1.0 + 2f64.powi(-8) + 2f64.powi(-40), 65_519.999_999_9];
    for dtype in [DType::F16, DType::BF16] {
        let x = Array::from_slice(&values, [values.len()], &Device::Cpu).unwrap();
        let tested = x.to_device(device).unwrap().cast(dtype).unwrap().to_f64_vec().unwrap();
        assert_eq!(tested, x.cast(dtype).unwrap().to_f64_vec().unwrap(), "{dtype}");
    }
}

fn more_axes_than_a_kernel_walks() {
    for_all(2, |device, dtype, rng, context| {
        let x = Pair::randn([2; 12], dtype, device, rng);
        let reversed = x.map(|x| x.permute(&(0..12).rev().collect::<Vec<_>>()));
        reversed.map(Array::contiguous).check_exact(context);
        reversed.map(ops::exp).check(context);
        both(&x, &reversed, ops::mul).check(context);
        reversed.map(|x| ops::sum(x, &[1, 3, 5, 7, 9, 11], false)).check(context);
    });
}

fn dropout_masks_have_the_same_bits_everywhere() {
    for_all(6, |device, dtype, rng, context| {
        let elements = [0, 1, 2, 3, 5, 1 << 10, 100_003][rng.random_range(0..7)];
        let (p, seed, stream) = (rng.random_range(0.0..0.9), rng.random(), rng.random());
        let key = ops::RandomStream { seed, stream };
        let tested = ops::dropout_mask([elements], p, key, dtype, device).unwrap();
        let reference = ops::dropout_mask([elements], p, key, DType::F64, &Device::Cpu).unwrap();
        Pair { tested, reference }.check_exact(context);
    });
}

fn a_capture_draws_no_mask_for_every_replay_would_draw_the_same(device: &Device) {
    let Device::Cuda(cuda) = device else { panic!("a GPU") };
    let captured = cuda.capture(|| {
        ops::dropout_mask([8], 0.5, ops::RandomStream { seed: 1, stream: 2 }, DType::F32, device).map(drop)
    });
    assert!(matches!(captured.map(drop), Err(Error::InCapture { .. })));
    assert!(
        ops::dropout_mask([8], 0.5, ops::RandomStream { seed: 1, stream: 2 }, DType::F32, device).is_ok()
    );
}

fn operands_on_different_devices_are_refused(device: &Device) {
    let here = Array::ones([2], DType::F32, &Device::Cpu).unwrap();
    let there = Array::ones([2], DType::F32, device).unwrap();
    for error in [
        ops::add(&here, &there).unwrap_err(),
        ops::add(&there, &here).unwrap_err(),
        ops::select(&there, &there, &here).unwrap_err(),
        ops::concat(&[&there, &here], 0).unwrap_err(),
        ops::add_assign(&mut there.clone(), &here).unwrap_err(),
        ops::add_n(&[&there, &there, &here]).unwrap_err(),
        ops::add_n_assign(&mut here.clone(), &[&here, &there]).unwrap_err(),
    ] {
        assert!(matches!(error, Error::DeviceMismatch { .. }), "{error}");
    }
    let half = there.cast(DType::F16).unwrap();
    assert!(ops::mul(&there, &half).is_err(), "dtypes are not mixed either");
}

gradewise_testing::main!(
    functions_of_one_array,
    functions_at_the_ends_of_the_range,
    large_angles_are_reduced_exactly,
    functions_of_two_arrays,
    views_at_every_offset_and_width,
    nan_wins_in_extrema_and_differs_from_everything,
    accumulation_in_place_and_into_copies,
    sums_of_several_arrays,
    a_sum_of_several_arrays_is_rounded_once,
    choices_are_exact_and_hide_what_is_not_chosen,
    conversions_round_once,
    doubles_are_not_rounded_twice,
    more_axes_than_a_kernel_walks,
    dropout_masks_have_the_same_bits_everywhere,
    a_capture_draws_no_mask_for_every_replay_would_draw_the_same,
    operands_on_different_devices_are_refused,
);
