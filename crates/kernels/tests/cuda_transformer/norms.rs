//! Norms of feature planes of random sizes and options, against the CPU in double precision: with more channels than a block has warps and
//! with fewer, heads that a warp takes alone and sets that a block shares, and the numbers of planes that have kernels of their own.

use crate::{
    check,
    common::{Pair, function, launched, rng},
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device, debug,
    ops::clifford::{
        Order,
        channel_norm::{self, Activation},
        joint_norm,
    },
};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

const ROWS: [usize; 7] = [1, 2, 31, 32, 33, 100, 1025];

/// A size of which the smaller ones are more likely.
fn size(rng: &mut impl Rng, least: usize, most: usize) -> usize {
    let most = rng.random_range(least..=most);
    rng.random_range(least..=most)
}

fn shuffled(count: u16, rng: &mut impl Rng) -> Vec<u16> {
    let mut blades: Vec<u16> = (1..count).collect();
    for last in (1..blades.len()).rev() {
        blades.swap(last, rng.random_range(0..=last));
    }
    std::iter::once(0).chain(blades).collect()
}

/// Calls `case` for random rows, in each dtype; gives the kernels that were launched.
fn for_all(
    device: &Device,
    mut case: impl FnMut(&str, usize, DType, &mut ChaCha8Rng) -> Vec<String>,
) -> Vec<String> {
    debug::set(true);
    let seeds = if std::env::var_os("GRADEWISE_TEST_SEEDS").is_some() { 2 } else { 12 };
    let mut kernels = Vec::new();
    for (number, rows) in ROWS.into_iter().enumerate() {
        for dtype in DType::ALL {
            for seed in 0..seeds {
                let mut rng = rng(1000 * number as u64 + seed);
                let what = format!("{rows} rows of {dtype} on {device}, seed {seed}");
                kernels.extend(case(&what, rows, dtype, &mut rng));
            }
        }
    }
    kernels.sort();
    kernels.dedup();
    kernels
}

/// Asserts that a kernel of each kind was launched in each of these dtypes.
fn assert_launched(kernels: &[String], name: &str, kinds: &[&str], dtypes: &[DType]) {
    for kind in kinds {
        for dtype in dtypes {
            for pass in ["fwd", "bwd"] {
                let kernel = format!("gw_{name}{kind}_{pass}_{dtype}");
                assert!(kernels.contains(&kernel), "{kernel} among {kernels:?}");
            }
        }
    }
}

/// The names of kernels of an operator among what was launched.
fn own(launches: &[String], name: &str) -> Vec<String> {
    let own = launches.iter().filter(|work| function(work).starts_with(name));
    own.map(|work| work.split(' ').next().unwrap_or_default().to_owned()).collect()
}

pub fn channel_norms_agree_with_double_precision(device: &Device) {
    const SIGNATURES: [(u8, u8, u8); 6] = [(3, 0, 1), (1, 3, 0), (4, 0, 0), (3, 0, 0), (5, 0, 0), (0, 1, 0)];
    let kernels = for_all(device, |what, rows, dtype, rng| {
        let (p, q, r) = SIGNATURES[rng.random_range(0..SIGNATURES.len())];
        let algebra = Algebra::new(Signature { p, q, r }).unwrap();
        let blades = shuffled(algebra.blade_count() as u16, rng);
        let order = Order::new("channel_norm", &algebra, &blades).unwrap();
        let (channels, scalars) = (size(rng, 1, 80), size(rng, 0, 300));
        let gate = |rng: &mut ChaCha8Rng| {
            [None, Some(Activation::Silu), Some(Activation::GeluTanh), Some(Activation::Sigmoid)]
                [rng.random_range(0..4)]
        };
        let epsilon = if rng.random_bool(0.1) { 1e4 } else { 0.01 };
        let norm = rng.random_bool(0.8).then_some(channel_norm::Norm { epsilon, gain: 0.7 });
        let options = channel_norm::Options { norm, gate: gate(rng), scalar_gate: gate(rng) };
        let x = Pair::randn([scalars + blades.len() * channels, rows], dtype, device, rng);
        let grad = Pair::randn([scalars + blades.len() * channels, rows], dtype, device, rng);
        let has_gains = rng.random_bool(0.5);
        let gains = has_gains.then(|| Pair::randn([channels, order.grade_count()], dtype, device, rng));
        let scalar_gains = (has_gains && scalars > 0).then(|| Pair::randn([scalars], dtype, device, rng));
        let run = |of: fn(&Pair) -> &Array| {
            let (gains, scalar_gains) = (gains.as_ref().map(of), scalar_gains.as_ref().map(of));
            let operands = channel_norm::Operands { x: of(&x), gains, scalar_gains };
            let out = channel_norm::forward(&order, channels, &operands, options).unwrap();
            let found = channel_norm::backward(&order, channels, &operands, options, of(&grad)).unwrap();
            [Some(out), Some(found.x), found.gains, found.scalar_gains]
        };
        let (found, launches) = launched(|| run(|pair| &pair.tested));
        let what = format!("{what}: Cl({p},{q},{r}), {channels} channels, {scalars} scalars, {options:?}");
        check(&what, &found, &run(|pair| &pair.tested), &run(|pair| &pair.reference));
        own(&launches, "channel_norm")
    });
    assert_launched(&kernels, "channel_norm", &["", "_16", "_16_gated"], &DType::ALL);
}

pub fn joint_norms_agree_with_double_precision(device: &Device) {
    let kernels = for_all(device, |what, rows, dtype, rng| {
        let algebra = Algebra::new(Signature { p: 1, q: 3, r: 0 }).unwrap();
        let vectors = [1, 2, 4, 8];
        let some = shuffled(16, rng);
        let blades = if rng.random_bool(0.6) { &vectors[..] } else { &some[..size(rng, 1, 16)] };
        let order = Order::of_some("joint_norm", &algebra, blades).unwrap();
        let is_whole = rng.random_bool(0.4);
        let (groups, heads) = if is_whole { (1, 1) } else { (size(rng, 1, 4), size(rng, 1, 9)) };
        let (channels, scalars) = (size(rng, 1, 40), size(rng, 0, 60));
        let options = joint_norm::Options { groups, heads, channels, epsilon: 0.01 };
        let sets = groups * heads;
        let x = Pair::randn([sets * (scalars + blades.len() * channels), rows], dtype, device, rng);
        let grad = Pair::randn([sets * (scalars + blades.len() * channels), rows], dtype, device, rng);
        let gains = rng.random_bool(0.5).then(|| Pair::randn([sets * channels], dtype, device, rng));
        let has_scalar_gains = scalars > 0 && rng.random_bool(0.5);
        let scalar_gains = has_scalar_gains.then(|| Pair::randn([sets * scalars], dtype, device, rng));
        let run = |of: fn(&Pair) -> &Array| {
            let (gains, scalar_gains) = (gains.as_ref().map(of), scalar_gains.as_ref().map(of));
            let operands = joint_norm::Operands { x: of(&x), gains, scalar_gains };
            let out = joint_norm::forward(&order, options, &operands).unwrap();
            let found = joint_norm::backward(&order, options, &operands, of(&grad)).unwrap();
            [Some(out), Some(found.x), found.gains, found.scalar_gains]
        };
        let (found, launches) = launched(|| run(|pair| &pair.tested));
        let what = format!("{what}: blades {blades:?}, {scalars} scalars, {options:?}");
        check(&what, &found, &run(|pair| &pair.tested), &run(|pair| &pair.reference));
        own(&launches, "joint_norm")
    });
    assert_launched(&kernels, "joint_norm", &["", "_short", "_4", "_4_short"], &DType::ALL);
}
