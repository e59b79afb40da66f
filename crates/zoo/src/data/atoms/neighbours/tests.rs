use super::*;
use proptest::prelude::*;
use std::time::Instant;

fn cells() -> impl Strategy<Value = Option<Cell>> {
    let vectors = (2.0f64..9.0, 2.0f64..9.0, 2.0f64..9.0, prop::array::uniform3(-2.5f64..2.5));
    let cell =
        (vectors, prop::array::uniform3(any::<bool>())).prop_map(|((a, b, c, [xy, xz, yz]), periodic)| {
            Cell { vectors: [[a, 0.0, 0.0], [xy, b, 0.0], [xz, yz, c]], periodic }
        });
    prop::option::of(cell)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A trajectory has the neighbours that a search at each of its frames finds.
    #[test]
    fn a_skin_changes_nothing_but_the_number_of_searches(
        start in prop::collection::vec(prop::array::uniform3(0.0f64..8.0), 2..15),
        cell in cells(),
        steps in prop::collection::vec(prop::array::uniform3(-0.2f64..0.2), 12),
    ) {
        let mut list = SkinList::new(2.5, 0.6).unwrap();
        let mut positions = start;
        for (at, step) in steps.iter().enumerate() {
            let atom = at % positions.len();
            positions[atom] = std::array::from_fn(|axis| positions[atom][axis] + step[axis]);
            let Ok(expected) = Neighbours::find(&positions, cell.as_ref(), 2.5) else { return Ok(()) };
            let Ok(found) = list.update(&positions, cell.as_ref()) else { return Ok(()) };
            prop_assert_eq!(found, expected);
        }
        prop_assert!(list.searches() <= steps.len());
    }
}

/// A crystal of one atom in a cell smaller than the cutoff: 6 nearest and 12 next neighbours of a cubic lattice, all images of itself.
#[test]
fn an_atom_neighbours_its_own_images() {
    let cubic = Cell::periodic([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]);
    let count = |cutoff| Neighbours::find(&[[0.3; 3]], Some(&cubic), cutoff).unwrap().len();
    assert_eq!([count(1.9), count(2.1), count(2.9), count(3.5)], [0, 6, 18, 26]);
    assert!(Neighbours::find(&[[0.3; 3]], None, 5.0).unwrap().is_empty());
    assert!(Neighbours::find(&[], Some(&cubic), 5.0).unwrap().is_empty());
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let pair = [[0.0; 3], [0.01, 0.0, 0.0]];
    let cubic = Cell::periodic([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]);
    let error = |positions: &[Vector], cell: Option<&Cell>, cutoff| {
        Neighbours::find(positions, cell, cutoff).unwrap_err().to_string()
    };
    assert!(error(&pair, None, 3.0).contains("atoms 0 and 1 coincide"));
    let wrapped = [[0.0; 3], [2.0, 0.0, 0.0]];
    assert!(error(&wrapped, Some(&cubic), 1.0).contains("coincide"), "also across the boundary");
    assert!(error(&[[f64::NAN; 3]], None, 3.0).contains("finite"));
    assert!(error(&[[0.0; 3]], None, 0.0).contains("cutoff"));
    let flat = Cell::periodic([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]);
    assert!(error(&[[0.0; 3]], Some(&flat), 1.0).contains("spans no volume"));
    assert!(SkinList::new(2.0, -1.0).is_err());
}

/// The time for an atom does not grow with the system.
#[test]
fn a_search_takes_time_in_proportion_to_the_atoms() {
    let lattice = |side: usize| -> (Vec<Vector>, Cell) {
        let length = 2.2 * side as f64;
        let at = |x: usize| 2.2 * x as f64;
        let points =
            (0..side.pow(3)).map(|k| [at(k % side), at(k / side % side), at(k / side / side)]).collect();
        (points, Cell::periodic([[length, 0.0, 0.0], [0.0, length, 0.0], [0.0, 0.0, length]]))
    };
    let time = |side: usize| {
        let (positions, cell) = lattice(side);
        let start = Instant::now();
        let found = Neighbours::find(&positions, Some(&cell), 5.0).unwrap();
        assert_eq!(found.len(), 56 * positions.len(), "neighbours within 5 Å of a cubic lattice of 2.2 Å");
        start.elapsed().as_secs_f64() / positions.len() as f64
    };
    // The least of several, because the machine is shared. All pairs of 27,000 atoms would take 8 times as long for an atom as of 3,375.
    let least = |side| (0..5).map(|_| time(side)).fold(f64::MAX, f64::min);
    let (small, large) = (least(15), least(30));
    assert!(large < 4.0 * small, "{small:e} s for an atom, {large:e} s in a system of eight times the size");
}
