//! What stands between backticks: paths, names in the sources, tests, and commands. All that a page names must be there.
//!
//! `docs/lab` is left out: its pages are dated, and name files as they were on their day.

use crate::repository::{Repository, is_word};

/// Files and names of other projects, of archives and of runs, and those that a page makes up for a user's own.
const OTHERS: &[&str] = &[
    // Of the archive of a report, and of a publication.
    "issue.md",
    "generate_dataset.py",
    // Of NVIDIA's profilers.
    "short_scoreboard",
    "long_scoreboard",
    "not_selected",
    "mio_throttle",
    "lg_throttle",
    "math_pipe_throttle",
    "cuda_gpu_kern_sum",
    "cuda_api_sum",
    "nvtx_kern_sum",
    // Of PyTorch and JAX.
    "aoti_torch_empty_strided",
    "custom_vjp",
    "disabled_checks",
    "index_put",
    // Of burn, CubeCL, cuda-core and rayon.
    "CubeTensor",
    "DeviceBuffer",
    "FlexTensor",
    "from_arc",
    "with_max_len",
];

/// Ends of files that are this repository's wherever they are named.
const CODE: [&str; 9] = ["rs", "cu", "cuh", "cpp", "py", "pyi", "md", "sh", "ipynb"];

/// Something that a page names and that is not there.
#[derive(Debug, PartialEq)]
pub struct Missing {
    pub line: usize,
    pub what: String,
}

/// Text of a page: between backticks, with what follows up to the next ones, or a line of a block of commands.
#[derive(Debug, PartialEq)]
pub enum Piece {
    Code { line: usize, text: String, after: String },
    Line { line: usize, text: String, at_root: bool },
}

/// The pieces of a page.
pub fn pieces(markdown: &str) -> Vec<Piece> {
    let (mut found, mut fence, mut prose) = (Vec::new(), None::<(usize, bool, bool)>, Vec::new());
    for (index, line) in markdown.lines().enumerate() {
        let start = line.trim_start();
        let mark = start.chars().take_while(|&c| c == '`').count();
        match &mut fence {
            Some((open, ..)) if mark >= *open && start.trim_end().len() == mark => fence = None,
            Some((_, commands, at_root)) => {
                if *commands {
                    // Other folders have programs of their own.
                    *at_root &= !start.starts_with("cd examples");
                    found.push(Piece::Line { line: index + 1, text: line.to_owned(), at_root: *at_root });
                }
            }
            None if mark >= 3 => {
                let kind = start[mark..].trim();
                fence = Some((mark, matches!(kind, "" | "sh" | "text" | "console"), true));
            }
            None => {
                prose.push((index + 1, line));
                continue;
            }
        }
        spans(&std::mem::take(&mut prose), &mut found);
    }
    spans(&prose, &mut found);
    found
}

/// Words between backticks, which may go on in the next line of a paragraph.
fn spans(lines: &[(usize, &str)], found: &mut Vec<Piece>) {
    let mut open: Option<(usize, String)> = None;
    for (line, text) in lines {
        let goes_on = open.is_some() && !text.trim().is_empty();
        if !goes_on {
            open = None;
        }
        for (position, part) in text.replace("``", "").split('`').enumerate() {
            if position > 0 {
                match open.take() {
                    Some((line, text)) => found.push(Piece::Code { line, text, after: String::new() }),
                    None => open = Some((*line, String::new())),
                }
            }
            match (&mut open, found.last_mut()) {
                (Some((_, text)), _) if position == 0 => *text += &format!(" {}", part.trim_start()),
                (Some((_, text)), _) => text.push_str(part),
                (None, Some(Piece::Code { after, .. })) if position > 0 => part.clone_into(after),
                _ => {}
            }
        }
    }
}

/// Everything that a page names and that is not there.
pub fn missing(repository: &Repository, markdown: &str) -> Vec<Missing> {
    let mut found = Vec::new();
    for piece in pieces(markdown) {
        let (line, faults) = match &piece {
            Piece::Code { line, text, after } => {
                let mut faults = code(repository, text);
                faults.extend(tests_after(repository, text, after));
                (*line, faults)
            }
            Piece::Line { line, text, at_root } => (*line, commands(repository, text, *at_root)),
        };
        found.extend(faults.into_iter().map(|what| Missing { line, what }));
    }
    found
}

fn code(repository: &Repository, text: &str) -> Vec<String> {
    let text = text.trim();
    if text.contains(' ') {
        return commands(repository, text, true);
    }
    word(repository, text).into_iter().collect()
}

/// What is wrong with a single word between backticks.
fn word(repository: &Repository, text: &str) -> Option<String> {
    let text = text.trim_end_matches([',', ';', '.']);
    if OTHERS.contains(&text) || text.contains(['<', '…', '$', '"', '\'']) {
        return None;
    }
    if let Some(option) = text.strip_prefix("--") {
        return option_anywhere(repository, option);
    }
    if looks_like_path(repository, text) {
        let (text, _) = text.split_once(':').unwrap_or((text, ""));
        let all = alternatives(text);
        return all
            .into_iter()
            .find(|path| repository.resolve(path).is_empty())
            .map(|path| format!("no file {path}"));
    }
    let name = text.split(['(', '=', '!', '[']).next().unwrap_or_default();
    if name.contains("::") {
        let mut parts = name.split("::").map(|part| part.trim_matches(['&', '*']));
        return parts
            .find(|part| !part.is_empty() && part.chars().all(is_word) && !repository.has_word(part))
            .map(|part| format!("no `{part}` of `{name}` in the sources"));
    }
    let is_name = name.chars().all(is_word) && name.starts_with(char::is_alphabetic);
    let is_checked = name.starts_with("GRADEWISE_")
        || name == name.to_lowercase() && name.trim_matches('_').contains('_')
        || is_type(name);
    (is_name && is_checked && !repository.has_word(name) && !repository.has_kernel(name))
        .then(|| format!("no `{name}` in the sources"))
}

/// A name of two or more words in capitals and small letters.
fn is_type(name: &str) -> bool {
    let humps = name
        .as_bytes()
        .windows(2)
        .filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    name.starts_with(char::is_uppercase) && humps.count() > 0 && !name.contains('_')
}

/// An option of the program, of a bench or of a script.
fn option_anywhere(repository: &Repository, option: &str) -> Option<String> {
    let name = option.split(['=', '[']).next().unwrap_or_default();
    let has = name.is_empty()
        || repository.help.has_option(&format!("--{name}"))
        || name.split('-').all(|part| repository.has_word(part))
        || repository.has_word(&name.replace('-', "_"));
    (!has).then(|| format!("no option --{name}"))
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (inside, after))) => {
            let each = inside.split(',').flat_map(|one| alternatives(&format!("{before}{one}{after}")));
            each.collect()
        }
        None => vec![path.to_owned()],
    }
}

fn looks_like_path(repository: &Repository, text: &str) -> bool {
    let plain = |c: char| is_word(c) || matches!(c, '/' | '.' | '-' | '*' | '{' | '}' | ',' | ':');
    if text.starts_with(['/', '~', '-'])
        || text.contains("::")
        || text.contains("//")
        || !text.chars().all(plain)
    {
        return false;
    }
    let path = text.split(':').next().unwrap_or_default().trim_start_matches("./");
    let first = path.split('/').next().unwrap_or_default();
    let end = path.rsplit_once('.').map_or("", |(_, end)| end);
    // A placeholder in capitals is no name.
    let is_given = path
        .split(['/', '.'])
        .all(|part| part.len() < 2 || part != part.to_uppercase() || part.contains('*'));
    is_given && (path.contains('/') && repository.has_root(first) || CODE.contains(&end))
}

/// Tests that are named behind the file that has them: `` `tests/cli.rs` the_first_operation… ``.
fn tests_after(repository: &Repository, text: &str, after: &str) -> Vec<String> {
    let files = repository.resolve(text.trim());
    if files.is_empty() || !looks_like_path(repository, text.trim()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in after.split([' ', ',', ';', '|']).skip_while(|name| name.is_empty()) {
        let (stem, whole) = name.strip_suffix('…').map_or((name, true), |stem| (stem, false));
        let is_name = stem.contains('_') && stem.chars().all(is_word);
        if !is_name {
            if name.is_empty() { continue } else { break }
        }
        if !repository.has_function(&files, stem, whole) {
            found.push(format!("no test `{name}` in {text}"));
        }
    }
    found
}

/// What is wrong with a line of commands. What is no command is not looked at.
fn commands(repository: &Repository, line: &str, at_root: bool) -> Vec<String> {
    let mut line = line.trim().trim_start_matches("$ ").to_owned();
    if let Some(at) = line.find(" #") {
        line.truncate(at);
    }
    for separator in ["&&", ";", "|", "→"] {
        line = line.replace(separator, "\n");
    }
    line.lines().flat_map(|part| command(repository, part, at_root)).collect()
}

/// A word of a command that stands for what a user puts there.
fn is_placeholder(word: &str) -> bool {
    word.contains(['<', '…', '$', '*']) || !word.chars().any(char::is_lowercase)
}

fn command(repository: &Repository, line: &str, at_root: bool) -> Vec<String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let mut found = Vec::new();
    // Columns behind a command, set apart by spaces, explain it.
    if let Some(at) = line.trim().find("    ") {
        words = line.trim()[..at].split_whitespace().collect();
    }
    while let Some((name, _)) = words.first().and_then(|word| word.split_once('=')) {
        if !name.chars().all(is_word) || name.is_empty() {
            break;
        }
        found.extend(word(repository, name));
        words.remove(0);
    }
    let Some(first) = words.first() else { return found };
    match *first {
        "cargo" => found.extend(cargo(repository, &words[1..], at_root)),
        "gradewise" => found.extend(program(repository, &words[1..])),
        // These start it.
        "torchrun" | "mpirun" | "srun" | "nsys" | "ncu" | "compute-sanitizer" => {
            if let Some(at) = words.iter().position(|word| *word == "gradewise") {
                found.extend(program(repository, &words[at + 1..]));
            }
        }
        script => {
            let script = if script == "python3" { words.get(1).copied().unwrap_or_default() } else { script };
            let is_path = script.contains('/') || script.ends_with(".py");
            let is_ours = is_path && looks_like_path(repository, script) && !OTHERS.contains(&script);
            if is_ours && repository.resolve(script).is_empty() {
                found.push(format!("no script {script}"));
            }
        }
    }
    found
}

fn cargo(repository: &Repository, words: &[&str], at_root: bool) -> Vec<String> {
    let mut found = Vec::new();
    let split = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (own, rest) = (&words[..split], words.get(split + 1..).unwrap_or_default());
    let is_test = own.first() == Some(&"test");
    let mut others = false;
    let mut index = 1;
    while let Some(&word) = own.get(index) {
        let (option, value) =
            word.split_once('=').unwrap_or((word, own.get(index + 1).copied().unwrap_or("")));
        let value = value.trim_end_matches(['.', ',']);
        let kind = match option {
            "-p" | "--package" | "--manifest-path" | "--features" | "-F" => option,
            "--test" | "--bench" | "--example" | "--bin" => option.trim_start_matches('-'),
            "--no-run" | "--release" | "--workspace" | "--no-deps" | "--open" | "--all-targets" | "--lib"
            | "--doc" => "",
            "--no-default-features" | "--all-features" => "",
            _ if option.starts_with('-') => option,
            _ => {
                // Of a test command, a part of a test's path.
                let known = !is_test
                    || is_placeholder(word)
                    || word.split("::").all(|part| repository.has_word_like(part));
                if !known {
                    found.push(format!("no test has {word} in its path"));
                }
                index += 1;
                continue;
            }
        };
        others |= !matches!(kind, "" | "--features" | "-F");
        if !kind.is_empty() && !is_placeholder(value) {
            let has = match kind {
                "-p" | "--package" => repository.packages.contains(value),
                "--manifest-path" => !repository.resolve(value).is_empty(),
                "--features" | "-F" => value.split(',').all(|feature| {
                    repository.features.contains(feature.rsplit('/').next().unwrap_or(feature))
                }),
                "test" | "bench" | "example" | "bin" => {
                    repository.targets.get(kind).is_some_and(|all| all.contains(value))
                }
                _ => true,
            };
            if !has {
                found.push(format!("no {} {value}", kind.trim_start_matches('-')));
            }
        }
        index += if word.contains('=') || kind.is_empty() { 1 } else { 2 };
    }
    match own.first() {
        Some(&"run") if at_root && !others => found.extend(program(repository, rest)),
        Some(&"test") => {
            let path = rest.iter().position(|word| *word == "--exact").and_then(|at| rest.get(at + 1));
            let name = path.and_then(|path| path.rsplit("::").next());
            if let Some(name) = name.filter(|name| !repository.has_function(&[], name, true)) {
                found.push(format!("no test {name}"));
            }
        }
        _ => {}
    }
    found
}

/// What is wrong with arguments of the program.
fn program(repository: &Repository, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let (mut help, mut path) = (&repository.help, String::from("gradewise"));
    // Below a placeholder any subcommand will do.
    let mut any = false;
    for (index, word) in words.iter().enumerate() {
        let word = word.trim_matches(['[', ']', ',', '(', ')']);
        if word == "--" {
            found.extend(program(repository, &words[index + 1..]));
            break;
        }
        if word.starts_with('-') && word.len() > 1 {
            let option = word.split('=').next().unwrap_or_default();
            let has = if any { help.has_option(option) } else { help.options.contains(option) };
            if !has && option.trim_start_matches('-').chars().all(|c| c.is_ascii_lowercase() || c == '-') {
                found.push(format!("no option {option} of `{path}`"));
            }
            let name = words.get(index + 1).copied().unwrap_or_default();
            if option == "--preset" && !is_placeholder(name) && !repository.help.has_preset(help, name) {
                found.push(format!("no preset {name} of `{path}`"));
            }
        } else if help.commands.is_empty() || word.is_empty() {
            // An argument.
        } else if is_placeholder(word) {
            any = true;
            if path != "gradewise" {
                continue;
            }
            break;
        } else if let Some(command) = help.commands.get(word) {
            help = command;
            path = format!("{path} {word}");
        } else if !any && !words[..index].iter().any(|word| word.starts_with('-')) {
            found.push(format!("no command {word} of `{path}`"));
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Missing, Piece, missing, pieces};
    use crate::repository::{Help, Repository, matches};

    /// A repository of a few files.
    fn repository() -> Repository {
        let mut made = Repository::default();
        for (file, text) in [
            ("src/main.rs", "fn main() {}"),
            ("crates/kernels/Cargo.toml", "[package]\nname = \"gradewise-kernels\"\n[features]\ncuda = []\n"),
            ("crates/kernels/src/ops/softmax.rs", "pub fn soft_max() {}\nconst GRADEWISE_POISON: u8 = 0;"),
            ("csrc/ops/softmax.cu", "gw_softmax_fwd_##NAME gw_softmax_bwd1"),
            ("crates/kernels/tests/cuda_edges.rs", "fn sums_follow_the_edges() {}"),
            ("scripts/get-nvcc", ""),
            ("docs/lab/notes.md", ""),
        ] {
            made.add(file, text);
        }
        let mut help = Help::of("Commands:\n  train  Train\n  doctor  Check\n\nOptions:\n  -v, --verbose\n");
        let mut train = Help::of("Commands:\n  nbody  Charges\n");
        train.commands.insert(
            "nbody".to_owned(),
            Help::of("Options:\n  --preset <NAME>  quick, or paper\n  --out <DIR>\n"),
        );
        help.commands.insert("train".to_owned(), train);
        made.help = help;
        made
    }

    #[test]
    fn what_is_there_is_found() {
        let page = "`src/main.rs`, `kernels/src/ops/softmax.rs`, `ops/softmax.rs:12`, `softmax.rs`, `crates/kernels/`, `cuda_*.rs`, \
            `tests/cuda_{edges}.rs` sums_follow…, `soft_max`, `softmax_fwd_f32`, `gw_softmax_bwd`, `GRADEWISE_POISON=1`, `--verbose`, `a/b`, `~/.cache/x.rs`, `TASK.rs`\n\n\
            `cargo test -p gradewise-kernels --test cuda_edges sums_follow`, `gradewise train nbody --preset paper --out DIR`, \
            `cargo run --release --features cuda -- train nbody\n--out run`\n\n```sh\n$ X=1 scripts/get-nvcc 12.9\n\
            gradewise train TASK --out run && gradewise doctor    # all\n```\n```rust\nmod nowhere;\n```\n";
        assert_eq!(missing(&repository(), page), []);
    }

    #[test]
    fn what_is_not_there_is_noticed_at_its_line() {
        for (text, what) in [
            ("`src/mean.rs`", "no file src/mean.rs"),
            ("`kernels/src/cuda/softmax.rs`", "no file kernels/src/cuda/softmax.rs"),
            ("`crates/{kernels,nowhere}/Cargo.toml`", "no file crates/nowhere/Cargo.toml"),
            ("`wgpu_*.rs`", "no file wgpu_*.rs"),
            ("`hard_max`", "no `hard_max` in the sources"),
            ("`GRADEWISE_POISONED`", "no `GRADEWISE_POISONED` in the sources"),
            ("`softmax::soft_min`", "no `soft_min` of `softmax::soft_min` in the sources"),
            ("`tests/cuda_edges.rs` products_follow…", "no test `products_follow…` in tests/cuda_edges.rs"),
            ("`cargo test --test cuda_nodes`", "no test cuda_nodes"),
            ("`cargo test -p gradewise-kernel`", "no p gradewise-kernel"),
            ("`cargo test -p gradewise-kernels products_follow`", "no test has products_follow in its path"),
            ("`cargo test -- --exact ops::tests::gone`", "no test gone"),
            ("`cargo build --features hip`", "no features hip"),
            ("`cargo run -- dance`", "no command dance of `gradewise`"),
            ("`gradewise train\nmbody`", "no command mbody of `gradewise train`"),
            ("`gradewise train nbody --at-twice 3`", "no option --at-twice of `gradewise train nbody`"),
            ("`gradewise train nbody --preset best`", "no preset best of `gradewise train nbody`"),
            ("`--at-twice`", "no option --at-twice"),
            ("```sh\nscripts/get-gcc\n```", "no script scripts/get-gcc"),
        ] {
            let page = format!("# Title\n\n{text}\n");
            let line = if text.starts_with("```") { 4 } else { 3 };
            assert_eq!(missing(&repository(), &page), [Missing { line, what: what.to_owned() }], "{text}");
        }
    }

    #[test]
    fn pages_are_taken_apart() {
        let found = pieces("a `b\nc` d\n```rust\n`e`\n```\n```sh\nf\n```\n");
        let code = Piece::Code { line: 1, text: "b c".to_owned(), after: " d".to_owned() };
        assert_eq!(found, [code, Piece::Line { line: 7, text: "f".to_owned(), at_root: true }]);
    }

    #[test]
    fn patterns_stay_within_a_part() {
        assert!(matches("a/*.rs", "a/b.rs") && matches("*_x*", "a_xb"));
        assert!(!matches("a/*.rs", "a/b/c.rs") && !matches("*.rs", "a.py"));
    }
}
