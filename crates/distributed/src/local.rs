//! Processes on this host, started and watched by one that computes nothing itself.

use crate::{Error, Result, random};
use std::{
    ffi::OsString,
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Set in processes that a [`Supervisor`] started. Their standard input ends when it does.
pub const SUPERVISED: &str = "GRADEWISE_SUPERVISED";

/// How often processes are looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts one process for each device of this host, and ends them together.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, the same for all.
    pub arguments: Vec<OsString>,
    /// Variables for all.
    pub variables: Vec<(String, String)>,
    /// Number of processes.
    pub world: usize,
    /// Folder for what ranks other than 0 say, as `rank-N.log`.
    pub logs: PathBuf,
    /// How long the others have to end by themselves when one has failed.
    pub grace: Duration,
}

/// How the first process ended that did not do its work.
#[derive(Clone, Debug)]
pub struct ChildFailure {
    /// Which one.
    pub rank: usize,
    /// How it ended.
    pub status: ExitStatus,
    /// The end of what it said, if that went to a file.
    pub said: String,
    /// That file.
    pub log: Option<PathBuf>,
}

struct Worker {
    child: Child,
    /// Kept open: its end tells the process that nobody watches it any more.
    input: Option<ChildStdin>,
    status: Option<ExitStatus>,
}

/// None of the processes outlives the supervisor.
struct Workers(Vec<Worker>);

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in self.0.iter_mut().filter(|worker| worker.status.is_none()) {
            // It may have ended meanwhile.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

impl Supervisor {
    /// Runs the processes until all have ended. When `stop` says so, rank 0 is asked to end the work in good order.
    ///
    /// # Errors
    /// [`Error::Process`] if one cannot be started. A process that fails is no error of this function, but its result.
    pub fn run(&self, stop: impl Fn() -> bool) -> Result<Option<ChildFailure>> {
        let process = |operation: String| move |source| Error::Process { operation, source };
        std::fs::create_dir_all(&self.logs).map_err(process(format!("make {}", self.logs.display())))?;
        let port = free_port().map_err(process("find a free port".to_owned()))?;
        let token = random::bytes::<32>().map_err(process("draw a token".to_owned()))?;
        let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut workers = Workers(Vec::new());
        for rank in 0..self.world {
            workers.0.push(self.start(rank, port, &token).map_err(process(format!("start rank {rank}")))?);
        }
        let (mut first, mut told, mut deadline) = (None, false, None);
        loop {
            for (rank, worker) in
                workers.0.iter_mut().enumerate().filter(|(_, worker)| worker.status.is_none())
            {
                worker.status = worker.child.try_wait().map_err(process(format!("watch rank {rank}")))?;
                let Some(status) = worker.status.filter(|status| !status.success()) else { continue };
                deadline = deadline.or(Some(Instant::now() + self.grace));
                // One that a signal ended is the cause, though others may be seen to have ended before.
                let is_cause = |first: ExitStatus| first.code().is_some() && status.code().is_none();
                if first.is_none_or(|(_, first)| is_cause(first)) {
                    first = Some((rank, status));
                }
            }
            if workers.0.iter().all(|worker| worker.status.is_some()) {
                return Ok(first.map(|(rank, status)| self.failure(rank, status)));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                // What ends now was not the cause.
                return Ok(first.map(|(rank, status)| self.failure(rank, status)));
            }
            if !told && stop() {
                told = true;
                if let Some(input) = workers.0.first_mut().and_then(|worker| worker.input.as_mut()) {
                    // One that is gone needs no telling.
                    let _ = input.write_all(b"stop\n").and_then(|()| input.flush());
                }
            }
            thread::sleep(PAUSE);
        }
    }

    fn log(&self, rank: usize) -> PathBuf {
        self.logs.join(format!("rank-{rank}.log"))
    }

    fn start(&self, rank: usize, port: u16, token: &str) -> std::io::Result<Worker> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.variables.iter().cloned()).stdin(Stdio::piped());
        for (name, number) in [
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("WORLD_SIZE", self.world),
            ("LOCAL_WORLD_SIZE", self.world),
        ] {
            command.env(name, number.to_string());
        }
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("GRADEWISE_PORT", port.to_string()).env("GRADEWISE_TOKEN", token).env(SUPERVISED, "1");
        if rank > 0 {
            let log = File::create(self.log(rank))?;
            command.stdout(log.try_clone()?).stderr(log);
        }
        let mut child = command.spawn()?;
        Ok(Worker { input: child.stdin.take(), child, status: None })
    }

    fn failure(&self, rank: usize, status: ExitStatus) -> ChildFailure {
        let log = (rank > 0).then(|| self.log(rank));
        let said = log.as_deref().map(tail).unwrap_or_default();
        ChildFailure { rank, status, said, log }
    }
}

/// The last lines of a file, as far as there are any.
fn tail(path: &Path) -> String {
    const BYTES: u64 = 4096;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// A port that nothing listens at now.
///
/// # Errors
/// From the system.
pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
