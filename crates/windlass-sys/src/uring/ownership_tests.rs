//! Who owns what: memory and operations that safe code must not get at while the kernel does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use rustix::fs::Statx;

use super::flight::{Found, Next};
use super::tests::{pair, receive};
use super::*;
use crate::epoll;

fn ring() -> Option<Ring> {
    match Ring::open(RingOptions::default()) {
        Ok(ring) => Some(ring),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

#[test]
fn pools_of_one_ring_are_refused_by_another() {
    let (Some(mut first), Some(mut second)) = (ring(), ring()) else {
        return;
    };
    let mut pools = BufferPools::new();
    if pools.add(Some(&mut first), 2, 64).is_err() {
        return;
    }
    // Both kernels would pick the same buffers.
    let error = second.reinit(&pools).expect_err("not its own");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(first.reinit(&pools).expect("its own").is_empty());
}

#[test]
fn an_operation_in_flight_is_completed_by_the_kernel_alone() {
    let Some(mut ring) = ring() else { return };
    let (socket, _peer) = pair();
    let id = ring.start(receive(&socket, 8));
    let pools = BufferPools::new();
    let injected = catch_unwind(AssertUnwindSafe(|| {
        ring.inject_completion(&pools, id.to_bits(), 8, 0)
    }));
    assert!(injected.is_err());
    assert!(ring.is_in_flight(id));
}

#[test]
fn a_ring_in_another_thread_keeps_what_it_can_not_end() {
    let Some(mut ring) = ring() else { return };
    if !ring.io.params().is_setup_single_issuer() {
        return;
    }
    let (socket, _peer) = pair();
    let id = ring.start(receive(&socket, 8));
    let waited = ring.wait(&BufferPools::new(), Some(Duration::ZERO));
    waited.expect("wait");
    let mut ring = thread::spawn(move || {
        let error = ring.reinit(&BufferPools::new()).expect_err("not ended");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        ring
    })
    .join()
    .expect("no panic");
    assert!(ring.is_in_flight(id));
    // Here it can be ended.
    let back = ring.reinit(&BufferPools::new()).expect("reinit");
    assert_eq!(back.len(), 1);
    assert!(back[0].is_cancelled() && ring.in_flight() == 0, "{back:?}");
}

#[test]
fn what_was_never_submitted_comes_back_from_a_new_ring() {
    let Some(mut ring) = ring() else { return };
    let (socket, _peer) = pair();
    ring.start(receive(&socket, 8));
    let back = ring.reinit(&BufferPools::new()).expect("reinit");
    assert_eq!((back.len(), ring.in_flight()), (1, 0));
    assert!(back[0].is_cancelled() && !back[0].has_more(), "{back:?}");
}

#[test]
fn a_cancel_that_comes_when_the_kernels_poll_has_ended_is_not_lost() {
    let (socket, _peer) = pair();
    let mut flight = Flight::new(Operation::HangUp { fd: socket });
    let readable = epoll::IN.cast_signed();
    let (found, next) = flight.answered(readable, 0);
    assert!(matches!(found, Found::Nothing) && next == Next::Submit);
    flight.cancel_asked = true;
    let (found, next) = flight.answered(readable, 0);
    assert!(matches!(found, Found::Result(Err(_))), "{found:?}");
    assert_eq!(next, Next::Finish);
}

#[test]
fn a_description_has_room_for_all_that_the_kernel_writes() {
    // struct statx, statx(2): 256 bytes.
    assert_eq!(size_of::<Statx>(), 256);
    assert!(align_of::<Statx>() >= 8);
}
