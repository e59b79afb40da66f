//! Outputs and all gradients of the published packages in double precision.

use crate::layout::Published;
use gradewise_autograd::Tensor;
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use gradewise_nn::{Module, Placement, checkpoint::TensorFile};
use gradewise_transformers::{
    Channels, EquiLinear, FeaturePlanes, Streams, TokenBatch,
    gatr::{AxialGATr, AxialGATrConfig, AxialTokens, GATr, GATrConfig, JoinReference},
    lgatr::{ConditionalLGATr, ConditionalLGATrConfig, LGATr, LGATrConfig, PrimitivesConfig},
    slim::{ConditionalLGATrSlim, ConditionalLGATrSlimConfig, LGATrSlim, LGATrSlimConfig, VectorStreams},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{collections::BTreeMap, fs, path::PathBuf};

fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../python/tests/transformers");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

type Values = BTreeMap<String, Vec<f64>>;
/// A network of streams, and what it is a module of.
type Network = (Box<dyn Module>, Box<dyn Fn(&[Streams]) -> Streams>);

/// Inputs and outputs of one golden file.
struct Case {
    file: TensorFile,
    blades: Published,
    dtype: DType,
    /// Rounds weights and inputs to single precision.
    is_rounded: bool,
}

impl Case {
    fn values(&self, name: &str) -> Vec<f64> {
        let values = self.file.get(name).unwrap_or_else(|| panic!("{name}")).to_f64_vec().unwrap();
        match self.is_rounded {
            true => values.into_iter().map(|value| f64::from(value as f32)).collect(),
            false => values,
        }
    }

    /// What the inputs hold beside scalars.
    fn kind(&self) -> &'static str {
        if self.blades.len() == 4 { "vectors" } else { "multivectors" }
    }

    fn tensor(&self, values: &[f64], shape: &[usize]) -> Tensor {
        Tensor::new(Array::from_f64(values, shape, self.dtype, &Device::Cpu).unwrap())
    }

    /// The streams `in.multivectors` and `in.scalars`, or of a condition.
    fn input(&self, suffix: &str) -> Option<Streams> {
        let name = format!("in.{}{suffix}", self.kind());
        let shape = self.file.get(&name)?.shape().to_vec();
        let (channels, tokens) = (shape[shape.len() - 2], shape[..shape.len() - 2].iter().product::<usize>());
        let x = self.tensor(&self.blades.enter(&self.values(&name)), &[self.blades.len(), tokens, channels]);
        let name = format!("in.scalars{suffix}");
        let scalars = self.file.get(&name).map_or(0, |tensor| *tensor.shape().last().unwrap());
        let s = if scalars > 0 { self.values(&name) } else { Vec::new() };
        let s = self.tensor(&s, &[tokens, scalars]);
        Some(Streams::new(x.requires_grad(), s.requires_grad()).unwrap())
    }

    /// Sets and tokens of each.
    fn tokens(&self, suffix: &str) -> TokenBatch {
        let shape = self.file.get(&format!("in.{}{suffix}", self.kind())).unwrap().shape();
        let items = shape[shape.len() - 3];
        TokenBatch::new(shape[..shape.len() - 3].iter().product(), items)
    }

    /// Outputs and gradients of a network with the weights of the file.
    fn run(&self) -> Values {
        let inputs: Vec<Streams> = ["", "_cond"].iter().filter_map(|suffix| self.input(suffix)).collect();
        let (module, forward) = self.network();
        let names: Vec<String> = module.named_parameters().into_iter().map(|(name, _)| name).collect();
        let published: Vec<&str> =
            self.file.iter().filter_map(|(name, _)| name.strip_prefix("weight.")).collect();
        let here: std::collections::BTreeSet<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(here, published.iter().copied().collect(), "names of parameters");
        let weights = |name: &str| {
            let name = format!("weight.{name}");
            let Some(tensor) = self.file.get(&name) else { return Ok(None) };
            let shape = tensor.shape();
            Ok(Some(Array::from_f64(&self.values(&name), shape, self.dtype, &Device::Cpu)?))
        };
        module.load(&weights).unwrap();
        let y = forward(&inputs);
        let mut made = Values::new();
        made.insert("out.0".to_owned(), self.blades.leave(&host(&y.multivectors)));
        let cotangent = self.blades.enter(&self.values("cot.0"));
        let mut loss = y.multivectors.mul(&self.tensor(&cotangent, y.multivectors.shape().dims())).unwrap();
        loss = loss.sum_all().unwrap();
        if self.file.get("cot.1").is_some() {
            made.insert("out.1".to_owned(), host(&y.scalars));
            let cotangent = self.tensor(&self.values("cot.1"), y.scalars.shape().dims());
            loss = loss.add(&y.scalars.mul(&cotangent).unwrap().sum_all().unwrap()).unwrap();
        }
        let gradients = loss.backward().unwrap();
        let of = |tensor: &Tensor| gradients.get(tensor).ok().map(|g| g.array().to_f64_vec().unwrap());
        for (input, suffix) in inputs.iter().zip(["", "_cond"]) {
            if let Some(found) = of(&input.multivectors) {
                made.insert(format!("grad.in.{}{suffix}", self.kind()), self.blades.leave(&found));
            }
            if let Some(found) = of(&input.scalars) {
                made.insert(format!("grad.in.scalars{suffix}"), found);
            }
        }
        for (name, parameter) in module.named_parameters() {
            if let Some(found) = of(&parameter.tensor()) {
                made.insert(format!("grad.weight.{name}"), found);
            }
        }
        made
    }

    fn network(&self) -> Network {
        let (placement, mut rng) = (Placement::new(&Device::Cpu, self.dtype), ChaCha8Rng::seed_from_u64(0));
        let arguments = &self.file.metadata["arguments"];
        let tokens = self.tokens("");
        match self.file.metadata["class"].as_str() {
            "LGATr" => {
                let config: LGATrConfig = serde_json::from_str(arguments).unwrap();
                shared(LGATr::init(&config, &placement, &mut rng).unwrap(), move |model, x| {
                    model.forward(&x[0], &tokens).unwrap()
                })
            }
            "GATr" => {
                let config: GATrConfig = serde_json::from_str(arguments).unwrap();
                shared(GATr::init(&config, &placement, &mut rng).unwrap(), move |model, x| {
                    model.forward(&x[0], &tokens, JoinReference::Data).unwrap()
                })
            }
            "AxialGATr" => {
                let config: AxialGATrConfig = serde_json::from_str(arguments).unwrap();
                let shape = self.file.get("in.multivectors").unwrap().shape();
                let tokens = AxialTokens { batch: shape[0], first: shape[1], second: shape[2] };
                shared(AxialGATr::init(&config, &placement, &mut rng).unwrap(), move |model, x| {
                    model.forward(&x[0], tokens, JoinReference::Data).unwrap()
                })
            }
            "ConditionalLGATr" => {
                let config: ConditionalLGATrConfig = serde_json::from_str(arguments).unwrap();
                let keys = self.tokens("_cond");
                shared(ConditionalLGATr::init(&config, &placement, &mut rng).unwrap(), move |model, x| {
                    model.forward((&x[0], &tokens), (&x[1], &keys)).unwrap()
                })
            }
            "LGATrSlim" => {
                let config: LGATrSlimConfig = serde_json::from_str(arguments).unwrap();
                shared(LGATrSlim::init(&config, &placement, &mut rng).unwrap(), move |model, x| {
                    let x = VectorStreams::new(x[0].multivectors.clone(), x[0].scalars.clone()).unwrap();
                    let y = model.forward(&x, &tokens).unwrap();
                    Streams::new(y.vectors, y.scalars).unwrap()
                })
            }
            "ConditionalLGATrSlim" => {
                let config: ConditionalLGATrSlimConfig = serde_json::from_str(arguments).unwrap();
                let keys = self.tokens("_cond");
                let model = ConditionalLGATrSlim::init(&config, &placement, &mut rng).unwrap();
                shared(model, move |model, x| {
                    let of = |x: &Streams| VectorStreams::new(x.multivectors.clone(), x.scalars.clone());
                    let (condition, x) = (of(&x[1]).unwrap(), of(&x[0]).unwrap());
                    let y = model.forward((&x, &tokens), (&condition, &keys)).unwrap();
                    Streams::new(y.vectors, y.scalars).unwrap()
                })
            }
            "EquiLinear" => {
                let given: serde_json::Value = serde_json::from_str(arguments).unwrap();
                let size = |name: &str| given[name].as_u64().unwrap() as usize;
                let inputs = Channels::new(size("in_mv_channels"), size("in_s_channels"));
                let outputs = Channels::new(size("out_mv_channels"), size("out_s_channels"));
                let space = PrimitivesConfig::default().space().unwrap();
                let linear = EquiLinear::new(inputs, outputs, &space).bias(given["bias"] != false);
                shared(linear.init(&placement, &mut rng).unwrap(), move |linear, x| {
                    let x = FeaturePlanes::new(&space, &x[0]).unwrap();
                    linear.forward(&x).unwrap().streams(&space).unwrap()
                })
            }
            other => panic!("no test of {other}"),
        }
    }
}

fn shared<M: Module + 'static>(module: M, forward: impl Fn(&M, &[Streams]) -> Streams + 'static) -> Network {
    let module = std::sync::Arc::new(module);
    let other = std::sync::Arc::clone(&module);
    (Box::new(module), Box::new(move |x| forward(&other, x)))
}

fn host(tensor: &Tensor) -> Vec<f64> {
    tensor.array().to_f64_vec().unwrap()
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The greatest relative deviation. Gradients that are 0 by a symmetry, such as those of what is added to all keys, are compared with the
/// greatest times `least`.
fn worst(actual: &Values, file: &TensorFile, least: f64) -> (f64, String) {
    let expected: Values = file
        .iter()
        .filter(|(name, _)| name.starts_with("out.") || name.starts_with("grad."))
        .map(|(name, tensor)| (name.to_owned(), tensor.to_f64_vec().unwrap()))
        .collect();
    let floor = least * expected.values().map(|values| norm(values)).fold(0.0, f64::max);
    assert!(expected.len() > 4, "the file has outputs and gradients");
    let deviation = |(name, expected): (&String, &Vec<f64>)| {
        let Some(actual) = actual.get(name) else {
            assert!(norm(expected) <= floor, "{name} is missing");
            return (0.0, name.clone());
        };
        assert_eq!(actual.len(), expected.len(), "{name}");
        let difference: Vec<f64> = actual.iter().zip(expected).map(|(a, b)| a - b).collect();
        (norm(&difference) / norm(expected).max(floor), name.clone())
    };
    expected.iter().map(deviation).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
}

fn each(check: impl Fn(&str, &dyn Fn(DType, bool) -> Values, &TensorFile)) {
    let mut seen = 0;
    for path in files() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        seen += 1;
        let file = TensorFile::read(&path).unwrap();
        let run = |dtype: DType, is_rounded: bool| {
            let blades = match (&*file.metadata["package"], file.get("in.vectors")) {
                (_, Some(_)) => Published::vectors(),
                (package, _) if package.starts_with("gatr") => Published::projective(),
                _ => Published::space_time(),
            };
            Case { file: file.clone(), blades, dtype, is_rounded }.run()
        };
        check(&name, &run, &file);
    }
    assert_eq!(seen, 18, "golden files");
}

#[test]
fn double_precision_is_the_published() {
    each(|name, run, file| {
        let (error, tensor) = worst(&run(DType::F64, false), file, 1e-4);
        println!("{name}: {error:e} of {tensor}");
        assert!(error < 1e-11, "{name}: {error:e} of {tensor}");
    });
}

/// What rounding inputs and weights alone does is no fault of the network.
#[test]
fn single_precision_is_close() {
    each(|name, run, file| {
        let (rounding, _) = worst(&run(DType::F64, true), file, 1e-2);
        let (error, tensor) = worst(&run(DType::F32, false), file, 1e-2);
        println!("{name}: {error:e} of {tensor}, rounding {rounding:e}");
        assert!(error < f64::max(1e-5, 10.0 * rounding), "{name}: {error:e} of {tensor}");
    });
}
