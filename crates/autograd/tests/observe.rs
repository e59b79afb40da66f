//! Watching operations: what observers see, and where anomalies are found.

use gradewise_autograd::{
    Anomaly, BackwardContext, Derivative, Error, Forward, Operation, Result, Rule, Sample, Sizes, Tensor,
    detect_anomalies,
    observe::{Event, Observer, Pass, observe},
};
use gradewise_kernels::{Array, Device};

fn tensor(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()], &Device::Cpu).unwrap()
}

fn anomaly(result: Result<impl Sized>) -> Anomaly {
    match result {
        Err(Error::Anomaly(anomaly)) => *anomaly,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("nothing was found"),
    }
}

#[derive(Default)]
struct Names(Vec<(Pass, &'static str, Option<&'static str>)>);

impl Observer for Names {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        // What an observer computes is not observed.
        let _ = event.inputs[0].neg()?;
        self.0.push((event.pass, event.operation, event.within));
        Ok(())
    }
}

#[test]
fn every_operation_is_seen_once_in_both_passes() {
    let x = tensor(&[1.0, 2.0]).requires_grad();
    let (result, Names(seen)) = observe(Names::default(), || -> Result<Tensor> {
        let loss = x.exp()?.mul(&x)?.sum_all()?;
        loss.backward()?;
        Ok(loss)
    });
    let loss = result.unwrap();
    let plain = |pass| {
        seen.iter().filter(move |(p, _, within)| *p == pass && within.is_none()).map(|(_, name, _)| *name)
    };
    assert_eq!(plain(Pass::Forward).collect::<Vec<_>>(), ["exp", "mul", "sum"]);
    assert_eq!(plain(Pass::Backward).collect::<Vec<_>>(), ["sum", "mul", "exp"]);
    let inner: Vec<_> =
        seen.iter().filter(|(pass, _, within)| *pass == Pass::Forward && within.is_some()).collect();
    assert!(inner.iter().any(|(_, name, within)| *name == "mul" && *within == Some("exp")), "{inner:?}");
    // Afterwards nothing is.
    loss.exp().unwrap();
    let (_, Names(again)) = observe(Names::default(), || ());
    assert!(again.is_empty());
}

#[test]
fn observers_nest() {
    let x = tensor(&[1.0]);
    let ((inner, between), Names(outer)) = observe(Names::default(), || {
        x.exp().unwrap();
        let (_, Names(inner)) = observe(Names::default(), || x.sqrt().unwrap());
        (inner, x.square().unwrap())
    });
    drop(between);
    let names = |list: &[(Pass, &'static str, Option<&'static str>)]| {
        list.iter().map(|(_, name, _)| *name).collect::<Vec<_>>()
    };
    assert_eq!(names(&inner), ["sqrt"]);
    assert_eq!(names(&outer)[..2], ["exp", "sqrt"]);
    assert_eq!(outer.len(), 3);
}

#[test]
fn the_first_operation_that_makes_a_nan_is_named() {
    let x = tensor(&[1.0, -4.0, 9.0]).requires_grad();
    let chain = || x.mul_scalar(2.0)?.sqrt()?.add_scalar(1.0)?.sum_all();
    assert!(chain().unwrap().item().unwrap().is_nan(), "undetected without the mode");
    let found = anomaly(detect_anomalies(chain));
    assert_eq!((found.operation, found.pass, found.nan, found.infinite), ("sqrt", Pass::Forward, 1, 0));
    assert!(!found.inherited);
    assert_eq!(found.trail, ["mul_scalar"]);
    let text = Error::Anomaly(Box::new(found)).to_string();
    assert!(text.contains("`sqrt` gave 1 NaN") && text.contains("from `mul_scalar`"), "{text}");
}

#[test]
fn infinities_that_were_given_may_pass_and_those_that_are_made_may_not() {
    let x = tensor(&[1.0, 2.0, f64::NEG_INFINITY]).requires_grad();
    detect_anomalies(|| x.softmax(0)?.sum_all()?.backward()).unwrap();
    let zero = tensor(&[0.0, 1.0]).requires_grad();
    let found = anomaly(detect_anomalies(|| zero.log()));
    assert_eq!((found.operation, found.nan, found.infinite), ("log", 0, 1));
    // Infinity minus infinity.
    let found = anomaly(detect_anomalies(|| x.sub(&x)));
    assert_eq!((found.operation, found.nan, found.inherited), ("sub", 1, false));
}

#[test]
fn a_nan_that_was_there_before_is_said_to_be() {
    let x = tensor(&[f64::NAN, 1.0]);
    let found = anomaly(detect_anomalies(|| x.exp()));
    assert!(found.inherited && found.operation == "exp");
}

#[test]
fn backward_passes_are_watched_too() {
    // √0 is 0, its slope is infinite.
    let x = tensor(&[0.0, 4.0]).requires_grad();
    let loss = detect_anomalies(|| x.sqrt()?.sum_all()).unwrap();
    let found = anomaly(detect_anomalies(|| loss.backward()));
    assert!(
        found.operation == "sqrt" && found.pass == Pass::Backward || found.within == Some("sqrt"),
        "{found:?}"
    );
    assert_eq!(found.infinite, 1);
}

/// Doubles; its backward kernel is broken.
#[derive(serde::Serialize, serde::Deserialize)]
struct Broken;

impl Operation for Broken {
    const NAME: &'static str = "broken";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;

    fn samples(_: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(Vec::new())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(gradewise_kernels::ops::add(&inputs[0], &inputs[0])?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(Tensor::full(grad.shape(), f64::NAN, grad.dtype(), &grad.device())?)])
    }
}

#[test]
fn a_kernel_of_ones_own_is_found() {
    let x = tensor(&[1.0, 2.0]).requires_grad();
    let run = || Tensor::apply(Broken, &[&x.square()?])?.sum_all()?.backward();
    assert!(run().is_ok());
    let found = anomaly(detect_anomalies(run));
    assert_eq!((found.operation, found.pass, found.nan), ("broken", Pass::Backward, 2));
    assert!(found.sources.iter().any(|(name, _)| name == "gradient of the output"), "{found}");
}
