//! The published n-body data set: its dynamics are reproduced, its files load, and damage to them is noticed.

use gradewise_nn::{Error, data::Split};
use gradewise_zoo::data::{
    nbody::{NBodyData, NEAR_COLLISION, Simulation, Trajectories},
    npy,
};
use std::path::{Path, PathBuf};

fn sample() -> PathBuf {
    PathBuf::from("tests/data/nbody")
}

/// ‖a − b‖ / ‖b‖
fn relative(a: &[f64], b: &[f64]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    (difference / b.iter().map(|&b| square(b)).sum::<f64>()).sqrt()
}

#[test]
fn the_simulator_reproduces_every_published_frame_from_the_one_before() {
    let (mut compared, mut near, mut worst, mut worst_near) = (0, 0, 0f64, 0f64);
    for (split, systems) in [(Split::Train, 40), (Split::Valid, 20), (Split::Test, 40)] {
        let published = Trajectories::load(sample(), split, None).unwrap();
        assert_eq!((published.systems(), published.frames(), published.particles()), (systems, 49, 5));
        for frame in 0..48 {
            let (loc, vel) = (published.loc_at(frame).unwrap(), published.vel_at(frame).unwrap());
            let mut simulation = Simulation::new(5, &loc, &vel, published.charges()).unwrap();
            simulation.advance(1);
            let next = [published.loc_at(frame + 1).unwrap(), published.vel_at(frame + 1).unwrap()];
            let ours = [simulation.loc(), simulation.vel()];
            for (system, closest) in simulation.closest_approach().into_iter().enumerate() {
                let of = |values: &[f64]| values[system * 15..(system + 1) * 15].to_vec();
                let error =
                    relative(&of(&ours[0]), &of(&next[0])).max(relative(&of(&ours[1]), &of(&next[1])));
                assert!(!error.is_nan());
                compared += 1;
                if closest < NEAR_COLLISION {
                    near += 1;
                    worst_near = worst_near.max(error);
                } else {
                    worst = worst.max(error);
                }
            }
        }
    }
    println!("{compared} intervals; worst error {worst:e}; {near} near-collisions, worst {worst_near:e}");
    assert_eq!(compared, 4800);
    assert!(near < compared / 20, "{near} of {compared} intervals left out");
    assert!(worst < 1e-11, "{worst:e}");
    // Even these are followed within the contract's 1e-9: the clamp is reproduced too.
    assert!(worst_near < 1e-9, "{worst_near:e}");
}

#[test]
fn simulated_data_looks_like_published_data() {
    let published = Trajectories::load(sample(), Split::Train, None).unwrap();
    let simulated = Trajectories::simulate(5, 200, 41, 5, Split::Train).unwrap();
    let spread = |t: &Trajectories, frame| {
        let loc = t.loc_at(frame).unwrap();
        (loc.iter().map(|x| x * x).sum::<f64>() / loc.len() as f64).sqrt()
    };
    for frame in [0, 20, 40] {
        let (a, b) = (spread(&published, frame), spread(&simulated, frame));
        assert!((a / b - 1.0).abs() < 0.25, "root mean square position at frame {frame}: {a} and {b}");
    }
}

#[test]
fn samples_are_frames_30_and_40() {
    let published = Trajectories::load(sample(), Split::Valid, Some("_charged5_initvel1small")).unwrap();
    let data = NBodyData::from_trajectories(&published).unwrap();
    let mut simulation = Simulation::new(5, data.loc(), data.vel(), data.charges()).unwrap();
    simulation.advance(10);
    let closest = simulation.closest_approach();
    let loc = simulation.loc();
    let followed = (0..20).filter(|&s| closest[s] > NEAR_COLLISION);
    let mut count = 0;
    for s in followed {
        assert!(relative(&loc[s * 15..(s + 1) * 15], &data.target()[s * 15..(s + 1) * 15]) < 1e-9);
        count += 1;
    }
    assert!(count > 10);
}

/// The simulator takes samples that are run backwards to their starts, to the accuracy of its time step.
#[test]
fn reversed_samples_lead_back() {
    let published = Trajectories::load(sample(), Split::Valid, None).unwrap();
    let data = NBodyData::from_trajectories(&published).unwrap();
    let reversed = data.reversed().unwrap();
    let mut simulation = Simulation::new(5, reversed.loc(), reversed.vel(), reversed.charges()).unwrap();
    simulation.advance(10);
    let (closest, loc) = (simulation.closest_approach(), simulation.loc());
    let mut errors: Vec<f64> = (0..20)
        .filter(|&s| closest[s] > 2.0 * NEAR_COLLISION)
        .map(|s| relative(&loc[s * 15..(s + 1) * 15], &data.loc()[s * 15..(s + 1) * 15]))
        .collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 10 && errors[errors.len() / 2] < 2e-3, "{errors:?}");
    assert_eq!(reversed.reversed().unwrap().loc(), data.loc());
    assert_eq!(reversed.reversed().unwrap().vel(), data.vel());
    let positions_alone = NBodyData::new(
        5,
        data.loc().to_vec(),
        data.vel().to_vec(),
        data.charges().to_vec(),
        data.target().to_vec(),
    );
    assert!(positions_alone.unwrap().reversed().unwrap_err().to_string().contains("run it backwards"));
}

#[test]
fn what_is_saved_is_loaded_and_can_be_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Trajectories::simulate(3, 4, 2, 1, Split::Test).unwrap();
    ours.save(folder.path(), Split::Test, "_mine").unwrap();
    let loaded = Trajectories::load(folder.path(), Split::Test, None).unwrap();
    assert_eq!(loaded, ours);
    let shorter = loaded.take(2).unwrap();
    assert_eq!(shorter.loc_at(1).unwrap()[..], ours.loc_at(1).unwrap()[..18]);
    assert!(shorter.take(3).unwrap_err().to_string().contains("at most 2"));
    assert!(ours.loc_at(2).is_err());
}

#[test]
fn damaged_sets_are_refused_with_the_file_and_the_reason() {
    let refuse = |damage: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        Trajectories::simulate(3, 4, 2, 1, Split::Train)
            .unwrap()
            .save(folder.path(), Split::Train, "")
            .unwrap();
        damage(folder.path());
        Trajectories::load(folder.path(), Split::Train, None).unwrap_err()
    };
    let error = refuse(&|f| std::fs::remove_file(f.join("vel_train.npy")).unwrap());
    assert!(matches!(&error, Error::DataSet { path, .. } if path.ends_with("vel_train.npy")), "{error}");

    let error = refuse(&|f| npy::write(f.join("vel_train.npy"), &[4, 2, 3, 2], &[0.5; 48]).unwrap());
    assert!(error.to_string().contains("[4, 2, 3, 3]"), "{error}");

    let error = refuse(&|f| npy::write(f.join("edges_train.npy"), &[4, 3, 3], &[0.5; 36]).unwrap());
    assert!(error.to_string().contains("do not belong together"), "{error}");

    let error = refuse(&|f| {
        let mut loc = vec![0.25; 72];
        loc[40] = f64::NAN;
        npy::write(f.join("loc_train.npy"), &[4, 2, 3, 3], &loc).unwrap();
    });
    assert!(matches!(&error, Error::NotFinite { index, .. } if *index == [2, 0, 1, 1]), "{error}");

    let error = refuse(&|f| {
        let bytes = std::fs::read(f.join("loc_train.npy")).unwrap();
        std::fs::write(f.join("loc_train.npy"), &bytes[..bytes.len() - 9]).unwrap();
    });
    assert!(error.to_string().contains("truncated"), "{error}");

    let error = refuse(&|f| {
        std::fs::copy(f.join("loc_train.npy"), f.join("loc_train_other.npy")).unwrap();
    });
    assert!(error.to_string().contains("_other"), "{error}");

    let empty = tempfile::tempdir().unwrap();
    assert!(
        Trajectories::load(empty.path(), Split::Train, None).unwrap_err().to_string().contains("loc_train")
    );
    assert!(
        Trajectories::load(empty.path().join("x"), Split::Train, None)
            .unwrap_err()
            .to_string()
            .contains("folder")
    );
}
