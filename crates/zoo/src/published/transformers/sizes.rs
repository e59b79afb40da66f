//! Settings that follow from the shapes of weights.

use super::Settings;
use gradewise_nn::checkpoint::TensorFile;
use serde_json::Value;
use std::collections::BTreeSet;

/// The shape of a tensor, which must have `N` axes; `None` if there is none.
pub(super) fn shape<const N: usize>(file: &TensorFile, name: &str) -> Result<Option<[usize; N]>, String> {
    let Some(tensor) = file.get(name) else { return Ok(None) };
    let shape = tensor.shape();
    shape.try_into().map(Some).map_err(|_| format!("`{name}` has shape {shape:?}, expected {N} axes"))
}

/// As [`shape`], of a tensor that must be there.
pub(super) fn needed<const N: usize>(
    file: &TensorFile,
    name: &str,
    kind: &str,
) -> Result<[usize; N], String> {
    shape(file, name)?.ok_or_else(|| format!("it has no `{name}`, so it is not the state_dict of {kind}"))
}

/// The number of blocks: 0, 1, … without gaps.
pub(super) fn blocks(file: &TensorFile) -> Result<usize, String> {
    let numbers = layers(file, "blocks.");
    match numbers.iter().enumerate().find(|(expected, number)| *expected != **number) {
        None => Ok(numbers.len()),
        Some((expected, number)) => Err(format!("it has `blocks.{number}` and no `blocks.{expected}`")),
    }
}

/// The numbers that follow `prefix` in names.
pub(super) fn layers(file: &TensorFile, prefix: &str) -> Vec<usize> {
    let number = |name: &str| name.strip_prefix(prefix)?.split('.').next()?.parse().ok();
    let found: BTreeSet<usize> = file.iter().filter_map(|(name, _)| number(name)).collect();
    found.into_iter().collect()
}

/// Refuses sizes whose weights exceed those of the file, because a network of these sizes is allocated before its weights are looked up.
pub(super) fn require_room(file: &TensorFile, blocks: usize, matrices: &[[usize; 3]]) -> Result<(), String> {
    let elements: usize = file.iter().map(|(_, tensor)| tensor.shape().iter().product::<usize>()).sum();
    let of_block = matrices.iter().try_fold(0usize, |sum, [a, b, c]| {
        a.checked_mul(*b)
            .and_then(|product| product.checked_mul(*c))
            .and_then(|product| sum.checked_add(product))
    });
    match of_block.and_then(|of_block| of_block.checked_mul(blocks)) {
        Some(needed) if needed <= elements => Ok(()),
        _ => Err(format!("it has too few weights for {blocks} blocks of these sizes")),
    }
}

/// What the weights show of the heads of an attention.
pub(super) struct Heads<'a> {
    /// The settings of this attention, such as `attention`; empty where they are those of the network.
    pub section: &'a str,
    /// The name of the ratio.
    pub ratio: &'static str,
    /// Multivectors (or vectors) and scalars of the features.
    pub channels: [usize; 2],
    /// Those of all heads together.
    pub together: [usize; 2],
    /// The number of heads, where a tensor has it.
    pub known: Option<usize>,
}

impl Heads<'_> {
    fn key(&self, name: &str) -> String {
        if self.section.is_empty() { name.to_owned() } else { format!("{}.{name}", self.section) }
    }

    /// The number of heads and the ratio, which make the channels of all heads from those of the features: a head has
    /// max(ratio · channels / heads, 1) multivectors, and at least four scalars.
    pub fn find(&self, settings: &Settings) -> Result<(usize, usize), String> {
        let size =
            |name: &str| settings.get(&self.key(name)).and_then(Value::as_u64).map(|size| size as usize);
        let (said, said_ratio) = (size("num_heads"), size(self.ratio));
        let ([mv, s], [all_mv, all_s]) = (self.channels, self.together);
        let fits = |heads: usize, ratio: usize| {
            let share = |channels: usize, least: usize| (ratio * channels / heads).max(least) * heads;
            share(mv, 1) == all_mv && (if s == 0 { 0 } else { share(s, 4) }) == all_s
        };
        const MOST: usize = 64;
        let candidates: Vec<(usize, usize)> = (1..=all_mv)
            .filter(|&heads| all_mv % heads == 0 && self.known.is_none_or(|known| known == heads))
            .filter_map(|heads| {
                let mut ratios = (1..=MOST).filter(|ratio| said_ratio.is_none_or(|said| said == *ratio));
                Some((heads, ratios.find(|&ratio| fits(heads, ratio))?))
            })
            .collect();
        let list: Vec<String> = candidates.iter().map(|(heads, _)| heads.to_string()).collect();
        let (key, list) = (self.key("num_heads"), list.join(", "));
        let shown = format!(
            "all heads together have {all_mv} multivectors or vectors and {all_s} scalars, of {mv} and {s}"
        );
        match (said, candidates.as_slice()) {
            (_, []) => Err(format!("no number of heads fits the weights: {shown}")),
            (None, [only]) => Ok(*only),
            (None, _) => Err(format!(
                "the number of heads does not show in the weights: give {key}=…, one of {list} ({shown})"
            )),
            (Some(said), _) => {
                candidates.iter().copied().find(|(heads, _)| *heads == said).ok_or_else(|| {
                    format!("{key}={said} does not fit the weights, expected one of {list}: {shown}")
                })
            }
        }
    }
}

/// Refuses a list of reinserted channels that is not as long as the weights say.
pub(super) fn require_reinserted(
    name: &str,
    given: &[usize],
    expected: usize,
    inputs: usize,
) -> Result<(), String> {
    if given.len() == expected {
        return Ok(());
    }
    Err(format!(
        "queries and keys are made of {expected} channels of the input too, and {name} has {}: give {name}=[…], {expected} numbers below \
         {inputs}",
        given.len()
    ))
}
