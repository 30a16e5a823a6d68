//! No handler and no handle in two threads at once; nothing is called after its removal.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use windlass::demultiplexer::Backend;
use windlass::thread_set::HandleOptions;
use windlass::{Disposition, Interest, Trigger};

use crate::support::{run, set, set_on, wait_until};

/// Says that something is done by one thread at a time.
#[derive(Default)]
struct Alone(AtomicBool);

impl Alone {
    fn during<R>(&self, run: impl FnOnce() -> R) -> R {
        assert!(!self.0.swap(true, Ordering::SeqCst), "two at once");
        let result = run();
        assert!(self.0.swap(false, Ordering::SeqCst));
        result
    }
}

#[test]
fn no_handle_is_handled_by_two_threads_at_once_whatever_is_registered_for_it() {
    for (backend, trigger) in [
        (Backend::Epoll, Trigger::Level),
        (Backend::Epoll, Trigger::Edge),
        (Backend::Poll, Trigger::Level),
        (Backend::Select, Trigger::Level),
    ] {
        let set = set_on(backend);
        let bytes = 20_000;
        let got = Arc::new(AtomicU64::new(0));
        let mut peers = Vec::new();
        for _ in 0..6 {
            let (near, far) = UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            let far = Arc::new(far);
            let alone = Arc::new(Alone::default());
            for interest in [Interest::READ, Interest::READ | Interest::PRIORITY] {
                let (alone, got) = (Arc::clone(&alone), Arc::clone(&got));
                let options = HandleOptions {
                    interest,
                    trigger,
                    timeout: Some(Duration::from_millis(1)),
                    ..HandleOptions::default()
                };
                set.handles()
                    .watch(Arc::clone(&far), options, move |(), _, far, _| {
                        alone.during(|| {
                            let mut room = [0; 16];
                            while let Ok(count) = (&**far).read(&mut room) {
                                if count == 0 {
                                    return Disposition::Disable;
                                }
                                got.fetch_add(count as u64, Ordering::SeqCst);
                            }
                            Disposition::Keep
                        })
                    })
                    .unwrap();
            }
            peers.push(near);
        }
        run(&set, 4, || {
            let count = peers.len() as u64;
            for _ in 0..bytes / 10 {
                for peer in &mut peers {
                    peer.write_all(b"0123456789").unwrap();
                }
            }
            wait_until("all is read", || {
                got.load(Ordering::SeqCst) == bytes * count
            });
        });
    }
}

/// Tells when its handler is dropped.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn pf_11_after_a_removal_that_found_it_idle_a_handler_is_not_called() {
    let set = set();
    let handles = set.handles();
    run(&set, 3, || {
        for round in 0..1_000 {
            let (mut near, far) = UnixStream::pair().unwrap();
            let poisoned = Arc::new(AtomicBool::new(false));
            let dropped = Arc::new(AtomicBool::new(false));
            let calls = Arc::new(AtomicU64::new(0));
            let (is_poisoned, counted) = (Arc::clone(&poisoned), Arc::clone(&calls));
            let gone = Gone(Arc::clone(&dropped));
            let event = handles
                .watch(far, HandleOptions::default(), move |(), _, _, _| {
                    let _gone = &gone;
                    counted.fetch_add(1, Ordering::SeqCst);
                    assert!(
                        !is_poisoned.load(Ordering::SeqCst),
                        "called after its removal"
                    );
                    Disposition::Keep
                })
                .unwrap();
            // It is called again and again, as nothing is read.
            near.write_all(b"x").unwrap();
            wait_until("it is called", || calls.load(Ordering::SeqCst) > round % 3);
            if !handles.remove_handle(event).unwrap() {
                wait_until("it is back", || dropped.load(Ordering::SeqCst));
            }
            poisoned.store(true, Ordering::SeqCst);
            assert!(handles.remove_handle(event).is_err());
        }
    });
}

/// PF-12: two handlers reach for each other, from two threads.
#[test]
fn pf_12_handlers_may_do_anything_to_each_other() {
    let set = set();
    let handles = set.handles();
    let events = Arc::new(OnceLock::new());
    let left = Arc::new(AtomicU64::new(100_000));
    let both = [0, 1].map(|own: usize| {
        let (events, left) = (Arc::clone(&events), Arc::clone(&left));
        handles
            .user_event(move |(), cx: &_, _| {
                let events: &[_; 2] = events.get().unwrap();
                let other = events[1 - own];
                let _ = cx.arm_at(other, cx.now() + Duration::from_secs(3600));
                let _ = cx.disarm(other);
                if left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        left.checked_sub(1)
                    })
                    .is_ok()
                {
                    cx.activate(other).unwrap();
                    cx.activate(cx.event()).unwrap();
                }
                Disposition::Keep
            })
            .unwrap()
    });
    events.set(both).unwrap();
    run(&set, 4, || {
        handles.activate(both[0]).unwrap();
        wait_until("all were sent", || left.load(Ordering::SeqCst) == 0);
    });
}

#[test]
fn registrations_come_and_go_from_all_threads() {
    for backend in Backend::ALL {
        let set = set_on(backend);
        let handles = set.handles();
        let served = Arc::new(AtomicU64::new(0));
        let rounds = 300;
        run(&set, 4, || {
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..rounds {
                            let (mut near, far) = UnixStream::pair().unwrap();
                            let counted = Arc::clone(&served);
                            handles
                                .watch(far, HandleOptions::default(), move |(), _, mut far, _| {
                                    let mut byte = [0];
                                    if far.read(&mut byte).unwrap() == 0 {
                                        counted.fetch_add(1, Ordering::SeqCst);
                                        return Disposition::Remove;
                                    }
                                    far.write_all(&byte).unwrap();
                                    Disposition::Keep
                                })
                                .unwrap();
                            let mut byte = [7];
                            near.write_all(&byte).unwrap();
                            near.read_exact(&mut byte).unwrap();
                            near.shutdown(Shutdown::Both).unwrap();
                        }
                    });
                }
            });
            wait_until("all have ended", || {
                served.load(Ordering::SeqCst) == 3 * rounds && handles.is_empty()
            });
        });
    }
}
