//! The page as text: its blocks of commands with what they print, and what comments say of how they are run.

use std::fmt::Write;

/// How the commands of a block are run: `<!-- run: OPTION; OPTION -->` lines before it, invisible to readers.
#[derive(Debug, Default, PartialEq)]
pub struct Options {
    /// `before COMMAND`: run first, in the same folder, not shown. What follows `!` may fail.
    pub before: Vec<String>,
    /// `with ARGUMENTS`: put after each command shown, to make it small.
    pub with: String,
    /// `exit CODE`: of the last command; 0 otherwise.
    pub exit: i32,
    /// `keep TEXT|TEXT`: shows only lines that have one of these, and `…` for the others.
    pub keep: Vec<String>,
    /// `numbers`: they may be others the next time.
    pub numbers: bool,
    /// `sample`: lines with numbers may be others altogether, such as rows that are sorted by time.
    pub sample: bool,
    /// `fake SETTINGS`: over the stand-in for the driver, set up so.
    pub fake: Option<String>,
    /// `without kernels`: shown for builds without the feature `cuda`.
    pub without_kernels: bool,
    /// `without driver`: shown for machines that have none.
    pub without_driver: bool,
    /// `gpu`: needs a GPU, and a build for it.
    pub gpu: bool,
}

/// A block of the page.
#[derive(Debug)]
pub struct Block {
    /// The heading that it is under.
    pub title: String,
    pub options: Options,
    /// Commands, each with the lines that are shown below it.
    pub commands: Vec<(String, Vec<String>)>,
    /// Its lines in the page, without the fences.
    pub lines: std::ops::Range<usize>,
}

impl Options {
    fn read(comments: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        for option in comments.iter().flat_map(|comment| comment.split(';')).map(str::trim) {
            let (name, value) = option.split_once(' ').unwrap_or((option, ""));
            match (name, value) {
                ("before", command) => options.before.push(command.to_owned()),
                ("with", arguments) => options.with = format!(" {arguments}"),
                ("exit", code) => options.exit = code.parse().map_err(|_| format!("exit code `{code}`"))?,
                ("keep", parts) => {
                    options.keep = parts.split('|').map(|part| part.trim().to_owned()).collect()
                }
                ("numbers", "") => options.numbers = true,
                ("sample", "") => options.sample = true,
                ("fake", settings) => options.fake = Some(settings.to_owned()),
                ("without", "kernels") => options.without_kernels = true,
                ("without", "driver") => options.without_driver = true,
                ("gpu", "") => options.gpu = true,
                _ => return Err(format!("there is no option `{option}`")),
            }
        }
        Ok(options)
    }
}

/// The blocks of a page: fences of `console` whose first line is a command.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let lines: Vec<&str> = page.lines().collect();
    let (mut blocks, mut title, mut comments) = (Vec::new(), String::new(), Vec::new());
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if let Some(heading) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            heading.clone_into(&mut title);
        } else if let Some(comment) = line.strip_prefix("<!-- run:").and_then(|rest| rest.strip_suffix("-->"))
        {
            comments.push(comment);
        } else if line == "```console" {
            let start = at;
            at += lines[at..].iter().position(|line| *line == "```").ok_or("a block has no end")?;
            if comments.is_empty() {
                return Err(format!("the block in line {start} has no `<!-- run: … -->` before it"));
            }
            let options = Options::read(&std::mem::take(&mut comments))
                .map_err(|error| format!("before line {start}: {error}"))?;
            let mut commands: Vec<(String, Vec<String>)> = Vec::new();
            for line in &lines[start..at] {
                match (line.strip_prefix("$ "), commands.last_mut()) {
                    (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
                    (None, Some((_, output))) => output.push((*line).to_owned()),
                    (None, None) => return Err(format!("line {} is no command", start + 1)),
                }
            }
            blocks.push(Block { title: title.clone(), options, commands, lines: start..at });
        } else if !line.is_empty() && !comments.is_empty() {
            return Err(format!("line {at}: a block should follow its `<!-- run: … -->`"));
        }
    }
    Ok(blocks)
}

/// What is shown of an output.
pub fn shown(output: &str, keep: &[String]) -> Vec<String> {
    const LEFT_OUT: &str = "…";
    let mut lines: Vec<String> = Vec::new();
    for line in output.trim_matches('\n').lines() {
        if keep.is_empty() || keep.iter().any(|part| line.contains(part)) {
            lines.push(line.trim_end().to_owned());
        } else if lines.last().is_none_or(|last| last != LEFT_OUT) {
            lines.push(LEFT_OUT.to_owned());
        }
    }
    lines
}

/// Whether two outputs are the same; where numbers may differ, each is as good as another, and so is what aligns them.
pub fn agree(shown: &[String], output: &[String], options: &Options) -> bool {
    let form = |line: &String| match (options.sample, options.numbers) {
        (true, _) => {
            let masked = masked(line);
            if masked.contains('#') { "#".to_owned() } else { masked }
        }
        (false, true) => masked(line),
        (false, false) => line.clone(),
    };
    shown.iter().map(form).eq(output.iter().map(form))
}

fn masked(line: &str) -> String {
    let mut form = String::new();
    let characters: Vec<char> = line.chars().collect();
    let mut at = 0;
    while at < characters.len() {
        let character = characters[at];
        if character.is_alphabetic() {
            // A name with digits is a name.
            while at < characters.len() && characters[at].is_alphanumeric() {
                form.push(characters[at]);
                at += 1;
            }
        } else if character.is_ascii_digit() {
            while at < characters.len() {
                let exponent = characters[at] == 'e'
                    && characters
                        .get(at + 1)
                        .is_some_and(|next| next.is_ascii_digit() || "+-".contains(*next));
                if exponent {
                    at += 1;
                } else if !(characters[at].is_ascii_digit() || characters[at] == '.') {
                    break;
                }
                at += 1;
            }
            if form.ends_with('-') {
                form.pop();
            }
            form.push('#');
        } else {
            if !(character.is_whitespace() && form.ends_with(' ')) {
                form.push(character);
            }
            at += 1;
        }
    }
    // A minus sign takes the place of a space.
    form.trim().to_owned()
}

/// The page with the outputs of its blocks replaced.
pub fn rewritten(page: &str, blocks: &[(&Block, Vec<Vec<String>>)]) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let mut text = String::new();
    let mut at = 0;
    for (block, outputs) in blocks {
        for line in &lines[at..block.lines.start] {
            let _ = writeln!(text, "{line}");
        }
        for ((command, _), output) in block.commands.iter().zip(outputs) {
            let _ = writeln!(text, "$ {command}");
            for line in output {
                let _ = writeln!(text, "{line}");
            }
        }
        at = block.lines.end;
    }
    for line in &lines[at..] {
        let _ = writeln!(text, "{line}");
    }
    text
}
