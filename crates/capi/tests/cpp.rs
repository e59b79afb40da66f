//! The example in C++, compiled and linked, gives what the calculator in Rust gives; and the functions refuse what cannot be right.

use gradewise_capi as c;
use gradewise_cli::calculator::{Calculator, Cell, Evaluated};
use gradewise_kernels::{DType, Device};
use gradewise_nn::{
    Placement,
    train::{Trainer, TrainerConfig},
};
use gradewise_zoo::models::{CoreRepulsion, Potential, PotentialConfig};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{
    ffi::{CStr, CString, c_char, c_int},
    path::{Path, PathBuf},
    process::Command,
    ptr::{null, null_mut},
};

const WATER: [[f64; 3]; 3] = [[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]];
const CELL: [[f64; 3]; 3] = [[3.1, 0.0, 0.0], [0.4, 3.3, 0.0], [-0.5, 0.6, 2.9]];

/// A checkpoint of a potential with random parameters.
fn checkpoint(folder: &Path) -> PathBuf {
    let config =
        PotentialConfig { hidden: 6, cutoff: 4.0, repulsion: CoreRepulsion::Zbl, ..Default::default() };
    let place = Placement::new(&Device::Cpu, DType::F64);
    let model = Potential::init(&config, place, &mut ChaCha8Rng::seed_from_u64(4)).unwrap();
    let trainer = Trainer::new(model, TrainerConfig::default()).unwrap();
    let path = folder.join("potential.safetensors");
    let config = serde_json::to_value(config).unwrap();
    trainer.checkpoint("potential", config).unwrap().write(&path).unwrap();
    path
}

fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let name = format!("{}gradewise_capi{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found =
        [folder.join(&name), folder.parent().unwrap().join(&name)].into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} lies beside {}", program.display()))
}

/// The lines that the example prints for a system.
fn lines(name: &str, found: &Evaluated) -> Vec<(String, f64)> {
    let all = |kind: &str, values: &[f64]| -> Vec<(String, f64)> {
        values.iter().map(|&value| (format!("{name} {kind}"), value)).collect()
    };
    [
        all("energy", &[found.labels.energy]),
        all("force", found.labels.forces.as_flattened()),
        all("virial", found.virial.as_flattened()),
    ]
    .concat()
}

#[test]
fn the_example_in_cpp_gives_what_the_calculator_gives() {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if Command::new(&compiler).arg("--version").output().is_err() {
        eprintln!("skipped: there is no C++ compiler `{compiler}`; set CXX to one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, program, library) = (checkpoint(folder.path()), folder.path().join("energy"), library());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = Command::new(&compiler)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root.join("include"))
        .arg(root.join("examples/energy.cpp"))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&program).arg(&checkpoint).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{stderr}");
    assert!(stderr.contains("atoms 0 and 1 coincide"), "{stderr}");

    let mut calculator = Calculator::open(&[&checkpoint], &Device::Cpu, DType::F64).unwrap();
    let mut evaluate =
        |cell: Option<Cell>| calculator.evaluate_with_virial(&[8, 1, 1], &WATER, cell).unwrap();
    let (water, crystal) = (evaluate(None), evaluate(Some(Cell::periodic(CELL))));
    let mut expected = vec![("potential cutoff".to_owned(), 4.0)];
    expected.extend(lines("water", &water));
    expected.extend(lines("crystal", &crystal));
    expected.push(("coincident code".to_owned(), 1.0));
    expected.extend(lines("again", &water));
    let found: Vec<(&str, f64)> = stdout
        .lines()
        .map(|line| line.rsplit_once(' ').map(|(name, value)| (name, value.parse().unwrap())).unwrap())
        .collect();
    assert_eq!(found.len(), expected.len(), "{stdout}");
    for ((name, value), (expected_name, expected)) in found.iter().zip(&expected) {
        assert_eq!(name, expected_name);
        assert!((value - expected).abs() <= 1e-12 * (1.0 + expected.abs()), "{name}: {value} {expected}");
    }
    assert!(water.labels.energy.abs() > 1e-3 && crystal.labels.energy != water.labels.energy);
}

/// The virial of atoms in space is Σ x⊗F, and that of a crystal minus volume times stress.
#[test]
fn virials_are_those_of_forces_and_stresses() {
    let folder = tempfile::tempdir().unwrap();
    let path = checkpoint(folder.path());
    let mut calculator = Calculator::open(&[&path], &Device::Cpu, DType::F64).unwrap();
    let found = calculator.evaluate_with_virial(&[8, 1, 1], &WATER, None).unwrap();
    let cell = Cell::periodic(CELL);
    let crystal = calculator.evaluate_with_virial(&[8, 1, 1], &WATER, Some(cell)).unwrap();
    let stress = crystal.labels.stress.unwrap();
    for a in 0..3 {
        for b in 0..3 {
            let sum: f64 = WATER.iter().zip(&found.labels.forces).map(|(x, f)| x[a] * f[b]).sum();
            assert!((found.virial[a][b] - sum).abs() < 1e-12, "{a} {b}: {} {sum}", found.virial[a][b]);
            assert!((crystal.virial[a][b] + cell.volume() * stress[a][b]).abs() < 1e-12);
        }
    }
    assert!(found.virial[0][0].abs() > 1e-3);
}

fn message() -> String {
    // SAFETY: the text ends, and belongs to this thread.
    unsafe { CStr::from_ptr(c::gradewise_last_error()) }.to_str().unwrap().to_owned()
}

fn opened(paths: &[*const c_char], device: &CStr, dtype: c_int) -> (c_int, *mut c::Potential) {
    let mut potential = null_mut();
    // SAFETY: the texts end, and the pointer is written.
    let code = unsafe {
        c::gradewise_potential_open(paths.as_ptr(), paths.len(), device.as_ptr(), dtype, &mut potential)
    };
    (code, potential)
}

#[test]
fn what_cannot_be_right_is_refused_with_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = CString::new(checkpoint(folder.path()).to_str().unwrap()).unwrap();
    let missing = CString::new("missing.safetensors").unwrap();
    for (paths, device, dtype, part) in [
        (vec![missing.as_ptr()], c"cpu", 1, "missing.safetensors"),
        (vec![null()], c"cpu", 1, "checkpoints is a null pointer"),
        (vec![], c"cpu", 1, "at least one"),
        (vec![path.as_ptr()], c"gpu", 1, "gpu"),
        (vec![path.as_ptr()], c"cpu", 7, "dtype is 7"),
    ] {
        let (code, potential) = opened(&paths, device, dtype);
        assert!(code != 0 && potential.is_null() && message().contains(part), "{part}: {code} {}", message());
    }
    let (code, potential) = opened(&[path.as_ptr()], c"cpu", 1);
    assert_eq!(code, 0, "{}", message());
    let (mut energy, mut forces) = (7.0, [7.0; 9]);
    let mut evaluate = |numbers: &[i32], positions: *const f64, cell: *const f64, periodic: *const i32| {
        // SAFETY: all have the lengths of the contract, or are null.
        unsafe {
            c::gradewise_potential_evaluate(
                potential,
                numbers.len(),
                numbers.as_ptr(),
                positions,
                cell,
                periodic,
                &mut energy,
                forces.as_mut_ptr(),
                null_mut(),
            )
        }
    };
    let water = WATER.as_flattened().as_ptr();
    let lost = [f64::NAN; 9];
    let flat = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0];
    for (numbers, positions, cell, periodic, part) in [
        (&[8, 1, 1][..], null(), null(), null(), "positions is a null pointer"),
        (&[], water, null(), null(), "no atoms"),
        (&[8, 1, 300], water, null(), null(), "300"),
        (&[8, 1, -1], water, null(), null(), "-1"),
        (&[8, 1, 119], water, null(), null(), "119"),
        (&[8, 1, 1], lost.as_ptr(), null(), null(), "NaN"),
        (&[8, 1, 1], water, flat.as_ptr(), null(), "no volume"),
        (&[8, 1, 1], water, null(), [1, 0, 0].as_ptr(), "give its vectors"),
    ] {
        let code = evaluate(numbers, positions, cell, periodic);
        assert!(code == 1 && message().contains(part), "{part}: {code} {}", message());
    }
    assert_eq!(evaluate(&[8, 1, 1], water, null(), [0, 0, 0].as_ptr()), 0);
    assert!(energy != 7.0 && forces[0] != 7.0);
    // SAFETY: it was opened, and no call is under way; null pointers are allowed.
    unsafe {
        assert_eq!(c::gradewise_potential_cutoff(potential), 4.0);
        assert_eq!(c::gradewise_potential_cutoff(null()), 0.0);
        c::gradewise_potential_close(potential);
        c::gradewise_potential_close(null_mut());
    }
}

/// Calls from several threads with one potential wait for each other, and errors belong to their threads.
#[test]
fn a_potential_serves_several_threads() {
    struct Shared(*mut c::Potential);
    // SAFETY: the header allows calls from several threads.
    unsafe impl Sync for Shared {}
    let folder = tempfile::tempdir().unwrap();
    let path = CString::new(checkpoint(folder.path()).to_str().unwrap()).unwrap();
    let shared = Shared(opened(&[path.as_ptr()], c"cpu", 1).1);
    let energy_of = |shift: f64| {
        let shared = &shared;
        let mut positions = WATER;
        positions[1][0] += shift;
        let mut energy = 0.0;
        // SAFETY: all have the lengths of the contract, or are null.
        let code = unsafe {
            c::gradewise_potential_evaluate(
                shared.0,
                3,
                [8, 1, 1].as_ptr(),
                positions.as_flattened().as_ptr(),
                null(),
                null(),
                &mut energy,
                null_mut(),
                null_mut(),
            )
        };
        (code, energy)
    };
    let alone: Vec<(c_int, f64)> = (0..4).map(|k| energy_of(0.05 * f64::from(k))).collect();
    std::thread::scope(|scope| {
        let run = |k: usize| {
            let (energy_of, alone) = (&energy_of, &alone);
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(energy_of(0.05 * k as f64), alone[k]);
                }
                assert_eq!(message(), "", "no call of this thread failed");
            })
        };
        let threads: Vec<_> = (0..4).map(run).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    // SAFETY: all calls are over.
    unsafe { c::gradewise_potential_close(shared.0) };
}
