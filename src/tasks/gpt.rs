//! Byte-level language modelling.

use gradewise_nn::symmetry::relative_distance;
use gradewise_runner::prelude::*;
use gradewise_zoo::{
    data::text::{BYTES, SAMPLE, TextBatch, TextData},
    models::{Gpt, GptConfig},
};
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// Batch size of evaluations, in windows.
const WINDOWS: usize = 16;

/// A generative transformer.
pub struct GptTask;

gradewise_nn::choices! {
    /// A text that comes with the program.
    pub enum Included {
        /// About geometric algebra
        Sample = "sample",
    }
}

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Text {
    /// `sample`, the text that comes with the program, or a file.
    pub text: Source<Included>,
    /// Bytes of a window; at most model.block.
    pub window: usize,
    /// Samples of each split.
    #[serde(flatten)]
    pub splits: Splits,
}

impl DataSection for Text {
    fn validate(&self) -> Result<(), ConfigError> {
        at_least_one(&[("data.window", self.window)])?;
        self.splits.validate()?;
        self.text.validate("data.text")
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

impl Task for GptTask {
    const NAME: &'static str = "gpt";
    const ABOUT: &'static str = "Text, byte after byte: a generative transformer";
    const DETAILS: &'static str = "Bytes are the tokens, so any text will do. Leaves a run folder; `gradewise sample` writes text with its \
         checkpoint.";
    const EXAMPLES: &'static str = "\
gradewise train gpt                                    a few minutes on two cores
gradewise train gpt --text book.txt
gradewise train gpt --text book.txt --preset small --device cuda --dtype bf16
gradewise train gpt model.dropout=0.1 train.capture=false    a captured step cannot draw new masks
gradewise sample --checkpoint runs/gpt-1/checkpoint.safetensors";
    const TITLE: &'static str = "generative transformer on bytes";
    const LOSS: &'static str = "cross-entropy (nats per byte)";
    const DECIDES: &'static str = "loss";
    const GROUP: &'static str = "changes of what comes later";
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "small",
            about: "10.7 million parameters, windows of 256, for a GPU",
            settings: &[&[
                "data.window=256",
                "model.block=256",
                "model.width=384",
                "model.heads=6",
                "model.layers=6",
                "train.batch_size=64",
                "train.steps=5000",
            ]],
        },
        Preset {
            name: "medium",
            about: "85 million parameters, windows of 1024, for a GPU and a large text",
            settings: &[&[
                "data.window=1024",
                "model.block=1024",
                "model.width=768",
                "model.heads=12",
                "model.layers=12",
                "train.batch_size=16",
                "train.lr=6e-4",
                "train.steps=20000",
            ]],
        },
    ];
    const OPTIONS: &'static [TrainOption] = &[TrainOption {
        name: "text",
        value: "FILE",
        setting: "data.text",
        help: "The text [default: one about geometric algebra that comes with the program]",
    }];
    const CHANGEABLE: &'static [&'static str] = &["dropout", "recompute"];

    type DataConfig = Text;
    type ModelConfig = GptConfig;
    type Data = TextData;
    type Model = Gpt;

    fn defaults() -> TaskConfig<Self> {
        let model = GptConfig::default();
        let splits = Splits { train: 1 << 20, valid: 256, test: 256 };
        let data = Text { text: Source::Named(Included::Sample), window: model.block, splits };
        let train = Train {
            trainer: TrainerConfig {
                steps: 1500,
                optimizer: OptimizerKind::AdamW,
                lr: 1e-3,
                weight_decay: 0.1,
                final_lr: 1e-4,
                clip_norm: Some(1.0),
                ..TrainerConfig::default()
            },
            batch_size: 16,
            eval_every: 100,
            checkpoint_every: 500,
            ..Train::default()
        };
        Config { data, model, train, runtime: Runtime::default() }
    }

    fn check_model(config: &GptConfig) -> Result<(), ConfigError> {
        at_least_one(&[
            ("model.block", config.block),
            ("model.width", config.width),
            ("model.heads", config.heads),
            ("model.layers", config.layers),
        ])?;
        if !config.width.is_multiple_of(config.heads) {
            return refuse(
                "model.heads",
                config.heads,
                &format!("a divisor of model.width = {}", config.width),
            );
        }
        if !(0.0..1.0).contains(&config.dropout) {
            return refuse("model.dropout", config.dropout, "at least 0 and less than 1");
        }
        Ok(())
    }

    fn load(config: &Text, split: Split) -> Result<TextData> {
        let windows = config.splits.of(split);
        Ok(match &config.text {
            Source::Named(Included::Sample) => {
                TextData::new(SAMPLE.as_bytes(), split, config.window, windows)
            }
            Source::Path(file) => TextData::read(file, split, config.window, windows),
        }?)
    }

    fn init(config: &GptConfig, placement: &Placement, rng: &mut ChaCha8Rng) -> gradewise_nn::Result<Gpt> {
        Gpt::init(config, placement, rng)
    }

    fn recomputing(config: &GptConfig) -> Option<GptConfig> {
        (!config.recompute).then_some(GptConfig { recompute: true, ..*config })
    }

    fn fits(config: &GptConfig, weights: &TensorFile) -> bool {
        let positions = weights.get("positions").map(|tensor| tensor.shape().to_vec());
        width(weights, "tokens.weight") == Some(config.width)
            && positions == Some(vec![config.block, config.width])
            && has(weights, &format!("blocks.{}.", config.layers - 1))
    }

    fn loss(model: &Gpt, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor> {
        model.loss(batch)
    }

    fn measure(models: &[&Gpt], data: &TextData, placement: &Placement) -> gradewise_nn::Result<Measures> {
        let (mut total, mut rows) = (0.0, 0);
        for_each_batch(data, WINDOWS, placement, |batch| {
            total += Gpt::mean_loss(models, batch)?.item()? * batch.rows as f64;
            rows += batch.rows;
            Ok(())
        })?;
        let loss = total / rows as f64;
        Ok(Measures::new("loss", "loss", loss).and("bits", "bits per byte", loss / std::f64::consts::LN_2))
    }

    /// Here the symmetry is causality: later bytes do not affect earlier predictions.
    fn asymmetry(
        model: &Gpt,
        data: &TextData,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64> {
        let whole: Vec<u8> = data.window(0)?.to_vec();
        let kept = data.block() / 2;
        let mut changed = whole.clone();
        for byte in &mut changed[kept..] {
            *byte = rng.random_range(0..BYTES as u32) as u8;
        }
        let logits = |window: &[u8]| -> gradewise_nn::Result<Vec<f64>> {
            let batch = TextBatch::new(std::iter::once(window), &placement.device)?;
            let logits = gradewise_autograd::no_grad(|| model.forward(&batch.tokens, 1))?;
            Ok(logits.array().slice(1, 0..kept)?.to_f64_vec()?)
        };
        Ok(relative_distance(&logits(&changed)?, &logits(&whole)?))
    }
}
