//! Message passing and the whole n-body model.

use crate::common::device;
use crate::{
    DTYPES,
    action::{Action, Group, tensor},
    common::{randomize, rng},
    distance, features, tolerance,
};
use gradewise_autograd::Tensor;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::DType;
use gradewise_nn::{Placement, layers::Layer};
use gradewise_zoo::models::{
    CL5, Edges, HullConfig, HullKind, HullModel, MessagePassing, NBody, NBodyBatch, NBodyConfig, NBodyGraph,
};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

#[test]
fn message_passing_commutes_with_versors() {
    for (p, q, r) in [(2, 0, 0), (3, 0, 0), (1, 3, 0), (3, 0, 1)] {
        let algebra = Algebra::new(Signature::new(p, q, r)).unwrap();
        for dtype in DTYPES {
            let mut rng = rng(60);
            let place = Placement::new(device(), dtype);
            let layer = MessagePassing::init(5, 2, algebra.signature(), &place, &mut rng).unwrap();
            randomize(&layer, &mut rng);
            let edges = Edges::complete(2, 4, device()).unwrap();
            let h = features(&algebra, (8, 5), dtype, &mut rng);
            // Attributes are multivectors like any others and turn with the nodes.
            let attributes = features(&algebra, (24, 2), dtype, &mut rng);
            let plain = layer.forward(&h, &attributes, &edges).unwrap().array().to_f64_vec().unwrap();
            for action in Action::reflections(&algebra, Group::Pin, &mut rng) {
                let (h, attributes) = (action.apply(&h), action.apply(&attributes));
                let moved = layer.forward(&h, &attributes, &edges).unwrap().array().to_f64_vec().unwrap();
                let error = distance(&moved, &action.apply_values(&plain), &plain);
                assert!(error <= tolerance(dtype), "{dtype}, {}: {error:e}", action.name);
            }
        }
    }
}

const PARTICLES: usize = 5;
const SYSTEMS: usize = 4;

/// Positions and velocities `[systems][3][particles]`, charges `[systems][particles]`.
#[derive(Clone)]
struct Scene {
    positions: Vec<f64>,
    velocities: Vec<f64>,
    charges: Vec<f64>,
}

impl Scene {
    fn random(rng: &mut ChaCha8Rng) -> Self {
        let mut sample =
            |count: usize| -> Vec<f64> { (0..count).map(|_| StandardNormal.sample(rng)).collect() };
        let (positions, velocities) = (sample(SYSTEMS * 3 * PARTICLES), sample(SYSTEMS * 3 * PARTICLES));
        let charges = sample(SYSTEMS * PARTICLES).into_iter().map(f64::signum).collect();
        Self { positions, velocities, charges }
    }

    /// Rotated or reflected by `matrix`, then moved by `shift`.
    fn moved(&self, matrix: &[f64], shift: [f64; 3]) -> Self {
        Self {
            positions: transform(&self.positions, matrix, shift),
            velocities: transform(&self.velocities, matrix, [0.0; 3]),
            charges: self.charges.clone(),
        }
    }

    /// With the particles in another order.
    fn reordered(&self, order: [usize; PARTICLES]) -> Self {
        Self {
            positions: permute(&self.positions, order),
            velocities: permute(&self.velocities, order),
            charges: permute(&self.charges, order),
        }
    }

    /// The model's predictions in the layout of the positions.
    fn predict(&self, model: &NBody) -> Vec<f64> {
        let parts = (&self.positions[..], &self.velocities[..], &self.charges[..]);
        let batch = NBodyBatch::new(parts, PARTICLES, model.placement()).unwrap();
        batch.by_system(&model.forward(&batch).unwrap()).unwrap()
    }
}

fn transform(values: &[f64], matrix: &[f64], shift: [f64; 3]) -> Vec<f64> {
    let mut out = vec![0.0; values.len()];
    for (out, x) in out.chunks_exact_mut(3 * PARTICLES).zip(values.chunks_exact(3 * PARTICLES)) {
        for axis in 0..3 {
            for particle in 0..PARTICLES {
                let turned: f64 =
                    (0..3).map(|from| matrix[axis * 3 + from] * x[from * PARTICLES + particle]).sum();
                out[axis * PARTICLES + particle] = turned + shift[axis];
            }
        }
    }
    out
}

fn permute(values: &[f64], order: [usize; PARTICLES]) -> Vec<f64> {
    values.chunks_exact(PARTICLES).flat_map(|row| order.map(|from| row[from])).collect()
}

fn model(config: &NBodyConfig, dtype: DType, rng: &mut ChaCha8Rng) -> NBody {
    let model = NBody::init(config, Placement::new(device(), dtype), rng).unwrap();
    randomize(&model, rng);
    model
}

fn small() -> NBodyConfig {
    NBodyConfig { hidden: 7, layers: 2, ..NBodyConfig::default() }
}

const IDENTITY: [f64; 9] = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];

/// E(3): rotations, reflections and translations of the scene do the same to the prediction. The paper's sizes, and all that the model
/// can have beyond the paper.
#[test]
fn the_n_body_model_commutes_with_euclidean_motions() {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let beyond = NBodyConfig {
        hidden: 6,
        layers: 2,
        velocities: false,
        conjugation: true,
        geometry: true,
        ..NBodyConfig::default()
    };
    let steps = NBodyConfig { layers: 1, substeps: 3, ..beyond };
    let pushes = NBodyConfig { pushes: true, ..steps };
    let kicks = NBodyConfig { substeps: 2, kicks: 3, ..steps };
    let adaptive = NBodyConfig { adaptive: true, ..kicks };
    let alone = NBodyConfig { corrections: false, paths: false, ..adaptive };
    let simplices = NBodyConfig { graph: NBodyGraph::Simplices, velocities: true, ..small() };
    let all = [NBodyConfig::default(), beyond, steps, pushes, kicks, adaptive, alone, simplices];
    for (dtype, config) in DTYPES.into_iter().flat_map(|dtype| all.map(|config| (dtype, config))) {
        let mut rng = rng(70);
        let model = model(&config, dtype, &mut rng);
        let scene = Scene::random(&mut rng);
        let plain = scene.predict(&model);
        let rest = distance(&plain, &scene.positions, &scene.positions);
        assert!(rest > 0.1, "the prediction is not just the input: {rest:e}");
        for action in Action::reflections(&algebra, Group::Pin, &mut rng) {
            let matrix = action.on_vectors(3);
            for shift in [[0.0; 3], [0.7, -1.1, 0.4]] {
                let moved = scene.moved(&matrix, shift).predict(&model);
                let error = distance(&moved, &transform(&plain, &matrix, shift), &plain);
                assert!(error <= tolerance(dtype), "{dtype}, {}, shift {shift:?}: {error:e}", action.name);
            }
        }
        let shift = [-2.0, 0.3, 1.5];
        let error = distance(
            &scene.moved(&IDENTITY, shift).predict(&model),
            &transform(&plain, &IDENTITY, shift),
            &plain,
        );
        assert!(error <= tolerance(dtype), "{dtype}, translation: {error:e}");
    }
}

/// Particles have no order: permuting them permutes the prediction.
#[test]
fn the_n_body_model_commutes_with_permutations() {
    let mut rng = rng(80);
    for graph in [NBodyGraph::Pairs, NBodyGraph::Simplices] {
        let model = model(&NBodyConfig { graph, ..small() }, DType::F64, &mut rng);
        let scene = Scene::random(&mut rng);
        let plain = scene.predict(&model);
        for order in [[1, 0, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
            let error = distance(&scene.reordered(order).predict(&model), &permute(&plain, order), &plain);
            assert!(error <= 1e-12, "{graph}, {order:?}: {error:e}");
        }
    }
}

/// Volumes from simplices know no order of the points, and no place; those of products in a fixed order do, and those of a learned metric
/// know directions.
#[test]
fn volumes_of_hulls_stay_as_their_model_promises() {
    const POINTS: usize = 6;
    let algebra = Algebra::new(CL5).unwrap();
    for kind in [HullKind::Products, HullKind::Metric, HullKind::Simplices] {
        let mut rng = rng(82);
        let place = Placement::new(device(), DType::F64);
        let config = HullConfig { kind, hidden: 3, layers: 2 };
        let model = HullModel::init(POINTS, &config, &place, &mut rng).unwrap();
        randomize(&model, &mut rng);
        let mut values = vec![0.0; 32 * 2 * POINTS];
        values[2 * POINTS..12 * POINTS].iter_mut().for_each(|x| *x = StandardNormal.sample(&mut rng));
        let x = tensor(&values, &[32, 2, POINTS], DType::F64);
        let predict = |x: &Tensor| model.forward(x).unwrap().array().to_f64_vec().unwrap();
        let plain = predict(&x);
        let change = |x: &Tensor| distance(&predict(x), &plain, &plain);
        for action in Action::reflections(&algebra, Group::Pin, &mut rng) {
            let error = change(&action.apply(&x));
            assert_eq!(error <= 1e-11, kind != HullKind::Metric, "{kind}, {}: {error:e}", action.name);
        }
        let reordered: Vec<f64> =
            values.chunks_exact(POINTS).flat_map(|row| [2, 0, 5, 1, 4, 3].map(|from| row[from])).collect();
        let error = change(&tensor(&reordered, &[32, 2, POINTS], DType::F64));
        assert_eq!(error <= 1e-11, kind == HullKind::Simplices, "{kind}, reordered: {error:e}");
        let moved = x.add(&tensor(&[&[0.0][..], &[0.7; 5], &[0.0; 26]].concat(), &[32, 1, 1], DType::F64));
        let error = change(&moved.unwrap());
        assert_eq!(error <= 1e-11, kind == HullKind::Simplices, "{kind}, moved: {error:e}");
    }
}

/// Turning the sign of every charge leaves all forces as they are: a model that is told so predicts the same, and one of the paper's does
/// not. Turning a single sign is another scene for both.
#[test]
fn charges_are_seen_through_their_products() {
    let mut rng = rng(85);
    let scene = Scene::random(&mut rng);
    let mut turned = scene.clone();
    turned.charges.iter_mut().for_each(|charge| *charge = -*charge);
    let mut other = scene.clone();
    other.charges[0] = -other.charges[0];
    for (conjugation, geometry) in [(false, false), (true, false), (true, true)] {
        let config = NBodyConfig { hidden: 7, layers: 2, conjugation, geometry, ..NBodyConfig::default() };
        let model = model(&config, DType::F64, &mut rng);
        let plain = scene.predict(&model);
        let change = |scene: &Scene| distance(&scene.predict(&model), &plain, &plain);
        assert_eq!(change(&turned) <= 1e-12, conjugation, "{config:?}: {:e}", change(&turned));
        assert!(change(&other) > 1e-3, "{config:?}: {:e}", change(&other));
    }
}

/// A scene that is stretched rather than moved is another scene: the tests above compare something.
#[test]
fn the_n_body_model_does_not_commute_with_what_is_no_motion() {
    let mut rng = rng(90);
    let model = model(&NBodyConfig { hidden: 7, layers: 1, ..NBodyConfig::default() }, DType::F64, &mut rng);
    let scene = Scene::random(&mut rng);
    let stretch = [1.5, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    let error = distance(
        &scene.moved(&stretch, [0.0; 3]).predict(&model),
        &transform(&scene.predict(&model), &stretch, [0.0; 3]),
        &scene.positions,
    );
    assert!(error > 1e-2, "{error:e}");
}
