//! The check itself: it catches what is wrong, says where, and refuses what it cannot check.

use gradewise_autograd::{
    BackwardContext, Derivative, Error, Forward, GradcheckOptions, Operation, Result, Rule, Sample, Sizes,
    Tensor, gradcheck, gradgradcheck,
};
use gradewise_kernels::{Array, DType, Device, ops};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: Device = Device::Cpu;

fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::randn(shape, DType::F64, &CPU, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

/// x³, whose backward can be told to be wrong at one element.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
struct Cube {
    wrong: Option<usize>,
    factor: f64,
    wrong_reexpression: bool,
}

impl Operation for Cube {
    const NAME: &'static str = "cube";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;

    fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(Vec::new())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::pow_scalar(&inputs[0], 3.0)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let slope = ops::mul_scalar(&ops::square(context.inputs[0].array())?, 3.0)?;
        let mut gradient = ops::mul(grad.array(), &slope)?;
        if let Some(wrong) = self.wrong {
            gradient.as_mut_slice::<f64>()?[wrong] *= self.factor;
        }
        Ok(vec![Some(Tensor::new(gradient))])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        inputs[0].pow(if self.wrong_reexpression { 2.0 } else { 3.0 })
    }
}

const RIGHT: Cube = Cube { wrong: None, factor: 1.0, wrong_reexpression: false };

#[test]
fn a_right_backward_passes() {
    let x = random(&[3, 5], 1);
    let apply = |x: &[Tensor]| Tensor::apply(RIGHT, &[&x[0]]);
    let report = gradcheck(&[&x], &GradcheckOptions::default(), apply).unwrap();
    assert_eq!(report.checked, 15);
    assert!(report.to_string().contains("15 elements agree"), "{report}");
    assert_eq!(gradgradcheck(&[&x], &GradcheckOptions::default(), apply).unwrap().checked, 30);
}

#[test]
fn one_wrong_element_is_named_with_both_values() {
    let (x, y) = (random(&[3, 5], 1), random(&[3, 5], 2));
    for factor in [0.0, -1.0, 1.001, f64::NAN, f64::INFINITY] {
        let wrong = Cube { wrong: Some(7), factor, ..RIGHT };
        let function = |inputs: &[Tensor]| inputs[0].add(&Tensor::apply(wrong, &[&inputs[1]])?);
        let error = gradcheck(&[&x, &y], &GradcheckOptions::default(), function).unwrap_err();
        let Error::GradientMismatch { deviation, checked } = &error else { panic!("{error}") };
        assert_eq!((deviation.input, &deviation.element[..], *checked), (1, &[1, 2][..], 30));
        assert!((deviation.analytic - deviation.numeric * factor).abs() < 1e-6 || !factor.is_finite());
        let text = error.to_string();
        assert!(text.contains("input 1, element [1, 2]") && text.contains("central differences"), "{text}");
    }
}

#[test]
fn a_wrong_second_derivative_is_caught() {
    let x = random(&[4], 3);
    let wrong = Cube { wrong_reexpression: true, ..RIGHT };
    let function = |x: &[Tensor]| Tensor::apply(wrong, &[&x[0]]);
    assert!(gradcheck(&[&x], &GradcheckOptions::default(), function).is_ok());
    let error = gradgradcheck(&[&x], &GradcheckOptions::default(), function).unwrap_err();
    let Error::ReexpressionMismatch { input: 0, element, plain, recorded } = &error else {
        panic!("{error}")
    };
    let value = x.to_vec::<f64>().unwrap()[element[0]];
    assert!((plain / recorded - 1.5 * value).abs() < 1e-9, "3x² against 2x");
}

#[test]
fn a_wrong_rule_of_second_order_is_caught() {
    // The gradient is right, but its graph loses the dependence on x: as if 3x² were a constant.
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Frozen;
    impl Operation for Frozen {
        const NAME: &'static str = "frozen";
        const RULE: Rule = Rule::Full;
        const DERIVATIVE: Derivative = Derivative::Reexpressed;

        fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
            Ok(Vec::new())
        }
        fn forward(&self, inputs: &[Array]) -> Result<Forward> {
            RIGHT.forward(inputs)
        }
        fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
            RIGHT.backward(context, grad)
        }
        fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
            inputs[0].detach().square()?.mul_scalar(3.0)?.mul(&inputs[0])
        }
    }
    let x = random(&[4], 3);
    let error =
        gradgradcheck(&[&x], &GradcheckOptions::default(), |x| Tensor::apply(Frozen, &[&x[0]])).unwrap_err();
    assert!(matches!(error, Error::GradientMismatch { .. }), "{error}");
}

#[test]
fn a_missing_gradient_is_caught() {
    let x = random(&[4], 4);
    let detached = |x: &[Tensor]| x[0].detach().mul(&x[0]);
    let error = gradcheck(&[&x], &GradcheckOptions::default(), detached).unwrap_err();
    assert!(matches!(error, Error::GradientMismatch { .. }), "{error}");
    let constant = |x: &[Tensor]| x[0].detach().square();
    let error = gradcheck(&[&x], &GradcheckOptions::default(), constant).unwrap_err();
    assert!(matches!(error, Error::GradientMismatch { .. }), "{error}");
}

#[test]
fn large_inputs_are_sampled_reproducibly() {
    let x = random(&[1000], 5);
    let options = GradcheckOptions { samples: 20, ..GradcheckOptions::default() };
    let function = |x: &[Tensor]| x[0].sin();
    let report = gradcheck(&[&x], &options, function).unwrap();
    assert_eq!(report.checked, 20);
    assert_eq!(gradcheck(&[&x], &options, function).unwrap(), report);
    let other = gradcheck(&[&x], &GradcheckOptions { seed: 9, ..options }, function).unwrap();
    assert_ne!(other.worst, report.worst);
}

#[test]
fn what_cannot_be_checked_is_refused() {
    let x = Tensor::ones([3], DType::F32, &CPU).unwrap();
    let error = gradcheck(&[&x], &GradcheckOptions::default(), |x| x[0].sin()).unwrap_err().to_string();
    assert!(error.contains("input 0 is f32") && error.contains("f64"), "{error}");

    let calls = std::cell::Cell::new(0.0);
    let drifting = |x: &[Tensor]| {
        calls.set(calls.get() + 1.0);
        x[0].mul_scalar(calls.get())
    };
    let error =
        gradcheck(&[&random(&[3], 6)], &GradcheckOptions::default(), drifting).unwrap_err().to_string();
    assert!(error.contains("different results"), "{error}");
}

#[test]
fn a_function_without_second_derivative_says_so() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Once;
    impl Operation for Once {
        const NAME: &'static str = "once";
        const RULE: Rule = Rule::Full;
        const DERIVATIVE: Derivative = Derivative::Reexpressed;

        fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
            Ok(Vec::new())
        }
        fn forward(&self, inputs: &[Array]) -> Result<Forward> {
            Ok(ops::square(&inputs[0])?.into())
        }
        fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
            Ok(vec![Some(grad.mul(&context.inputs[0].mul_scalar(2.0)?)?)])
        }
    }
    let x = random(&[3], 7);
    let apply = |x: &[Tensor]| Tensor::apply(Once, &[&x[0]]);
    gradcheck(&[&x], &GradcheckOptions::default(), apply).unwrap();
    let error = gradgradcheck(&[&x], &GradcheckOptions::default(), apply).unwrap_err();
    assert!(matches!(error, Error::NotTwiceDifferentiable { operation: "once" }), "{error}");
}

/// √|x₀² − x₁²| / 10, the norm of a vector in an indefinite plane; `factor` falsifies its gradient.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
struct PlaneNorm {
    factor: f64,
}

impl PlaneNorm {
    fn square(x: &[f64]) -> f64 {
        x[0] * x[0] - x[1] * x[1]
    }
}

impl Operation for PlaneNorm {
    const NAME: &'static str = "plane_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;

    fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(Vec::new())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let norm = Self::square(inputs[0].as_slice::<f64>()?).abs().sqrt() / 10.0;
        Ok(Array::from_slice(&[norm], [1], &CPU)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = context.inputs[0].to_vec::<f64>()?;
        let square = Self::square(&x);
        let slope = self.factor * grad.item()? * square.signum() / (10.0 * square.abs().sqrt());
        Ok(vec![Some(Tensor::from_slice(&[slope * x[0], -slope * x[1]], [2], &CPU)?)])
    }
}

#[test]
fn near_a_null_cone_a_right_gradient_is_not_accused_and_a_wrong_one_does_not_pass() {
    for power in 1..=12 {
        for side in [-1.0, 1.0] {
            let x = Tensor::from_slice(&[0.7 + side * 10f64.powi(-power), 0.7], [2], &CPU).unwrap();
            let check = |factor| {
                gradcheck(&[&x], &GradcheckOptions::default(), |x| {
                    Tensor::apply(PlaneNorm { factor }, &[&x[0]])
                })
            };
            match check(1.0) {
                Ok(report) => assert_eq!(report.checked, 2),
                Err(Error::IllConditioned { error, .. }) => {
                    assert!(power > 6 && error > 0.0, "10^-{power} from the cone: {error}");
                }
                Err(other) => panic!("10^-{power} from the cone: {other}"),
            }
            for factor in [0.99, 1.01, -1.0, 0.0, f64::NAN] {
                assert!(check(factor).is_err(), "{factor} at 10^-{power} passes");
            }
        }
    }
}

#[test]
fn options_that_compare_nothing_are_refused() {
    let default = GradcheckOptions::default;
    for (part, options) in [
        ("0 elements", GradcheckOptions { samples: 0, ..default() }),
        ("step is 0", GradcheckOptions { step: 0.0, ..default() }),
        ("step is -", GradcheckOptions { step: -1e-5, ..default() }),
        ("step is NaN", GradcheckOptions { step: f64::NAN, ..default() }),
        ("relative tolerance", GradcheckOptions { relative: f64::INFINITY, ..default() }),
        ("absolute tolerance", GradcheckOptions { absolute: f64::NAN, ..default() }),
        ("both tolerances", GradcheckOptions { absolute: 0.0, relative: 0.0, ..default() }),
    ] {
        let x = random(&[2], 1);
        for error in [
            gradcheck(&[&x], &options, |x| x[0].square()).unwrap_err(),
            gradgradcheck(&[&x], &options, |x| x[0].square()).unwrap_err(),
        ] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn operators_of_indefinite_and_of_trivial_algebras_are_not_accused() {
    use gradewise_autograd::registry::{Order, entries};
    use gradewise_core::Signature;
    let options = GradcheckOptions { samples: 24, ..GradcheckOptions::default() };
    for (signature, names) in [
        (Signature::new(1, 3, 0), &["mv_normalization", "steerable_layer", "mv_layer_norm"][..]),
        (Signature::new(2, 2, 0), &["mv_normalization", "mv_layer_norm"]),
        (Signature::new(0, 0, 0), &["metric_product", "metric_sgp", "mv_linear", "mv_normalization"]),
    ] {
        let sizes = Sizes::new(signature, 3, 5).unwrap();
        for entry in entries().iter().filter(|entry| names.contains(&entry.name())) {
            for seed in 0..6 {
                let options = GradcheckOptions { seed, ..options.clone() };
                let checked = entry.check(&CPU, &sizes, Order::First, &options);
                checked.unwrap_or_else(|error| {
                    panic!("{} of {signature:?}, seed {seed}: {error}", entry.name())
                });
            }
        }
    }
}
