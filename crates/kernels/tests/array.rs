//! Views show the right elements, writing never reaches another array, and mistakes are named.

use gradewise_core::Error as CoreError;
use gradewise_kernels::{Array, DType, Device, Element, Error, Index, Shape, ops};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: Device = Device::Cpu;

fn numbered(shape: impl Into<Shape>) -> Array {
    let shape = shape.into();
    let values = (0..shape.elements()).map(|value| value as f64).collect::<Vec<_>>();
    Array::from_slice(&values, shape, &CPU).unwrap()
}

/// An array as a function from position to value: what views are checked against.
struct Model {
    sizes: Vec<usize>,
    value: Value,
}

type Value = Box<dyn Fn(&[usize]) -> f64>;

impl Model {
    fn of(array: &Array) -> Self {
        let values = array.to_f64_vec().unwrap();
        let strides = array.shape().contiguous_strides();
        let value = move |at: &[usize]| values[at.iter().zip(&strides).map(|(a, b)| a * b).sum::<usize>()];
        Self { sizes: array.dims().to_vec(), value: Box::new(value) }
    }

    fn flatten(&self) -> Vec<f64> {
        let mut out = vec![];
        let mut at = vec![0; self.sizes.len()];
        for _ in 0..self.sizes.iter().product() {
            out.push((self.value)(&at));
            for axis in (0..at.len()).rev() {
                at[axis] += 1;
                if at[axis] < self.sizes[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
        out
    }
}

fn apply(array: &Array, model: Model, choice: (u8, usize, usize)) -> (Array, Model) {
    let (kind, a, b) = choice;
    let rank = array.rank();
    let Model { sizes, value } = model;
    match kind {
        0 => {
            let (i, j) = (a % rank, b % rank);
            let mut sizes = sizes;
            sizes.swap(i, j);
            let value = move |at: &[usize]| {
                let mut at = at.to_vec();
                at.swap(i, j);
                value(&at)
            };
            (array.transpose(i, j).unwrap(), Model { sizes, value: Box::new(value) })
        }
        1 => {
            let axis = a % rank;
            let start = b % (sizes[axis] + 1);
            let end = start + (a * 7 + b * 3) % (sizes[axis] - start + 1);
            let mut sizes = sizes;
            sizes[axis] = end - start;
            let value = move |at: &[usize]| {
                let mut at = at.to_vec();
                at[axis] += start;
                value(&at)
            };
            (array.slice(axis, start..end).unwrap(), Model { sizes, value: Box::new(value) })
        }
        2 => {
            let axis = a % (rank + 1);
            let size = b % 4;
            let mut sizes = sizes;
            sizes.insert(axis, size);
            let value = move |at: &[usize]| {
                let mut at = at.to_vec();
                at.remove(axis);
                value(&at)
            };
            let view = array.unsqueeze(axis).unwrap().broadcast_to(sizes.clone()).unwrap();
            (view, Model { sizes, value: Box::new(value) })
        }
        _ => {
            let mut axes = (0..rank).collect::<Vec<_>>();
            axes.rotate_left(a % rank);
            let order = axes.clone();
            let sizes = axes.iter().map(|&axis| sizes[axis]).collect();
            let value = move |at: &[usize]| {
                let mut source = vec![0; at.len()];
                for (position, &axis) in order.iter().enumerate() {
                    source[axis] = at[position];
                }
                value(&source)
            };
            (array.permute(&axes).unwrap(), Model { sizes, value: Box::new(value) })
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn chains_of_views_show_the_right_elements(
        sizes in prop::collection::vec(1usize..20, 1..4),
        steps in prop::collection::vec((0u8..4, 0usize..9, 0usize..9), 0..5),
        split in 1usize..6,
    ) {
        let mut array = numbered(sizes);
        let mut model = Model::of(&array);
        for step in steps {
            (array, model) = apply(&array, model, step);
        }
        let expected = model.flatten();
        prop_assert_eq!(array.dims(), &model.sizes[..]);
        prop_assert_eq!(array.to_f64_vec().unwrap(), expected.clone());
        let contiguous = array.contiguous().unwrap();
        let together = Array::contiguous_all(&[array.clone(), contiguous.clone()]).unwrap();
        prop_assert!(together.iter().all(|each| each.is_contiguous() && each.to_f64_vec().unwrap() == contiguous.to_f64_vec().unwrap()));
        prop_assert!(contiguous.is_contiguous());
        prop_assert_eq!(contiguous.as_slice::<f64>().unwrap(), &expected[..]);
        let flat = array.reshape([expected.len()]).unwrap();
        prop_assert_eq!(flat.to_f64_vec().unwrap(), expected.clone());
        if expected.len().is_multiple_of(split) {
            let shape = [split, 1, expected.len() / split];
            prop_assert_eq!(array.reshape(shape).unwrap().to_f64_vec().unwrap(), expected);
        }
    }

    #[test]
    fn cast_rounds_and_returns(values in prop::collection::vec(-1e3f32..1e3, 1..50)) {
        let array = Array::from_slice(&values, [values.len()], &CPU).unwrap();
        let there = array.cast(DType::F64).unwrap();
        prop_assert_eq!(there.dtype(), DType::F64);
        prop_assert_eq!(there.cast(DType::F32).unwrap().to_vec::<f32>().unwrap(), values);
    }
}

#[test]
fn reshape_shares_storage_where_the_strides_allow() {
    let array = numbered([4, 6, 5]);
    let rows = array.slice(0, 1..3).unwrap();
    assert!(!rows.is_unique());
    let view = rows.slice(2, 0..2).unwrap();
    let merged = view.reshape([12, 1, 2]).unwrap();
    assert_eq!(merged.strides()[0], 5, "a view, not a copy");
    assert_eq!(merged.to_f64_vec().unwrap(), view.to_f64_vec().unwrap());
    let copied = view.reshape([24]).unwrap();
    assert!(copied.is_unique());
    assert_eq!(copied.to_f64_vec().unwrap(), view.to_f64_vec().unwrap());
}

#[test]
fn writing_copies_what_is_shared() {
    let original = numbered([2, 3]);
    let mut copy = original.clone();
    copy.as_mut_slice::<f64>().unwrap()[0] = 42.0;
    assert_eq!(original.to_f64_vec().unwrap()[0], 0.0);
    assert_eq!(copy.to_f64_vec().unwrap()[0], 42.0);
    drop(original);

    let address = copy.as_slice::<f64>().unwrap().as_ptr();
    copy.as_mut_slice::<f64>().unwrap()[1] = 43.0;
    assert_eq!(copy.as_slice::<f64>().unwrap().as_ptr(), address, "alone, it is written in place");

    let mut repeated = numbered([3]).broadcast_to([2, 3]).unwrap();
    repeated.as_mut_slice::<f64>().unwrap()[0] = 7.0;
    assert_eq!(repeated.to_f64_vec().unwrap(), [7.0, 1.0, 2.0, 0.0, 1.0, 2.0]);

    let mut part = numbered([4, 2]).slice(0, 1..3).unwrap();
    part.as_mut_slice::<f64>().unwrap()[3] = 9.0;
    assert_eq!(part.to_f64_vec().unwrap(), [2.0, 3.0, 4.0, 9.0]);
}

#[test]
fn unwritten_elements_of_a_built_array_show() {
    let array = Array::build([100], &CPU, |out: &mut [f32]| out[..99].fill(1.0)).unwrap();
    if cfg!(debug_assertions) {
        assert_eq!(array.validate().unwrap().nan, 1);
        assert!(array.as_slice::<f32>().unwrap()[99].is_nan());
    }
    assert_eq!(&array.as_slice::<f32>().unwrap()[..99], [1.0; 99]);
}

#[test]
fn empty_and_scalar_arrays() {
    let empty = numbered([3, 0, 2]);
    assert_eq!(empty.elements(), 0);
    assert!(empty.to_f64_vec().unwrap().is_empty());
    assert!(empty.transpose(0, 2).unwrap().contiguous().unwrap().as_slice::<f64>().unwrap().is_empty());
    assert_eq!(empty.reshape([0, 5]).unwrap().dims(), [0, 5]);
    assert!(numbered([3]).slice(0, 3..3).unwrap().as_slice::<f64>().unwrap().is_empty());

    let scalar = Array::scalar(2.5, DType::F32, &CPU).unwrap();
    assert_eq!((scalar.rank(), scalar.item().unwrap()), (0, 2.5));
    assert_eq!(scalar.broadcast_to([2, 2]).unwrap().to_f64_vec().unwrap(), [2.5; 4]);
    assert_eq!(scalar.reshape([1, 1]).unwrap().item().unwrap(), 2.5);
}

#[test]
fn random_numbers_are_the_same_in_every_dtype() {
    let draw = |dtype| {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        Array::randn([64, 65], dtype, &CPU, &mut rng).unwrap()
    };
    let (single, double) = (draw(DType::F32), draw(DType::F64));
    assert_eq!(single.to_f64_vec().unwrap(), double.cast(DType::F32).unwrap().to_f64_vec().unwrap());
    let summary = double.summary().unwrap();
    // Standard errors of mean and deviation are 1/√n and 1/√(2n), n = 4160; five of them are allowed.
    assert!(summary.mean.abs() < 0.08 && (summary.std - 1.0).abs() < 0.06, "{summary}");

    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let summary = Array::uniform([4160], DType::F32, &CPU, &mut rng).unwrap().summary().unwrap();
    assert!(summary.min >= 0.0 && summary.max < 1.0 && (summary.mean - 0.5).abs() < 0.025, "{summary}");
}

#[test]
fn summaries_and_validation_count_what_is_not_finite() {
    let values = [1.0, f64::NAN, -3.0, f64::INFINITY, 1e11, f64::NEG_INFINITY, 2.0];
    let array = Array::from_slice(&values, [7], &CPU).unwrap();
    let counts = array.validate().unwrap();
    assert_eq!((counts.nan, counts.infinite, counts.large), (1, 2, 1));
    let error = array.require_finite("train", "positions").unwrap_err();
    assert!(matches!(error, Error::NotFinite { argument: "positions", nan: 1, infinite: 2, .. }), "{error}");
    let text = array.to_string();
    assert!(text.contains("f64 [7] on cpu") && text.contains("1 NaN, 2 infinite"), "{text}");
    let summary = array.slice(0, 0..1).unwrap().summary().unwrap();
    assert_eq!((summary.min, summary.max, summary.mean, summary.std), (1.0, 1.0, 1.0, 0.0));
}

#[test]
fn relative_error_never_accepts_nan() {
    let a = Array::from_slice(&[3.0, 4.0], [2], &CPU).unwrap();
    let b = Array::from_slice(&[3.0, 4.5], [2], &CPU).unwrap();
    assert_eq!(b.relative_error(&a).unwrap(), 0.1);
    let nan = Array::from_slice(&[3.0, f64::NAN], [2], &CPU).unwrap();
    assert_eq!(nan.relative_error(&a).unwrap(), f64::INFINITY);
    assert_eq!(a.relative_error(&nan).unwrap(), f64::INFINITY);
    assert!(a.relative_error(&numbered([3])).is_err());
}

#[test]
fn mistakes_are_named() {
    let array = numbered([2, 3]);
    let wrong = Array::from_slice(&[1.0f32; 5], [2, 3], &CPU).unwrap_err();
    assert_eq!(wrong, Error::Length { operation: "from_slice", shape: [2, 3].into(), actual: 5 });
    assert_eq!(wrong.to_string(), "from_slice: 5 elements were given for shape [2, 3], which has 6");
    let wrong = Array::from_vec(vec![1.0f32; 5], [2, 3], &CPU).unwrap_err();
    assert!(matches!(wrong, Error::Length { operation: "from_vec", actual: 5, .. }), "{wrong}");
    assert!(matches!(array.reshape([4]), Err(Error::Length { operation: "reshape", actual: 6, .. })));
    assert!(matches!(array.slice(1, 2..4), Err(Error::Range { start: 2, end: 4, axis: 1, .. })));
    #[expect(clippy::reversed_empty_ranges)]
    let reversed = array.slice(1, 2..1);
    assert!(matches!(reversed, Err(Error::Range { .. })));
    let error = array.slice(2, 0..1).unwrap_err();
    assert!(matches!(error, Error::Core(CoreError::Axis { operation: "slice", axis: 2, .. })), "{error}");
    assert!(matches!(array.permute(&[0, 0]), Err(Error::Axes { .. })));
    assert!(matches!(array.permute(&[0]), Err(Error::Axes { .. })));
    assert!(array.transpose(0, 2).is_err());
    assert!(array.squeeze(0).is_err());
    assert!(array.unsqueeze(3).is_err());
    assert!(array.broadcast_to([3, 3]).is_err());
    assert!(array.broadcast_to([3]).is_err());
    assert!(array.item().is_err());
    let error = array.as_slice::<f32>().unwrap_err();
    let dtypes = |error: &Error| match error {
        Error::Core(CoreError::DType { actual, expected, .. }) => Some((*actual, *expected)),
        _ => None,
    };
    assert_eq!(dtypes(&error), Some((DType::F64, DType::F32)), "{error}");
    assert!(matches!(array.transpose(0, 1).unwrap().as_slice::<f64>(), Err(Error::NotContiguous { .. })));
    let half = Array::ones([2], DType::F16, &CPU).unwrap();
    assert!(matches!(ops::add(&half, &half), Err(Error::UnsupportedDType { .. })));
    assert!(matches!(Array::zeros([usize::MAX, 2], DType::F32, &CPU), Err(Error::OutOfMemory { .. })));
    assert_eq!(f32::DTYPE, DType::F32);
}

#[test]
fn half_precision_is_stored_and_converted_on_the_host() {
    let values = [1.0, -0.333251953125, 65504.0, 6.103515625e-5, 1.0 + 1e-9];
    let array = Array::from_f64(&values, [5], DType::F64, &CPU).unwrap();
    let half = array.cast(DType::F16).unwrap();
    assert_eq!(half.to_f64_vec().unwrap()[..4], values[..4], "exact in binary16");
    assert_eq!(half.to_vec::<half::f16>().unwrap()[4], half::f16::ONE);
    // Just above the middle between two numbers: rounded by way of f32, it would go down.
    let above =
        Array::from_f64(&[1.0 + 2f64.powi(-11) + 2f64.powi(-40), 65519.999], [2], DType::F64, &CPU).unwrap();
    assert_eq!(above.cast(DType::F16).unwrap().to_f64_vec().unwrap(), [1.0 + 2f64.powi(-10), 65504.0]);
    let brain = half.cast(DType::BF16).unwrap();
    assert_eq!(brain.cast(DType::F32).unwrap().to_vec::<f32>().unwrap()[2], 65536.0, "rounded to 8 bits");
    let column = brain.reshape([5, 1]).unwrap().broadcast_to([5, 2]).unwrap().contiguous().unwrap();
    assert_eq!(column.to_f64_vec().unwrap()[..2], [1.0, 1.0]);
}

#[test]
fn indices_are_checked_once() {
    let index = Index::new(&[2, 0, 2], 3, &CPU).unwrap();
    assert_eq!((index.len(), index.bound(), index.to_vec().unwrap()), (3, 3, vec![2, 0, 2]));
    let error = Index::new(&[0, 3], 3, &CPU).unwrap_err();
    assert_eq!(error, Error::Index { operation: "Index::new", position: 1, value: 3, bound: 3 });
    assert!(Index::new(&[0], 0, &CPU).is_err());
    assert!(Index::new(&[], 0, &CPU).unwrap().is_empty());
}
