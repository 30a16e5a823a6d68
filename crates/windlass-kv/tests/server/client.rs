//! A client: writes bytes, reads replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Generous, as machines are loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    reader: BufReader<Box<dyn Read>>,
    writer: Box<dyn Write>,
}

/// A reply, as the protocol has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Array(Vec<Self>),
    Bulk(Vec<u8>),
    Error(String),
    Integer(i64),
    Null,
    Simple(String),
}

impl Client {
    pub(crate) fn tcp(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            writer: Box::new(stream.try_clone().unwrap()),
            reader: BufReader::new(Box::new(stream)),
        }
    }

    pub(crate) fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            writer: Box::new(stream.try_clone().unwrap()),
            reader: BufReader::new(Box::new(stream)),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).unwrap();
    }

    /// Sends a command of words, and reads its reply.
    pub(crate) fn call(&mut self, words: &str) -> Value {
        let args: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        self.call_args(&args)
    }

    pub(crate) fn call_args(&mut self, args: &[&[u8]]) -> Value {
        self.write(&encode(args));
        self.value()
    }

    /// Reads a reply.
    pub(crate) fn value(&mut self) -> Value {
        let raw = self.raw();
        let (value, rest) = parse(&raw);
        assert!(rest.is_empty());
        value
    }

    /// Reads the bytes of one reply.
    pub(crate) fn raw(&mut self) -> Vec<u8> {
        let mut raw = Vec::new();
        let mut left = 1_usize;
        while left > 0 {
            left -= 1;
            let start = raw.len();
            let count = self.reader.read_until(b'\n', &mut raw).unwrap();
            assert!(count > 0, "the connection ended");
            let line = std::str::from_utf8(&raw[start + 1..raw.len() - 2]).unwrap_or("");
            match raw[start] {
                b'$' | b'=' if !line.starts_with('-') => {
                    let len: usize = line.parse().unwrap();
                    let start = raw.len();
                    raw.resize(start + len + 2, 0);
                    self.reader.read_exact(&mut raw[start..]).unwrap();
                }
                b'*' | b'~' if !line.starts_with('-') => left += line.parse::<usize>().unwrap(),
                b'%' => left += 2 * line.parse::<usize>().unwrap(),
                b'+' | b'-' | b':' | b'$' | b'*' | b'_' => {}
                other => panic!("no reply begins with {:?}", char::from(other)),
            }
        }
        raw
    }

    /// Reads what comes until the connection ends.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).unwrap();
        rest
    }
}

pub(crate) fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Reads a value of version 2 of the protocol; answers what is behind it, too.
fn parse(raw: &[u8]) -> (Value, &[u8]) {
    let end = raw.windows(2).position(|two| two == b"\r\n").unwrap();
    let line = String::from_utf8(raw[1..end].to_vec()).unwrap();
    let mut rest = &raw[end + 2..];
    let value = match raw[0] {
        b'+' => Value::Simple(line),
        b'-' => Value::Error(line),
        b':' => Value::Integer(line.parse().unwrap()),
        _ if line == "-1" => Value::Null,
        b'$' => {
            let len: usize = line.parse().unwrap();
            let bulk = rest[..len].to_vec();
            rest = &rest[len + 2..];
            Value::Bulk(bulk)
        }
        b'*' => {
            let mut values = Vec::new();
            for _ in 0..line.parse().unwrap() {
                let (value, behind) = parse(rest);
                values.push(value);
                rest = behind;
            }
            Value::Array(values)
        }
        other => panic!("no value begins with {:?}", char::from(other)),
    };
    (value, rest)
}

impl Value {
    pub(crate) fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub(crate) fn into_array(self) -> Vec<Self> {
        match self {
            Self::Array(values) => values,
            other => panic!("{other:?} is no array"),
        }
    }

    pub(crate) fn into_bulk(self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("{other:?} is no bulk string"),
        }
    }
}
