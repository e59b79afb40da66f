//! What the repository has that a page can name: files, words of its sources, functions, packages, targets, and the program's help.

use crate::program::program;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    path::Path,
    process::Command,
};

/// Folders that hold no sources.
const LEFT_OUT: [&str; 6] = [".git", "target", "runs", "shared", "node_modules", "__pycache__"];

/// Ends of files whose words count as the repository's.
const SOURCES: [&str; 13] =
    ["rs", "cu", "cuh", "cpp", "c", "h", "py", "pyi", "toml", "sh", "ipynb", "json", "lock"];

/// A command of the program: its subcommands, options, and the words of its help.
#[derive(Default)]
pub struct Help {
    pub commands: BTreeMap<String, Help>,
    pub options: BTreeSet<String>,
    pub words: HashSet<String>,
}

#[derive(Default)]
pub struct Repository {
    /// Paths of all files, relative to the root.
    files: Vec<String>,
    /// Files and folders by every end of their path: `a/b/c`, `b/c` and `c` for `a/b/c`.
    ends: HashMap<String, Vec<String>>,
    /// Identifiers in sources, and names of files without what follows the dot.
    words: HashSet<String>,
    /// Functions in Rust, by file.
    functions: HashMap<String, Vec<String>>,
    /// Pages of `docs` that sources name, with where they do.
    pub named_pages: Vec<(String, String)>,
    pub packages: BTreeSet<String>,
    pub features: BTreeSet<String>,
    /// Names of targets by kind: `test`, `bench`, `example`, `bin`.
    pub targets: HashMap<&'static str, BTreeSet<String>>,
    pub help: Help,
}

pub fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn walk(folder: &Path, root: &Path, files: &mut Vec<String>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(&path, root, files);
        } else {
            files.push(path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/"));
        }
    }
}

impl Repository {
    pub fn read(root: &Path) -> Self {
        let mut files = Vec::new();
        walk(root, root, &mut files);
        let mut found = Self::default();
        for file in files {
            let text = if is_source(&file) { fs::read_to_string(root.join(&file)).ok() } else { None };
            found.add(&file, text.as_deref().unwrap_or_default());
        }
        found.help = Help::of_program(&[]);
        found
    }

    /// Adds a file with its text, which is empty for files that are no sources.
    pub fn add(&mut self, file: &str, text: &str) {
        let mut parts: Vec<&str> = file.split('/').collect();
        while !parts.is_empty() {
            let whole = parts.join("/");
            for start in 0..parts.len() {
                let known = self.ends.entry(parts[start..].join("/")).or_default();
                if known.last() != Some(&whole) {
                    known.push(whole.clone());
                }
            }
            parts.pop();
        }
        let name = file.rsplit('/').next().unwrap_or(file);
        self.words.insert(name.split('.').next().unwrap_or(name).to_owned());
        self.words.extend(text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_owned));
        if file.ends_with(".rs") {
            let functions = text.split("fn ").skip(1).map(|rest| rest.split(|c| !is_word(c)).next().unwrap());
            self.functions.insert(file.to_owned(), functions.map(str::to_owned).collect());
        }
        for (index, line) in text.lines().enumerate() {
            for (at, _) in line.match_indices("docs/").filter(|(at, _)| !line[..*at].ends_with(['/', '"'])) {
                let page = line[at..]
                    .split(|c| !is_word(c) && !matches!(c, '/' | '-' | '.'))
                    .next()
                    .unwrap_or_default();
                if let Some(page) = page.trim_end_matches('.').strip_suffix(".md") {
                    self.named_pages.push((format!("{file}:{}", index + 1), format!("{page}.md")));
                }
            }
        }
        self.add_targets(file, text);
        self.files.push(file.to_owned());
    }

    fn add_targets(&mut self, file: &str, text: &str) {
        let parts: Vec<&str> = file.split('/').collect();
        for (kind, folder) in
            [("test", "tests"), ("bench", "benches"), ("example", "examples"), ("bin", "bin")]
        {
            let Some(at) = parts.iter().rposition(|part| *part == folder) else { continue };
            let name = match parts[at + 1..] {
                [file] => file.strip_suffix(".rs"),
                [folder, "main.rs"] => Some(folder),
                _ => None,
            };
            self.targets.entry(kind).or_default().extend(name.map(str::to_owned));
        }
        if !file.ends_with("Cargo.toml") {
            return;
        }
        let mut section = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_matches(['[', ']']);
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim().trim_matches('"').to_owned());
            match section {
                "package" if key == "name" => drop(self.packages.insert(value)),
                "features" => drop(self.features.insert(key.to_owned())),
                "bin" if key == "name" => drop(self.targets.entry("bin").or_default().insert(value)),
                _ => {}
            }
        }
    }

    /// The files and folders that a path names, by its end: of the repository, of a crate, or of a folder of sources.
    pub fn resolve(&self, path: &str) -> Vec<&str> {
        let path = path.trim_start_matches("./").trim_end_matches('/');
        if !path.contains('*') {
            return self.ends.get(path).into_iter().flatten().map(String::as_str).collect();
        }
        let found = self.ends.iter().filter(|(end, _)| matches(path, end));
        found.flat_map(|(_, files)| files.iter().map(String::as_str)).collect()
    }

    pub fn has_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Whether there is a kernel of that name, or several that begin with it. Macros put names of kernels together: the sources have
    /// their parts, `gw_mv_silu_fwd_` or `mv_split_single_fwd1`.
    pub fn has_kernel(&self, name: &str) -> bool {
        let symbol = if name.starts_with("gw_") { name.to_owned() } else { format!("gw_{name}") };
        let longer = |word: &str, name: &str| {
            word.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(|c: char| c == '_' || c.is_ascii_digit()))
        };
        let is_part = |word: &str| word.starts_with("gw_") && word.ends_with('_') && word.len() > 5;
        self.words.iter().any(|word| {
            longer(word, name) || longer(word, &symbol) || is_part(word) && symbol.starts_with(word.as_str())
        })
    }

    pub fn has_word_like(&self, part: &str) -> bool {
        self.words.iter().any(|word| word.contains(part))
    }

    /// Whether a function in these files, or below these folders, begins with `name`.
    pub fn has_function(&self, files: &[&str], name: &str, whole: bool) -> bool {
        let below = |file: &str| {
            files
                .iter()
                .any(|of| file == *of || file.strip_prefix(of).is_some_and(|rest| rest.starts_with('/')))
        };
        self.functions
            .iter()
            .filter(|(file, _)| files.is_empty() || below(file))
            .flat_map(|(_, functions)| functions)
            .any(|function| if whole { function == name } else { function.starts_with(name) })
    }

    /// The folders at the root.
    pub fn has_root(&self, folder: &str) -> bool {
        self.files.iter().any(|file| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
    }
}

fn is_source(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    match name.rsplit_once('.') {
        Some((_, end)) => SOURCES.contains(&end),
        None => true,
    }
}

/// Whether `text` fits a pattern in which `*` stands for anything within one part of a path.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    let most = rest.find('/').unwrap_or(rest.len());
    (0..=most).any(|end| rest.is_char_boundary(end) && matches(after, &rest[end..]))
}

impl Help {
    fn of_program(arguments: &[&str]) -> Self {
        let output = Command::new(program()).args(arguments).arg("--help").output().unwrap();
        let mut found = Self::of(&String::from_utf8_lossy(&output.stdout));
        for (name, help) in &mut found.commands {
            if name != "help" {
                *help = Self::of_program(&[arguments, &[name]].concat());
            }
        }
        found
    }

    /// Reads a help page.
    pub fn of(page: &str) -> Self {
        let mut found = Self::default();
        let mut section = "";
        for line in page.lines() {
            if !line.starts_with(' ') {
                section = line;
            }
            let start = line.trim_start();
            if section == "Commands:" && line.starts_with("  ") && !line.starts_with("   ") {
                let name = start.split(' ').next().unwrap_or_default();
                found.commands.insert(name.to_owned(), Self::default());
            }
            if start.starts_with('-') {
                let options = start.split([' ', ',', '=']).filter(|word| word.starts_with('-'));
                found.options.extend(options.map(str::to_owned));
            }
            found.words.extend(line.split([' ', ',', ':', '(', ')', ']']).map(str::to_owned));
        }
        found
    }

    /// Whether `train`'s help lists the preset, of this task or, for commands of any task, of one of them.
    pub fn has_preset(&self, command: &Self, name: &str) -> bool {
        let tasks = self.commands.get("train").map(|train| train.commands.values());
        command.words.contains(name)
            || tasks.into_iter().flatten().any(|task| task.words.contains(name) && !self.is_task(command))
    }

    fn is_task(&self, command: &Self) -> bool {
        self.commands
            .get("train")
            .is_some_and(|train| train.commands.values().any(|task| std::ptr::eq(task, command)))
    }

    /// Whether a command, or one below it, has the option.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.contains(option) || self.commands.values().any(|command| command.has_option(option))
    }
}
