use super::*;
use crate::data::npy;
use gradewise_kernels::Device;
use gradewise_nn::{Placement, data::Samples};
use proptest::prelude::*;
use std::fs;

const JETS: usize = 24;

fn fixture(name: &str) -> PathBuf {
    gradewise_testing::manifest_dir!().join("tests/data/jets").join(name)
}

/// Loads a file as the training set of a folder that contains only this file.
fn load(name: &str, particles: usize, jets: usize) -> Result<JetSets> {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixture(name), folder.path().join("train.h5")).unwrap();
    JetSets::load(folder.path(), Split::Train, particles, jets)
}

fn reason(result: Result<JetSets>) -> String {
    result.unwrap_err().to_string()
}

/// The jets that `scripts/make-jet-fixtures.py` writes; `particles` is at least 12.
fn written(particles: usize) -> JetSets {
    let mut momenta = vec![0.0; JETS * particles * 4];
    for (number, jet) in momenta.chunks_exact_mut(particles * 4).enumerate() {
        for (particle, row) in jet.chunks_exact_mut(4).enumerate().take(3 + number % 10) {
            let (i, jet) = (particle as f64, number as f64);
            let (px, py, pz) = (64.0 - 4.0 * i + jet, (particle % 3) as f64 - 1.0, i - jet / 2.0);
            let energy = (px * px + py * py + pz * pz + 0.02).sqrt() as f32;
            row.copy_from_slice(&[energy.into(), px, py, pz]);
        }
    }
    JetSets::new(particles, &momenta, (0..JETS).map(|jet| 7 * jet % 3 == 0).collect()).unwrap()
}

#[test]
fn tables_as_published_give_the_particles_of_largest_transverse_momentum() {
    for particles in [2, 7, 12, 230] {
        assert_eq!(load("published.h5", particles, usize::MAX).unwrap(), written(particles), "{particles}");
    }
    assert_eq!(load("published.h5", 5, 10).unwrap(), written(5).take(10));
    assert_eq!(load("columns.h5", 12, JETS).unwrap(), written(12), "columns of their own, deflated");
}

#[test]
fn arrays_give_the_same_jets_in_any_order_and_without_their_beams() {
    for name in ["arrays.h5", "contiguous.h5"] {
        for particles in [3, 12, 20] {
            assert_eq!(load(name, particles, usize::MAX).unwrap(), written(particles), "{name}");
        }
        assert_eq!(load(name, 4, 11).unwrap(), written(4).take(11), "{name}");
    }
}

#[test]
fn files_of_each_split_are_found_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let load = |split| JetSets::load(here, split, 4, 9);
    assert!(reason(load(Split::Valid)).contains("none of val.h5, valid.h5, jets_valid_momenta.npy"));
    for (name, split) in [("test.h5", Split::Test), ("val.h5", Split::Valid), ("train.h5", Split::Train)] {
        fs::copy(fixture("published.h5"), here.join(name)).unwrap();
        assert_eq!(load(split).unwrap(), written(4).take(9), "{name}");
    }
    fs::copy(fixture("arrays.h5"), here.join("valid.h5")).unwrap();
    assert!(reason(load(Split::Valid)).contains("several"));
    fs::remove_file(here.join("val.h5")).unwrap();
    assert_eq!(load(Split::Valid).unwrap(), written(4).take(9));
    assert!(reason(JetSets::load(&here.join("train.h5"), Split::Train, 4, 9)).contains("not a folder"));
}

#[test]
fn what_else_files_hold_is_named_with_the_remedy() {
    for (file, parts) in [
        ("bzip2.h5", ["bzip2", "ptrepack --complib=zlib"]),
        ("fixed.h5", ["fixed format", "format=\"table\""]),
        ("codecs.h5", ["`table/table`", "Pmu"]),
    ] {
        let message = reason(load(file, 4, 9));
        assert!(parts.iter().all(|part| message.contains(part)) && message.contains("train.h5"), "{message}");
    }
}

/// NumPy files of one split, of four particles a jet.
fn arrays(here: &Path, jets: &[[f64; 16]], labels: &[f64]) {
    npy::write(here.join("jets_train_momenta.npy"), &[jets.len(), 4, 4], &jets.concat()).unwrap();
    npy::write(here.join("jets_train_labels.npy"), &[labels.len()], labels).unwrap();
}

#[test]
fn jets_that_are_none_are_left_out_and_classes_checked() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let load = |jets| JetSets::load(here, Split::Train, 3, jets);
    let pair = [5.0, 3.0, 0.0, 4.0, 5.0, 0.0, 4.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let mut single = pair;
    single[4..].fill(0.0);
    arrays(here, &[pair, single, pair], &[0.0, 1.0, 1.0]);
    let jets = load(usize::MAX).unwrap();
    // The particle of larger transverse momentum comes first.
    assert_eq!(jets.momenta()[..8], [5.0, 0.0, 4.0, -3.0, 5.0, 3.0, 0.0, 4.0]);
    assert_eq!((jets.labels(), jets.momenta().len()), (&[false, true][..], 2 * 3 * 4));
    assert_eq!(load(2).unwrap().labels(), [false]);
    arrays(here, &[single], &[1.0]);
    assert!(reason(load(9)).contains("none of the 1 jets"));
    arrays(here, &[pair; 2], &[0.0, 2.0]);
    assert!(reason(load(9)).contains("jet 1 is of class 2"));
    let mut labels = [1.0; 65];
    labels[64] = 0.0;
    arrays(here, &[pair; 65], &labels);
    assert!(load(65).is_ok());
    assert!(reason(load(64)).contains("raise data.train"));
    let mut broken = pair;
    broken[6] = f64::NAN;
    arrays(here, &[pair, broken], &[0.0, 1.0]);
    assert!(matches!(load(9), Err(Error::NotFinite { index, .. }) if index == [1, 1, 2]));
}

/// Three jets of two particles, one row of which is this.
fn with_row(row: [f64; 4]) -> [[f64; 16]; 3] {
    let pair = [5.0, 3.0, 0.0, 4.0, 5.0, 0.0, 4.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let mut other = pair;
    other[4..8].copy_from_slice(&row);
    [pair, other, pair]
}

/// What a row of a file is, and what comes of it: a part of the error, or the jets that are left.
#[test]
fn rows_that_are_no_particles() {
    type Outcome = std::result::Result<usize, &'static str>;
    let cases: [(&str, [f64; 4], Outcome); 10] = [
        ("NaN", [5.0, f64::NAN, 4.0, 3.0], Err("[1, 1, 1]")),
        ("infinite", [f64::INFINITY, 0.0, 4.0, 3.0], Err("[1, 1, 0]")),
        (
            "spacelike",
            [5.0, 0.0, 40.0, 3.0],
            Err("particle 1 of jet 1 has the energy 5 and the momentum (0, 40, 3)"),
        ),
        ("the energy last", [0.0, 4.0, -3.0, 5.0], Err("rows are E, px, py, pz")),
        ("a negative energy", [-5.0, 0.0, 4.0, 3.0], Err("negative energy")),
        ("a momentum without energy", [0.0, 0.0, 4.0, 3.0], Err("spacelike")),
        ("spacelike by the rounding of single precision", [4.999_999_8, 0.0, 4.0, 3.0], Ok(3)),
        // The other particle alone is massless.
        ("zero", [0.0; 4], Ok(2)),
        ("without transverse momentum, as a beam", [7000.0, 0.0, 0.0, 7000.0], Ok(2)),
        ("of larger transverse momentum than the one before", [5.0, 0.0, 4.5, -2.0], Ok(3)),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, row, expected) in cases {
        arrays(folder.path(), &with_row(row), &[0.0, 1.0, 1.0]);
        match (JetSets::load(folder.path(), Split::Train, 3, 9), expected) {
            (Ok(jets), Ok(left)) => assert_eq!(jets.labels().len(), left, "{name}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{name}: {error}"),
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}

#[test]
fn jets_of_few_particles_and_of_other_units() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let load = || JetSets::load(here, Split::Train, 3, 99);
    let [pair, ..] = with_row([5.0, 0.0, 4.0, -3.0]);
    let mut heavy = [0.0; 16];
    heavy[..4].copy_from_slice(&[5.0, 3.0, 0.0, 0.0]);
    // One particle with a mass, and no particle.
    arrays(here, &[pair, heavy, [0.0; 16]], &[0.0, 1.0, 1.0]);
    let jets = load().unwrap();
    assert_eq!((jets.labels(), jets.count(1)), (&[false, true][..], 1));
    assert!(jets.batch(&[1], &Placement::from(&Device::Cpu)).is_ok());
    arrays(here, &[[0.0; 16]; 2], &[0.0, 1.0]);
    assert!(reason(load()).contains("none of the 2 jets"));
    let scaled = |factor: f64| pair.map(|number| factor * number);
    arrays(here, &[scaled(110.0), scaled(120.0)], &[0.0, 1.0]);
    assert!(load().is_ok(), "550 GeV");
    arrays(here, &[scaled(110_000.0), scaled(120_000.0)], &[0.0, 1.0]);
    let message = reason(load());
    assert!(message.contains("MeV") && message.contains("divide them by 1000"), "{message}");
}

#[test]
fn a_fault_in_a_dataset_is_found_as_one_in_an_array() {
    let bytes = fs::read(fixture("contiguous.h5")).unwrap();
    let momenta = written(12).momenta();
    // The dataset has no filter: the energy of a particle stands in it as it is.
    let energy = momenta[4 * 13];
    let (single, double) = ((energy as f32).to_le_bytes(), energy.to_le_bytes());
    let at = |pattern: &[u8]| bytes.windows(pattern.len()).position(|window| window == pattern);
    let (place, fault) = match (at(&double), at(&single)) {
        (Some(place), _) => (place, f64::NAN.to_le_bytes().to_vec()),
        (None, Some(place)) => (place, f32::NAN.to_le_bytes().to_vec()),
        (None, None) => panic!("no such number in the file"),
    };
    let mut broken = bytes.clone();
    broken[place..place + fault.len()].copy_from_slice(&fault);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.h5"), &broken).unwrap();
    let error = JetSets::load(folder.path(), Split::Train, 12, usize::MAX).unwrap_err();
    assert!(matches!(&error, Error::NotFinite { index, .. } if index[0] == 1), "{error}");
}

#[test]
fn truncated_files_of_every_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    arrays(here, &with_row([5.0, 0.0, 4.0, -3.0]), &[0.0, 1.0, 1.0]);
    let numpy = fs::read(here.join("jets_train_momenta.npy")).unwrap();
    for share in [0, 1, 30, 60, 99] {
        fs::write(here.join("jets_train_momenta.npy"), &numpy[..numpy.len() * share / 100]).unwrap();
        let message = reason(JetSets::load(here, Split::Train, 3, 9));
        assert!(message.contains("jets_train_momenta.npy"), "{message}");
    }
    fs::remove_file(here.join("jets_train_momenta.npy")).unwrap();
    for name in ["published.h5", "columns.h5", "arrays.h5", "contiguous.h5"] {
        let bytes = fs::read(fixture(name)).unwrap();
        for share in [0, 1, 30, 60] {
            fs::write(here.join("train.h5"), &bytes[..bytes.len() * share / 100]).unwrap();
            let message = reason(JetSets::load(here, Split::Train, 4, usize::MAX));
            assert!(message.contains("train.h5"), "{name} {share}%: {message}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn damaged_files_are_refused_or_read_but_do_not_panic(
        table: bool,
        // Most of the first bytes are structural.
        changes in prop::collection::vec((0usize..60_000, any::<u8>()), 0..6),
        early in prop::collection::vec((0usize..3_000, any::<u8>()), 0..6),
        length in prop::option::of(0usize..60_000),
    ) {
        let mut bytes = fs::read(fixture(if table { "published.h5" } else { "arrays.h5" })).unwrap();
        for (position, value) in changes.into_iter().chain(early) {
            let position = position % bytes.len();
            bytes[position] = value;
        }
        if let Some(length) = length {
            bytes.truncate(length);
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("test.h5"), &bytes).unwrap();
        if let Ok(jets) = JetSets::load(folder.path(), Split::Test, 4, 50) {
            prop_assert!(jets.labels().len() <= 50);
        }
    }
}
