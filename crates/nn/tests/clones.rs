//! Copies of models: each trains alone, and what was tied stays tied. Names of parameters in tuples and maps.

use gradewise_core::Signature;
use gradewise_kernels::Array;
use gradewise_nn::{
    DType, DeepClone, Device, Module, Parameter, Placement, Result, Tensor,
    layers::{CliffordLayer, Layer, Linear, MvLinear, MvSilu, Sequential, SteerableProduct},
    loss::mean_squared_error,
    optim::{Method, Optimizer},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{
    collections::{BTreeMap, HashMap},
    marker::PhantomData,
    sync::Arc,
};

const CL3: Signature = Signature::CL3;

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(7)
}

fn values(model: &impl Module) -> Vec<Vec<f64>> {
    model.parameters().iter().map(|parameter| parameter.array().to_f64_vec().unwrap()).collect()
}

fn layers() -> Result<Sequential> {
    let (place, rng) = (&place(), &mut rng());
    Ok(Sequential::new()
        .then(MvLinear::new(3, 4, CL3).init(place, rng)?)
        .then(MvSilu::new(4, CL3).init(place)?)
        .then(CliffordLayer::new(4, CL3).init(place, rng)?)
        .then(SteerableProduct::new(4, CL3).init(place, rng)?))
}

fn train(model: &Sequential, steps: usize) -> Result<()> {
    let x = Tensor::randn([8, 6, 3], DType::F64, &Device::Cpu, &mut rng())?;
    let mut optimizer = Optimizer::for_model(model, Method::adam(0.0))?;
    for _ in 0..steps {
        let y = model.forward(&x)?;
        optimizer.backward_step(&mean_squared_error(&y, &y.detach().add_scalar(1.0)?)?, 0.1)?;
    }
    Ok(())
}

#[test]
fn a_copy_trains_alone_and_as_the_original_would() -> Result<()> {
    let model = layers()?;
    let before = values(&model);
    let copy = model.clone();
    assert_eq!(values(&copy), before);
    train(&copy, 3)?;
    assert_eq!(values(&model), before, "the original is as it was");
    assert_ne!(values(&copy), before);
    train(&model, 3)?;
    assert_eq!(values(&model), values(&copy), "the same training changes both alike");
    Ok(())
}

/// An encoder and a decoder with one matrix, a part behind an `Arc` that two fields hold, and a frozen mean.
#[derive(Module, DeepClone)]
struct Tied {
    encoder: Parameter,
    #[module(skip)]
    decoder: Parameter,
    block: Arc<Linear>,
    #[module(skip)]
    name: &'static str,
    #[module(skip)]
    shared: Arc<[f64]>,
    mean: Parameter,
    again: Option<Arc<Linear>>,
}

#[test]
fn ties_stay_ties_within_the_copy() -> Result<()> {
    let weight = place().normal([2, 2], 1.0, &mut rng())?;
    let block = Arc::new(Linear::new(2, 2).init(place(), &mut rng())?);
    let model = Tied {
        encoder: weight.clone(),
        decoder: weight,
        block: Arc::clone(&block),
        name: "tied",
        shared: [1.0].into(),
        mean: Parameter::frozen(Array::from_slice(&[3.0f64], [1], &Device::Cpu)?),
        again: Some(block),
    };
    let copy = model.clone();
    let other = copy.clone();
    copy.encoder.set(Array::from_slice(&[9.0f64; 4], [2, 2], &Device::Cpu)?)?;
    assert_eq!(copy.decoder.array().to_f64_vec()?, [9.0; 4], "two handles to one copy");
    assert_ne!(model.encoder.array().to_f64_vec()?, [9.0; 4]);
    assert_ne!(other.encoder.array().to_f64_vec()?, [9.0; 4], "every copy has its own");
    assert!(Arc::ptr_eq(&copy.block, copy.again.as_ref().unwrap()));
    assert!(!Arc::ptr_eq(&copy.block, &model.block));
    assert!(Arc::ptr_eq(&copy.shared, &model.shared), "what holds no parameters is shared");
    assert!(!copy.mean.is_trained() && copy.name == "tied");
    // Outside of a copy a clone is a handle, as weights are tied.
    let handle = copy.encoder.clone();
    handle.set(Array::from_slice(&[1.0f64; 4], [2, 2], &Device::Cpu)?)?;
    assert_eq!(copy.encoder.array().to_f64_vec()?, [1.0; 4]);
    Ok(())
}

#[test]
fn a_copy_that_panics_ends_the_copying() {
    struct Unlucky(Parameter);
    impl Clone for Unlucky {
        fn clone(&self) -> Self {
            gradewise_nn::copying(|| {
                let _half = self.0.clone();
                panic!("out of luck")
            })
        }
    }
    let weight = place().filled([1], 0.0).unwrap();
    let unlucky = Unlucky(weight.clone());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unlucky.clone()));
    assert!(caught.is_err());
    let handle = weight.clone();
    handle.set(Array::from_slice(&[2.0f64], [1], &Device::Cpu).unwrap()).unwrap();
    assert_eq!(weight.array().to_f64_vec().unwrap(), [2.0], "clones are handles again");
}

/// A generic model, without a bound on its parameters.
#[derive(Module, DeepClone)]
struct Heads<L, Unit> {
    pair: (L, Option<L>),
    by_name: HashMap<String, L>,
    by_charge: BTreeMap<i32, Vec<L>>,
    array: [L; 2],
    boxed: Box<L>,
    unit: PhantomData<Unit>,
}

#[test]
fn tuples_and_maps_name_their_parts_in_order() -> Result<()> {
    struct Metres;
    let mut rng = rng();
    let mut linear = || Linear::new(1, 1).bias(false).init(place(), &mut rng);
    let mut by_name = HashMap::new();
    for name in ["tau", "e", "mu", "nu"] {
        by_name.insert(name.to_owned(), linear()?);
    }
    let heads = Heads::<Linear, Metres> {
        pair: (linear()?, Some(linear()?)),
        by_name,
        by_charge: BTreeMap::from([(2, vec![linear()?]), (-1, vec![linear()?, linear()?])]),
        array: [linear()?, linear()?],
        boxed: Box::new(linear()?),
        unit: PhantomData,
    };
    let names = |model: &Heads<Linear, Metres>| -> Vec<String> {
        model.named_parameters().into_iter().map(|(name, _)| name).collect()
    };
    let expected = [
        "pair.0",
        "pair.1",
        "by_name.e",
        "by_name.mu",
        "by_name.nu",
        "by_name.tau",
        "by_charge.-1.0",
        "by_charge.-1.1",
        "by_charge.2.0",
        "array.0",
        "array.1",
        "boxed",
    ];
    assert_eq!(names(&heads), expected.map(|name| format!("{name}.weight")));
    let copy = heads.clone();
    assert_eq!((names(&copy), values(&copy)), (names(&heads), values(&heads)));
    copy.boxed.parameters()[0].set(Array::from_slice(&[9.0f64], [1, 1], &Device::Cpu)?)?;
    assert_ne!(values(&copy), values(&heads));
    Ok(())
}
