//! Products by cuBLASLt, over a stand-in that computes them on the host from what it is told by columns.

mod common;

use common::{assert_clean, stream};
use gradewise_fake_driver::Fake;
use gradewise_ffi::{
    DeviceMemory, Dynamic, Error, Stream,
    cublaslt::{CublasLt, Element, Handle, Product},
};
use proptest::prelude::*;

fn library() -> CublasLt {
    CublasLt::new(Dynamic::open("cuBLASLt", &[gradewise_fake_driver::cublaslt()], "").unwrap())
}

/// Small integers, so that every sum is exact in every type.
fn values(count: u64, seed: u64) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + seed * 13 + i * i % 5) % 9) as f64 - 4.0).collect()
}

fn bytes(values: &[f64], element: Element) -> Vec<u8> {
    match element {
        Element::F64 => values.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        Element::F32 | Element::Tf32 => values.iter().flat_map(|&x| (x as f32).to_ne_bytes()).collect(),
        _ => values.iter().flat_map(|&x| (((x as f32).to_bits() >> 16) as u16).to_ne_bytes()).collect(),
    }
}

fn numbers(bytes: &[u8], element: Element) -> Vec<f64> {
    match element {
        Element::F64 => bytes.chunks_exact(8).map(|x| f64::from_ne_bytes(x.try_into().unwrap())).collect(),
        Element::F32 | Element::Tf32 => {
            bytes.chunks_exact(4).map(|x| f32::from_ne_bytes(x.try_into().unwrap()).into()).collect()
        }
        _ => bytes
            .chunks_exact(2)
            .map(|x| f32::from_bits(u32::from(u16::from_ne_bytes(x.try_into().unwrap())) << 16).into())
            .collect(),
    }
}

fn upload(stream: &Stream, values: &[f64], element: Element) -> DeviceMemory {
    let bytes = bytes(values, element);
    let block = DeviceMemory::new(stream, bytes.len()).unwrap();
    block.write(0, &bytes).unwrap();
    block
}

/// alpha · a · b + beta · out, element by element, by rows.
fn expected(product: &Product, alpha: f64, a: &[f64], b: &[f64], beta: f64, out: &[f64]) -> Vec<f64> {
    let Product { rows: m, columns: n, inner: k, transpose_a, transpose_b, batch, batch_strides, .. } =
        *product;
    let mut result = out.to_vec();
    for matrix in 0..u64::from(batch) {
        let [a0, b0, c0] = batch_strides.map(|stride| matrix * stride as u64);
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let a_at = |i| a[(a0 + if transpose_a { i * m + row } else { row * k + i }) as usize];
            let b_at = |i| b[(b0 + if transpose_b { column * k + i } else { i * n + column }) as usize];
            let sum: f64 = (0..k).map(|i| a_at(i) * b_at(i)).sum();
            let at = (c0 + row * n + column) as usize;
            result[at] = alpha * sum + beta * out[at];
        }
    }
    result
}

fn check(product: &Product, beta: f64, algorithm: usize) {
    let fake = Fake::new();
    let stream = stream(&fake);
    let handle = Handle::new(&library(), stream.context()).unwrap();
    let Product { rows, columns, inner, batch, element, .. } = *product;
    let [a, b, out] = [rows * inner, inner * columns, rows * columns].map(|size| size * u64::from(batch));
    let (a, b, out) = (values(a, 1), values(b, 2), values(out, 3));
    let [a_block, b_block, out_block] = [&a, &b, &out].map(|values| upload(&stream, values, element));
    let plan = handle.plan(product, 4096, 8).unwrap();
    assert_eq!(plan.algorithms(), 2, "those with little workspace");
    let workspace = DeviceMemory::new(&stream, plan.workspace(algorithm).unwrap()).unwrap();
    stream.synchronize().unwrap(); // the stand-in computes at once
    // SAFETY: the blocks have the shapes of the plan.
    unsafe {
        let factors = [a_block.pointer(), b_block.pointer()];
        plan.run(algorithm, &stream, 2.0, factors, beta, out_block.pointer(), Some(&workspace)).unwrap();
    }
    let mut result = vec![0; out_block.bytes()];
    out_block.read(0, &mut result).unwrap();
    assert_eq!(numbers(&result, element), expected(product, 2.0, &a, &b, beta, &out), "{product:?}");
    drop((a_block, b_block, out_block, workspace, plan, handle, stream));
    assert_clean(&fake);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn products_by_rows_are_what_they_are_by_columns(
        (rows, inner, columns) in (1..6u64, 1..4u64, 1..6u64),
        (transpose_a, transpose_b) in any::<(bool, bool)>(),
        element in prop::sample::select(vec![Element::F64, Element::F32, Element::Tf32, Element::Bf16]),
        batch in 1..3u32,
        share_b in any::<bool>(),
        beta in prop::sample::select(vec![0.0, 1.0]),
        algorithm in 0..2usize,
    ) {
        let strides = [rows * inner, if share_b { 0 } else { inner * columns }, rows * columns].map(|size| size as i64);
        let product = Product {
            transpose_a,
            transpose_b,
            batch,
            batch_strides: if batch > 1 { strides } else { [0; 3] },
            ..Product::new(rows, inner, columns, element)
        };
        check(&product, beta, algorithm);
    }
}

#[test]
fn what_cannot_be_computed_is_refused_by_name() {
    let fake = Fake::new();
    let stream = stream(&fake);
    let handle = Handle::new(&library(), stream.context()).unwrap();
    let good = Product::new(2, 2, 2, Element::F32);
    for wrong in [
        Product { rows: 0, ..good },
        Product { inner: 1 << 31, ..good },
        Product { batch: 0, ..good },
        Product { alignment: 12, ..good },
    ] {
        assert!(matches!(handle.plan(&wrong, 0, 1), Err(Error::Argument { .. })), "{wrong:?}");
    }
    let error = handle.plan(&Product { element: Element::F16, ..good }, 0, 1).unwrap_err();
    assert!(matches!(error, Error::Status { code: 15, .. }), "{error:?}");
    assert!(error.to_string().contains("NOT_SUPPORTED"), "{error}");

    let plan = handle.plan(&good, 1024, 2).unwrap();
    assert_eq!((plan.workspace(0), plan.workspace(1), plan.workspace(2)), (Some(0), Some(1024), None));
    let small = DeviceMemory::new(&stream, 1023).unwrap();
    for (algorithm, workspace) in [(2, None), (1, None), (1, Some(&small))] {
        // SAFETY: refused before anything is read.
        let result = unsafe { plan.run(algorithm, &stream, 1.0, [0, 0], 0.0, 0, workspace) };
        assert!(matches!(result, Err(Error::Argument { .. })), "{algorithm}");
    }
    assert_eq!(library().version(), Ok((13, 1, 2)));
}

#[test]
fn a_library_tells_its_version_and_a_missing_one_how_to_get_it() {
    match CublasLt::load() {
        Ok(library) => assert!(library.version().unwrap().0 >= 12, "{library:?}"),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("libcublasLt.so.13") && text.contains("GRADEWISE_CUBLASLT"), "{text}");
        }
    }
}
