//! Output of the program. A closed output (`| head`) is not an error.

use crate::error::{Error, Result};
use serde::Serialize;
use std::{
    borrow::Cow,
    cell::RefCell,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The name of the program that runs.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// The name of the program that runs, for advice such as "go on with: NAME train …". It is set by
/// [`Program::name`](crate::Program::name); without a program, it is `gradewise`.
pub fn program() -> &'static str {
    PROGRAM.get().map_or("gradewise", String::as_str)
}

/// Sets [`program`]; later calls have no effect.
pub(crate) fn set_program(name: &str) {
    let _ = PROGRAM.set(name.to_owned());
}

/// A value as indented JSON.
///
/// # Errors
/// Maps whose keys are not texts.
pub fn json(value: &impl Serialize) -> Result<String> {
    match serde_json::to_string_pretty(value) {
        Ok(json) => Ok(json + "\n"),
        Err(error) => Err(Error::Failed(format!("a result cannot be written as JSON: {error}"))),
    }
}

/// Prints a value as indented JSON.
///
/// # Errors
/// As [`json`]; from writing.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    print(&json(value)?)
}

/// Writes a value as indented JSON, in one step.
///
/// # Errors
/// As [`json`]; from writing.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let json = json(value)?;
    Ok(gradewise_nn::checkpoint::replace_file(path, |file| file.write_all(json.as_bytes()))?)
}

/// The commands of the program that runs.
static COMMANDS: OnceLock<Vec<&'static str>> = OnceLock::new();

/// Sets the commands that advice may name; later calls have no effect.
pub(crate) fn set_commands(names: Vec<&'static str>) {
    let _ = COMMANDS.set(names);
}

/// The commands that take an ensemble: `eval`, and in a program that has it `infer`, each within `quote`.
pub(crate) fn takers_of_ensembles(quote: &str) -> String {
    takers(COMMANDS.get().is_some_and(|names| names.contains(&"infer")), quote)
}

fn takers(has_infer: bool, quote: &str) -> String {
    let infer = if has_infer { format!(" and {quote}infer{quote}") } else { String::new() };
    format!("{quote}eval{quote}{infer}")
}

thread_local! {
    static NAME: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work` with its notes prefixed by a name, because several runs print notes concurrently.
pub fn named<R>(name: &str, work: impl FnOnce() -> R) -> R {
    let before = NAME.replace(Some(name.to_owned()));
    let result = work();
    NAME.set(before);
    result
}

/// Whether notes of this thread are prefixed by a name.
pub fn is_named() -> bool {
    NAME.with_borrow(Option::is_some)
}

/// Whether lines of the log may hold the escape sequences of colours: on a terminal that shows them, unless `NO_COLOR` or `CLICOLOR=0` is
/// set; elsewhere with `CLICOLOR_FORCE`. Help follows the same rules, separately for standard output and standard error.
pub fn is_coloured() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// Writes text to the standard output.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Output { path: PathBuf::from("the standard output"), reason: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// Writes a status line to the standard error.
pub fn note(text: &str) {
    let text = &*coloured(text);
    // There is nowhere left to report that the standard error is closed.
    let _ = NAME.with_borrow(|name| match name {
        None => writeln!(std::io::stderr(), "{text}"),
        Some(name) => {
            // Written at once, so that lines of other threads do not interleave.
            let lines: String = text.lines().map(|line| format!("{name}: {line}\n")).collect();
            std::io::stderr().lock().write_all(lines.as_bytes())
        }
    });
}

/// The text, with its first word in the colour of errors or warnings where the standard error shows colours, as in those of the parser of
/// the command line.
fn coloured(text: &str) -> Cow<'_, str> {
    let styles = [("error:", "\u{1b}[1;31m"), ("warning:", "\u{1b}[1;33m")];
    match styles.iter().find(|(word, _)| text.starts_with(word)) {
        Some((word, style)) if is_coloured() => {
            Cow::Owned(format!("{style}{word}\u{1b}[0m{}", &text[word.len()..]))
        }
        _ => Cow::Borrowed(text),
    }
}

/// Reports the error that ended a command.
pub fn error(error: &Error) {
    note(&format!("error: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_no_command_that_a_program_lacks() {
        assert_eq!(
            (takers(false, "`"), takers(true, "`")),
            ("`eval`".to_owned(), "`eval` and `infer`".to_owned())
        );
        // No program runs here.
        assert_eq!(takers_of_ensembles(""), "eval");
    }
}
