//! The build script's parts: finding a compiler, choosing targets, reading ptxas' report, the cache of kernels.

#[allow(dead_code, reason = "the part that runs under cargo only is not called here")]
#[path = "../build/mod.rs"]
mod build;

use build::{
    cache::{self, Digest},
    compile, images, launch_headers,
    launch_table::{self, Launch},
    report::{self, Usage},
    sources::{self, Sources},
    targets,
    toolkit::{self, Search, Toolkit},
};
use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Duration};

fn toolkit() -> Toolkit {
    let architectures = ["75", "80", "86", "89", "90", "100", "120"].map(str::to_owned).to_vec();
    Toolkit { nvcc: "nvcc".into(), version: "13.0.88".to_owned(), architectures }
}

fn touch(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "").unwrap();
}

#[test]
fn nvcc_is_searched_in_the_documented_order() {
    let root = tempfile::tempdir().unwrap();
    let at = |place: &str| root.path().join(place).join(format!("nvcc{}", std::env::consts::EXE_SUFFIX));
    let mut search = Search {
        explicit: None,
        homes: vec![root.path().join("home"), root.path().join("path-variable")],
        path: Some(std::env::join_paths([root.path().join("x"), root.path().join("path")]).unwrap()),
        usual: vec![root.path().join("usual"), root.path().join("cache")],
    };
    let error = search.nvcc().unwrap_err();
    for hint in ["scripts/get-nvcc", "GRADEWISE_NVCC", "CUDA_HOME", "CPU", "usual"] {
        assert!(error.contains(hint), "{hint} in {error}");
    }
    // From the last resort to the first.
    for place in
        ["cache/9.2.1/bin", "cache/13.0.88/bin", "usual/cuda-12.9/bin", "usual/bin", "path", "home/bin"]
    {
        touch(&at(place));
        assert_eq!(search.nvcc().unwrap(), at(place));
    }
    search.explicit = Some(root.path().join("absent").into());
    assert!(
        search.nvcc().unwrap_err().contains("GRADEWISE_NVCC"),
        "a compiler that is named is not replaced"
    );
    touch(&root.path().join("mine"));
    search.explicit = Some(root.path().join("mine").into());
    assert_eq!(search.nvcc().unwrap(), root.path().join("mine"));
}

#[test]
fn the_newest_of_several_versions_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let search = Search { usual: vec![root.path().to_owned()], ..Search::default() };
    for version in ["13.0.88", "9.9.9", "13.10.1", "13.9.2", "part"] {
        touch(&root.path().join(version).join("bin").join(format!("nvcc{}", std::env::consts::EXE_SUFFIX)));
    }
    assert!(search.nvcc().unwrap().starts_with(root.path().join("13.10.1")));
}

#[test]
fn the_compilers_answers_are_understood() {
    let answer =
        "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\nBuild x\n";
    assert_eq!(toolkit::parse_version(answer).as_deref(), Some("13.0.88"));
    assert_eq!(toolkit::parse_version("Verbose release notes"), None);
    assert_eq!(toolkit::parse_architectures("sm_75\nsm_90\n"), ["75", "90"]);
    assert_eq!(toolkit().major(), 13);
}

#[test]
fn targets_are_the_default_ones_that_the_compiler_has_or_those_asked_for() {
    let new = toolkit();
    let all = ["75", "80", "86", "89", "90a", "100", "120"];
    for request in [None, Some(""), Some("all")] {
        assert_eq!(targets::choose(request, &new).unwrap(), all);
    }
    let old = Toolkit { architectures: ["70", "80", "90"].map(str::to_owned).to_vec(), ..toolkit() };
    assert_eq!(targets::choose(None, &old).unwrap(), ["70", "80", "90a"]);
    for request in ["80,90a", "sm_80;9.0a", " 8.0 90a 80 "] {
        assert_eq!(targets::choose(Some(request), &new).unwrap(), ["80", "90a"], "{request}");
    }
    let unsupported = targets::choose(Some("80,70"), &new).unwrap_err();
    assert!(unsupported.contains("sm_70") && unsupported.contains("75, 80"), "{unsupported}");
    for nonsense in ["hopper", "9", "90x", "a", "80,,x"] {
        assert!(
            targets::choose(Some(nonsense), &new).unwrap_err().contains("not an architecture"),
            "{nonsense}"
        );
    }
}

const MESSAGES: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gw_a_f32' for 'sm_75'
ptxas info    : Function properties for gw_a_f32
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 52 registers, used 1 barriers, 8192 bytes smem, 376 bytes cmem[0]
ptxas info    : Compile time = 13.170 ms
ptxas info    : Compiling entry function 'gw_a_f32' for 'sm_90a'
ptxas info    : Function properties for gw_a_f32
    96 bytes stack frame, 92 bytes spill stores, 108 bytes spill loads
ptxas info    : Function properties for __internal_helper
    8 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 96 bytes cumulative stack size
threads of a block of gw_a_f32: 256
";

#[test]
fn the_report_tells_kernels_with_spills_by_name() {
    let kernels = report::parse(MESSAGES);
    let usage = |target: &str, registers, shared, stack, spills| Usage {
        kernel: "gw_a_f32".to_owned(),
        target: target.to_owned(),
        threads: 256,
        registers,
        shared,
        stack,
        spills,
    };
    assert_eq!(kernels, [usage("75", 52, 8192, 0, 0), usage("90a", 255, 0, 104, 204)]);
    assert_eq!(report::spills(&kernels[..1]), None);
    let message = report::spills(&kernels).unwrap();
    assert!(message.contains("gw_a_f32 for sm_90a: 204 bytes, at 255 registers"), "{message}");
    assert!(message.contains("GRADEWISE_ALLOW_SPILLS") && !message.contains("sm_75"), "{message}");
    let table = report::table(&kernels);
    assert_eq!(table.lines().count(), 3);
    assert!(
        table
            .lines()
            .nth(2)
            .unwrap()
            .split_whitespace()
            .eq(["gw_a_f32", "90a", "256", "255", "0", "104", "204"])
    );
}

#[test]
fn portable_code_says_how_many_threads_a_block_has() {
    let ptx = ".visible .entry gw_a_f32(\n\t.param .u64 gw_a_f32_param_0\n)\n.maxntid 64, 2, 1\n.minnctapersm 4\n{\n}\n\
               .visible .entry gw_b_f32()\n{\n}\n.visible .entry gw_c_f32(\n)\n.maxntid 32\n{\n}\n";
    assert_eq!(
        report::bounds(ptx),
        "threads of a block of gw_a_f32: 128\nthreads of a block of gw_c_f32: 32\n"
    );
    let kernels = report::parse(&MESSAGES.replace("gw_a_f32: 256", "gw_b_f32: 256"));
    assert!(kernels.iter().all(|usage| usage.threads == 0), "of another kernel");
}

#[test]
fn headers_of_launches_become_modules() {
    let header = "// A comment.\n#pragma once\n#include \"x.cuh\"\n\nnamespace tile {\n/// Rows, and twice as many.\nconstexpr int ROWS = 16, \
                  TWICE = 2 * ROWS;  // Not documented.\nGW_HOST_DEVICE constexpr int pitch(int a) { return (a + 3) / 4 | 1; }\n\
                  GW_HOST_DEVICE constexpr int most(int a,\n    int b) {\n    return a < b ? b : a == 0 && b == 0 ? 1 << 4 : a;\n}\n}  \
                  // namespace tile\nnamespace other {\nconstexpr int ROWS = tile::pitch(tile::ROWS) % 7;\n}\n";
    let expected = "pub(crate) mod tile {\n/// Rows, and twice as many.\npub(crate) const ROWS: usize = 16;\n\
                    /// Rows, and twice as many.\npub(crate) const TWICE: usize = (2 * ROWS);\n\
                    pub(crate) const fn pitch(a: usize) -> usize {\n(((a + 3) / 4) | 1)\n}\n\
                    pub(crate) const fn most(a: usize, b: usize) -> usize {\n\
                    (if (a < b) { b } else { (if ((a == 0) && (b == 0)) { (1 << 4) } else { a }) })\n}\n}\n\
                    pub(crate) mod other {\npub(crate) const ROWS: usize = (super::tile::pitch(super::tile::ROWS) % 7);\n}\n";
    assert_eq!(launch_headers::translate(header).unwrap(), expected);
}

#[test]
fn what_a_header_of_launches_may_not_have_is_named_with_its_line() {
    for (nonsense, line) in [
        ("namespace a {\nconstexpr float X = 1;\n}", "line 2: `float`"),
        ("namespace a {\nconstexpr int X = 1.5;\n}", "line 2: `.`"),
        ("namespace a {\nconstexpr int X = 0x10;\n}", "line 2: `0x10`"),
        ("namespace a {\ntemplate <class T>\n}", "line 2: `template`"),
        ("namespace a {\nconstexpr int x(int y) { return y; }\n}", "line 2: `(`"),
        ("namespace a {\nGW_HOST_DEVICE constexpr int x(int y) { y += 1; return y; }\n}", "line 2: `y`"),
        ("namespace a {", "line 1: ``"),
        ("constexpr int X = 1;", "line 1: `constexpr`"),
    ] {
        let error = launch_headers::translate(nonsense).unwrap_err();
        assert!(error.starts_with(line) && error.contains("host_device.cuh"), "{nonsense}: {error}");
    }
}

/// The C++ compiler and the translation say the same numbers, of all headers there are.
#[test]
fn headers_of_launches_say_in_cpp_what_they_say_in_rust() {
    let csrc = sources::root(&gradewise_testing::manifest_dir!());
    let sources = Sources::read(&csrc).unwrap();
    let headers: Vec<&str> = sources.headers().filter(|path| path.ends_with("_launch.cuh")).collect();
    assert!(headers.len() >= 14, "{headers:?}");
    let mut program = "#include <cstdio>\n".to_owned();
    let mut checks = String::new();
    let mut main = String::new();
    for (index, header) in headers.iter().enumerate() {
        program += &format!("#include \"{header}\"\n");
        let mut namespace = "";
        for line in sources.text(header).unwrap().lines() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix("namespace ") {
                namespace = name.trim_end_matches(" {");
            } else if let Some(constants) = line.strip_prefix("constexpr int ") {
                for constant in constants.split(';').next().unwrap().split(", ") {
                    let name = constant.split(" = ").next().unwrap();
                    main += &format!("    std::printf(\"%d\\n\", {namespace}::{name});\n");
                    checks += &format!("    println!(\"{{}}\", {namespace}::{name});\n");
                }
            } else if let Some(function) = line.strip_prefix("GW_HOST_DEVICE constexpr int ") {
                let (name, parameters) = function.split_once('(').unwrap();
                let count = parameters.split(')').next().unwrap().split(", ").count();
                for seed in 1..=4 {
                    let arguments: Vec<String> =
                        (0..count).map(|at| ((seed * 37 + at * 11 + index) % 40 + 8).to_string()).collect();
                    let arguments = arguments.join(", ");
                    main += &format!("    std::printf(\"%d\\n\", {namespace}::{name}({arguments}));\n");
                    checks += &format!("    println!(\"{{}}\", {namespace}::{name}({arguments}));\n");
                }
            }
        }
    }
    program += &format!("int main() {{\n{main}}}\n");
    let modules = launch_headers::generate(&sources).unwrap();
    let translated = format!("#![allow(dead_code, unused_parens)]\n{modules}\nfn main() {{\n{checks}}}\n");
    let root = tempfile::tempdir().unwrap();
    let run = |compiler: std::ffi::OsString, source: &str, text: &str, flags: &[&str]| {
        let (source, program) = (root.path().join(source), root.path().join(format!("{source}.bin")));
        fs::write(&source, text).unwrap();
        let mut command = Command::new(&compiler);
        command.args(flags).arg(&csrc).arg("-o").arg(&program).arg(&source);
        match command.output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => panic!("{compiler:?}: {error}"),
        }
        Some(String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap())
    };
    let cpp = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let rust = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let in_cpp = run(cpp, "sizes.cpp", &program, &["-std=c++17", "-I"]);
    let in_rust = run(rust, "sizes.rs", &translated, &["--edition=2024", "-L"]);
    let (Some(in_cpp), Some(in_rust)) = (in_cpp, in_rust) else {
        eprintln!("skipped: no C++ or no Rust compiler");
        return;
    };
    assert!(in_cpp.lines().count() > 150, "{in_cpp}");
    assert_eq!(in_cpp, in_rust);
}

fn sources(files: &[(&str, &str)]) -> (tempfile::TempDir, build::Result<Sources>) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let sources = Sources::read(root.path());
    (root, sources)
}

#[test]
fn a_binary_depends_on_what_it_includes_and_on_nothing_else() {
    let digest = |types: &str, other: &str| {
        let (_root, sources) = sources(&[
            ("ops/a.cu", "#include \"a.cuh\"\n"),
            ("ops/a.cuh", "  # include <gradewise/types.cuh>\n"),
            ("ops/a_test.txt", "no source"),
            ("gradewise/types.cuh", types),
            ("gradewise/other.cuh", other),
        ]);
        let sources = sources.unwrap();
        assert_eq!(sources.kernels().collect::<Vec<_>>(), [("a", "ops/a.cu")]);
        assert_eq!(
            sources.headers().collect::<Vec<_>>(),
            ["gradewise/other.cuh", "gradewise/types.cuh", "ops/a.cuh"]
        );
        assert_eq!(sources.watched().count(), 4 + 3, "every file and directory");
        sources.digest("ops/a.cu", Digest::default()).unwrap().text()
    };
    assert_eq!(digest("1", "1"), digest("1", "2"));
    assert_ne!(digest("1", "1"), digest("2", "1"));
}

#[test]
fn headers_of_others_are_refused() {
    let (_root, sources) = sources(&[("ops/a.cu", "\n#include <cuda_fp16.h>\n")]);
    let error = sources.unwrap().digest("ops/a.cu", Digest::default()).err().unwrap();
    assert!(error.contains("ops/a.cu:2") && error.contains("cuda_fp16.h"), "{error}");
    assert!(
        Sources::read(Path::new("/absent/csrc")).err().unwrap().contains("/absent/csrc is not a directory")
    );
}

#[test]
fn without_kernels_there_is_no_build() {
    let (root, sources) = sources(&[("gradewise/types.cuh", "")]);
    let options = compile::Options {
        targets: vec!["90a".to_owned()],
        flags: String::new(),
        allow_spills: false,
        jobs: 1,
        cache: root.path().join("cache"),
    };
    assert!(compile::all(&sources.unwrap(), &toolkit(), &options).err().unwrap().contains("no *.cu"));
}

#[test]
fn sources_of_the_same_name_are_refused() {
    let (root, sources) = sources(&[("ops/a.cu", ""), ("clifford/a.cu", ""), ("clifford/b.cu", "")]);
    let sources = sources.unwrap();
    assert_eq!(sources.kernels().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b", "a"]);
    let options = compile::Options {
        targets: vec!["90a".to_owned()],
        flags: String::new(),
        allow_spills: false,
        jobs: 1,
        cache: root.path().join("cache"),
    };
    let error = compile::all(&sources, &toolkit(), &options).err().unwrap();
    assert!(error.contains("clifford/a.cu") && error.contains("ops/a.cu"), "{error}");
}

#[test]
fn a_symbol_has_one_owner() {
    let binary = |name: &str| compile::Binary {
        name: name.to_owned(),
        bytes: Vec::new(),
        usage: report::parse(MESSAGES),
    };
    assert_eq!(binary("a").kernels(), ["gw_a_f32"], "once, whatever the number of targets");
    assert!(compile::unique(&[binary("a")]).is_ok());
    let error = compile::unique(&[binary("a"), binary("b")]).unwrap_err();
    assert!(error.contains("gw_a_f32") && error.contains("a.cu") && error.contains("b.cu"), "{error}");
}

#[test]
fn digests_tell_lists_apart() {
    // The published digests of nothing and of `a`, the latter followed by its length.
    assert_eq!(Digest::default().text(), "6c62272e07bb014262b821756295c58d");
    let text = |list: &[&str]| list.iter().fold(Digest::default(), |digest, item| digest.with(item)).text();
    assert_ne!(text(&["ab", "c"]), text(&["a", "bc"]));
    assert_ne!(text(&["", "a"]), text(&["a", ""]));
    assert_eq!(text(&["a", "b"]), text(&["a", "b"]));
}

#[test]
fn cached_files_appear_whole_and_are_made_once() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("deep").join("cache");
    let failed = cache::file(&directory, "a", |out| {
        fs::write(out, "half").unwrap();
        Err("stopped".to_owned())
    });
    assert_eq!(failed.unwrap_err(), "stopped");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing is left of a failure");
    let made = cache::file(&directory, "a", |out| fs::write(out, "whole").map_err(|error| error.to_string()));
    assert_eq!(made.unwrap(), b"whole");
    let again = cache::file(&directory, "a", |_| panic!("made twice"));
    assert_eq!(again.unwrap(), b"whole");
}

#[test]
fn the_least_recently_used_files_go_first() {
    let root = tempfile::tempdir().unwrap();
    let now = std::time::SystemTime::now();
    for (age, name) in ["newest", "old", "oldest"].into_iter().enumerate() {
        let path = root.path().join(name);
        fs::write(&path, [0; 100]).unwrap();
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(now - Duration::from_secs(100 * age as u64)).unwrap();
    }
    cache::shrink_to(root.path(), 250);
    let mut left: Vec<_> =
        fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["newest", "old"]);
}

#[test]
fn the_generated_source_names_what_it_embeds() {
    let (root, sources) = sources(&[("gradewise/types.cuh", "// types\n")]);
    let sources = sources.unwrap();
    let without = images::generate(None, &sources, root.path(), false).unwrap();
    assert!(
        without.contains("IMAGES: &[Image] = &[\n]") && without.contains("TARGETS: &[&str] = &[]"),
        "{without}"
    );
    assert!(without.contains("PTX: &str = \"\"") && without.contains("\"gradewise/types.cuh\""), "{without}");
    let binary =
        compile::Binary { name: "fill".to_owned(), bytes: vec![1, 2, 3], usage: report::parse(MESSAGES) };
    let kernels = compile::Kernels {
        binaries: vec![binary],
        targets: vec!["75".to_owned(), "90a".to_owned()],
        version: "13.0.88".to_owned(),
    };
    let with = images::generate(Some(&kernels), &sources, root.path(), true).unwrap();
    for text in [
        "name: \"fill\"",
        "kernels: &[\"gw_a_f32\"]",
        "&[\"75\", \"90a\"]",
        "PTX: &str = \"75\"",
        "ASSERTIONS: bool = true",
        "\"13.0.88\"",
    ] {
        assert!(with.contains(text), "{text} in {with}");
    }
    assert_eq!(fs::read(root.path().join("fill.fatbin")).unwrap(), [1, 2, 3]);
}

#[test]
fn the_table_of_launches_is_sorted_and_names_each_kernel_once() {
    let launches = launch_table::parse("gw_b_f32 256 1024\ngw_a_f32 128 0\n").unwrap();
    let launch = |kernel: &str, threads, shared| Launch { kernel: kernel.to_owned(), threads, shared };
    assert_eq!(launches, [launch("gw_a_f32", 128, 0), launch("gw_b_f32", 256, 1024)]);
    assert!(
        launch_table::generate(&launches)
            .contains("(\"gw_a_f32\", 128, 0),\n    (\"gw_b_f32\", 256, 1024),\n")
    );
    assert!(launch_table::parse("gw_a_f32 1 2\ngw_a_f32 3 4\n").unwrap_err().contains("twice"));
    for nonsense in ["gw_a_f32 1", "gw_a_f32 1 two", "gw_a_f32 1 2 3"] {
        assert!(launch_table::parse(nonsense).unwrap_err().contains(nonsense));
    }
    let binaries =
        [compile::Binary { name: "a".to_owned(), bytes: Vec::new(), usage: report::parse(MESSAGES) }];
    launch_table::require(&launches[..1], &binaries).unwrap();
    assert!(launch_table::require(&launches, &binaries).unwrap_err().contains("gw_b_f32"));
}

/// The headers that the table reads need no device: an ordinary C++ compiler takes them.
#[test]
fn the_table_of_launches_is_printed_by_the_headers_of_kernels() {
    let csrc = sources::root(&gradewise_testing::manifest_dir!());
    let root = tempfile::tempdir().unwrap();
    let program = root.path().join("launch_table");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let arguments = ["-std=c++17", "-Wall", "-Werror", "-o"];
    let mut command = Command::new(&compiler);
    command.args(arguments).arg(&program).arg("-I").arg(&csrc).arg(csrc.join("launch_table.cpp"));
    match command.output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no C++ compiler ({compiler:?})");
            return;
        }
        Err(error) => panic!("{compiler:?}: {error}"),
    }
    let output = Command::new(program).output().unwrap();
    let launches = launch_table::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert!(launches.len() >= 60, "{}", launches.len());
    for Launch { kernel, threads, shared } in launches {
        assert!(threads % 32 == 0 && threads <= 1024 && shared <= 227 << 10, "{kernel}: {threads} {shared}");
    }
}

/// Files in `folder` and below, as paths relative to it with forward slashes.
fn files_in(folder: &Path) -> Vec<String> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(folder).unwrap().to_str().unwrap();
                files.push(path.replace(std::path::MAIN_SEPARATOR, "/"));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn every_kernel_is_compiled_and_every_header_included() {
    let csrc = sources::root(&gradewise_testing::manifest_dir!());
    let files = files_in(&csrc);
    let ends = |end: &str| files.iter().filter(|file| file.ends_with(end)).cloned().collect::<Vec<_>>();
    let sources = Sources::read(&csrc).unwrap();
    let mut compiled: Vec<_> = sources.kernels().map(|(_, path)| path.to_owned()).collect();
    compiled.sort();
    assert_eq!(compiled, ends(".cu"));
    // Headers that a kernel includes, directly or by way of others.
    let (mut reached, mut pending) = (BTreeSet::new(), compiled);
    while let Some(file) = pending.pop() {
        let text = fs::read_to_string(csrc.join(&file)).unwrap();
        let included = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
        pending.extend(included.filter(|&header| reached.insert(header.to_owned())).map(str::to_owned));
    }
    // If this fails: include the header, or delete it.
    assert_eq!(Vec::from_iter(reached), ends(".cuh"));
}

#[test]
fn kernels_of_multivectors_are_in_rooms() {
    let files = files_in(&sources::root(&gradewise_testing::manifest_dir!()).join("clifford"));
    let loose: Vec<_> = files.iter().filter(|file| !file.contains('/')).collect();
    assert!(loose.is_empty(), "they belong to clifford/block, product, linear or pointwise: {loose:?}");
}
