//! The PyTorch networks for fields of "Clifford Neural Layers for PDE Modeling" (Brandstetter et al. 2022, arXiv:2209.04934) and "Geometric
//! Clifford Algebra Networks" (Ruhe et al. 2023, arXiv:2302.06594).
//!
//! The networks of this library give their parameters the published names and shapes, so the list of weights comes from a network of this
//! library, whose sizes are derived from the published file.

use super::{Layout, PublishedModel, Weight};
use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_nn::{
    Module, Placement,
    checkpoint::{Checkpoint, StoredTensor, TensorFile},
    fields::{FieldBlock, FieldNet, FieldNetConfig, G3ResNet, G3ResNetConfig, G3UNet, G3UNetConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeSet;

/// Model names in the checkpoints of these networks. No task of the program trains them.
const FIELD_NET: &str = "field_net";
const G3_RESNET: &str = "g3_resnet";
const G3_UNET: &str = "g3_unet";

/// A network with its sizes.
enum Network {
    Field(FieldNetConfig),
    ResNet(G3ResNetConfig),
    UNet(G3UNetConfig),
}

/// The layout of a published file, by the sizes of its weights.
pub(super) fn published(file: &TensorFile, model: PublishedModel) -> Result<Layout, String> {
    layout(match model {
        PublishedModel::Fluid => Network::Field(field_net(file, 2)?),
        PublishedModel::Maxwell => Network::Field(field_net(file, 3)?),
        PublishedModel::G3UNet => Network::UNet(unet(file)?),
        _ => Network::ResNet(resnet(file)?),
    })
}

/// The layout of a gradewise checkpoint, if the published networks can represent its model.
pub(super) fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Layout, String> {
    let metadata = &checkpoint.metadata;
    let config = &metadata.model_config;
    match metadata.model.as_str() {
        FIELD_NET => {
            let config: FieldNetConfig = read(config)?;
            if !config.reference {
                let reason = "its norms or Fourier layers are ours (`reference` is false), which the published network has not";
                return Err(reason.to_owned());
            }
            layout(Network::Field(config))
        }
        G3_RESNET => layout(Network::ResNet(read(config)?)),
        G3_UNET => layout(Network::UNet(read(config)?)),
        other => Err(format!(
            "it is a checkpoint of `{other}`, and cliffordlayers' models here are `{FIELD_NET}`, `{G3_RESNET}` and `{G3_UNET}`"
        )),
    }
}

fn read<T: serde::de::DeserializeOwned>(config: &Value) -> Result<T, String> {
    serde_json::from_value(config.clone())
        .map_err(|error| format!("its model configuration is malformed: {error}"))
}

/// The shape of a tensor, which must have `axes` axes.
fn shape<'a>(file: &'a TensorFile, name: &str, axes: usize) -> Result<&'a [usize], String> {
    let tensor = file.get(name).ok_or_else(|| format!("it has no `{name}`, so it is another model's"))?;
    let shape = tensor.shape();
    if shape.len() != axes || shape.contains(&0) {
        return Err(format!("`{name}` has shape {shape:?}, expected {axes} axes, none of them empty"));
    }
    Ok(shape)
}

/// The number of blocks of each stage, from the names `layers.STAGE.BLOCK.…`.
fn blocks(file: &TensorFile) -> Result<Vec<usize>, String> {
    let mut found: BTreeSet<[usize; 2]> = BTreeSet::new();
    for (name, _) in file.iter() {
        let Some(rest) = name.strip_prefix("layers.") else { continue };
        let mut numbers = rest.splitn(3, '.').map(str::parse::<usize>);
        if let (Some(Ok(stage)), Some(Ok(block))) = (numbers.next(), numbers.next()) {
            found.insert([stage, block]);
        }
    }
    // Names are sorted: each is the next block of the current stage, or the first block of the next stage.
    let mut counts: Vec<usize> = Vec::new();
    for &[stage, block] in &found {
        if stage == counts.len() {
            counts.push(0);
        }
        match counts.get_mut(stage) {
            Some(count) if block == *count => *count += 1,
            _ => return Err(format!("it has `layers.{stage}.{block}` and not all before it")),
        }
    }
    Ok(counts)
}

/// Refuses sizes whose weights exceed those of the file, because a network of these sizes is allocated before its weights are looked up.
fn require_room(file: &TensorFile, kernels: usize, channels: usize) -> Result<(), String> {
    let elements: usize = file.iter().map(|(_, tensor)| tensor.shape().iter().product::<usize>()).sum();
    match channels.checked_mul(channels).and_then(|kernel| kernel.checked_mul(kernels)) {
        Some(needed) if needed <= elements => Ok(()),
        _ => Err(format!("it has too few weights for {kernels} blocks of {channels} channels")),
    }
}

fn field_net(file: &TensorFile, axes: usize) -> Result<FieldNetConfig, String> {
    let &[hidden, inputs, ..] = shape(file, "encoder.weight.0", 2 + axes)? else {
        return Err("`encoder.weight.0` is no kernel".to_owned());
    };
    let outputs = shape(file, "decoder.weight.0", 2 + axes)?[0];
    let squares = file.get("encoder.g").filter(|g| g.shape() == [axes]).and_then(StoredTensor::to_f64_vec);
    let squares =
        squares.ok_or_else(|| format!("it has no `encoder.g` with the squares of {axes} generators"))?;
    let square = |&g: &f64| match g {
        1.0 => Ok(1),
        -1.0 => Ok(-1),
        0.0 => Ok(0),
        _ => Err(format!("`encoder.g` has {g}, expected 1, −1 or 0")),
    };
    let modes = match file.get("layers.0.0.fourier.weights") {
        Some(_) => shape(file, "layers.0.0.fourier.weights", 3 + axes)?[3..].iter().map(|m| m / 2).collect(),
        None => Vec::new(),
    };
    let norm = ["layers.0.0.norm1.weight", "layers.0.0.norm.weight"]
        .into_iter()
        .find(|name| file.get(name).is_some())
        .map(|name| shape(file, name, 3).map(|shape| (hidden / shape[2]).max(1)))
        .transpose()?;
    let blocks = blocks(file)?;
    require_room(file, blocks.iter().sum(), hidden)?;
    Ok(FieldNetConfig {
        metric: squares.iter().map(square).collect::<Result<_, _>>()?,
        blades: if axes == 2 { vec![0, 1, 2] } else { (1..7).collect() },
        inputs,
        outputs,
        hidden,
        block: if modes.is_empty() { FieldBlock::Residual } else { FieldBlock::Fourier },
        blocks,
        modes,
        rotation: file.get("encoder.scale_param").or_else(|| file.get("encoder.weight.5")).is_some()
            && axes == 2,
        norm,
        // Constants of the published classes.
        padding: if axes == 2 { 9 } else { 2 },
        reference: true,
    })
}

fn resnet(file: &TensorFile) -> Result<G3ResNetConfig, String> {
    let first = shape(file, "conv_in1.weights.0", 4)?;
    let blocks = blocks(file)?;
    require_room(file, 2 + blocks.iter().sum::<usize>(), first[0])?;
    Ok(G3ResNetConfig {
        inputs: first[1],
        outputs: shape(file, "conv_out2.weights.0", 4)?[0],
        hidden: first[0],
        blocks,
        norm: file.get("layers.0.0.norm1.weight").map(|_| 1),
        norm_first: true,
    })
}

fn unet(file: &TensorFile) -> Result<G3UNetConfig, String> {
    let first = shape(file, "conv1.weights.0", 4)?;
    let (hidden, inputs) = (first[0], first[1]);
    let (mut multipliers, mut channels, mut here, mut counts) = (Vec::new(), hidden, hidden, vec![0]);
    for step in 0.. {
        if let Some(kernel) = file.get(&format!("down.{step}.block.conv1.weights.0")) {
            here = kernel.shape().first().copied().unwrap_or(0);
            *counts.last_mut().unwrap_or(&mut 0) += 1;
            continue;
        }
        if here % channels != 0 || here == 0 {
            return Err(format!("before `down.{step}` there are {here} channels, no multiple of {channels}"));
        }
        multipliers.push(here / channels);
        channels = here;
        if file.get(&format!("down.{step}.conv.weights.0")).is_none() {
            break;
        }
        counts.push(0);
    }
    // The middle has the most channels.
    require_room(file, 4, channels)?;
    Ok(G3UNetConfig {
        inputs,
        outputs: shape(file, "conv2.weights.0", 4)?[0],
        hidden,
        multipliers,
        blocks: counts[0],
        norm: file.get("norm.weight").map(|_| 1),
        norm_first: true,
    })
}

fn layout(network: Network) -> Result<Layout, String> {
    let (placement, mut rng) = (Placement::new(&Device::Cpu, DType::F32), ChaCha8Rng::seed_from_u64(0));
    let fail = |error: gradewise_nn::Error| error.to_string();
    // Builds a network of these sizes, whose parameters have the published names.
    let (model, config, metric): (_, _, &[i8]) = match &network {
        Network::Field(config) => {
            let net = FieldNet::init(config, placement, &mut rng).map_err(fail)?;
            ((FIELD_NET, net.named_parameters()), serde_json::to_value(config), &config.metric)
        }
        Network::ResNet(config) => {
            let net = G3ResNet::init(config, placement, &mut rng).map_err(fail)?;
            ((G3_RESNET, net.named_parameters()), serde_json::to_value(config), &[])
        }
        Network::UNet(config) => {
            let net = G3UNet::init(config, placement, &mut rng).map_err(fail)?;
            ((G3_UNET, net.named_parameters()), serde_json::to_value(config), &[])
        }
    };
    let (model, parameters) = model;
    let config = config.map_err(|error| error.to_string())?;
    let squares: Vec<f64> = metric.iter().map(|&square| square.into()).collect();
    let table = |shape: &[usize], values: &[f64]| {
        StoredTensor::from_f64(shape, values, DType::F32).map_err(|error| error.to_string())
    };
    let (mut weights, mut derived, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    for (name, parameter) in parameters {
        let tensor = parameter.tensor();
        let shape = tensor.shape().dims();
        // Convolutions store the metric as a buffer, and so do Fourier layers in 2 dimensions, but not in 3.
        let keeps = name.strip_suffix("weight.0").or_else(|| {
            name.strip_suffix("weights").filter(|_| metric.len() == 2 && name.ends_with("fourier.weights"))
        });
        if let Some(prefix) = keeps.filter(|_| !metric.is_empty()) {
            derived.push((format!("{prefix}g"), table(&[squares.len()], &squares)?));
        }
        // Rotational convolutions store their scale and a kernel of zeros under two names each, one of them in the list of kernels.
        if let Some(prefix) = name.strip_suffix("scale_param") {
            let list = if metric.is_empty() { "weights" } else { "weight" };
            copies.push((format!("{prefix}{list}.4"), name.clone()));
            let zeros = vec![0.0; tensor.shape().elements()];
            for zero in [format!("{prefix}{list}.5"), format!("{prefix}zero_kernel")] {
                derived.push((zero, table(shape, &zeros)?));
            }
        }
        let axes: Vec<usize> = (0..shape.len()).collect();
        weights.push(Weight::new(name.clone(), name, shape, &axes, shape));
    }
    Ok(Layout { model, config, weights, derived, copies })
}
