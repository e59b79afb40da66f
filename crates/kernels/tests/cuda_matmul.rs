//! Matrix products on every device: sizes around the tiles' edges, views, broadcast batches, both transposes.

mod common;

use common::{Pair, for_all, tolerance};
use gradewise_kernels::{Array, Compute, DType, Device, ops, tuning::Tile};
use rand::RngExt;

/// ‖tested − reference‖ ≤ `bound`·‖reference‖, and nothing but finite numbers.
fn close(pair: &Pair, bound: f64, context: &str) {
    assert_eq!(pair.tested.shape(), pair.reference.shape(), "{context}");
    if pair.reference.elements() > 0 {
        let error = pair.tested.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
        let error = error.relative_error(&pair.reference).unwrap();
        assert!(error <= bound, "{context}: relative error {error:e}");
    }
}

fn sizes_around_the_edges_of_tiles() {
    for_all(40, |device, dtype, rng, context| {
        let size = |rng: &mut rand_chacha::ChaCha8Rng| {
            [0, 1, 3, 16, 28, 31, 32, 33, 64, 65, 100, 129, 300][rng.random_range(0..13)]
        };
        let (m, k, n) = (size(rng), size(rng), size(rng));
        let (ta, tb): (bool, bool) = (rng.random(), rng.random());
        let batch = rng.random_range(1..4);
        let a = Pair::randn(if ta { [batch, k, m] } else { [batch, m, k] }, dtype, device, rng);
        let b = Pair::randn(if tb { [n, k] } else { [k, n] }, dtype, device, rng);
        let product = |a: &Array, b: &Array| ops::matmul(a, b, ta, tb).unwrap();
        let pair =
            Pair { tested: product(&a.tested, &b.tested), reference: product(&a.reference, &b.reference) };
        close(&pair, tolerance(dtype), &format!("{batch}x{m}x{k}x{n} {ta} {tb}, {context}"));
    });
}

fn operands_that_start_anywhere_and_batches_that_broadcast() {
    for_all(8, |device, dtype, rng, context| {
        let a = Pair::randn([3, 1, 35, 41], dtype, device, rng);
        let b = Pair::randn([2, 41, 37], dtype, device, rng);
        let first = rng.random_range(0..3);
        // Offsets that are no multiple of 16 bytes, and strides longer than the rows.
        let part = |x: &Array| x.slice(2, first..first + 32)?.slice(3, 1..34);
        let (a, b) = (a.map(part), b.map(|x| x.slice(1, 5..38)));
        let product = |a: &Array, b: &Array| ops::matmul(a, b, false, false).unwrap();
        let pair =
            Pair { tested: product(&a.tested, &b.tested), reference: product(&a.reference, &b.reference) };
        close(&pair, tolerance(dtype), context);
        // Which batches meet is on the device after the first product: a capture holds no copies from the host.
        if let Device::Cuda(device) = device {
            let (again, graph) = device.capture(|| Ok(product(&a.tested, &b.tested))).unwrap();
            graph.replay().unwrap();
            assert_eq!(again.to_f64_vec().unwrap(), pair.tested.to_f64_vec().unwrap(), "{context}");
        }
    });
}

fn tf32_keeps_three_digits_and_long_sums_keep_their_precision(device: &Device) {
    let mut rng = common::rng(3);
    for (m, k, n) in [(128, 512, 64), (256, 100_000, 48), (1000, 64, 1000)] {
        for (compute, dtype, bound) in [
            (Compute::Tf32, DType::F32, 1e-3),
            (Compute::Exact, DType::F32, 1e-6),
            (Compute::Exact, DType::F64, 1e-13),
        ] {
            let a = Pair::randn([m, k], dtype, device, &mut rng);
            let b = Pair::randn([k, n], dtype, device, &mut rng);
            let tested = compute.scope(|| ops::matmul(&a.tested, &b.tested, false, false).unwrap());
            let again = compute.scope(|| ops::matmul(&a.tested, &b.tested, false, false).unwrap());
            assert_eq!(tested.to_f64_vec().unwrap(), again.to_f64_vec().unwrap(), "the same bits");
            let reference = ops::matmul(&a.reference, &b.reference, false, false).unwrap();
            close(&Pair { tested, reference }, bound, &format!("{m}x{k}x{n} {dtype} {compute}"));
        }
    }
}

fn every_tile_computes_the_same_product(device: &Device) {
    let mut rng = common::rng(7);
    let tiles = std::iter::once(None).chain(Tile::ALL.map(Some));
    let in_tile = |tile: Option<Tile>, f: &dyn Fn() -> Array| match tile {
        Some(tile) => tile.scope(f),
        None => f(),
    };
    for tile in tiles {
        let modes = [
            (DType::F32, Compute::Tf32, 4e-4),
            (DType::BF16, Compute::Tf32, 1e-2),
            (DType::F16, Compute::Tf32, 2e-3),
            // These have one tile.
            (DType::F32, Compute::Exact, 5e-7),
        ];
        for (dtype, compute, bound) in modes {
            if tile.is_some() && compute == Compute::Exact {
                continue;
            }
            for (ta, tb) in [(false, false), (false, true), (true, false)] {
                // Whole tiles, tails of every axis, rows of results that cannot be copied in boxes, sums that are cut.
                for (batch, m, k, n) in [
                    (1usize, 256usize, 256usize, 256usize),
                    (3, 392, 72, 264),
                    (2, 72, 136, 65),
                    (1, 136, 20_000, 128),
                ] {
                    let n = if tb || dtype == DType::F32 && !ta { n } else { n.next_multiple_of(8) };
                    let a =
                        Pair::randn(if ta { [batch, k, m] } else { [batch, m, k] }, dtype, device, &mut rng);
                    let b =
                        Pair::randn(if tb { [batch, n, k] } else { [batch, k, n] }, dtype, device, &mut rng);
                    let product = |a: &Array, b: &Array| ops::matmul(a, b, ta, tb).unwrap();
                    let tested = compute.scope(|| in_tile(tile, &|| product(&a.tested, &b.tested)));
                    let again = compute.scope(|| in_tile(tile, &|| product(&a.tested, &b.tested)));
                    assert_eq!(tested.to_f64_vec().unwrap(), again.to_f64_vec().unwrap(), "the same bits");
                    let pair = Pair { tested, reference: product(&a.reference, &b.reference) };
                    close(&pair, bound, &format!("{tile:?} {dtype} {compute} {batch}x{m}x{k}x{n} {ta} {tb}"));
                }
            }
        }
    }
}

fn products_by_the_vendors_library_agree(device: &Device) {
    // Read once per process: only the first product of this process that is large enough decides, so a child does it.
    const CHILD: &str = "GRADEWISE_TEST_CUBLASLT_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["products_by_the_vendors_library_agree", "--exact"])
            .envs([(CHILD, "1"), ("GRADEWISE_CUBLASLT", "1")])
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        return;
    }
    let mut rng = common::rng(5);
    for dtype in DType::ALL {
        for (batch, ta, tb) in [(1, false, false), (1, true, false), (1, false, true), (3, false, true)] {
            let (m, k, n) = (260, 384, 200);
            let a = Pair::randn(if ta { [batch, k, m] } else { [batch, m, k] }, dtype, device, &mut rng);
            let b = Pair::randn(if tb { [batch, n, k] } else { [batch, k, n] }, dtype, device, &mut rng);
            let reference = ops::matmul(&a.reference, &b.reference, ta, tb).unwrap();
            // The first is measured, the second served by what won.
            for _ in 0..2 {
                let tested = ops::matmul(&a.tested, &b.tested, ta, tb).unwrap();
                let pair = Pair { tested, reference: reference.clone() };
                close(&pair, 2.0 * tolerance(dtype), &format!("{batch}x{m}x{k}x{n} {ta} {tb} {dtype}"));
            }
        }
    }
}

gradewise_testing::main!(
    sizes_around_the_edges_of_tiles,
    operands_that_start_anywhere_and_batches_that_broadcast,
    tf32_keeps_three_digits_and_long_sums_keep_their_precision,
    every_tile_computes_the_same_product,
    products_by_the_vendors_library_agree,
);
