//! Golden vectors of an independent implementation in double precision, and proof that checking them can fail.

use gradewise::verify::{FileReport, Options, verify_dir, verify_file};
use gradewise_kernels::{DType, Device};
use gradewise_nn::checkpoint::{StoredTensor, TensorFile};
use std::{collections::BTreeSet, fs, path::PathBuf};

fn folder() -> PathBuf {
    PathBuf::from("tests/golden")
}

fn options(dtype: DType) -> Options {
    Options { device: Device::Cpu, dtype }
}

#[test]
fn every_operation_agrees_in_f64_and_f32() {
    for dtype in [DType::F64, DType::F32] {
        let mut seen = 0;
        let reports = verify_dir(&folder(), &options(dtype), |_| seen += 1).unwrap();
        let failures: Vec<String> =
            reports.iter().filter(|report| !report.passes()).map(FileReport::to_string).collect();
        assert!(failures.is_empty(), "{dtype}:\n{}", failures.join("\n"));
        assert_eq!((reports.len(), seen), (124, 124), "{dtype}");
        // An output alone would prove half of it: gradients of every input were compared, too.
        for report in reports.iter().filter(|report| report.path.parent().unwrap().ends_with("clifford")) {
            let names: Vec<&str> =
                report.outcome.as_ref().unwrap().iter().map(|tensor| tensor.name.as_str()).collect();
            assert!(names.contains(&"y") && names.contains(&"grad.x"), "{report}");
        }
    }
}

/// The set stays what it claims to be: each operation of the specification, in each signature it came in.
#[test]
fn the_set_covers_the_operations() {
    let mut covered = BTreeSet::new();
    for kind in ["clifford", "general", "optim"] {
        for entry in fs::read_dir(folder().join(kind)).unwrap() {
            let file = TensorFile::read(entry.unwrap().path()).unwrap();
            let signature = file.metadata.get("signature").cloned().unwrap_or_default();
            covered.insert((file.metadata["op"].clone(), signature));
        }
    }
    let six = ["2,0,0", "3,0,0", "1,3,0", "3,0,1", "4,1,0", "5,0,0"];
    let three = &six[..3];
    let mut expected = BTreeSet::new();
    for (operations, signatures) in [
        (&["geometric_product", "sgp", "fcgp", "mv_silu", "mv_layer_norm"][..], &six[..]),
        (&["steerable_gp", "fc_steerable_gp"], &six),
        (&["gelu_sgp_norm", "gelu_fcgp_norm", "clifford_layer"], three),
        (
            &[
                "add",
                "mul",
                "matmul",
                "bmm",
                "gelu",
                "softmax",
                "layer_norm",
                "embedding",
                "cross_entropy",
                "attention",
            ],
            &[""],
        ),
        (&["adam", "adamw", "sgd"], &[""]),
    ] {
        for operation in operations {
            expected.extend(signatures.iter().map(|s| ((*operation).to_owned(), (*s).to_owned())));
        }
    }
    assert_eq!(covered, expected);
}

/// Of operations on fields: each of the specification, in the metrics that occur.
#[test]
fn the_set_covers_the_fields() {
    let mut covered = BTreeSet::new();
    for entry in fs::read_dir(folder().join("fields")).unwrap() {
        let file = TensorFile::read(entry.unwrap().path()).unwrap();
        let metric = file.metadata.get("metric").cloned().unwrap_or_default();
        covered.insert((file.metadata["op"].clone(), metric));
    }
    let mut expected = BTreeSet::new();
    for (operations, metrics) in [
        (&["clifford_conv"][..], &["1", "-1", "1,1", "1,-1", "-1,-1", "0,1", "1,1,1", "-1,1,1"][..]),
        (&["clifford_conv_transpose"], &["1,1", "1,1,1"]),
        (&["clifford_spectral_conv"], &["1,1", "-1,-1", "1,1,1"]),
        (&["clifford_linear"], &["1,-1", "1,1,1"]),
        (&["clifford_batch_norm", "clifford_group_norm", "cs_layer_norm", "cs_mv_gelu"], &["1,1"]),
        (&["cs_kernel"], &["1,1", "-1,1,1"]),
        (&["cs_conv"], &["1,1", "1,-1", "1,1,1"]),
        (&["mv_act"], &["0,1,1,1", "1,1,1"]),
        (&["pga_conjugate_linear"], &["0,1,1,1"]),
        (&["g3_conv", "g3_conv_transpose", "g3_group_norm", "g3_vsilu"], &[""]),
    ] {
        for operation in operations {
            expected.extend(metrics.iter().map(|m| ((*operation).to_owned(), (*m).to_owned())));
        }
    }
    assert_eq!(covered, expected);
}

/// A copy of a golden file, changed.
fn changed(name: &str, change: impl FnOnce(&mut TensorFile)) -> FileReport {
    let scratch = tempfile::tempdir().unwrap();
    let mut copy = TensorFile::read(folder().join(name)).unwrap();
    change(&mut copy);
    let path = scratch.path().join("changed.safetensors");
    copy.write(&path).unwrap();
    verify_file(&path, &options(DType::F64))
}

/// The tensor with one of its values replaced.
fn with_value(file: &TensorFile, name: &str, index: usize, value: impl Fn(f64) -> f64) -> StoredTensor {
    let tensor = file.get(name).unwrap();
    let mut values = tensor.to_f64_vec().unwrap();
    values[index] = value(values[index]);
    StoredTensor::from_f64(tensor.shape(), &values, DType::F64).unwrap()
}

const CASE: &str = "clifford/steerable_gp_cl300.safetensors";

#[test]
fn an_unchanged_copy_passes() {
    let report = changed(CASE, |_| {});
    assert!(report.passes(), "{report}");
}

#[test]
fn an_operation_nobody_knows_does_not_pass() {
    let report = changed(CASE, |file| {
        file.metadata.insert("op".to_owned(), "clifford_attention".to_owned());
    });
    assert!(!report.passes());
    assert!(report.to_string().contains("unknown operation `clifford_attention`"), "{report}");
    for key in ["op", "signature"] {
        let report = changed(CASE, |file| {
            file.metadata.remove(key);
        });
        assert!(!report.passes() && report.to_string().contains(key), "{report}");
    }
}

#[test]
fn a_missing_tensor_does_not_pass() {
    let names: Vec<String> =
        TensorFile::read(folder().join(CASE)).unwrap().iter().map(|(name, _)| name.to_owned()).collect();
    for (case, names) in [
        (CASE, names),
        ("optim/adam.safetensors", vec!["in.p".into(), "in.grads".into(), "out.trajectory".into()]),
    ] {
        for missing in names {
            let scratch = tempfile::tempdir().unwrap();
            let whole = TensorFile::read(folder().join(case)).unwrap();
            let mut copy = TensorFile::new();
            copy.metadata = whole.metadata.clone();
            for (name, tensor) in whole.iter().filter(|(name, _)| **name != missing) {
                copy.insert(name, tensor.clone());
            }
            let path = scratch.path().join("incomplete.safetensors");
            copy.write(&path).unwrap();
            let report = verify_file(&path, &options(DType::F64));
            assert!(!report.passes(), "{case} without {missing}: {report}");
        }
    }
}

#[test]
fn wrong_and_missing_numbers_do_not_pass() {
    for name in ["out.y", "grad.x", "grad.w"] {
        for (kind, value) in [
            ("NaN", (|_| f64::NAN) as fn(f64) -> f64),
            ("infinity", |_| f64::INFINITY),
            ("a digit", |value| value + 1e-9),
        ] {
            let report = changed(CASE, |file| file.insert(name, with_value(file, name, 7, value)));
            assert!(!report.passes(), "{kind} in {name}: {report}");
            let expected = name.strip_prefix("out.").unwrap_or(name);
            assert_eq!(report.worst().map(|tensor| tensor.name.as_str()), Some(expected), "{report}");
        }
    }
    // NaN on both sides is not agreement.
    let report = changed(CASE, |file| {
        file.insert("in.x", with_value(file, "in.x", 0, |_| f64::NAN));
        file.insert("out.y", with_value(file, "out.y", 0, |_| f64::NAN));
    });
    assert!(!report.passes(), "{report}");
}

/// A reference error claimed to be huge widens what passes in f32, but never beyond 1e-10 in f64.
#[test]
fn a_claim_of_ill_conditioning_does_not_excuse_f64() {
    let report = changed(CASE, |file| {
        file.metadata.insert("f32_error".to_owned(), r#"{"y": 1.0}"#.to_owned());
        file.insert("out.y", with_value(file, "out.y", 7, |value| value * (1.0 + 1e-6)));
    });
    assert!(!report.passes(), "{report}");
}

#[test]
fn damaged_files_do_not_pass() {
    let scratch = tempfile::tempdir().unwrap();
    let bytes = fs::read(folder().join(CASE)).unwrap();
    let path = scratch.path().join("damaged.safetensors");
    for keep in [0, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..keep]).unwrap();
        let report = verify_file(&path, &options(DType::F32));
        assert!(!report.passes() && report.outcome.is_err(), "{keep} bytes: {report}");
    }
    fs::write(&path, b"not a tensor file at all").unwrap();
    let reports = verify_dir(scratch.path(), &options(DType::F32), |_| {}).unwrap();
    assert!(reports.len() == 1 && !reports[0].passes());
    assert!(verify_dir(&scratch.path().join("absent"), &options(DType::F32), |_| {}).is_err());
}

#[test]
fn a_shape_that_does_not_fit_does_not_pass() {
    let report = changed("clifford/sgp_cl300.safetensors", |file| {
        let weight = file.get("in.w").unwrap();
        let values = weight.to_f64_vec().unwrap();
        file.insert("in.w", StoredTensor::from_f64(&[values.len(), 1], &values, DType::F64).unwrap());
    });
    assert!(!report.passes());
    assert!(report.to_string().contains("20 grade paths"), "the error says what shape and why: {report}");
}
