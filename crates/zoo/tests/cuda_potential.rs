//! The potential on a GPU: energies, forces and stresses of the host, captured training of the bits of eager training, and motion whose
//! steps are one graph.

mod motion_of_atoms;

use gradewise_autograd::Tensor;
use gradewise_core::DType;
use gradewise_kernels::{CudaDevice, Device};
use gradewise_nn::{
    Module, Placement, Result,
    data::Samples,
    optim::{Method, Schedule},
    symmetry::relative_distance,
    train::{Capture, CapturedStep, Trainer, TrainerConfig},
};
use gradewise_zoo::{
    data::atoms::{AtomBatch, AtomOrigin, AtomSet, AtomSource, Labels, Units},
    models::{CoreRepulsion, Potential, PotentialConfig},
    tracks::Rank,
};
use motion_of_atoms::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const DTYPES: [(DType, f64); 2] = [(DType::F64, 1e-10), (DType::F32, 5e-5)];

fn places(device: &CudaDevice, dtype: DType) -> [Placement; 2] {
    [Placement::new(&Device::Cpu, dtype), Placement::new(&Device::Cuda(device.clone()), dtype)]
}

fn numbers(labels: &[Labels]) -> Vec<f64> {
    labels.iter().flat_map(Labels::numbers).collect()
}

fn energies_forces_and_stresses_are_those_of_the_host(device: &CudaDevice) {
    let set = AtomSet::new(systems().to_vec(), &[], CUTOFF, false).unwrap();
    for (dtype, tolerance) in DTYPES {
        for (rank, repulsion) in [
            (Rank::One, CoreRepulsion::None),
            (Rank::Two, CoreRepulsion::Zbl),
            (Rank::Three, CoreRepulsion::Zbl),
        ] {
            let [here, there] = places(device, dtype)
                .map(|place| numbers(&potential(rank, repulsion, &place, 3).predict(&set, &place).unwrap()));
            let distance = relative_distance(&there, &here);
            assert!(distance < tolerance, "{dtype}, {rank:?}: {distance:e}");
        }
    }
}

/// Frames of ethanol, of which some have fewer pairs than others.
fn ethanol(cutoff: f64) -> AtomSet {
    let source =
        AtomSource { origin: AtomOrigin::Ethanol, units: Units::EV_ANGSTROM, counts: [40, 10, 10], cutoff };
    AtomSet::load(&source, gradewise_nn::data::Split::Train).unwrap()
}

fn trainer(set: &AtomSet, place: &Placement) -> Trainer<Potential> {
    let config = PotentialConfig { hidden: 6, cutoff: set.cutoff(), ..PotentialConfig::default() };
    let model = Potential::init(&config, place, &mut ChaCha8Rng::seed_from_u64(5)).unwrap();
    model.calibrate(set).unwrap();
    let schedule = Schedule::Cosine { lr: 1e-3, final_lr: 1e-5, warmup: 5, decay: 50, total: 100 };
    let config = TrainerConfig {
        clip_norm: Some(10.0),
        ema: Some(0.9),
        ..TrainerConfig::new(Method::adam(0.0), schedule)
    };
    Trainer::new(model, config).unwrap()
}

/// Batches of `size` frames on the host, one after another.
fn batches(set: &AtomSet, size: usize, dtype: DType) -> impl Iterator<Item = Result<AtomBatch>> + '_ {
    let place = Placement::new(&Device::Cpu, dtype);
    (0usize..).map(move |at| {
        let indices: Vec<usize> = (0..size).map(|k| (at * size + k) % set.len()).collect();
        set.batch(&indices, &place)
    })
}

fn loss(model: &Potential, batch: &AtomBatch) -> Result<Tensor> {
    model.loss(batch)
}

/// All weights, bit by bit, and the losses.
fn train(device: &CudaDevice, set: &AtomSet, size: usize, capture: bool) -> (Vec<u64>, Vec<f64>) {
    let place = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    let mut trainer = trainer(set, &place);
    let mut stepper = CapturedStep::new(device, capture);
    let mut source = batches(set, size, DType::F32);
    let losses = (0..30).map(|_| stepper.step(&mut trainer, &mut source, loss).unwrap().loss).collect();
    assert_eq!(stepper.node_count().unwrap().is_some(), capture);
    let parameters = trainer.model().parameters();
    let values = parameters.into_iter().flat_map(|parameter| parameter.array().to_f64_vec().unwrap());
    (values.map(f64::to_bits).collect(), losses)
}

/// With a cutoff within the molecule, numbers of pairs change from batch to batch; batches of eight fall into equal parts now and then.
fn captured_training_has_the_bits_of_eager_training(device: &CudaDevice) {
    for (cutoff, size) in [(5.0, 5), (3.0, 5), (5.0, 8), (4.0, 8)] {
        let set = ethanol(cutoff);
        let (eager, captured) = (train(device, &set, size, false), train(device, &set, size, true));
        assert_eq!(eager, captured, "cutoff {cutoff}, batches of {size}");
    }
}

fn the_host_takes_the_same_steps(device: &CudaDevice) {
    let set = ethanol(4.0);
    let [here, there] = places(device, DType::F64);
    let (mut a, mut b) = (trainer(&set, &here), trainer(&set, &there));
    let mut stepper = CapturedStep::new(device, true);
    let (mut first, mut second) = (batches(&set, 5, DType::F64), batches(&set, 5, DType::F64));
    for step in 0..20 {
        let here = a.step(&mut first, loss).unwrap().loss;
        let there = stepper.step(&mut b, &mut second, loss).unwrap().loss;
        assert!((here - there).abs() <= 1e-8 * here, "step {step}: {here} and {there}");
    }
}

fn a_motion_is_that_of_the_host(device: &CudaDevice) {
    for (dtype, tolerance) in [(DType::F64, 1e-8), (DType::F32, 2e-3)] {
        let [here, there] = places(device, dtype);
        for frame in systems() {
            for thermostat in [NVE, LANGEVIN] {
                let model = potential(Rank::Two, CoreRepulsion::Zbl, &here, 3);
                let models = [potential(Rank::Two, CoreRepulsion::Zbl, &there, 3)];
                let motion = begin(&model, &frame, thermostat, &here);
                let mut on_gpu =
                    on_device(&models, &frame, motion.clone(), &there).capture(Capture::Required);
                let (state, labels, searches) = on_host(&model, &frame, motion, 60);
                for _ in 0..60 {
                    on_gpu.step().unwrap();
                }
                let far = distance(&state, on_gpu.simulation().unwrap().state());
                assert!(far < tolerance, "{dtype}, {thermostat:?}: {far:e}");
                assert!(on_gpu.node_count().unwrap().is_some() && searches > 2);
                let own = on_gpu.labels().unwrap().unwrap();
                for (a, b) in own.numbers().iter().zip(labels.numbers()) {
                    assert!((a - b).abs() < tolerance, "{dtype}: {a} {b}");
                }
            }
        }
    }
}

fn captured_steps_of_a_motion_have_the_bits_of_eager_ones_and_go_on_with_them(device: &CudaDevice) {
    let place = Placement::new(&Device::Cuda(device.clone()), DType::F32);
    for frame in systems() {
        for thermostat in [NVE, LANGEVIN] {
            let models = [3, 4].map(|seed| potential(Rank::Two, CoreRepulsion::None, &place, seed));
            let motion = begin(&models[0], &frame, thermostat, &place);
            let dynamics = motion.dynamics();
            let ends = [Capture::Off, Capture::Required].map(|capture| {
                let mut whole = on_device(&models, &frame, motion.clone(), &place).capture(capture);
                let mut taken = None;
                for step in 0..60 {
                    if step == 25 {
                        taken =
                            Some(taken_up_again(&whole, &models, &frame, dynamics, &place).capture(capture));
                    }
                    whole.step().unwrap();
                }
                let mut taken = taken.unwrap();
                while taken.steps() < 60 {
                    taken.step().unwrap();
                }
                let ends = [whole, taken].map(|motion| motion.simulation().unwrap().state().clone());
                assert_eq!(ends[0], ends[1], "{thermostat:?}");
                ends[0].clone()
            });
            assert_eq!(ends[0], ends[1], "{thermostat:?}");
        }
    }
}

fn a_captured_list_grows_where_atoms_come_together(device: &CudaDevice) {
    for (dtype, tolerance) in [(DType::F64, 1e-8), (DType::F32, 2e-3)] {
        let [here, there] = places(device, dtype);
        let [model, other] = [&here, &there].map(|place| potential(Rank::Two, CoreRepulsion::None, place, 3));
        let (frame, motion) = collapse(&model, &here);
        let models = [other];
        let mut captured = on_device(&models, &frame, motion.clone(), &there).capture(Capture::Required);
        let (state, _, searches) = on_host(&model, &frame, motion, 60);
        let room = captured.room();
        for _ in 0..60 {
            captured.step().unwrap();
        }
        assert!(captured.room() > room);
        assert!(dtype == DType::F32 || captured.searches() == searches, "{searches}");
        let far = distance(&state, captured.simulation().unwrap().state());
        assert!(far < tolerance, "{dtype}: {far:e}");
    }
}

gradewise_testing::main!(
    energies_forces_and_stresses_are_those_of_the_host,
    captured_training_has_the_bits_of_eager_training,
    the_host_takes_the_same_steps,
    a_motion_is_that_of_the_host,
    a_captured_list_grows_where_atoms_come_together,
    captured_steps_of_a_motion_have_the_bits_of_eager_ones_and_go_on_with_them,
);
