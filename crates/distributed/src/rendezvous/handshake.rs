//! How two processes make sure that they belong to the same run, without saying the token.
//!
//! Both sides draw a number; each proves that it knows the token by an HMAC-SHA256 over both numbers, the caller's rank, the number
//! of processes, and which side it is, so that no proof serves twice or for the other side.

use super::frame::{self, Kind};
use crate::random;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::{
    io::{self, Read},
    net::TcpStream,
    time::{Duration, Instant},
};

const GREETING: &[u8; 12] = b"gradewise/1\n";
const NONCE: usize = 32;
/// More than any greeting or refusal needs.
const LIMIT: usize = 4096;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// Small messages and signs of life.
    Control,
    /// Arrays.
    Data,
}

/// A process of the run, as it presents itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// The name of its host.
    pub host: String,
    /// Its number there.
    pub process: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub rank: usize,
    pub world: usize,
    pub purpose: Purpose,
    pub peer: Peer,
}

/// Reads a greeting, all of which must arrive in time: a timeout of each read alone would let a caller that sends one byte after another keep
/// its place for as long as it likes.
struct Timely<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Read for Timely<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "its greeting took too long"));
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(bytes)
    }
}

type Nonces = ([u8; NONCE], [u8; NONCE]);

fn proof(token: &str, side: &str, (server, client): &Nonces, hello: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(token.as_bytes()) else { unreachable!("any length") };
    for part in [side.as_bytes(), server, client, hello] {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

/// A caller that knows the token, and what it is to be told if it is taken.
pub struct Caller {
    pub hello: Hello,
    pub stream: TcpStream,
    answer: Vec<u8>,
}

impl Caller {
    pub fn accept(mut self) -> io::Result<TcpStream> {
        frame::write(&mut self.stream, Kind::Accepted, &self.answer)?;
        Ok(self.stream)
    }

    pub fn refuse(mut self, reason: &str) {
        // A caller that is gone need not be told.
        let _ = frame::write(&mut self.stream, Kind::Refused, reason.as_bytes());
    }
}

/// The answering side. `Err` has what is wrong with the caller, who was told.
pub fn answer(mut stream: TcpStream, token: &str, patience: Duration) -> Result<Caller, String> {
    let deadline = Instant::now() + patience;
    let nothing = |error: io::Error| format!("it said nothing that this program says ({error})");
    let server: [u8; NONCE] =
        random::bytes().map_err(|error| format!("no number could be drawn for it ({error})"))?;
    let mut greeting = GREETING.to_vec();
    greeting.extend(server);
    frame::write(&mut stream, Kind::Hello, &greeting).map_err(nothing)?;
    let (kind, payload) =
        frame::read_at_most(&mut Timely { stream: &stream, deadline }, LIMIT).map_err(nothing)?;
    stream.set_read_timeout(Some(patience)).map_err(nothing)?;
    let parsed = (|| {
        let rest = payload.strip_prefix(GREETING).filter(|_| kind == Kind::Hello)?;
        let (client, rest) = rest.split_first_chunk::<NONCE>()?;
        let (tag, hello) = rest.split_first_chunk::<32>()?;
        Some((*client, tag, hello))
    })();
    let Some((client, tag, hello)) = parsed else {
        return Err("it is no process of this program, or of another version".to_owned());
    };
    let nonces = (server, client);
    if proof(token, "caller", &nonces, hello).verify_slice(tag).is_err() {
        let reason = "its token is another one: GRADEWISE_TOKEN must be the same in all processes";
        let _ = frame::write(&mut stream, Kind::Refused, reason.as_bytes());
        return Err(reason.to_owned());
    }
    let answer = proof(token, "answerer", &nonces, hello).finalize().into_bytes().to_vec();
    let hello: Hello = serde_json::from_slice(hello).map_err(|error| format!("its greeting: {error}"))?;
    Ok(Caller { hello, stream, answer })
}

/// Why a caller was not let in.
pub enum Denied {
    /// The other side says so, or is not who it should be.
    Refused(String),
    /// The connection did not hold.
    Broken(io::Error),
}

impl From<io::Error> for Denied {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The calling side.
pub fn call(stream: &mut TcpStream, token: &str, hello: &Hello, patience: Duration) -> Result<(), Denied> {
    let deadline = Instant::now() + patience;
    let stranger = || Denied::Refused("what listens there is no process of this program".to_owned());
    let (kind, payload) =
        frame::read_at_most(&mut Timely { stream, deadline }, LIMIT).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => stranger(),
            _ => Denied::Broken(error),
        })?;
    let server = payload.strip_prefix(GREETING).filter(|_| kind == Kind::Hello);
    let Some(server) = server.and_then(|server| <[u8; NONCE]>::try_from(server).ok()) else {
        return Err(stranger());
    };
    let nonces = (server, random::bytes()?);
    let hello = serde_json::to_vec(hello).map_err(io::Error::from)?;
    let tag = proof(token, "caller", &nonces, &hello).finalize().into_bytes();
    let mut message = GREETING.to_vec();
    message.extend(nonces.1);
    message.extend(tag.as_slice());
    message.extend(&hello);
    frame::write(stream, Kind::Hello, &message)?;
    let answer = frame::read_at_most(&mut Timely { stream, deadline }, LIMIT)?;
    stream.set_read_timeout(Some(patience))?;
    match answer {
        (Kind::Accepted, tag) => match proof(token, "answerer", &nonces, &hello).verify_slice(&tag) {
            Ok(()) => Ok(()),
            Err(_) => Err(Denied::Refused("what listens there does not know the token".to_owned())),
        },
        (Kind::Refused, reason) => Err(Denied::Refused(String::from_utf8_lossy(&reason).into_owned())),
        _ => Err(stranger()),
    }
}
