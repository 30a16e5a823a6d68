//! Small queues, no descriptors left, and a loop that ends with much in flight.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use windlass::event_loop::{EventLoop, LoopConfig};
use windlass::proactor::{
    Completion, Operation, Outcome, Position, ProactorConfig, Repeat, RingOptions, SharedFd,
};

use super::basics::{config, pair, receive, send};
use crate::common::{guarded, has_io_uring, in_own_process, open_descriptors};

#[test]
fn queues_that_overflow_lose_nothing() {
    if !has_io_uring() {
        return;
    }
    guarded("overflow", || {
        let config = LoopConfig {
            proactor: ProactorConfig {
                ring: RingOptions {
                    submission_entries: 2,
                    completion_entries: 4,
                    ..RingOptions::default()
                },
                ..config().proactor
            },
            ..config()
        };
        let mut event_loop = EventLoop::<[usize; 2]>::with_config(config).expect("open");
        let mut peers = Vec::new();
        for _ in 0..100 {
            let (socket, mut peer) = pair();
            peer.write_all(b"to us").expect("write");
            event_loop
                .start(
                    send(&socket, b"to you"),
                    |counts: &mut [usize; 2], _, sent| {
                        counts[0] += bytes(&sent);
                    },
                )
                .expect("start");
            event_loop
                .start(receive(&socket, 8), |counts: &mut [usize; 2], _, got| {
                    counts[1] += bytes(&got);
                })
                .expect("start");
            peers.push(peer);
        }
        let mut counts = [0, 0];
        event_loop.run(&mut counts).expect("run");
        assert_eq!(counts, [600, 500]);
        for mut peer in peers {
            let mut got = [0; 6];
            peer.read_exact(&mut got).expect("read");
            assert_eq!(&got, b"to you");
        }
    });
}

fn bytes(completion: &Completion) -> usize {
    match &completion.result {
        Ok(Outcome::Bytes(count)) => *count,
        other => panic!("{other:?}"),
    }
}

fn set_descriptor_limit(limit: u64) {
    let limit = libc::rlimit {
        rlim_cur: limit,
        rlim_max: 4096,
    };
    // SAFETY: the struct is a local that is read only.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(result, 0);
}

#[derive(Default)]
struct Accepting {
    sockets: Vec<OwnedFd>,
    exhausted: u32,
    calls: u32,
}

#[test]
fn pf_21_an_accept_without_descriptors_ends_and_goes_on_when_started_again() {
    let path =
        "ring::limits::pf_21_an_accept_without_descriptors_ends_and_goes_on_when_started_again";
    if !has_io_uring() {
        return;
    }
    in_own_process(path, || {
        set_descriptor_limit(4096);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let listener: SharedFd = Arc::new(listener.into());
        let mut event_loop = EventLoop::<Accepting>::with_config(config()).expect("open");
        let _clients: Vec<TcpStream> = (0..10)
            .map(|_| TcpStream::connect(address).expect("connect"))
            .collect();
        let highest = open_descriptors().into_iter().max().expect("some");
        // Numbers below that are free would do for accepted sockets.
        let mut fillers = Vec::new();
        while fillers
            .last()
            .is_none_or(|last: &OwnedFd| last.as_raw_fd() <= highest)
        {
            fillers.push(listener.try_clone().expect("duplicate"));
        }
        let last = fillers.last().expect("at least one").as_raw_fd();
        set_descriptor_limit(last as u64 + 1 + 3);
        let mut state = Accepting::default();
        start_accepting(&mut event_loop, &listener);
        event_loop.run(&mut state).expect("it ends by the error");
        let accepted = state.sockets.len();
        assert_eq!(accepted, 3);
        assert_eq!(state.exhausted, 1);
        assert_eq!(state.calls as usize, accepted + 1, "no loop of errors");
        // Some room again: the rest was waiting.
        set_descriptor_limit(4096);
        start_accepting(&mut event_loop, &listener);
        event_loop.run(&mut state).expect("until all are there");
        assert_eq!(state.sockets.len(), 10);
    });
}

fn start_accepting(event_loop: &mut EventLoop<'static, Accepting>, listener: &SharedFd) {
    let accept = Operation::Accept {
        listener: Arc::clone(listener),
        repeat: Repeat::Multishot,
    };
    event_loop
        .start(accept, |state: &mut Accepting, cx, completion| {
            state.calls += 1;
            match completion.result {
                Ok(Outcome::Accepted(socket)) => {
                    state.sockets.push(socket);
                    if state.sockets.len() == 10 {
                        cx.stop();
                    }
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                    assert!(completion.operation.is_some(), "the last");
                    state.exhausted += 1;
                }
            }
        })
        .expect("start");
}

#[test]
fn a_loop_that_ends_with_operations_in_flight_leaves_nothing_open() {
    let path = "ring::limits::a_loop_that_ends_with_operations_in_flight_leaves_nothing_open";
    if !has_io_uring() {
        return;
    }
    in_own_process(path, || {
        let before = open_descriptors();
        let mut peers = Vec::new();
        let mut event_loop = EventLoop::<()>::with_config(config()).expect("open");
        let pool = event_loop.provide_buffers(4, 256).expect("pool");
        for _ in 0..20 {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
            let address = listener.local_addr().expect("address");
            let (socket, peer) = pair();
            let (reader, writer) = std::io::pipe().expect("pipe");
            let operations = [
                receive(&socket, 100),
                Operation::ReceiveMultishot { socket, pool },
                Operation::Accept {
                    listener: Arc::new(listener.into()),
                    repeat: Repeat::Multishot,
                },
                Operation::Read {
                    fd: Arc::new(reader.into()),
                    buffer: Vec::with_capacity(10),
                    position: Position::Current,
                },
                Operation::Timeout {
                    after: Duration::from_secs(1000),
                },
            ];
            for operation in operations {
                event_loop.start(operation, |(), _, _| {}).expect("start");
            }
            // Perhaps accepted, perhaps not: it is not to be lost either way.
            peers.push((TcpStream::connect(address).expect("connect"), peer, writer));
        }
        event_loop.run_nonblocking(&mut ()).expect("run");
        drop(event_loop);
        drop(peers);
        assert_eq!(open_descriptors(), before);
    });
}
