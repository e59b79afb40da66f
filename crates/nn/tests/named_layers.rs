//! Tensors of a wrong size are refused in the name of the layer that was called, with the shape given and the one needed.

use gradewise_core::{OrderedMetric, Signature};
use gradewise_nn::{
    DType, Device, Error, Placement, Result, Tensor,
    fields::{
        CliffordBatchNorm, CliffordConv, CliffordGroupNorm, CliffordLinear, FieldNet, FieldNetConfig, G3Conv,
        MvAct, PlainResNet, PlainResNetConfig,
    },
    layers::*,
};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CL3: Signature = Signature::CL3;

/// A layer by name, and the axis of its input that the number of features lies along, of a shape that it takes.
struct Case {
    name: &'static str,
    layer: Box<dyn DynLayer>,
    shape: Vec<usize>,
}

fn cases(features: usize, rows: usize) -> Result<Vec<Case>> {
    let (place, rng) = (&Placement::new(&Device::Cpu, DType::F64), &mut ChaCha8Rng::seed_from_u64(1));
    let plane = OrderedMetric::new(&[1, 1])?;
    let case = |name, layer: Box<dyn DynLayer>, shape: &[usize]| Case { name, layer, shape: shape.to_vec() };
    let blades = [8, rows, features];
    let flat = [rows, features];
    let grid = [4, rows, 5, 5, features];
    let net = FieldNetConfig { inputs: features, outputs: 1, hidden: 4, norm: None, ..Default::default() };
    let plain = PlainResNetConfig {
        inputs: features,
        outputs: 1,
        hidden: 4,
        components: 4,
        axes: 2,
        taps: 3,
        blocks: 1,
        norm: true,
    };
    Ok(vec![
        case("Linear", Box::new(Linear::new(features, 2).init(place, rng)?), &flat),
        case("LayerNorm", Box::new(LayerNorm::new(features).init(place)?), &flat),
        case("RmsNorm", Box::new(RmsNorm::new(features).init(place)?), &flat),
        case(
            "SelfAttention",
            Box::new(SelfAttention::new(features, 1).init(place, rng)?),
            &[2, rows, features],
        ),
        case("MvLinear", Box::new(MvLinear::new(features, 2, CL3).init(place, rng)?), &blades),
        case("MvSilu", Box::new(MvSilu::new(features, CL3).init(place)?), &blades),
        case("MvNormalization", Box::new(MvNormalization::new(features, CL3).init(place)?), &blades),
        case("MvLayerNorm", Box::new(MvLayerNorm::new(features, CL3).init(place)?), &blades),
        case("MvBlock", Box::new(MvBlock::new(features, 2, CL3).init(place, rng)?), &blades),
        case("CliffordLayer", Box::new(CliffordLayer::new(features, CL3).init(place, rng)?), &blades),
        case("SteerableProduct", Box::new(SteerableProduct::new(features, CL3).init(place, rng)?), &blades),
        case(
            "SteerableProduct",
            Box::new(SteerableProduct::fully_connected(features, 2, CL3).init(place, rng)?),
            &blades,
        ),
        case("MetricProduct", Box::new(MetricProduct::init(features, CL3, place, rng)?), &blades),
        case(
            "TracelessProduct",
            Box::new(TracelessProduct::new(features, 2, CL3).init(place, rng)?),
            &[3, rows, features],
        ),
        case(
            "CliffordLinear",
            Box::new(CliffordLinear::new(&plane, features, 2).init(place, rng)?),
            &[4, rows, features],
        ),
        case(
            "CliffordConv",
            Box::new(CliffordConv::new(&plane, features, 2, &[3; 2]).init(place, rng)?),
            &grid,
        ),
        case("CliffordBatchNorm", Box::new(CliffordBatchNorm::new(4, features).init(place)?), &grid),
        case("CliffordGroupNorm", Box::new(CliffordGroupNorm::new(4, features, 1).init(place)?), &grid),
        case("G3Conv", Box::new(G3Conv::new(features, 2, 3).init(place, rng)?), &[3, rows, 5, 5, features]),
        case("MvAct", Box::new(MvAct::new(features, &[0, 1, 2, 3]).init(place, rng)?), &grid),
        case("FieldNet", Box::new(FieldNet::init(&net, place, rng)?), &[3, rows, 5, 5, features]),
        case("PlainResNet", Box::new(PlainResNet::init(&plain, place, rng)?), &grid),
    ])
}

fn zeros(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Ok(Tensor::zeros(shape, dtype, &Device::Cpu)?)
}

/// How many texts of the form `[2, 3]` there are that differ.
fn shapes(message: &str) -> usize {
    let mut found: Vec<&str> = message
        .split('[')
        .skip(1)
        .filter_map(|rest| rest.split(']').next())
        .filter(|inner| inner.starts_with(|c: char| c.is_alphanumeric() || c == '…'))
        .collect();
    found.sort_unstable();
    found.dedup();
    found.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn wrong_sizes_are_refused_in_the_layers_name_with_both_shapes(
        features in 2..5usize,
        rows in 2..5usize,
        wrong in 1..9usize,
        blades in 1..12usize,
    ) {
        // All that is wrong, to be seen at once.
        let mut wrongs = Vec::new();
        for Case { name, layer, shape } in cases(features, rows)? {
            if let Err(error) = layer.forward(&zeros(&shape, DType::F64)?) {
                wrongs.push(format!("{name} of {shape:?}: {error}"));
            }
            let mut narrow = shape.clone();
            narrow[shape.len() - 1] = wrong;
            let mut other = shape.clone();
            other[0] = blades;
            // The first axis of these is one of rows.
            let has_blades = shape.len() > 2 && name != "SelfAttention";
            for bad in [narrow, other] {
                if bad == shape || !has_blades && bad[0] != shape[0] {
                    continue;
                }
                match layer.forward(&zeros(&bad, DType::F64)?) {
                    Ok(_) => wrongs.push(format!("{name} accepts {bad:?}")),
                    Err(error) => {
                        let message = error.to_string();
                        let named = message.starts_with(&format!("{name}::forward of {bad:?}: "));
                        if !named || message.contains("table_product") || shapes(&message) < 2 {
                            wrongs.push(message);
                        }
                    }
                }
            }
        }
        prop_assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    }
}

#[test]
fn other_mistakes_name_the_layer_too_and_failures_do_not() -> Result<()> {
    let (mut refused, cases_of_f64) = (0, cases(2, 3)?);
    for Case { name, layer, shape } in &cases_of_f64 {
        // Norms and blocks among others take parameters of a wider dtype.
        let Err(error) = layer.forward(&zeros(shape, DType::F32)?) else { continue };
        let message = error.to_string();
        let named = message.starts_with(&format!("{name}::forward of {shape:?}: "));
        assert!(named && message.contains("f32"), "{message}");
        assert!(matches!(error, Error::Layer { .. }) && !matches!(error.cause(), Error::Layer { .. }));
        refused += 1;
    }
    assert!(refused >= 12, "{refused} of {} layers refuse another dtype", cases_of_f64.len());
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let case = &cases_of_f64[4];
    let stopped =
        gradewise_autograd::stoppable(&stop, || case.layer.forward(&zeros(&case.shape, DType::F64)?));
    let error = stopped.unwrap_err();
    assert!(error.is_stopped() && !matches!(error, Error::Layer { .. }), "{error}");
    Ok(())
}

#[test]
fn the_layer_that_was_called_is_named_first() -> Result<()> {
    let (place, rng) = (&Placement::new(&Device::Cpu, DType::F64), &mut ChaCha8Rng::seed_from_u64(1));
    let model = Sequential::new()
        .then(MvLinear::new(3, 4, CL3).init(place, rng)?)
        .then(MvSilu::new(5, CL3).init(place)?);
    let message = model.forward(&zeros(&[8, 2, 3], DType::F64)?).unwrap_err().to_string();
    assert!(
        message.starts_with("Sequential::forward, layer 1: MvSilu::forward of [8, 2, 4]: mv_silu: "),
        "{message}"
    );
    Ok(())
}

/// Functions given to autograd call layers with `?`, and the layer is still named.
#[test]
fn errors_of_layers_pass_through_functions_of_autograd() -> Result<()> {
    use gradewise_autograd::{GradcheckOptions, checkpoint, gradcheck, jvp};
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let layer = MvLinear::new(3, 4, CL3).init(Placement::new(&Device::Cpu, DType::F64), rng)?;
    let good = Tensor::randn([8, 2, 3], DType::F64, &Device::Cpu, rng)?;
    gradcheck(&[&good], &GradcheckOptions::default(), |x| Ok(layer.forward(&x[0])?))?;
    let bad = zeros(&[8, 2, 2], DType::F64)?;
    let checked: Error =
        gradcheck(&[&bad], &GradcheckOptions::default(), |x| Ok(layer.forward(&x[0])?)).unwrap_err().into();
    let along: Error = jvp(&[&bad], &[&bad], |x| Ok(layer.forward(&x[0])?)).unwrap_err().into();
    let copy = layer.clone();
    let kept: Error = checkpoint(&[&bad], move |x| Ok(copy.forward(&x[0])?)).unwrap_err().into();
    for error in [checked, along, kept] {
        assert!(error.to_string().starts_with("MvLinear::forward of [8, 2, 2]: "), "{error}");
        assert!(matches!(error.cause(), Error::Autograd(_) | Error::Kernels(_)), "{error:?}");
    }
    // A text that a user's own code made is an error of nn as it is.
    let own = || -> Result<()> { Err("out of luck".to_owned())? };
    let erased = || -> Result<()> { Err(Box::<dyn std::error::Error + Send + Sync>::from("out of luck"))? };
    assert_eq!(erased().unwrap_err().to_string(), "out of luck");
    assert_eq!(own().unwrap_err().to_string(), "out of luck");
    Ok(())
}
