//! Nothing that users rely on gets lost: the commands, options and arguments of every help page, and the settings of every task and
//! preset with their defaults, as they were when help.txt and settings/ were written. What was changed on purpose is in changed.txt.

#[path = "../common/program.rs"]
mod program;

use program::program;
use std::{collections::BTreeSet, process::Command};
use toml::{Table, Value};

const HELP: &str = include_str!("help.txt");
const CHANGED: &str = include_str!("changed.txt");

/// The settings of tasks: the name of the task and of its preset, and config.toml as a run wrote it.
const SETTINGS: [(&str, &str, &str); 16] = [
    ("nbody", "quick", include_str!("settings/nbody.toml")),
    ("nbody", "paper", include_str!("settings/nbody-paper.toml")),
    ("nbody", "substeps", include_str!("settings/nbody-substeps.toml")),
    ("volumes", "quick", include_str!("settings/volumes.toml")),
    ("volumes", "paper", include_str!("settings/volumes-paper.toml")),
    ("hulls", "quick", include_str!("settings/hulls.toml")),
    ("hulls", "paper", include_str!("settings/hulls-paper.toml")),
    ("o5", "quick", include_str!("settings/o5.toml")),
    ("o5", "paper", include_str!("settings/o5-paper.toml")),
    ("lorentz", "quick", include_str!("settings/lorentz.toml")),
    ("lorentz", "full", include_str!("settings/lorentz-full.toml")),
    ("forces", "quick", include_str!("settings/forces.toml")),
    ("forces", "full", include_str!("settings/forces-full.toml")),
    ("gpt", "quick", include_str!("settings/gpt.toml")),
    ("gpt", "small", include_str!("settings/gpt-small.toml")),
    ("gpt", "medium", include_str!("settings/gpt-medium.toml")),
];

/// Whether a word of a page is listed as changed.
fn is_changed(page: &str, word: &str) -> bool {
    CHANGED.lines().any(|line| line.split(" -- ").next().map(str::trim) == Some(&format!("{page}: {word}")))
}

/// The words of a help page that users type: subcommands, options with the names of their values, arguments, and values that can be
/// chosen.
fn words(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut section = "";
    for line in page.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with(' ') {
            section = line.trim();
        }
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        match section {
            "Commands:" if indent == 2 => found.extend(text.split_whitespace().next().map(str::to_owned)),
            "Options:" if text.starts_with('-') && indent <= 6 => {
                let end = text.find("  ").unwrap_or(text.len());
                found.extend(text[..end].split(", ").map(str::to_owned));
            }
            "Options:" if indent == 10 && text.starts_with("- ") => {
                found.extend(text[2..].split(':').next().map(|value| format!("value {value}")));
            }
            "Arguments:" if indent == 2 => found.extend(text.split_whitespace().next().map(str::to_owned)),
            _ => {}
        }
    }
    found
}

fn help(page: &str) -> String {
    let output = Command::new(program()).args(page.split_whitespace()).arg("--help").output().unwrap();
    assert!(output.status.success(), "{page} --help fails");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_command_option_and_argument_is_still_there() {
    let mut pages = 0;
    for part in HELP.split("### ").skip(1) {
        let (page, before) = part.split_once('\n').unwrap();
        let now = words(&help(page));
        let before = words(before);
        assert!(before.contains("-h") && now.contains("-h"), "`{page}` is not read as a help page");
        for word in &before {
            assert!(now.contains(word) || is_changed(page, word), "`{page}`: {word} is gone; now {now:?}");
        }
        pages += 1;
    }
    assert_eq!(pages, 31);
}

/// Calls `see` with the dotted key of each setting.
fn each(table: &Table, prefix: &str, see: &mut impl FnMut(String, &Value)) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => each(inner, &key, see),
            value => see(key, value),
        }
    }
}

/// The settings of a task with a preset.
fn settings(task: &str, preset: &str, folder: &std::path::Path) -> Table {
    let arguments = format!("train {task} --preset {preset} --settings");
    let output =
        Command::new(program()).current_dir(folder).args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    toml::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

#[test]
fn every_setting_has_its_type_and_its_default() {
    let folder = tempfile::tempdir().unwrap();
    for (task, preset, before) in SETTINGS {
        let now = settings(task, preset, folder.path());
        let mut seen = 0;
        each(&toml::from_str(before).unwrap(), "", &mut |key, expected| {
            seen += 1;
            let found = key.split('.').try_fold(None::<&Value>, |at, part| {
                Some(Some(at.map_or(Some(&now), Value::as_table)?.get(part)?))
            });
            let found = found.flatten();
            let listed = is_changed(&format!("train {task}"), &key);
            assert!(
                found == Some(expected) || listed,
                "{task} {preset}: {key} was {expected}, and is {found:?}"
            );
        });
        assert!(seen > 40, "{task} {preset}: {seen} settings");
    }
}
