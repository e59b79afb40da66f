//! `md` through the program: energies, bits after a restart, signals, and what it refuses; `expressivity`.

#[path = "common/program.rs"]
mod program;

use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_nn::{
    Placement,
    data::Split,
    train::{Trainer, TrainerConfig},
};
use gradewise_zoo::{
    data::atoms::{AtomOrigin, AtomSet, AtomSource, Cell, Frame, Units, read, write_extended_xyz},
    dynamics::Record,
    models::{CoreRepulsion, Potential, PotentialConfig},
};
use program::program;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::{
    path::Path,
    process::{Command, Output, Stdio},
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

fn write(path: &Path, frame: &Frame) {
    let mut text = String::new();
    write_extended_xyz(frame, None, "", &mut text);
    std::fs::write(path, text).unwrap();
}

/// A potential with random parameters that knows H, C and O, its checkpoint, and a molecule and a small crystal to start from. Its repulsion of
/// nuclei holds atoms apart.
fn prepare(folder: &Path) -> Frame {
    let config = PotentialConfig {
        hidden: 4,
        layers: 1,
        cutoff: 4.0,
        repulsion: CoreRepulsion::Zbl,
        ..PotentialConfig::default()
    };
    let place = Placement::new(&Device::Cpu, DType::F64);
    let model = Potential::init(&config, place, &mut ChaCha8Rng::seed_from_u64(2)).unwrap();
    let source = AtomSource {
        origin: AtomOrigin::Ethanol,
        units: Units::EV_ANGSTROM,
        counts: [60, 10, 10],
        cutoff: 4.0,
    };
    let set = AtomSet::load(&source, Split::Train).unwrap();
    model.calibrate(&set).unwrap();
    let trainer = Trainer::new(model, TrainerConfig::default()).unwrap();
    let checkpoint = trainer.checkpoint("potential", serde_json::to_value(config).unwrap()).unwrap();
    checkpoint.write(folder.join("c.safetensors")).unwrap();
    let molecule = set.frames()[0].frame.clone();
    write(&folder.join("start.xyz"), &molecule);
    // The cutoff is 4 Å: images count.
    let cell = Cell::periodic([[3.4, 0.0, 0.0], [0.3, 3.6, 0.0], [-0.2, 0.4, 3.5]]);
    let positions = vec![[0.2, 0.1, 0.0], [1.8, 1.7, 0.3], [0.4, 1.9, 1.9]];
    let crystal = Frame { numbers: vec![8, 6, 1], positions, cell: Some(cell), ..Frame::default() };
    write(&folder.join("crystal.xyz"), &crystal);
    molecule
}

fn records(folder: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(folder.join("energies.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const START: &str = "md --checkpoint c.safetensors --input start.xyz --dtype f64";

#[test]
fn energy_is_conserved_to_the_second_order_and_all_files_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let molecule = prepare(here);
    // The greatest error over 20 fs.
    let error = |dt: f64, steps: u32, input: &str| {
        let out = format!("{input}-{steps}");
        let start = START.replace("start", input);
        let text = succeed(
            here,
            &format!("{start} --dt {dt} --steps {steps} --every 1 --temperature 100 --out {out}"),
        );
        assert!(text.contains("drift") && text.contains("meV/ps an atom"), "{text}");
        let records = records(&here.join(out));
        assert_eq!(records.len(), steps as usize + 1);
        assert!((records.last().unwrap().time - 20.0).abs() < 1e-9);
        assert!(records[0].kinetic > 0.0 && records[0].kinetic != records[5].kinetic);
        records.iter().map(|record| (record.total - records[0].total).abs()).fold(0.0, f64::max)
    };
    for input in ["start", "crystal"] {
        let [coarse, fine] = [error(0.2, 100, input), error(0.1, 200, input)];
        let ratio = coarse / fine;
        assert!((ratio - 4.0).abs() < 1.0, "{input}: {coarse} {fine}");
    }
    for file in ["trajectory.xyz", "energies.svg", "temperature.svg", "state.json"] {
        assert!(here.join("start-100").join(file).is_file(), "{file}");
    }
    let frames = read(&here.join("start-100/trajectory.xyz"), &Units::EV_ANGSTROM).unwrap();
    let records = records(&here.join("start-100"));
    assert_eq!((frames.len(), &frames[0].positions), (101, &molecule.positions));
    for (frame, record) in frames.iter().zip(&records) {
        assert!((frame.energy.unwrap() - record.potential).abs() < 1e-12);
    }
    // What infer says of a frame on the way.
    write(&here.join("late.xyz"), &frames[60]);
    succeed(here, "infer --checkpoint c.safetensors --input late.xyz --output predicted.xyz --dtype f64");
    let predicted = read(&here.join("predicted.xyz"), &Units::EV_ANGSTROM).unwrap().remove(0);
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
    let [found, expected] = [&frames[60], &predicted].map(|frame| frame.forces.clone().unwrap());
    assert!(found.as_flattened().iter().zip(expected.as_flattened()).all(close));
}

/// Neighbours are sought again several times, and once between the stop and the end.
#[test]
fn a_motion_that_is_stopped_goes_on_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    prepare(here);
    let options =
        "--thermostat langevin --temperature 600 --friction 20 --seed 5 --skin 0.1 --every 3 --dt 0.4";
    let whole = succeed(here, &format!("{START} {options} --steps 90 --out whole --json"));
    let whole: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert!(whole["searches"].as_u64().unwrap() >= 3, "{whole}");
    let part = succeed(here, &format!("{START} {options} --steps 40 --out parts"));
    assert!(part.contains(" 40 steps,"), "all steps count, also after the last record: {part}");
    // What a process wrote after its last state is dropped.
    let mut text = std::fs::read_to_string(here.join("parts/energies.jsonl")).unwrap();
    text += "{\"step\": 42";
    std::fs::write(here.join("parts/energies.jsonl"), text).unwrap();
    succeed(here, "md --resume parts --steps 90");
    for file in ["trajectory.xyz", "energies.jsonl", "energies.svg"] {
        let [one, other] = ["whole", "parts"].map(|name| std::fs::read(here.join(name).join(file)).unwrap());
        assert!(one == other, "{file} differs");
    }
    let states = ["whole", "parts"].map(|name| {
        let text = std::fs::read(here.join(name).join("state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_slice(&text).unwrap();
        state["state"].clone()
    });
    assert_eq!(states[0], states[1]);
    // Another seed, another motion.
    succeed(here, &format!("{START} {} --steps 40 --out other", options.replace("seed 5", "seed 6")));
    assert_ne!(records(&here.join("other"))[10], records(&here.join("whole"))[10]);
}

#[cfg(unix)]
#[test]
fn a_signal_saves_the_motion() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    prepare(here);
    let arguments = format!("{START} --steps 100000000 --every 1 --temperature 100 --dt 0.1 --out run");
    let child = Command::new(program())
        .current_dir(here)
        .args(arguments.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    let lines =
        || std::fs::read_to_string(here.join("run/energies.jsonl")).map_or(0, |text| text.lines().count());
    while lines() < 20 {
        assert!(begun.elapsed().as_secs() < 60, "it moves");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("go on by gradewise md --resume run"), "{stderr}");
    let stopped = records(&here.join("run")).last().unwrap().step;
    assert!(stopped >= 19);
    succeed(here, &format!("md --resume run --steps {}", stopped + 5));
    assert_eq!(records(&here.join("run")).last().unwrap().step, stopped + 5);
}

#[test]
fn what_no_motion_can_have_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let molecule = prepare(here);
    let start = format!("{START} --steps 5 --out run");
    for (options, parts) in [
        ("--dt 0", &["`dt`", "above 0"][..]),
        ("--dt -1", &["`dt`"]),
        ("--dt NaN", &["`dt`"]),
        ("--temperature -5", &["`temperature`"]),
        ("--thermostat langevin --friction 0", &["`friction`"]),
        ("--friction 2", &["--friction is of --thermostat langevin"]),
        ("--thermostat berendsen", &["nve", "langevin"]),
        ("--skin -1", &["`skin`"]),
        ("--every 0", &["--every"]),
    ] {
        refuse(here, &format!("{start} {options}"), parts);
    }
    refuse(here, &start.replace("f64", "bf16"), &["bf16", "f32 and f64"]);
    let with = |change: &dyn Fn(&mut Frame), parts: &[&str]| {
        let mut frame = molecule.clone();
        change(&mut frame);
        write(&here.join("bad.xyz"), &frame);
        refuse(here, &start.replace("start.xyz", "bad.xyz"), parts);
    };
    with(&|frame| frame.positions[2] = frame.positions[4], &["atoms 2 and 4 coincide"]);
    with(&|frame| frame.numbers[0] = 92, &["`species` is U", "H, C and O"]);
    with(&|frame| frame.positions[1][2] = f64::NAN, &["NaN"]);
    refuse(here, &start.replace("start.xyz", "missing.xyz"), &["missing.xyz"]);
    refuse(here, "md --steps 5", &["--checkpoint"]);
    refuse(here, "md --resume nowhere --steps 5", &["nowhere"]);
    refuse(here, &format!("{start} --resume run"), &["--resume"]);
    assert!(!here.join("run").exists(), "nothing is written");
    succeed(here, &start);
    refuse(here, &start, &["holds a motion already", "--resume run"]);
}

/// The table of theory and measurement: all of it agrees, which the exit status says.
#[test]
fn expressivity_prints_what_theory_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeed(folder.path(), "expressivity --rounds 2 --json");
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tests = found["tests"].as_array().unwrap();
    assert!(tests.len() > 15, "{text}");
    let cells = || tests.iter().flat_map(|test| test["cells"].as_array().unwrap());
    assert!(cells().all(|cell| cell["measured"] == cell["predicted"]), "{text}");
    let count = |word: &str| cells().filter(|cell| cell["measured"] == word).count();
    assert!(count("yes") > 20 && count("no") > 20, "{text}");
    let table = succeed(folder.path(), "expressivity --rounds 1 --seeds 1");
    assert!(table.contains("tetrahedron") && table.contains("rank 3"), "{table}");
    refuse(folder.path(), "expressivity --seeds 0", &["--seeds 0"]);
}
