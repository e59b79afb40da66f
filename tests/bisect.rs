//! A wrong kernel is found and named, on every device that is there.

use gradewise::{
    autograd::{
        Error, Result, Tensor,
        backend::{Call, replace},
        observe::{Pass, observe},
    },
    kernels::{Array, DType, Device},
    nn::{Placement, data::Split, train::Samples},
    verify::bisect::{Bisection, Deviant, replay},
    zoo::{
        data::nbody::{NBodyData, Trajectories},
        models::{NBody, NBodyConfig},
    },
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn devices() -> Vec<Device> {
    std::iter::once(Device::Cpu).chain(gradewise_testing::gpu()).collect()
}

/// One step of a small model, watched. What fits one kernel on a GPU is kept in its parts, as on the CPU.
fn step(device: &Device) -> Bisection {
    // On a GPU in double precision, which the kernels for a whole block do not take.
    let dtype = if matches!(device, Device::Cpu) { DType::F32 } else { DType::F64 };
    let placement = Placement::new(device, dtype);
    let config = NBodyConfig { hidden: 33, layers: 1, ..NBodyConfig::default() };
    let model = NBody::init(&config, &placement, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    let trajectories = Trajectories::simulate(3, 4, 12, 5, Split::Train).unwrap();
    let data = NBodyData::between(&trajectories, 1, 11).unwrap();
    let batch = data.batch(&[0, 1, 2], &placement).unwrap();
    let pass = || -> gradewise::nn::Result<()> {
        model.loss(&batch.batch, &batch.targets)?.backward()?;
        Ok(())
    };
    let (result, bisection) = observe(Bisection::default(), pass);
    assert_eq!(result.is_err(), bisection.found.is_some(), "{result:?}");
    bisection
}

/// What a sign flipped in the product's backward kernel does: one path of the gradient of the weights has the wrong sign.
fn flipped(call: &Call<'_>) -> Result<Vec<Option<Array>>> {
    const WEIGHTS: usize = 3;
    let mut gradients = call.original()?;
    let Some(Some(weights)) = gradients.get(WEIGHTS) else {
        return Err(Error::Argument { operation: "planted", message: "there is no gradient".to_owned() });
    };
    let [features, paths] = *weights.dims() else { unreachable!("[features, paths]") };
    let mut values = weights.to_f64_vec()?;
    (0..features).for_each(|feature| values[feature * paths + 7] *= -1.0);
    let wrong = Array::from_f64(&values, weights.shape(), weights.dtype(), &weights.device())?;
    gradients[WEIGHTS] = Some(wrong);
    Ok(gradients)
}

fn planted(device: &Device) -> Box<Deviant> {
    replace("steerable_layer", Pass::Backward, flipped, || step(device)).found.expect("it was planted")
}

#[test]
fn a_healthy_model_agrees_everywhere() {
    for device in devices() {
        let bisection = step(&device);
        assert!(bisection.found.is_none(), "{}", bisection.found.unwrap());
        assert!(bisection.agreed > 100, "{}", bisection.agreed);
        let (.., nearest) = bisection.nearest.unwrap();
        assert!(nearest.error > 0.0, "something was rounded");
    }
}

#[test]
fn a_sign_flipped_in_the_products_backward_is_found_and_named() {
    for device in devices() {
        let found = planted(&device);
        assert_eq!(
            (found.operation.as_str(), found.pass, found.position),
            ("steerable_layer", Pass::Backward, 3)
        );
        assert!(found.distance.error > 1e-2 && found.distance.tolerance < 1e-3, "{:?}", found.distance);
        assert!(found.agreed > 40, "the forward pass agrees: {}", found.agreed);
        let text = found.to_string();
        for part in [
            "`steerable_layer` backward",
            "gradient of input 3",
            "[33, 20]",
            "algebra=3,0,0",
            "computed through",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn the_record_of_it_runs_the_operation_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bisect.safetensors");
    for device in devices() {
        let found = planted(&device);
        found.write(&path).unwrap();
        let again = replace("steerable_layer", Pass::Backward, flipped, || replay(&path, &device)).unwrap();
        assert!(!again.distance.passes(), "{again}");
        assert!((again.distance.error - found.distance.error).abs() < 1e-3 * found.distance.error, "{again}");
        assert!(again.to_string().starts_with("FAIL"), "{again}");
        // The kernel that was not replaced is right.
        let right = replay(&path, &device).unwrap();
        assert!(right.distance.passes() && right.to_string().starts_with("ok"), "{right}");
    }
}

#[test]
fn a_wrong_forward_kernel_is_found_in_whatever_calls_it() {
    for device in devices() {
        let x = Tensor::new(
            Array::randn([5, 7], DType::F32, &device, &mut ChaCha8Rng::seed_from_u64(2)).unwrap(),
        );
        let x = x.requires_grad();
        // Inside the backward rule of the function whose slope it is.
        let slightly = |call: &Call<'_>| {
            let output = call.original()?.remove(0).unwrap();
            Ok(vec![Some(gradewise::kernels::ops::mul_scalar(&output, 1.0 + 1e-5)?)])
        };
        let (_, bisection) = observe(Bisection::default(), || {
            replace("cos", Pass::Forward, slightly, || x.sin()?.sum_all()?.backward())
        });
        let found = bisection.found.unwrap();
        assert_eq!(
            (found.operation.as_str(), found.pass, found.within.as_deref()),
            ("cos", Pass::Forward, Some("sin"))
        );
        assert!((found.distance.error - 1e-5).abs() < 1e-6, "{found}");
    }
}

#[test]
fn cancellation_is_not_the_operations_fault() {
    // The gradient of a sum of softmax is zero but for rounding.
    let x = Tensor::new(
        Array::randn([4, 9], DType::F32, &Device::Cpu, &mut ChaCha8Rng::seed_from_u64(3)).unwrap(),
    );
    let x = x.requires_grad();
    let (result, bisection) = observe(Bisection::default(), || x.softmax(1)?.sum_all()?.backward());
    assert!(result.is_ok() && bisection.found.is_none(), "{}", bisection.found.unwrap());
}

#[test]
fn files_that_are_no_records_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.safetensors");
    let mut file = gradewise::nn::checkpoint::TensorFile::new();
    file.insert_array("in.0", &Array::ones([2], DType::F32, &Device::Cpu).unwrap()).unwrap();
    file.write(&path).unwrap();
    assert!(replay(&path, &Device::Cpu).unwrap_err().to_string().contains("`bisect`"));
    let metadata =
        [("bisect", "glue"), ("pass", "forward"), ("position", "0"), ("error", "1"), ("attributes", "null")];
    for (key, value) in metadata {
        file.metadata.insert(key.to_owned(), value.to_owned());
    }
    file.write(&path).unwrap();
    let message = replay(&path, &Device::Cpu).unwrap_err().to_string();
    assert!(message.contains("`glue`") && message.contains("gelu"), "{message}");
}
