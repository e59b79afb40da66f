//! `LGATrSlim` and `ConditionalLGATrSlim`.

use super::{
    Settings, merge,
    sizes::{Heads, blocks, layers, needed, require_room, shape},
    with, written,
};
use gradewise_nn::checkpoint::TensorFile;
use gradewise_transformers::slim::{ConditionalLGATrSlimConfig, LGATrSlimConfig, VectorChannels};
use serde_json::json;

const KIND: &str = "an LGATrSlim";

/// Settings of the network in a file: what shows in its weights, and what `settings` say.
pub(super) fn config(file: &TensorFile, settings: &Settings) -> Result<LGATrSlimConfig, String> {
    with(&shown(file, "attention", settings)?, settings)
}

/// As [`config`], of a network with a condition.
pub(super) fn conditional(
    file: &TensorFile,
    settings: &Settings,
) -> Result<ConditionalLGATrSlimConfig, String> {
    const CROSS: &str = "blocks.0.crossattention.linear_in_kv";
    const KIND: &str = "a ConditionalLGATrSlim with blocks";
    let [_, vectors] = needed::<2>(file, &format!("{CROSS}.weight_v"), KIND)?;
    let [_, scalars] = needed::<2>(file, &format!("{CROSS}.linear_s.weight"), KIND)?;
    let mut network = written(&shown(file, "selfattention", settings)?)?;
    merge(&mut network, &json!({ "v_channels_cond": vectors, "s_channels_cond": scalars }));
    let made = serde_json::from_value(network).map_err(|error| error.to_string())?;
    with::<ConditionalLGATrSlimConfig>(&made, settings)
}

/// What shows in the weights, with heads from the attention of this name.
fn shown(file: &TensorFile, attention: &str, settings: &Settings) -> Result<LGATrSlimConfig, String> {
    let [v, inputs] = needed::<2>(file, "linear_in.weight_v", KIND)?;
    let [s, scalars] = needed::<2>(file, "linear_in.linear_s.weight", KIND)?;
    let size = |name: &str, axis: usize| -> Result<usize, String> {
        Ok(shape::<2>(file, name)?.map_or(0, |shape| shape[axis]))
    };
    let channels = [
        VectorChannels::new(inputs, scalars),
        VectorChannels::new(v, s),
        VectorChannels::new(size("linear_out.weight_v", 0)?, size("linear_out.linear_s.weight", 0)?),
    ];
    let blocks = blocks(file)?;
    let mut made = LGATrSlimConfig::new(blocks, channels, 1);
    if blocks > 0 {
        let layers = layers(file, "blocks.0.mlp.layers.");
        let [within, _] = needed::<2>(file, "blocks.0.mlp.layers.0.linear.weight_v", KIND)?;
        require_room(file, blocks, &[[within, v, 1], [s, s, 1]])?;
        made.mlp_ratio = (within / 3).checked_div(v).unwrap_or(0);
        made.num_layers_mlp = layers.len();
        if layers.get(1) == Some(&2) {
            made.dropout_prob = Some(0.0);
        }
        made.norm_elementwise_affine = file.get("blocks.0.norm1.weight_v").is_some();
        let heads = Heads {
            section: "",
            ratio: "attn_ratio",
            channels: [v, s],
            together: [
                size(&format!("blocks.0.{attention}.linear_out.weight_v"), 1)?,
                size(&format!("blocks.0.{attention}.linear_out.linear_s.weight"), 1)?,
            ],
            known: None,
        };
        (made.num_heads, made.attn_ratio) = heads.find(settings)?;
    }
    Ok(made)
}
