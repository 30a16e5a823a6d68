//! The ring against the kernel, and against answers that the kernel should not give.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::operation::{Payload, Position, Repeat, SharedFd};

const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// A ring with its pools; `None` where there is none.
struct Subject {
    ring: Ring,
    pools: BufferPools,
}

fn with_ring(test: impl Fn(Subject)) {
    for modes in [Modes::All, Modes::Plain] {
        let options = RingOptions {
            modes,
            ..RingOptions::default()
        };
        match Ring::open(options) {
            Ok(ring) => test(Subject {
                ring,
                pools: BufferPools::new(),
            }),
            Err(reason) => println!("skipped, {modes:?}: {reason}"),
        }
    }
}

impl Subject {
    /// Waits for the next completion.
    fn next(&mut self) -> Completion {
        self.all(1).pop().expect("one")
    }

    /// Waits until there are `count` completions or more.
    fn all(&mut self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        while all.len() < count {
            let pools = &self.pools;
            self.ring.wait(pools, LONG).expect("wait");
            let reap = self.ring.reap(pools, |reaped| {
                if let Reaped::Operation(completion) = reaped {
                    all.push(completion);
                }
            });
            reap.expect("reap");
        }
        all
    }
}

fn pair() -> (SharedFd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    (Arc::new(OwnedFd::from(ours)), theirs)
}

fn bytes(completion: &Completion) -> usize {
    match &completion.result {
        Ok(Outcome::Bytes(count)) => *count,
        other => panic!("{other:?}"),
    }
}

fn receive(socket: &SharedFd, room: usize) -> Operation {
    Operation::Receive {
        socket: Arc::clone(socket),
        buffer: Vec::with_capacity(room),
    }
}

#[test]
fn what_is_sent_is_received_and_buffers_come_back() {
    with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        let payload = Payload::from(b"hello".to_vec());
        subject.ring.start(Operation::Send {
            socket: Arc::clone(&socket),
            payload,
        });
        let sent = subject.next();
        assert_eq!(bytes(&sent), 5);
        assert_eq!(sent.into_buffer(), b"hello");
        let mut got = [0; 5];
        peer.read_exact(&mut got).expect("read");
        assert_eq!(&got, b"hello");

        let id = subject.ring.start(receive(&socket, 16));
        peer.write_all(b"abc").expect("write");
        let received = subject.next();
        assert_eq!((received.id, bytes(&received)), (id, 3));
        assert_eq!(received.into_buffer(), b"abc");
        assert_eq!(subject.ring.in_flight(), 0);
    });
}

#[test]
fn a_socket_that_does_not_block_is_waited_for() {
    with_ring(|mut subject| {
        let (ours, mut peer) = UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("set");
        let socket: SharedFd = Arc::new(ours.into());
        subject.ring.start(Operation::Read {
            fd: Arc::clone(&socket),
            buffer: Vec::with_capacity(8),
            position: Position::Current,
        });
        subject
            .ring
            .wait(&subject.pools, Some(Duration::ZERO))
            .expect("wait");
        peer.write_all(b"late").expect("write");
        assert_eq!(subject.next().into_buffer(), b"late");
    });
}

#[test]
fn a_multishot_accept_and_receive_go_on() {
    with_ring(|mut subject| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let Ok(pool) = subject.pools.add(Some(&mut subject.ring), 4, 1024) else {
            return;
        };
        let accept = subject.ring.start(Operation::Accept {
            listener: Arc::new(listener.into()),
            repeat: Repeat::Multishot,
        });
        for _ in 0..3 {
            let mut client = TcpStream::connect(address).expect("connect");
            let accepted = subject.next();
            assert_eq!((accepted.id, accepted.has_more()), (accept, true));
            let Ok(Outcome::Accepted(socket)) = accepted.result else {
                panic!("{accepted:?}");
            };
            subject.ring.start(Operation::ReceiveMultishot {
                socket: Arc::new(socket),
                pool,
            });
            for round in 0..10_u8 {
                client.write_all(&[round; 100]).expect("write");
                let received = subject.next();
                assert!(received.has_more());
                let Ok(Outcome::Buffer(buffer)) = received.result else {
                    panic!("{received:?}");
                };
                assert_eq!(&buffer[..], [round; 100]);
            }
            drop(client);
            let end = subject.next();
            assert_eq!((bytes(&end), end.has_more()), (0, false));
        }
        assert_eq!(subject.ring.cancel(accept), CancelOutcome::Requested);
        let end = subject.next();
        assert!(end.is_cancelled() && !end.has_more(), "{end:?}");
        assert_eq!(subject.ring.cancel(accept), CancelOutcome::AlreadyComplete);
        assert_eq!(subject.pools.lent_count(pool), 0);
    });
}

#[test]
fn pf_20_stray_answers_are_counted_and_hit_nothing() {
    with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        let first = subject.ring.start(receive(&socket, 8));
        peer.write_all(b"1").expect("write");
        assert_eq!(subject.next().into_buffer(), b"1");
        // The place is used again; the answer of the first comes once more.
        let second = subject.ring.start(receive(&socket, 8));
        assert_eq!(second.slot(), first.slot());
        for data in [first.to_bits(), 12_345, 1 << 40] {
            subject.ring.inject_completion(&subject.pools, data, 8, 0);
        }
        assert_eq!(subject.ring.counters().stale, 3);
        assert_eq!(subject.ring.in_flight(), 1);
        peer.write_all(b"2").expect("write");
        let completion = subject.next();
        assert_eq!(completion.id, second);
        assert_eq!(completion.into_buffer(), b"2");
    });
}

#[test]
fn pf_19_a_failed_submission_loses_nothing() {
    with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        peer.write_all(b"abc").expect("write");
        for error in [libc::EAGAIN, libc::EBUSY, libc::EINTR] {
            let id = subject.ring.start(receive(&socket, 1));
            subject.ring.fail_next_submissions(&[error]);
            let completion = subject.next();
            assert_eq!((completion.id, bytes(&completion)), (id, 1));
        }
        assert_eq!(subject.ring.in_flight(), 0);
        assert_eq!(subject.ring.counters().stale, 0);
    });
}

#[test]
fn more_operations_than_the_queues_hold_all_complete() {
    const COUNT: usize = 1000;
    let options = RingOptions {
        submission_entries: 4,
        completion_entries: 8,
        ..RingOptions::default()
    };
    let Ok(ring) = Ring::open(options) else {
        return;
    };
    let pools = BufferPools::new();
    let mut subject = Subject { ring, pools };
    let mut ids: Vec<OpId> = (0..COUNT)
        .map(|_| {
            subject.ring.start(Operation::Timeout {
                after: Duration::from_millis(1),
            })
        })
        .collect();
    let mut done: Vec<OpId> = subject.all(COUNT).iter().map(|one| one.id).collect();
    ids.sort();
    done.sort();
    assert_eq!(ids, done);
}

#[test]
fn a_part_of_a_file_is_sent_and_no_more_than_there_is() {
    with_ring(|mut subject| {
        let path = std::env::temp_dir().join(format!("windlass-ring-{}", std::process::id()));
        let content: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).expect("write");
        let file = Arc::new(std::fs::File::open(&path).expect("open"));
        std::fs::remove_file(&path).expect("remove");
        let (socket, mut peer) = pair();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).expect("read");
            all
        });
        for (offset, length, expected) in [(10, 600_000, 600_000), (699_990, 100, 10)] {
            subject.ring.start(Operation::SendFile {
                file: Arc::clone(&file),
                offset,
                length,
                socket: Arc::clone(&socket),
            });
            assert_eq!(bytes(&subject.next()), expected);
        }
        drop(socket);
        let got = reader.join().expect("join");
        assert_eq!(got[..600_000], content[10..600_010]);
        assert_eq!(got[600_000..], content[699_990..]);
    });
}

#[test]
fn what_is_wrong_with_an_operation_is_told_by_its_completion() {
    with_ring(|mut subject| {
        let (socket, _peer) = pair();
        let empty = Payload::from(Vec::new());
        subject.ring.start(receive(&socket, 0));
        subject.ring.start(Operation::Send {
            socket,
            payload: empty,
        });
        for completion in subject.all(2) {
            let error = completion.result.expect_err("nothing to do");
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
    });
}
