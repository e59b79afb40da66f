//! The generative transformer: it is causal, it learns a text by heart, and on a GPU it takes the same steps.

use gradewise_autograd::{Tensor, no_grad, training};
use gradewise_kernels::{CudaDevice, DType, Device, Index};
use gradewise_nn::{
    Module, Placement, Result,
    data::{Split, loader::BatchOrder},
    optim::{Method, Schedule},
    train::{CapturedStep, Trainer, TrainerConfig, batches},
};
use gradewise_zoo::{
    data::text::{TextBatch, TextData},
    models::{Gpt, GptConfig, Sampling},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const SMALL: GptConfig = GptConfig {
    block: 16,
    width: 32,
    heads: 2,
    layers: 2,
    dropout: 0.0,
    attention_dropout: 0.0,
    recompute: false,
};
const LINE: &str = "pack my box with five dozen liquor jugs. ";

fn model(config: &GptConfig, placement: &Placement) -> Gpt {
    Gpt::init(config, placement, &mut ChaCha8Rng::seed_from_u64(3)).unwrap()
}

fn trainer(config: &GptConfig, placement: &Placement) -> Trainer<Gpt> {
    let schedule = Schedule::Cosine { lr: 3e-3, final_lr: 3e-4, warmup: 10, decay: 100, total: 200 };
    let config_of_trainer =
        TrainerConfig { clip_norm: Some(1.0), ..TrainerConfig::new(Method::adamw(0.01), schedule) };
    Trainer::new(model(config, placement), config_of_trainer).unwrap()
}

fn source(placement: &Placement) -> impl Iterator<Item = Result<TextBatch>> + use<> {
    let data = Arc::new(TextData::new(LINE.repeat(80).into_bytes(), Split::Train, 16, 1000).unwrap());
    let order = BatchOrder::sequential(1000, 8).unwrap().shuffled(5);
    batches(data, &order, 0, placement).unwrap()
}

fn loss(model: &Gpt, batch: &TextBatch) -> Result<Tensor> {
    model.loss(batch)
}

fn the_default_has_its_number_of_parameters() {
    let model = model(&GptConfig::default(), &Placement::from(&Device::Cpu));
    assert_eq!(model.parameter_count(), 834_304);
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    for name in
        ["tokens.weight", "positions", "blocks.3.attention.qkv.weight", "blocks.0.up.bias", "norm.weight"]
    {
        assert!(names.iter().any(|known| known == name), "{name} is not among {names:?}");
    }
}

fn no_prediction_depends_on_what_comes_later() {
    let placement = Placement::new(&Device::Cpu, DType::F64);
    let model = model(&SMALL, &placement);
    let text: Vec<usize> = LINE.bytes().take(16).map(usize::from).collect();
    let logits = |text: &[usize]| {
        let tokens = Index::new(text, 256, &Device::Cpu).unwrap();
        let logits = no_grad(|| model.forward(&tokens, 1)).unwrap();
        logits.array().slice(1, 0..9.min(text.len())).unwrap().to_f64_vec().unwrap()
    };
    let whole = logits(&text);
    assert!(
        whole.iter().zip(logits(&text[..9])).all(|(a, b)| (a - b).abs() < 1e-12),
        "or on the number of tokens"
    );
    let mut other = text.clone();
    other[8] = 0;
    assert_ne!(logits(&other)[8 * 256..], whole[8 * 256..], "but on its own token it does");
    assert_eq!(logits(&other)[..8 * 256], whole[..8 * 256]);
    assert!(
        model.forward(&Index::new(&[0; 17], 256, &Device::Cpu).unwrap(), 1).is_err(),
        "longer than a block"
    );
}

fn it_learns_a_line_by_heart() {
    let placement = Placement::from(&Device::Cpu);
    let mut trainer = trainer(&SMALL, &placement);
    let mut source = source(&placement);
    let losses: Vec<f64> = (0..200).map(|_| trainer.step(&mut source, loss).unwrap().loss).collect();
    assert!((losses[0] - 256f64.ln()).abs() < 0.5, "nothing is known at first: {}", losses[0]);
    assert!(losses[199] < 0.6, "{}", losses[199]);
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let likeliest = Sampling { temperature: 0.0, top_k: 0 };
    let mut shown = Vec::new();
    let text = trainer
        .model()
        .generate(b"pack my box with", 30, &likeliest, &mut rng, |byte| shown.push(byte))
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&text), " five dozen liquor jugs. pack ");
    assert_eq!(text, shown);
    // Samples repeat with their seed.
    let sample = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let sampling = Sampling { temperature: 1.5, top_k: 0 };
        trainer.model().generate(b"box", 40, &sampling, &mut rng, |_| ()).unwrap()
    };
    assert_eq!(sample(1), sample(1));
    assert_ne!(sample(1), sample(2));
    assert!(trainer.model().generate(b"", 1, &likeliest, &mut rng, |_| ()).is_err());
}

fn dropout_is_for_training_alone() {
    let placement = Placement::from(&Device::Cpu);
    let model = model(&GptConfig { dropout: 0.5, attention_dropout: 0.5, ..SMALL }, &placement);
    let batch = source(&placement).next().unwrap().unwrap();
    let loss = || model.loss(&batch).unwrap().item().unwrap();
    assert_eq!(loss(), loss());
    let drawn = |pass| training(pass, loss);
    assert_ne!(drawn(0), loss());
    assert_ne!(drawn(0), drawn(1));
    assert_eq!(drawn(1), drawn(1), "masks follow from the number of the pass");
    assert_eq!(training(0, || no_grad(loss)), loss());
}

fn a_gpu_takes_the_same_steps_captured_or_not(device: &CudaDevice) {
    let host = Placement::new(&Device::Cpu, DType::F64);
    for dtype in [DType::F64, DType::F32, DType::BF16] {
        let placement = Placement::new(&Device::Cuda(device.clone()), dtype);
        let run = |capture: bool| {
            let mut trainer = trainer(&SMALL, &placement);
            let mut stepper = CapturedStep::new(device, capture);
            let mut source = source(&Placement::new(&Device::Cpu, dtype));
            let losses: Vec<f64> =
                (0..30).map(|_| stepper.step(&mut trainer, &mut source, loss).unwrap().loss).collect();
            assert_eq!(stepper.node_count().unwrap().is_some(), capture);
            losses
        };
        let (eager, captured) = (run(false), run(true));
        assert_eq!(eager, captured, "{dtype}: the same bits, with new tokens in every step");
        let mut trainer = trainer(&SMALL, &host);
        let mut source = source(&host);
        let tolerance = match dtype {
            DType::F64 => 1e-9,
            DType::F32 => 1e-3,
            _ => 5e-2,
        };
        for (step, there) in eager.into_iter().enumerate() {
            let here = trainer.step(&mut source, loss).unwrap().loss;
            assert!((here - there).abs() <= tolerance * here, "{dtype}, step {step}: {here} and {there}");
        }
    }
}

gradewise_testing::main!(
    the_default_has_its_number_of_parameters,
    no_prediction_depends_on_what_comes_later,
    it_learns_a_line_by_heart,
    dropout_is_for_training_alone,
    a_gpu_takes_the_same_steps_captured_or_not,
);
