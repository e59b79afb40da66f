//! The plan of a product: its tile, the stretches of its sums, and their order.

use crate::ops::matmul::product::Product;
use crate::runtime::tuning::Tile;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Most results that can be ordered, or whose sums can be cut into stretches.
pub(crate) const MOST_LISTED: usize = 32;
pub(crate) const LIST: usize = MOST_LISTED + 1;

/// Cycles of a step along k, as measured on an H200: a small tile is bound by what it reads from shared memory. Those of tiles of 192
/// and 96 columns, which convolutions have, follow from their bytes of shared memory, at as many cycles a byte as the others take.
pub(crate) const fn step_cycles(tile: Tile) -> usize {
    match (tile.rows, tile.columns, tile.cluster) {
        (_, 256, 2) => 1270,
        (_, 256, _) => 1300,
        (256, 192, _) => 1890,
        (_, 192, _) => 1065,
        (256, 96, _) => 1270,
        (_, 96, _) => 660,
        _ => 830,
    }
}

/// A plan of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Its number in [`Tile::ALL`]; 0 for a tile that was chosen and is none of them.
    pub tile: usize,
    /// Steps of a stretch.
    pub share: usize,
    /// The first stretch of each result, if sums are cut.
    pub parts: Option<Vec<i32>>,
    /// The estimated time.
    pub cycles: usize,
}

impl Plan {
    /// The kernel's list: the first stretch of each result, or the results with the longest sums first if they are ordered.
    pub fn list(&self, totals: &[usize], ordered: bool) -> [i32; LIST] {
        let mut list = [0; LIST];
        if let Some(parts) = &self.parts {
            list[..parts.len()].copy_from_slice(parts);
        } else if ordered {
            list[..totals.len()].copy_from_slice(&longest_first(totals));
        }
        list
    }
}

/// Steps along k of each result.
pub(crate) fn totals(product: &Product<'_>, steps: usize) -> Vec<usize> {
    match product.starts {
        Some(starts) => starts.values().windows(2).map(|ends| (ends[1] - ends[0]) as usize * steps).collect(),
        None => vec![steps; product.count],
    }
}

/// The results with the longest sums first.
pub(crate) fn longest_first(totals: &[usize]) -> Vec<i32> {
    let mut order: Vec<i32> = (0..totals.len() as i32).collect();
    order.sort_by_key(|&z| std::cmp::Reverse(totals[z as usize]));
    order
}

/// [`plan`] with a cache: it tries a few hundred cuts, and every training step asks for the same products.
pub(crate) fn planned(
    totals: &[usize],
    sizes: (usize, usize),
    cut: bool,
    sms: usize,
    chosen: Option<Tile>,
) -> Plan {
    type Key = (Vec<usize>, (usize, usize), usize, Option<Tile>);
    // A training step has fewer shapes than this.
    const MOST: usize = 4096;
    static PLANS: Mutex<Option<HashMap<Key, Plan>>> = Mutex::new(None);
    if !cut || totals.len() > MOST_LISTED {
        return plan(totals, sizes, cut, sms, chosen);
    }
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    let plans = plans.get_or_insert_default();
    let key = (totals.to_vec(), sizes, sms, chosen);
    if let Some(plan) = plans.get(&key) {
        return plan.clone();
    }
    if plans.len() == MOST {
        plans.clear();
    }
    let plan = plan(totals, sizes, cut, sms, chosen);
    plans.insert(key, plan.clone());
    plan
}

/// The tile, unless it was chosen, and the cut with the shortest estimated time. Depends on sizes and on the number of
/// multiprocessors only.
pub(crate) fn plan(
    totals: &[usize],
    (rows, columns): (usize, usize),
    cut: bool,
    sms: usize,
    chosen: Option<Tile>,
) -> Plan {
    // Cycles that a tile takes besides its steps: filling the ring, writing the result.
    const FIXED: usize = 6000;
    // Elements of partial sums that are written and read per cycle.
    const SUMMED: usize = 300;
    let longest = totals.iter().copied().max().unwrap_or(0).max(1);
    let mut best: Option<(usize, usize, usize)> = None;
    let all: &[Tile] = chosen.as_ref().map_or(&Tile::ALL, std::slice::from_ref);
    for tile in all {
        let number = Tile::ALL.iter().position(|one| one == tile).unwrap_or(0);
        let tiles = rows.div_ceil(tile.rows * tile.cluster) * columns.div_ceil(tile.columns);
        let slots = (sms / tile.cluster).max(1);
        let mut consider = |share: usize| {
            let stretches: usize = totals.iter().map(|total| total.div_ceil(share).max(1)).sum();
            let steps: usize = totals.iter().sum();
            // Results of uneven lengths run longest first, so that their steps are shared about evenly; otherwise every wave takes as long
            // as the longest stretch.
            let waves = (tiles * stretches).div_ceil(slots);
            let even = (tiles * steps).div_ceil(slots).max(share.min(longest));
            let uneven = share >= longest && totals.iter().any(|total| *total != longest);
            let busy = if uneven { even + even / 10 } else { waves * share.min(longest) };
            let summed = if share < longest { stretches * rows * columns / SUMMED + FIXED } else { 0 };
            let cycles = busy * step_cycles(*tile) + waves * FIXED + summed;
            if best.is_none_or(|(least, ..)| cycles < least) {
                best = Some((cycles, number, share));
            }
        };
        consider(longest);
        if cut && totals.len() <= MOST_LISTED {
            // Stretches of some hundreds of terms at least.
            (8..longest).for_each(&mut consider);
        }
    }
    let (cycles, tile, share) = best.unwrap_or((0, 0, longest));
    let parts = (share < longest).then(|| {
        let ends = totals.iter().scan(0, |end, total| {
            *end += total.div_ceil(share).max(1) as i32;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    });
    Plan { tile, share, parts, cycles }
}
