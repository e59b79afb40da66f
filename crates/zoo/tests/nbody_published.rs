//! The published n-body data set, drawn again: the draws bit for bit, the motion to rounding.

use gradewise_nn::data::Split;
use gradewise_zoo::data::{
    nbody::{INPUT_FRAME, NBodyData, NEAR_COLLISION, PublishedDraws, Simulation, TARGET_FRAME, Trajectories},
    npy::NpyArray,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// Draws, frames and hashes made with NumPy by the publication's generator.
fn folder() -> PathBuf {
    PathBuf::from("tests/data/nbody_published")
}

fn info(split: Split) -> Value {
    let text = std::fs::read_to_string(folder().join("info.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[split.name()].clone()
}

fn array(split: Split, name: &str) -> NpyArray {
    NpyArray::read(folder().join(format!("{split}_{name}.npy"))).unwrap()
}

fn indices(info: &Value, key: &str) -> Vec<usize> {
    info[key].as_array().unwrap().iter().map(|index| index.as_u64().unwrap() as usize).collect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Which libraries have glibc's logarithm, by which NumPy drew.
const SAME_LOGARITHM: bool = cfg!(all(target_os = "linux", target_env = "gnu"));

#[test]
fn every_draw_has_the_published_bits() {
    for split in Split::ALL {
        let info = info(split);
        let count = PublishedDraws::available(split);
        assert_eq!(info["count"], count);
        let draws = PublishedDraws::new(split, count).unwrap();
        let parts = [
            ("charges", &draws.charges, 5),
            ("first_positions", &draws.loc, 15),
            ("first_velocities", &draws.vel, 15),
        ];
        for (name, values, width) in parts {
            assert_eq!(values.len(), count * width);
            let published = array(split, name);
            for (row, index) in published.values.chunks(width).zip(indices(&info, "indices")) {
                let ours = &values[index * width..][..width];
                let close = row.iter().zip(ours).all(|(a, b)| (a - b).abs() <= 1e-15 * a.abs());
                assert!(close, "{name} of {split} {index}: {ours:?}, published {row:?}");
                assert!(!SAME_LOGARITHM || bits(row) == bits(ours), "{name} of {split} {index}");
            }
            if SAME_LOGARITHM {
                let mut hash = Sha256::new();
                values.iter().for_each(|value| hash.update(value.to_le_bytes()));
                let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
                let key = format!("sha256 of {}", name.replace('_', " "));
                assert_eq!(info[&key], hash, "{name} of {split}");
            }
        }
        assert!(PublishedDraws::new(split, count + 1).unwrap_err().to_string().contains("at most"));
    }
}

#[test]
fn frames_have_the_published_values() {
    let (mut compared, mut worst) = (0, 0f64);
    for split in Split::ALL {
        let info = info(split);
        let published = array(split, "frames");
        assert_eq!(published.shape[1..], [2, 2, 3, 5], "position and velocity, frames 30 and 40");
        let indices = indices(&info, "indices of frames");
        let count = indices.iter().max().unwrap() + 1;
        let ours = Trajectories::published(split, count, TARGET_FRAME + 1).unwrap();
        let draws = PublishedDraws::new(split, count).unwrap();
        let mut simulation = Simulation::new(5, &draws.loc, &draws.vel, &draws.charges).unwrap();
        simulation.advance(TARGET_FRAME + 1);
        let closest = simulation.closest_approach();
        for (system, index) in published.values.chunks(60).zip(indices) {
            // A collision magnifies rounding by orders of magnitude.
            if closest[index] < NEAR_COLLISION {
                continue;
            }
            let frames = [INPUT_FRAME, TARGET_FRAME];
            let states = frames.map(|frame| ours.loc_at(frame).unwrap()).into_iter();
            let states = states.chain(frames.map(|frame| ours.vel_at(frame).unwrap()));
            for (published, ours) in system.chunks(15).zip(states) {
                let ours = &ours[index * 15..][..15];
                let square =
                    |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
                let error = square(&mut published.iter().zip(ours).map(|(a, b)| a - b));
                worst = worst.max(error / square(&mut published.iter().copied()));
                compared += 1;
            }
        }
    }
    assert!(compared >= 20, "only {compared} states are without a near-collision");
    assert!(worst < 1e-9, "{worst:e}");
}

#[test]
fn samples_are_the_first_of_the_set_and_have_its_size() {
    for split in [Split::Valid, Split::Test] {
        let data = NBodyData::published(split, PublishedDraws::available(split)).unwrap();
        let mean = data.target().iter().map(|x| x * x).sum::<f64>() / data.target().len() as f64;
        let published = info(split)["mean of frame 40 positions squared"].as_f64().unwrap();
        // Near-collisions send particles elsewhere than they sent the generator's.
        assert!((mean / published - 1.0).abs() < 2e-3, "{mean} {published}");
        // A second time from the cache, if there is one.
        assert!(NBodyData::published(split, data.len()).unwrap() == data);
        let few = NBodyData::published(split, 7).unwrap();
        assert!(few == data.select(&[0, 1, 2, 3, 4, 5, 6]).unwrap());
    }
}
