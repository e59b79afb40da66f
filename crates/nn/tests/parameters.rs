//! Parameters by name: each once, changed whole or not at all, averages lent out, weights and checkpoints of the right model.

use gradewise_autograd::Tensor;
use gradewise_core::Signature;
use gradewise_kernels::{Array, DType, Device};
use gradewise_nn::{
    Error, Module, Parameter, Placement, Result, Visitor,
    checkpoint::{StoredTensor, TensorFile},
    layers::{Embedding, Layer, Linear, MvLinear, RmsNorm, SelfAttention, SteerableProduct},
    optim::{Method, MovingAverage, Schedule},
    train::{Trainer, TrainerConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(3)
}

fn array(shape: &[usize], value: f64) -> Array {
    Array::full(shape, value, DType::F32, &Device::Cpu).unwrap()
}

/// Layers that visit each other by one name, or by number.
struct Stack {
    layers: Vec<Linear>,
    numbered: bool,
}

impl Stack {
    fn new(numbered: bool) -> Self {
        let mut rng = rng();
        let layers = (0..3).map(|_| Linear::new(2, 2).init(&Device::Cpu, &mut rng).unwrap()).collect();
        Self { layers, numbered }
    }
}

impl Module for Stack {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        if self.numbered {
            return visitor.modules("layers", &self.layers);
        }
        for layer in &self.layers {
            visitor.module("layer", layer);
        }
    }
}

fn config(ema: Option<f64>) -> TrainerConfig {
    TrainerConfig { ema, ..TrainerConfig::new(Method::adam(0.0), Schedule::Constant { lr: 0.1, warmup: 0 }) }
}

#[test]
fn two_parameters_of_one_name_are_refused_wherever_names_count() {
    let stack = Stack::new(false);
    let duplicate = |error: Error| {
        assert!(matches!(&error, Error::DuplicateParameter { name } if name == "layer.weight"), "{error}");
        assert!(error.to_string().contains("modules("), "{error}");
    };
    duplicate(stack.unique_parameters().unwrap_err());
    duplicate(stack.load(&|_| Ok(Some(array(&[2, 2], 1.0)))).unwrap_err());
    duplicate(MovingAverage::new(0.5, stack.named_parameters()).unwrap_err());
    duplicate(Trainer::new(stack, config(None)).err().unwrap());

    let names: Vec<String> = Stack::new(true).named_parameters().into_iter().map(|(name, _)| name).collect();
    let expected = ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"];
    assert_eq!(names, expected.map(|name| format!("layers.{name}")));
    let trainer = Trainer::new(Stack::new(true), config(None)).unwrap();
    assert_eq!(trainer.checkpoint("stack", json!({})).unwrap().tensors.len(), 6);
}

#[test]
fn an_update_is_whole_or_not_at_all() {
    let parameter = Parameter::new(array(&[3], 2.0));
    let values = || parameter.array().to_f64_vec().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        parameter.update(|values| -> Result<()> {
            values.as_mut_slice::<f32>()?.fill(7.0);
            resume_unwind(Box::new(()))
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((values(), parameter.shape().dims()), (vec![2.0; 3], &[3][..]), "after a panic");
    let failed = parameter.update(|values| -> Result<()> {
        values.as_mut_slice::<f32>()?.fill(7.0);
        Err(Error::Worker { operation: "test", reason: "no".to_owned() })
    });
    assert!(failed.is_err());
    assert_eq!(values(), [2.0; 3], "after an error");
    for other in [array(&[4], 1.0), array(&[1, 3], 1.0), array(&[3], 1.0).cast(DType::F64).unwrap()] {
        let error = parameter.update(|values| {
            *values = other.clone();
            Ok(())
        });
        assert!(error.unwrap_err().to_string().contains("update"));
        assert!(parameter.set(other).is_err());
        assert_eq!((values(), parameter.array().dtype()), (vec![2.0; 3], DType::F32));
    }
    let before = parameter.tensor();
    let sum = parameter.update(|values| {
        values.as_mut_slice::<f32>()?[0] = 5.0;
        Ok(values.to_f64_vec()?.iter().sum::<f64>())
    });
    assert_eq!((sum.unwrap(), values()), (9.0, vec![5.0, 2.0, 2.0]));
    assert!(parameter.tensor().is_grad_required());
    assert_eq!(before.to_vec::<f32>().unwrap(), [2.0; 3], "what a graph holds stays");
}

#[test]
fn averages_are_lent_out_and_weights_return_after_a_panic() {
    let mut trainer = Trainer::new(Stack::new(true), config(Some(0.5))).unwrap();
    let own = |trainer: &Trainer<Stack>| -> Vec<Vec<f64>> {
        trainer.parameters().iter().map(|(_, p)| p.array().to_f64_vec().unwrap()).collect()
    };
    let x = Tensor::new(array(&[1, 2], 1.0));
    let loss = |model: &Stack, x: &Tensor| -> Result<Tensor> {
        let y = model.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))?;
        Ok(y.square()?.sum_all()?)
    };
    let mut batches = std::iter::repeat_with(|| Ok(x.clone()));
    trainer.step(&mut batches, loss).unwrap();
    let before = own(&trainer);
    let seen = RefCell::new(Vec::new());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        trainer.evaluate(|model| -> Result<()> {
            *seen.borrow_mut() = model.parameters().iter().map(|p| p.array().to_f64_vec().unwrap()).collect();
            resume_unwind(Box::new(()))
        })
    }));
    assert!(panicked.is_err());
    assert_ne!(seen.take(), before, "the averages were there");
    assert_eq!(own(&trainer), before);
    // Storage too: the next update is in place, and averages go on from their own values.
    trainer.step(&mut batches, loss).unwrap();
    assert_ne!(own(&trainer), before);
}

#[test]
fn a_checkpoint_goes_on_as_the_model_it_is_of_with_its_average() {
    let model = || Trainer::new(Stack::new(true), config(Some(0.5))).unwrap();
    let checkpoint = model().checkpoint("stack", json!({"width": 2, "layers": 3})).unwrap();
    let resume = |name: &str, sizes: serde_json::Value| {
        model().resume(&checkpoint, name, &sizes).err().map(|error| error.to_string())
    };
    assert_eq!(resume("stack", json!({"width": 2, "layers": 3})), None);
    assert_eq!(resume("stack", json!({"width": 2, "later": true})), None, "settings that one side lacks");
    let other = resume("heap", json!({"width": 2})).unwrap();
    assert!(other.contains("`stack`") && other.contains("`heap`"), "{other}");
    let wider = resume("stack", json!({"width": 4})).unwrap();
    assert!(wider.contains("width = 2") && wider.contains("width = 4"), "{wider}");
    let mut bare = Trainer::new(Stack::new(true), config(None)).unwrap();
    let lost = bare.resume(&checkpoint, "stack", &json!({})).unwrap_err().to_string();
    assert!(lost.contains("ema") && lost.contains("average"), "{lost}");
}

#[test]
fn sources_are_asked_once_and_their_errors_are_passed_on() {
    let stack = Stack::new(true);
    let asked = RefCell::new(Vec::new());
    let shape = |name: &str| if name.ends_with("weight") { vec![2, 2] } else { vec![2] };
    stack
        .load(&|name| {
            asked.borrow_mut().push(name.to_owned());
            Ok((!name.contains("algebra")).then(|| array(&shape(name), 1.0)))
        })
        .unwrap();
    let asked = asked.into_inner();
    for (name, _) in stack.named_parameters() {
        assert_eq!(asked.iter().filter(|other| **other == name).count(), 1, "{name}");
    }
    let failing = |_: &str| Err(Error::Worker { operation: "source", reason: "out of tape".to_owned() });
    assert!(stack.load(&failing).unwrap_err().to_string().contains("out of tape"));
    // A tensor that holds no numbers is not a missing one.
    let mut file = TensorFile::new();
    let flags = safetensors_of_complex("layers.0.weight");
    file.insert("layers.0.weight", flags.get("layers.0.weight").unwrap().clone());
    let error = stack.load(&|name| file.find_array(name, DType::F32, &Device::Cpu)).unwrap_err();
    assert!(matches!(error, Error::Tensor { .. }), "{error}");
}

/// A file with a tensor of complex numbers, which arrays cannot hold.
fn safetensors_of_complex(name: &str) -> TensorFile {
    let header = format!(r#"{{"{name}":{{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}}}"#);
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
    TensorFile::from_bytes(&bytes, "complex").unwrap()
}

/// Names and, of a square layer, shapes are ours, the order of axes is not.
#[test]
fn the_state_of_the_python_reference_is_told_from_our_own() {
    let layer = SteerableProduct::new(4, Signature::CL3).init(&Device::Cpu, &mut rng()).unwrap();
    let mut file = TensorFile::new();
    for (name, parameter) in layer.named_parameters() {
        file.insert_array(name, &parameter.array()).unwrap();
    }
    let load = |file: &TensorFile| layer.load(&|name| file.find_array(name, DType::F32, &Device::Cpu));
    load(&file).unwrap();
    for table in ["algebra.cayley", "linear_right.algebra.cayley"] {
        let mut theirs = file.clone();
        theirs.insert(table, StoredTensor::from_f64(&[1], &[1.0], DType::F32).unwrap());
        let error = load(&theirs).unwrap_err();
        assert!(matches!(&error, Error::ReferenceLayout { table: found } if found == table), "{error}");
        assert!(error.to_string().contains("[out, in, grades]"), "{error}");
    }
}

#[test]
fn layers_refuse_constants_outside_their_range() {
    let place = || Placement::from(&Device::Cpu);
    let refused = |name: &str, error: Option<Error>| {
        assert!(matches!(error, Some(Error::Argument { .. })), "{name}: {error:?}");
    };
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        let linear = MvLinear::new(2, 2, Signature::CL3).variance(bad);
        refused("variance", linear.init(place(), &mut rng()).err());
        refused("deviation", Linear::new(2, 2).deviation(bad).init(place(), &mut rng()).err());
        refused("embedding", Embedding::new(3, 2).deviation(bad).init(place(), &mut rng()).err());
        let attention = SelfAttention::new(4, 2).deviations(0.1, bad);
        refused("attention", attention.init(place(), &mut rng()).err());
        refused("epsilon", RmsNorm::new(2).epsilon(bad).init(place()).err());
    }
    for limit in [-1.0, 0.0, f64::NAN] {
        let config = TrainerConfig { clip_norm: Some(limit), ..config(None) };
        refused("clip_norm", Trainer::new(Stack::new(true), config).err());
    }
}
