//! Layers and models as modules: names, counts and initial values of their parameters, weights from elsewhere.

use gradewise_autograd::Tensor;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{Array, DType, Device};
use gradewise_nn::{
    Error, Module, Placement,
    checkpoint::{StoredTensor, TensorFile},
    data::{Samples, Split},
    init::{ParameterSummary, init_table},
    layers::{
        Bias, CliffordLayer, Layer, Linear, MvLayerNorm, MvLinear, MvNormalization, MvSilu, Sequential,
        SteerableProduct,
    },
};
use gradewise_zoo::{
    data::potential::{ForceData, Potential},
    models::{
        Edges, ForceField, ForceFieldConfig, ForceFieldKind, HullConfig, HullKind, MessagePassing, MvMlp,
        NBody, NBodyConfig, NBodyGraph,
    },
};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CL3: Signature = Signature::CL3;

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(17)
}

fn f64s() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

fn names(module: &dyn Module) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn the_papers_model_has_its_number_of_parameters() {
    let model = NBody::init(&NBodyConfig::default(), &Device::Cpu, &mut rng()).unwrap();
    assert_eq!(model.parameter_count(), 134_625);
    let names = names(&model);
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "names are unique");
    for name in ["embedding.weight", "layers.0.edge.0.weight", "layers.2.node.7.a", "projection.bias"] {
        assert!(names.iter().any(|known| known == name), "{name} is not among {names:?}");
    }
    assert_eq!(model.placement().dtype, DType::F32);
}

#[test]
fn a_perceptron_repeats_its_block_in_the_width_of_the_output() {
    let mlp = MvMlp::init((3, 5, 2), CL3, f64s(), &mut rng()).unwrap();
    let shapes: Vec<(String, Vec<usize>)> =
        mlp.named_parameters().into_iter().map(|(name, p)| (name, p.shape().dims().to_vec())).collect();
    let expected: [(&str, &[usize]); 20] = [
        ("0.weight", &[4, 3, 5]),
        ("0.bias", &[5]),
        ("1.a", &[5, 4]),
        ("1.b", &[5, 4]),
        ("2.weight", &[5, 20]),
        ("2.linear_right.weight", &[4, 5, 5]),
        ("2.normalization.a", &[5, 4]),
        ("2.linear_left.weight", &[4, 5, 5]),
        ("2.linear_left.bias", &[5]),
        ("3.a", &[5]),
        ("4.weight", &[4, 5, 5]),
        ("4.bias", &[5]),
        ("5.a", &[5, 4]),
        ("5.b", &[5, 4]),
        ("6.weight", &[5, 20]),
        ("6.linear_right.weight", &[4, 5, 5]),
        ("6.normalization.a", &[5, 4]),
        ("6.linear_left.weight", &[4, 5, 5]),
        ("6.linear_left.bias", &[5]),
        ("7.a", &[5]),
    ];
    assert_eq!(shapes.len(), expected.len());
    for ((name, shape), expected) in shapes.iter().zip(expected) {
        assert_eq!((name.as_str(), shape.as_slice()), expected);
    }
    let x = Tensor::randn([8, 7, 3], DType::F64, &Device::Cpu, &mut rng()).unwrap();
    assert_eq!(mlp.forward(&x).unwrap().shape().dims(), [8, 7, 5]);
}

/// The statistics of `count` normal samples stay within five standard errors.
fn assert_normal(row: &ParameterSummary, variance: f64) {
    let count = row.shape.elements() as f64;
    assert!(row.mean.abs() <= 5.0 * (variance / count).sqrt(), "{}: mean {}", row.name, row.mean);
    let error = (row.deviation.powi(2) / variance - 1.0).abs();
    assert!(error <= 5.0 * (2.0 / count).sqrt(), "{}: deviation {} for {variance}", row.name, row.deviation);
}

/// A layer, and the variance that each of some of its parameters starts with.
type Initial<'a> = (&'a dyn Module, &'a [(&'a str, f64)]);

#[test]
fn weights_start_with_the_variances_of_the_specification() {
    const N: usize = 64;
    let signature = Signature::STA;
    let n1 = 5.0;
    let place = f64s();
    let rng = &mut rng();
    let width = N as f64;
    let layers: [Initial<'_>; 6] = [
        (&MvLinear::new(N, 48, signature).init(&place, rng).unwrap(), &[("weight", 1.0 / width)]),
        (
            &MvLinear::new(N, 48, signature).per_grade(false).variance(0.3).init(&place, rng).unwrap(),
            &[("weight", 0.3)],
        ),
        (
            &CliffordLayer::new(N, signature).init(&place, rng).unwrap(),
            &[("gp_weight", 1.0 / n1), ("linear_weight", 1.0 / (width * n1))],
        ),
        (
            &CliffordLayer::new(N, signature).fully_connected(true).init(&place, rng).unwrap(),
            &[("gp_weight", 1.0 / n1), ("linear_weight", 1.0 / width)],
        ),
        (
            &SteerableProduct::new(N, signature).init(&place, rng).unwrap(),
            &[
                ("weight", 1.0 / n1),
                ("linear_right.weight", 1.0 / width),
                ("linear_left.weight", 1.0 / width),
            ],
        ),
        (
            &SteerableProduct::fully_connected(N, 32, signature).init(&place, rng).unwrap(),
            &[("weight", 1.0 / (width * n1)), ("linear_left.weight", 1.0 / width)],
        ),
    ];
    for (layer, expected) in layers {
        let table = init_table(layer).unwrap();
        for (name, variance) in expected {
            assert_normal(table.0.iter().find(|row| row.name == *name).unwrap(), *variance);
        }
        for row in table.0.iter().filter(|row| row.name.ends_with("bias") || row.name.ends_with(".a")) {
            assert_eq!(row.range, (0.0, 0.0), "{}", row.name);
        }
        let text = table.to_string();
        assert!(text.contains(&layer.parameter_count().to_string()) && text.contains("weight"), "{text}");
    }
}

#[test]
fn gains_start_as_the_identity_of_their_layer() {
    let range = |module: &dyn Module| -> Vec<(String, (f64, f64))> {
        init_table(module).unwrap().0.into_iter().map(|row| (row.name, row.range)).collect()
    };
    let silu = MvSilu::new(3, CL3).init(f64s()).unwrap();
    assert_eq!(range(&silu), [("a".to_owned(), (1.0, 1.0)), ("b".to_owned(), (0.0, 0.0))]);
    assert_eq!(range(&MvNormalization::new(3, CL3).init(f64s()).unwrap()), [("a".to_owned(), (0.0, 0.0))]);
    assert_eq!(range(&MvLayerNorm::new(3, CL3).init(f64s()).unwrap()), [("a".to_owned(), (1.0, 1.0))]);
}

#[test]
fn one_seed_gives_the_same_weights_in_every_dtype() {
    let init = |dtype| {
        let place = Placement::new(&Device::Cpu, dtype);
        CliffordLayer::new(6, CL3).init(&place, &mut rng()).unwrap()
    };
    let (wide, narrow) = (init(DType::F64), init(DType::F32));
    for ((name, wide), (_, narrow)) in wide.named_parameters().into_iter().zip(narrow.named_parameters()) {
        let wide: Vec<f32> =
            wide.array().to_f64_vec().unwrap().into_iter().map(|value| value as f32).collect();
        let narrow = narrow.array().to_vec::<f32>().unwrap();
        for (wide, narrow) in wide.iter().zip(&narrow) {
            assert!((wide - narrow).abs() <= 2.0 * f32::EPSILON * wide.abs(), "{name}");
        }
    }
}

/// A file as the Python reference writes it: its names, its shapes, the bias as `[1, 1, features]`.
fn reference_weights(golden: &TensorFile) -> TensorFile {
    let mut file = TensorFile::new();
    for (theirs, ours) in [("gw", "gp_weight"), ("lw", "linear_weight"), ("lb", "linear_bias")] {
        let tensor = golden.get(&format!("in.{theirs}")).unwrap();
        let mut shape = tensor.shape().to_vec();
        if theirs == "lb" {
            shape.splice(0..0, [1, 1]);
        }
        let values = tensor.to_f64_vec().unwrap();
        file.insert(ours, StoredTensor::from_f64(&shape, &values, DType::F64).unwrap());
    }
    file
}

fn load(module: &dyn Module, file: &TensorFile) -> gradewise_nn::Result<()> {
    module.load(&|name| file.find_array(name, DType::F64, &Device::Cpu))
}

#[test]
fn weights_of_the_python_reference_load_and_give_its_output() {
    for (name, full) in [("clifford_layer", false), ("clifford_layer_fc", true)] {
        let path = format!("tests/golden/{name}.safetensors");
        let golden = TensorFile::read(path).unwrap();
        let file = reference_weights(&golden);
        let expected = golden.get("out.y").unwrap().to_f64_vec().unwrap();
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-6)] {
            let place = Placement::new(&Device::Cpu, dtype);
            let layer = CliffordLayer::new(5, CL3)
                .fully_connected(full)
                .bias(Bias::AllBlades)
                .init(&place, &mut rng())
                .unwrap();
            load(&layer, &file).unwrap();
            assert_eq!(layer.named_parameters()[2].1.shape().dims(), [5], "the layer keeps its own shape");
            let x = Tensor::new(golden.array("in.x", dtype, &Device::Cpu).unwrap());
            let y = layer.forward(&x).unwrap().array().to_f64_vec().unwrap();
            let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
            let difference = square(&mut y.iter().zip(&expected).map(|(a, b)| a - b));
            let error = (difference / square(&mut expected.iter().copied())).sqrt();
            assert!(error <= tolerance, "{name}, {dtype}: {error:e}");
        }
    }
}

#[test]
fn weights_that_do_not_fit_are_refused_by_name_and_change_nothing() {
    let layer = CliffordLayer::new(5, CL3).init(f64s(), &mut rng()).unwrap();
    let values =
        || -> Vec<Vec<f64>> { layer.parameters().iter().map(|p| p.array().to_f64_vec().unwrap()).collect() };
    let before = values();
    let array = |shape: &[usize]| Array::ones(shape, DType::F64, &Device::Cpu).unwrap();
    let error = layer.load(&|name| Ok((name == "gp_weight").then(|| array(&[5, 20])))).unwrap_err();
    assert!(
        matches!(&error, Error::MissingParameters { names } if names == &["linear_weight", "linear_bias"]),
        "{error}"
    );
    // The last one is wrong, after two that fit.
    for wrong in [&[6][..], &[1, 1, 6], &[5, 2]] {
        let error = layer
            .load(&|name| {
                Ok(match name {
                    "gp_weight" => Some(array(&[5, 20])),
                    "linear_weight" => Some(array(&[4, 5, 5])),
                    "linear_bias" => Some(array(wrong)),
                    _ => None,
                })
            })
            .unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::ParameterShape { .. }), "{text}");
        assert!(text.contains("linear_bias") && text.contains("[5]"), "{text}");
    }
    assert_eq!(values(), before);
}

#[test]
fn layers_refuse_what_does_not_fit_and_say_why() {
    let randn = |shape: [usize; 3], dtype| Tensor::randn(shape, dtype, &Device::Cpu, &mut rng()).unwrap();
    let linear = MvLinear::new(4, 3, CL3).init(f64s(), &mut rng()).unwrap();
    let message = |x: Tensor| linear.forward(&x).unwrap_err().to_string();
    let text = message(randn([16, 2, 4], DType::F64));
    assert!(
        text.contains("mv_linear") && text.contains("[8, batch, features]") && text.contains("Cl(3,0,0)"),
        "{text}"
    );
    let text = message(randn([8, 2, 5], DType::F64));
    assert!(text.contains("[4, 5, out] or [5, out]") && text.contains("4 grades"), "{text}");
    let text = message(randn([8, 2, 4], DType::F32));
    assert!(text.contains("f32") && text.contains("f64"), "{text}");
    let error = CliffordLayer::new(4, Signature::new(9, 0, 0)).init(f64s(), &mut rng()).unwrap_err();
    assert!(error.to_string().contains("Cl(9,0,0)"), "{error}");
}

#[test]
fn an_empty_batch_goes_through_every_layer_and_back() {
    let place = f64s();
    let layer = Sequential::new()
        .then(MvMlp::init((3, 4, 1), CL3, &place, &mut rng()).unwrap())
        .then(CliffordLayer::new(4, CL3).init(&place, &mut rng()).unwrap())
        .then(CliffordLayer::new(4, CL3).fully_connected(true).init(&place, &mut rng()).unwrap())
        .then(Linear::new(4, 2).init(&place, &mut rng()).unwrap());
    let x = Tensor::zeros([8, 0, 3], DType::F64, &Device::Cpu).unwrap().requires_grad();
    let y = layer.forward(&x).unwrap();
    assert_eq!(y.shape().dims(), [8, 0, 2]);
    let gradients = y.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.get(&x).unwrap().shape(), x.shape());
    for (name, parameter) in layer.named_parameters() {
        let gradient = gradients.get(&parameter.tensor()).unwrap().to_vec::<f64>().unwrap();
        assert!(gradient.iter().all(|&value| value == 0.0), "{name}");
    }
}

#[test]
fn a_residual_is_added_by_the_last_block_and_to_nothing_else() {
    for blocks in 0..3 {
        let mlp = MvMlp::init((4, 4, blocks), CL3, f64s(), &mut rng()).unwrap();
        let [x, residual] =
            [(); 2].map(|()| Tensor::randn([8, 5, 4], DType::F64, &Device::Cpu, &mut rng()).unwrap());
        let residual = residual.mul_scalar(-3.0).unwrap();
        let sum = mlp.forward_residual(&x, &residual).unwrap();
        let expected = residual.add(&mlp.forward(&x).unwrap()).unwrap();
        assert_eq!(sum.to_vec::<f64>().unwrap(), expected.to_vec::<f64>().unwrap(), "{blocks} blocks");
    }
}

/// Every parameter of a whole model has a gradient: nothing is defined and then forgotten in `forward`.
#[test]
fn every_parameter_is_used() {
    let model = MessagePassing::init(4, 1, CL3, f64s(), &mut rng()).unwrap();
    let randn = |shape: [usize; 3]| Tensor::randn(shape, DType::F64, &Device::Cpu, &mut rng()).unwrap();
    let edges = Edges::complete(2, 3, &Device::Cpu).unwrap();
    let out = model.forward(&randn([8, 6, 4]), &randn([8, 12, 1]), &edges).unwrap();
    let gradients = out.square().unwrap().sum_all().unwrap().backward().unwrap();
    for (name, parameter) in model.named_parameters() {
        let gradient = gradients.get(&parameter.tensor()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(gradient.to_vec::<f64>().unwrap().iter().any(|&value| value != 0.0), "{name}");
    }
}

/// Of an energy of tracks, seen through forces: all but what adds a constant to it.
#[test]
fn every_parameter_of_a_force_field_is_used() {
    for (kind, layers) in
        [(ForceFieldKind::Tensors, 2), (ForceFieldKind::Tensors, 1), (ForceFieldKind::Vectors, 2)]
    {
        let config = ForceFieldConfig { kind, hidden: 3, layers, ..ForceFieldConfig::default() };
        let model = ForceField::init(&config, f64s(), &mut rng()).unwrap();
        let data = ForceData::sample(Potential::Charges, 2, 4, 0, Split::Train).unwrap();
        let example = data.batch(&[0, 1], &f64s()).unwrap();
        let gradients = model.loss(&example.batch, &example.forces).unwrap().backward().unwrap();
        for (name, parameter) in model.named_parameters() {
            let gradient =
                gradients.get(&parameter.tensor()).unwrap_or_else(|error| panic!("{kind}, {name}: {error}"));
            let used = gradient.to_vec::<f64>().unwrap().iter().any(|&value| value != 0.0);
            assert!(used, "{kind}, {layers}: {name}");
        }
    }
}

/// A checkpoint of before there were several models has fewer settings.
#[test]
fn settings_of_before_are_read() {
    let config: ForceFieldConfig = serde_json::from_str(r#"{"hidden":16,"layers":3}"#).unwrap();
    assert_eq!(config, ForceFieldConfig { hidden: 16, layers: 3, ..ForceFieldConfig::default() });
    assert_eq!(config.kind, ForceFieldKind::Messages);
    let config: HullConfig = serde_json::from_str(r#"{"hidden":16,"layers":3}"#).unwrap();
    assert_eq!(config, HullConfig { kind: HullKind::Products, hidden: 16, layers: 3 });
    let simplices = NBodyConfig { graph: NBodyGraph::Simplices, ..NBodyConfig::default() };
    assert!(simplices.fault().is_none());
    for faulty in [
        NBodyConfig { substeps: 2, ..simplices },
        NBodyConfig { geometry: true, ..simplices },
        NBodyConfig { conjugation: true, ..simplices },
    ] {
        assert_eq!(faulty.fault().map(|(setting, ..)| setting), Some("graph"));
        assert!(NBody::init(&faulty, f64s(), &mut rng()).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any signature and any sizes: outputs have the promised shape and are finite, gradients the shape of what they
    /// belong to.
    #[test]
    fn shapes_hold_in_every_signature(
        (p, q, r) in (0u8..4, 0u8..3, 0u8..2),
        batch in 1usize..7,
        width in 1usize..12,
        full: bool,
    ) {
        let signature = Signature::new(p, q, r);
        let blades = Algebra::new(signature).unwrap().blade_count();
        let place = f64s();
        let layer = Sequential::new()
            .then(MvLinear::new(width, 5, signature).init(&place, &mut rng()).unwrap())
            .then(MvSilu::new(5, signature).init(&place).unwrap())
            .then(CliffordLayer::new(5, signature).fully_connected(full).init(&place, &mut rng()).unwrap())
            .then(SteerableProduct::fully_connected(5, 2, signature).init(&place, &mut rng()).unwrap())
            .then(MvLayerNorm::new(2, signature).init(&place).unwrap());
        let x = Tensor::randn([blades, batch, width], DType::F64, &Device::Cpu, &mut rng()).unwrap().requires_grad();
        let y = layer.forward(&x).unwrap();
        prop_assert_eq!(y.shape().dims(), [blades, batch, 2]);
        prop_assert!(y.to_vec::<f64>().unwrap().iter().all(|value| value.is_finite()));
        let gradients = y.square().unwrap().mean_all().unwrap().backward().unwrap();
        prop_assert_eq!(gradients.get(&x).unwrap().shape(), x.shape());
        for parameter in layer.parameters() {
            prop_assert_eq!(gradients.get(&parameter.tensor()).unwrap().shape(), &parameter.shape());
        }
    }
}
