//! Rings after fork(2): what a child may do with its parent's.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use super::tests::{LONG, pair, receive};
use super::*;
use crate::operation::{Payload, SharedFd};
use crate::own_process::{alone, beside_a_fork, in_fork};

fn send(socket: &SharedFd) -> Operation {
    Operation::Send {
        socket: Arc::clone(socket),
        payload: Payload::from(b"from the child".to_vec()),
    }
}

/// Both kinds of ring, in a process that may fork.
fn with_rings(name: &str, test: fn(Ring)) {
    alone(&format!("uring::fork_tests::{name}"), || {
        for modes in [Modes::All, Modes::Plain] {
            let options = RingOptions {
                modes,
                ..RingOptions::default()
            };
            match Ring::open(options) {
                Ok(ring) => test(ring),
                Err(reason) => println!("skipped, {modes:?}: {reason}"),
            }
        }
    });
}

fn is_refused<T>(result: &io::Result<T>) -> bool {
    let error = result.as_ref().err();
    let inner = error.and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<InChild>())
}

fn next(ring: &mut Ring) -> Completion {
    next_with(ring, &BufferPools::new())
}

fn next_with(ring: &mut Ring, pools: &BufferPools) -> Completion {
    let mut found = None;
    while found.is_none() {
        ring.wait(pools, LONG).expect("wait");
        let reap = ring.reap(pools, |reaped| {
            if let Reaped::Operation(completion) = reaped {
                found = Some(completion);
            }
        });
        reap.expect("reap");
    }
    found.expect("one")
}

/// Everything that can be done with a ring, but `reinit`.
fn try_everything(ring: &mut Ring, in_flight: OpId, socket: &SharedFd) {
    let mut pools = BufferPools::new();
    let first = ring.start(send(socket));
    let second = ring.start_at_once(send(socket));
    assert_eq!(ring.cancel(in_flight), CancelOutcome::Requested);
    ring.poll(0, crate::epoll::IN, PollMode::Edge, 7);
    ring.unpoll(7);
    assert!(is_refused(&ring.submit_now()));
    assert!(is_refused(&ring.wait(&pools, LONG)));
    assert!(is_refused(&pools.add(Some(ring), 2, 64)));
    let mut ended = Vec::new();
    let reaped = ring.reap(&pools, |reaped| match reaped {
        Reaped::Operation(completion) => ended.push(completion),
        Reaped::Poll { .. } => panic!("there was none"),
    });
    assert!(is_refused(&reaped));
    let ids: Vec<OpId> = ended.iter().map(|one| one.id).collect();
    assert_eq!(ids, [first, second]);
    assert!(ended.iter().all(|one| is_refused(&one.result)));
    assert_eq!(ring.in_flight(), 1, "that of before the fork");
}

#[test]
fn a_child_is_refused_and_its_parent_undisturbed() {
    with_rings(
        "a_child_is_refused_and_its_parent_undisturbed",
        |mut ring| {
            let (socket, mut peer) = pair();
            let (other, mut other_peer) = pair();
            let id = ring.start(receive(&socket, 16));
            let pools = BufferPools::new();
            ring.wait(&pools, Some(Duration::ZERO)).expect("wait");

            in_fork(|| try_everything(&mut ring, id, &other));

            assert!(ring.io.submission().is_empty(), "the child has written");
            assert!(ring.io.completion().is_empty(), "the kernel has answered");
            peer.write_all(b"parent").expect("write");
            let completion = next(&mut ring);
            assert_eq!(completion.id, id);
            assert!(matches!(completion.result, Ok(Outcome::Bytes(6))));
            assert_eq!(ring.in_flight(), 0);
            other_peer.set_nonblocking(true).expect("set");
            let error = other_peer.read(&mut [0; 8]).expect_err("nothing was sent");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        },
    );
}

#[test]
fn entries_that_the_parent_has_queued_are_submitted_by_the_parent() {
    let name = "entries_that_the_parent_has_queued_are_submitted_by_the_parent";
    with_rings(name, |mut ring| {
        let (socket, mut peer) = pair();
        ring.start(send(&socket));
        in_fork(|| {
            assert!(is_refused(&ring.submit_now()));
            assert!(is_refused(&ring.wait(&BufferPools::new(), LONG)));
        });
        assert_eq!(ring.io.submission().len(), 1);
        let completion = next(&mut ring);
        assert!(matches!(completion.result, Ok(Outcome::Bytes(14))));
        let mut got = [0; 32];
        assert_eq!(peer.read(&mut got).expect("read"), 14);
    });
}

#[test]
fn a_child_that_drops_a_ring_leaves_the_parents() {
    with_rings("a_child_that_drops_a_ring_leaves_the_parents", |ring| {
        let (socket, mut peer) = pair();
        let mut ring = Some(ring);
        let pools = BufferPools::new();
        let ours = ring.as_mut().expect("there");
        ours.start(receive(&socket, 16));
        ours.wait(&pools, Some(Duration::ZERO)).expect("wait");
        in_fork(|| drop(ring.take()));
        peer.write_all(b"parent").expect("write");
        let completion = next(ring.as_mut().expect("the parent's copy"));
        assert!(matches!(completion.result, Ok(Outcome::Bytes(6))));
    });
}

#[test]
fn a_ring_that_was_made_anew_is_the_childs_and_not_the_grandchilds() {
    let name = "a_ring_that_was_made_anew_is_the_childs_and_not_the_grandchilds";
    with_rings(name, |mut ring| {
        let (socket, mut peer) = pair();
        let pools = BufferPools::new();
        let before = ring.start(receive(&socket, 16));
        ring.wait(&pools, Some(Duration::ZERO)).expect("wait");
        in_fork(|| {
            let refused = ring.start(send(&socket));
            let back = ring.reinit(&pools).expect("reinit");
            let ids: Vec<OpId> = back.iter().map(|one| one.id).collect();
            assert_eq!(ids, [refused, before]);
            assert!(is_refused(&back[0].result));
            assert_eq!(
                back[1]
                    .result
                    .as_ref()
                    .expect_err("cancelled")
                    .raw_os_error(),
                Some(libc::ECANCELED)
            );

            let (own, mut own_peer) = pair();
            let id = ring.start(receive(&own, 16));
            ring.wait(&pools, Some(Duration::ZERO)).expect("wait");
            let (other, _other_peer) = pair();
            in_fork(|| try_everything(&mut ring, id, &other));
            own_peer.write_all(b"child").expect("write");
            assert!(matches!(next(&mut ring).result, Ok(Outcome::Bytes(5))));
        });
        peer.write_all(b"parent").expect("write");
        assert!(matches!(next(&mut ring).result, Ok(Outcome::Bytes(6))));
    });
}

/// Memory that is shared with a child is copied when it is written: the kernel must go on reading
/// the parent's.
#[test]
fn the_kernel_sees_the_buffers_that_a_parent_gives_back_beside_a_child() {
    let name = "the_kernel_sees_the_buffers_that_a_parent_gives_back_beside_a_child";
    with_rings(name, |mut ring| {
        let (socket, mut peer) = pair();
        let mut pools = BufferPools::new();
        let Ok(pool) = pools.add(Some(&mut ring), 2, 64) else {
            println!("skipped: no pools");
            return;
        };
        beside_a_fork(|| {
            let mut is_started = false;
            for turn in 0..10_u8 {
                if !is_started {
                    let socket = Arc::clone(&socket);
                    ring.start(Operation::ReceiveMultishot { socket, pool });
                }
                peer.write_all(&[turn; 40]).expect("write");
                let completion = next_with(&mut ring, &pools);
                is_started = completion.has_more();
                let Ok(Outcome::Buffer(buffer)) = completion.result else {
                    panic!("turn {turn}: {:?}", completion.result);
                };
                assert_eq!(*buffer, [turn; 40]);
            }
        });
    });
}

#[test]
fn rings_of_one_process_have_one_owner_and_a_child_another() {
    alone(
        "uring::fork_tests::rings_of_one_process_have_one_owner_and_a_child_another",
        || {
            let parent = Owner::this_process().expect("owner");
            assert!(parent.is_this_process() && parent.check().is_ok());
            assert!(Owner::this_process().expect("owner").is_this_process());
            in_fork(|| {
                assert!(!parent.is_this_process());
                let child = Owner::this_process().expect("owner");
                assert!(child.is_this_process() && !parent.is_this_process());
                in_fork(|| {
                    assert!(!child.is_this_process() && !parent.is_this_process());
                    let grandchild = Owner::this_process().expect("owner");
                    assert!(grandchild.is_this_process());
                    assert!(!child.is_this_process() && !parent.is_this_process());
                });
                assert!(child.is_this_process());
            });
            assert!(parent.is_this_process());
        },
    );
}
