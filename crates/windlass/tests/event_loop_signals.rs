//! Signals as events, over each back end. Each test runs in a process of its own, as signals are
//! the whole process's.

#[path = "common/loops.rs"]
mod common;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::{alone_on_each_backend, open};
use windlass::Disposition::{Disable, Keep, Remove};
use windlass::StopReason;
use windlass::demultiplexer::Backend;
use windlass::event_loop::{Poster, Signal, SignalInfo, Waker};
use windlass_sys::signal::{ThreadId, send_to_thread};

alone_on_each_backend! {
    a_flood_ends_with_a_call_that_began_after_the_last
    a_signal_event_may_be_disabled_and_enabled
    a_signal_to_any_thread_is_seen
    a_signal_wakes_a_waiting_loop
    deliveries_are_counted_and_the_sender_is_known
    every_loop_of_the_process_gets_it
    pf_10_a_spawned_program_sees_the_original_mask_and_dispositions
    pf_10_all_children_that_end_at_once_are_reported
    pf_10_the_last_removal_restores_the_disposition
    pf_15_a_waker_and_a_stop_work_in_a_signal_handler
    several_events_may_wait_for_one_signal
}

/// Sends a signal to this thread: it has been handled when this returns, and nothing merges.
fn send(signal: Signal) {
    send_to_thread(ThreadId::current(), signal.number()).expect("tgkill");
}

/// Sends a signal to this process, kill(2): any thread may get it, now or soon.
fn send_to_process(signal: Signal) {
    let pid = i32::try_from(std::process::id()).expect("a process id");
    // SAFETY: kill takes two numbers and touches no memory.
    assert_eq!(unsafe { libc::kill(pid, signal.number()) }, 0);
}

/// Whether a signal is in a set of this thread: SigBlk, SigIgn, SigCgt, proc(5).
fn is_in(set: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with(set));
    let mask = line.and_then(|line| line.split_whitespace().nth(1));
    let mask = u64::from_str_radix(mask.expect("a mask"), 16).expect("hexadecimal");
    mask & 1 << (signal.number() - 1) != 0
}

fn a_signal_wakes_a_waiting_loop(backend: Backend) {
    let mut event_loop = open::<Vec<SignalInfo>>(backend);
    event_loop
        .on_signal(Signal::USR1, |seen, cx, info| {
            seen.push(info);
            cx.stop();
            Keep
        })
        .expect("signal");
    // Sent by a thread when the loop is about to wait, or waits.
    let (go, went) = mpsc::channel();
    event_loop.on_prepare(move |_, _| {
        let _ = go.send(());
        Remove
    });
    let thread = thread::spawn(move || {
        went.recv().expect("prepared");
        send_to_process(Signal::USR1);
    });
    let mut seen = Vec::new();
    assert_eq!(event_loop.run(&mut seen).expect("run"), StopReason::Exit);
    thread.join().expect("join");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].signal, Signal::USR1);
    assert_eq!(seen[0].to_string(), "SIGUSR1");
}

fn deliveries_are_counted_and_the_sender_is_known(backend: Backend) {
    let mut event_loop = open::<Vec<SignalInfo>>(backend);
    event_loop
        .on_signal(Signal::USR1, |seen, _, info| {
            seen.push(info);
            Keep
        })
        .expect("signal");
    let mut seen = Vec::new();
    for _ in 0..3 {
        send(Signal::USR1);
    }
    event_loop.run_once(&mut seen).expect("run");
    assert_eq!(seen.len(), 1, "one call for all");
    assert_eq!(seen[0].count, 3);
    assert_eq!(seen[0].pid.cast_unsigned(), std::process::id());
    // SAFETY: getuid takes nothing and cannot fail.
    assert_eq!(seen[0].uid, unsafe { libc::getuid() });
    let mut child = Command::new("sh")
        .args(["-c", "kill -USR1 $PPID; read line"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("spawn");
    event_loop.run_once(&mut seen).expect("run");
    assert_eq!(seen[1].pid.cast_unsigned(), child.id());
    assert_eq!(seen[1].count, 1);
    drop(child.stdin.take());
    child.wait().expect("wait");
}

fn several_events_may_wait_for_one_signal(backend: Backend) {
    let mut event_loop = open::<Vec<u32>>(backend);
    let events: Vec<_> = (0..3)
        .map(|name| {
            event_loop
                .on_signal(Signal::USR1, move |seen: &mut Vec<u32>, _, _| {
                    seen.push(name);
                    Keep
                })
                .expect("signal")
        })
        .collect();
    event_loop
        .on_signal(Signal::USR2, |seen, _, _| {
            seen.push(100);
            Keep
        })
        .expect("signal");
    let mut seen = Vec::new();
    send(Signal::USR1);
    event_loop.run_once(&mut seen).expect("run");
    assert_eq!(seen, [0, 1, 2]);
    assert!(event_loop.remove(events[1]));
    seen.clear();
    send(Signal::USR1);
    send(Signal::USR2);
    event_loop.run_once(&mut seen).expect("run");
    seen.sort_unstable();
    assert_eq!(seen, [0, 2, 100]);
}

fn every_loop_of_the_process_gets_it(backend: Backend) {
    let mut loops: Vec<_> = (0..3)
        .map(|_| {
            let mut event_loop = open::<u32>(backend);
            event_loop
                .on_signal(Signal::USR1, |calls, _, _| {
                    *calls += 1;
                    Keep
                })
                .expect("signal");
            event_loop
        })
        .collect();
    // One more in a thread of its own.
    let (ready, is_ready) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut event_loop = open::<u32>(backend);
        event_loop
            .on_signal(Signal::USR1, |calls, cx, _| {
                *calls += 1;
                cx.stop();
                Keep
            })
            .expect("signal");
        ready.send(()).expect("send");
        let mut calls = 0;
        event_loop.run(&mut calls).expect("run");
        calls
    });
    is_ready.recv().expect("ready");
    send_to_process(Signal::USR1);
    assert_eq!(thread.join().expect("join"), 1);
    for event_loop in &mut loops {
        let mut calls = 0;
        event_loop.run_once(&mut calls).expect("run");
        assert_eq!(calls, 1);
    }
    // A loop that is gone takes nothing away from the others.
    loops.truncate(1);
    send_to_process(Signal::USR1);
    let mut calls = 0;
    loops[0].run_once(&mut calls).expect("run");
    assert_eq!(calls, 1);
}

fn a_signal_to_any_thread_is_seen(backend: Backend) {
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    // Started before any signal is watched.
    let thread = thread::spawn(move || {
        tell.send(ThreadId::current()).expect("send");
        ended.recv().expect_err("the sender is dropped");
    });
    let id = told.recv().expect("id");
    let mut event_loop = open::<u32>(backend);
    event_loop
        .on_signal(Signal::USR1, |calls, _, _| {
            *calls += 1;
            Keep
        })
        .expect("signal");
    let mut calls = 0;
    send_to_thread(id, Signal::USR1.number()).expect("tgkill");
    event_loop.run_once(&mut calls).expect("run");
    assert_eq!(calls, 1);
    drop(end);
    thread.join().expect("join");
}

fn a_signal_event_may_be_disabled_and_enabled(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    // Ignored by default, so that it may be sent when nobody watches it.
    let event = event_loop
        .on_signal(Signal::WINCH, |calls, _, _| {
            *calls += 1;
            Keep
        })
        .expect("signal");
    let mut calls = 0;
    for round in 1..=2 {
        assert!(is_in("SigCgt", Signal::WINCH));
        send(Signal::WINCH);
        event_loop.run_once(&mut calls).expect("run");
        assert_eq!(calls, round);
        event_loop.disable(event).expect("disable");
        assert!(!is_in("SigCgt", Signal::WINCH));
        send(Signal::WINCH);
        event_loop.run_nonblocking(&mut calls).expect("run");
        assert_eq!(calls, round);
        event_loop.enable(event).expect("enable");
        event_loop.run_nonblocking(&mut calls).expect("run");
        assert_eq!(calls, round, "what came meanwhile was not for it");
    }
}

fn pf_10_the_last_removal_restores_the_disposition(backend: Backend) {
    // SAFETY: a signal is set to be ignored; no handler is involved.
    unsafe { libc::signal(Signal::USR2.number(), libc::SIG_IGN) };
    let before = (
        is_in("SigIgn", Signal::USR2),
        is_in("SigCgt", Signal::USR2),
        is_in("SigCgt", Signal::WINCH),
    );
    assert_eq!(before, (true, false, false));
    let mut event_loop = open::<u32>(backend);
    let mut other = open::<u32>(backend);
    for round in 0..3 {
        let first = event_loop
            .on_signal(Signal::USR2, |calls, _, _| {
                *calls += 1;
                Keep
            })
            .expect("an ignored signal is seen");
        event_loop
            .on_signal(Signal::WINCH, move |calls, _, _| {
                *calls += 1;
                if round == 1 { Disable } else { Remove }
            })
            .expect("signal");
        let second = other
            .on_signal(Signal::USR2, |_, _, _| Keep)
            .expect("signal");
        send(Signal::USR2);
        send(Signal::WINCH);
        let mut calls = 0;
        event_loop.run_once(&mut calls).expect("run");
        assert_eq!(calls, 2);
        assert!(!is_in("SigCgt", Signal::WINCH), "restored by the answer");
        assert!(!is_in("SigBlk", Signal::USR2), "no mask is touched");
        assert!(event_loop.remove(first));
        assert!(is_in("SigCgt", Signal::USR2), "another loop watches it");
        if round == 2 {
            drop(other);
            assert!(is_in("SigIgn", Signal::USR2), "with the loop");
            return;
        }
        assert!(other.remove(second));
        assert!(is_in("SigIgn", Signal::USR2) && !is_in("SigCgt", Signal::USR2));
        // Ignored again, and not deadly.
        send(Signal::USR2);
    }
}

/// What a program that is started now says of its own mask and dispositions.
fn sets_of_a_new_program() -> BTreeMap<String, String> {
    let output = Command::new("grep")
        .args(["-E", "^(SigBlk|SigIgn|SigCgt)", "/proc/self/status"])
        .output()
        .expect("spawn");
    let text = String::from_utf8(output.stdout).expect("text");
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, mask)| (name.into(), mask.trim().into()))
        .collect()
}

fn pf_10_a_spawned_program_sees_the_original_mask_and_dispositions(backend: Backend) {
    // SAFETY: a signal is set to be ignored, which programs inherit; no handler is involved.
    unsafe { libc::signal(Signal::QUIT.number(), libc::SIG_IGN) };
    let signals = [
        Signal::CHLD,
        Signal::HUP,
        Signal::INT,
        Signal::TERM,
        Signal::USR1,
        Signal::USR2,
    ];
    for signal in signals {
        // A job in the background starts with SIGINT ignored; see `on_signal` for such signals.
        // SAFETY: a signal gets its default; no handler is involved.
        unsafe { libc::signal(signal.number(), libc::SIG_DFL) };
    }
    let before = sets_of_a_new_program();
    assert_eq!(before.len(), 3, "{before:?}");
    let mut event_loop = open::<BTreeMap<String, String>>(backend);
    for signal in signals {
        event_loop
            .on_signal(signal, |_, _, _| Keep)
            .expect("signal");
    }
    assert_eq!(sets_of_a_new_program(), before);
    // From a thread, and from inside a handler of a running loop.
    let from_thread = thread::spawn(sets_of_a_new_program).join().expect("join");
    assert_eq!(from_thread, before);
    event_loop
        .on_signal(Signal::WINCH, |sets, cx, _| {
            *sets = sets_of_a_new_program();
            cx.stop();
            Keep
        })
        .expect("signal");
    send(Signal::WINCH);
    let mut sets = BTreeMap::new();
    event_loop.run(&mut sets).expect("run");
    assert_eq!(sets, before);
    drop(event_loop);
    assert_eq!(sets_of_a_new_program(), before);
}

fn pf_10_all_children_that_end_at_once_are_reported(backend: Backend) {
    const CHILDREN: usize = 20;
    let mut event_loop = open::<Vec<Child>>(backend);
    event_loop
        .on_signal(Signal::CHLD, |children, cx, info| {
            assert!(info.count >= 1);
            // Signals merge: wait until none is left that has ended.
            children.retain_mut(|child| child.try_wait().expect("wait").is_none());
            if children.is_empty() {
                cx.stop();
            }
            Keep
        })
        .expect("signal");
    // All read the same pipe, and end when its last writer is closed.
    let (reader, writer) = std::io::pipe().expect("pipe");
    let mut children: Vec<Child> = (0..CHILDREN)
        .map(|_| {
            Command::new("cat")
                .stdin(reader.try_clone().expect("dup"))
                .stdout(Stdio::null())
                .spawn()
                .expect("spawn")
        })
        .collect();
    drop((reader, writer));
    assert_eq!(
        event_loop.run(&mut children).expect("run"),
        StopReason::Exit
    );
    assert!(children.is_empty());
}

fn a_flood_ends_with_a_call_that_began_after_the_last(backend: Backend) {
    let mut event_loop = open::<u64>(backend);
    let all_sent = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&all_sent);
    event_loop
        .on_signal(Signal::USR1, move |count, cx, info| {
            *count += u64::from(info.count);
            if is_over.load(Ordering::Acquire) {
                cx.stop();
            }
            Keep
        })
        .expect("signal");
    let thread = thread::spawn(move || {
        // More than the pipe holds.
        for _ in 0..20_000 {
            send_to_process(Signal::USR1);
        }
        all_sent.store(true, Ordering::Release);
        send_to_process(Signal::USR1);
    });
    let mut count = 0;
    event_loop.run(&mut count).expect("run");
    thread.join().expect("join");
    assert!((1..=20_001).contains(&count), "{count}");
}

static IN_HANDLER: OnceLock<(Waker, Poster<'static, u32>)> = OnceLock::new();

extern "C" fn wake_or_stop(signal: i32) {
    if let Some((waker, poster)) = IN_HANDLER.get() {
        if signal == libc::SIGUSR1 {
            waker.wake();
        } else {
            poster.stop();
        }
    }
}

fn pf_15_a_waker_and_a_stop_work_in_a_signal_handler(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop.hold();
    let (told, is_told) = mpsc::channel();
    let (_, waker) = event_loop
        .waker(move |calls, _| {
            *calls += 1;
            told.send(()).expect("send");
            Keep
        })
        .expect("waker");
    IN_HANDLER
        .set((waker, event_loop.poster()))
        .expect("set once");
    for signal in [Signal::USR1, Signal::USR2] {
        let handler = wake_or_stop as extern "C" fn(i32) as libc::sighandler_t;
        // SAFETY: the handler uses atomics and write(2) only.
        unsafe { libc::signal(signal.number(), handler) };
    }
    let thread = thread::spawn(move || {
        for _ in 0..1000 {
            send_to_process(Signal::USR1);
            is_told
                .recv_timeout(Duration::from_secs(60))
                .expect("woken");
        }
        send_to_process(Signal::USR2);
    });
    let mut calls = 0;
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Exit);
    thread.join().expect("join");
    assert_eq!(calls, 1000);
}
