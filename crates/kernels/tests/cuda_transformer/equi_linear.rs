//! Equivariant linear maps of feature planes: few rows, which kernels map directly, and many, against the CPU in double precision.

use crate::{
    check_to,
    common::{Pair, function, launched, rng, tolerance},
};
use gradewise_kernels::{
    Array, Compute, DType, Device, debug,
    ops::{
        self,
        clifford::equi_linear::{self, Entry, Maps, Operands},
    },
};
use rand::RngExt;

/// Most rows that are mapped directly.
const FEW: usize = 1024;

/// Scalars and channels on both sides of a map.
#[derive(Clone, Copy, Debug)]
struct Widths {
    scalars: [usize; 2],
    channels: [usize; 2],
}

/// The operands of a map: which of them there are is drawn.
struct Case {
    maps: Maps,
    x: Pair,
    weight: Pair,
    others: [Option<Pair>; 7],
    grad: Pair,
}

impl Case {
    fn draw(rows: usize, dtype: DType, device: &Device, seed: u64) -> Self {
        // Matrices of more terms than a block of the direct kernels has in shared memory, and of fewer.
        let most = if seed % 3 == 2 { 260 } else { 40 };
        let mut rng = rng(seed + (1 << 32));
        let mut between = |least: usize, most: usize| rng.random_range(least..=most);
        let widths = Widths {
            scalars: [between(0, most), between(0, most)],
            channels: [between(1, 20), between(1, 20)],
        };
        Self::of(rows, widths, dtype, device, seed)
    }

    fn of(rows: usize, widths: Widths, dtype: DType, device: &Device, seed: u64) -> Self {
        debug::set(true);
        let mut rng = rng(seed);
        let mut between = |least: usize, most: usize| rng.random_range(least..=most);
        let (blades, count) = (2 * between(1, 8), between(1, 10));
        let mixes = between(0, 1) == 1;
        let Widths { scalars: [scalars_in, scalars_out], channels: [channels_in, channels_out] } = widths;
        // Maps without factors, which those of GATr mostly are, and with them.
        let has_factors = between(0, 1) == 1;
        let mut entries = (0..between(1, 3 * blades))
            .map(|_| {
                let row = between(0, blades - 1);
                let column = row / 2 * 2 + between(0, 1);
                let value = if has_factors { between(1, 4) as f64 - 2.5 } else { 1.0 };
                Entry { map: between(0, count - 1), row, column, value }
            })
            .collect::<Vec<_>>();
        entries.sort_by_key(|entry: &Entry| (entry.map, entry.row, entry.column));
        entries.dedup_by_key(|entry| (entry.map, entry.row, entry.column));
        let (apart, bias, to_scalars, to_planes) =
            (between(0, 1) == 1, between(0, 2), between(0, 1) == 1, between(0, 1) == 1);
        let mixed = if mixes { 2 } else { 1 };
        let mut random = |shape: &[usize]| Pair::randn(shape, dtype, device, &mut rng);
        let has_scalars = scalars_in > 0;
        let (apart, to_planes) = (apart && has_scalars, to_planes && has_scalars);
        // Scalars come out where something is mapped to them.
        let scalars_out = if to_scalars || has_scalars { scalars_out.max(1) } else { 0 };
        let above = if apart { 0 } else { scalars_in };
        let others = [
            apart.then(|| random(&[scalars_in, rows])),
            (bias == 1).then(|| random(&[channels_out, 1])),
            to_planes.then(|| random(&[mixed * channels_out, scalars_in])),
            (bias == 2 && to_planes).then(|| random(&[mixed * channels_out])),
            to_scalars.then(|| random(&[scalars_out, mixed * channels_in])),
            (bias > 0 && scalars_out > 0).then(|| random(&[scalars_out])),
            has_scalars.then(|| random(&[scalars_out, scalars_in])),
        ];
        Self {
            maps: Maps::new(blades, count, mixes, entries).unwrap(),
            x: random(&[above + blades * channels_in, rows]),
            weight: random(&[channels_out, channels_in, count]),
            others,
            grad: random(&[scalars_out + blades * channels_out, rows]),
        }
    }

    fn operands<'a>(&'a self, of: fn(&'a Pair) -> &'a Array) -> Operands<'a> {
        let [scalars, bias, to_planes, to_planes_bias, to_scalars, to_scalars_bias, between] =
            self.others.each_ref().map(|pair| pair.as_ref().map(of));
        Operands {
            x: of(&self.x),
            weight: of(&self.weight),
            scalars,
            bias,
            to_planes,
            to_planes_bias,
            to_scalars,
            to_scalars_bias,
            between,
        }
    }

    /// The result and all gradients.
    fn run<'a>(&'a self, of: fn(&'a Pair) -> &'a Array) -> Vec<Option<Array>> {
        let operands = self.operands(of);
        let mut found = vec![Some(equi_linear::forward(&self.maps, &operands).unwrap())];
        let gradients = equi_linear::backward(&self.maps, &operands, of(&self.grad)).unwrap();
        found.extend([gradients.x, gradients.weight]);
        found.extend(gradients.others);
        found
    }

    /// Asserts that all results agree with double precision and repeat; gives what was launched.
    fn agrees(&self, what: &str) -> Vec<String> {
        self.agrees_to(what, 4.0 * tolerance(self.x.tested.dtype()))
    }

    fn agrees_to(&self, what: &str, bound: f64) -> Vec<String> {
        let (found, launches) = launched(|| self.run(|pair| &pair.tested));
        let again = self.run(|pair| &pair.tested);
        let expected = self.run(|pair| &pair.reference);
        // Gradients of parameters are sums of rounded gradients of matrices in 16 bits.
        check_to(what, &found, &again, &expected, bound);
        launches.iter().map(|work| function(work)).collect()
    }
}

pub fn maps_agree_with_double_precision(device: &Device) {
    for (number, rows) in [1, 2, 31, 33, 256, 257, 700, FEW, FEW + 1, 3001].into_iter().enumerate() {
        for dtype in DType::ALL {
            let is_slow = std::env::var_os("GRADEWISE_TEST_SEEDS").is_some();
            for seed in 0..if is_slow { 1 } else { 6 } {
                let case = Case::draw(rows, dtype, device, 100 * number as u64 + seed);
                let what = format!("{rows} rows of {dtype}, seed {seed}");
                let launches = case.agrees(&what);
                let is_direct = launches.iter().any(|work| work == "equi_product");
                assert_eq!(is_direct, rows <= FEW, "{what}: {launches:?}");
            }
        }
    }
}

pub fn few_rows_take_one_launch_forward_and_three_backward(device: &Device) {
    let case = Case::draw(256, DType::F32, device, 5);
    // The list of the maps is copied to the device once.
    case.agrees("256 rows");
    let launches = case.agrees("256 rows");
    let own: Vec<_> = launches.iter().filter(|work| work.starts_with("equi_")).collect();
    assert_eq!(own, ["equi_product", "equi_product", "equi_outer", "equi_gradients"], "{launches:?}");
    assert_eq!(own.len(), launches.len(), "{launches:?}");
}

/// Maps of many rows in f32: of widths beside those of tiles and of instructions, rows beside those of tiles; in TF32 and exactly. Rows that
/// are no whole packs, and arrays that begin between packs, go by products of matrices.
pub fn many_rows_go_by_tiles(device: &Device) {
    let widths = [
        ([0, 0], [1, 1]),
        ([1, 0], [3, 16]),
        ([0, 33], [17, 3]),
        ([32, 96], [16, 48]),
        ([64, 32], [32, 16]),
        ([33, 7], [40, 17]),
        ([160, 40], [16, 40]),
        ([96, 288], [32, 96]),
        ([7, 70], [96, 1]),
    ];
    for (number, (scalars, channels)) in widths.into_iter().enumerate() {
        let widths = Widths { scalars, channels };
        for (rows, shift) in [(FEW + 4, 0), (1148, 0), (1151, 0), (1152, 1), (1156, 0), (2048, 0), (8192, 0)]
        {
            let is_slow = std::env::var_os("GRADEWISE_TEST_SEEDS").is_some() && rows != 1148;
            let is_large = rows == 8192;
            if is_slow || (is_large != (number == 3) && rows > 2000) {
                continue;
            }
            let mut case = Case::of(rows, widths, DType::F32, device, number as u64);
            // An array that does not begin at a multiple of 16 bytes.
            for pair in [&mut case.x, &mut case.grad].into_iter().chain(case.others[0].as_mut()) {
                pair.tested = shifted(&pair.tested, shift);
            }
            let what = format!("{rows} rows, {widths:?}");
            for (compute, bound) in [(Compute::Exact, 4e-6), (Compute::Tf32, 2e-3)] {
                let launches = compute.scope(|| case.agrees_to(&what, bound));
                let own: Vec<_> = launches.iter().filter(|work| work.starts_with("equi_")).collect();
                if shift > 0 || !rows.is_multiple_of(4) {
                    assert!(!own.iter().any(|work| work.starts_with("equi_tiles")), "{what}: {launches:?}");
                    continue;
                }
                // Between few channels TF32 gains nothing.
                let is_exact = compute == Compute::Exact || channels[0].min(channels[1]) < 8;
                let [fragments, product, outer] = match is_exact {
                    true => ["equi_fragments_exact", "equi_tiles_exact", "equi_tiles_outer_exact"],
                    false => ["equi_fragments", "equi_tiles", "equi_tiles_outer"],
                };
                let expected = [fragments, product, fragments, product, outer, "equi_gradients_of_parts"];
                assert_eq!(own, expected, "{what}: {launches:?}");
            }
        }
    }
    // Too large for tiles.
    for (scalars, channels) in [([128, 768], [16, 96]), ([3, 5], [130, 110])] {
        let case = Case::of(FEW + 4, Widths { scalars, channels }, DType::F32, device, 1);
        let launches = case.agrees(&format!("{channels:?} channels"));
        assert!(!launches.iter().any(|work| work.starts_with("equi_tiles")), "{launches:?}");
    }
}

/// The same values, `by` elements after the beginning of their memory.
fn shifted(array: &Array, by: usize) -> Array {
    if by == 0 {
        return array.clone();
    }
    let count = array.elements();
    let flat = array.reshape([count]).unwrap();
    let wide = ops::concat(&[&flat.slice(0, 0..by).unwrap(), &flat], 0).unwrap();
    wide.slice(0, by..by + count).unwrap().reshape(array.shape()).unwrap()
}
