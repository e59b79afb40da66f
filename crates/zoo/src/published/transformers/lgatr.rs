//! `LGATr` and `ConditionalLGATr`.

use super::{
    Settings,
    sizes::{Heads, blocks, layers, needed, require_reinserted, require_room, shape},
    with,
};
use gradewise_nn::checkpoint::TensorFile;
use gradewise_transformers::{
    Channels,
    lgatr::{AttentionConfig, ConditionalLGATrConfig, LGATrConfig, MlpConfig, PrimitivesConfig},
};

const KIND: &str = "an LGATr";

/// Settings of the network in a file: what shows in its weights, and what `settings` say.
pub(super) fn config(file: &TensorFile, settings: &Settings) -> Result<LGATrConfig, String> {
    let sizes = Sizes::of(file)?;
    let more = |name: &str| -> Result<usize, String> {
        let first = ["in_linear", "q_linear"]
            .iter()
            .find_map(|linear| file.get(&format!("blocks.0.attention.qkv_module.{linear}.{name}")));
        Ok(first.and_then(|tensor| tensor.shape().get(1).copied()).unwrap_or(0))
    };
    let mut attention = AttentionConfig::default();
    let mut reinserted = [0, 0];
    if sizes.blocks > 0 {
        attention.multi_query = file.get("blocks.0.attention.qkv_module.q_linear.weight").is_some();
        let shared = shape::<3>(file, "blocks.0.attention.qkv_module.k_linear.weight")?.map(|shape| shape[0]);
        heads(file, "attention", shared, sizes.hidden, settings, &mut attention)?;
        let missing = |more: usize, own: usize| more.saturating_sub(own);
        reinserted = [
            missing(more("weight")?, sizes.hidden.multivectors),
            missing(more("s2mvs.weight")?, sizes.hidden.scalars),
        ];
    }
    let mut made = LGATrConfig::new(sizes.blocks, sizes.inputs, sizes.hidden, sizes.outputs);
    made.attention = attention;
    (made.mlp, made.dropout_prob) = (sizes.mlp, sizes.dropout);
    made.primitives = sizes.primitives;
    made.norm_elementwise_affine = sizes.blocks == 0 || file.get("blocks.0.norm1.weight_mv").is_some();
    let made = with(&made, settings)?;
    let [mv, s] = reinserted;
    require_reinserted("reinsert_mv_channels", &made.reinsert_mv_channels, mv, sizes.inputs.multivectors)?;
    require_reinserted("reinsert_s_channels", &made.reinsert_s_channels, s, sizes.inputs.scalars)?;
    Ok(made)
}

/// As [`config`], of a network with a condition.
pub(super) fn conditional(file: &TensorFile, settings: &Settings) -> Result<ConditionalLGATrConfig, String> {
    let sizes = Sizes::of(file)?;
    let (mut attention, mut crossattention) = (AttentionConfig::default(), AttentionConfig::default());
    const CROSS: &str = "blocks.0.crossattention.kv_linear";
    let [both, mv_channels_cond, _] =
        needed::<3>(file, &format!("{CROSS}.weight"), "a ConditionalLGATr with blocks")?;
    let s_channels_cond = shape::<2>(file, &format!("{CROSS}.s2mvs.weight"))?.map_or(0, |shape| shape[1]);
    attention.multi_query = file.get("blocks.0.attention.qkv_module.q_linear.weight").is_some();
    let shared = shape::<3>(file, "blocks.0.attention.qkv_module.k_linear.weight")?.map(|shape| shape[0]);
    heads(file, "attention", shared, sizes.hidden, settings, &mut attention)?;
    let [_, together, _] =
        needed::<3>(file, "blocks.0.crossattention.out_linear.weight", "a ConditionalLGATr")?;
    crossattention.multi_query = both != 2 * together;
    let shared = crossattention.multi_query.then_some(both / 2);
    heads(file, "crossattention", shared, sizes.hidden, settings, &mut crossattention)?;
    let made = ConditionalLGATrConfig {
        num_blocks: sizes.blocks,
        in_mv_channels: sizes.inputs.multivectors,
        mv_channels_cond,
        out_mv_channels: sizes.outputs.multivectors,
        hidden_mv_channels: sizes.hidden.multivectors,
        in_s_channels: sizes.inputs.scalars,
        s_channels_cond,
        out_s_channels: sizes.outputs.scalars,
        hidden_s_channels: sizes.hidden.scalars,
        attention,
        crossattention,
        mlp: sizes.mlp,
        primitives: sizes.primitives,
        dropout_prob: sizes.dropout,
        norm_elementwise_affine: file.get("blocks.0.norm1.weight_mv").is_some(),
    };
    with(&made, settings)
}

/// Heads and ratio of an attention; `shared` are the multivectors of the keys that all heads share.
fn heads(
    file: &TensorFile,
    section: &str,
    shared: Option<usize>,
    hidden: Channels,
    settings: &Settings,
    config: &mut AttentionConfig,
) -> Result<(), String> {
    let prefix = format!("blocks.0.{section}");
    let [_, together, _] = needed::<3>(file, &format!("{prefix}.out_linear.weight"), KIND)?;
    let scalars = shape::<2>(file, &format!("{prefix}.out_linear.s2mvs.weight"))?.map_or(0, |shape| shape[1]);
    let scale = shape::<1>(file, &format!("{prefix}.head_scale"))?.map(|[heads]| heads);
    config.head_scale = scale.is_some();
    let of_shared = shared.filter(|&shared| shared > 0).map(|shared| together / shared);
    let found = Heads {
        section,
        ratio: "attn_ratio",
        channels: [hidden.multivectors, hidden.scalars],
        together: [together, scalars],
        known: scale.or(of_shared),
    };
    (config.num_heads, config.attn_ratio) = found.find(settings)?;
    Ok(())
}

/// What both networks show alike.
struct Sizes {
    blocks: usize,
    inputs: Channels,
    hidden: Channels,
    outputs: Channels,
    primitives: PrimitivesConfig,
    mlp: MlpConfig,
    /// 0 where the numbers of layers tell of layers of dropout.
    dropout: Option<f64>,
}

impl Sizes {
    fn of(file: &TensorFile) -> Result<Self, String> {
        let [hidden, inputs, maps] = needed::<3>(file, "linear_in.weight", KIND)?;
        let [outputs, _, _] = needed::<3>(file, "linear_out.weight", KIND)?;
        let subgroup = match maps {
            10 => true,
            5 => false,
            other => {
                let message = "`linear_in.weight` has {} coefficients for each pair of channels, expected 10, or 5 of the full group";
                return Err(message.replace("{}", &other.to_string()));
            }
        };
        let size = |name: &str, axis: usize| -> Result<usize, String> {
            Ok(shape::<2>(file, name)?.map_or(0, |shape| shape[axis]))
        };
        let hidden = Channels::new(hidden, size("linear_in.mvs2s.weight", 0)?);
        let blocks = blocks(file)?;
        let mut primitives = PrimitivesConfig { subgroup, ..PrimitivesConfig::default() };
        let (mut mlp, mut dropout) = (MlpConfig::default(), None);
        if blocks > 0 {
            let layers = layers(file, "blocks.0.mlp.layers.");
            primitives.geometric_product = file.get("blocks.0.mlp.layers.0.linear_left.weight").is_some();
            let (first, step) = if primitives.geometric_product { (0, 2) } else { (1, 2) };
            let name = match primitives.geometric_product {
                true => "blocks.0.mlp.layers.0.linear_out.weight",
                false => "blocks.0.mlp.layers.1.weight",
            };
            let [within, _, _] = needed::<3>(file, name, KIND)?;
            mlp.num_layers_mlp = layers.len();
            if layers.len() > 1 {
                mlp.mlp_ratio = within.checked_div(hidden.multivectors).unwrap_or(0);
                if layers[1] == first + step + 1 {
                    dropout = Some(0.0);
                }
            }
            let mv = hidden.multivectors;
            require_room(file, blocks, &[[within, mv, maps], [hidden.scalars, hidden.scalars, 1]])?;
        }
        Ok(Self {
            blocks,
            inputs: Channels::new(inputs, size("linear_in.s2mvs.weight", 1)?),
            hidden,
            outputs: Channels::new(outputs, size("linear_out.mvs2s.weight", 0)?),
            primitives,
            mlp,
            dropout,
        })
    }
}
