//! `export --to c`: the machine's compiler takes what it writes, and the numbers are those of the library, from data as they come.
#![cfg(unix)]

#[path = "common/program.rs"]
mod program;

use gradewise_autograd::{Tensor, no_grad};
use gradewise_kernels::{DType, Device};
use gradewise_nn::{
    Module, Placement,
    checkpoint::Checkpoint,
    data::{Samples, Split},
    layers::Layer,
};
use gradewise_zoo::{
    data::{jets::JetSets, npy, points::PointSets},
    models::{
        HullConfig, HullModel, JetTagger, JetTaggerConfig, O5Config, O5Regression, PerceptronConfig,
        SignedVolume,
    },
};
use program::program;

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::{
    fmt::Write,
    path::Path,
    process::{Command, Output},
};

fn gradewise(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(program());
    command.current_dir(folder).args(arguments.split_whitespace()).output().expect("the program starts")
}

#[track_caller]
fn succeed(folder: &Path, arguments: &str) {
    let output = gradewise(folder, arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {message}");
}

/// A few steps of training, so that no parameter is what it was at the start.
#[track_caller]
fn refuse(folder: &Path, arguments: &str, part: &str) {
    let output = gradewise(folder, arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
    assert!(message.contains(part), "{arguments}: {message}");
}

fn train(folder: &Path, task: &str, settings: &str) {
    let few = "data.train=24 data.valid=8 data.test=8 train.batch_size=6 train.steps=4 train.eval_every=0 runtime.threads=1";
    let _ = std::fs::remove_dir_all(folder.join(task));
    succeed(folder, &format!("train {task} {few} {settings} --out {task}"));
}

fn compiler() -> Option<String> {
    let name = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let found = Command::new(&name).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no compiler `{name}`");
    }
    found.then_some(name)
}

/// The elements of each array, whether a count comes after them, and the elements of the result.
struct Sizes<'a> {
    arrays: &'a [usize],
    counted: bool,
    outputs: usize,
}

/// Compiles `name.c` and runs it on samples: the numbers of all arrays, and the count.
fn predictions(
    folder: &Path,
    name: &str,
    dtype: DType,
    sizes: &Sizes<'_>,
    samples: &[(Vec<f64>, i32)],
) -> Vec<f64> {
    let Some(compiler) = compiler() else { return Vec::new() };
    let text = std::fs::read_to_string(folder.join(format!("{name}.c"))).unwrap();
    let kind = if dtype == DType::F64 { "double" } else { "float" };
    let mut main = format!(
        "#include <stdio.h>\n{text}\nint main(void)\n{{\n    static {kind} out[{}];\n    int count;\n",
        sizes.outputs
    );
    let (mut reads, mut arguments) = (String::new(), Vec::new());
    for (index, elements) in sizes.arrays.iter().enumerate() {
        let _ = writeln!(main, "    static {kind} in{index}[{elements}];");
        let _ = writeln!(
            reads,
            "        if (fread(in{index}, sizeof *in{index}, {elements}, stdin) != {elements}) return 1;"
        );
        arguments.push(format!("in{index}"));
    }
    arguments.extend(sizes.counted.then(|| "count".to_owned()));
    arguments.push("out".to_owned());
    for (kind, size) in [("float", "FLOATS"), ("double", "DOUBLES")] {
        if text.contains(&format!("{kind} *{kind}_work")) {
            let _ = writeln!(main, "    static {kind} {kind}_work[{}_{size}];", name.to_uppercase());
            arguments.push(format!("{kind}_work"));
        }
    }
    let call = format!("{name}_predict({});", arguments.join(", "));
    let _ = write!(
        main,
        "    while (fread(&count, sizeof count, 1, stdin) == 1) {{\n{reads}        {call}\n        fwrite(out, sizeof *out, {}, stdout);\n    }}\n    return 0;\n}}\n",
        sizes.outputs
    );
    let mut bytes = Vec::new();
    for (numbers, count) in samples {
        bytes.extend(count.to_ne_bytes());
        for &number in numbers {
            match dtype {
                DType::F64 => bytes.extend(number.to_ne_bytes()),
                _ => bytes.extend((number as f32).to_ne_bytes()),
            }
        }
    }
    let [source, executable, input] =
        ["main.c", "main", "input"].map(|file| folder.join(format!("{name}-{file}")));
    std::fs::write(&source, main).unwrap();
    std::fs::write(&input, bytes).unwrap();
    let flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    let output = Command::new(compiler)
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&executable)
        .arg("-lm")
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(executable).stdin(std::fs::File::open(input).unwrap()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", output.status);
    let number = |bytes: &[u8]| match dtype {
        DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
        _ => f32::from_ne_bytes(bytes.try_into().unwrap()).into(),
    };
    output.stdout.chunks_exact(dtype.size()).map(number).collect()
}

/// Refuses predictions that differ by more than the type allows, relative to the largest.
#[track_caller]
fn agree(about: &str, dtype: DType, found: &[f64], expected: &[f64]) {
    agree_within(about, dtype, found, expected, if dtype == DType::F64 { 1e-12 } else { 1e-6 });
}

/// As [`agree`], with a bound.
#[track_caller]
fn agree_within(about: &str, dtype: DType, found: &[f64], expected: &[f64], bound: f64) {
    if compiler().is_none() {
        return;
    }
    assert_eq!(found.len(), expected.len(), "{about}");
    let largest = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let difference = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest;
    println!("{about} {dtype}: {difference:.1e}");
    assert!(found.iter().all(|x| x.is_finite()) && difference <= bound, "{about} {dtype}: {difference:e}");
}

/// The weights of a run, in a model.
fn loaded<M: Module>(
    folder: &Path,
    dtype: DType,
    task: &str,
    init: impl FnOnce(&Placement, serde_json::Value) -> M,
) -> M {
    let checkpoint = Checkpoint::read(folder.join(task).join("checkpoint.safetensors")).unwrap();
    let model = init(&Placement::new(&Device::Cpu, dtype), checkpoint.metadata.model_config.clone());
    model.load(&|name| checkpoint.tensors.find_array(name, dtype, &Device::Cpu)).unwrap();
    model
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(0)
}

/// A regression on points: its samples one by one.
fn check_points<M: Module + Layer>(
    folder: &Path,
    task: &str,
    data: &PointSets,
    init: impl Fn(&Placement, serde_json::Value) -> M,
) {
    for dtype in [DType::F32, DType::F64] {
        succeed(folder, &format!("export {task} --to c --out {task}.c --dtype {dtype}"));
        let model = loaded(folder, dtype, task, &init);
        let expected: Vec<f64> = (0..data.len())
            .flat_map(|sample| {
                let batch = data.batch(&[sample], &Placement::new(&Device::Cpu, dtype)).unwrap();
                no_grad(|| model.forward(&batch.points)).unwrap().array().to_f64_vec().unwrap()
            })
            .collect();
        let numbers = data.points() * data.dimension();
        let samples: Vec<(Vec<f64>, i32)> =
            data.loc().chunks_exact(numbers).map(|x| (x.to_vec(), 0)).collect();
        let sizes = Sizes { arrays: &[numbers], counted: false, outputs: 1 };
        agree(task, dtype, &predictions(folder, task, dtype, &sizes, &samples), &expected);
    }
}

#[test]
fn volumes_and_hulls() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    train(here, "volumes", "model.hidden=6 model.layers=2");
    check_points(here, "volumes", &PointSets::signed_volumes(9, 3, Split::Test).unwrap(), |place, config| {
        let config: PerceptronConfig = serde_json::from_value(config).unwrap();
        SignedVolume::init(&config, place, &mut rng()).unwrap()
    });
    train(here, "o5", "model.hidden=24");
    check_points(here, "o5", &PointSets::o5_regression(9, 3, Split::Test).unwrap(), |place, config| {
        let config: O5Config = serde_json::from_value(config).unwrap();
        let scale =
            (gradewise_zoo::data::points::O5_MEAN, gradewise_zoo::data::points::O5_STANDARD_DEVIATION);
        O5Regression::init(&config, scale, place, &mut rng()).unwrap()
    });
    for (task, points, settings) in [
        ("hulls", 16, "model.hidden=5 model.layers=2"),
        ("hulls", 16, "model.kind=metric model.hidden=3 model.layers=1"),
        ("hulls8", 8, "model.hidden=2 model.layers=1"),
    ] {
        train(here, task, settings);
        check_points(
            here,
            task,
            &PointSets::hull_volumes(points, 3, 3, Split::Test).unwrap(),
            |place, config| {
                let config: HullConfig = serde_json::from_value(config).unwrap();
                HullModel::init(points, &config, place, &mut rng()).unwrap()
            },
        );
    }
}

/// Jets of all lengths, padded inside: what comes after the last particle is not read as one.
#[test]
fn taggers_of_jets() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let particles = 9;
    let jets = JetSets::simulate(24, particles, 5, Split::Test).unwrap();
    // Numbers of single precision, so that both programs read the same ones.
    let rounded: Vec<f64> = jets.momenta().into_iter().map(|number| f64::from(number as f32)).collect();
    let jets = JetSets::new(particles, &rounded, jets.labels().to_vec()).unwrap();
    // Directions of the laboratory are as long as γ in the rest frame, and their squares cancel: both programs round them, each in its order.
    for (settings, bound) in [
        (
            "model.kind=pairs model.hidden=3 model.scalars=7 model.layers=2 model.heads=2 model.units=5 model.reference=time-beam",
            3e-6,
        ),
        ("model.kind=pairs model.hidden=2 model.scalars=8 model.layers=1 model.heads=2 model.units=8", 1e-6),
        ("model.kind=messages model.hidden=3 model.layers=1 model.units=6", 1e-6),
    ] {
        train(here, "lorentz", &format!("{settings} data.particles={particles}"));
        for dtype in [DType::F32, DType::F64] {
            succeed(here, &format!("export lorentz --to c --out tagger.c --name tagger --dtype {dtype}"));
            let model = loaded(here, dtype, "lorentz", |place, config| {
                let config: JetTaggerConfig = serde_json::from_value(config).unwrap();
                JetTagger::init(&config, place, &mut rng()).unwrap()
            });
            let probability = |jet: usize| {
                let batch = jets.batch(&[jet], &Placement::new(&Device::Cpu, dtype)).unwrap();
                let logits: Tensor = no_grad(|| model.forward(&batch)).unwrap();
                logits.softmax(1).unwrap().array().to_f64_vec().unwrap()[1]
            };
            let expected: Vec<f64> = (0..24).map(probability).collect();
            let momenta = jets.momenta();
            let samples: Vec<(Vec<f64>, i32)> = (0..24)
                .map(|jet| {
                    let count = jets.count(jet);
                    let mut rows = momenta[jet * particles * 4..][..particles * 4].to_vec();
                    rows[4 * count..].fill(1e3);
                    (rows, count as i32)
                })
                .collect();
            let sizes = Sizes { arrays: &[4 * particles], counted: true, outputs: 1 };
            let found = predictions(here, "tagger", dtype, &sizes, &samples);
            // The rest frame magnifies the rounding of double precision by the square of a jet's γ.
            let bound = if dtype == DType::F64 { 1e-11 } else { bound };
            agree_within(settings, dtype, &found, &expected, bound);
        }
    }
    // The published transformers leave padding out by a computation of their own, which would be that of one number of particles.
    for kind in ["slim", "lgatr"] {
        train(
            here,
            "lorentz",
            &format!(
                "model.kind={kind} model.hidden=4 model.scalars=8 model.layers=1 model.heads=2 data.particles=9"
            ),
        );
        refuse(here, "export lorentz --to c --out other.c", "cannot be recorded as a program");
        assert!(!here.join("other.c").exists(), "{kind}");
    }
}

#[test]
fn systems_of_particles_as_infer_predicts_them() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for settings in [
        "model.hidden=4 model.layers=2",
        "model.hidden=4 model.layers=1 model.substeps=2 model.conjugation=true model.pushes=true",
    ] {
        train(here, "nbody", &format!("data.source=simulate data.particles=3 {settings}"));
        let values: Vec<f64> = (0..4 * 7 * 3).map(|i| f64::from((i * 29 % 41) as u8) / 20.0 - 1.0).collect();
        npy::write(here.join("in.npy"), &[4, 7, 3], &values).unwrap();
        for dtype in [DType::F32, DType::F64] {
            succeed(
                here,
                &format!(
                    "infer --checkpoint nbody/checkpoint.safetensors --input in.npy --output out.npy --overwrite --dtype {dtype}"
                ),
            );
            succeed(
                here,
                &format!(
                    "export nbody/checkpoint.safetensors --to c --out motion.c --name motion --dtype {dtype}"
                ),
            );
            let expected = npy::NpyArray::read(here.join("out.npy")).unwrap().values;
            let samples: Vec<(Vec<f64>, i32)> = values.chunks_exact(21).map(|x| (x.to_vec(), 0)).collect();
            let sizes = Sizes { arrays: &[9, 9, 3], counted: false, outputs: 9 };
            agree(settings, dtype, &predictions(here, "motion", dtype, &sizes, &samples), &expected);
        }
    }
    // What cannot be written, and files that are not its own.
    let refuse = |arguments: &str, part: &str| refuse(here, arguments, part);
    refuse("export nbody --to c --out in.npy", "in.npy");
    refuse("export nbody --to c --out other.c --name 2d", "`2d`");
    refuse("export nbody --to c --out other.c --dtype bf16", "f32 and f64");
    refuse("export nbody --to c --out other.c --particles 1", "at least 2");
    refuse("export nbody --to cgenn --out other.safetensors --particles 3", "--to c");
    assert!(!here.join("other.c").exists());
}
