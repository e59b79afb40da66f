//! What is refused at the border, what is shared, and what is not copied.

use candle_core::{DType, Device, Tensor, Var};
use gradewise_candle::Fused;
use gradewise_core::{Algebra, Signature};

fn algebra() -> Algebra {
    Algebra::new(Signature::CL3).unwrap()
}

#[test]
fn integers_are_refused_by_name() {
    let x = Tensor::ones((8, 2, 2), DType::F32, &Device::Cpu).unwrap();
    let y = Tensor::ones((8, 2, 2), DType::U32, &Device::Cpu).unwrap();
    let error = Fused::geometric_product(&algebra()).unwrap().apply(&[&x, &y]).unwrap_err().to_string();
    assert!(error.contains("table_product: input 1 of shape [8, 2, 2] has dtype U32"), "{error}");
    assert!(error.contains("Tensor::to_dtype"), "{error}");
}

#[test]
fn shapes_numbers_and_names_that_do_not_fit_are_explained() {
    let linear = Fused::mv_linear(&algebra(), None).unwrap();
    let x = Tensor::ones((8, 2, 3), DType::F32, &Device::Cpu).unwrap();
    let w = Tensor::ones((4, 5, 2), DType::F32, &Device::Cpu).unwrap();
    let error = linear.apply(&[&x, &w]).unwrap_err().to_string();
    assert!(error.contains("mv_linear") && error.contains("[4, 5, 2]"), "{error}");
    let error = linear.apply(&[&x]).unwrap_err().to_string();
    assert!(error.contains("1 inputs were given, expected 2 to 3"), "{error}");
    let error = linear.apply(&[]).unwrap_err().to_string();
    assert!(error.contains("mv_linear: no inputs were given"), "{error}");
    let error = Fused::new("mv_lineal", "{}").unwrap_err().to_string();
    assert!(error.contains("mv_linear"), "{error}");
    let error = Fused::new("mv_silu", r#"{"algebra": "9,9,9"}"#).unwrap_err().to_string();
    assert!(error.contains("mv_silu"), "{error}");
}

#[test]
fn both_factors_may_be_one_tensor() {
    let product = Fused::geometric_product(&algebra()).unwrap();
    let x = Var::ones((8, 1, 1), DType::F64, &Device::Cpu).unwrap();
    let square = product.apply(&[&x, &x]).unwrap();
    let twice = product.apply(&[&x, &x.flatten_all().unwrap().reshape((8, 1, 1)).unwrap()]).unwrap();
    for result in [square, twice] {
        let gradients = result.narrow(0, 0, 1).unwrap().sum_all().unwrap().backward().unwrap();
        // The scalar part of x² is Σ ±x_i², with minus for blades that square to −1.
        let gradient = gradients.get(&x).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(gradient, [2., 2., 2., 2., -2., -2., -2., -2.]);
    }
}

#[test]
fn a_result_stays_when_its_inputs_go_and_a_parameter_may_change_after_a_step() {
    let silu = Fused::mv_silu(&algebra()).unwrap();
    let a = Var::ones((2, 4), DType::F64, &Device::Cpu).unwrap();
    let b = Var::zeros((2, 4), DType::F64, &Device::Cpu).unwrap();
    let run = || {
        let x = Tensor::ones((8, 3, 2), DType::F64, &Device::Cpu).unwrap();
        silu.apply(&[&x, &a, &b]).unwrap()
    };
    let first = run();
    let values = first.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    a.set(&a.affine(0.5, 0.0).unwrap()).unwrap();
    assert_eq!(first.flatten_all().unwrap().to_vec1::<f64>().unwrap(), values);
    assert_ne!(run().flatten_all().unwrap().to_vec1::<f64>().unwrap(), values);
}

#[test]
fn what_no_gradient_is_asked_for_keeps_no_history() {
    let product = Fused::geometric_product(&algebra()).unwrap();
    let x = Tensor::ones((8, 2, 2), DType::F32, &Device::Cpu).unwrap();
    assert!(!product.apply(&[&x, &x]).unwrap().track_op());
    let variable = Var::from_tensor(&x).unwrap();
    let result = product.apply(&[&x, &variable]).unwrap();
    let gradients = result.sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&x).is_none() && gradients.get(&variable).is_some());
}
