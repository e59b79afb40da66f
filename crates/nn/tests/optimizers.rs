//! Optimisers against PyTorch's trajectories, and their state through files.

use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Parameter,
    checkpoint::TensorFile,
    optim::{Method, Optimizer},
};

/// ‖a − b‖ / ‖b‖
fn relative(a: &[f64], b: &[f64]) -> f64 {
    let difference: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    (difference / b.iter().map(|b| b.powi(2)).sum::<f64>()).sqrt()
}

fn golden(name: &str) -> TensorFile {
    TensorFile::read(format!("tests/golden/{name}.safetensors")).unwrap()
}

/// The method a golden file describes, and its learning rate.
fn method(file: &TensorFile) -> (Method, f64) {
    let number = |key: &str| file.metadata[key].parse::<f64>().unwrap();
    let weight_decay = number("weight_decay");
    let method = match file.metadata["op"].as_str() {
        "adam" => Method::adam(weight_decay),
        "adamw" => Method::adamw(weight_decay),
        _ => Method::Sgd { momentum: number("momentum"), weight_decay },
    };
    (method, number("lr"))
}

fn start(file: &TensorFile, dtype: DType) -> Vec<(String, Parameter)> {
    vec![("p".to_owned(), Parameter::new(file.array("in.p", dtype, &Device::Cpu).unwrap()))]
}

fn gradient(file: &TensorFile, step: usize, dtype: DType) -> Vec<Option<Array>> {
    let all = file.array("in.grads", dtype, &Device::Cpu).unwrap();
    vec![Some(all.slice(0, step..step + 1).unwrap().squeeze(0).unwrap())]
}

fn values(parameters: &[(String, Parameter)]) -> Vec<f64> {
    parameters[0].1.array().to_f64_vec().unwrap()
}

#[test]
fn trajectories_are_pytorchs() {
    for name in ["adam", "adamw", "sgd"] {
        let file = golden(name);
        let expected = file.get("out.trajectory").unwrap().to_f64_vec().unwrap();
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
            let (method, lr) = method(&file);
            let mut optimizer = Optimizer::new(method).unwrap();
            let parameters = start(&file, dtype);
            for step in 0..5 {
                optimizer.step(lr, &parameters, &gradient(&file, step, dtype)).unwrap();
                let error = relative(&values(&parameters), &expected[step * 6..(step + 1) * 6]);
                assert!(error <= tolerance, "{name} {dtype} step {step}: {error:e}");
            }
        }
    }
}

#[test]
fn state_survives_a_file_bit_for_bit() {
    for name in ["adam", "adamw", "sgd"] {
        let file = golden(name);
        let (method, lr) = method(&file);
        let (straight, resumed) = (start(&file, DType::F32), start(&file, DType::F32));
        let mut optimizer = Optimizer::new(method).unwrap();
        for step in 0..3 {
            optimizer.step(lr, &straight, &gradient(&file, step, DType::F32)).unwrap();
        }
        let mut saved = TensorFile::new();
        let state = optimizer.save(&mut saved).unwrap();
        let state = serde_json::from_str(&state.to_string()).unwrap();
        resumed[0].1.set(straight[0].1.array()).unwrap();
        let mut other = Optimizer::new(method).unwrap();
        other.load(&state, &saved, &resumed).unwrap();
        for step in 3..5 {
            optimizer.step(lr, &straight, &gradient(&file, step, DType::F32)).unwrap();
            other.step(lr, &resumed, &gradient(&file, step, DType::F32)).unwrap();
        }
        assert_eq!(values(&straight), values(&resumed), "{name}");
        assert!(other.load(&state, &TensorFile::new(), &resumed).is_err());
        let mut different = Optimizer::new(Method::adam(0.5)).unwrap();
        assert!(different.load(&state, &saved, &resumed).unwrap_err().to_string().contains("method"));
    }
}

#[test]
fn parameters_without_gradient_stay_and_mistakes_are_refused() {
    let file = golden("adam");
    let parameters = start(&file, DType::F64);
    let mut optimizer = Optimizer::new(Method::adam(0.1)).unwrap();
    let before = values(&parameters);
    optimizer.step(1.0, &parameters, &[None]).unwrap();
    assert_eq!(values(&parameters), before);
    assert!(optimizer.step(1.0, &parameters, &[]).is_err());
    assert!(Optimizer::new(Method::adam(-1.0)).is_err());
    assert!(Optimizer::new(Method::Sgd { momentum: 1.0, weight_decay: 0.0 }).is_err());
}
