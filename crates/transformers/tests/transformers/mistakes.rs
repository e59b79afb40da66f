//! What does not fit is refused by name.

use gradewise_autograd::Tensor;
use gradewise_core::{DType, Signature};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{Error, Placement, Result};
use gradewise_transformers::{
    Channels, Nonlinearity, Space, Streams, TokenBatch,
    gatr::{self, GATr, GATrConfig, JoinReference},
    lgatr::{self, ConditionalLGATrConfig, LGATr, LGATrConfig},
    slim::{LGATrSlim, LGATrSlimConfig, VectorChannels, VectorStreams},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

pub fn random(shape: &[usize], rng: &mut ChaCha8Rng) -> Tensor {
    Tensor::new(Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap())
}

pub fn streams(blades: usize, tokens: usize, channels: Channels, rng: &mut ChaCha8Rng) -> Streams {
    let multivectors = random(&[blades, tokens, channels.multivectors], rng);
    Streams::new(multivectors, random(&[tokens, channels.scalars], rng)).unwrap()
}

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

#[track_caller]
fn refused<T>(result: Result<T>, parts: &[&str]) {
    match result {
        Err(error) if matches!(error.cause(), Error::Argument { .. }) => {
            let message = error.to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        Err(error) => panic!("another kind of error: {error}"),
        Ok(_) => panic!("accepted, and not {parts:?}"),
    }
}

const SMALL: Channels = Channels::new(2, 4);

#[test]
fn settings_that_make_no_network_are_refused() {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let plain = LGATrConfig::new(1, SMALL, SMALL, SMALL);
    let lgatr = |config: LGATrConfig, rng: &mut ChaCha8Rng| LGATr::init(&config, place(), rng);
    // Products draw a bias around 1, which maps from scalars alone have.
    refused(lgatr(LGATrConfig { hidden_s_channels: 0, ..plain.clone() }, rng), &["scalars", "bias"]);
    let heads = lgatr::AttentionConfig { num_heads: 0, ..plain.attention };
    refused(lgatr(LGATrConfig { attention: heads, ..plain.clone() }, rng), &["num_heads", "at least 1"]);
    let no_layers = lgatr::MlpConfig { num_layers_mlp: 0, ..plain.mlp };
    refused(lgatr(LGATrConfig { mlp: no_layers, ..plain.clone() }, rng), &["num_layers_mlp"]);
    let reinserted = LGATrConfig { reinsert_mv_channels: vec![0, 2], ..plain.clone() };
    refused(lgatr(reinserted, rng), &["reinsert_mv_channels", "below 2"]);
    refused(lgatr(LGATrConfig { dropout_prob: Some(1.0), ..plain.clone() }, rng), &["probability"]);
    refused(lgatr(LGATrConfig { in_mv_channels: 0, ..plain }, rng), &["inputs.multivectors"]);

    let plain = GATrConfig::new(1, SMALL, SMALL, SMALL);
    let gatr = |config: GATrConfig, rng: &mut ChaCha8Rng| GATr::init(&config, place(), rng);
    refused(gatr(GATrConfig { hidden_s_channels: 0, ..plain.clone() }, rng), &["hidden_s_channels"]);
    let gate = gatr::MlpConfig { activation: Nonlinearity::Silu };
    refused(
        gatr(GATrConfig { mlp: gate, ..plain.clone() }, rng),
        &["activation", "silu", "relu, gelu or sigmoid"],
    );
    let epsilon = gatr::AttentionConfig { normalizer_eps: 0.0, ..plain.attention };
    refused(gatr(GATrConfig { attention: epsilon, ..plain }, rng), &["normalizer_eps"]);

    let channels = [VectorChannels::new(2, 1), VectorChannels::new(2, 4), VectorChannels::new(0, 1)];
    let plain = LGATrSlimConfig::new(1, channels, 2);
    let slim = |config: LGATrSlimConfig, rng: &mut ChaCha8Rng| LGATrSlim::init(&config, place(), rng);
    refused(
        slim(LGATrSlimConfig { num_layers_mlp: 1, ..plain.clone() }, rng),
        &["num_layers_mlp", "at least 2"],
    );
    refused(slim(LGATrSlimConfig { in_s_channels: 0, ..plain }, rng), &["in_s_channels"]);
    refused(Space::new(Signature::new(1, 0, 2)), &["null"]);
    refused(Space::new(Signature::new(6, 0, 0)), &["6 generators"]);
    refused(Space::oriented(Signature::PGA3), &["null"]);
}

#[test]
fn features_that_do_not_fit_are_refused() {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let model = LGATr::init(&LGATrConfig::new(1, SMALL, SMALL, SMALL), place(), rng).unwrap();
    let sets = TokenBatch::new(2, 3);
    refused(
        model.forward(&streams(8, 6, SMALL, rng), &sets),
        &["multivectors", "[8, 6, 2]", "[16, tokens, channels]"],
    );
    let bare = Channels::new(2, 0);
    refused(model.forward(&streams(16, 6, bare, rng), &sets), &["0 scalars", "4 scalars"]);
    let wide = Channels::new(3, 4);
    refused(model.forward(&streams(16, 6, wide, rng), &sets), &["3 multivectors", "2 multivectors"]);
    refused(model.forward(&streams(16, 8, SMALL, rng), &sets), &["8 tokens", "2 sets of 3"]);
    refused(Streams::new(random(&[16, 6, 2], rng), random(&[5, 2], rng)), &["[5, 2]"]);
    assert!(TokenBatch::padded(&[7], 6, place()).is_err());
    refused(TokenBatch::weighted(&random(&[6], rng)), &["[batch, tokens]"]);

    let model = GATr::init(&GATrConfig::new(1, SMALL, SMALL, SMALL), place(), rng).unwrap();
    let weights = random(&[3], rng);
    let result = model.forward(&streams(16, 6, SMALL, rng), &sets, JoinReference::Weights(&weights));
    refused(result, &["reference", "[3]", "[6]"]);
    refused(VectorStreams::new(random(&[4, 6, 2], rng), random(&[6, 0], rng)), &["one scalar or more"]);
    refused(VectorStreams::new(random(&[3, 6, 2], rng), random(&[6, 1], rng)), &["[4, tokens, channels]"]);
}

/// Settings are those of the published constructors, and others are named.
#[test]
fn unknown_settings_are_named() {
    let text = r#"{"num_blocks": 1, "in_mv_channels": 1, "out_mv_channels": 1, "hidden_mv_channels": 4, "attention": {"heads": 2}}"#;
    let message = serde_json::from_str::<LGATrConfig>(text).unwrap_err().to_string();
    assert!(message.contains("`heads`") && message.contains("num_heads"), "{message}");
    let config: LGATrConfig = serde_json::from_str(&text.replace("heads", "num_heads")).unwrap();
    assert_eq!((config.attention.num_heads, config.mlp.mlp_ratio), (2, 4));
    let written = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<LGATrConfig>(written).unwrap(), config);
    let none = serde_json::from_str::<ConditionalLGATrConfig>("{}").unwrap_err().to_string();
    assert!(none.contains("num_blocks"), "{none}");
}
