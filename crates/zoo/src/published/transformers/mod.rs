//! The transformers of the packages `lgatr` 2.0 (Spinner et al. 2024, arXiv:2405.14806; Petitjean et al. 2025, arXiv:2512.17011) and `gatr` 1.4
//! (Brehmer et al. 2023, arXiv:2305.18415).
//!
//! The networks of this library have the published names and shapes of parameters, so the list of weights comes from a network whose settings
//! follow from the shapes, and where they do not, from what the user says.

mod gatr;
mod lgatr;
mod sizes;
mod slim;
mod tasks;

pub(super) use tasks::{network_of_checkpoint, of_checkpoint};

use super::{Layout, PublishedModel, Settings, Weight};
use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_nn::{
    Module, Placement,
    checkpoint::{StoredTensor, TensorFile},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Model names in the checkpoints of networks that no task of the program trains.
const LGATR: &str = "lgatr";
const CONDITIONAL: &str = "lgatr-conditional";
const SLIM: &str = "lgatr-slim";
const CONDITIONAL_SLIM: &str = "lgatr-conditional-slim";
const GATR: &str = "gatr";
const AXIAL_GATR: &str = "gatr-axial";

/// The layout of a published file, by the sizes of its weights and by what `settings` say.
pub(super) fn published(
    file: &TensorFile,
    model: PublishedModel,
    settings: &Settings,
) -> Result<Layout, String> {
    match model {
        PublishedModel::LGATr => Network::LGATr(lgatr::config(file, settings)?).layout(LGATR, file, ["", ""]),
        PublishedModel::Conditional => {
            Network::Conditional(lgatr::conditional(file, settings)?).layout(CONDITIONAL, file, ["", ""])
        }
        PublishedModel::Slim => Network::Slim(slim::config(file, settings)?).layout(SLIM, file, ["", ""]),
        PublishedModel::ConditionalSlim => {
            let config = slim::conditional(file, settings)?;
            Network::ConditionalSlim(config).layout(CONDITIONAL_SLIM, file, ["", ""])
        }
        PublishedModel::GATr => Network::GATr(gatr::config(file, settings)?).layout(GATR, file, ["", ""]),
        PublishedModel::AxialGATr => {
            Network::AxialGATr(gatr::axial(file, settings)?).layout(AXIAL_GATR, file, ["", ""])
        }
        PublishedModel::NBody => tasks::gravity(file, settings),
        _ => tasks::lorentz(file, settings),
    }
}

/// A network with its settings.
enum Network {
    LGATr(gradewise_transformers::lgatr::LGATrConfig),
    Conditional(gradewise_transformers::lgatr::ConditionalLGATrConfig),
    Slim(gradewise_transformers::slim::LGATrSlimConfig),
    ConditionalSlim(gradewise_transformers::slim::ConditionalLGATrSlimConfig),
    GATr(gradewise_transformers::gatr::GATrConfig),
    AxialGATr(gradewise_transformers::gatr::AxialGATrConfig),
}

impl Network {
    /// Its tensors beside those of `like`, whose dtype is that of tensors without elements; the published names have the first prefix, those
    /// of the checkpoint the second.
    fn layout(&self, model: &'static str, like: &TensorFile, prefixes: [&str; 2]) -> Result<Layout, String> {
        use gradewise_transformers::{gatr, lgatr, slim};
        let (place, mut rng) = (Placement::new(&Device::Cpu, DType::F32), ChaCha8Rng::seed_from_u64(0));
        let fail = |error: gradewise_nn::Error| error.to_string();
        let network: Box<dyn Module> = match self {
            Self::LGATr(config) => Box::new(lgatr::LGATr::init(config, place, &mut rng).map_err(fail)?),
            Self::Conditional(config) => {
                Box::new(lgatr::ConditionalLGATr::init(config, place, &mut rng).map_err(fail)?)
            }
            Self::Slim(config) => Box::new(slim::LGATrSlim::init(config, place, &mut rng).map_err(fail)?),
            Self::ConditionalSlim(config) => {
                Box::new(slim::ConditionalLGATrSlim::init(config, place, &mut rng).map_err(fail)?)
            }
            Self::GATr(config) => Box::new(gatr::GATr::init(config, place, &mut rng).map_err(fail)?),
            Self::AxialGATr(config) => {
                Box::new(gatr::AxialGATr::init(config, place, &mut rng).map_err(fail)?)
            }
        };
        let [of_file, here] = prefixes;
        let weight = |(name, parameter): (String, gradewise_nn::Parameter)| {
            let shape = parameter.shape();
            let axes: Vec<usize> = (0..shape.rank()).collect();
            Weight::new(
                format!("{of_file}{name}"),
                format!("{here}{name}"),
                shape.dims(),
                &axes,
                shape.dims(),
            )
        };
        let dtype = like.iter().find_map(|(_, tensor)| tensor.dtype()).unwrap_or(DType::F32);
        let empty = |(name, shape): (String, Vec<usize>)| {
            let tensor = StoredTensor::from_f64(&shape, &[], dtype).map_err(fail)?;
            Ok::<_, String>((format!("{of_file}{name}"), tensor))
        };
        Ok(Layout {
            model,
            config: self.config()?,
            weights: network.named_parameters().into_iter().map(weight).collect(),
            derived: self.empty().into_iter().map(empty).collect::<Result<_, _>>()?,
            copies: Vec::new(),
        })
    }

    /// The name of the network alone in checkpoints.
    fn name(&self) -> &'static str {
        match self {
            Self::LGATr(_) => LGATR,
            Self::Conditional(_) => CONDITIONAL,
            Self::Slim(_) => SLIM,
            Self::ConditionalSlim(_) => CONDITIONAL_SLIM,
            Self::GATr(_) => GATR,
            Self::AxialGATr(_) => AXIAL_GATR,
        }
    }

    fn config(&self) -> Result<Value, String> {
        match self {
            Self::LGATr(config) => written(config),
            Self::Conditional(config) => written(config),
            Self::Slim(config) => written(config),
            Self::ConditionalSlim(config) => written(config),
            Self::GATr(config) => written(config),
            Self::AxialGATr(config) => written(config),
        }
    }

    /// Parameters of the published network that have no elements, and their shapes.
    fn empty(&self) -> Vec<(String, Vec<usize>)> {
        let gains = |blocks: usize, norms: &[&str]| {
            let of_block = |block: usize| {
                norms
                    .iter()
                    .map(move |norm| (format!("blocks.{block}.{norm}.weight_s"), vec![0]))
                    .collect::<Vec<_>>()
            };
            (0..blocks).flat_map(of_block).collect::<Vec<_>>()
        };
        match self {
            Self::LGATr(config) if config.norm_elementwise_affine && config.hidden_s_channels == 0 => {
                gains(config.num_blocks, &["norm1", "norm2"])
            }
            Self::Conditional(config) if config.norm_elementwise_affine => {
                let mut norms = Vec::new();
                if config.hidden_s_channels == 0 {
                    norms.extend(["norm1", "norm2", "norm3"]);
                }
                if config.s_channels_cond == 0 {
                    norms.push("norm_cond");
                }
                gains(config.num_blocks, &norms)
            }
            Self::Slim(config) if config.out_v_channels == 0 => of_no_vectors(config.hidden_v_channels),
            Self::ConditionalSlim(config) if config.out_v_channels == 0 => {
                of_no_vectors(config.hidden_v_channels)
            }
            _ => Vec::new(),
        }
    }
}

/// The map to no vectors.
fn of_no_vectors(hidden: usize) -> Vec<(String, Vec<usize>)> {
    vec![("linear_out.weight_v".to_owned(), vec![0, hidden])]
}

fn written(config: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(config).map_err(|error| error.to_string())
}

/// A configuration with the user's settings in it.
fn with<T: Serialize + DeserializeOwned>(config: &T, settings: &Settings) -> Result<T, String> {
    let mut value = written(config)?;
    merge(&mut value, &Value::Object(settings.0.clone()));
    serde_json::from_value(value).map_err(|error| format!("a setting does not fit: {error}"))
}

fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}
