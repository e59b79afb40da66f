//! The list of commands in help, by what they are for.

/// The commands that come with programs; others are listed behind them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Train and use", &["train", "eval", "infer", "sample", "md"]),
    ("Look and carry", &["inspect", "compare", "export", "import"]),
    (
        "Prove",
        &["symmetry", "gradcheck", "verify", "stability", "compare-precision", "bisect", "expressivity"],
    ),
    ("Measure", &["bench", "memory", "profile"]),
    ("Machine", &["doctor", "hardware", "kernels", "debug", "report"]),
];

/// Columns of the list.
const COLUMNS: usize = 100;

/// "Commands:" and, under a heading for each group, the commands with the first clause of what they do. No line is blank.
pub(super) fn list(commands: &[clap::Command]) -> String {
    let about = |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let help = ("help", "Print this message or the help of a command".to_owned());
    let all: Vec<(&str, String)> =
        commands.iter().map(|command| (command.get_name(), about(command))).chain([help]).collect();
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut lines = vec!["Commands:".to_owned()];
    let mut group = |heading: &str, members: Vec<&(&str, String)>| {
        if members.is_empty() {
            return;
        }
        lines.push(format!(" {heading}"));
        for (name, about) in members {
            let mut line = format!("  {name:width$} ");
            for word in about.split([':', ';']).next().unwrap_or_default().split_whitespace() {
                if line.chars().count() + 1 + word.chars().count() > COLUMNS {
                    lines.push(std::mem::replace(&mut line, " ".repeat(width + 3)));
                }
                line.push(' ');
                line.push_str(word);
            }
            lines.push(line);
        }
    };
    for (heading, names) in GROUPS {
        group(heading, names.iter().filter_map(|name| all.iter().find(|(other, _)| other == name)).collect());
    }
    let is_known = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    group("More", all.iter().filter(|(name, _)| !is_known(name)).collect());
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::list;
    use clap::Command;

    #[test]
    fn commands_are_listed_by_groups_and_once() {
        let long = "word ".repeat(40);
        let commands = [
            Command::new("mine").about("Something of one\u{2019}s own; with a second clause"),
            Command::new("doctor").about("Check the GPU: and more"),
            Command::new("train").about(long.clone()),
        ];
        let text = list(&commands);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["Commands:", " Train and use"]);
        assert!(
            lines[2].starts_with("  train   word word") && lines[3].starts_with("          word"),
            "{text}"
        );
        assert_eq!(text.matches("word").count(), 40);
        let rest =
            [" Machine", "  doctor  Check the GPU", " More", "  mine    Something of one\u{2019}s own"];
        assert!(lines.windows(4).any(|four| four == rest), "{text}");
        assert_eq!(lines.last(), Some(&"  help    Print this message or the help of a command"));
        assert!(lines.iter().all(|line| !line.is_empty() && line.chars().count() <= 100));
    }
}
