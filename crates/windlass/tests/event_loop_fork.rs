//! Loops after fork(2), over each back end: the child's own, and the parent's undisturbed (PF-09).
//! Each test forks in a process of its own.

#[path = "common/loops.rs"]
mod common;

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use common::{alone_on_each_backend, drain, open, pipe};
use windlass::Disposition::{Keep, Remove};
use windlass::StopReason;
use windlass::demultiplexer::Backend;
use windlass::event_loop::{EventLoop, Signal};

alone_on_each_backend! {
    a_child_that_drops_the_loop_does_not_disturb_the_parent
    a_fork_inside_a_handler_leaves_two_working_loops
    a_watchdog_may_be_dropped_in_the_child
    pf_09_events_from_before_the_fork_work_in_both
    pf_09_removals_in_one_process_do_not_reach_the_other
    pf_09_signals_added_after_the_fork_are_each_processs_own
    pf_09_signals_from_before_the_fork_are_each_processs_own
    posts_from_before_the_fork_run_in_both
    reinit_in_the_same_process_changes_nothing
    wakes_in_the_child_do_not_wake_the_parent
}

/// The parent's view of a child.
struct Child {
    pid: i32,
}

/// Forks, fork(2), and runs `child` in the child, which ends after it.
///
/// The caller's process has no other thread that holds a lock at that moment: the test runs alone
/// in it, and its guard waits for a channel.
fn fork(child: impl FnOnce()) -> Child {
    // SAFETY: see above; the child runs this thread only.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", io::Error::last_os_error());
    if pid > 0 {
        return Child { pid };
    }
    // Nobody guards the child against hanging but the kernel.
    // SAFETY: alarm takes a number.
    unsafe { libc::alarm(60) };
    let result = catch_unwind(AssertUnwindSafe(child));
    // SAFETY: ends the process at once: what the parent has is not to be dropped here.
    unsafe { libc::_exit(i32::from(result.is_err())) }
}

impl Child {
    fn send(&self, signal: Signal) {
        send(self.pid, signal);
    }

    /// Waits for its end and passes its failure on.
    fn join(self) {
        let mut status = 0;
        // SAFETY: `status` is a local to be filled; the child is ours and not waited for yet.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!((pid, status), (self.pid, 0), "the child failed");
    }
}

fn send(pid: i32, signal: Signal) {
    // SAFETY: kill takes two numbers and touches no memory.
    assert_eq!(unsafe { libc::kill(pid, signal.number()) }, 0);
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// One process says to the other that it may go on.
struct Gate {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Gate {
    fn new() -> Self {
        let (reader, writer) = io::pipe().expect("pipe");
        Self { reader, writer }
    }

    fn open(&self) {
        (&self.writer).write_all(b"x").expect("open the gate");
    }

    fn pass(&self) {
        (&self.reader).read_exact(&mut [0]).expect("pass the gate");
    }
}

/// What a loop's handlers saw.
#[derive(Debug, Default)]
struct Seen {
    bytes: Vec<u8>,
    signals: u32,
    ticks: u32,
    wakes: u32,
    posts: u32,
}

/// A loop with one event of each kind; it stops when it has seen all.
struct Everything {
    event_loop: EventLoop<'static, Seen>,
    waker: windlass::event_loop::Waker,
    writer: PipeWriter,
}

fn everything(backend: Backend) -> Everything {
    fn check(seen: &Seen, cx: &mut windlass::event_loop::Context<'_, '_, Seen>) {
        let Seen {
            bytes,
            signals,
            ticks,
            wakes,
            ..
        } = seen;
        if !bytes.is_empty() && *signals > 0 && *ticks > 0 && *wakes > 0 {
            cx.stop();
        }
    }
    let mut event_loop = open::<Seen>(backend);
    let (reader, writer) = pipe();
    event_loop
        .on_readable(reader, |seen: &mut Seen, cx, reader| {
            seen.bytes.extend(drain(reader));
            check(seen, cx);
            Keep
        })
        .expect("reader");
    event_loop
        .on_signal(Signal::USR1, |seen, cx, info| {
            seen.signals += info.count;
            check(seen, cx);
            Keep
        })
        .expect("signal");
    event_loop
        .every(Duration::from_millis(5), |seen, cx| {
            seen.ticks += 1;
            check(seen, cx);
            Keep
        })
        .expect("timer");
    let (_, waker) = event_loop
        .waker(|seen, cx| {
            seen.wakes += 1;
            check(seen, cx);
            Keep
        })
        .expect("waker");
    Everything {
        event_loop,
        waker,
        writer,
    }
}

impl Everything {
    /// Has each event happen, in this process, and runs until all are seen.
    fn check(&mut self) {
        send(own_pid(), Signal::USR1);
        self.waker.wake();
        self.writer.write_all(b"x").expect("write");
        let mut seen = Seen::default();
        let reason = self.event_loop.run(&mut seen).expect("run");
        assert_eq!(reason, StopReason::Exit, "{seen:?}");
    }
}

fn pf_09_events_from_before_the_fork_work_in_both(backend: Backend) {
    for child_first in [true, false] {
        let mut all = everything(backend);
        // As if it had been used already.
        all.check();
        // The pipe itself is shared: one after the other.
        let (to_child, to_parent) = (Gate::new(), Gate::new());
        let child = fork(|| {
            all.event_loop.reinit().expect("reinit");
            if !child_first {
                to_child.pass();
            }
            all.check();
            to_parent.open();
            to_child.pass();
        });
        if child_first {
            to_parent.pass();
        }
        all.check();
        to_child.open();
        if !child_first {
            to_parent.pass();
        }
        all.check();
        to_child.open();
        child.join();
        all.check();
    }
}

fn pf_09_signals_from_before_the_fork_are_each_processs_own(backend: Backend) {
    let mut event_loop = counting_loop(backend);
    watch(&mut event_loop);
    let ready = Gate::new();
    let parent = own_pid();
    let child = fork(|| {
        event_loop.reinit().expect("reinit");
        ready.open();
        expect_signal_from(&mut event_loop, parent);
    });
    ready.pass();
    child.send(Signal::USR1);
    child.join();
    nothing_came(&mut event_loop);
    send(parent, Signal::USR1);
    expect_signal_from(&mut event_loop, parent);
}

fn pf_09_signals_added_after_the_fork_are_each_processs_own(backend: Backend) {
    for parent_first in [true, false] {
        let mut event_loop = counting_loop(backend);
        let (to_child, to_parent) = (Gate::new(), Gate::new());
        let parent = own_pid();
        let child = fork(|| {
            event_loop.reinit().expect("reinit");
            if parent_first {
                to_child.pass();
            }
            watch(&mut event_loop);
            to_parent.open();
            to_child.pass();
            // The one to the parent is not seen here.
            nothing_came(&mut event_loop);
            to_parent.open();
            expect_signal_from(&mut event_loop, parent);
        });
        if !parent_first {
            to_parent.pass();
        }
        watch(&mut event_loop);
        to_child.open();
        if parent_first {
            to_parent.pass();
        }
        send(parent, Signal::USR1);
        expect_signal_from(&mut event_loop, parent);
        if parent_first {
            to_child.open();
        }
        to_parent.pass();
        child.send(Signal::USR1);
        child.join();
        nothing_came(&mut event_loop);
    }
}

type Senders = Vec<i32>;

fn counting_loop(backend: Backend) -> EventLoop<'static, Senders> {
    let mut event_loop = open(backend);
    event_loop.hold();
    event_loop
}

fn watch(event_loop: &mut EventLoop<'_, Senders>) {
    event_loop
        .on_signal(Signal::USR1, |senders, cx, info| {
            assert_eq!(info.count, 1);
            senders.push(info.pid);
            cx.stop();
            Keep
        })
        .expect("signal");
}

fn expect_signal_from(event_loop: &mut EventLoop<'_, Senders>, pid: i32) {
    let mut senders = Senders::new();
    event_loop.run(&mut senders).expect("run");
    assert_eq!(senders, [pid]);
}

fn nothing_came(event_loop: &mut EventLoop<'_, Senders>) {
    let mut senders = Senders::new();
    event_loop.run_nonblocking(&mut senders).expect("run");
    assert_eq!(senders, [0; 0]);
}

fn pf_09_removals_in_one_process_do_not_reach_the_other(backend: Backend) {
    let mut event_loop = open::<Vec<u8>>(backend);
    let (reader_a, mut writer_a) = pipe();
    let (reader_b, mut writer_b) = pipe();
    let mut register = |reader| {
        event_loop
            .on_readable(reader, |bytes: &mut Vec<u8>, cx, reader| {
                bytes.extend(drain(reader));
                cx.stop();
                Keep
            })
            .expect("register")
    };
    let (a, b) = (register(reader_a), register(reader_b));
    let (to_child, to_parent) = (Gate::new(), Gate::new());
    let mut bytes = Vec::new();
    let child = fork(|| {
        event_loop.reinit().expect("reinit");
        let mut bytes = Vec::new();
        assert!(event_loop.remove(b), "here only");
        event_loop.run_nonblocking(&mut bytes).expect("run");
        to_parent.open();
        to_child.pass();
        event_loop.run(&mut bytes).expect("run");
        assert_eq!(bytes, b"a");
    });
    to_parent.pass();
    assert!(event_loop.remove(a), "here only");
    event_loop.run_nonblocking(&mut bytes).expect("run");
    writer_a.write_all(b"a").expect("write");
    to_child.open();
    child.join();
    writer_b.write_all(b"b").expect("write");
    event_loop.run(&mut bytes).expect("run");
    assert_eq!(bytes, b"b");
}

fn posts_from_before_the_fork_run_in_both(backend: Backend) {
    let mut event_loop = open::<Seen>(backend);
    let poster = event_loop.poster();
    for _ in 0..10 {
        poster
            .post(|seen: &mut Seen, _| seen.posts += 1)
            .expect("post");
    }
    let finish = |event_loop: &mut EventLoop<'_, Seen>| {
        poster
            .post(|seen: &mut Seen, _| seen.posts += 1)
            .expect("post");
        let mut seen = Seen::default();
        event_loop.run(&mut seen).expect("run");
        assert_eq!(seen.posts, 11);
    };
    let child = fork(|| {
        event_loop.reinit().expect("reinit");
        finish(&mut event_loop);
        // A thread of the child wakes the child's loop.
        let poster = event_loop.poster();
        event_loop.hold();
        let thread = std::thread::spawn(move || poster.stop());
        let reason = event_loop.run(&mut Seen::default()).expect("run");
        assert_eq!(reason, StopReason::Exit);
        thread.join().expect("join");
    });
    finish(&mut event_loop);
    child.join();
}

fn wakes_in_the_child_do_not_wake_the_parent(backend: Backend) {
    let mut event_loop = open::<Seen>(backend);
    event_loop.hold();
    event_loop
        .run_nonblocking(&mut Seen::default())
        .expect("run");
    let (to_child, to_parent) = (Gate::new(), Gate::new());
    let child = fork(|| {
        event_loop.reinit().expect("reinit");
        to_child.pass();
        let poster = event_loop.poster();
        for _ in 0..100 {
            // It waits, so that each wake-up writes to the channel.
            let poster = poster.clone();
            let (go, went) = mpsc::channel();
            event_loop.on_prepare(move |_, _| {
                let _ = go.send(());
                Remove
            });
            let thread = std::thread::spawn(move || {
                went.recv().expect("about to wait");
                poster.stop();
            });
            event_loop.run(&mut Seen::default()).expect("run");
            thread.join().expect("join");
        }
        to_parent.open();
    });
    let before = event_loop.counters().turns;
    to_child.open();
    let reader = to_parent.reader.try_clone().expect("dup");
    event_loop
        .on_readable(reader, |_, cx, _| {
            cx.stop();
            Remove
        })
        .expect("register");
    event_loop.run(&mut Seen::default()).expect("run");
    let turns = event_loop.counters().turns - before;
    assert!(turns <= 5, "{turns} turns while the child woke itself");
    child.join();
}

fn a_fork_inside_a_handler_leaves_two_working_loops(backend: Backend) {
    let mut all = everything(backend);
    let mut fork_in_handler = || {
        let (sender, receiver) = mpsc::channel();
        all.event_loop
            .defer(move |_, cx| {
                // SAFETY: as in `fork`.
                let pid = unsafe { libc::fork() };
                assert!(pid >= 0);
                if pid == 0 {
                    // SAFETY: alarm takes a number.
                    unsafe { libc::alarm(60) };
                    cx.reinit().expect("reinit");
                }
                sender.send(pid).expect("send");
            })
            .expect("defer");
        let (gate, mut result) = (Gate::new(), Ok(()));
        let mut pid = -1;
        let run = catch_unwind(AssertUnwindSafe(|| {
            // The pipe is shared: the parent waits for the child's end.
            while pid < 0 {
                all.event_loop.run_once(&mut Seen::default()).expect("run");
                pid = receiver.try_recv().unwrap_or(-1);
            }
            if pid > 0 {
                gate.pass();
            }
            all.check();
        }));
        if run.is_err() {
            result = Err(());
        }
        if pid == 0 {
            gate.open();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        result.expect("the parent's part");
        Child { pid }.join();
    };
    fork_in_handler();
    all.check();
}

fn a_child_that_drops_the_loop_does_not_disturb_the_parent(backend: Backend) {
    for reinit in [false, true] {
        let mut all = Some(everything(backend));
        let child = fork(|| {
            let mut all = all.take().expect("the child's copy");
            if reinit {
                all.event_loop.reinit().expect("reinit");
            }
            drop(all);
        });
        child.join();
        all.expect("the parent's").check();
    }
}

fn a_watchdog_may_be_dropped_in_the_child(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let watchdog = event_loop
        .watch_for_stuck_handlers(Duration::from_millis(1), |_| {})
        .expect("watchdog");
    let mut watchdog = Some(watchdog);
    let child = fork(|| {
        event_loop.reinit().expect("reinit");
        drop(watchdog.take());
        event_loop.defer(|(), _| {}).expect("defer");
        event_loop.run(&mut ()).expect("run");
    });
    child.join();
    drop(watchdog);
}

fn reinit_in_the_same_process_changes_nothing(backend: Backend) {
    let mut all = everything(backend);
    for _ in 0..3 {
        all.event_loop.reinit().expect("reinit");
        let inserted = all.event_loop.counters().inserted;
        all.check();
        assert_eq!(inserted, 4);
    }
    // Also with readiness that was collected, changes that were not applied, and from a handler.
    all.event_loop
        .defer(|_, cx| cx.reinit().expect("reinit"))
        .expect("defer");
    all.check();
}
