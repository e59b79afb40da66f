//! A program: its tasks, its commands, and their dispatch.

mod groups;

use crate::{
    error::{Error, Result},
    output, process, run,
    task::{Task, TrainOption},
};
use clap::{ArgMatches, Args};
use gradewise_autograd::backend;
use gradewise_nn::choice::nearest;
use std::{
    any::{Any, TypeId},
    collections::HashMap,
    ffi::OsString,
    process::ExitCode,
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// A command that works without a task. The doc comment of the type is its help.
pub trait Command: Args + 'static {
    /// The word on the command line.
    const NAME: &'static str;

    /// Runs the command.
    ///
    /// # Errors
    /// Whatever ends the program with an exit code other than 0.
    fn run(&self, program: &Program) -> Result<()>;
}

/// A command that works on any task of the program. The doc comment of the type is its help.
pub trait TaskCommand: Args + 'static {
    /// The word on the command line.
    const NAME: &'static str;
    /// The input that was read to determine the task, such as checkpoints.
    type Input: 'static;

    /// Determines the task: returns its name and the input read for that. `None` if these arguments need no task and the command is
    /// complete.
    ///
    /// # Errors
    /// Files that cannot be read.
    fn start(&self) -> Result<Option<(String, Self::Input)>>;

    /// Runs the command on the task.
    ///
    /// # Errors
    /// Whatever ends the program with an exit code other than 0.
    fn run<T: Task>(&self, input: Self::Input) -> Result<()>;

    /// Adapts the arguments to the tasks of the program.
    fn arguments(command: clap::Command, tasks: &[Registered]) -> clap::Command {
        let names: Vec<&str> = tasks.iter().map(|task| task.name).collect();
        let help = match names.as_slice() {
            [] => "A task".to_owned(),
            [only] => (*only).to_owned(),
            [others @ .., last] => format!("{} or {last}", others.join(", ")),
        };
        command.mut_args(|argument| match argument.get_id().as_str() {
            "task" => argument.help(help.clone()).long_help(help.clone()),
            _ => argument,
        })
    }
}

/// [`TaskCommand::run`], instantiated for one task.
struct Work<C: TaskCommand>(fn(&C, C::Input) -> Result<()>);

/// A task of a program, type-erased.
pub struct Registered {
    /// [`Task::NAME`]
    pub name: &'static str,
    /// [`Task::ABOUT`]
    pub about: &'static str,
    /// [`Task::DETAILS`]
    pub details: &'static str,
    /// [`Task::EXAMPLES`]
    pub examples: &'static str,
    /// [`Task::OPTIONS`]
    pub options: &'static [TrainOption],
    /// Names and descriptions of [`Task::PRESETS`].
    pub presets: Vec<(&'static str, &'static str)>,
    /// A [`Work`] for each task command, by the type of its arguments.
    work: HashMap<TypeId, Box<dyn Any>>,
}

impl Registered {
    /// The task `T`, without commands.
    pub(crate) fn of<T: Task>() -> Self {
        Self {
            name: T::NAME,
            about: T::ABOUT,
            details: T::DETAILS,
            examples: T::EXAMPLES,
            options: T::OPTIONS,
            presets: T::PRESETS.iter().map(|preset| (preset.name, preset.about)).collect(),
            work: HashMap::new(),
        }
    }

    /// Registers a command for this task, which is `T`.
    pub(crate) fn serve<C: TaskCommand, T: Task>(&mut self) {
        self.work.insert(TypeId::of::<C>(), Box::new(Work::<C>(C::run::<T>)));
    }

    fn work<C: TaskCommand>(&self) -> Option<&Work<C>> {
        self.work.get(&TypeId::of::<C>())?.downcast_ref()
    }
}

/// A command of a program, type-erased.
pub(crate) struct Entry {
    name: &'static str,
    arguments: fn(&Program) -> clap::Command,
    run: fn(&Program, &ArgMatches) -> Result<()>,
}

/// Formats examples for help texts.
pub(crate) fn shown(examples: &str) -> String {
    let lines: Vec<String> = examples.lines().map(|line| format!("\n  {line}")).collect();
    format!("Examples:{}", lines.concat())
}

/// The parsed arguments; a usage error ends the program, as clap's own errors do.
/// What the log shows: the levels and targets of the variable `GRADEWISE_LOG`, such as `info` or `gradewise::operations=trace`.
fn log_filter(verbose: bool) -> Targets {
    let named = std::env::var("GRADEWISE_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    match named {
        // Errors of targets that are not named are shown all the same.
        Some(targets) if targets.default_level().is_none() => targets.with_default(LevelFilter::ERROR),
        Some(targets) => targets,
        None if verbose => Targets::new()
            .with_default(LevelFilter::DEBUG)
            .with_target("gradewise::operations", LevelFilter::TRACE),
        None => Targets::new().with_default(LevelFilter::WARN),
    }
}

fn parsed<A: Args>(matches: &ArgMatches) -> A {
    A::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

impl Entry {
    pub(crate) fn plain<C: Command>() -> Self {
        Self {
            name: C::NAME,
            arguments: |_| C::augment_args(clap::Command::new(C::NAME)),
            run: |program, matches| parsed::<C>(matches).run(program),
        }
    }

    pub(crate) fn task<C: TaskCommand>() -> Self {
        Self {
            name: C::NAME,
            arguments: |program| C::arguments(C::augment_args(clap::Command::new(C::NAME)), &program.tasks),
            run: |program, matches| {
                let arguments = parsed::<C>(matches);
                let Some((name, input)) = arguments.start()? else { return Ok(()) };
                match program.registered(&name)?.work::<C>() {
                    Some(Work(run)) => run(&arguments, input),
                    None => Err(Error::Usage(format!("`{}` does not serve the task `{name}`", C::NAME))),
                }
            },
        }
    }
}

/// A program: tasks, the commands for them, and commands of its own.
///
/// ```
/// use gradewise_runner::Program;
/// let program = Program::new().name("mine").about("What this program is for");
/// assert!(program.arguments().find_subcommand("doctor").is_some());
/// ```
pub struct Program {
    name: String,
    version: &'static str,
    about: &'static str,
    examples: &'static str,
    tasks: Vec<Registered>,
    commands: Vec<Entry>,
    launcher: Vec<OsString>,
}

impl Program {
    /// A program without tasks, named after its executable.
    pub(crate) fn with(commands: Vec<Entry>) -> Self {
        let executable = std::env::current_exe().ok();
        let name = executable.and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()));
        Self {
            name: name.unwrap_or_else(|| "gradewise".to_owned()),
            version: env!("CARGO_PKG_VERSION"),
            about: "Training, evaluation and tools",
            examples: "",
            tasks: Vec::new(),
            commands,
            launcher: Vec::new(),
        }
    }

    /// Sets its name, which is used in help and in advice about what to run next.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets the output of `--version` [default: the version of this crate].
    #[must_use]
    pub fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// Sets the first line of its help.
    #[must_use]
    pub fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// Sets the example command lines at the end of its help, one per line.
    #[must_use]
    pub fn examples(mut self, examples: &'static str) -> Self {
        self.examples = examples;
        self
    }

    /// Sets the words that start this program, if that is not the executable alone, such as `python -m NAME`. Commands that start more
    /// processes of the program, such as `train --devices 2`, use them.
    #[must_use]
    pub fn launcher(mut self, words: Vec<OsString>) -> Self {
        self.launcher = words;
        self
    }

    pub(crate) fn register(mut self, task: Registered) -> Self {
        self.tasks.retain(|other| other.name != task.name);
        self.tasks.push(task);
        self
    }

    /// Adds a command. It replaces an earlier one of the same name.
    #[must_use]
    pub fn command<C: Command>(mut self) -> Self {
        self.commands.retain(|command| command.name != C::NAME);
        self.commands.push(Entry::plain::<C>());
        self
    }

    /// Its tasks, in the order in which they were added.
    pub fn tasks(&self) -> &[Registered] {
        &self.tasks
    }

    /// Looks up a task by name.
    fn registered(&self, name: &str) -> Result<&Registered> {
        self.tasks.iter().find(|task| task.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.tasks.iter().map(|task| task.name).collect();
            let meant =
                nearest(name, &names).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            let list = match names.as_slice() {
                [] => "this program has none".to_owned(),
                [only] => format!("there is {only}"),
                [others @ .., last] => format!("there are {} and {last}", others.join(", ")),
            };
            Error::Usage(format!("there is no task `{name}`{meant}; {list}"))
        })
    }

    /// The definition of its command line, for clap.
    pub fn arguments(&self) -> clap::Command {
        let examples = match self.examples {
            "" => String::new(),
            some => format!("{}\n\n", shown(some)),
        };
        let command = clap::Command::new(self.name.clone())
            .version(self.version)
            .about(self.about)
            .after_help(format!("{examples}Exit codes: 0 done, 1 failed, 2 bad usage or input."))
            .max_term_width(110)
            .subcommand_required(true)
            .arg_required_else_help(true)
            .arg(
                clap::Arg::new("verbose")
                    .short('v')
                    .long("verbose")
                    .global(true)
                    .action(clap::ArgAction::SetTrue)
                    .help(
                        "Say more about what is being done: every operation with its shapes and its time, too (also \
                         GRADEWISE_LOG=trace)",
                    ),
            );
        let commands: Vec<clap::Command> =
            self.commands.iter().map(|entry| self.adapted((entry.arguments)(self))).collect();
        let list = groups::list(&commands);
        command
            .help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\nOptions:\n{{options}}{{after-help}}"))
            .subcommands(commands)
    }

    /// Replaces the names in examples by those of this program and its first task.
    fn adapted(&self, command: clap::Command) -> clap::Command {
        let Some(examples) = command.get_after_help().map(ToString::to_string) else { return command };
        let mut text = examples;
        if self.name != "gradewise" {
            text = text.replace("gradewise ", &format!("{} ", self.name));
        }
        if let Some(first) = self.tasks.first().filter(|_| self.tasks.iter().all(|task| task.name != "nbody"))
        {
            text = text.replace("nbody", first.name);
        }
        command.after_help(text)
    }

    /// Parses and runs a command; clap ends the process after `--help` and usage errors.
    ///
    /// # Errors
    /// Those of the command.
    pub(crate) fn dispatch(&self, matches: &ArgMatches) -> Result<()> {
        // Checked here for all commands, so that none fails later on.
        backend::from_environment().map_err(|error| Error::Usage(error.to_string()))?;
        gradewise_kernels::Options::from_environment().map_err(|error| Error::Usage(error.to_string()))?;
        let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
        match self.commands.iter().find(|entry| entry.name == name) {
            Some(entry) => (entry.run)(self, matches),
            None => Err(Error::Usage(format!("there is no command `{name}`"))),
        }
    }

    /// Parses a command line of this program; the first word is its name.
    pub(crate) fn parse(&self, words: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, clap::Error> {
        self.arguments().try_get_matches_from(words)
    }

    /// Runs the command line of this process: the body of a `main`.
    ///
    /// Commands that compute on the CPU make the thread that calls it one of the threads of rayon's global pool, and leave it there: `main`
    /// should return the exit code.
    pub fn main(self) -> ExitCode {
        run::mark_main_thread();
        ExitCode::from(self.run(std::env::args_os().collect()))
    }

    /// Runs a command line, whose first word is the name of the program. Returns the exit status: 0 done, 1 failed, 2 bad usage or input.
    ///
    /// It sets up the log and the panic hook of the process, so call it once.
    pub fn run(self, words: Vec<OsString>) -> u8 {
        output::set_program(&self.name);
        output::set_commands(self.commands.iter().map(|command| command.name).collect());
        process::set(&self.launcher, &words);
        let matches = match self.parse(words) {
            Ok(matches) => matches,
            Err(error) => {
                // There is nowhere left to report that the output is closed.
                let _ = error.print();
                return u8::try_from(error.exit_code()).unwrap_or(1);
            }
        };
        let log = fmt::layer().with_ansi(output::is_coloured()).with_writer(std::io::stderr).without_time();
        // Fails if the caller has set up a log, which is then used.
        let _ =
            tracing_subscriber::registry().with(log).with(log_filter(matches.get_flag("verbose"))).try_init();
        run::remember_panics();
        match self.dispatch(&matches) {
            Ok(()) => 0,
            Err(error) => {
                output::error(&error);
                error.exit_code()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(program: &Program, words: &str) -> String {
        let words = std::iter::once("mine").chain(words.split_whitespace()).map(OsString::from);
        program.dispatch(&program.parse(words).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn a_program_without_tasks_has_commands_and_says_that_it_has_no_tasks() {
        let program = Program::new().name("mine");
        program.arguments().debug_assert();
        assert_eq!(said(&program, "memory area"), "there is no task `area`; this program has none");
    }

    #[test]
    fn help_has_the_name_of_this_program() {
        let help = |name| {
            let arguments = Program::new().name(name).arguments();
            let doctor = arguments.find_subcommand("doctor").unwrap();
            doctor.get_after_help().unwrap().to_string()
        };
        assert!(help("gradewise").contains("gradewise doctor --quick"));
        assert!(help("mine").contains("  mine doctor --quick") && !help("mine").contains("gradewise"));
    }

    #[test]
    fn a_later_command_takes_the_place_of_an_earlier_one() {
        /// Fails.
        #[derive(Args)]
        struct Failing {}

        impl Command for Failing {
            const NAME: &'static str = "doctor";

            fn run(&self, _: &Program) -> Result<()> {
                Err(Error::Failed("on purpose".to_owned()))
            }
        }

        let program = Program::new().command::<Failing>();
        assert_eq!(said(&program, "doctor"), "on purpose");
    }
}
