//! A random schedule of operations and cancels, against a model of what is in flight and of how
//! many bytes are under way.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::mem::{Discriminant, discriminant};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use windlass::proactor::{
    Completion, OpId, OpenOptions, Operation, Outcome, PoolId, Position, Repeat, SharedFd,
};
use windlass_sys::epoll::{IN, OUT};
use windlass_sys::fd::{Blocking, set_blocking};

use crate::harness::{
    BOTH, Make, Random, Scratch, Subject, as_file, connection, content, long_count, read, receive,
    send, shared, timeout,
};
use crate::sockets::{accept, socket};

pub(crate) fn each_operation_has_one_last_completion(make: Make) {
    schedule(make, first_seed(), long_count(), 0);
}

/// Which schedules are made.
pub(crate) fn first_seed() -> u64 {
    std::env::var("WINDLASS_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
}

/// Makes `count` operations. Of as many of a driver's steps as `faults` says one goes wrong.
pub(crate) fn schedule(make: Make, seed: u64, count: u64, faults: u32) {
    let guard = Guard(seed);
    let mut model = Model::new(make, seed);
    for step in 0..count {
        if faults > 0 && step % 64 == 0 {
            let event_loop = &mut model.subject.event_loop;
            event_loop
                .inject_faults(seed ^ step, faults, 64)
                .expect("a driver");
        }
        model.start_one();
        if model.random.below(4) == 0 {
            model.cancel_one();
        }
        // The more is in flight, the more is waited for.
        let limit = 150 + model.random.below(100) as usize;
        while model.in_flight.len() > limit {
            model.cancel_one();
            model.turn();
        }
        if model.random.below(3) == 0 {
            model.turn();
        }
    }
    model.finish();
    std::mem::forget(guard);
}

/// Tells the seed if the schedule fails.
struct Guard(u64);

impl Drop for Guard {
    fn drop(&mut self) {
        println!("WINDLASS_TEST_SEED={}", self.0);
    }
}

/// A stream: what is put in at one end comes out at the other.
struct Stream {
    from: SharedFd,
    to: SharedFd,
    put: u64,
    taken: u64,
}

#[derive(Clone, Copy)]
struct Flight {
    kind: Discriminant<Operation>,
    stream: Option<usize>,
}

struct Model {
    subject: Subject,
    random: Random,
    streams: Vec<Stream>,
    in_flight: BTreeMap<OpId, Flight>,
    listener: SharedFd,
    address: std::net::SocketAddr,
    file: SharedFd,
    pool: PoolId,
    path: CString,
    _scratch: Scratch,
}

impl Model {
    fn new(make: Make, seed: u64) -> Self {
        let mut subject = Subject::new(make);
        let mut streams = Vec::new();
        for mode in BOTH {
            for _ in 0..3 {
                let (from, to) = UnixStream::pair().expect("pair");
                set_blocking(from.as_fd(), mode).expect("set");
                set_blocking(to.as_fd(), mode).expect("set");
                streams.push((shared(from), shared(to)));
                let (from, to) = connection(mode);
                streams.push((from, shared(to)));
            }
        }
        let streams = streams.into_iter().map(|(from, to)| Stream {
            from,
            to,
            put: 0,
            taken: 0,
        });
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("name");
        let scratch = Scratch::new();
        let file = scratch.file(&content(50_000));
        let path = scratch.0.join("file");
        let path = CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
        let pool = subject.pool(4, 300);
        Self {
            subject,
            random: Random::new(seed),
            streams: streams.collect(),
            in_flight: BTreeMap::new(),
            listener: shared(listener),
            address,
            file,
            pool,
            path,
            _scratch: scratch,
        }
    }

    fn start_one(&mut self) {
        let at = self.random.below(self.streams.len() as u64) as usize;
        let (operation, stream) = match self.random.below(20) {
            0..5 => (self.putting(at), Some(at)),
            5..11 => (self.taking(at), Some(at)),
            _ => (self.other(at), None),
        };
        let kind = discriminant(&operation);
        let id = self.subject.start(operation);
        let before = self.in_flight.insert(id, Flight { kind, stream });
        assert!(before.is_none(), "{id:?} names two operations");
    }

    fn putting(&mut self, at: usize) -> Operation {
        let socket = Arc::clone(&self.streams[at].from);
        let length = 1 + self.random.below(3000);
        let bytes = content(length as usize);
        match self.random.below(6) {
            0 => Operation::SendFile {
                file: as_file(&self.file),
                offset: self.random.below(55_000),
                length,
                socket,
            },
            1 => Operation::SendZeroCopy {
                socket,
                payload: bytes.into(),
            },
            2 => Operation::SendMessage {
                socket,
                payloads: vec![bytes.into(), (&b"tail"[..]).into()],
                address: None,
            },
            3 => Operation::WriteVectored {
                fd: socket,
                payloads: vec![(&b"head"[..]).into(), bytes.into()],
                position: Position::Current,
            },
            4 => crate::harness::write(&socket, &bytes),
            _ => send(&socket, &bytes),
        }
    }

    fn taking(&mut self, at: usize) -> Operation {
        let socket = Arc::clone(&self.streams[at].to);
        let room = 1 + self.random.below(3000) as usize;
        match self.random.below(5) {
            0 => read(&socket, room),
            1 => Operation::ReceiveMessage {
                socket,
                buffers: (0..2).map(|_| Vec::with_capacity(room)).collect(),
            },
            2 => Operation::ReadVectored {
                fd: socket,
                buffers: (0..3).map(|_| Vec::with_capacity(room)).collect(),
                position: Position::Current,
            },
            3 => Operation::ReceiveMultishot {
                socket,
                pool: self.pool,
            },
            _ => receive(&socket, room),
        }
    }

    fn other(&mut self, at: usize) -> Operation {
        match self.random.below(9) {
            0 => accept(&self.listener, Repeat::Once),
            1 => accept(&self.listener, Repeat::Multishot),
            2 => Operation::Connect {
                socket: socket(libc::AF_INET, libc::SOCK_STREAM, Blocking::Nonblocking),
                address: self.address.into(),
            },
            3 => Operation::Poll {
                fd: Arc::clone(&self.streams[at].to),
                events: if self.random.below(2) == 0 { IN } else { OUT },
            },
            4 => Operation::OpenAt {
                directory: None,
                path: self.path.clone(),
                options: OpenOptions::default(),
            },
            5 => Operation::Statx {
                directory: None,
                path: self.path.clone(),
            },
            6 => Operation::Read {
                fd: Arc::clone(&self.file),
                buffer: Vec::with_capacity(100),
                position: Position::At(self.random.below(60_000)),
            },
            _ => timeout(Duration::from_micros(self.random.below(3000))),
        }
    }

    fn cancel_one(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let at = self.random.below(self.in_flight.len() as u64) as usize;
        let id = *self.in_flight.keys().nth(at).expect("in range");
        self.subject.event_loop.cancel(id);
    }

    fn turn(&mut self) {
        let event_loop = &mut self.subject.event_loop;
        event_loop
            .run_nonblocking(&mut self.subject.world)
            .expect("run");
        while let Some(completion) = self.subject.world.done.pop_front() {
            self.check(completion);
        }
    }

    fn check(&mut self, completion: Completion) {
        let id = completion.id;
        let flight = *self
            .in_flight
            .get(&id)
            .unwrap_or_else(|| panic!("stray {completion:?}"));
        let moved = match &completion.result {
            Ok(Outcome::Bytes(count)) => *count as u64,
            Ok(Outcome::Buffer(buffer)) => buffer.len() as u64,
            Ok(Outcome::Message(info)) => info.bytes as u64,
            Ok(_) => 0,
            Err(error) => {
                let code = error.raw_os_error();
                assert!(code == Some(libc::ECANCELED), "{completion:?}");
                0
            }
        };
        if let Some(at) = flight.stream {
            let stream = &mut self.streams[at];
            if is_taking(&completion, flight.kind) {
                stream.taken += moved;
            } else {
                stream.put += moved;
            }
        }
        if let Some(operation) = &completion.operation {
            assert_eq!(
                discriminant(operation),
                flight.kind,
                "another operation came back"
            );
            self.in_flight.remove(&id);
            if self.random.below(50) == 0 {
                self.subject.event_loop.inject_stray_completion(id);
            }
        } else {
            assert!(self.is_multishot(flight.kind), "{completion:?}");
        }
    }

    fn is_multishot(&self, kind: Discriminant<Operation>) -> bool {
        let accepts = accept(&self.listener, Repeat::Multishot);
        let receives = Operation::ReceiveMultishot {
            socket: Arc::clone(&self.file),
            pool: self.pool,
        };
        kind == discriminant(&accepts) || kind == discriminant(&receives)
    }

    /// Cancels everything, and counts what is left in the streams.
    fn finish(mut self) {
        while !self.in_flight.is_empty() {
            self.cancel_one();
            self.turn();
        }
        for _ in 0..10 {
            self.turn();
        }
        for (at, stream) in self.streams.iter().enumerate() {
            // What is under way arrives before the end does.
            windlass_sys::net::shutdown_write(stream.from.as_fd()).expect("shutdown");
            set_blocking(stream.to.as_fd(), Blocking::Blocking).expect("set");
            let mut rest = File::from(stream.to.try_clone().expect("duplicate"));
            let left = std::io::copy(&mut rest, &mut std::io::sink()).expect("read");
            assert_eq!(stream.put, stream.taken + left, "bytes of stream {at}");
        }
        let ended = self
            .subject
            .event_loop
            .run(&mut self.subject.world)
            .expect("run");
        assert_eq!(ended, windlass::StopReason::Empty);
        assert!(self.subject.world.done.is_empty());
    }
}

fn is_taking(completion: &Completion, kind: Discriminant<Operation>) -> bool {
    match &completion.operation {
        None => true,
        Some(
            Operation::Read { .. }
            | Operation::ReadVectored { .. }
            | Operation::Receive { .. }
            | Operation::ReceiveMessage { .. }
            | Operation::ReceiveMultishot { .. },
        ) => true,
        Some(operation) => {
            debug_assert_eq!(discriminant(operation), kind);
            false
        }
    }
}
