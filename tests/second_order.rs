//! Second derivatives through the fused operators: an energy whose forces are trained.
//!
//! E(a, b) is an invariant of two vectors, built from the layers; the forces are −∂E, with their graph, and the loss is on
//! the forces. Its gradients with respect to the parameters are second derivatives of the energy.

mod common;

use common::{device, randomize, rng};
use gradewise_autograd::{BackwardOptions, Tensor, concat, grad};
use gradewise_core::Signature;
use gradewise_kernels::{Array, DType};
use gradewise_nn::{
    Module, Parameter, Placement,
    layers::{CliffordLayer, DynLayer, Layer, MvLayerNorm, MvLinear, MvSilu, Sequential, SteerableProduct},
    loss::mean_squared_error,
    optim::{Method, Optimizer},
};
use rand_chacha::ChaCha8Rng;

const WIDTH: usize = 6;
const BATCH: usize = 5;
const CL3: Signature = Signature::CL3;

/// `[3, batch, 2]` positions to `[batch]` energies.
struct Energy(Sequential);

impl Energy {
    fn init(body: impl Layer + Clone + 'static, rng: &mut ChaCha8Rng) -> Self {
        let place = Placement::new(device(), DType::F64);
        let linear =
            |inputs, outputs, rng: &mut _| MvLinear::new(inputs, outputs, CL3).init(&place, rng).unwrap();
        let energy =
            Self(Sequential::new().then(linear(2, WIDTH, rng)).then(body).then(linear(WIDTH, 1, rng)));
        randomize(&energy.0, rng);
        energy
    }

    fn forward(&self, positions: &Tensor) -> Tensor {
        let batch = positions.shape()[1];
        let zeros = |blades| Tensor::zeros([blades, batch, 2], DType::F64, device()).unwrap();
        let vectors = concat(&[&zeros(1), positions, &zeros(4)], 0).unwrap();
        self.0.forward(&vectors).unwrap().slice(0, 0..1).unwrap()
    }

    /// −∂E/∂positions, differentiable if `create_graph`.
    fn forces(&self, positions: &Tensor, create_graph: bool) -> Tensor {
        let positions = positions.requires_grad();
        let energy = self.forward(&positions).sum_all().unwrap();
        let options = BackwardOptions { seed: None, create_graph };
        let slope =
            grad(&energy, &[&positions], &options).unwrap().remove(0).expect("E depends on positions");
        slope.neg().unwrap()
    }

    fn loss(&self, positions: &Tensor, forces: &Tensor, create_graph: bool) -> Tensor {
        mean_squared_error(&self.forces(positions, create_graph), forces).unwrap()
    }
}

fn randn(shape: [usize; 3], rng: &mut ChaCha8Rng) -> Tensor {
    Tensor::randn(shape, DType::F64, device(), rng).unwrap()
}

/// The layers whose fused operators are differentiated twice.
fn bodies(rng: &mut ChaCha8Rng) -> Vec<(&'static str, Box<dyn DynLayer>)> {
    let place = Placement::new(device(), DType::F64);
    let clifford = |normalize, full, rng: &mut _| -> Box<dyn DynLayer> {
        let layer = CliffordLayer::new(WIDTH, CL3).normalize(normalize).fully_connected(full);
        Box::new(layer.init(&place, rng).unwrap())
    };
    let mut bodies = vec![
        ("CliffordLayer", clifford(true, false, rng)),
        ("CliffordLayer without norm", clifford(false, false, rng)),
        ("CliffordLayer, fully connected", clifford(true, true, rng)),
    ];
    let gated = |product: SteerableProduct| -> Box<dyn DynLayer> {
        let silu = MvSilu::new(WIDTH, CL3).init(&place).unwrap();
        let norm = MvLayerNorm::new(WIDTH, CL3).init(&place).unwrap();
        Box::new(Sequential::new().then(silu).then(product).then(norm))
    };
    let product = SteerableProduct::new(WIDTH, CL3).init(&place, rng).unwrap();
    bodies.push(("SteerableProduct", gated(product)));
    let product = SteerableProduct::fully_connected(WIDTH, WIDTH, CL3).init(&place, rng).unwrap();
    bodies.push(("SteerableProduct, fully connected", gated(product)));
    bodies
}

#[derive(Clone)]
struct Boxed(Box<dyn DynLayer>);

impl Module for Boxed {
    fn visit(&self, visitor: &mut gradewise_nn::Visitor<'_>) {
        self.0.visit(visitor);
    }
}

impl Layer for Boxed {
    fn forward(&self, x: &Tensor) -> gradewise_nn::Result<Tensor> {
        self.0.forward(x)
    }
}

/// `parameter` with one element moved, for as long as `measure` runs.
fn shifted(parameter: &Parameter, index: usize, step: f64, measure: impl Fn() -> f64) -> f64 {
    let old = parameter.array();
    let mut values = old.to_f64_vec().unwrap();
    values[index] += step;
    parameter.set(Array::from_slice(&values, old.shape(), device()).unwrap()).unwrap();
    let measured = measure();
    parameter.set(old).unwrap();
    measured
}

#[test]
fn gradients_of_a_loss_on_forces_match_central_differences() {
    let mut rng = rng(1);
    for (name, body) in bodies(&mut rng) {
        let energy = Energy::init(Boxed(body), &mut rng);
        let (positions, forces) = (randn([3, BATCH, 2], &mut rng), randn([3, BATCH, 2], &mut rng));
        let gradients = energy.loss(&positions, &forces, true).backward().unwrap();
        let (mut compared, mut reached) = (0, 0);
        for (parameter_name, parameter) in energy.0.named_parameters() {
            // The last bias shifts the energy, which no force feels: its gradient does not exist or is zero.
            let analytic = match gradients.get(&parameter.tensor()) {
                Ok(gradient) => gradient.to_vec::<f64>().unwrap(),
                Err(_) => vec![0.0; parameter.shape().elements()],
            };
            reached += usize::from(analytic.iter().any(|&value| value != 0.0));
            let size = analytic.iter().fold(1e-3f64, |size, value| size.max(value.abs()));
            for index in (0..analytic.len()).step_by(1 + analytic.len() / 7) {
                let at = |step| {
                    shifted(&parameter, index, step, || {
                        energy.loss(&positions, &forces, false).item().unwrap()
                    })
                };
                let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
                let deviation = (analytic[index] - numeric).abs() / size;
                assert!(
                    deviation <= 1e-6,
                    "{name}, {parameter_name}[{index}]: backward {:e}, central differences {numeric:e}",
                    analytic[index]
                );
                compared += 1;
            }
        }
        assert!(compared > 30 && reached + 1 >= energy.0.named_parameters().len(), "{name}: {reached}");
    }
}

/// Forces are −∂E: what `grad` gives equals central differences of the energy itself.
#[test]
fn forces_are_the_slope_of_the_energy() {
    let mut rng = rng(2);
    for (name, body) in bodies(&mut rng) {
        let energy = Energy::init(Boxed(body), &mut rng);
        let positions = randn([3, BATCH, 2], &mut rng);
        let forces = energy.forces(&positions, false).to_vec::<f64>().unwrap();
        assert_eq!(forces, energy.forces(&positions, false).to_vec::<f64>().unwrap());
        let recorded = energy.forces(&positions, true).to_vec::<f64>().unwrap();
        let values = positions.to_vec::<f64>().unwrap();
        for index in 0..values.len() {
            let at = |step: f64| {
                let mut moved = values.clone();
                moved[index] += step;
                let moved = Tensor::from_slice(&moved, positions.shape(), device()).unwrap();
                energy.forward(&moved).sum_all().unwrap().item().unwrap()
            };
            let numeric = -(at(1e-5) - at(-1e-5)) / 2e-5;
            let scale = numeric.abs().max(1.0);
            assert!((forces[index] - numeric).abs() <= 1e-7 * scale, "{name} [{index}]");
            assert!((forces[index] - recorded[index]).abs() <= 1e-11 * scale, "{name} [{index}], recorded");
        }
    }
}

/// Energy a·b + ½|a|² has forces (−b − a, −a); learning them from forces alone must work.
#[test]
fn training_on_forces_lowers_the_loss() {
    let mut rng = rng(3);
    let place = Placement::new(device(), DType::F64);
    let body = SteerableProduct::new(WIDTH, CL3).init(&place, &mut rng).unwrap();
    let energy = Energy::init(body, &mut rng);
    let positions = randn([3, 16, 2], &mut rng);
    let values = positions.to_vec::<f64>().unwrap();
    let target: Vec<f64> = values.chunks_exact(2).flat_map(|ab| [-ab[1] - ab[0], -ab[0]]).collect();
    let target = Tensor::from_slice(&target, [3, 16, 2], device()).unwrap();

    let parameters = energy.0.named_parameters();
    let mut optimizer = Optimizer::new(Method::adam(0.0)).unwrap();
    let first = energy.loss(&positions, &target, false).item().unwrap();
    for _ in 0..150 {
        let gradients = energy.loss(&positions, &target, true).backward().unwrap();
        let gradients: Vec<Option<Array>> = parameters
            .iter()
            .map(|(_, parameter)| {
                gradients.get(&parameter.tensor()).ok().map(|gradient| gradient.array().clone())
            })
            .collect();
        optimizer.step(0.02, &parameters, &gradients).unwrap();
    }
    let last = energy.loss(&positions, &target, false).item().unwrap();
    assert!(last < 0.1 * first, "from {first:e} to {last:e}");
}
