//! Loops of a program's own over a set: the steps of `join`, one by one.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use windlass::demultiplexer::Backend;
use windlass::thread_set::{HandleOptions, ThreadSet};
use windlass::{Disposition, EventId, Readiness};

use crate::support::{Gate, run, set, set_on, wait_until};

/// The loop that `join` is.
fn follow(set: &ThreadSet<()>) -> u64 {
    let (mut follower, mut calls) = (set.follow(), 0);
    while let Some(led) = follower.wait_for_event().unwrap() {
        calls += 1;
        led.promote_new_leader().handle(&mut ());
    }
    calls
}

/// An event that counts its calls.
fn counter(set: &ThreadSet<()>) -> (EventId, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let event = set
        .handles()
        .user_event(move |(), _: &_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Disposition::Keep
        })
        .unwrap();
    (event, calls)
}

#[test]
fn a_loop_of_its_own_handles_what_join_would() {
    for backend in Backend::ALL {
        let set = set_on(backend);
        let bytes = Arc::new(AtomicU64::new(0));
        let mut peers = Vec::new();
        for _ in 0..3 {
            let (near, far) = UnixStream::pair().unwrap();
            let bytes = Arc::clone(&bytes);
            set.handles()
                .watch(far, HandleOptions::default(), move |(), _, mut far, _| {
                    let count = far.read(&mut [0; 7]).unwrap();
                    bytes.fetch_add(count as u64, Ordering::SeqCst);
                    Disposition::Keep
                })
                .unwrap();
            peers.push(near);
        }
        let calls: u64 = thread::scope(|scope| {
            let followers = [(); 3].map(|()| scope.spawn(|| follow(&set)));
            run(&set, 2, || {
                for _ in 0..50 {
                    for peer in &mut peers {
                        peer.write_all(b"sixteen bytes it").unwrap();
                    }
                }
                let all = 50 * 16 * peers.len() as u64;
                wait_until("all is read", || bytes.load(Ordering::SeqCst) == all);
            });
            followers.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert!(calls <= set.counters().calls, "{calls}");
    }
}

#[test]
fn the_promotion_comes_before_the_handler() {
    let set = set();
    let gate = Arc::new(Gate::default());
    let passed = Arc::clone(&gate);
    let first = set
        .handles()
        .user_event(move |(), _: &_, _| {
            passed.pass();
            Disposition::Keep
        })
        .unwrap();
    let (second, calls) = counter(&set);
    set.handles().activate(first).unwrap();
    let mut me = set.follow();
    let led = me.wait_for_event().unwrap().unwrap();
    assert_eq!(led.event(), first);
    assert_eq!(led.happened().readiness, Readiness::NONE);
    run(&set, 1, || {
        set.handles().activate(second).unwrap();
        let promoted = led.promote_new_leader();
        assert_eq!(promoted.event(), first);
        thread::scope(|scope| {
            // While this thread handles, the other one does.
            scope.spawn(|| {
                wait_until("it handles", || gate.blocked.load(Ordering::SeqCst) == 1);
                wait_until("the other does", || calls.load(Ordering::SeqCst) == 1);
                gate.open();
            });
            promoted.handle(&mut ());
        });
    });
}

#[test]
fn a_thread_that_leaves_is_not_missed() {
    for backend in Backend::ALL {
        let set = set_on(backend);
        let (mut near, far) = UnixStream::pair().unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        set.handles()
            .watch(far, HandleOptions::default(), move |(), _, mut far, _| {
                far.read_exact(&mut [0]).unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                Disposition::Keep
            })
            .unwrap();
        near.write_all(b"x").unwrap();
        let mut follower = set.follow();
        let led = follower.wait_for_event().unwrap().unwrap();
        led.promote_new_leader().handle(&mut ());
        run(&set, 2, || {
            // More follow and leave than there are at once, some without a wait.
            for _ in 0..100 {
                drop(set.follow());
            }
            // It holds the handler until it leaves.
            drop(follower);
            for byte in 2..20 {
                near.write_all(b"x").unwrap();
                wait_until("the others read", || calls.load(Ordering::SeqCst) == byte);
            }
        });
    }
}

#[test]
fn nothing_happens_after_the_end() {
    let set = ThreadSet::<()>::new().unwrap();
    let mut follower = set.follow();
    for _ in 0..3 {
        assert!(follower.wait_for_event().unwrap().is_none());
    }
    follower.handles().stop();
    assert!(set.follow().wait_for_event().unwrap().is_none());
}

#[test]
fn an_event_that_is_not_handled_ends_the_set() {
    for promotes in [false, true] {
        let set = set();
        let (event, calls) = counter(&set);
        set.handles().activate(event).unwrap();
        let mut follower = set.follow();
        let led = follower.wait_for_event().unwrap().unwrap();
        thread::scope(|scope| {
            let other = scope.spawn(|| set.join(&mut ()).unwrap());
            if promotes {
                drop(led.promote_new_leader());
            } else {
                drop(led);
            }
            other.join().unwrap();
        });
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        assert_eq!(Arc::strong_count(&calls), 1, "its handler is dropped");
        assert!(follower.wait_for_event().unwrap().is_none());
    }
}

#[test]
fn a_panic_of_a_handler_ends_the_set_and_goes_on() {
    let set = set();
    set.handles()
        .after(Duration::ZERO, |(), _: &_| panic!("on purpose"))
        .unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| set.join(&mut ()));
        let caught = catch_unwind(AssertUnwindSafe(|| follow(&set)));
        let elsewhere = other.join();
        assert!(caught.is_err() != elsewhere.is_err(), "one of the threads");
    });
}

#[test]
fn a_panic_between_events_leaves_the_set_to_the_others() {
    let set = set();
    let (event, calls) = counter(&set);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _follower = set.follow();
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    run(&set, 1, || {
        set.handles().activate(event).unwrap();
        wait_until("another thread", || calls.load(Ordering::SeqCst) == 1);
    });
}

#[test]
fn a_stop_ends_all_threads_though_a_promotion_was_forgotten() {
    for _ in 0..20 {
        let set = set();
        let handles = set.handles();
        let peers = [(); 2].map(|()| {
            let (near, far) = UnixStream::pair().unwrap();
            set.handles()
                .watch(far, HandleOptions::default(), |(), _, _, _| {
                    Disposition::Remove
                })
                .unwrap();
            near
        });
        thread::scope(|scope| {
            let leader = scope.spawn(|| {
                let mut follower = set.follow();
                if let Some(led) = follower.wait_for_event().unwrap() {
                    std::mem::forget(led);
                }
            });
            wait_until("it leads", || set.counters().waits > 0);
            let other = scope.spawn(|| set.join(&mut ()).unwrap());
            // It may be asleep by then, so that the leader chooses it for the second event.
            thread::sleep(Duration::from_millis(1));
            drop(peers);
            leader.join().unwrap();
            handles.stop();
            other.join().unwrap();
        });
    }
}
