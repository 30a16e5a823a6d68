//! The ring against the kernel, and against answers that the kernel should not give.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::operation::{Payload, Position, Repeat, SharedFd};

pub(super) const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// A ring with its pools; `None` where there is none.
pub(super) struct Subject {
    pub(super) ring: Ring,
    pub(super) pools: BufferPools,
}

pub(super) fn with_ring(test: impl Fn(Subject)) {
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
    pub(super) fn next(&mut self) -> Completion {
        self.all(1).pop().expect("one")
    }

    /// Waits until a wait finds nothing; there must be few before.
    pub(super) fn must_fall_asleep(&mut self) {
        for _ in 0..20 {
            let wait = self.ring.wait(&self.pools, Some(Duration::from_millis(50)));
            if wait.expect("wait") == WaitEnd::TimedOut {
                return;
            }
            let reap = self.ring.reap(&self.pools, |reaped| {
                panic!("nothing is complete: {reaped:?}");
            });
            reap.expect("reap");
        }
        panic!("it is woken again and again");
    }

    /// Waits until there are `count` completions or more.
    pub(super) fn all(&mut self, count: usize) -> Vec<Completion> {
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

/// A file of `content` that has no name.
fn file_of(content: &[u8], subject: &str) -> File {
    let name = format!("windlass-ring-{}-{subject}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, content).expect("write");
    let file = File::open(&path).expect("open");
    std::fs::remove_file(&path).expect("remove");
    file
}

pub(super) fn pair() -> (SharedFd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    (Arc::new(OwnedFd::from(ours)), theirs)
}

/// Reads what must be the next that was sent.
pub(super) fn must_read(peer: &mut UnixStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    peer.read_exact(&mut got).expect("read");
    assert_eq!(got, expected);
}

pub(super) fn bytes(completion: &Completion) -> usize {
    match &completion.result {
        Ok(Outcome::Bytes(count)) => *count,
        other => panic!("{other:?}"),
    }
}

pub(super) fn receive(socket: &SharedFd, room: usize) -> Operation {
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
        must_read(&mut peer, b"hello");

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
fn one_system_call_submits_everything_and_waits() {
    with_ring(|mut subject| {
        let pairs: Vec<_> = (0..100).map(|_| pair()).collect();
        for (socket, peer) in &pairs {
            let mut peer = peer;
            peer.write_all(b"x").expect("write");
            subject.ring.start(receive(socket, 8));
            subject.ring.start(Operation::Send {
                socket: Arc::clone(socket),
                payload: b"y".to_vec().into(),
            });
        }
        assert_eq!(subject.ring.counters().enters, 0);
        assert_eq!(subject.all(200).len(), 200);
        assert_eq!(subject.ring.counters().enters, 1);
        let zero = Some(Duration::ZERO);
        subject.ring.wait(&subject.pools, zero).expect("wait");
        let is_told = subject.ring.abilities.tells_of_work;
        assert_eq!(subject.ring.counters().enters, if is_told { 1 } else { 2 });
    });
}

/// Of PF-34: the kernel's polls tell of a half-close unasked, at once and as often as they are made.
#[test]
fn pf_34_who_waits_to_send_to_a_half_closed_peer_sleeps() {
    with_ring(|mut subject| {
        let (ours, mut peer) = UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("set");
        let socket: SharedFd = Arc::new(ours.into());
        let file = file_of(&[7; 600_000], "half-closed");
        subject.ring.start(Operation::SendFile {
            file: Arc::new(file),
            offset: 0,
            length: 600_000,
            socket: Arc::clone(&socket),
        });
        peer.shutdown(std::net::Shutdown::Write).expect("shutdown");
        let room = subject.ring.start(Operation::Poll {
            fd: Arc::clone(&socket),
            events: crate::epoll::OUT,
        });
        subject.must_fall_asleep();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).expect("read");
            all.len()
        });
        for completion in subject.all(2) {
            match &completion.result {
                Ok(Outcome::Events(events)) => {
                    assert_eq!(completion.id, room);
                    assert_ne!(events & crate::epoll::OUT, 0);
                }
                _ => assert_eq!(bytes(&completion), 600_000),
            }
        }
        assert_eq!(subject.ring.in_flight(), 0);
        drop(socket);
        assert_eq!(reader.join().expect("join"), 600_000);
    });
}

#[test]
fn a_part_of_a_file_is_sent_and_no_more_than_there_is() {
    for nonblocking in [false, true] {
        with_ring(|subject| send_parts_of_a_file(subject, nonblocking));
    }
}

fn send_parts_of_a_file(mut subject: Subject, nonblocking: bool) {
    let content: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
    let file = Arc::new(file_of(&content, "parts"));
    let (ours, mut peer) = UnixStream::pair().expect("pair");
    ours.set_nonblocking(nonblocking).expect("set");
    let socket: SharedFd = Arc::new(ours.into());
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
}

#[test]
fn what_is_wrong_with_an_operation_is_told_by_its_completion() {
    with_ring(|mut subject| {
        let (socket, _peer) = pair();
        let empty = Payload::from(Vec::new());
        subject.ring.start(receive(&socket, 0));
        let mut other = BufferPools::new();
        subject.ring.start(Operation::ReceiveMultishot {
            socket: Arc::clone(&socket),
            pool: other.add(None, 1, 1).expect("a pool of nobody's ring"),
        });
        subject.ring.start(Operation::Send {
            socket,
            payload: empty,
        });
        for completion in subject.all(3) {
            let error = completion.result.expect_err("nothing to do");
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
    });
}

/// A sequence that is the same for the same seed: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// How many operations a random run has: more for a run by hand.
fn operation_count() -> u64 {
    let count = std::env::var("WINDLASS_RANDOM_OPERATIONS").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(20_000)
}

#[test]
fn pf_22_a_stream_that_is_read_with_cancels_has_no_gap() {
    with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        let total = operation_count() * 4;
        let writer = std::thread::spawn(move || {
            let mut random = Random(7);
            let mut at = 0;
            while at < total {
                let len = (1 + random.below(40)).min(total - at);
                let bytes: Vec<u8> = (at..at + len).map(|at| (at % 251) as u8).collect();
                peer.write_all(&bytes).expect("write");
                at += len;
                if random.below(8) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut random = Random(9);
        let (mut at, mut cancelled) = (0, 0);
        while at < total {
            let id = subject
                .ring
                .start(receive(&socket, 1 + random.below(64) as usize));
            if random.below(2) == 0 {
                let zero = Some(Duration::ZERO);
                subject.ring.wait(&subject.pools, zero).expect("wait");
            }
            if random.below(2) == 0 {
                subject.ring.cancel(id);
            }
            let completion = subject.next();
            assert_eq!(completion.id, id);
            cancelled += u64::from(completion.is_cancelled());
            for byte in completion.into_buffer() {
                assert_eq!(byte, (at % 251) as u8, "at {at}");
                at += 1;
            }
        }
        writer.join().expect("join");
        assert!(cancelled > 0);
        assert_eq!(subject.ring.counters().stale, 0);
    });
}

/// What a random run knows of an operation that it has started.
struct Started {
    id: OpId,
    cancelled: bool,
}

#[test]
fn pf_20_each_of_many_random_operations_ends_once_and_brings_itself_back() {
    with_ring(|mut subject| {
        let Ok(pool) = subject.pools.add(Some(&mut subject.ring), 2, 128) else {
            return;
        };
        let mut pairs: Vec<_> = (0..8).map(any_pair).collect();
        let mut random = Random(11);
        let mut started: Vec<Started> = Vec::new();
        let (mut begun, mut ended) = (0, 0);
        let count = operation_count();
        while ended < count {
            if begun < count && started.len() < 60 {
                let (socket, _) = &pairs[random.below(8) as usize];
                let operation = random_operation(&mut random, socket, pool);
                let id = if random.below(2) == 0 {
                    subject.ring.start_at_once(operation)
                } else {
                    subject.ring.start(operation)
                };
                started.push(Started {
                    id,
                    cancelled: false,
                });
                begun += 1;
            }
            if random.below(3) == 0 || begun == count {
                let at = random.below(started.len().max(1) as u64) as usize;
                if let Some(one) = started.get_mut(at) {
                    one.cancelled = true;
                    assert_ne!(subject.ring.cancel(one.id), CancelOutcome::AlreadyComplete);
                }
            }
            if random.below(50) == 0 {
                subject
                    .ring
                    .fail_next_submissions(&[libc::EAGAIN, libc::EBUSY, libc::EINTR]);
            }
            let (_, peer) = &mut pairs[random.below(8) as usize];
            // Full or empty: that is what the operations are to meet.
            let _ = peer.write(&[1; 200][..1 + random.below(200) as usize]);
            let _ = peer.read(&mut [0; 4096]);
            let zero = Some(Duration::ZERO);
            subject.ring.wait(&subject.pools, zero).expect("wait");
            let pools = &subject.pools;
            let reaped = subject.ring.reap(pools, |reaped| {
                let Reaped::Operation(completion) = reaped else {
                    return;
                };
                let at = started.iter().position(|one| one.id == completion.id);
                let at = at.expect("in flight: no completion after the last");
                if !completion.has_more() {
                    let one = started.swap_remove(at);
                    assert!(one.cancelled || !completion.is_cancelled());
                    ended += 1;
                }
            });
            reaped.expect("reap");
        }
        assert!(started.is_empty());
        assert_eq!(subject.ring.in_flight(), 0);
        assert_eq!(subject.pools.lent_count(pool), 0);
        assert_eq!(subject.ring.counters().stale, 0);
        assert!(
            pairs
                .iter()
                .all(|(socket, _)| Arc::strong_count(socket) == 1)
        );
    });
}

/// Of Unix or TCP sockets in turn, for only the latter send without copies; ours blocks or does not.
fn any_pair(number: u32) -> (SharedFd, File) {
    if number.is_multiple_of(2) {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        ours.set_nonblocking(number.is_multiple_of(4)).expect("set");
        theirs.set_nonblocking(true).expect("set");
        return (Arc::new(ours.into()), OwnedFd::from(theirs).into());
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let theirs = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (ours, _) = listener.accept().expect("accept");
    ours.set_nonblocking(number % 4 == 1).expect("set");
    theirs.set_nonblocking(true).expect("set");
    (Arc::new(ours.into()), OwnedFd::from(theirs).into())
}

fn random_operation(random: &mut Random, socket: &SharedFd, pool: PoolId) -> Operation {
    let socket = Arc::clone(socket);
    match random.below(7) {
        0 => Operation::ReceiveMultishot { socket, pool },
        1 => Operation::Timeout {
            after: Duration::from_micros(random.below(300)),
        },
        2 => Operation::Poll {
            fd: socket,
            events: crate::epoll::IN,
        },
        3 => Operation::Read {
            fd: socket,
            buffer: Vec::with_capacity(32),
            position: Position::Current,
        },
        4 => Operation::Send {
            socket,
            payload: vec![2; 1 + random.below(20_000) as usize].into(),
        },
        5 => Operation::SendZeroCopy {
            socket,
            payload: vec![3; 100].into(),
        },
        _ => Operation::ReadVectored {
            fd: socket,
            buffers: vec![Vec::with_capacity(3), Vec::with_capacity(30)],
            position: Position::Current,
        },
    }
}
