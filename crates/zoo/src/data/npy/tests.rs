use super::*;
use proptest::prelude::*;

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn reason(bytes: &[u8]) -> String {
    NpyArray::from_bytes(bytes, "some.npy").unwrap_err().to_string()
}

#[test]
fn every_element_type_and_byte_order_is_decoded() {
    let cases: [(&str, Vec<u8>); 8] = [
        ("<f8", [(-2.5f64).to_le_bytes(), 7f64.to_le_bytes()].concat()),
        (">f8", [(-2.5f64).to_be_bytes(), 7f64.to_be_bytes()].concat()),
        ("<f4", [(-2.5f32).to_le_bytes(), 7f32.to_le_bytes()].concat()),
        (">f4", [(-2.5f32).to_be_bytes(), 7f32.to_be_bytes()].concat()),
        ("<i8", [(-3i64).to_le_bytes(), 7i64.to_le_bytes()].concat()),
        (">i2", [(-3i16).to_be_bytes(), 7i16.to_be_bytes()].concat()),
        ("|i1", vec![0xfd, 7]),
        ("|u1", vec![0xfd, 7]),
    ];
    for (descr, data) in cases {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}\n");
        let array = NpyArray::from_bytes(&file(&header, &data), "x").unwrap();
        let first = match descr.as_bytes()[1] {
            b'f' => -2.5,
            b'u' => 253.0,
            _ => -3.0,
        };
        assert_eq!((array.values, array.shape), (vec![first, 7.0], vec![2]), "{descr}");
    }
}

#[test]
fn fortran_order_is_transposed_and_key_order_does_not_matter() {
    let data: Vec<u8> = [1f64, 4.0, 2.0, 5.0, 3.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let bytes = file("{\"shape\": (2L, 3L), 'descr': '<f8', 'fortran_order': True}", &data);
    let array = NpyArray::from_bytes(&bytes, "x").unwrap();
    assert_eq!((array.values, array.shape), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![2, 3]));
}

#[test]
fn foreign_and_broken_files_say_what_is_wrong() {
    assert!(reason(b"PK\x03\x04").contains("npz"));
    assert!(reason(b"").contains("signature"));
    assert!(reason(b"\x93NUMPY\x01").contains("ends inside"));
    assert!(reason(b"\x93NUMPY\x09\x00\x00\x00").contains("version 9"));
    let header =
        |descr: &str, shape: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}");
    assert!(reason(&file(&header("'<c16'", "(1,)"), &[0; 16])).contains("<c16"));
    assert!(reason(&file(&header("[('x', '<f8')]", "(1,)"), &[0; 8])).contains("structured"));
    assert!(reason(&file(&header("'<f8'", "(3,)"), &[0; 20])).contains("truncated"));
    assert!(reason(&file(&header("'<f8'", "(2,)"), &[0; 20])).contains("foreign data"));
    assert!(
        reason(&file(&header("'<f8'", "(4294967296, 4294967296)"), &[0; 8])).contains("impossibly large")
    );
    assert!(reason(&file(&header("'<f8'", "(2305843009213693952,)"), &[0; 8])).contains("impossibly large"));
    assert!(reason(&file(&header("'<f8'", "(-1,)"), &[])).contains("shape"));
    assert!(reason(&file("{}", &[])).contains("missing"));
}

#[test]
fn shape_mismatch_names_both_shapes() {
    let bytes = encode(&[2, 3], &[0.5; 6]).unwrap();
    let array = NpyArray::from_bytes(&bytes, "x").unwrap();
    array.expect_shape(Path::new("x"), &[None, Some(3)], "rows, 3").unwrap();
    let error =
        array.expect_shape(Path::new("x"), &[None, Some(5)], "samples, particles").unwrap_err().to_string();
    assert!(error.contains("[2, 3]") && error.contains("[_, 5]") && error.contains("samples"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read_back(shape in prop::collection::vec(0usize..4, 0..5), seed in any::<u32>()) {
        let elements: usize = shape.iter().product();
        let values: Vec<f64> = (0..elements).map(|i| (f64::from(seed) + 1.7 * i as f64).sin()).collect();
        let bytes = encode(&shape, &values).unwrap();
        let data = bytes.len() - 8 * elements;
        prop_assert_eq!(data % 64, 0);
        let array = NpyArray::from_bytes(&bytes, "x").unwrap();
        prop_assert_eq!((&array.shape, &array.values), (&shape, &values));
        let single = NpyArray::from_bytes(&encode_f32(&shape, &values).unwrap(), "x").unwrap();
        prop_assert!(single.values.iter().zip(&values).all(|(a, &b)| *a == f64::from(b as f32)));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256), magic: bool) {
        let bytes = if magic { [b"\x93NUMPY\x01\x00".as_slice(), &bytes].concat() } else { bytes };
        let _ = NpyArray::from_bytes(&bytes, "x");
    }

    #[test]
    fn random_headers_never_panic(header in "[{}()\\[\\]'\",:<>f0-9LTrueFalsdhpconr_ ]{0,80}") {
        let _ = NpyArray::from_bytes(&file(&header, &[0; 32]), "x");
    }

    #[test]
    fn a_damaged_file_is_refused_or_well_formed(flip in 0usize..176, bit in 0u8..8, keep in 0usize..=176) {
        let mut bytes = encode(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        prop_assert_eq!(bytes.len(), 176);
        prop_assert!(keep == 176 || NpyArray::from_bytes(&bytes[..keep], "x").is_err());
        bytes[flip] ^= 1 << bit;
        if let Ok(array) = NpyArray::from_bytes(&bytes, "x") {
            prop_assert_eq!(array.shape.iter().product::<usize>(), array.values.len());
        }
    }
}

#[test]
fn half_precision_is_read_in_either_byte_order() {
    let header = |descr: &str| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (4,), }}\n");
        let length = u16::try_from(text.len()).unwrap().to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes()].concat()
    };
    // 1/3 rounded to 11 bits, the smallest subnormal, the largest number, −0.
    let (bits, values) =
        ([0x3555u16, 1, 0x7bff, 0x8000], [0.333_251_953_125, 2f64.powi(-24), 65_504.0, -0.0]);
    for (descr, bytes) in [("<f2", bits.map(u16::to_le_bytes)), (">f2", bits.map(u16::to_be_bytes))] {
        let file = [header(descr), bytes.concat()].concat();
        let array = NpyArray::from_bytes(&file, "x.npy").unwrap();
        assert_eq!(
            array.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            values.map(f64::to_bits),
            "{descr}"
        );
    }
    let long = [header("<f16"), vec![0; 64]].concat();
    assert!(NpyArray::from_bytes(&long, "x.npy").unwrap_err().to_string().contains("astype"));
}

#[test]
#[cfg(unix)]
fn files_without_an_end_are_refused_before_they_are_read() {
    for path in ["/dev/zero", "/dev/null"] {
        assert!(NpyArray::read(path).unwrap_err().to_string().contains("device"), "{path}");
    }
}
