//! What is beyond an operator's limits is an error that says so: shapes without end, products of other operands, ε below 0.

use gradewise_core::{Algebra, Error as CoreError, Signature};
use gradewise_kernels::{
    Array, DType, Device, Error, Index, ops,
    ops::{
        AttentionOptions, RotaryTable,
        clifford::{
            fcgp,
            sgp::{self, Operands, Product, ProductOptions},
        },
    },
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: Device = Device::Cpu;

fn random(shape: &[usize], dtype: DType) -> Array {
    Array::randn(shape, dtype, &CPU, &mut ChaCha8Rng::seed_from_u64(5)).unwrap()
}

#[test]
fn views_of_more_elements_than_fit_are_shown_and_refused_where_they_would_be_written_out() {
    let huge = Array::from_slice(&[1.0f32, -3.0], [2, 1], &CPU).unwrap().broadcast_to([2, 1 << 50]).unwrap();
    let text = huge.to_string();
    assert!(text.contains("min -3.0000 max 1.0000 mean -1.0000 std 2.0000"), "{text}");
    let wide = Array::scalar(f64::NAN, DType::F64, &CPU).unwrap().broadcast_to([1 << 50]).unwrap();
    assert_eq!(wide.validate().unwrap().nan, 1 << 50);
    for (array, name) in [(&huge, "to_vec"), (&wide, "to_vec")] {
        let error = array.to_f64_vec().unwrap_err();
        assert!(matches!(&error, Error::OutOfMemory { operation, .. } if *operation == name), "{error}");
    }
    let error = ops::mul(&huge, &huge).unwrap_err();
    assert!(matches!(&error, Error::OutOfMemory { operation: "mul", .. }), "{error}");
    let error = ops::exp(&huge).unwrap_err();
    assert!(matches!(&error, Error::OutOfMemory { operation: "exp", .. }), "{error}");
    let error = huge.contiguous().unwrap_err();
    assert!(matches!(&error, Error::OutOfMemory { operation: "contiguous", .. }), "{error}");
    let error = Array::zeros([1 << 50], DType::F32, &CPU).unwrap_err();
    assert!(matches!(&error, Error::OutOfMemory { operation: "zeros", .. }), "{error}");
}

#[test]
fn shapes_whose_elements_cannot_be_counted_are_refused() {
    let scalar = Array::scalar(1.0, DType::F32, &CPU).unwrap();
    for shape in [vec![usize::MAX, 2], vec![1 << 40, 1 << 40], vec![usize::MAX], vec![0, 1 << 40, 1 << 40]] {
        let error = scalar.broadcast_to(shape.clone()).unwrap_err();
        assert!(matches!(error, Error::Argument { operation: "broadcast_to", .. }), "{shape:?}: {error}");
    }
    let (tall, wide) =
        (Array::ones([1 << 12, 1], DType::F32, &CPU).unwrap(), scalar.broadcast_to([1, 1 << 60]).unwrap());
    assert!(ops::add(&tall, &wide).is_err());
    assert!(scalar.broadcast_to([0, 7]).unwrap().to_vec::<f32>().unwrap().is_empty());
}

#[test]
fn an_error_without_holders_does_not_list_them() {
    let error = Error::OutOfMemory {
        operation: "test",
        requested: 1,
        allocated: 0,
        reserved: 0,
        holders: Vec::new(),
    };
    assert!(!error.to_string().contains("largest"), "{error}");
    assert!(error.to_string().contains("system; reduce the batch"), "{error}");
}

#[test]
fn lengths_beyond_the_keys_are_named_as_that() {
    let x = random(&[1, 1, 3, 2], DType::F64);
    let attention = |bound: usize, lengths: &[usize]| {
        let lengths = Some(Index::new(lengths, bound, &CPU).unwrap());
        ops::attention(&x, &x, &x, &AttentionOptions { lengths, ..AttentionOptions::default() })
    };
    assert!(attention(4, &[2]).is_ok());
    let error = attention(9, &[2]).unwrap_err();
    assert!(matches!(error, Error::Argument { argument: "lengths", .. }), "{error}");
    assert!(error.to_string().contains("below 9") && error.to_string().contains("3 keys"), "{error}");
    let error = attention(4, &[2, 2]).unwrap_err();
    assert!(matches!(error, Error::Argument { argument: "lengths", .. } | Error::Core(_)), "{error}");
}

/// A product whose norms or shapes are not those of the forward pass would give the gradient of something else.
#[test]
fn gradients_of_a_product_are_of_that_product() {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let paths = algebra.paths().len();
    let (x, y, grad) =
        (random(&[8, 6, 4], DType::F64), random(&[8, 6, 4], DType::F64), random(&[8, 6, 4], DType::F64));
    type Forward = fn(&Algebra, &Operands<'_>, ProductOptions) -> gradewise_kernels::Result<Product>;
    type Backward = fn(
        &Algebra,
        &Operands<'_>,
        ProductOptions,
        &Product,
        &Array,
        sgp::Needs,
    ) -> gradewise_kernels::Result<sgp::ProductGradients>;
    let kinds: [(Array, Forward, Backward); 2] = [
        (random(&[4, paths], DType::F64), sgp::forward, sgp::backward),
        (random(&[paths, 4, 4], DType::F64), fcgp::forward, fcgp::backward),
    ];
    for (w, forward, backward) in kinds {
        let options = |normalize| ProductOptions { gate: true, normalize };
        let product =
            |normalize| forward(&algebra, &Operands { x: &x, y: &y, w: &w }, options(normalize)).unwrap();
        let gradients = |product: &Product, normalize| {
            let operands = Operands { x: &x, y: &y, w: &w };
            backward(&algebra, &operands, options(normalize), product, &grad, sgp::Needs::ALL)
        };
        let expected = gradients(&product(true), true).unwrap().x.unwrap().to_vec::<f64>().unwrap();
        assert!(gradients(&product(false), false).is_ok());
        for (made, wanted) in [(true, false), (false, true)] {
            let error = gradients(&product(made), wanted).err().unwrap();
            assert!(matches!(error, Error::Argument { argument: "product.inverse_rms", .. }), "{error}");
        }
        let foreign = |change: &dyn Fn(&mut Product)| {
            let mut product = product(true);
            change(&mut product);
            gradients(&product, true).err()
        };
        let narrow =
            foreign(&|p| p.inverse_rms = p.inverse_rms.as_ref().map(|a| a.cast(DType::F32).unwrap()));
        let (norms, output) = ("product.inverse_rms", "product.output");
        assert!(
            matches!(narrow, Some(Error::Core(CoreError::DType { argument, .. })) if argument == norms),
            "{narrow:?}"
        );
        let short = foreign(&|p| p.inverse_rms = p.inverse_rms.as_ref().map(|a| a.slice(1, 0..5).unwrap()));
        assert!(
            matches!(&short, Some(Error::Core(CoreError::Shape { argument, actual, .. })) if *argument == norms && *actual == [4, 5]),
            "{short:?}"
        );
        let part = foreign(&|p| p.output = p.output.slice(1, 0..5).unwrap());
        assert!(
            matches!(part, Some(Error::Core(CoreError::Shape { argument, .. })) if argument == output),
            "{part:?}"
        );
        // A view of the right values is as good as an array.
        let view =
            |array: &Array| array.transpose(0, 1).unwrap().contiguous().unwrap().transpose(0, 1).unwrap();
        let mut turned = product(true);
        (turned.output, turned.inverse_rms) = (view(&turned.output), turned.inverse_rms.as_ref().map(view));
        assert_eq!(gradients(&turned, true).unwrap().x.unwrap().to_vec::<f64>().unwrap(), expected);
    }
}

/// Without features there is nothing to normalise, and that is no mistake.
#[test]
fn products_of_no_features_or_rows_are_empty() {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let paths = algebra.paths().len();
    for (batch, features, outputs) in [(3, 0, 0), (3, 0, 2), (3, 2, 0), (0, 2, 2), (0, 0, 0)] {
        let (x, w) =
            (random(&[8, batch, features], DType::F64), random(&[paths, features, outputs], DType::F64));
        let options = ProductOptions { gate: true, normalize: true };
        let product = fcgp::forward(&algebra, &Operands { x: &x, y: &x, w: &w }, options).unwrap();
        assert_eq!(product.output.dims(), [8, batch, outputs]);
        assert!(product.output.to_vec::<f64>().unwrap().iter().all(|&value| value == 0.0));
        let norms = product.inverse_rms.as_ref().unwrap();
        assert!(norms.to_vec::<f64>().unwrap().iter().all(|value| (value - 1e3).abs() < 1e-9), "1/√ε");
        let gradients = fcgp::backward(
            &algebra,
            &Operands { x: &x, y: &x, w: &w },
            options,
            &product,
            &product.output,
            sgp::Needs::ALL,
        )
        .unwrap();
        let gradient = gradients.x.unwrap();
        assert_eq!(gradient.dims(), x.dims());
        assert!(gradient.to_vec::<f64>().unwrap().iter().all(|&value| value == 0.0));
        assert_eq!(gradients.w.unwrap().dims(), w.dims());
        let w = random(&[features, paths], DType::F64);
        let operands = Operands { x: &x, y: &x, w: &w };
        let product = sgp::forward(&algebra, &operands, options).unwrap();
        assert_eq!(product.inverse_rms.as_ref().unwrap().dims(), [4, batch]);
        let gradients =
            sgp::backward(&algebra, &operands, options, &product, &product.output, sgp::Needs::ALL).unwrap();
        assert_eq!(gradients.w.unwrap().dims(), w.dims());
    }
}

#[test]
fn an_epsilon_below_zero_is_refused() {
    let x = random(&[3, 4], DType::F64);
    for epsilon in [-1e-5, f64::NAN, f64::INFINITY] {
        let layer = ops::layer_norm(&x, None, None, epsilon).err().unwrap();
        let rms = ops::rms_norm(&x, None, epsilon).err().unwrap();
        for error in [layer, rms] {
            assert!(matches!(error, Error::Argument { argument: "epsilon", .. }), "{error}");
        }
    }
    assert!(ops::layer_norm(&x, None, None, 0.0).is_ok());
}

#[test]
fn angles_are_of_pairs_and_fit_into_memory() {
    let table = |positions, features, base| RotaryTable::new(positions, features, base, DType::F32, &CPU);
    let error = table(4, 7, 1e4).unwrap_err();
    assert!(matches!(error, Error::Argument { argument: "features", .. }), "{error}");
    for base in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = table(4, 6, base).unwrap_err();
        assert!(matches!(error, Error::Argument { argument: "base", .. }), "{error}");
    }
    for (positions, features) in [(1 << 40, 1 << 40), (usize::MAX, 4), (1 << 50, 2)] {
        let error = table(positions, features, 1e4).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
    }
    assert_eq!(table(0, 6, 1e4).unwrap().positions(), 0);
    assert!(table(3, 0, 1e4).is_ok());
}
