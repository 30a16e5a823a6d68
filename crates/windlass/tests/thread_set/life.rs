//! How sets begin and end, and what they take.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use windlass::demultiplexer::{Backend, BackendConfig};
use windlass::event_loop::RegisterErrorKind;
use windlass::thread_set::{HandleOptions, HandleSet, ThreadSet, WhenEmpty};
use windlass::{Disposition, Happened, Trigger};

use crate::support::{run, set, set_on, wait_until};

#[test]
fn a_set_may_be_shared_whatever_its_threads_have() {
    fn shared<T: Send + Sync>() {}
    shared::<ThreadSet<Rc<Cell<u8>>>>();
    shared::<HandleSet<Rc<Cell<u8>>>>();
}

#[test]
fn a_set_ends_when_nothing_is_left() {
    let set = ThreadSet::<u32>::new().unwrap();
    set.join(&mut 0).unwrap();
    let set = ThreadSet::<u32>::new().unwrap();
    for delay in 1..5 {
        set.handles()
            .after(Duration::from_millis(delay), |calls: &mut u32, _: &_| {
                *calls += 1;
            })
            .unwrap();
    }
    let calls: u32 = thread::scope(|scope| {
        let threads = [(); 3].map(|()| {
            scope.spawn(|| {
                let mut calls = 0;
                set.join(&mut calls).unwrap();
                calls
            })
        });
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(calls, 4);
}

#[test]
fn a_stop_ends_all_threads_and_is_for_good() {
    for backend in Backend::ALL {
        let set = set_on(backend);
        let handles = set.handles();
        run(&set, 5, || {
            handles
                .after(Duration::from_millis(5), |(), cx: &_| cx.stop())
                .unwrap();
        });
        set.join(&mut ()).unwrap();
    }
}

#[test]
fn threads_may_come_later() {
    let set = set();
    let handles = set.handles();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let event = handles
        .user_event(move |(), _: &_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Disposition::Keep
        })
        .unwrap();
    handles.activate(event).unwrap();
    run(&set, 1, || {
        wait_until("it is called", || calls.load(Ordering::SeqCst) == 1);
        thread::scope(|scope| {
            scope.spawn(|| set.join(&mut ()).unwrap());
            handles.activate(event).unwrap();
            wait_until("it is called again", || calls.load(Ordering::SeqCst) == 2);
            handles.stop();
        });
    });
}

#[test]
fn a_panic_of_a_handler_ends_the_set_and_goes_on_in_its_thread() {
    let set = set();
    set.handles()
        .after(Duration::from_millis(1), |(), _: &_| panic!("as asked"))
        .unwrap();
    thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| catch_unwind(AssertUnwindSafe(|| set.join(&mut ()).unwrap())))
        });
        let ends = threads.map(|thread| thread.join().unwrap());
        let panics = ends.iter().filter(|end| end.is_err()).count();
        assert_eq!(panics, 1);
    });
}

#[test]
fn what_was_gathered_is_written_out_before_the_thread_waits() {
    #[derive(Default)]
    struct Gathered {
        here: u64,
    }
    let written = AtomicU64::new(0);
    let set =
        ThreadSet::<Gathered>::with_config(&BackendConfig::default(), WhenEmpty::GoOn).unwrap();
    let handles = set.handles();
    let event = handles
        .user_event(|gathered: &mut Gathered, _: &_, _| {
            gathered.here += 1;
            Disposition::Keep
        })
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut gathered = Gathered::default();
                let rest = |gathered: &mut Gathered| {
                    written.fetch_add(gathered.here, Ordering::SeqCst);
                    gathered.here = 0;
                };
                set.join_with(&mut gathered, rest).unwrap();
            });
        }
        for number in 1..=1000 {
            handles.activate(event).unwrap();
            wait_until("it is written", || written.load(Ordering::SeqCst) == number);
        }
        handles.stop();
    });
}

#[test]
fn a_handle_that_is_deactivated_is_silent_until_it_is_reactivated() {
    for backend in Backend::ALL {
        let set = set_on(backend);
        let handles = set.handles();
        let (mut near, far) = UnixStream::pair().unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let event = handles
            .watch(far, HandleOptions::default(), move |(), _, mut far, _| {
                let _ = far.read(&mut [0]).unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                Disposition::Keep
            })
            .unwrap();
        let (mark, marked) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
        // Whatever was ready before it has had its turn.
        let pass = || {
            let wanted = marked.fetch_add(1, Ordering::SeqCst) + 1;
            let mark_too = Arc::clone(&mark);
            handles
                .after(Duration::from_millis(2), move |(), _: &_| {
                    mark_too.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap();
            wait_until("a turn has passed", || {
                mark.load(Ordering::SeqCst) == wanted
            });
        };
        run(&set, 3, || {
            handles.deactivate_handle(event).unwrap();
            near.write_all(b"x").unwrap();
            pass();
            assert_eq!(calls.load(Ordering::SeqCst), 0);
            assert!(!handles.state(event).unwrap().pending);
            handles.reactivate_handle(event).unwrap();
            wait_until("it is called", || calls.load(Ordering::SeqCst) == 1);
            near.write_all(b"x").unwrap();
            wait_until("it is called again", || calls.load(Ordering::SeqCst) == 2);
        });
    }
}

#[test]
fn a_regular_file_counts_as_always_ready() {
    // Whether a thread waits already when the file is registered is a matter of luck.
    for _ in 0..100 {
        watch_a_file();
    }
}

fn watch_a_file() {
    let set = set_on(Backend::Epoll);
    let handles = set.handles();
    let calls = Arc::new(AtomicU64::new(0));
    run(&set, 2, || {
        let counted = Arc::clone(&calls);
        let file = File::open("/dev/null").unwrap();
        handles
            .watch(file, HandleOptions::default(), move |(), _, _, _| {
                if counted.fetch_add(1, Ordering::SeqCst) == 9 {
                    return Disposition::Remove;
                }
                Disposition::Keep
            })
            .unwrap();
        wait_until("it was called ten times", || {
            calls.load(Ordering::SeqCst) == 10 && handles.is_empty()
        });
    });
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let set = set_on(Backend::Epoll);
    let handles = set.handles();
    let handler =
        |(): &mut (), _: &windlass::thread_set::SetContext<'_, ()>, _: Happened| Disposition::Keep;
    let error = handles
        .register_handle(Box::new(handler), HandleOptions::default())
        .unwrap_err();
    assert!(matches!(error.kind, RegisterErrorKind::NoHandle));
    assert!(error.rejected.is_some());
    let set = set_on(Backend::Poll);
    let handles = set.handles();
    let (_near, far) = UnixStream::pair().unwrap();
    let options = HandleOptions {
        trigger: Trigger::Edge,
        ..HandleOptions::default()
    };
    let error = handles
        .watch(far, options, |(), _, _, _| Disposition::Keep)
        .unwrap_err();
    assert!(
        matches!(error.kind, RegisterErrorKind::Demultiplexer { .. }),
        "{error}"
    );
    assert!(handles.is_empty());
}

#[test]
fn what_was_removed_is_dropped_though_the_set_is_stopped_at_once() {
    for backend in Backend::ALL {
        for _ in 0..50 {
            let set = set_on(backend);
            let handles = set.handles();
            let (mut near, far) = UnixStream::pair().unwrap();
            let event = handles
                .watch(far, HandleOptions::default(), |(), _, _, _| {
                    Disposition::Keep
                })
                .unwrap();
            thread::scope(|scope| {
                let leader = scope.spawn(|| set.join(&mut ()).unwrap());
                wait_until("it waits", || set.counters().waits > 0);
                assert!(handles.remove_handle(event).is_ok());
                handles.stop();
                leader.join().unwrap();
            });
            // The set is still there, its handler is not.
            near.set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            assert_eq!(near.read(&mut [0]).unwrap(), 0, "{backend}");
        }
    }
}
