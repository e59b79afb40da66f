//! `infer` for a task of one's own: it reads the task's files, and says what to implement where it is missing.

mod common;

use common::run;
use gradewise_nn::checkpoint::{Checkpoint, TensorFile};
use gradewise_zoo::data::npy::{self, NpyArray};

#[test]
fn predictions_of_a_file_are_written_and_other_files_stay() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).display().to_string();
    assert_eq!(run(&format!("train line --seeds 2 data.slope=2 --out {}", at("runs"))), 0);
    npy::write(at("x.npy"), &[3], &[0.0, 1.0, -2.0]).unwrap();
    let (single, both) = (at("runs/seed-0/checkpoint.safetensors"), at("runs/ensemble.safetensors"));
    let infer = |checkpoint: &str, input: &str, output: &str, more: &str| {
        run(&format!("infer --checkpoint {checkpoint} --input {input} --output {output} {more}"))
    };

    // The weights are those of the line that is predicted.
    assert_eq!(infer(&single, &at("x.npy"), &at("y.npy"), ""), 0);
    let found = NpyArray::read(at("y.npy")).unwrap();
    let weights = Checkpoint::read(&single).unwrap().tensors;
    let number = |name: &str| weights.get(name).unwrap().to_f64_vec().unwrap()[0];
    let expected = [0.0, 1.0, -2.0].map(|x| number("weight") * x + number("bias"));
    assert_eq!(found.shape, [3]);
    assert!(
        found.values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6),
        "{:?} {expected:?}",
        found.values
    );

    // An ensemble has a deviation.
    assert_eq!(infer(&both, &at("x.npy"), &at("y.safetensors"), ""), 0);
    let file = TensorFile::read(at("y.safetensors")).unwrap();
    assert_eq!(file.get("prediction").unwrap().shape(), [3]);
    assert!(file.get("deviation").unwrap().to_f64_vec().unwrap().iter().all(|spread| *spread > 0.0));
    assert_eq!(infer(&both, &at("x.npy"), &at("z.npy"), ""), 0);
    assert!(std::path::Path::new(&at("z.deviation.npy")).exists());

    // Earlier predictions are replaced, other files are not.
    assert_eq!(infer(&both, &at("x.npy"), &at("y.safetensors"), ""), 0);
    for output in [at("y.npy"), at("x.npy"), single.clone(), at("y.txt")] {
        let before = std::fs::read(&output).ok();
        assert_eq!(infer(&single, &at("x.npy"), &output, ""), 2, "{output}");
        assert_eq!(std::fs::read(&output).ok(), before);
    }
    assert_eq!(infer(&single, &at("x.npy"), &at("y.npy"), "--overwrite"), 0);

    // A file of another shape, and one that is not there.
    npy::write(at("wide.npy"), &[2, 2], &[0.0; 4]).unwrap();
    assert_eq!(infer(&single, &at("wide.npy"), &at("w.npy"), ""), 2);
    assert_eq!(infer(&single, &at("none.npy"), &at("w.npy"), ""), 2);
    npy::write(at("nan.npy"), &[1], &[f64::NAN]).unwrap();
    assert_ne!(infer(&single, &at("nan.npy"), &at("w.npy"), ""), 0, "no prediction is NaN");
    assert!(!std::path::Path::new(&at("w.npy")).exists());
}

#[test]
fn a_task_without_it_says_what_to_implement() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).display().to_string();
    assert_eq!(run(&format!("train silent --out {}", at("run"))), 0);
    npy::write(at("x.npy"), &[1], &[0.0]).unwrap();
    let checkpoint = at("run/checkpoint.safetensors");
    assert_eq!(
        run(&format!("infer --checkpoint {checkpoint} --input {} --output {}", at("x.npy"), at("y.npy"))),
        2
    );
    let config = gradewise_runner::task::resolver::<common::Silent>(None).unwrap();
    let config = gradewise_runner::task::resolve::<common::Silent>(&config).unwrap();
    use gradewise_runner::task::Task;
    let message = common::Silent::read(std::path::Path::new("x.npy"), &config).err().unwrap().to_string();
    assert!(message.contains("`silent`") && message.contains("implement Task::read"), "{message}");
}
