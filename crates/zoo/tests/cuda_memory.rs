//! Memory on a GPU: what is measured of a training step there. One test, for the counters of a device are one for the process.

use gradewise_autograd::{footprint, observe::Pass};
use gradewise_kernels::{
    CudaDevice, DType, Device,
    memory::{LeakWatcher, Monitor, census},
};
use gradewise_nn::{
    Module, Placement,
    data::Split,
    optim::{Method, Schedule},
    train::{CapturedStep, Samples, Trainer, TrainerConfig},
};
use gradewise_zoo::{
    data::text::TextData,
    models::{Gpt, GptConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const LINE: &str = "pack my box with five dozen liquor jugs. ";

fn a_steps_memory_is_known_by_operation_by_name_and_over_time(cuda: &CudaDevice) {
    let device = Device::Cuda(cuda.clone());
    let placement = Placement::new(&device, DType::F32);
    let data = TextData::new(LINE.repeat(400).into_bytes(), Split::Train, 64, 100).unwrap();
    let batch = data.batch(&(0..32).collect::<Vec<_>>(), &placement).unwrap();
    let model = |recompute: bool| {
        let config = GptConfig {
            block: 64,
            width: 128,
            heads: 4,
            layers: 6,
            dropout: 0.0,
            attention_dropout: 0.0,
            recompute,
        };
        Gpt::init(&config, &placement, &mut ChaCha8Rng::seed_from_u64(3)).unwrap()
    };

    // Blocks that are computed again: the same bits, in less memory.
    let gradients = |recompute: bool| {
        let model = model(recompute);
        let monitor = Monitor::start(&device).unwrap();
        let found = model.loss(&batch).unwrap().backward().unwrap();
        let peak = monitor.delta().unwrap().peak;
        let values = model
            .named_parameters()
            .into_iter()
            .map(|(_, parameter)| found.get(&parameter.tensor()).unwrap().array().to_f64_vec().unwrap());
        (values.collect::<Vec<_>>(), peak)
    };
    let ((kept, more), (again, less)) = (gradients(false), gradients(true));
    assert_eq!(kept, again);
    assert!((less as f64) < 0.6 * more as f64, "{less} of {more}");

    // By operation: the highest peak is that of the whole, and kernels have their own names.
    let plain = model(false);
    let pass = || -> gradewise_nn::Result<_> { Ok(plain.loss(&batch)?.backward()?) };
    let (result, found) = footprint(&device, pass).unwrap();
    drop(result.unwrap());
    assert_eq!(found.operations[0].peak, found.total.peak);
    assert!(
        found.operations.iter().any(|row| row.operation == "attention" && row.pass == Pass::Backward),
        "{found}"
    );
    drop(plain);

    // Over captured steps nothing grows; the parameters are known by name.
    census::start(census::Detail::Operations);
    let schedule = Schedule::Constant { lr: 1e-3, warmup: 0 };
    let config = TrainerConfig::new(Method::adamw(0.1), schedule);
    let mut trainer = Trainer::new(model(true), config).unwrap();
    let mut steps = CapturedStep::new(cuda, true);
    let host = Placement::new(&Device::Cpu, DType::F32);
    let indices: Vec<usize> = (0..32).collect();
    let mut batches = std::iter::repeat_with(|| data.batch(&indices, &host));
    let mut watcher = LeakWatcher::new(&device);
    for step in 0..60 {
        steps.step(&mut trainer, &mut batches, |model, batch| model.loss(batch)).unwrap();
        if step > 3 {
            assert_eq!(watcher.see(step).unwrap(), None);
        }
    }
    census::stop();
    trainer.name_arrays();
    let live = census::live();
    assert!(
        live.iter().any(|entry| entry.name.as_deref() == Some("tokens.weight") && entry.device == "cuda:0")
    );
    assert!(live.iter().any(|entry| entry.name.as_deref() == Some("tokens.weight: second_moment")));

    // A limit is an end like any other.
    let before = device.memory().unwrap().allocated;
    device.limit_memory(before + (1 << 20));
    let error = gradewise_kernels::Array::zeros([1 << 20], DType::F32, &device).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    device.limit_memory(0);
    gradewise_kernels::Array::zeros([1 << 20], DType::F32, &device).unwrap();
}

gradewise_testing::main!(a_steps_memory_is_known_by_operation_by_name_and_over_time,);
