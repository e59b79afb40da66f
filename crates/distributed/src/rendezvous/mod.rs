//! How the processes of a run find each other: all of them call rank 0, which listens at one address.

pub mod frame;
pub mod handshake;

use crate::{Error, Launch, Result, host::host_name};
use frame::Kind;
use handshake::{Caller, Denied, Hello, Peer, Purpose};
use std::{
    collections::VecDeque,
    io,
    net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// How long a caller has to say who it is: for its whole greeting.
const GREETING: Duration = Duration::from_secs(5);
/// Callers that are listened to at the same time. Where one more comes, the one that has been silent for longest makes room: processes of the
/// run greet within milliseconds.
const CALLERS: usize = 256;
/// Stack of the thread that listens to a caller; a greeting has at most some kilobytes.
const STACK: usize = 256 << 10;
/// The most reasons of refusals that an error tells.
const REASONS: usize = 16;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Both connections of a process with another one.
pub struct Seat {
    pub control: TcpStream,
    pub data: TcpStream,
}

/// All processes of a run, connected: rank 0 with each, the others with rank 0.
pub struct Meeting {
    /// By rank; none with oneself, and among ranks other than 0.
    pub seats: Vec<Option<Seat>>,
    pub peers: Vec<Peer>,
}

/// This process, for the others' messages.
pub fn this_process() -> Peer {
    let host = host_name().unwrap_or_else(|| "this host".to_owned());
    Peer { host, process: std::process::id() }
}

/// Waits until all processes are here.
pub fn meet(launch: &Launch) -> Result<Meeting> {
    let token = launch.token.as_deref().ok_or(Error::NoToken { world: launch.world })?;
    if launch.rank == 0 { host(launch, token) } else { visit(launch, token) }
}

fn host(launch: &Launch, token: &str) -> Result<Meeting> {
    let address = format!("{}:{}", launch.host, launch.port);
    let listen = |source| Error::Listen { address: address.clone(), source };
    let listener = TcpListener::bind((launch.host.as_str(), launch.port)).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let deadline = Instant::now() + launch.timeout;
    let (sender, callers) = mpsc::channel();
    // Callers whose greeting is awaited, the oldest first.
    let mut listening: VecDeque<(u64, TcpStream)> = VecDeque::new();
    let mut calls = 0u64;
    let mut seats: Vec<[Option<TcpStream>; 2]> = (0..launch.world).map(|_| [None, None]).collect();
    let mut peers = vec![this_process(); launch.world];
    let mut refused = Vec::new();
    let is_missing = |seats: &[[Option<TcpStream>; 2]], rank: usize| seats[rank].iter().any(Option::is_none);
    while (1..launch.world).any(|rank| is_missing(&seats, rank)) {
        if Instant::now() >= deadline {
            let missing: Vec<usize> = (1..launch.world).filter(|&rank| is_missing(&seats, rank)).collect();
            let (world, timeout) = (launch.world, launch.timeout);
            let error = Error::Missing { address, world, missing, timeout, refused };
            for control in seats.iter_mut().filter_map(|seat| seat[0].as_mut()) {
                let _ = frame::write(control, Kind::Refused, error.to_string().as_bytes());
            }
            return Err(error);
        }
        // All that have called, but no more than there are places: each that comes then ends the wait of another.
        for _ in 0..CALLERS {
            let (stream, from) = match listener.accept() {
                Ok(caller) => caller,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The caller has gone again before it was answered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(listen(error)),
            };
            if listening.len() >= CALLERS
                && let Some((_, slowest)) = listening.pop_front()
            {
                // Its thread sees the end of the stream.
                let _ = slowest.shutdown(Shutdown::Both);
            }
            calls += 1;
            // Without a second handle, or a thread, its caller will try again.
            let Ok(handle) = stream.try_clone() else { continue };
            let (sender, token, call) = (sender.clone(), token.to_owned(), calls);
            let work = move || {
                let found = prepare(&stream).map_err(|error| error.to_string());
                let found = found.and_then(|()| handshake::answer(stream, &token, GREETING));
                // Nobody waits for a caller that comes too late.
                let _ = sender.send((call, found.map_err(|reason| format!("{from}: {reason}"))));
            };
            if thread::Builder::new().stack_size(STACK).spawn(work).is_ok() {
                listening.push_back((call, handle));
            }
        }
        let mut heard = callers.recv_timeout(PAUSE);
        // All that have greeted, before others are listened to.
        while let Ok((call, found)) = heard {
            listening.retain(|(waiting, _)| *waiting != call);
            match found {
                Ok(caller) => take(caller, launch, &mut seats, &mut peers, &mut refused),
                Err(reason) => {
                    tracing::warn!("rendezvous: a caller was refused: {reason}");
                    refused.truncate(REASONS - 1);
                    refused.push(reason);
                }
            }
            heard = callers.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
    }
    let welcome = serde_json::to_vec(&peers).unwrap_or_default();
    let mut met = Vec::with_capacity(launch.world);
    for [control, data] in seats {
        let (Some(mut control), Some(data)) = (control, data) else {
            met.push(None);
            continue;
        };
        // One that is gone again is missed by the monitor, which says who.
        let _ = frame::write(&mut control, Kind::Welcome, &welcome);
        met.push(Some(Seat { control, data }));
    }
    Ok(Meeting { seats: met, peers })
}

/// Gives a caller its seat, if there is one for it.
fn take(
    caller: Caller,
    launch: &Launch,
    seats: &mut [[Option<TcpStream>; 2]],
    peers: &mut [Peer],
    refused: &mut Vec<String>,
) {
    let Hello { rank, world, purpose, peer } = caller.hello.clone();
    let mut refuse = |caller: Caller, reason: String| {
        tracing::warn!("rendezvous: a caller was refused: {reason}");
        caller.refuse(&reason);
        refused.push(reason);
    };
    if world != launch.world {
        return refuse(
            caller,
            format!("it was started as one of {world} processes, rank 0 as one of {}", launch.world),
        );
    }
    let Some(seat) = seats.get_mut(rank).filter(|_| rank > 0) else {
        return refuse(caller, format!("there is no rank {rank} among {world} besides the one that listens"));
    };
    let seat = &mut seat[usize::from(purpose == Purpose::Data)];
    if seat.is_some() {
        return refuse(
            caller,
            format!("rank {rank} is here already: process {} of {}", peers[rank].process, peers[rank].host),
        );
    }
    if let Ok(stream) = caller.accept() {
        *seat = Some(stream);
        peers[rank] = peer;
    }
}

fn visit(launch: &Launch, token: &str) -> Result<Meeting> {
    let address = format!("{}:{}", launch.host, launch.port);
    let deadline = Instant::now() + launch.timeout;
    let mut control = enter(launch, token, Purpose::Control, deadline)?;
    let data = enter(launch, token, Purpose::Data, deadline)?;
    // Rank 0 says by its own deadline who is missing.
    let patience = deadline.saturating_duration_since(Instant::now()) + GREETING;
    let unreachable = |error: io::Error| Error::Unreachable {
        address: address.clone(),
        timeout: launch.timeout,
        reason: error.to_string(),
    };
    control.set_read_timeout(Some(patience)).map_err(unreachable)?;
    match frame::read(&mut control).map_err(unreachable)? {
        (Kind::Welcome, peers) => {
            let peers = serde_json::from_slice(&peers).map_err(|error| unreachable(error.into()))?;
            let mut seats: Vec<Option<Seat>> = (0..launch.world).map(|_| None).collect();
            seats[0] = Some(Seat { control, data });
            Ok(Meeting { seats, peers })
        }
        (_, reason) => Err(Error::Refused { address, reason: String::from_utf8_lossy(&reason).into_owned() }),
    }
}

/// Calls rank 0, which may not listen yet, until it answers.
fn enter(launch: &Launch, token: &str, purpose: Purpose, deadline: Instant) -> Result<TcpStream> {
    let address = format!("{}:{}", launch.host, launch.port);
    let hello = Hello { rank: launch.rank, world: launch.world, purpose, peer: this_process() };
    let attempt = || -> Result<TcpStream, Denied> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for target in (launch.host.as_str(), launch.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&target, GREETING) {
                Ok(mut stream) => {
                    prepare(&stream)?;
                    handshake::call(&mut stream, token, &hello, GREETING)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(Denied::Broken(last))
    };
    loop {
        match attempt() {
            Ok(stream) => return Ok(stream),
            Err(Denied::Refused(reason)) => return Err(Error::Refused { address, reason }),
            Err(Denied::Broken(error)) if Instant::now() >= deadline => {
                let (timeout, reason) = (launch.timeout, error.to_string());
                return Err(Error::Unreachable { address, timeout, reason });
            }
            Err(Denied::Broken(_)) => thread::sleep(PAUSE),
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING))?;
    stream.set_write_timeout(Some(GREETING))
}
