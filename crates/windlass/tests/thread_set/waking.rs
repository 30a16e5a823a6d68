//! Who is woken, how often, and that nothing waits while a thread is free.

use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io::Read, io::Write};

use windlass::demultiplexer::Backend;
use windlass::thread_set::{HandleOptions, ThreadSet};
use windlass::{Disposition, Trigger};

use crate::support::{Gate, run, set, set_on, wait_until};

/// A thread's state that tells, when it is gone, how long its thread has run.
#[derive(Default)]
struct Meter;

static RUN_NS: Mutex<u64> = Mutex::new(0);

impl Drop for Meter {
    fn drop(&mut self) {
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let ns: u64 = schedstat.split(' ').next().unwrap().parse().unwrap();
        *RUN_NS.lock().unwrap() += ns;
    }
}

#[test]
fn pf_16_eight_idle_threads_with_a_timer_cost_next_to_nothing() {
    let set = ThreadSet::<Meter>::new().unwrap();
    let ticks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ticks);
    set.handles()
        .every(Duration::from_millis(50), move |_: &mut Meter, _: &_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Disposition::Keep
        })
        .unwrap();
    let count = 20;
    run(&set, 8, || {
        wait_until("the timer has run", || {
            std::thread::park_timeout(Duration::from_millis(10));
            ticks.load(Ordering::SeqCst) >= count
        });
    });
    let counters = set.counters();
    let ticks = ticks.load(Ordering::SeqCst);
    assert_eq!(counters.calls, ticks);
    // Each tick ends one wait and wakes one follower; a few when they begin.
    assert!(counters.follower_wakes <= ticks + 8, "{counters:?}");
    assert!(counters.waits <= 3 * ticks + 16, "{counters:?}");
    assert!(counters.leader_wakes <= 8, "{counters:?}");
    let run = Duration::from_nanos(*RUN_NS.lock().unwrap());
    // Of about a second, in eight threads.
    assert!(run < Duration::from_millis(250), "they ran for {run:?}");
}

#[test]
fn pf_16_a_post_wakes_at_most_one_thread() {
    let set = set();
    let handles = set.handles();
    let told = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(AtomicU64::new(0));
    let event = {
        let (told, seen) = (Arc::clone(&told), Arc::clone(&seen));
        handles
            .user_event(move |(), _: &_, _| {
                seen.store(told.load(Ordering::SeqCst), Ordering::SeqCst);
                Disposition::Keep
            })
            .unwrap()
    };
    let posts = 100_000;
    run(&set, 8, || {
        for number in 1..=posts {
            told.store(number, Ordering::SeqCst);
            handles.activate(event).unwrap();
            if number % 16 == 0 {
                // PF-15: after the last post there is a call that begins later.
                wait_until("the post is seen", || seen.load(Ordering::SeqCst) == number);
            }
        }
    });
    let counters = set.counters();
    let wakes = counters.follower_wakes + counters.leader_wakes;
    assert!(counters.calls <= posts, "{counters:?}");
    // One for the post; one to take the place of whoever handles it, or to see that it is done.
    assert!(wakes <= 2 * posts, "{counters:?}");
    assert!(counters.waits <= 2 * posts + 8, "{counters:?}");
}

#[test]
fn an_event_never_waits_for_a_handler_that_is_stuck_while_a_thread_is_free() {
    for trigger in [Trigger::Level, Trigger::Edge] {
        let threads = 6;
        let set = set();
        let gate = Arc::new(Gate::default());
        let mut stuck = Vec::new();
        for _ in 0..threads - 1 {
            let (near, far) = UnixStream::pair().unwrap();
            let gate = Arc::clone(&gate);
            let options = HandleOptions {
                trigger,
                ..HandleOptions::default()
            };
            set.handles()
                .watch(far, options, move |(), _, mut far, _| {
                    let _ = far.read(&mut [0]).unwrap();
                    gate.pass();
                    Disposition::Remove
                })
                .unwrap();
            stuck.push(near);
        }
        let (mut near, far) = UnixStream::pair().unwrap();
        set.handles()
            .watch(far, HandleOptions::default(), |(), _, mut far, _| {
                let mut byte = [0];
                let _ = far.read(&mut byte).unwrap();
                far.write_all(&byte).unwrap();
                Disposition::Keep
            })
            .unwrap();
        run(&set, threads, || {
            let mut ask = |number: u8| {
                near.write_all(&[number]).unwrap();
                let mut answer = [0];
                near.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [number]);
            };
            for (number, peer) in (1_u64..).zip(&mut stuck) {
                peer.write_all(b"x").unwrap();
                wait_until("one more is stuck", || {
                    gate.blocked.load(Ordering::SeqCst) == number
                });
                for round in 0..20 {
                    ask(round);
                }
            }
            // Also if several get stuck while nobody else does anything.
            gate.open();
        });
    }
}

#[test]
fn a_burst_that_sticks_leaves_one_thread_for_the_rest() {
    let threads = 4;
    let set = set();
    let gate = Arc::new(Gate::default());
    let done = Arc::new(AtomicU64::new(0));
    let handles = set.handles();
    let mut events = Vec::new();
    for number in 0..10 {
        let (gate, done) = (Arc::clone(&gate), Arc::clone(&done));
        let event = handles.user_event(move |(), _: &_, _| {
            // The first three stick, before any other has run.
            if number < threads - 1 {
                gate.pass();
            }
            done.fetch_add(1, Ordering::SeqCst);
            Disposition::Keep
        });
        events.push(event.unwrap());
    }
    for &event in &events {
        handles.activate(event).unwrap();
    }
    run(&set, threads, || {
        wait_until("the rest is done", || done.load(Ordering::SeqCst) == 7);
        gate.open();
        wait_until("all is done", || done.load(Ordering::SeqCst) == 10);
    });
}

#[test]
fn an_earlier_deadline_ends_the_leaders_wait() {
    for backend in Backend::ALL {
        let set = set_on(backend);
        let handles = set.handles();
        handles
            .after(Duration::from_secs(3600), |(), _: &_| unreachable!())
            .unwrap();
        let rung = Arc::new(AtomicU64::new(0));
        run(&set, 3, || {
            for round in 1..=50 {
                let rung_too = Arc::clone(&rung);
                handles
                    .after(Duration::from_micros(200), move |(), _: &_| {
                        rung_too.fetch_add(1, Ordering::SeqCst);
                    })
                    .unwrap();
                wait_until("the timer has run", || rung.load(Ordering::SeqCst) == round);
            }
        });
    }
}

/// Blocks at a gate when it is dropped.
struct Stuck(Arc<Gate>);

impl Drop for Stuck {
    fn drop(&mut self) {
        self.0.pass();
    }
}

#[test]
fn a_handler_whose_drop_is_stuck_holds_up_nothing_else() {
    // Which threads have parked by then, and in which order, is a matter of luck.
    for _ in 0..100 {
        drop_is_stuck();
    }
}

fn drop_is_stuck() {
    let set = set();
    let handles = set.handles();
    let gate = Arc::new(Gate::default());
    let stuck = Stuck(Arc::clone(&gate));
    let first = handles
        .user_event(move |(), _: &_, _| {
            let _kept = &stuck;
            Disposition::Remove
        })
        .unwrap();
    let blocked = Arc::clone(&gate);
    let second = handles
        .user_event(move |(), _: &_, _| {
            blocked.pass();
            Disposition::Keep
        })
        .unwrap();
    let open = Arc::clone(&gate);
    let third = handles
        .user_event(move |(), _: &_, _| {
            open.open();
            Disposition::Keep
        })
        .unwrap();
    run(&set, 3, || {
        wait_until("a thread waits", || set.counters().waits > 0);
        for (event, blocked) in [(first, 1), (second, 2)] {
            handles.activate(event).unwrap();
            wait_until("a thread is stuck", || {
                gate.blocked.load(Ordering::SeqCst) == blocked
            });
        }
        // One thread is free, and only that can open the gate.
        handles.activate(third).unwrap();
        gate.pass();
    });
}
