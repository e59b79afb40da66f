//! The scripts around the benches, as far as they go without a GPU: with stand-ins for what is not here.
#![cfg(unix)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

fn repository() -> PathBuf {
    // Where the runner of the tests says: they may have been built elsewhere.
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(folder).join("../..").canonicalize().unwrap()
}

fn executable(folder: &TempDir, name: &str, body: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn printed(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// What ncu prints for two launches, shortened to the columns that matter and one that does not.
const NCU: &str = r#"==PROF== Connected to process 465 (/tmp/gpu)
product Cl(3,0,0) 4096x512 f32    0.0815
"ID","Kernel Name","Block Size","dram__bytes_read.sum","gpu__time_duration.sum","l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed","l1tex__data_pipe_lsu_wavefronts_mem_shared.sum","launch__grid_size","launch__registers_per_thread","launch__waves_per_multiprocessor","smsp__thread_inst_executed_per_inst_executed.ratio","smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio","smsp__average_warps_issue_stalled_selected_per_issue_active.ratio","smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
"","","","Mbyte","us","%","","","register/thread","","","inst","inst","inst"
"0","gw_sgp_fwd_3_0_0_f32","(256, 1, 1)","1,134.2","97.95","41.7","9,795,000","1,056","128","4.00","28.8","3.0","1.0","2.0"
"1","gw_sum_partials_f32","(256, 1, 1)","0.5","4.00","0.0","0","64","40","0.24","32","0.5","1.0","2.5"
"#;

#[test]
fn counters_become_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let script = repository().join("scripts/profile-gpu");
    // As ncu: what it is told goes to a file, what it found to standard output.
    let told = folder.path().join("told");
    let body = format!("printf '%s\\n' \"$@\" >'{}'\ncat <<'END'\n{NCU}END", told.display());
    executable(&folder, "ncu", &body);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let run = |arguments: &[&str]| Command::new(&script).args(arguments).env("PATH", &path).output().unwrap();

    let kept = folder.path().join("kept.csv");
    let output = run(&["--keep", kept.to_str().unwrap(), "BENCH", "--op", "product", "--pass", "fwd"]);
    let (table, errors) = printed(&output);
    assert!(output.status.success(), "{errors}");
    assert!(table.contains("| `gw_sgp_fwd_3_0_0_f32` | 98.0 | 1134 |"), "{table}");
    // Shared memory: its share of the peak, and 128 bytes a pass over the time; 28.8 of 32 threads of a warp at work.
    assert!(table.contains("| shared % | shared TB/s | warp efficiency % |"), "{table}");
    assert!(table.contains("| 42 | 12.8 | 90 |"), "{table}");
    assert!(table.contains("| 0 | 0.0 | 100 |"), "{table}");
    // Grid size, threads (not recorded here) and waves.
    assert!(table.contains("| 128 | 1056 |  | 4.00 |") && table.contains("| 40 | 64 |  | 0.24 |"), "{table}");
    assert!(table.contains("| long_scoreboard 50%, wait 33% |"), "selected is no wait: {table}");
    assert!(table.contains("| wait 62%, long_scoreboard 12% |"), "{table}");
    assert!(table.contains("2 launches, 102.0 µs together"), "{table}");
    let told = fs::read_to_string(&told).unwrap();
    let told: Vec<&str> = told.lines().collect();
    let at = |word: &str| told.iter().position(|found| *found == word).unwrap();
    assert_eq!(told[at("--nvtx-include") + 1], "measure/");
    let metrics: Vec<&str> = told[at("--metrics") + 1].split(',').collect();
    for name in [
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        "launch__grid_size",
        "launch__waves_per_multiprocessor",
    ] {
        assert!(metrics.contains(&name), "`{name}` is not in {metrics:?}");
    }
    assert!(metrics.iter().all(|name| name.contains("__")), "counters of ncu alone: {metrics:?}");
    // The first --nvtx is ncu's, the one behind the program the program's.
    assert!(told[at("BENCH")..].contains(&"--nvtx") && at("--nvtx") < at("BENCH"), "{told:?}");
    assert_eq!(printed(&run(&["--csv", kept.to_str().unwrap()])).0, table);

    fs::write(&kept, "==ERROR== no permission").unwrap();
    let output = run(&["--csv", kept.to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(printed(&output).1.contains("no permission"));
}

#[test]
fn one_command_measures_everything_and_goes_on_without_pytorch() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let record = |name: &str, rest: &str| {
        executable(&folder, name, &format!("echo {name} \"$@\" >>'{}'\n{rest}", log.display()))
    };
    let write = r#"for word; do [ "${last:-}" != --json ] || echo '{}' >"$word"; last=$word; done"#;
    let (bench, plots) = (record("bench", write), record("plots", ""));
    let python =
        executable(&folder, "python", "echo \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1");
    let out = folder.path().join("measured");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(repository().join("scripts/measure-gpu"));
        command.args(arguments).env("BENCH", &bench).env("PLOTS", &plots).env("PYTHON", &python);
        command.env("ITERS", "7").output().unwrap()
    };
    let output = run(&[out.to_str().unwrap()]);
    let (text, errors) = printed(&output);
    assert!(output.status.success(), "{text}{errors}");
    assert!(errors.contains("no comparison with PyTorch: ModuleNotFoundError"), "{errors}");
    let out = out.display();
    assert_eq!(
        fs::read_to_string(&log).unwrap(),
        format!(
            "bench --iters 7 --json {out}/ours.json\n\
             bench --sweep --iters 7 --json {out}/ours-sweep.json\n\
             plots {out}/ours.json --out {out}/table\n\
             plots {out}/ours-sweep.json --out {out}/sweep\n"
        )
    );
    let output = run(&[&out.to_string(), "everything"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(printed(&output).1.contains("reference-sweep"), "the stages are listed");
}

#[test]
fn the_comparison_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let script = repository().join("benches/compare_gpu.py");
    let run = |torch: &str, arguments: &[&str]| {
        fs::write(folder.path().join("torch.py"), torch).unwrap();
        let mut command = Command::new("python3");
        // No compiled file is left behind, which the next stand-in could be taken for.
        command.arg("-B").arg(&script).args(arguments).env("PYTHONPATH", folder.path());
        let output = command.output().unwrap();
        (output.status.success(), printed(&output))
    };
    let missing = "raise ImportError('not here')";
    let (ok, (_, errors)) = run(missing, &["--check"]);
    assert!(
        !ok && errors.contains("PyTorch is needed (not here)") && errors.contains("pip install torch"),
        "{errors}"
    );
    let (ok, (help, errors)) = run(missing, &["--help"]);
    assert!(ok && help.contains("--sweep"), "{errors}");
    let blind = "class cuda:\n    is_available = staticmethod(lambda: False)\n__version__ = '2.11'";
    let (ok, (_, errors)) = run(blind, &["--ours", "x.json", "--out", "x"]);
    assert!(!ok && errors.contains("finds no CUDA device"), "{errors}");
    let (ok, (_, errors)) = run(blind, &["--out", "x"]);
    assert!(!ok && errors.contains("one of --binary and --ours"), "{errors}");
}

#[test]
fn a_pack_holds_the_tests_that_are_named_and_then_no_benches() {
    if Command::new("xz").arg("--version").output().is_err() {
        eprintln!("not tested: xz is not here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    fs::create_dir_all(target.join("gpu")).unwrap();
    for program in ["gradewise", "bench-plots"] {
        fs::write(target.join("gpu").join(program), program).unwrap();
    }
    let (log, fake) = (folder.path().join("log"), folder.path().join("fake"));
    fs::create_dir(&fake).unwrap();
    fs::write(fake.join("libcuda.so.1"), "").unwrap();
    let bench = folder.path().join("a-bench");
    fs::write(&bench, "").unwrap();
    let message = format!(r#"{{"kind":["bench"],"name":"operators","executable":"{}"}}"#, bench.display());
    let cargo = format!(
        "echo \"$@\" >>'{}'\ncase \"$*\" in *'--example folder'*) echo '{}' ;; *--benches*) echo '{message}' ;; esac",
        log.display(),
        fake.display()
    );
    executable(&folder, "cargo", &cargo);
    executable(&folder, "cargo-nextest", "");
    executable(&folder, "git", "if [ $1 = archive ]; then tar -c -T /dev/null; else echo abc; fi");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let run = |arguments: &[&str]| {
        let _ = fs::remove_file(&log);
        let output = Command::new(repository().join("scripts/pack-gpu"))
            .args(arguments)
            .env("PATH", &path)
            .env("CARGO_TARGET_DIR", &target)
            .output()
            .unwrap();
        (output, fs::read_to_string(&log).unwrap_or_default())
    };
    let held = |archive: &Path| {
        let output = Command::new("tar").arg("tJf").arg(archive).output().unwrap();
        printed(&output).0
    };

    let (output, told) = run(&["cuda_reduce", "cli"]);
    assert!(output.status.success(), "{}", printed(&output).1);
    assert!(told.contains("--features cuda --test cuda_reduce --test cli --cargo-profile gpu"), "{told}");
    assert!(!told.contains("--benches") && told.contains("--bin gradewise"), "{told}");
    let names = held(&target.join("gradewise-gpu.tar.xz"));
    assert!(names.contains("bin/gradewise") && names.contains("fake/libcuda.so.1"), "{names}");
    assert!(!names.contains("bin/bench-") && !names.contains("bench-plots"), "{names}");

    let out = folder.path().join("all.tar.xz");
    let (output, told) = run(&[out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", printed(&output).1);
    assert!(!told.contains("--test ") && told.contains("--benches"), "{told}");
    let names = held(&out);
    assert!(names.contains("bin/bench-operators") && names.contains("tools/bench-plots"), "{names}");

    let (output, told) = run(&["out/pack"]);
    assert!(output.status.code() == Some(2) && told.is_empty(), "{}", printed(&output).1);
    assert!(printed(&output).1.contains("usage: pack-gpu"), "{}", printed(&output).1);
}
