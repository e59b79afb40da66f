//! The processes of a run: small messages between them, and a watch over who is alive.

use crate::{
    Error, Launch, Result,
    rendezvous::{
        self,
        frame::{self, Kind},
        handshake::Peer,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A process that is gone or gave up, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Which one.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Its number there.
    pub process: u32,
    /// What it said, or what was seen of it.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, host, process, reason } = self;
        write!(f, "rank {rank} ({host}, process {process}) {reason}")
    }
}

/// What a message belongs to: each channel keeps its own order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Channel {
    /// What all processes do together.
    Together = 0,
    /// What rank 0 announces ahead.
    Ahead = 1,
}

/// Messages that nobody asked for yet, by sender and channel.
type Inboxes = HashMap<(usize, u8), VecDeque<Vec<u8>>>;
type Watcher = Box<dyn Fn(&Failure) + Send>;

struct Shared {
    rank: usize,
    world: usize,
    peers: Vec<Peer>,
    /// By rank, as far as there is a connection.
    links: Vec<Option<Mutex<TcpStream>>>,
    inboxes: Mutex<Inboxes>,
    /// Something arrived, or failed.
    signal: Condvar,
    failure: Mutex<Option<Failure>>,
    watchers: Mutex<Vec<Watcher>>,
    left: Vec<AtomicBool>,
    ending: AtomicBool,
    timeout: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processes of a run.
///
/// Every process sends signs of life; one that ends, or stays silent for the timeout, is a [`Failure`] that all others learn of,
/// with its rank. Dropping a group that was not [left](Self::leave) is such a failure, too.
pub struct Group {
    shared: Arc<Shared>,
    data: Mutex<Option<Vec<Option<TcpStream>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Group {
    /// Waits until all processes of the run are here.
    ///
    /// # Errors
    /// [`Error::Missing`] at rank 0, with the ranks that did not come; elsewhere [`Error::Unreachable`] or [`Error::Refused`];
    /// [`Error::Listen`].
    pub fn join(launch: &Launch) -> Result<Self> {
        let meeting = rendezvous::meet(launch)?;
        let failed = Error::connection("rendezvous");
        let (mut links, mut data, mut readers) = (Vec::new(), Vec::new(), Vec::new());
        for (rank, seat) in meeting.seats.into_iter().enumerate() {
            let Some(seat) = seat else {
                links.push(None);
                data.push(None);
                continue;
            };
            seat.control.set_read_timeout(Some(launch.timeout)).map_err(&failed)?;
            seat.control.set_write_timeout(Some(launch.timeout)).map_err(&failed)?;
            seat.data.set_read_timeout(None).map_err(&failed)?;
            seat.data.set_write_timeout(None).map_err(&failed)?;
            readers.push((rank, seat.control.try_clone().map_err(&failed)?));
            links.push(Some(Mutex::new(seat.control)));
            data.push(Some(seat.data));
        }
        let shared = Arc::new(Shared {
            rank: launch.rank,
            world: launch.world,
            peers: meeting.peers,
            links,
            inboxes: Mutex::default(),
            signal: Condvar::new(),
            failure: Mutex::default(),
            watchers: Mutex::default(),
            left: (0..launch.world).map(|_| AtomicBool::new(false)).collect(),
            ending: AtomicBool::new(false),
            timeout: launch.timeout,
        });
        let mut threads = Vec::new();
        for (rank, stream) in readers {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.listen(rank, stream)));
        }
        let beating = Arc::clone(&shared);
        threads.push(thread::spawn(move || beating.beat()));
        Ok(Self { shared, data: Mutex::new(Some(data)), threads })
    }

    /// Which process this is.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Number of processes.
    pub fn world(&self) -> usize {
        self.shared.world
    }

    /// How long a process may be silent.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// Calls `watcher`, in a thread of its own, if a process fails; at once if one has.
    pub fn on_failure(&self, watcher: impl Fn(&Failure) + Send + 'static) {
        // Under the lock under which a failure is noted: one of the two sees the other.
        let known = lock(&self.shared.failure);
        match known.clone() {
            None => lock(&self.shared.watchers).push(Box::new(watcher)),
            Some(failure) => drop(thread::spawn(move || watcher(&failure))),
        }
    }

    /// The process that failed first, if one did.
    pub fn failure(&self) -> Option<Failure> {
        lock(&self.shared.failure).clone()
    }

    /// Nothing, if all processes are well as far as is known.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), |failure| Err(Error::Failed(failure)))
    }

    /// Tells the others that this process gives up, and why.
    pub fn give_up(&self, reason: &str) {
        self.shared.fail(self.shared.failure_of(self.shared.rank, reason.to_owned()));
    }

    /// What went wrong: the process whose end is behind `error`, if one becomes known soon.
    pub fn explain(&self, error: Error) -> Error {
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            if let Some(failure) = self.failure() {
                return Error::Failed(failure);
            }
            thread::sleep(Duration::from_millis(10));
        }
        error
    }

    /// What every process gives, by rank, at every process.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let all = if self.rank() == 0 {
            let mut all = vec![bytes.to_vec()];
            for rank in 1..self.world() {
                all.push(self.shared.receive(rank, Channel::Together)?);
            }
            let mut joined = Vec::new();
            for part in &all {
                joined.extend((part.len() as u64).to_le_bytes());
                joined.extend(part);
            }
            self.broadcast(&joined)?;
            return Ok(all);
        } else {
            self.shared.send(0, Channel::Together, bytes)?;
            self.broadcast(&[])?
        };
        let (mut rest, mut parts) = (all.as_slice(), Vec::new());
        while let Some((length, tail)) = rest.split_first_chunk::<8>() {
            let Some((part, tail)) = tail.split_at_checked(u64::from_le_bytes(*length) as usize) else {
                break;
            };
            parts.push(part.to_vec());
            rest = tail;
        }
        if parts.len() == self.world() {
            return Ok(parts);
        }
        let reason = format!("{} parts of {}", parts.len(), self.world());
        Err(Error::Connection { operation: "gather from all processes", reason })
    }

    /// What rank 0 gives, at every process; what others give is left aside.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn broadcast(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.spread(Channel::Together, bytes)
    }

    /// As [`all_gather`](Self::all_gather), of values.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn all_gather_values<T: Serialize + for<'a> Deserialize<'a>>(&self, value: &T) -> Result<Vec<T>> {
        let malformed = |error: serde_json::Error| Error::Connection {
            operation: "gather from all processes",
            reason: error.to_string(),
        };
        let all = self.all_gather(&serde_json::to_vec(value).map_err(malformed)?)?;
        all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(malformed)).collect()
    }

    /// Waits until every process calls it.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn barrier(&self) -> Result<()> {
        self.all_gather(&[]).map(|_| ())
    }

    /// Rank 0's word on what is to come, which others hear when they ask for it: rank 0 does not wait.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn announce(&self, word: u8) -> Result<()> {
        for rank in 1..self.world() {
            self.shared.send(rank, Channel::Ahead, &[word])?;
        }
        Ok(())
    }

    /// The next word of [`announce`](Self::announce), at ranks other than 0.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn heed(&self) -> Result<u8> {
        Ok(self.shared.receive(0, Channel::Ahead)?.first().copied().unwrap_or_default())
    }

    /// The end of the work: waits until all processes are there, and parts without a failure.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn leave(self) -> Result<()> {
        self.barrier()?;
        let shared = &self.shared;
        shared.ending.store(true, Ordering::SeqCst);
        for link in shared.links.iter().flatten() {
            let _ = frame::write(&mut *lock(link), Kind::Bye, &[]);
        }
        // A connection that is closed with something unread takes what was sent with it.
        let deadline = Instant::now() + Duration::from_secs(2);
        let here = |rank: usize| shared.links[rank].is_some() && !shared.left[rank].load(Ordering::SeqCst);
        let mut inboxes = lock(&shared.inboxes);
        while Instant::now() < deadline && (0..shared.world).any(here) {
            let pause = Duration::from_millis(50);
            inboxes = shared.signal.wait_timeout(inboxes, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// The connections for arrays, by rank; once.
    pub(crate) fn take_data(&self) -> Option<Vec<Option<TcpStream>>> {
        lock(&self.data).take()
    }

    fn spread(&self, channel: Channel, bytes: &[u8]) -> Result<Vec<u8>> {
        if self.rank() != 0 {
            return self.shared.receive(0, channel);
        }
        for rank in 1..self.world() {
            self.shared.send(rank, channel, bytes)?;
        }
        Ok(bytes.to_vec())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let shared = &self.shared;
        if !shared.ending.load(Ordering::SeqCst) {
            shared.fail(shared.failure_of(shared.rank, "ended before the work was done".to_owned()));
            shared.ending.store(true, Ordering::SeqCst);
        }
        for link in shared.links.iter().flatten() {
            let _ = lock(link).shutdown(Shutdown::Both);
        }
        drop(lock(&shared.inboxes));
        shared.signal.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there was none of the caller's.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group(rank {} of {})", self.rank(), self.world())
    }
}

impl Shared {
    fn failure_of(&self, rank: usize, reason: String) -> Failure {
        let Peer { host, process } = self.peers[rank].clone();
        Failure { rank, host, process, reason }
    }

    /// Takes note of a failure, the first one only, and passes it on.
    fn fail(self: &Arc<Self>, failure: Failure) {
        {
            let mut known = lock(&self.failure);
            if known.is_some() || self.ending.load(Ordering::SeqCst) {
                return;
            }
            *known = Some(failure.clone());
        }
        // Whoever waits looks at the failure under this lock.
        drop(lock(&self.inboxes));
        self.signal.notify_all();
        let words = serde_json::to_vec(&failure).unwrap_or_default();
        for (rank, link) in self.links.iter().enumerate() {
            if let Some(link) = link.as_ref().filter(|_| rank != failure.rank) {
                // A process that cannot be told is gone itself.
                let _ = frame::write(&mut *lock(link), Kind::Failed, &words);
            }
        }
        let watchers = std::mem::take(&mut *lock(&self.watchers));
        for watcher in watchers {
            let failure = failure.clone();
            // What one does may wait for a device that never answers, and the next may be what lets it answer.
            thread::spawn(move || watcher(&failure));
        }
    }

    fn send(self: &Arc<Self>, rank: usize, channel: Channel, bytes: &[u8]) -> Result<()> {
        let failed = || lock(&self.failure).clone().map(Error::Failed);
        if let Some(error) = failed() {
            return Err(error);
        }
        let Some(link) = self.links.get(rank).and_then(Option::as_ref) else {
            let reason = format!("there is no connection with rank {rank}");
            return Err(Error::Connection { operation: "send", reason });
        };
        let mut message = vec![channel as u8];
        message.extend(bytes);
        let sent = frame::write(&mut *lock(link), Kind::Data, &message);
        sent.map_err(|error| {
            let reason = ended(&error).unwrap_or_else(|| format!("cannot be reached: {error}"));
            self.fail(self.failure_of(rank, reason));
            failed().unwrap_or_else(|| Error::connection("send")(error))
        })
    }

    fn receive(&self, rank: usize, channel: Channel) -> Result<Vec<u8>> {
        let mut inboxes = lock(&self.inboxes);
        loop {
            if let Some(message) = inboxes.get_mut(&(rank, channel as u8)).and_then(VecDeque::pop_front) {
                return Ok(message);
            }
            if let Some(failure) = lock(&self.failure).clone() {
                return Err(Error::Failed(failure));
            }
            if self.left[rank].load(Ordering::SeqCst) {
                let reason = "left, while this process still had work with it".to_owned();
                return Err(Error::Failed(self.failure_of(rank, reason)));
            }
            inboxes = self.signal.wait(inboxes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads what a process says until it is done.
    fn listen(self: Arc<Self>, rank: usize, mut stream: TcpStream) {
        loop {
            match frame::read(&mut stream) {
                Ok((Kind::Ping, _)) => {}
                Ok((Kind::Data, mut message)) if !message.is_empty() => {
                    let channel = message.remove(0);
                    lock(&self.inboxes).entry((rank, channel)).or_default().push_back(message);
                    self.signal.notify_all();
                }
                Ok((Kind::Failed, words)) => {
                    if let Ok(failure) = serde_json::from_slice(&words) {
                        self.fail(failure);
                    }
                }
                Ok((Kind::Bye, _)) => {
                    self.left[rank].store(true, Ordering::SeqCst);
                    drop(lock(&self.inboxes));
                    self.signal.notify_all();
                    return;
                }
                Ok((kind, _)) => {
                    return self.fail(self.failure_of(rank, format!("said {kind:?} out of turn")));
                }
                Err(error) => {
                    let reason = match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                            format!("was silent for {} s", self.timeout.as_secs_f64())
                        }
                        _ => ended(&error).unwrap_or_else(|| format!("cannot be heard any more: {error}")),
                    };
                    return self.fail(self.failure_of(rank, reason));
                }
            }
        }
    }

    /// Sends signs of life, several within the time after which silence is a failure.
    fn beat(self: Arc<Self>) {
        let interval = (self.timeout / 5).min(Duration::from_secs(1));
        let mut inboxes = lock(&self.inboxes);
        let mut next = Instant::now();
        while !self.ending.load(Ordering::SeqCst) {
            if Instant::now() >= next {
                drop(inboxes);
                for link in self.links.iter().flatten() {
                    let _ = frame::write(&mut *lock(link), Kind::Ping, &[]);
                }
                next = Instant::now() + interval;
                inboxes = lock(&self.inboxes);
                continue;
            }
            let wait = next.saturating_duration_since(Instant::now());
            inboxes = self.signal.wait_timeout(inboxes, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What is to be said of the process at the other end if this error means that it has ended. Whether reading or writing notices first, and by
/// which error, depends on what was under way.
fn ended(error: &io::Error) -> Option<String> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
        .then(|| "ended without a word: it was killed or crashed".to_owned())
}
