//! docs/troubleshooting.md: its commands are run, and what it says that they print is what they print.
//!
//! `GRADEWISE_REWRITE_DOCS=1` writes what they print into the page where it says something else; another value is the file to write.
#![cfg(unix)]

mod page;
#[path = "../common/program.rs"]
mod program;

use page::{Block, agree, blocks, rewritten, shown};
use program::program;
use std::{
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

const PAGE: &str = include_str!("../../docs/troubleshooting.md");
const KERNELS: bool = cfg!(feature = "cuda");

/// Runs a command line in a shell that finds the program; gives the exit code and everything it printed.
fn run(folder: &Path, command: &str, fake: Option<&str>) -> (i32, String) {
    let mut shell = Command::new("sh");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("GRADEWISE_") || name.starts_with("FAKE_")) {
            shell.env_remove(name);
        }
    }
    let program = program();
    let place = program.parent().expect("the program is in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", place.display())).env_remove("LD_LIBRARY_PATH");
    // What goes to a file of a block has no colours, whatever the terminal.
    shell.env("NO_COLOR", "1");
    // Tests begin in the folder of their package.
    shell.env("ROOT", std::env::current_dir().expect("there is a current folder"));
    if let Some(settings) = fake {
        shell.env("LD_LIBRARY_PATH", gradewise_fake_driver::folder()).env("FAKE_CUDA", settings);
    }
    let script = format!("exec 2>&1; {command}");
    let output = shell.current_dir(folder).args(["-c", &script]).output().expect("the shell starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let folder = folder.to_str().expect("temporary folders have names in UTF-8");
    let text = text.replace(&format!("{folder}/"), "").replace(gradewise_fake_driver::folder(), "/usr/lib");
    (output.status.code().unwrap_or(-1), text)
}

/// Why a block is not run here, if it is not.
fn skipped(block: &Block) -> Option<&'static str> {
    let options = &block.options;
    let driver = || gradewise_ffi::Driver::load().is_ok();
    match () {
        () if options.without_kernels && KERNELS => Some("this build has kernels"),
        () if options.without_driver && driver() => Some("this machine has a driver"),
        () if options.gpu && !KERNELS => Some("this build has no kernels"),
        () if options.gpu && !driver() => Some("this machine has no driver"),
        () => None,
    }
}

/// What each command of a block prints, or what is wrong with one.
fn outputs(block: &Block) -> Result<Vec<Vec<String>>, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The name that the system gives it, as the program would say it.
    let folder = folder.path().canonicalize().map(|path| (path, folder)).expect("it was just made");
    let options = &block.options;
    let fake = options.fake.as_deref();
    for command in &options.before {
        let (command, may_fail) = match command.strip_prefix("! ") {
            Some(command) => (command, true),
            None => (command.as_str(), false),
        };
        let (code, text) = run(&folder.0, command, fake);
        if code != 0 && !may_fail {
            return Err(format!("{}: `{command}` exits with {code}:\n{text}", block.title));
        }
    }
    let last = block.commands.len() - 1;
    let mut all = Vec::new();
    for (index, (command, _)) in block.commands.iter().enumerate() {
        let (code, text) = run(&folder.0, &format!("{command}{}", options.with), fake);
        let expected = if index == last { options.exit } else { 0 };
        if code != expected {
            return Err(format!("{}: `{command}` exits with {code}, not {expected}:\n{text}", block.title));
        }
        all.push(shown(&text, &options.keep));
    }
    Ok(all)
}

#[test]
fn its_commands_print_what_it_says() {
    let blocks = blocks(PAGE).unwrap();
    assert!(blocks.len() > 1);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((index, block)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    blocks.get(index).map(|block| (index, block))
                } {
                    let result = match skipped(block) {
                        Some(why) => {
                            eprintln!("{}: not run: {why}", block.title);
                            Ok(block.commands.iter().map(|(_, output)| output.clone()).collect())
                        }
                        None => outputs(block),
                    };
                    results.lock().unwrap().push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(index, _)| *index);
    let (mut wrong, mut kept) = (Vec::new(), Vec::new());
    for (block, (_, result)) in blocks.iter().zip(results) {
        let said: Vec<Vec<String>> = block.commands.iter().map(|(_, output)| output.clone()).collect();
        match result {
            Err(problem) => {
                wrong.push(problem);
                kept.push((block, said));
            }
            Ok(outputs) => {
                let agrees =
                    |(said, output): (&Vec<String>, &Vec<String>)| agree(said, output, &block.options);
                if said.iter().zip(&outputs).all(agrees) {
                    kept.push((block, said));
                } else {
                    let lines: Vec<String> =
                        outputs.iter().flatten().map(|line| format!("    {line}")).collect();
                    wrong.push(format!("{}: the output is\n{}", block.title, lines.join("\n")));
                    kept.push((block, outputs));
                }
            }
        }
    }
    if let Some(given) = std::env::var_os("GRADEWISE_REWRITE_DOCS") {
        let path = match given.to_str() {
            Some("1") => gradewise_testing::manifest_dir!().join("docs/troubleshooting.md"),
            _ => given.into(),
        };
        std::fs::write(path, rewritten(PAGE, &kept)).unwrap();
    }
    assert!(wrong.is_empty(), "GRADEWISE_REWRITE_DOCS=1 writes what is printed:\n{}", wrong.join("\n"));
}

/// The anchors of a page's headings.
fn headings(page: &str) -> Vec<String> {
    let anchor = |title: &str| -> String {
        let kept = title.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    let titles = page.lines().filter(|line| line.starts_with('#'));
    titles.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

/// A link that leads nowhere helps nobody.
#[test]
fn its_table_leads_to_its_headings() {
    let headings = headings(PAGE);
    let links: Vec<&str> = PAGE.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 2);
    for link in &links {
        assert!(headings.iter().any(|heading| heading == link), "#{link} is not among {headings:?}");
    }
}

/// Whoever looks for one of these finds a line with a link.
#[test]
fn every_symptom_has_a_line_with_a_link() {
    for symptom in [
        "shape mismatch",
        "not contiguous",
        "INVALID_IMAGE",
        "kernel not found",
        "NVRTC errors",
        "driver too old",
        "initialisation test",
        "shared memory exceeded",
        "wrong gradients",
        "broadcasting",
        "races",
        "crashes at random",
        "loss-scale underflow",
        "vanishing",
        "works at one size and fails at another",
        "slow first call",
        "slower than PyTorch",
        "process is lost",
        "low occupancy",
        "bank conflicts",
        "pipelining without effect",
        "launch overhead",
        "benchmarks that vary",
        "how to run one test",
        "CUDA_LAUNCH_BLOCKING",
    ] {
        let row = PAGE.lines().find(|line| {
            line.strip_prefix("| ")
                .and_then(|line| line.split(" | ").next())
                .is_some_and(|cell| cell.contains(symptom))
        });
        assert!(row.is_some_and(|row| row.contains("](")), "`{symptom}`: {row:?}");
    }
    for guide in ["cuda-driver-api/group__CUDA__TYPES.html", "wsl-user-guide"] {
        assert!(PAGE.contains(guide), "{guide}");
    }
}

#[test]
fn its_links_to_other_pages_lead_to_their_headings() {
    let docs = std::env::current_dir().unwrap().join("docs");
    let links: Vec<&str> = PAGE.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    for link in links.into_iter().filter(|link| !link.starts_with('#') && !link.starts_with("https://")) {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let text = std::fs::read_to_string(docs.join(file)).unwrap_or_else(|error| panic!("{link}: {error}"));
        assert!(heading.is_empty() || headings(&text).iter().any(|found| found == heading), "{link}");
    }
}

#[test]
fn pages_are_read_compared_and_rewritten() {
    let text = "## A b\n\n<!-- run: numbers; exit 1 -->\n<!-- run: keep x|y -->\n```console\n$ one\nx 1\n$ two\n```\nend\n";
    let found = blocks(text).unwrap();
    let [block] = &found[..] else { panic!("{found:?}") };
    assert_eq!((block.title.as_str(), block.options.exit, block.options.keep.len()), ("A b", 1, 2));
    assert_eq!(block.commands, [("one".to_owned(), vec!["x 1".to_owned()]), ("two".to_owned(), Vec::new())]);
    let output = shown("a\nb\nx 2 \nc\n", &block.options.keep);
    assert_eq!(output, ["…", "x 2", "…"]);
    let new = rewritten(text, &[(block, vec![output, vec!["y".to_owned()]])]);
    assert!(new.contains("```console\n$ one\n…\nx 2\n…\n$ two\ny\n```\nend\n"), "{new}");

    let lines = |text: &str| vec![text.to_owned()];
    for (a, b, same) in [
        ("loss 1.5e-3 in  2 s", "loss 12 in 30 s", true),
        ("loss -1.5", "loss 3", true),
        ("loss NaN", "loss 3", false),
        ("f32", "f64", false),
        ("step 1", "stop 1", false),
    ] {
        let [exact, numbers, sample] = ["exit 0", "numbers", "sample"].map(|option| {
            blocks(&format!("<!-- run: {option} -->\n```console\n$ x\n```\n")).unwrap().remove(0).options
        });
        assert_eq!(agree(&lines(a), &lines(b), &numbers), same, "{a} {b}");
        assert!(!agree(&lines(a), &lines(b), &exact));
        assert_eq!(agree(&lines(a), &lines(b), &sample), same || a.starts_with("step"), "{a} {b}");
    }
    for (text, part) in [
        ("```console\n$ x\n```\n", "has no `<!-- run"),
        ("<!-- run: fly -->\n```console\n$ x\n```\n", "no option `fly`"),
        ("<!-- run: numbers -->\n```console\nx\n```\n", "no command"),
        ("<!-- run: numbers -->\ntext\n", "should follow"),
        ("<!-- run: numbers -->\n```console\n$ x\n", "no end"),
    ] {
        assert!(blocks(text).unwrap_err().contains(part), "{text}");
    }
}
