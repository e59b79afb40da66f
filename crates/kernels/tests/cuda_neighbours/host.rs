//! Neighbours on the host against all pairs and images.

use crate::{Vector, vectors};
use gradewise_kernels::{
    Array, DType, Device,
    ops::neighbours::{Cell, NeighbourList, Pairs, SearchFault, find},
};
use proptest::prelude::*;

type Triple = (u32, u32, [i32; 3]);

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Every pair and image within the cutoff, by trying all images that could be.
fn by_force(positions: &[Vector], cell: Option<&Cell>, cutoff: f64) -> Vec<Triple> {
    let farthest = positions.iter().map(|&x| dot(x, x).sqrt()).fold(0.0, f64::max);
    let reach = |k: usize| match cell {
        Some(cell) if cell.periodic[k] => {
            let [a, b] = [cell.vectors[(k + 1) % 3], cell.vectors[(k + 2) % 3]];
            let normal: Vector =
                [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
            let height = dot(cell.vectors[k], normal).abs() / dot(normal, normal).sqrt();
            // Atoms may be some cells away from one another.
            ((cutoff + 2.0 * farthest) / height).ceil() as i32
        }
        _ => 0,
    };
    let mut found = Vec::new();
    for (i, a) in positions.iter().enumerate() {
        for (j, b) in positions.iter().enumerate() {
            for x in -reach(0)..=reach(0) {
                for y in -reach(1)..=reach(1) {
                    for z in -reach(2)..=reach(2) {
                        let images = [x, y, z];
                        let shift = cell.map_or([0.0; 3], |cell| cell.shift(images));
                        let d: Vector = std::array::from_fn(|axis| b[axis] - a[axis] + shift[axis]);
                        if dot(d, d) < cutoff * cutoff && (i != j || images != [0; 3]) {
                            found.push((i as u32, j as u32, images));
                        }
                    }
                }
            }
        }
    }
    found
}

fn triples(pairs: &Pairs) -> Vec<Triple> {
    let ends = pairs.receivers.iter().zip(&pairs.senders).zip(&pairs.images);
    ends.map(|((&receiver, &sender), &images)| (receiver, sender, images)).collect()
}

/// No cell, and cells that repeat along any of their vectors: sheared, thin, flat, and with atoms on their borders.
fn cells() -> impl Strategy<Value = Option<Cell>> {
    let vectors = (
        prop::array::uniform3(0.7f64..6.0),
        prop::array::uniform3(-2.0f64..2.0),
        prop::array::uniform3(prop::bool::ANY),
        0u32..4,
    );
    vectors.prop_map(|(lengths, shear, periodic, kind)| {
        let [x, y, z] = lengths;
        let [a, b, c] = shear.map(|shear| if kind == 1 { 0.0 } else { shear });
        let long = if kind == 2 { 9.0 } else { 1.0 };
        (kind < 3).then_some(Cell { vectors: [[long * x, a, b], [0.0, y, c], [0.0, 0.0, z]], periodic })
    })
}

/// Positions of any kind, or at whole numbers, where atoms are on borders of cells and of bins and may coincide.
fn atoms() -> impl Strategy<Value = Vec<Vector>> {
    (prop::collection::vec(prop::array::uniform3(-7.0f64..9.0), 0..14), prop::bool::ANY).prop_map(
        |(atoms, whole)| if whole { atoms.into_iter().map(|x| x.map(f64::round)).collect() } else { atoms },
    )
}

fn array(positions: &[Vector], dtype: DType) -> Array {
    let values: Vec<f64> = (0..3).flat_map(|axis| positions.iter().map(move |x| x[axis])).collect();
    Array::from_f64(&values, [3, positions.len(), 1], dtype, &Device::Cpu).unwrap()
}

pub fn pairs_are_those_of_brute_force() {
    proptest!(ProptestConfig::with_cases(200), |(positions in atoms(), cell in cells(), cutoff in 0.5f64..4.0)| {
    let found = Pairs::find(&positions, cell.as_ref(), cutoff).unwrap();
    let expected = by_force(&positions, cell.as_ref(), cutoff);
    prop_assert_eq!(triples(&found), expected, "in order");
    // Whole cutoffs: atoms of a lattice exactly at the cutoff are out.
    let whole = cutoff.ceil();
    let found = Pairs::find(&positions, cell.as_ref(), whole).unwrap();
    prop_assert_eq!(triples(&found), by_force(&positions, cell.as_ref(), whole));
    let mut opposite = triples(&found);
    opposite.iter_mut().for_each(|(i, j, images)| (*i, *j, *images) = (*j, *i, images.map(|x| -x)));
    opposite.sort_unstable();
    prop_assert_eq!(opposite, triples(&found), "each pair has its opposite");
    });
}

/// A list with room has the pairs and what fills up, and is searched again only where an atom has moved.
pub fn a_list_follows_atoms() {
    proptest!(ProptestConfig::with_cases(200), |(positions in atoms(), cell in cells(), cutoff in 0.5f64..3.0, single in prop::bool::ANY)| {
    let dtype = if single { DType::F32 } else { DType::F64 };
    let now = array(&positions, dtype);
    let rounded = vectors(&now);
    let expected = triples(&Pairs::find(&rounded, cell.as_ref(), cutoff).unwrap());
    let exact = find(&now, cell.as_ref(), cutoff).unwrap();
    prop_assert_eq!(exact.room(), expected.len());
    prop_assert_eq!(triples(&exact.pairs().unwrap()), expected.clone());

    // Atoms move below.
    let room = 2 * expected.len() + 200;
    let mut list =
        NeighbourList::new(positions.len(), dtype, cell.as_ref(), cutoff, room, &Device::Cpu).unwrap();
    list.search(&now).unwrap();
    prop_assert_eq!(triples(&list.pairs().unwrap()), expected.clone());
    if positions.is_empty() {
        return Ok(());
    }
    let last = positions.len() - 1;
    for index in [list.receivers(), list.senders()] {
        prop_assert!(index.to_vec().unwrap()[expected.len()..].iter().all(|&atom| atom == last));
    }
    let shifts = list.shifts().to_f64_vec().unwrap();
    let tolerance = if single { 1e-5 } else { 0.0 };
    for (at, &(_, _, images)) in expected.iter().enumerate() {
        let shift = cell.map_or([0.0; 3], |cell| cell.shift(images));
        for axis in 0..3 {
            let error = (shifts[axis * room + at] - shift[axis]).abs();
            prop_assert!(error <= tolerance);
        }
    }
    prop_assert!(shifts[expected.len()..room].iter().all(|&x| x > cutoff));

    let mut moved = positions.clone();
    moved[0][1] += 0.25;
    list.search_where_moved(&array(&moved, dtype), 0.5).unwrap();
    let report = list.report().unwrap();
    prop_assert!(report.searches == 1 && (report.moved - 0.0625).abs() < 1e-5);
    list.search_where_moved(&array(&moved, dtype), 0.2).unwrap();
    prop_assert_eq!(list.report().unwrap().searches, 2);
    let there = vectors(list.searched_at());
    prop_assert_eq!(triples(&list.pairs().unwrap()), triples(&Pairs::find(&there, cell.as_ref(), cutoff).unwrap()));
    });
}

pub fn faults_leave_the_list_as_it_was() {
    let positions = [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
    let mut list = NeighbourList::new(3, DType::F64, None, 1.2, 4, &Device::Cpu).unwrap();
    list.search(&array(&positions, DType::F64)).unwrap();
    let before = triples(&list.pairs().unwrap());
    assert_eq!(before, [(0, 1, [0; 3]), (0, 2, [0; 3]), (1, 0, [0; 3]), (2, 0, [0; 3])]);
    let near = [[0.0; 3], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]];
    let nan = [[0.0; 3], [f64::NAN, 0.0, 0.0], [0.5, 0.5, 0.0]];
    for (positions, fault, message) in
        [(near, SearchFault::Full, "4 for 6 pairs"), (nan, SearchFault::NotFinite, "not finite")]
    {
        list.search_where_moved(&array(&positions, DType::F64), 0.1).unwrap();
        assert_eq!(list.report().unwrap().fault, Some(fault));
        assert!(list.pairs().unwrap_err().to_string().contains(message));
        assert_eq!(list.receivers().to_vec().unwrap(), [0, 0, 1, 2]);
    }
    list.search(&array(&positions, DType::F64)).unwrap();
    assert_eq!(triples(&list.pairs().unwrap()), before);
    let far = Cell::periodic([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    let error = Pairs::find(&[[1e6, 0.0, 0.0]], Some(&far), 0.5).unwrap_err().to_string();
    assert!(error.contains("2¹⁸ cells"), "{error}");
}

pub fn what_cannot_be_sought_is_refused() {
    let cpu = Device::Cpu;
    let find = |shape: &[usize], dtype, cutoff| {
        find(&Array::zeros(shape, dtype, &cpu).unwrap(), None, cutoff)
            .map(|list| list.room())
            .unwrap_err()
            .to_string()
    };
    assert!(find(&[2, 3], DType::F64, 1.0).contains("[3, atoms]"));
    assert!(find(&[3, 3], DType::BF16, 1.0).contains("f32 and f64"));
    assert!(find(&[3, 3], DType::F32, 0.0).contains("cutoff"));
    let thin = Cell::periodic([[1e-5, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    assert!(Pairs::find(&[[0.0; 3]], Some(&thin), 1.0).unwrap_err().to_string().contains("heights"));
    let flat = Cell::periodic([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]);
    assert!(Pairs::find(&[[0.0; 3]], Some(&flat), 1.0).unwrap_err().to_string().contains("no volume"));
    let mut list = NeighbourList::new(2, DType::F32, None, 1.0, 0, &cpu).unwrap();
    let other = |atoms: usize, dtype| Array::zeros([3, atoms, 1], dtype, &cpu).unwrap();
    assert!(list.search(&other(3, DType::F32)).is_err() && list.search(&other(2, DType::F64)).is_err());
}
