//! `train potential`, `eval` and `infer` on files, through the program, and the calculator.

#[path = "common/program.rs"]
mod program;

use gradewise_cli::calculator::Calculator;
use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_nn::{data::Split, train::MetricsLog};
use gradewise_zoo::data::atoms::{
    AtomOrigin, AtomSet, AtomSource, EnergyUnit, Frame, Units, read, write_extended_xyz,
};
use program::program;
use std::{
    path::Path,
    process::{Command, Output},
};

fn gradewise(folder: &Path, arguments: &str) -> Output {
    Command::new(program())
        .current_dir(folder)
        .args(arguments.split_whitespace())
        .output()
        .expect("the program starts")
}

fn succeed(folder: &Path, arguments: &str) -> String {
    let output = gradewise(folder, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refuse(folder: &Path, arguments: &str, parts: &[&str]) {
    let output = gradewise(folder, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{arguments}: {part}: {stderr}");
    }
}

/// Frames of ethanol in their order in time.
fn ethanol() -> Vec<Frame> {
    let source = AtomSource {
        origin: AtomOrigin::Ethanol,
        units: Units::EV_ANGSTROM,
        counts: [200, 20, 20],
        cutoff: 4.0,
    };
    let set = AtomSet::load(&source, Split::Train).unwrap();
    set.frames().iter().map(|one| one.frame.clone()).collect()
}

fn write(path: &Path, frames: &[Frame]) {
    let mut text = String::new();
    frames.iter().for_each(|frame| write_extended_xyz(frame, None, "", &mut text));
    std::fs::write(path, text).unwrap();
}

const SIZES: &str = "data.train=120 data.valid=10 data.test=10 data.cutoff=4 model.cutoff=4 model.hidden=6";

#[test]
fn a_potential_is_trained_resumed_evaluated_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let frames = ethanol();
    write(&here.join("ethanol.xyz"), &frames);
    let train = format!(
        "train potential --data ethanol.xyz {SIZES} --dtype f64 train.log_every=10 train.eval_every=0 train.steps=60"
    );
    let text = succeed(here, &format!("{train} --out run"));
    assert!(text.contains("test MAE of forces (meV/Å)") && text.contains("symmetry "), "{text}");
    let records = MetricsLog::read(here.join("run/metrics.jsonl")).unwrap();
    let losses: Vec<f64> = records.iter().filter_map(|record| record["train_loss"].as_f64()).collect();
    assert!(losses.last().unwrap() < &(0.8 * losses[0]), "{losses:?}");
    let last = records.last().unwrap();
    assert!(last["asymmetry"].as_f64().unwrap() < 1e-10, "{last}");

    // A run that is longer goes on from there.
    succeed(here, "train potential --resume run train.steps=80");
    let checkpoint = "--checkpoint run/checkpoint.safetensors";
    let measured: serde_json::Value =
        serde_json::from_str(&succeed(here, &format!("eval {checkpoint} --json"))).unwrap();

    // infer says for the test frames what eval measured.
    let source = AtomSource {
        origin: AtomOrigin::Path(here.join("ethanol.xyz")),
        units: Units { energy: EnergyUnit::Format, ..Units::EV_ANGSTROM },
        counts: [120, 10, 10],
        cutoff: 4.0,
    };
    let test = AtomSet::load(&source, Split::Test).unwrap();
    let exact: Vec<Frame> = test.frames().iter().map(|one| one.frame.clone()).collect();
    write(&here.join("test.xyz"), &exact);
    let infer = format!("infer {checkpoint} --input test.xyz --output predicted.xyz --dtype f64");
    for _ in 0..2 {
        // The second time it replaces what it wrote.
        let text = succeed(here, &infer);
        assert!(text.contains("10 frames of 9 to 9 atoms of H, C and O"), "{text}");
    }
    let predicted = read(&here.join("predicted.xyz"), &Units::EV_ANGSTROM).unwrap();
    let error = |a: &Frame, b: &Frame| 1000.0 * (a.energy.unwrap() - b.energy.unwrap()).abs();
    let mean = predicted.iter().zip(&exact).map(|(a, b)| error(a, b)).sum::<f64>() / 10.0;
    let of_eval = measured["energy_mae"].as_f64().unwrap();
    assert!((mean / of_eval - 1.0).abs() < 1e-6, "{mean} {of_eval}");

    // So does the calculator, frame by frame.
    let path = here.join("run/checkpoint.safetensors");
    let mut calculator = Calculator::open(&[&path, &path], &Device::Cpu, DType::F64).unwrap();
    for frame in &predicted {
        let (labels, deviations) = calculator.evaluate(&frame.numbers, &frame.positions, frame.cell).unwrap();
        assert!((labels.energy - frame.energy.unwrap()).abs() < 1e-9);
        let forces = frame.forces.as_ref().unwrap();
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
        assert!(labels.forces.as_flattened().iter().zip(forces.as_flattened()).all(close));
        assert_eq!(deviations.unwrap().0.energy, 0.0, "of two equal models");
    }
    assert!(
        calculator.evaluate(&[92], &[[0.0; 3]], None).unwrap_err().to_string().contains("`species` is U")
    );
    assert!(calculator.evaluate(&[], &[], None).unwrap_err().to_string().contains("no atoms"));

    // An ensemble has deviations, which ase reads as columns.
    succeed(here, &format!("infer {checkpoint} {checkpoint} --input test.xyz --output two.xyz --dtype f64"));
    let two = std::fs::read_to_string(here.join("two.xyz")).unwrap();
    assert!(two.contains(":forces_deviation:R:3") && two.contains("energy_deviation=0 "), "{two}");
    assert_eq!(read(&here.join("two.xyz"), &Units::EV_ANGSTROM).unwrap(), predicted);

    write(&here.join("uranium.xyz"), &[Frame { numbers: vec![92; 9], ..exact[0].clone() }]);
    refuse(here, &infer.replace("test.xyz", "uranium.xyz"), &["species", "U", "H, C and O"]);
    refuse(here, &infer.replace("predicted.xyz", "predicted.npy"), &[".xyz or .extxyz"]);
    refuse(here, &infer.replace("predicted.xyz", "ethanol.xyz"), &["--overwrite"]);
    refuse(here, &format!("eval {checkpoint} data.cutoff=3"), &["set data.cutoff=4"]);
}

#[test]
fn data_that_cannot_be_right_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let frames = ethanol();
    let with = |name: &str, change: &dyn Fn(&mut Frame)| {
        let mut frames = frames.clone();
        frames.iter_mut().for_each(change);
        write(&here.join(name), &frames);
    };
    let train = |name: &str| format!("train potential --data {name} {SIZES} train.steps=1");
    with("hartree.xyz", &|frame| frame.energy = frame.energy.map(|energy| energy / 27.2114));
    refuse(here, &train("hartree.xyz"), &["line integral", "energies in hartree with forces in eV/angstrom"]);
    with("bohr.xyz", &|frame| {
        frame.positions.iter_mut().flatten().for_each(|x| *x /= 0.529_177);
        frame.forces.iter_mut().flatten().flatten().for_each(|x| *x *= 0.529_177);
    });
    refuse(here, &train("bohr.xyz"), &["set data.length_unit=bohr"]);
    succeed(here, &format!("{} data.length_unit=bohr --out bohr", train("bohr.xyz")));
    with("twice.xyz", &|frame| frame.positions[3] = frame.positions[7]);
    refuse(here, &train("twice.xyz"), &["atoms 3 and 7 coincide"]);
    with("bare.xyz", &|frame| frame.forces = None);
    refuse(here, &train("bare.xyz"), &["lacks an energy or forces"]);
    write(&here.join("few.xyz"), &frames[..40]);
    refuse(here, &train("few.xyz"), &["the train split has", "set data.train="]);
    let text = std::fs::read_to_string(here.join("few.xyz")).unwrap();
    std::fs::write(here.join("cut.xyz"), &text[..text.len() - 500]).unwrap();
    refuse(here, &train("cut.xyz"), &["cut.xyz", "line"]);
    refuse(here, &train("missing.xyz"), &["missing.xyz"]);
    refuse(
        here,
        &format!("{} data.energy_unit=calorie", train("few.xyz")),
        &["kcal/mol", "data.energy_unit"],
    );
    refuse(
        here,
        &format!("{} data.length_unit=bohr --dtype bf16", train("bohr.xyz")),
        &["bf16", "f32 and f64"],
    );
}
