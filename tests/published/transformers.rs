//! State_dicts of lgatr and gatr become checkpoints of the program and come back, with settings that it asks for.

use crate::{run, succeeds};
use gradewise_nn::checkpoint::TensorFile;

/// The weights of a golden file of a published package, as a state_dict.
fn state_dict(name: &str, out: &str) -> TensorFile {
    let folder = gradewise_testing::manifest_dir!().join("crates/python/tests/transformers");
    let golden = TensorFile::read(folder.join(format!("{name}.safetensors"))).unwrap();
    let mut file = TensorFile::new();
    for (name, tensor) in golden.iter() {
        if let Some(name) = name.strip_prefix("weight.") {
            file.insert(name, tensor.clone());
        }
    }
    file.write(out).unwrap();
    file
}

/// That a file holds the same tensors, bit for bit, and no others.
#[track_caller]
fn holds(path: &str, expected: &TensorFile) {
    let found = TensorFile::read(path).unwrap();
    assert!(found.iter().eq(expected.iter()), "{path}");
}

#[test]
fn the_program_imports_and_exports_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (published, checkpoint, back) =
        (path("published.safetensors"), path("c.safetensors"), path("back.safetensors"));
    let theirs = state_dict("lgatr_full_group", &published);
    let import = ["import", &published, "--from", "lgatr", "--model", "lgatr", "--out", &checkpoint];
    let output = run(&import);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("give attention.num_heads=…, one of 1, 2"), "{said}");
    let said = succeeds(&[&import[..], &["attention.num_heads=2"]].concat());
    assert!(said.contains("none missing"), "{said}");
    succeeds(&["export", &checkpoint, "--to", "lgatr", "--out", &back]);
    holds(&back, &theirs);

    let theirs = state_dict("gatr_positions", &published);
    let overwrite = ["--overwrite", "--out", &checkpoint];
    succeeds(&[&["import", &published, "--from", "gatr", "--model", "gatr"], &overwrite[..]].concat());
    succeeds(&["export", &checkpoint, "--to", "gatr", "--overwrite", "--out", &back]);
    holds(&back, &theirs);
}

/// A tagger that was trained here leaves for lgatr and comes back as a model of the task, which scores the same jets alike.
#[test]
fn a_tagger_leaves_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (run, published, back) = (path("run"), path("published.safetensors"), path("back.safetensors"));
    let settings = "model.kind=lgatr model.hidden=4 model.scalars=8 model.layers=1 model.heads=2 data.train=32 data.valid=8 data.test=16 \
                    data.particles=5 train.batch_size=8 train.steps=3";
    succeeds(
        &[&["train", "lorentz", "--out", &run], &settings.split_whitespace().collect::<Vec<_>>()[..]]
            .concat(),
    );
    succeeds(&["export", &run, "--to", "lgatr", "--out", &published]);
    let import = ["import", &published, "--from", "lgatr", "--model", "tagger", "--out", &back];
    succeeds(&[&import[..], &["attention.num_heads=2"]].concat());
    // By a folder, which says the arguments itself.
    let (hub, by_folder) = (path("hub"), path("by-folder.safetensors"));
    succeeds(&["export", &run, "--to", "lgatr", "--pretrained", &hub]);
    succeeds(&["import", &hub, "--model", "tagger", "--out", &by_folder]);
    assert_eq!(std::fs::read(&by_folder).unwrap(), std::fs::read(&back).unwrap());
    holds(&format!("{hub}/model.safetensors"), &TensorFile::read(&published).unwrap());
    let refusals: [(&[&str], &str); 6] = [
        (&["export", &run, "--to", "lgatr", "--pretrained", &hub], "not empty"),
        (&["export", &run, "--to", "lgatr"], "--pretrained"),
        (&["export", &run, "--overwrite"], "--overwrite is for"),
        (&["import", &hub, "--from", "lgatr", "--out", &by_folder], "leave out --from"),
        (&["import", &published, "--out", &by_folder], "name it by --from"),
        (&["import", &run, "--out", &by_folder], "config.json"),
    ];
    for (arguments, reason) in refusals {
        let output = crate::run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
    succeeds(&["export", &run, "--to", "lgatr", "--pretrained", &hub, "--overwrite"]);
    let eval = |checkpoint: &str| -> serde_json::Value {
        let data = ["data.test=16", "data.particles=5"];
        let said = succeeds(&[&["eval", "--json", "--checkpoint", checkpoint], &data[..]].concat());
        serde_json::from_str(&said).unwrap()
    };
    let (trained, imported) = (eval(&format!("{run}/checkpoint.safetensors")), eval(&back));
    assert_eq!(trained["cross_entropy"], imported["cross_entropy"]);
    assert!(imported["asymmetry"].as_f64().unwrap() < 1e-4, "{imported}");
}
