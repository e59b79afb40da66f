//! `GATr` and `AxialGATr`.

use super::{
    Settings,
    sizes::{Heads, blocks, layers, needed, require_reinserted, require_room, shape},
    with,
};
use gradewise_nn::checkpoint::{StoredTensor, TensorFile};
use gradewise_transformers::{
    Channels,
    gatr::{AttentionConfig, AxialGATrConfig, GATrConfig},
};

const KIND: &str = "a GATr";
const ATTENTION: &str = "blocks.0.attention";

/// Settings of the network in a file: what shows in its weights, and what `settings` say.
pub(super) fn config(file: &TensorFile, settings: &Settings) -> Result<GATrConfig, String> {
    let Shown { config, reinserted: [mv, s] } = shown(file, settings)?;
    let made = with(&config, settings)?;
    require_reinserted("reinsert_mv_channels", &made.reinsert_mv_channels, mv, made.in_mv_channels)?;
    require_reinserted("reinsert_s_channels", &made.reinsert_s_channels, s, made.in_s_channels)?;
    Ok(made)
}

/// As [`config`], of an `AxialGATr`, whose blocks of even and of odd number have positions or not.
pub(super) fn axial(file: &TensorFile, settings: &Settings) -> Result<AxialGATrConfig, String> {
    let Shown { config, .. } = shown(file, settings)?;
    let mut attention = config.attention;
    let of_block = |number: usize| file.get(&format!("blocks.{number}.attention.pos_encoding.inv_freq"));
    // Blocks of even number attend along the second axis.
    let pos_encodings = [of_block(1).is_some(), of_block(0).is_some()];
    attention.pos_encoding = false;
    if let Some(found) = of_block(1).and_then(base) {
        attention.pos_enc_base = found;
    }
    let made = AxialGATrConfig {
        in_mv_channels: config.in_mv_channels,
        out_mv_channels: config.out_mv_channels,
        hidden_mv_channels: config.hidden_mv_channels,
        in_s_channels: config.in_s_channels,
        out_s_channels: config.out_s_channels,
        hidden_s_channels: config.hidden_s_channels,
        attention,
        mlp: config.mlp,
        num_blocks: config.num_blocks,
        pos_encodings,
    };
    with(&made, settings)
}

/// What shows in the weights.
struct Shown {
    config: GATrConfig,
    /// Multivectors and scalars of the input that each block reads again.
    reinserted: [usize; 2],
}

fn shown(file: &TensorFile, settings: &Settings) -> Result<Shown, String> {
    let [mv, inputs, maps] = needed::<3>(file, "linear_in.weight", KIND)?;
    let [outputs, _, _] = needed::<3>(file, "linear_out.weight", KIND)?;
    if maps != 9 {
        return Err(format!(
            "`linear_in.weight` has {maps} coefficients for each pair of channels, expected 9"
        ));
    }
    let size = |name: &str, axis: usize| -> Result<usize, String> {
        Ok(shape::<2>(file, name)?.map_or(0, |shape| shape[axis]))
    };
    let inputs = Channels::new(inputs, size("linear_in.s2mvs.weight", 1)?);
    let hidden = Channels::new(mv, size("linear_in.mvs2s.weight", 0)?);
    let outputs = Channels::new(outputs, size("linear_out.mvs2s.weight", 0)?);
    let blocks = blocks(file)?;
    let mut config = GATrConfig::new(blocks, inputs, hidden, outputs);
    let mut reinserted = [0, 0];
    if blocks > 0 {
        require_room(file, blocks, &[[2 * mv, mv, maps], [hidden.scalars, hidden.scalars, 2]])?;
        config.attention = attention(file, hidden, settings)?;
        // The gate is number 1, and behind a layer of dropout number 2.
        if layers(file, "blocks.0.mlp.layers.").last() == Some(&3) {
            config.dropout_prob = Some(0.0);
        }
        let linear = if config.attention.multi_query { "q_linear" } else { "in_linear" };
        let from = format!("{ATTENTION}.qkv_module.{linear}");
        let [_, all, _] = needed::<3>(file, &format!("{from}.weight"), KIND)?;
        let scalars = size(&format!("{from}.s2mvs.weight"), 1)?;
        reinserted = [all.saturating_sub(mv), scalars.saturating_sub(hidden.scalars)];
    }
    Ok(Shown { config, reinserted })
}

fn attention(file: &TensorFile, hidden: Channels, settings: &Settings) -> Result<AttentionConfig, String> {
    let [heads, _, of_head] = needed::<3>(file, &format!("{ATTENTION}.attention.log_weights"), KIND)?;
    let scalars =
        shape::<2>(file, &format!("{ATTENTION}.out_linear.s2mvs.weight"))?.map_or(0, |shape| shape[1]);
    let mut made = AttentionConfig {
        num_heads: heads,
        multi_query: file.get(&format!("{ATTENTION}.qkv_module.q_linear.weight")).is_some(),
        ..AttentionConfig::default()
    };
    match file.get(&format!("{ATTENTION}.pos_encoding.inv_freq")) {
        // Heads whose scalars are rotated have at least eight, an even number of them.
        Some(frequencies) => {
            made.pos_encoding = true;
            made.pos_enc_base = base(frequencies).unwrap_or(made.pos_enc_base);
            const MOST: usize = 64;
            let share = |ratio: usize| {
                let count = (ratio * hidden.scalars / heads.max(1)).max(4);
                [(ratio * hidden.multivectors / heads.max(1)).max(1), (count + count % 2).max(8)]
            };
            let fits = |ratio: &usize| share(*ratio) == [of_head, scalars / heads.max(1)];
            made.increase_hidden_channels = (1..=MOST)
                .find(fits)
                .ok_or_else(|| format!("{heads} heads of {of_head} multivectors do not fit {hidden}"))?;
        }
        None => {
            let found = Heads {
                section: "attention",
                ratio: "increase_hidden_channels",
                channels: [hidden.multivectors, hidden.scalars],
                together: [heads * of_head, scalars],
                known: Some(heads),
            };
            made.increase_hidden_channels = found.find(settings)?.1;
        }
    }
    Ok(made)
}

/// The base of frequencies base^(−k/pairs): a whole number, as published.
fn base(frequencies: &StoredTensor) -> Option<f64> {
    let values = frequencies.to_f64_vec()?;
    let second = values.get(1).filter(|second| **second > 0.0)?;
    Some(second.powi(-(values.len() as i32)).round())
}
