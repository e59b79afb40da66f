//! Neighbours on a GPU: the list of the host, pair by pair and bit by bit, in cells of any kind; with room to spare, too little, and at an
//! address that captured work reads.

#[path = "../common/mod.rs"]
mod common;
mod host;

use common::rng;
use gradewise_kernels::{
    Array, CudaDevice, DType, Device, Index,
    ops::neighbours::{Cell, NeighbourList, Pairs, SearchFault, find},
    ops::{index_select, segment_sum},
};
use host::{
    a_list_follows_atoms, faults_leave_the_list_as_it_was, pairs_are_those_of_brute_force,
    what_cannot_be_sought_is_refused,
};
use rand::{Rng, RngExt};

type Vector = [f64; 3];

const DTYPES: [DType; 2] = [DType::F32, DType::F64];

/// Sheared, rectangular and long cells, flat and thin ones among them, that repeat along any of their vectors; or none.
fn cell(rng: &mut impl Rng, kind: usize, length: f64) -> Option<Cell> {
    let mut draw = |low: f64, high: f64| rng.random_range(low..high);
    let sheared = if kind == 1 { 0.0 } else { 1.0 };
    let mut shear = || sheared * draw(-2.0, 2.0);
    let [a, b, c] = [shear(), shear(), shear()];
    let long = if kind == 2 { 5.0 } else { 1.0 };
    let [x, y, z] = [long * length * draw(0.7, 6.0), length * draw(0.7, 6.0), length * draw(0.7, 6.0)];
    let periodic = [draw(0.0, 1.0) < 0.7, draw(0.0, 1.0) < 0.7, draw(0.0, 1.0) < 0.7];
    (kind < 3).then_some(Cell { vectors: [[x, a, b], [0.0, y, c], [0.0, 0.0, z]], periodic })
}

/// `[3, atoms, 1]` on the host. At whole numbers atoms are on borders of cells and bins, and some coincide.
fn positions(rng: &mut impl Rng, atoms: usize, extent: f64, whole: bool, dtype: DType) -> Array {
    let mut draw = || {
        let x: f64 = rng.random_range(-extent..extent);
        if whole { x.round() } else { x }
    };
    let values: Vec<f64> = (0..3 * atoms).map(|_| draw()).collect();
    Array::from_f64(&values, [3, atoms, 1], dtype, &Device::Cpu).unwrap()
}

fn vectors(positions: &Array) -> Vec<Vector> {
    let values = positions.to_f64_vec().unwrap();
    let atoms = values.len() / 3;
    (0..atoms).map(|atom| [0, 1, 2].map(|axis| values[axis * atoms + atom])).collect()
}

/// Asserts that a list on the device is that of the host, with what fills up and the groups that sums by segment read.
fn check(list: &NeighbourList, expected: &Pairs, own: &NeighbourList, context: &str) {
    let found = list.pairs().unwrap();
    assert_eq!(found.receivers, expected.receivers, "{context}");
    assert_eq!(found.senders, expected.senders, "{context}");
    assert_eq!(found.images, expected.images, "{context}");
    let report = list.report().unwrap();
    assert_eq!(report, own.report().unwrap(), "{context}");
    assert_eq!(report.closest, expected.closest.map_or(f64::INFINITY, |(_, square)| square), "{context}");
    let bits =
        |array: &Array| -> Vec<u64> { array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect() };
    assert_eq!(bits(list.shifts()), bits(own.shifts()), "{context}");
    assert_eq!(bits(list.searched_at()), bits(own.searched_at()), "{context}");
    assert_eq!(list.images().unwrap(), own.images().unwrap(), "{context}");
    let Device::Cuda(_) = list.receivers().device() else { return };
    for (index, host) in [(list.receivers(), own.receivers()), (list.senders(), own.senders())] {
        let ends = host.to_vec().unwrap();
        assert_eq!(index.to_vec().unwrap(), ends, "{context}");
        // Positions of pairs, summed by the groups that the kernels wrote: each once, for the atom that it ends at.
        let room = ends.len();
        let numbers: Vec<f64> = (0..room).map(|at| at as f64).collect();
        let numbers = Array::from_slice(&numbers, [room, 1], &Device::Cpu).unwrap();
        let sums = segment_sum(&numbers.to_device(index.device()).unwrap(), 0, index).unwrap();
        assert_eq!(bits(&sums), bits(&segment_sum(&numbers, 0, host).unwrap()), "{context}");
        let atoms: Vec<f64> = (0..index.bound()).map(|at| at as f64).collect();
        let atoms = Array::from_slice(&atoms, [atoms.len(), 1], index.device()).unwrap();
        let seen = index_select(&atoms, 0, index).unwrap().to_f64_vec().unwrap();
        assert!(seen.iter().zip(&ends).all(|(&seen, &end)| seen == end as f64), "{context}");
    }
}

fn lists_are_those_of_the_host(device: &Device) {
    for case in 0..60 {
        for dtype in DTYPES {
            let rng = &mut rng(case as u64);
            // Small systems are sorted by one block, up to 4,096 atoms; larger ones by many.
            let (atoms, length, extent) = match case % 15 {
                0 => (1, 1.0, 4.0),
                1 => (2, 1.0, 4.0),
                2 => (4096, 20.0, 50.0),
                3 => (4097, 20.0, 50.0),
                4 => (20_011, 40.0, 80.0),
                // Not too many images: a thin cell has thousands of pairs for each atom.
                _ => (rng.random_range(3..120), 2.0, 9.0),
            };
            let cell = cell(rng, case % 4, length);
            let cutoff: f64 = rng.random_range(0.5..2.5);
            let cutoff = if case % 3 == 0 { cutoff.ceil() } else { cutoff };
            let here = positions(rng, atoms, extent, case % 3 == 0, dtype);
            let there = here.to_device(device).unwrap();
            let context = format!("case {case}, {dtype}, {atoms} atoms, {cell:?}, cutoff {cutoff}");
            let expected = Pairs::find(&vectors(&here), cell.as_ref(), cutoff).unwrap();
            let own = find(&here, cell.as_ref(), cutoff).unwrap();
            check(&find(&there, cell.as_ref(), cutoff).unwrap(), &expected, &own, &context);
            let room = expected.len() + [0, 1, 77][case % 3];
            let of = |device: &Device, x: &Array| {
                let mut list = NeighbourList::new(atoms, dtype, cell.as_ref(), cutoff, room, device).unwrap();
                list.search(x).unwrap();
                list
            };
            check(&of(device, &there), &expected, &of(&Device::Cpu, &here), &context);
        }
    }
    let none = Array::zeros([3, 0], DType::F64, device).unwrap();
    assert_eq!(find(&none, None, 1.0).unwrap().pairs().unwrap(), Pairs::default());
}

/// A view is read as it is seen: every second atom of a longer list, and axes that come last.
fn views_are_read_as_they_are_seen(device: &Device) {
    for dtype in DTYPES {
        let here = positions(&mut rng(5), 60, 5.0, false, dtype);
        let by_atom = here.reshape([3, 60]).unwrap().transpose(0, 1).unwrap().contiguous().unwrap();
        let view = by_atom.to_device(device).unwrap().transpose(0, 1).unwrap();
        let part = here.to_device(device).unwrap().slice(1, 7..50).unwrap();
        let own = here.slice(1, 7..50).unwrap().contiguous().unwrap();
        for (seen, x) in [(view, here), (part, own)] {
            let expected = Pairs::find(&vectors(&x), None, 2.0).unwrap();
            check(
                &find(&seen, None, 2.0).unwrap(),
                &expected,
                &find(&x, None, 2.0).unwrap(),
                &format!("{dtype}"),
            );
        }
    }
}

fn faults_are_reported_and_leave_the_list_as_it_was(device: &Device) {
    for (dtype, atoms) in [(DType::F32, 50), (DType::F64, 50), (DType::F64, 5000)] {
        let rng = &mut rng(3);
        let extent = 2.5 * (atoms as f64).cbrt();
        let cell =
            Cell::periodic([[2.0 * extent, 0.0, 0.0], [1.0, 2.0 * extent, 0.0], [0.0, 0.0, 2.0 * extent]]);
        let first = positions(rng, atoms, extent, false, dtype);
        let expected = Pairs::find(&vectors(&first), Some(&cell), 3.0).unwrap();
        assert!(!expected.is_empty());
        let mut list = NeighbourList::new(atoms, dtype, Some(&cell), 3.0, expected.len(), device).unwrap();
        list.search(&first.to_device(device).unwrap()).unwrap();
        let before = list.pairs().unwrap();
        assert_eq!(before.senders, expected.senders);
        let mut values = first.to_f64_vec().unwrap();
        let dense: Vec<f64> = values.iter().map(|x| 0.7 * x).collect();
        values[atoms + 1] = f64::NAN;
        let nan = values.clone();
        values[atoms + 1] = 1e9;
        for (values, fault) in
            [(dense, SearchFault::Full), (nan, SearchFault::NotFinite), (values, SearchFault::TooFar)]
        {
            let other = Array::from_f64(&values, [3, atoms, 1], dtype, device).unwrap();
            list.search_where_moved(&other, 0.1).unwrap();
            assert_eq!(list.report().unwrap().fault, Some(fault), "{dtype}");
            assert!(list.pairs().is_err());
            let ends = |index: &Index| -> Vec<u32> {
                index.to_vec().unwrap().into_iter().map(|x| x as u32).collect()
            };
            assert_eq!(
                (ends(list.receivers()), ends(list.senders())),
                (before.receivers.clone(), before.senders.clone())
            );
        }
        list.search(&first.to_device(device).unwrap()).unwrap();
        assert_eq!(list.pairs().unwrap(), before);
    }
}

/// A graph that moves atoms, seeks neighbours where one has moved by half a skin, and reads them, without the host.
fn captured_searches_follow_the_atoms(device: &CudaDevice) {
    let there = Device::Cuda(device.clone());
    for (atoms, extent) in [(60, 4.0), (4500, 18.0)] {
        let rng = &mut rng(8);
        let cell =
            Cell::periodic([[2.0 * extent, 0.0, 0.0], [1.0, 2.0 * extent, 0.0], [0.0, 0.5, 2.0 * extent]]);
        let start = positions(rng, atoms, extent, false, DType::F64);
        let velocities = positions(rng, atoms, 0.02, false, DType::F64).to_device(&there).unwrap();
        let x = start.to_device(&there).unwrap().copy().unwrap();
        let room = 2 * Pairs::find(&vectors(&start), Some(&cell), 2.5).unwrap().len() + 64;
        let mut list = NeighbourList::new(atoms, DType::F64, Some(&cell), 2.5, room, &there).unwrap();
        let mut own = NeighbourList::new(atoms, DType::F64, Some(&cell), 2.5, room, &Device::Cpu).unwrap();
        list.search(&x).unwrap();
        own.search(&start).unwrap();
        let lengths = Array::zeros([room], DType::F64, &there).unwrap();
        let mut step = || {
            x.overwrite_shared(&gradewise_kernels::ops::add(&x, &velocities)?)?;
            list.search_where_moved(&x, 0.25)?;
            // What reads the list in the same graph sees the one just made.
            let ends = [list.receivers(), list.senders()].map(|index| index_select(&x, 1, index));
            let [from, to] = ends;
            let apart =
                gradewise_kernels::ops::add(&gradewise_kernels::ops::sub(&to?, &from?)?, list.shifts())?;
            let squares = gradewise_kernels::ops::sum(&gradewise_kernels::ops::square(&apart)?, &[0], false)?;
            lengths.overwrite_shared(&squares.reshape([room])?)
        };
        step().unwrap();
        let graph = device.capture(step).unwrap().1;
        let mut now =
            gradewise_kernels::ops::add(&start, &velocities.to_device(&Device::Cpu).unwrap()).unwrap();
        own.search_where_moved(&now, 0.25).unwrap();
        for _ in 0..60 {
            graph.replay().unwrap();
            now = gradewise_kernels::ops::add(&now, &velocities.to_device(&Device::Cpu).unwrap()).unwrap();
            own.search_where_moved(&now, 0.25).unwrap();
        }
        assert_eq!(list.report().unwrap(), own.report().unwrap());
        assert!(list.report().unwrap().searches > 3);
        assert_eq!(list.pairs().unwrap(), own.pairs().unwrap());
        let pairs = own.pairs().unwrap();
        let (now, lengths) = (vectors(&now), lengths.to_f64_vec().unwrap());
        for (at, &length) in lengths.iter().enumerate().take(pairs.len()) {
            let shift = cell.shift(pairs.images[at]);
            let [from, to] = [pairs.receivers[at], pairs.senders[at]].map(|atom| now[atom as usize]);
            let square: f64 = (0..3).map(|axis| (to[axis] - from[axis] + shift[axis]).powi(2)).sum();
            assert!((length - square).abs() <= 1e-12 * square.max(1.0), "{length} {square}");
        }
    }
}

gradewise_testing::main!(
    pairs_are_those_of_brute_force,
    a_list_follows_atoms,
    faults_leave_the_list_as_it_was,
    what_cannot_be_sought_is_refused,
    lists_are_those_of_the_host,
    views_are_read_as_they_are_seen,
    faults_are_reported_and_leave_the_list_as_it_was,
    captured_searches_follow_the_atoms,
);
