//! Shapes and dtypes: broadcasting, strides, names.

use gradewise_core::{DType, Error, Shape};
use proptest::{collection::vec, prelude::*};

/// The broadcast shape by the definition: pad with ones on the left, then each pair must match or contain a 1.
fn broadcast_by_padding(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    let rank = left.len().max(right.len());
    let pad = |sizes: &[usize]| [vec![1; rank - sizes.len()], sizes.to_vec()].concat();
    pad(left)
        .into_iter()
        .zip(pad(right))
        .map(|pair| match pair {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn broadcasting_follows_its_definition(left in vec(0..4usize, 0..4), right in vec(0..4usize, 0..4)) {
        let (a, b) = (Shape::from(left.clone()), Shape::from(right.clone()));
        let expected = broadcast_by_padding(&left, &right)
            .map(Shape::from)
            .ok_or(Error::Broadcast { operation: "add", left: a.clone(), right: b.clone() });
        prop_assert_eq!(&a.broadcast(&b, "add"), &expected);
        if let Ok(shape) = expected {
            prop_assert_eq!(b.broadcast(&a, "add")?, shape.clone());
            prop_assert_eq!(shape.broadcast(&a, "add")?, shape);
        }
    }

    /// Row-major: walking the indices in order walks the offsets 0, 1, 2, ….
    #[test]
    fn contiguous_strides_enumerate_every_element(sizes in vec(1..5usize, 0..4)) {
        let shape = Shape::from(sizes.clone());
        let strides = shape.contiguous_strides();
        for offset in 0..shape.elements() {
            let mut rest = offset;
            for (stride, size) in strides.iter().zip(&sizes) {
                prop_assert!(rest / stride < *size);
                rest %= stride;
            }
            prop_assert_eq!(rest, 0);
        }
        prop_assert_eq!(shape.elements(), sizes.iter().product::<usize>());
    }
}

#[test]
fn edges_of_shapes() {
    assert_eq!((Shape::scalar().rank(), Shape::scalar().elements()), (0, 1));
    assert_eq!(Shape::from([3, 0, 5]).elements(), 0);
    assert_eq!(Shape::from([usize::MAX, 2]).elements(), usize::MAX);
    assert_eq!(Shape::from([8, 4096, 512]).to_string(), "[8, 4096, 512]");
    let message = Shape::from([2, 3]).broadcast(&Shape::from([4]), "add").expect_err("3 and 4").to_string();
    assert!(message.contains("add: shapes [2, 3] and [4]"), "{message}");
}

#[test]
fn dtype_names_read_back() {
    for dtype in DType::ALL {
        assert_eq!(dtype.name().parse(), Ok(dtype));
        assert_eq!(dtype.name().to_uppercase().parse(), Ok(dtype));
    }
    assert_eq!(DType::ALL.map(DType::size), [8, 4, 2, 2]);
    assert_eq!("f8".parse::<DType>(), Err(Error::InvalidDType { text: "f8".to_owned() }));
}
