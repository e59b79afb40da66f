//! Heads of random sizes against the CPU in double precision: gradients in one array, and an array for each group, in the strides in which
//! attentions leave them.

use crate::{
    check,
    common::{Pair, launched, rng},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device, debug,
    ops::clifford::heads::{self, Merge, Norm, Split},
};
use rand::RngExt;

/// Heads `[batch, heads, items, width]` whose items lie outside of their heads.
fn by_items(batch: usize, heads: usize, items: usize, array: &Array) -> Array {
    let width = array.dims()[3];
    assert_eq!(array.dims(), [batch, heads, items, width]);
    array.permute(&[0, 2, 1, 3]).unwrap().contiguous().unwrap().permute(&[0, 2, 1, 3]).unwrap()
}

pub fn heads_agree_with_double_precision(device: &Device) {
    debug::set(true);
    let is_slow = std::env::var_os("GRADEWISE_TEST_SEEDS").is_some();
    let mut kernels = Vec::new();
    for (number, items) in [0, 1, 2, 31, 33, 64].into_iter().enumerate() {
        for dtype in DType::ALL {
            for seed in 0..if is_slow { 4 } else { 16 } {
                let mut rng = rng(1000 * number as u64 + seed);
                let mut between = |least: usize, most: usize| rng.random_range(least..=most);
                let dimensions = [(1, 3, 0), (3, 0, 1), (4, 0, 0), (3, 0, 0)][between(0, 3)];
                let algebra =
                    Algebra::new(Signature { p: dimensions.0, q: dimensions.1, r: dimensions.2 }).unwrap();
                let mut order: Vec<u16> = (0..algebra.blade_count() as u16).collect();
                if between(0, 1) == 1 {
                    order.reverse();
                }
                // Some are long: they have no room for a row in each thread of a warp.
                let channels = if between(0, 7) == 0 { 40 } else { between(1, 5) };
                // Of two or three scalars the variance may be near 0.
                let (groups, scalars, count) =
                    (between(1, 4), [0, 1, 4, 5, 8, 12][between(0, 5)], between(1, 8));
                let batch = between(1, 5);
                let norm = (between(0, 3) > 0).then_some(Norm { epsilon: 0.01, gain: 1.25 });
                let query = (between(0, 1) == 1).then(|| between(0, groups - 1));
                let options = Split {
                    algebra: &algebra,
                    order: &order,
                    groups,
                    channels,
                    scalars,
                    heads: count,
                    batch,
                    items,
                    norm,
                    query,
                };
                let width = order.len() * channels + scalars;
                let x = Pair::randn([groups * count * width, batch * items], dtype, device, &mut rng);
                let parts: Vec<Pair> = (0..groups)
                    .map(|_| Pair::randn([batch, count, items, width], dtype, device, &mut rng))
                    .collect();
                let merged = Merge { planes: order.len(), channels, scalars };
                let run = |of: fn(&Pair) -> &Array| {
                    let parts: Vec<Array> = parts.iter().map(|part| of(part).clone()).collect();
                    let lying: Vec<Array> =
                        parts.iter().map(|part| by_items(batch, count, items, part)).collect();
                    let whole = gradewise_kernels::ops::stack(&parts.iter().collect::<Vec<_>>(), 0).unwrap();
                    let x = of(&x);
                    vec![
                        Some(heads::split(&options, x).unwrap()),
                        Some(heads::split_backward(&options, x, &whole).unwrap()),
                        Some(heads::split_backward_of_groups(&options, x, &parts).unwrap()),
                        Some(heads::split_backward_of_groups(&options, x, &lying).unwrap()),
                        Some(heads::merge(&merged, &parts[0]).unwrap()),
                        Some(heads::merge(&merged, &lying[0]).unwrap()),
                    ]
                };
                let (found, launches) = launched(|| run(|pair| &pair.tested));
                let what = format!(
                    "{items} items of {dtype} on {device}, seed {seed}: Cl{dimensions:?}, {groups} groups, {batch} × {count} heads, {channels} \
                     channels, {scalars} scalars, {norm:?}, query {query:?}"
                );
                check(&what, &found, &run(|pair| &pair.tested), &run(|pair| &pair.reference));
                // Where a gradient lies changes nothing.
                for pair in [[1, 2], [1, 3], [4, 5]] {
                    let [a, b] = pair.map(|place| found[place].as_ref().unwrap().to_f64_vec().unwrap());
                    assert_eq!(a, b, "{what}: results {pair:?}");
                }
                kernels.extend(launches.iter().filter_map(|work| work.split(' ').next().map(str::to_owned)));
            }
        }
    }
    kernels.sort();
    kernels.dedup();
    // Fewer draws do not reach all.
    if is_slow {
        return;
    }
    let own = [
        "split_heads_16_fwd",
        "split_heads_short_fwd",
        "split_heads_fwd",
        "split_heads_16_bwd",
        "split_heads_short_bwd",
        "split_heads_bwd",
        "merge_heads_short",
        "merge_heads",
    ];
    for name in own {
        for dtype in DType::ALL {
            let kernel = format!("gw_{name}_{dtype}");
            assert!(kernels.contains(&kernel), "{kernel} among {kernels:?}");
        }
    }
}
