//! Sends at once: of those that the socket takes nothing is heard until something else comes, and of
//! all others what became of them.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::tests::{self, LONG, Subject, bytes, must_read, pair, receive};
use super::*;
use crate::operation::SharedFd;

/// Rings that send at once.
fn with_ring(test: impl Fn(Subject)) {
    tests::with_ring(|subject| {
        if subject.ring.abilities.tells_of_work {
            test(subject);
        }
    });
}

fn send(socket: &SharedFd, payload: &[u8]) -> Operation {
    Operation::Send {
        socket: Arc::clone(socket),
        payload: payload.to_vec().into(),
    }
}

/// A pair of which ours is full.
fn full_pair() -> (SharedFd, UnixStream, usize) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    ours.set_nonblocking(true).expect("set");
    let mut filled = 0;
    while let Ok(count) = std::io::Write::write(&mut &ours, &[0; 4096]) {
        filled += count;
    }
    (Arc::new(ours.into()), theirs, filled)
}

impl Subject {
    /// One wait, and what it found.
    fn turn(&mut self, timeout: Option<Duration>) -> (WaitEnd, Vec<Completion>) {
        let ended = self.ring.wait(&self.pools, timeout).expect("wait");
        let mut found = Vec::new();
        let reaped = self.ring.reap(&self.pools, |reaped| {
            if let Reaped::Operation(completion) = reaped {
                found.push(completion);
            }
        });
        reaped.expect("reap");
        (ended, found)
    }
}

#[test]
fn a_send_at_once_ends_no_wait_and_is_told_beside_what_does() {
    with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        let receiving = subject.ring.start(receive(&socket, 16));
        let enters = subject.ring.counters().enters;
        let sending = subject.ring.start_at_once(send(&socket, b"ping"));
        let answering = std::thread::spawn(move || {
            let mut got = [0; 4];
            peer.read_exact(&mut got).expect("read");
            std::io::Write::write_all(&mut peer, b"pong").expect("write");
            peer
        });
        let mut found = Vec::new();
        while found.is_empty() {
            found = subject.turn(LONG).1;
        }
        let told: Vec<_> = found.iter().map(|one| (one.id, bytes(one))).collect();
        assert_eq!(told, [(receiving, 4), (sending, 4)]);
        // Deferred work may end a wait early, nothing else.
        assert!(subject.ring.counters().enters - enters <= 2);
        assert_eq!(found.pop().expect("two").into_buffer(), b"ping");
        assert_eq!(subject.ring.in_flight(), 0);
        answering.join().expect("answered");
    });
}

#[test]
fn nothing_but_sends_at_once_is_not_waited_for() {
    with_ring(|mut subject| {
        let (socket, _peer) = pair();
        let first = subject.ring.start_at_once(send(&socket, b"one"));
        let second = subject.ring.start_at_once(send(&socket, b"three"));
        let (_, found) = subject.turn(None);
        let told: Vec<_> = found.iter().map(|one| (one.id, bytes(one))).collect();
        assert_eq!(told, [(first, 3), (second, 5)]);
    });
}

#[test]
fn a_send_at_once_that_is_hurried_is_not_waited_for() {
    with_ring(|mut subject| {
        let (socket, _peer) = pair();
        subject.ring.start(receive(&socket, 1));
        subject.turn(Some(Duration::ZERO));
        let sending = subject.ring.start_at_once(send(&socket, b"one"));
        subject.ring.hurry(sending);
        let (_, found) = subject.turn(None);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id, sending);
        // It is gone: nobody is hurried by it.
        subject.ring.hurry(sending);
        let (ended, found) = subject.turn(Some(Duration::from_millis(1)));
        assert_eq!((ended, found.len()), (WaitEnd::TimedOut, 0));
    });
}

#[test]
fn pf_19_a_hurry_outlasts_submissions_that_fail() {
    with_ring(|mut subject| {
        let (socket, _peer) = pair();
        subject.ring.start(receive(&socket, 1));
        subject.turn(Some(Duration::ZERO));
        let sending = subject.ring.start_at_once(send(&socket, b"one"));
        subject.ring.hurry(sending);
        let errors = [libc::EAGAIN, libc::EBUSY, libc::EINTR];
        subject.ring.fail_next_submissions(&errors);
        let found = subject.next();
        assert_eq!((found.id, bytes(&found)), (sending, 3));
    });
}

#[test]
fn pf_19_while_the_kernel_takes_no_send_at_once_the_ring_rests() {
    with_ring(|mut subject| {
        let (socket, _peer) = pair();
        let sending = subject.ring.start_at_once(send(&socket, b"one"));
        subject.ring.fail_next_submissions(&[libc::EAGAIN; 10]);
        let enters = subject.ring.counters().enters;
        let begun = std::time::Instant::now();
        assert_eq!(subject.next().id, sending);
        // Each of the ten was followed by a rest, which is a call itself.
        assert!(begun.elapsed() >= 10 * RETRY);
        assert_eq!(subject.ring.counters().enters - enters, 10 + 1);
    });
}

#[test]
fn without_deferred_work_a_send_at_once_is_an_ordinary_one() {
    tests::with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        let sending = subject.ring.start_at_once(send(&socket, b"any"));
        let found = subject.next();
        assert_eq!((found.id, bytes(&found)), (sending, 3));
        must_read(&mut peer, b"any");
    });
}

#[test]
fn of_a_send_at_once_that_the_socket_takes_a_part_of_the_part_is_told() {
    with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        let payload: Vec<u8> = (0..4_000_000_u32).map(|at| (at % 251) as u8).collect();
        subject.ring.start_at_once(send(&socket, &payload));
        let found = subject.next();
        let sent = bytes(&found);
        assert!(0 < sent && sent < payload.len(), "{sent}");
        drop((found, socket));
        let mut got = Vec::new();
        peer.read_to_end(&mut got).expect("read");
        assert_eq!(got, payload[..sent]);
    });
}

#[test]
fn a_send_at_once_to_a_full_socket_waits_for_it_in_the_ring() {
    with_ring(|mut subject| {
        let (socket, mut peer, filled) = full_pair();
        let sending = subject.ring.start_at_once(send(&socket, b"late"));
        subject.must_fall_asleep();
        assert!(subject.ring.is_in_flight(sending));
        let mut got = vec![0; filled];
        peer.read_exact(&mut got).expect("read");
        let found = subject.next();
        assert_eq!((found.id, bytes(&found)), (sending, 4));
        assert_eq!(found.into_buffer(), b"late");
    });
}

#[test]
fn a_send_at_once_to_a_full_socket_can_be_cancelled() {
    with_ring(|mut subject| {
        let (socket, _peer, _) = full_pair();
        for submitted_before in [false, true] {
            let sending = subject.ring.start_at_once(send(&socket, b"never"));
            if submitted_before {
                subject.must_fall_asleep();
            }
            assert_eq!(subject.ring.cancel(sending), CancelOutcome::Requested);
            let found = subject.next();
            assert_eq!((found.id, found.is_cancelled()), (sending, true));
        }
        assert_eq!(subject.ring.in_flight(), 0);
    });
}

#[test]
fn of_a_send_at_once_that_fails_the_error_is_told() {
    with_ring(|mut subject| {
        let (socket, peer) = pair();
        drop(peer);
        let sending = subject.ring.start_at_once(send(&socket, b"to nobody"));
        let found = subject.next();
        assert_eq!(found.id, sending);
        let error = found.result.as_ref().expect_err("nobody is there");
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        assert_eq!(found.into_buffer(), b"to nobody");
        // What can't be sent at all; nothing is left of it that would keep the ring from sleeping.
        let (other, _other_peer) = pair();
        subject.ring.start(receive(&other, 1));
        let sending = subject.ring.start_at_once(send(&socket, b""));
        let found = subject.next();
        assert_eq!((found.id, found.result.is_err()), (sending, true));
        subject.must_fall_asleep();
    });
}

#[test]
fn pf_19_sends_at_once_that_the_kernel_does_not_take_yet_are_not_told_of() {
    with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        let sending = subject.ring.start_at_once(send(&socket, b"later"));
        let errors = [libc::EAGAIN, libc::EBUSY, libc::EINTR];
        subject.ring.fail_next_submissions(&errors);
        for _ in errors {
            let (_, found) = subject.turn(Some(Duration::ZERO));
            assert!(found.is_empty(), "{found:?}");
            assert!(subject.ring.is_in_flight(sending));
        }
        let found = subject.next();
        assert_eq!((found.id, bytes(&found)), (sending, 5));
        must_read(&mut peer, b"later");
    });
}

#[test]
fn more_sends_at_once_than_the_queue_holds_are_all_told() {
    with_ring(|mut subject| {
        let (socket, mut peer) = pair();
        let reading = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).expect("read");
            got
        });
        let mut expected = Vec::new();
        for round in 0..3000_u32 {
            let payload = round.to_be_bytes();
            subject.ring.start_at_once(send(&socket, &payload));
            expected.extend(payload);
        }
        let found = subject.all(3000);
        assert!(found.iter().all(|one| bytes(one) == 4));
        assert_eq!(subject.ring.in_flight(), 0);
        drop((found, socket));
        let got = reading.join().expect("read");
        // Which of those that wait for the socket goes first is the kernel's choice.
        let order = |bytes: &[u8]| {
            let mut all: Vec<[u8; 4]> = bytes.as_chunks().0.to_vec();
            all.sort_unstable();
            all
        };
        assert_eq!(order(&got), order(&expected));
    });
}

#[test]
fn a_ring_that_is_dropped_gives_sends_at_once_back() {
    with_ring(|mut subject| {
        let (socket, _peer) = pair();
        subject.ring.start_at_once(send(&socket, b"begun"));
        subject.turn(Some(Duration::ZERO));
        for _ in 0..10 {
            subject.ring.start_at_once(send(&socket, b"not begun"));
        }
        drop(subject);
        assert_eq!(Arc::strong_count(&socket), 1);
        let (full, _peer, _) = full_pair();
        with_ring(|mut subject| {
            subject.ring.start_at_once(send(&full, b"waits"));
            subject.must_fall_asleep();
        });
        assert_eq!(Arc::strong_count(&full), 1);
    });
}

#[test]
fn a_ring_that_is_made_again_gives_sends_at_once_back() {
    with_ring(|mut subject| {
        let (socket, _peer) = pair();
        let sending = subject.ring.start_at_once(send(&socket, b"before"));
        let back = subject.ring.reinit(&subject.pools).expect("reinit");
        assert_eq!(back.len(), 1);
        assert_eq!(back[0].id, sending);
        let sending = subject.ring.start_at_once(send(&socket, b"after"));
        let found = subject.next();
        assert_eq!((found.id, bytes(&found)), (sending, 5));
    });
}
