//! Messages on a stream of bytes: a kind, a length, and so many bytes.

use std::io::{self, Read, Write};

/// The largest message of the control connection. What is larger goes over the data connection.
const LIMIT: usize = 64 << 20;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Proof that the sender knows the token.
    Hello = 1,
    /// The caller is one of us; proof that the answerer knows the token too.
    Accepted = 2,
    /// The caller is not, and why.
    Refused = 3,
    /// All are here.
    Welcome = 4,
    /// The sender lives.
    Ping = 5,
    /// A process is gone.
    Failed = 6,
    /// The sender is done.
    Bye = 7,
    /// Bytes of a channel.
    Data = 8,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        [Hello, Accepted, Refused, Welcome, Ping, Failed, Bye, Data]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

pub fn write(stream: &mut impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|length| *length as usize <= LIMIT);
    let Some(length) = length else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message longer than 64 MiB"));
    };
    let mut message = Vec::with_capacity(5 + payload.len());
    message.push(kind as u8);
    message.extend(length.to_le_bytes());
    message.extend(payload);
    stream.write_all(&message)?;
    stream.flush()
}

/// The next message, of at most `limit` bytes: who has not shown that it belongs here gets no memory.
pub fn read_at_most(stream: &mut impl Read, limit: usize) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let kind = Kind::from_byte(head[0]).filter(|_| length <= limit);
    let Some(kind) = kind else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no message of this program"));
    };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    Ok((kind, payload))
}

pub fn read(stream: &mut impl Read) -> io::Result<(Kind, Vec<u8>)> {
    read_at_most(stream, LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_noise_does_not() {
        let mut bytes = Vec::new();
        write(&mut bytes, Kind::Data, b"abc").unwrap();
        write(&mut bytes, Kind::Bye, b"").unwrap();
        let mut stream = bytes.as_slice();
        assert_eq!(read(&mut stream).unwrap(), (Kind::Data, b"abc".to_vec()));
        assert_eq!(read(&mut stream).unwrap(), (Kind::Bye, Vec::new()));
        assert_eq!(read(&mut stream).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read(&mut &b"GET / HTTP/1.1\r\n"[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&mut &[8, 255, 255, 255, 255][..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(read_at_most(&mut bytes.as_slice(), 2).is_err());
    }
}
