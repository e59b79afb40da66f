//! Networks on fields: weights of the published implementations load and give their outputs, and the steerable network has its symmetries.
//!
//! The files of `tests/fields` hold a state, an input and an output of the published PyTorch modules in double precision
//! (`CliffordFluidNet2d` and `CliffordMaxwellNet3d` of cliffordlayers, `CliffordResNet` of Zhdanov et al.), all at toy sizes.

use gradewise_autograd::Tensor;
use gradewise_core::DType;
use gradewise_kernels::{Array, Device, Index};
use gradewise_nn::{
    Module, Placement,
    checkpoint::TensorFile,
    fields::{
        CliffordConv, CliffordLinear, CliffordResNet, CliffordResNetConfig, FieldBias, FieldBlock, FieldNet,
        FieldNetConfig, G3ResNet, G3ResNetConfig, G3UNet, G3UNetConfig, GateArgument, MvAct, Padding,
        PgaConjugateLinear, SteerableConv, SteerableResNet, SteerableResNetConfig, field_from_channels_first,
        field_to_channels_first,
    },
    layers::Layer,
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(1)
}

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

fn random(shape: &[usize], seed: u64) -> Tensor {
    Tensor::randn(shape, DType::F64, &Device::Cpu, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

fn difference(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    a.array().relative_error(b.array()).unwrap()
}

/// Every parameter, the zero ones too, away from where it began.
fn perturb(module: &dyn Module) {
    for (at, parameter) in module.parameters().into_iter().enumerate() {
        let noise = random(&parameter.shape(), 50 + at as u64);
        let moved = noise.mul_scalar(0.3).unwrap().add(&parameter.tensor()).unwrap();
        parameter.set(moved.array().clone()).unwrap();
    }
}

/// Loads the weights of a file into the model that `build` makes of its configuration, and compares the outputs.
fn reproduces<M: Layer>(name: &str, build: impl Fn(&str) -> M) {
    let path = gradewise_testing::manifest_dir!().join("tests/fields").join(format!("{name}.safetensors"));
    let file = TensorFile::read(path).unwrap();
    let array = |name: &str| file.array(name, DType::F64, &Device::Cpu).unwrap();
    let model = build(&file.metadata["config"]);
    model.load(&|name| file.find_array(&format!("weights.{name}"), DType::F64, &Device::Cpu)).unwrap();
    let x = field_from_channels_first(&Tensor::new(array("x"))).unwrap();
    let y = field_to_channels_first(&model.forward(&x).unwrap()).unwrap();
    let error = difference(&y, &Tensor::new(array("y")));
    assert!(error < 1e-12, "{name}: {error:.1e}");
}

#[test]
fn weights_of_the_published_implementations_load_and_give_their_outputs() {
    let field_net = |config: &str| {
        let config: FieldNetConfig = serde_json::from_str(config).unwrap();
        FieldNet::init(&config, place(), &mut rng()).unwrap()
    };
    for name in ["resnet2d_norm", "resnet2d_rotation", "fourier2d", "fourier3d"] {
        reproduces(name, field_net);
    }
    reproduces("g3_resnet", |config| {
        let config: G3ResNetConfig = serde_json::from_str(config).unwrap();
        G3ResNet::init(&config, place(), &mut rng()).unwrap()
    });
    reproduces("g3_unet", |config| {
        let config: G3UNetConfig = serde_json::from_str(config).unwrap();
        G3UNet::init(&config, place(), &mut rng()).unwrap()
    });
    reproduces("resnet_g3norm", |config| {
        let config: CliffordResNetConfig = serde_json::from_str(config).unwrap();
        CliffordResNet::init(&config, place(), &mut rng()).unwrap()
    });
}

#[test]
fn parameters_have_the_published_names_and_numbers() {
    let config = FieldNetConfig { hidden: 2, blocks: vec![1], ..FieldNetConfig::default() };
    let names = |module: &dyn Module| -> Vec<String> {
        module.named_parameters().into_iter().map(|(name, _)| name).collect()
    };
    let net = FieldNet::init(&config, place(), &mut rng()).unwrap();
    let found = names(&net);
    for name in [
        "encoder.weight.3",
        "encoder.bias",
        "layers.0.0.conv1.weight.0",
        "layers.0.0.conv2.bias",
        "decoder.weight.0",
    ] {
        assert!(found.iter().any(|found| found == name), "{name}");
    }
    assert!(!found.iter().any(|name| name == "decoder.bias"));
    let fourier = FieldNetConfig { block: FieldBlock::Fourier, modes: vec![2, 2], ..config };
    assert!(
        names(&FieldNet::init(&fourier, place(), &mut rng()).unwrap())
            .contains(&"layers.0.0.fourier.weights".to_owned())
    );
    // One weight for each of the 10 paths of Cl(2,0), and so on: the published layer's numbers by its shapes.
    let steerable = SteerableResNetConfig {
        hidden: 2,
        blocks: vec![1],
        kernel_layers: 2,
        kernel_hidden: 3,
        ..SteerableResNetConfig::default()
    };
    let net = SteerableResNet::init(&steerable, place(), &mut rng()).unwrap();
    let found = names(&net);
    let kernel = "CSBasicBlock_0.CliffordSteerableConv_1.CliffordSteerableKernel_0";
    for name in [
        format!("{kernel}.rel_pos_sigma"),
        format!("{kernel}.KernelNetwork_0.FullyConnectedSteerableGeometricProductLayer_1.MVLinear_1.bias"),
        format!("{kernel}.KernelNetwork_0.GradeNorm_0.factor"),
        "CliffordSteerableConv_3.bias".to_owned(),
    ] {
        assert!(found.contains(&name), "{name}");
    }
    assert!(
        !found.contains(&format!("{kernel}.KernelNetwork_0.GradeNorm_1.factor")),
        "the last layer has none"
    );
}

/// ρ(T)·f(T⁻¹x) for the map of the plane that takes axis 0 to ±axis 1 and axis 1 to ±axis 0, on fields of blades 1, e1, e2, e12.
fn turned(x: &Tensor, [first, second]: [f64; 2]) -> Tensor {
    // e1 → first·e2, e2 → second·e1, e12 → first·second·e21 = −first·second·e12.
    let blades = x.index_select(0, &Index::new(&[0, 2, 1, 3], 4, &Device::Cpu).unwrap()).unwrap();
    let signs = [1.0, second, first, -first * second];
    let signs = Tensor::new(Array::from_f64(&signs, [4, 1, 1, 1, 1], DType::F64, &Device::Cpu).unwrap());
    let x = blades.mul(&signs).unwrap().transpose(2, 3).unwrap();
    [(3, first), (2, second)].into_iter().fold(x, |x, (axis, sign)| {
        let size = x.shape()[axis];
        let back: Vec<usize> = if sign > 0.0 { (0..size).collect() } else { (0..size).rev().collect() };
        x.index_select(axis, &Index::new(&back, size, &Device::Cpu).unwrap()).unwrap()
    })
}

#[test]
fn the_steerable_network_turns_with_the_field_and_others_do_not() {
    let config = SteerableResNetConfig {
        inputs: 2,
        hidden: 3,
        taps: 3,
        kernel_layers: 3,
        kernel_hidden: 4,
        blocks: vec![1, 1],
        ..SteerableResNetConfig::default()
    };
    let x = random(&[4, 2, 6, 6, 2], 3);
    for conditioned in [false, true] {
        let config = SteerableResNetConfig { conditioned, ..config.clone() };
        let net = SteerableResNet::init(&config, place(), &mut rng()).unwrap();
        perturb(&net);
        for signs in [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]] {
            let error = difference(
                &net.forward(&turned(&x, signs)).unwrap(),
                &turned(&net.forward(&x).unwrap(), signs),
            );
            assert!(error < 1e-12, "{signs:?}: {error:.1e}");
        }
    }
    let config = CliffordResNetConfig {
        inputs: 2,
        hidden: 3,
        taps: 3,
        blocks: vec![1],
        ..CliffordResNetConfig::default()
    };
    let plain = CliffordResNet::init(&config, place(), &mut rng()).unwrap();
    let error = difference(
        &plain.forward(&turned(&x, [1.0, -1.0])).unwrap(),
        &turned(&plain.forward(&x).unwrap(), [1.0, -1.0]),
    );
    assert!(error > 0.01, "{error:.1e}");
}

#[test]
fn a_kernel_that_depends_on_the_field_has_more_inputs_and_is_not_kept() {
    let metric = "-1,1".parse().unwrap();
    let layer = SteerableConv::new(&metric, 2, 3, 3).conditioned(true).init(place(), &mut rng()).unwrap();
    let first = "CliffordSteerableKernel_0.KernelNetwork_0.FullyConnectedSteerableGeometricProductLayer_0.MVLinear_0.weight";
    let found = layer.named_parameters().into_iter().find(|(name, _)| name == first).unwrap();
    assert_eq!(found.1.shape().dims(), [3, 3, 3], "the position and two channels");
    let of = |seed| {
        let x = random(&[4, 2, 5, 4, 2], seed);
        let without_history = gradewise_autograd::no_grad(|| layer.forward(&x)).unwrap();
        assert_eq!(without_history.shape().dims(), [4, 2, 5, 4, 3]);
        assert_eq!(
            without_history.to_vec::<f64>().unwrap(),
            layer.forward(&x).unwrap().to_vec::<f64>().unwrap()
        );
        without_history
    };
    assert!(difference(&of(1), &of(2)) > 1e-3);
}

#[test]
fn a_steerable_kernel_is_kept_while_its_parameters_stay() {
    let layer = SteerableConv::new(&"1,1".parse().unwrap(), 1, 2, 3).init(place(), &mut rng()).unwrap();
    let x = random(&[4, 1, 5, 5, 1], 2);
    let without_history = || gradewise_autograd::no_grad(|| layer.forward(&x)).unwrap();
    let (first, again) = (without_history(), without_history());
    assert_eq!(first.to_vec::<f64>().unwrap(), again.to_vec::<f64>().unwrap());
    assert_eq!(first.to_vec::<f64>().unwrap(), layer.forward(&x).unwrap().to_vec::<f64>().unwrap());
    perturb(&layer);
    let changed = without_history();
    assert!(difference(&changed, &first) > 1e-3);
    assert_eq!(changed.to_vec::<f64>().unwrap(), layer.forward(&x).unwrap().to_vec::<f64>().unwrap());
}

#[test]
fn layers_have_the_shapes_they_say() {
    let metric = "1,1".parse().unwrap();
    let x = random(&[4, 2, 8, 6, 2], 1);
    let conv = |taps: &[usize]| CliffordConv::new(&metric, 2, 3, taps);
    let shape = |layer: &dyn Layer, x: &Tensor| layer.forward(x).unwrap().shape().to_vec();
    let init =
        |builder: gradewise_nn::fields::CliffordConvBuilder| builder.init(place(), &mut rng()).unwrap();
    assert_eq!(shape(&init(conv(&[3, 3]).padding_mode(Padding::Circular)), &x), [4, 2, 8, 6, 3]);
    assert_eq!(shape(&init(conv(&[2, 2]).stride(&[2, 2]).padding(&[0, 0])), &x), [4, 2, 4, 3, 3]);
    assert_eq!(shape(&init(conv(&[3, 3]).dilation(&[2, 1])), &x), [4, 2, 8, 6, 3]);
    let up = conv(&[2, 2]).stride(&[2, 2]).padding(&[0, 0]).transposed(&[0, 0]);
    assert_eq!(shape(&init(up), &x), [4, 2, 16, 12, 3]);
    let encoder = init(conv(&[1, 1]).input_blades(&[0, 1, 2]));
    assert_eq!(shape(&encoder, &random(&[3, 2, 8, 6, 2], 2)), [4, 2, 8, 6, 3]);
    let groups = CliffordConv::new(&metric, 2, 4, &[3, 3]).groups(2).init(place(), &mut rng()).unwrap();
    assert_eq!(shape(&groups, &x), [4, 2, 8, 6, 4]);
    // A bias on the scalar alone reaches no other blade.
    let scalar = init(conv(&[1, 1]).bias(FieldBias::Scalar));
    let zero = Tensor::zeros([4, 1, 2, 2, 2], DType::F64, &Device::Cpu).unwrap();
    let y = scalar.forward(&zero).unwrap();
    let values = y.to_vec::<f64>().unwrap();
    assert!(values[..12].iter().any(|v| *v != 0.0) && values[12..].iter().all(|v| *v == 0.0));
    let linear = CliffordLinear::new(&metric, 2, 5).init(place(), &mut rng()).unwrap();
    assert_eq!(shape(&linear, &x), [4, 2, 8, 6, 5]);
    let points = PgaConjugateLinear::new(2, 3, &[11, 12, 13]).init(place(), &mut rng()).unwrap();
    assert_eq!(shape(&points, &random(&[3, 4, 2], 4)), [3, 4, 3]);
    for argument in [GateArgument::Linear, GateArgument::Sum, GateArgument::Mean] {
        let gate = MvAct::new(2, &[0, 1, 2, 3]).argument(argument).init(place(), &mut rng()).unwrap();
        assert_eq!(shape(&gate, &x), [4, 2, 8, 6, 2]);
    }
    for refused in [
        conv(&[3, 3]).rotation(true).init(place(), &mut rng()),
        conv(&[3, 3]).groups(3).init(place(), &mut rng()),
    ] {
        assert!(refused.unwrap_err().to_string().contains("CliffordConv"));
    }
}
