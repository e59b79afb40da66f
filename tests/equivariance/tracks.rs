//! Layers with tensors of rank 2 and 3 beside multivectors: f(u·x) = u·f(x) for all of O(3), where u acts on every index of a tensor.

use crate::{
    DTYPES,
    action::{Action, Group, tensor},
    common::{device, randomize, rng},
    distance, features, tolerance,
};
use gradewise_autograd::{Tensor, clifford::tensor_matrix};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::DType;
use gradewise_nn::{
    Module, Placement,
    data::{Samples, Split},
};
use gradewise_zoo::{
    data::potential::{ForceData, Potential},
    models::{Edges, ForceField, ForceFieldConfig, ForceFieldKind},
    tracks::{
        RadialBasis, Rank, TrackGate, TrackLinear, TrackMessages, TrackNorm, TrackProduct, TrackSize, Tracks,
    },
};
use rand_chacha::ChaCha8Rng;

const CHANNELS: usize = 4;

type Map = Box<dyn Fn(&Tracks) -> Tracks>;

/// Rotations, reflections, and the inversion itself.
fn actions(algebra: &Algebra, rng: &mut ChaCha8Rng) -> Vec<Action> {
    let mut actions = Action::reflections(algebra, Group::Pin, rng);
    actions.push(Action::inversion(algebra));
    let turned = actions[3].on_vectors(3);
    assert_eq!(turned, [-1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0]);
    actions
}

/// R·S·Rᵀ of components `[5, …]`.
fn turned(action: &Action, tensors: &Tensor) -> Vec<f64> {
    let matrix = action.on_vectors(3);
    let whole = tensor_matrix(tensors).unwrap().array().to_f64_vec().unwrap();
    let count = whole.len() / 9;
    let mut out = Vec::new();
    for (i, j) in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)] {
        out.extend((0..count).map(|at| {
            let term = |k: usize| matrix[3 * i + k / 3] * whole[k * count + at] * matrix[3 * j + k % 3];
            (0..9).map(term).sum::<f64>()
        }));
    }
    out
}

/// The components of rank 3: their indices.
const OCTUPOLE: [[usize; 3]; 7] =
    [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 1], [0, 1, 2], [1, 1, 1], [1, 1, 2]];

/// An entry of rank 3, from components `[7, count]`: two z are minus two x and two y.
fn octupole(values: &[f64], mut indices: [usize; 3], at: usize) -> f64 {
    indices.sort_unstable();
    match OCTUPOLE.iter().position(|place| *place == indices) {
        Some(component) => values[component * values.len() / 7 + at],
        None => {
            let of = |k: usize| octupole(values, [indices[0], k, k], at);
            -of(0) - of(1)
        }
    }
}

/// R on each index of components `[7, …]`.
fn turned_octupoles(action: &Action, octupoles: &Tensor) -> Vec<f64> {
    let (matrix, own) = (action.on_vectors(3), values(octupoles));
    let count = own.len() / 7;
    let mut out = Vec::new();
    for place in OCTUPOLE {
        out.extend((0..count).map(|at| {
            let term = |code: usize| {
                let from = [code / 9, code / 3 % 3, code % 3];
                let factor: f64 = (0..3).map(|k| matrix[3 * place[k] + from[k]]).product();
                factor * octupole(&own, from, at)
            };
            (0..27).map(term).sum::<f64>()
        }));
    }
    out
}

fn tracks(multivectors: Tensor, tensors: Option<Tensor>, octupoles: Option<Tensor>) -> Tracks {
    match (tensors, octupoles) {
        (Some(tensors), Some(octupoles)) => Tracks::with_octupoles(multivectors, tensors, octupoles),
        (tensors, _) => Tracks::new(multivectors, tensors),
    }
    .unwrap()
}

fn moved(action: &Action, x: &Tracks) -> Tracks {
    let tensors = x.tensors.as_ref().map(|s| tensor(&turned(action, s), s.shape(), s.dtype()));
    let octupoles = x.octupoles.as_ref().map(|t| tensor(&turned_octupoles(action, t), t.shape(), t.dtype()));
    tracks(action.apply(&x.multivectors), tensors, octupoles)
}

fn values(x: &Tensor) -> Vec<f64> {
    x.array().to_f64_vec().unwrap()
}

/// The largest of the errors of all kinds of features.
fn error(action: &Action, plain: &Tracks, moved: &Tracks) -> f64 {
    let own = values(&plain.multivectors);
    let mut error = distance(&values(&moved.multivectors), &action.apply_values(&own), &own);
    assert_eq!(plain.rank(), moved.rank(), "tensors come and go");
    if let (Some(plain), Some(moved)) = (&plain.tensors, &moved.tensors) {
        error = error.max(distance(&values(moved), &turned(action, plain), &values(plain)));
    }
    if let (Some(plain), Some(moved)) = (&plain.octupoles, &moved.octupoles) {
        error = error.max(distance(&values(moved), &turned_octupoles(action, plain), &values(plain)));
    }
    error
}

#[test]
fn every_layer_of_tracks_commutes_with_rotations_reflections_and_the_inversion() {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    for (dtype, rank) in DTYPES.into_iter().flat_map(|dtype| Rank::ALL.map(|rank| (dtype, rank))) {
        let mut rng = rng(100);
        let place = Placement::new(device(), dtype);
        let size = TrackSize { channels: CHANNELS, rank };
        let draw = |rows: usize, rng: &mut ChaCha8Rng| {
            let mut tensors = |there: bool, components: usize| {
                let shape = [components, rows, CHANNELS];
                there.then(|| Tensor::randn(shape, dtype, device(), rng).unwrap())
            };
            let (s, t) = (tensors(rank.has_tensors(), 5), tensors(rank.has_octupoles(), 7));
            tracks(features(&algebra, (rows, CHANNELS), dtype, rng), s, t)
        };
        let linear = TrackLinear::init(CHANNELS, size, true, &place, &mut rng).unwrap();
        let gate = TrackGate::init(size, &place).unwrap();
        let norm = TrackNorm::init(size, &place).unwrap();
        let product = TrackProduct::init(size, &place, &mut rng).unwrap();
        let last = TrackProduct::without_tensors(size, &place, &mut rng).unwrap();
        for module in [&linear as &dyn Module, &gate, &norm, &product, &last] {
            randomize(module, &mut rng);
        }
        let layers: [(&str, Map); 5] = [
            ("linear", Box::new(move |x| linear.forward(x).unwrap())),
            ("gate", Box::new(move |x| gate.forward(x).unwrap())),
            ("norm", Box::new(move |x| norm.forward(x).unwrap())),
            ("product", Box::new(move |x| product.forward(x).unwrap())),
            ("last product", Box::new(move |x| last.forward(x).unwrap())),
        ];
        let x = draw(6, &mut rng);
        for action in actions(&algebra, &mut rng) {
            for (name, layer) in &layers {
                let error = error(&action, &layer(&x), &layer(&moved(&action, &x)));
                assert!(error <= tolerance(dtype), "{name}, {dtype}, {rank}, {}: {error:e}", action.name);
            }
        }
        // Messages: directions turn with the features. A first round is given scalars.
        let basis = RadialBasis::new(5, 3.0).unwrap();
        let edges = Edges::complete(2, 3, device()).unwrap();
        let differences = Tensor::randn([3, 12, 1], dtype, device(), &mut rng).unwrap();
        for first in [true, false] {
            let layer = TrackMessages::init(size, first, &basis, &place, &mut rng).unwrap();
            randomize(&layer, &mut rng);
            let x = match first {
                true => Tracks::of_scalars(&x.scalars().unwrap(), rank).unwrap(),
                false => x.clone(),
            };
            let send = |x: &Tracks, differences: &Tensor| {
                layer.forward(x, &basis.forward(differences).unwrap(), &edges).unwrap()
            };
            let plain = send(&x, &differences);
            for action in actions(&algebra, &mut rng) {
                let matrix = action.on_vectors(3);
                let own = values(&differences);
                let component = |k: usize| -> f64 {
                    (0..3).map(|from| matrix[3 * (k / 12) + from] * own[12 * from + k % 12]).sum()
                };
                let along: Vec<f64> = (0..36).map(component).collect();
                let along = tensor(&along, &[3, 12, 1], dtype);
                let error = error(&action, &plain, &send(&moved(&action, &x), &along));
                assert!(error <= tolerance(dtype), "messages, {first}, {dtype}, {}: {error:e}", action.name);
            }
        }
    }
}

/// A term that couples a vector to a tensor by ε is odd under the inversion where a tensor is even: it commutes with rotations, and the test
/// above would find it.
#[test]
fn a_coupling_of_the_wrong_parity_is_found() {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let mut rng = rng(101);
    let s = Tensor::randn([5, 1, 1], DType::F64, device(), &mut rng).unwrap();
    let v = Tensor::randn([3, 1, 1], DType::F64, device(), &mut rng).unwrap();
    // sym(S_ik ε_kjl v_l).
    let twisted = |s: &Tensor, v: &[f64]| -> Tensor {
        let whole = values(&tensor_matrix(s).unwrap());
        let cross = [[0.0, v[2], -v[1]], [-v[2], 0.0, v[0]], [v[1], -v[0], 0.0]];
        let product = |i: usize, j: usize| (0..3).map(|k| whole[3 * i + k] * cross[k][j]).sum::<f64>();
        let places = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)];
        let values: Vec<f64> = places.iter().map(|&(i, j)| product(i, j) + product(j, i)).collect();
        tensor(&values, &[5, 1, 1], DType::F64)
    };
    let of = |action: &Action| {
        let matrix = action.on_vectors(3);
        let own = values(&v);
        let v: Vec<f64> = (0..3).map(|i| (0..3).map(|k| matrix[3 * i + k] * own[k]).sum()).collect();
        let plain = twisted(&s, &own);
        let moved = twisted(&tensor(&turned(action, &s), &[5, 1, 1], DType::F64), &v);
        distance(&values(&moved), &turned(action, &plain), &values(&plain))
    };
    assert!(of(&Action::rotor(&algebra, (0, 2), 0.9)) < 1e-12);
    assert!((of(&Action::inversion(&algebra)) - 2.0).abs() < 1e-12);
}

/// Energies stay and forces turn, for motions and permutations, in one round and in two.
#[test]
fn force_fields_of_tracks_commute_with_euclidean_motions_and_permutations() {
    const PARTICLES: usize = 5;
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let data = ForceData::sample(Potential::Charges, 3, PARTICLES, 7, Split::Train).unwrap();
    for (kind, layers) in
        [(ForceFieldKind::Tensors, 1), (ForceFieldKind::Tensors, 2), (ForceFieldKind::Vectors, 2)]
    {
        let mut rng = rng(102);
        let place = Placement::new(device(), DType::F64);
        let config = ForceFieldConfig { kind, hidden: 4, layers, cutoff: 4.0, ..ForceFieldConfig::default() };
        let model = ForceField::init(&config, &place, &mut rng).unwrap();
        randomize(&model, &mut rng);
        // Energies `[3]` and forces `[3][3][particles]`.
        let predict = |data: &ForceData| {
            let example = data.batch(&[0, 1, 2], &place).unwrap();
            let (forces, energies) = model.forces(&example.batch, false).unwrap();
            (values(&energies), example.batch.by_system(&forces).unwrap())
        };
        let rebuilt = |loc: Vec<f64>| {
            let mut motion = data.motion().clone();
            motion.loc = loc;
            ForceData::new(Potential::Charges, PARTICLES, motion, data.charges().to_vec()).unwrap()
        };
        let (energies, forces) = predict(&data);
        for action in actions(&algebra, &mut rng) {
            let matrix = action.on_vectors(3);
            let turn = |values: &[f64], shift: f64| -> Vec<f64> {
                let mut out = Vec::new();
                for system in values.chunks_exact(3 * PARTICLES) {
                    out.extend((0..3 * PARTICLES).map(|k| {
                        let (row, particle) = (k / PARTICLES, k % PARTICLES);
                        let term = |from: usize| matrix[3 * row + from] * system[from * PARTICLES + particle];
                        (0..3).map(term).sum::<f64>() + shift
                    }));
                }
                out
            };
            let moved = predict(&rebuilt(turn(&data.motion().loc, 0.8)));
            let error = distance(&moved.0, &energies, &energies).max(distance(
                &moved.1,
                &turn(&forces, 0.0),
                &forces,
            ));
            assert!(error <= 1e-11, "{kind}, {layers}, {}: {error:e}", action.name);
        }
        let order = [3, 0, 4, 1, 2];
        let reordered = |values: &[f64]| -> Vec<f64> {
            values.chunks_exact(PARTICLES).flat_map(|row: &[f64]| order.map(|from| row[from])).collect()
        };
        let mut motion = data.motion().clone();
        motion.loc = reordered(&motion.loc);
        let charges = reordered(data.charges());
        let moved = predict(&ForceData::new(Potential::Charges, PARTICLES, motion, charges).unwrap());
        let error =
            distance(&moved.0, &energies, &energies).max(distance(&moved.1, &reordered(&forces), &forces));
        assert!(error <= 1e-11, "{kind}, {layers}, permuted: {error:e}");
    }
}
