//! Hessian-vector products against differences of forces, and what must be flat.

use gradewise_autograd::Tensor;
use gradewise_kernels::{DType, Device};
use gradewise_nn::{
    Placement,
    curvature::{hessian, hessian_vector_product},
};
use gradewise_zoo::{
    data::nbody::NBodyBatch,
    models::{ForceField, ForceFieldConfig},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PARTICLES: usize = 4;
const NUMBERS: usize = 3 * PARTICLES;

struct System {
    model: ForceField,
    charges: Vec<f64>,
    positions: Vec<f64>,
}

impl System {
    fn new() -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let placement = Placement::new(&Device::Cpu, DType::F64);
        let config = ForceFieldConfig { hidden: 5, ..ForceFieldConfig::default() };
        let model = ForceField::init(&config, placement, &mut rng).unwrap();
        let positions = (0..NUMBERS).map(|_| rng.random_range(-1.5..1.5)).collect();
        Self { model, charges: vec![1.0, -1.0, 1.0, 1.0], positions }
    }

    fn batch(&self, positions: &[f64]) -> NBodyBatch {
        let placement = Placement::new(&Device::Cpu, DType::F64);
        NBodyBatch::new((positions, &[0.0; NUMBERS], &self.charges), PARTICLES, placement).unwrap()
    }

    fn forces(&self, positions: &[f64]) -> Vec<f64> {
        self.model.forces(&self.batch(positions), false).unwrap().0.array().to_f64_vec().unwrap()
    }

    fn product(&self, direction: &[f64]) -> Vec<f64> {
        let batch = self.batch(&self.positions);
        let direction = Tensor::from_slice(direction, [3, PARTICLES], &Device::Cpu).unwrap();
        let energy = |x: &Tensor| Ok(self.model.energy(x, &batch)?.sum_all()?);
        let product = hessian_vector_product(&batch.positions, &direction, energy).unwrap();
        product.array().to_f64_vec().unwrap()
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest, value| value.abs().max(largest))
}

#[test]
fn a_product_is_the_difference_of_forces_along_the_direction() {
    let system = System::new();
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let direction: Vec<f64> = (0..NUMBERS).map(|_| rng.random_range(-1.0..1.0)).collect();
    let product = system.product(&direction);
    let step = 1e-5;
    let moved = |by: f64| -> Vec<f64> {
        let positions: Vec<f64> = system.positions.iter().zip(&direction).map(|(x, v)| x + by * v).collect();
        system.forces(&positions)
    };
    let (ahead, behind) = (moved(step), moved(-step));
    let size = largest(&product);
    assert!(size > 1e-3, "{size:e}");
    for (k, product) in product.iter().enumerate() {
        let difference = (behind[k] - ahead[k]) / (2.0 * step);
        assert!((product - difference).abs() < 1e-6 * size, "{k}: {product:e} {difference:e}");
    }
}

#[test]
fn shifts_cost_nothing_and_turns_turn_the_forces() {
    let system = System::new();
    for axis in 0..3 {
        let shift: Vec<f64> = (0..NUMBERS).map(|k| f64::from(u8::from(k / PARTICLES == axis))).collect();
        assert!(largest(&system.product(&shift)) < 1e-10, "translation along {axis}");
    }
    // Turned about z with unit rate, the gradient turns as well: H·(ω × x) = ω × g.
    let turned = |values: &[f64]| -> Vec<f64> {
        let (x, rest) = values.split_at(PARTICLES);
        let y = &rest[..PARTICLES];
        [y.iter().map(|y| -y).collect(), x.to_vec(), vec![0.0; PARTICLES]].concat()
    };
    let slope: Vec<f64> = system.forces(&system.positions).iter().map(|force| -force).collect();
    let (product, expected) = (system.product(&turned(&system.positions)), turned(&slope));
    let size = largest(&expected);
    assert!(size > 1e-3);
    assert!(
        product.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9 * size),
        "{product:?} {expected:?}"
    );
}

#[test]
fn the_hessian_is_symmetric_and_made_of_products() {
    let system = System::new();
    let batch = system.batch(&system.positions);
    let whole = hessian(&batch.positions, |x| Ok(system.model.energy(x, &batch)?.sum_all()?)).unwrap();
    let direction: Vec<f64> = (0..NUMBERS).map(|k| (k as f64).sin()).collect();
    let product = system.product(&direction);
    for row in 0..NUMBERS {
        let sum: f64 = (0..NUMBERS).map(|column| whole[row * NUMBERS + column] * direction[column]).sum();
        assert!((sum - product[row]).abs() < 1e-9 * largest(&product));
        assert!((0..NUMBERS).all(|column| whole[row * NUMBERS + column] == whole[column * NUMBERS + row]));
    }
}

#[test]
fn what_has_no_curvature_says_so() {
    let at = Tensor::from_slice(&[1.0, 2.0], [2], &Device::Cpu).unwrap();
    let direction = Tensor::from_slice(&[1.0, 1.0], [2], &Device::Cpu).unwrap();
    let linear = hessian_vector_product(&at, &direction, |x| Ok(x.sum_all()?)).unwrap();
    assert_eq!(linear.to_vec::<f64>().unwrap(), [0.0, 0.0]);
    let constant = |_: &Tensor| Ok(Tensor::from_slice(&[1.0], [], &Device::Cpu)?);
    assert!(hessian_vector_product(&at, &direction, constant).is_err());
    let other = Tensor::from_slice(&[1.0], [1], &Device::Cpu).unwrap();
    let message = hessian_vector_product(&at, &other, |x| Ok(x.sum_all()?)).unwrap_err().to_string();
    assert!(message.contains("[2]"), "{message}");
}
