//! The potential: forces and stresses are derivatives of its energy, which keeps the symmetries of space and is a sum over parts.

use gradewise_core::{DType, Signature};
use gradewise_kernels::Device;
use gradewise_nn::{
    Module, Placement,
    data::{Batch, Samples, Split},
    symmetry::{Isometry, relative_distance},
};
use gradewise_zoo::{
    data::atoms::{AtomBatch, AtomOrigin, AtomSet, AtomSource, Cell, Frame, Labels, Units, Vector},
    models::{CoreRepulsion, Potential, PotentialConfig},
    tracks::Rank,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CUTOFF: f64 = 3.0;

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

fn model(rank: Rank) -> Potential {
    repelling(rank, CoreRepulsion::None)
}

fn repelling(rank: Rank, repulsion: CoreRepulsion) -> Potential {
    let config = PotentialConfig { hidden: 6, cutoff: CUTOFF, rank, repulsion, ..PotentialConfig::default() };
    Potential::init(&config, place(), &mut ChaCha8Rng::seed_from_u64(3)).unwrap()
}

/// Atoms at least 0.7 Å apart, in space or in a triclinic cell smaller than the cutoff.
fn system(atoms: usize, periodic: [bool; 3], seed: u64) -> Frame {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let vectors = [[2.9, 0.0, 0.0], [0.4, 3.1, 0.0], [-0.5, 0.6, 2.7]];
    let mut frame = Frame { cell: Some(Cell { vectors, periodic }), ..Frame::default() };
    while frame.len() < atoms {
        let mut tried = frame.clone();
        tried.numbers.push([1, 6, 8][tried.len() % 3]);
        tried.positions.push([(); 3].map(|()| rng.random_range(0.0..3.0)));
        if gradewise_zoo::data::atoms::Neighbours::find(&tried.positions, tried.cell.as_ref(), 0.7)
            .unwrap()
            .is_empty()
        {
            frame = tried;
        }
    }
    frame
}

fn systems() -> Vec<Frame> {
    vec![
        system(7, [false; 3], 1),
        system(6, [true; 3], 2),
        system(5, [true, true, false], 4),
        system(1, [true; 3], 5),
    ]
}

fn predict(model: &Potential, frames: &[Frame]) -> Vec<Labels> {
    model.predict(&AtomSet::new(frames.to_vec(), &[], CUTOFF, false).unwrap(), &place()).unwrap()
}

fn energy(model: &Potential, frame: &Frame) -> f64 {
    predict(model, std::slice::from_ref(frame))[0].energy
}

/// The derivative by central differences of the fourth order.
fn slope(of: impl Fn(f64) -> f64) -> f64 {
    const H: f64 = 2e-4;
    (8.0 * (of(H) - of(-H)) - (of(2.0 * H) - of(-2.0 * H))) / (12.0 * H)
}

#[test]
fn forces_are_derivatives_of_the_energy() {
    let repelling = repelling(Rank::Two, CoreRepulsion::Zbl);
    for model in Rank::ALL.map(model).into_iter().chain([repelling]) {
        for frame in systems() {
            let forces = predict(&model, std::slice::from_ref(&frame)).remove(0).forces;
            let size = forces.as_flattened().iter().fold(0f64, |size, x| size.max(x.abs()));
            assert!(size > 1e-3 || frame.len() == 1, "{size}");
            for (atom, force) in forces.iter().enumerate() {
                for (axis, force) in force.iter().enumerate() {
                    let found = slope(|h| {
                        let mut frame = frame.clone();
                        frame.positions[atom][axis] += h;
                        energy(&model, &frame)
                    });
                    let error = (found + force).abs();
                    assert!(error <= 1e-6 * size.max(1e-6), "atom {atom}, axis {axis}: {found} {force}");
                }
            }
        }
    }
}

#[test]
fn stresses_are_derivatives_by_the_strain() {
    let model = repelling(Rank::Three, CoreRepulsion::Zbl);
    for frame in [system(6, [true; 3], 2), system(1, [true; 3], 5)] {
        let cell = frame.cell.unwrap();
        let stress = predict(&model, std::slice::from_ref(&frame)).remove(0).stress.unwrap();
        for a in 0..3 {
            for b in 0..3 {
                let found = slope(|h| {
                    let strained = |mut v: Vector| {
                        // Symmetric, as the stress is.
                        let (x, y) = (v[a], v[b]);
                        v[a] += h / 2.0 * y;
                        v[b] += h / 2.0 * x;
                        v
                    };
                    let mut frame = frame.clone();
                    frame.positions = frame.positions.iter().map(|&x| strained(x)).collect();
                    frame.cell = Some(Cell { vectors: cell.vectors.map(strained), ..cell });
                    energy(&model, &frame)
                });
                let expected = cell.volume() * stress[a][b];
                let size = stress.as_flattened().iter().fold(0f64, |m, x| m.max(x.abs())) * cell.volume();
                assert!((found - expected).abs() <= 1e-6 * size, "{a} {b}: {found} {expected}");
            }
        }
    }
}

#[test]
fn energies_stay_and_forces_turn_with_all_motions_and_orders_of_atoms() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    for model in Rank::ALL.map(model) {
        for frame in systems() {
            let labels = predict(&model, std::slice::from_ref(&frame)).remove(0);
            let labelled = frame.labelled(labels);
            for reflections in 1..=3 {
                let isometry = Isometry::random(Signature::CL3, reflections, &mut rng).unwrap();
                let expected = labelled.moved(&isometry, [3.0, -1.0, 0.5]).unwrap();
                let found = predict(&model, std::slice::from_ref(&expected)).remove(0);
                let error = relative_distance(&found.numbers(), &expected.labels().unwrap().numbers());
                assert!(error < 1e-12, "{error:e}");
            }
        }
    }
}

#[test]
fn systems_far_apart_have_the_sum_of_their_energies_and_batches_change_nothing() {
    let model = model(Rank::Three);
    let (one, other) = (system(7, [false; 3], 1), system(5, [false; 3], 9));
    let alone = predict(&model, &[one.clone(), other.clone()]);
    let mut both = one.clone();
    both.numbers.extend(&other.numbers);
    both.positions.extend(other.positions.iter().map(|x| [x[0] + 50.0, x[1], x[2]]));
    let whole = predict(&model, &[both]).remove(0);
    assert!((whole.energy - alone[0].energy - alone[1].energy).abs() < 1e-12 * whole.energy.abs().max(1.0));
    let forces = [alone[0].forces.clone(), alone[1].forces.clone()].concat();
    assert!(relative_distance(forces.as_flattened(), whole.forces.as_flattened()) < 1e-12);
    // Frames of different sizes together, and each alone.
    let frames = systems();
    let together = predict(&model, &frames);
    for (frame, found) in frames.iter().zip(together) {
        let alone = predict(&model, std::slice::from_ref(frame)).remove(0);
        assert!(relative_distance(&alone.numbers(), &found.numbers()) < 1e-13);
    }
    // A supercell has twice the energy.
    let cell = system(6, [true; 3], 2);
    let vectors = cell.cell.unwrap().vectors;
    let mut twice = cell.clone();
    twice.numbers.extend(&cell.numbers);
    twice.positions.extend(cell.positions.iter().map(|x| [0, 1, 2].map(|k| x[k] + vectors[1][k])));
    twice.cell = Some(Cell::periodic([vectors[0], vectors[1].map(|x| 2.0 * x), vectors[2]]));
    let (small, large) = (energy(&model, &cell), energy(&model, &twice));
    assert!((large - 2.0 * small).abs() < 1e-12 * large.abs().max(1.0), "{small} {large}");
}

/// Two atoms pass the cutoff: energy, force and its slope reach zero there, so the second derivative of the energy is continuous.
#[test]
fn the_energy_is_smooth_at_the_cutoff() {
    for model in Rank::ALL.map(model) {
        smooth_at_the_cutoff(&model);
    }
}

fn smooth_at_the_cutoff(model: &Potential) {
    let at = |distance: f64| {
        let positions = vec![[0.0; 3], [distance, 0.0, 0.0]];
        Frame { numbers: vec![6, 8], positions, ..Frame::default() }
    };
    let force = |distance: f64| predict(model, &[at(distance)]).remove(0).forces[1][0];
    let apart = energy(model, &at(CUTOFF + 1.0));
    // The greatest of some distances: random energies have zeros.
    let inside = [1.5, 2.0, 2.3].into_iter().fold((0f64, 0f64), |(of_force, of_energy), distance| {
        let energy = energy(model, &at(distance)) - apart;
        (of_force.max(force(distance).abs()), of_energy.max(energy.abs()))
    });
    assert!(inside.0 > 1e-4 && inside.1 > 1e-4, "there is an interaction: {inside:?}");
    assert_eq!(force(CUTOFF + 1e-9), 0.0);
    assert_eq!(energy(model, &at(CUTOFF + 1e-9)), apart);
    // (1 − r/c)³ for the energy, one power less for each derivative.
    for (d, of_energy) in [(1e-2, 1e-3), (1e-3, 1e-6)] {
        assert!((energy(model, &at(CUTOFF - d)) - apart).abs() < of_energy * inside.1);
        assert!(force(CUTOFF - d).abs() < 100.0 * d * d * inside.0, "{} {}", force(CUTOFF - d), inside.0);
    }
    let curvature = |x: f64| (force(x + 1e-5) - force(x - 1e-5)) / 2e-5;
    assert!(curvature(CUTOFF - 1e-3).abs() < 0.05 * curvature(2.0).abs() + 0.05 * inside.0);
    assert_eq!(curvature(CUTOFF + 1e-3), 0.0);
}

/// The published formula of two nuclei, written out, with a switch at the sum of the covalent radii.
fn screened(numbers: [f64; 2], radii: f64, r: f64) -> f64 {
    let x = r * (numbers[0].powf(0.23) + numbers[1].powf(0.23)) / 0.4685;
    let terms = [0.18175 * (-3.1998 * x).exp(), 0.50986 * (-0.94229 * x).exp()];
    let others = [0.28022 * (-0.4029 * x).exp(), 0.02817 * (-0.20162 * x).exp()];
    let screening = terms.iter().chain(&others).sum::<f64>();
    let u = (r / radii).min(1.0);
    let switch = 1.0 - 28.0 * u.powi(6) + 48.0 * u.powi(7) - 21.0 * u.powi(8);
    14.399_645_478 * numbers[0] * numbers[1] / r * screening * switch
}

#[test]
fn the_core_repulsion_is_that_of_ziegler_biersack_and_littmark() {
    let [plain, with] =
        [CoreRepulsion::None, CoreRepulsion::Zbl].map(|repulsion| repelling(Rank::One, repulsion));
    // Covalent radii in Å by Pyykkö and Atsumi: H 0.32, C 0.75, O 0.63, U 1.70.
    for (numbers, radii) in [([1, 1], 0.64), ([6, 8], 1.38), ([6, 1], 1.07), ([92, 92], 3.0)] {
        let at = |r: f64| {
            let positions = vec![[0.0; 3], [0.6 * r, 0.0, -0.8 * r]];
            Frame { numbers: numbers.to_vec(), positions, ..Frame::default() }
        };
        let repulsion = |r: f64| energy(&with, &at(r)) - energy(&plain, &at(r));
        for r in [0.2, 0.4, 0.6, 0.9 * radii, radii, 1.1 * radii] {
            let (found, expected) = (repulsion(r), screened(numbers.map(f64::from), radii, r));
            assert!(
                (found - expected).abs() <= 1e-10 * (1.0 + expected.abs()),
                "{numbers:?} {r}: {found} {expected}"
            );
        }
        assert!(repulsion(0.5 * radii) > 0.1, "it repels");
        assert_eq!(repulsion(radii + 1e-9).abs(), 0.0);
        // Of order (1 − r/R)³ below the radii: the second derivative is continuous.
        let size = repulsion(0.9 * radii);
        assert!(repulsion(0.999 * radii) < 1e-5 * size, "{} {size}", repulsion(0.999 * radii));
    }
}

/// Lone atoms have the reference energies and no forces; no atoms, unknown ones, and neighbours that were not sought far enough are refused.
#[test]
fn what_a_model_cannot_know_is_refused() {
    let model = model(Rank::Three);
    let training = AtomSource {
        origin: AtomOrigin::Ethanol,
        units: Units::EV_ANGSTROM,
        counts: [60, 10, 10],
        cutoff: CUTOFF,
    };
    let ethanol = AtomSet::load(&training, Split::Train).unwrap();
    assert_eq!((ethanol.len(), ethanol.species()), (60, vec![1, 6, 8]));
    model.calibrate(&ethanol).unwrap();
    let lone = |number| Frame { numbers: vec![number], positions: vec![[0.0; 3]], ..Frame::default() };
    let oxygen = predict(&model, &[lone(8)]).remove(0);
    assert!((oxygen.energy - ethanol.reference()[8]).abs() < 5.0 && oxygen.forces == [[0.0; 3]]);
    let error = |frame: Frame| {
        let set = AtomSet::new(vec![frame], &[], CUTOFF, false).unwrap();
        model.predict(&set, &place()).unwrap_err().to_string()
    };
    assert!(error(lone(7)).contains("`species` is N, expected H, C and O"), "{}", error(lone(7)));
    let near = AtomSet::new(vec![lone(8)], &[], 2.0, false).unwrap();
    let message = model.predict(&near, &place()).unwrap_err().to_string();
    assert!(message.contains("set data.cutoff=3"), "{message}");
    assert!(
        AtomSet::new(vec![Frame::default()], &[], CUTOFF, false)
            .unwrap_err()
            .to_string()
            .contains("no atoms")
    );
    assert!(
        AtomSet::new(vec![lone(8)], &[], CUTOFF, true).unwrap_err().to_string().contains("lacks an energy")
    );
    assert!(predict(&model, &[]).is_empty());
    let short = Placement::new(&Device::Cpu, DType::BF16);
    let refused = Potential::init(model.config(), short, &mut ChaCha8Rng::seed_from_u64(0));
    assert!(refused.err().is_some_and(|error| error.to_string().contains("f32 or f64")));
}

/// The derivatives of the loss by the parameters, which go through those of the energy by the positions, against differences.
#[test]
fn the_loss_of_forces_and_stress_has_its_gradients() {
    let model = model(Rank::Three);
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let mut random = || [(); 3].map(|()| rng.random_range(-1.0..1.0));
    let frames: Vec<Frame> = systems()
        .into_iter()
        .map(|frame| {
            let forces = frame.numbers.iter().map(|_| random()).collect();
            let stress = (frame.cell.unwrap().periodic == [true; 3]).then(|| [random(), random(), random()]);
            frame.labelled(Labels { energy: 3.0, forces, stress })
        })
        .collect();
    let set = AtomSet::new(frames, &[], CUTOFF, true).unwrap();
    let batch = set.batch(&[0, 1, 2, 3], &place()).unwrap();
    let loss = model.loss(&batch).unwrap();
    let gradients = loss.backward().unwrap();
    for (name, parameter) in model.named_parameters().iter().filter(|(_, parameter)| parameter.is_trained()) {
        let leaf = parameter.tensor();
        let gradient = gradients.get(&leaf).unwrap().array().to_f64_vec().unwrap();
        // Along the gradient, the slope is its norm.
        let size = gradient.iter().map(|x| x * x).sum::<f64>().sqrt();
        let before = parameter.array();
        let values = before.to_f64_vec().unwrap();
        let found = slope(|h| {
            let moved: Vec<f64> =
                values.iter().zip(&gradient).map(|(x, g)| x + h * g / size.max(1e-30)).collect();
            let moved =
                gradewise_kernels::Array::from_f64(&moved, before.dims(), DType::F64, &Device::Cpu).unwrap();
            parameter.set(moved).unwrap();
            model.loss(&batch).unwrap().item().unwrap()
        });
        parameter.set(before.clone()).unwrap();
        assert!((found - size).abs() < 1e-6 * size.max(1e-3), "{name}: {found} {size}");
    }
}

/// Edges that fill a batch up change nothing, and batches of equal molecules have one size, as captured steps need.
#[test]
fn batches_of_equal_molecules_have_one_size() {
    let model = model(Rank::Three);
    let source = AtomSource {
        origin: AtomOrigin::Ethanol,
        units: Units::EV_ANGSTROM,
        counts: [40, 5, 5],
        cutoff: CUTOFF,
    };
    let set = AtomSet::load(&source, Split::Train).unwrap();
    model.calibrate(&set).unwrap();
    let pairs = |index: usize| set.frames()[index].neighbours.len();
    let [few, many] =
        [(0..40).min_by_key(|&k| pairs(k)).unwrap(), (0..40).max_by_key(|&k| pairs(k)).unwrap()];
    assert!(pairs(few) < pairs(many), "frames differ in their pairs");
    let loss = |batch: &AtomBatch| model.loss(batch).unwrap().item().unwrap();
    let frames = [&set.frames()[few], &set.frames()[0]];
    let bare = AtomBatch::new(frames.into_iter(), CUTOFF, set.reference(), 0, &place()).unwrap();
    let filled = set.batch(&[few, 0], &place()).unwrap();
    assert!(bare.edge_count() < filled.edge_count() && filled.edge_count() == 2 * pairs(many));
    assert!((loss(&bare) / loss(&filled) - 1.0).abs() < 1e-13);
    let other = set.batch(&[many, 1], &place()).unwrap();
    assert_eq!(filled.edge_count(), other.edge_count());
    assert!(!bare.overwrite(&other).unwrap(), "of another size");
}
