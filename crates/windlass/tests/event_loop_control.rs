//! Loop control over each back end: runs and their ends, holds, hooks, priorities, deferred calls
//! and user events.

#[path = "common/loops.rs"]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{config, on_each_backend, open, readable_pipe};
use windlass::Disposition::{Keep, Remove};
use windlass::demultiplexer::Backend;
use windlass::event_loop::{EventLoop, LoopConfig};
use windlass::{DispatchLimit, EngineConfig, EventError, RunMode, StopReason};

on_each_backend! {
    a_break_leaves_the_rest_of_the_batch_for_the_next_run
    a_deferred_call_runs_after_what_is_active
    a_hold_keeps_an_empty_loop_running
    a_stop_lets_the_rest_of_the_turn_run
    a_user_event_is_told_how_often_it_was_activated
    an_empty_loop_ends
    break_and_stop_before_a_run_end_it
    continue_looks_again_before_the_rest_of_the_batch
    hooks_come_and_go_from_inside_hooks
    hooks_run_around_each_wait
    no_exit_on_empty_waits_for_other_threads
    pf_04_a_stop_is_never_lost
    a_loop_whose_handles_report_once_sleeps_when_idle
    pf_05_a_limit_in_time_does_not_cut_what_is_short
    pf_05_a_starving_class_runs_with_a_bound
    pf_05_a_limited_class_is_interrupted_by_a_more_urgent_event
    pf_05_an_urgent_class_starves_the_others_without_a_bound
    run_nonblocking_returns_though_a_handle_stays_ready
    run_once_of_a_post_ends_by_the_stop_that_it_asked_for
    run_once_waits_for_one_pass
    stop_after_ends_the_run_not_early
}

fn an_empty_loop_ends(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    assert_eq!(event_loop.run(&mut ()).expect("run"), StopReason::Empty);
    let event = event_loop.after(Duration::ZERO, |(), _| {}).expect("arm");
    assert!(event_loop.remove(event));
    assert_eq!(event_loop.run(&mut ()).expect("run"), StopReason::Empty);
    assert_eq!(
        event_loop.run_once(&mut ()).expect("run"),
        StopReason::Empty
    );
}

fn run_once_waits_for_one_pass(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop
        .every(Duration::from_millis(1), |calls, _| {
            *calls += 1;
            Keep
        })
        .expect("arm");
    let mut calls = 0;
    for expected in 1..=3 {
        let reason = event_loop.run_once(&mut calls).expect("run");
        assert_eq!((reason, calls), (StopReason::Passed, expected));
    }
}

fn run_nonblocking_returns_though_a_handle_stays_ready(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let mut calls = 0;
    event_loop
        .after(Duration::from_secs(3600), |_, _| {})
        .expect("arm");
    let reason = event_loop.run_nonblocking(&mut calls).expect("run");
    assert_eq!(reason, StopReason::Passed);
    let (reader, _writer) = readable_pipe();
    event_loop
        .on_readable(reader, |calls: &mut u32, _, _| {
            *calls += 1;
            assert!(*calls < 100, "it does not return");
            Keep
        })
        .expect("register");
    for expected in 1..=3 {
        event_loop.run_nonblocking(&mut calls).expect("run");
        assert_eq!(calls, expected);
    }
}

fn a_stop_lets_the_rest_of_the_turn_run(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    for _ in 0..5 {
        event_loop
            .defer(|calls, cx| {
                *calls += 1;
                cx.stop();
            })
            .expect("defer");
    }
    let mut calls = 0;
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Exit);
    assert_eq!(calls, 5);
    assert_eq!(
        event_loop.run(&mut calls).expect("run"),
        StopReason::Empty,
        "the stops were used up"
    );
}

fn a_break_leaves_the_rest_of_the_batch_for_the_next_run(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let mut writers = Vec::new();
    for _ in 0..5 {
        let (reader, writer) = readable_pipe();
        writers.push(writer);
        event_loop
            .on_readable(reader, |calls, cx, _| {
                *calls += 1;
                cx.break_loop();
                Remove
            })
            .expect("register");
    }
    let mut calls = 0;
    for expected in 1..=5 {
        assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Break);
        assert_eq!(calls, expected);
    }
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Empty);
}

fn break_and_stop_before_a_run_end_it(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop.defer(|calls, _| *calls += 1).expect("defer");
    let mut calls = 0;
    event_loop.stop();
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Exit);
    event_loop.break_loop();
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Break);
    event_loop.poster().stop();
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Exit);
    assert_eq!(calls, 0);
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Empty);
    assert_eq!(calls, 1);
}

fn stop_after_ends_the_run_not_early(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    event_loop.hold();
    let delay = Duration::from_millis(20);
    let start = Instant::now();
    event_loop.stop_after(delay);
    assert_eq!(event_loop.run(&mut ()).expect("run"), StopReason::Exit);
    assert!(start.elapsed() >= delay);
    // It keeps a loop without events running, as a timer would.
    event_loop.release();
    event_loop.stop_after(delay);
    assert_eq!(event_loop.run(&mut ()).expect("run"), StopReason::Exit);
    assert!(start.elapsed() >= delay * 2);
}

fn continue_looks_again_before_the_rest_of_the_batch(backend: Backend) {
    let mut event_loop = two_priorities(backend);
    let urgent = event_loop
        .user_event(|order: &mut Vec<&str>, _, _| {
            order.push("urgent");
            Keep
        })
        .expect("user event");
    for name in ["first", "second"] {
        let event = event_loop
            .user_event(move |order: &mut Vec<&str>, cx, _| {
                order.push(name);
                if name == "first" {
                    cx.activate(urgent, 1).expect("activate");
                    cx.continue_loop();
                }
                Keep
            })
            .expect("user event");
        event_loop.set_priority(event, 1).expect("priority");
        event_loop.activate(event, 1).expect("activate");
    }
    let mut order = Vec::new();
    event_loop.run(&mut order).expect("run");
    assert_eq!(order, ["first", "urgent", "second"]);
}

fn a_hold_keeps_an_empty_loop_running(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop.hold();
    let poster = event_loop.poster();
    let thread = thread::spawn(move || {
        poster
            .post(|calls: &mut u32, cx| {
                *calls += 1;
                cx.release();
            })
            .expect("post");
    });
    let mut calls = 0;
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Empty);
    assert_eq!(calls, 1);
    thread.join().expect("join");
    assert_eq!(event_loop.counters().holds, 0);
}

fn no_exit_on_empty_waits_for_other_threads(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let mode = RunMode {
        no_exit_on_empty: true,
        ..RunMode::default()
    };
    let poster = event_loop.poster();
    let thread = thread::spawn(move || {
        poster.post(|calls: &mut u32, _| *calls += 1).expect("post");
        poster.stop();
    });
    let mut calls = 0;
    let reason = event_loop.run_mode(&mut calls, mode).expect("run");
    assert_eq!(reason, StopReason::Exit);
    thread.join().expect("join");
    event_loop.run(&mut calls).expect("run");
    assert_eq!(calls, 1);
}

fn run_once_of_a_post_ends_by_the_stop_that_it_asked_for(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop.hold();
    let user = event_loop
        .user_event(|calls, _, _| {
            *calls += 10;
            Keep
        })
        .expect("user event");
    let poster = event_loop.poster();
    let mut calls = 0;
    poster.post(|calls: &mut u32, _| *calls += 1).expect("post");
    let reason = event_loop.run_once(&mut calls).expect("run");
    assert_eq!((reason, calls), (StopReason::Passed, 1), "a post is a pass");
    poster
        .post(|calls: &mut u32, cx| {
            *calls += 1;
            cx.stop();
        })
        .expect("post");
    let reason = event_loop.run_once(&mut calls).expect("run");
    assert_eq!((reason, calls), (StopReason::Exit, 2));
    poster
        .post(move |_: &mut u32, cx| cx.activate(user, 1).expect("activate"))
        .expect("post");
    let reason = event_loop.run_once(&mut calls).expect("run");
    assert_eq!(
        (reason, calls),
        (StopReason::Passed, 12),
        "neither the stop nor what the post activated is left for the next run"
    );
}

fn pf_04_a_stop_is_never_lost(backend: Backend) {
    let rounds = if backend == Backend::Epoll {
        100_000
    } else {
        20_000
    };
    let mut event_loop = open::<()>(backend);
    event_loop.hold();
    let poster = event_loop.poster();
    let (start, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // One stop for each run: before it begins, while it prepares, while it waits.
            for round in 0.. {
                let mut spins = 0_u32;
                while !start.swap(false, Ordering::AcqRel) {
                    if done.load(Ordering::Acquire) {
                        return;
                    }
                    spins += 1;
                    // Where the other has no processor to itself, it gets this one.
                    if spins.is_multiple_of(256) {
                        thread::yield_now();
                    }
                    std::hint::spin_loop();
                }
                for _ in 0..round % 64 {
                    std::hint::spin_loop();
                }
                poster.stop();
            }
        });
        for _ in 0..rounds {
            start.store(true, Ordering::Release);
            let reason = event_loop.run(&mut ()).expect("run");
            assert_eq!(reason, StopReason::Exit);
        }
        done.store(true, Ordering::Release);
    });
}

fn hooks_run_around_each_wait(backend: Backend) {
    let mut event_loop = open::<Vec<&str>>(backend);
    event_loop.on_prepare(|order, _| {
        order.push("prepare");
        Keep
    });
    event_loop.on_check(|order, cx| {
        order.push("check");
        let event = cx.event();
        assert!(!cx.remove(event), "a hook has no event");
        Keep
    });
    event_loop
        .after(Duration::from_millis(1), |order, cx| {
            order.push("timer");
            cx.stop();
        })
        .expect("arm");
    let mut order = Vec::new();
    event_loop.run(&mut order).expect("run");
    // An interruption may add a turn; the last one is whole.
    let last = order
        .iter()
        .rposition(|what| *what == "check")
        .expect("check");
    assert_eq!(order[last - 1..], ["prepare", "check", "timer", "prepare"]);
}

fn hooks_come_and_go_from_inside_hooks(backend: Backend) {
    let mut event_loop = open::<Vec<u32>>(backend);
    let victim = event_loop.on_check(|order, _| {
        order.push(2);
        Keep
    });
    event_loop.on_prepare(move |order, cx| {
        order.push(1);
        assert!(cx.remove_hook(victim) && !cx.remove_hook(victim));
        cx.on_prepare(|order, _| {
            order.push(3);
            Remove
        });
        Remove
    });
    let own = std::rc::Rc::new(std::cell::Cell::new(None));
    let known = std::rc::Rc::clone(&own);
    let itself = event_loop.on_check(move |order, cx| {
        order.push(4);
        let itself = known.get().expect("set below");
        assert!(cx.remove_hook(itself), "it is there while it runs");
        assert!(!cx.remove_hook(itself));
        Keep
    });
    own.set(Some(itself));
    let mut order = Vec::new();
    for _ in 0..3 {
        event_loop.defer(|_, _| {}).expect("defer");
        event_loop.run_once(&mut order).expect("run");
    }
    assert_eq!(order, [1, 4, 3]);
}

fn a_deferred_call_runs_after_what_is_active(backend: Backend) {
    let mut event_loop = open::<Vec<&str>>(backend);
    event_loop
        .defer(|order, cx| {
            order.push("first");
            cx.defer(|order, cx| {
                order.push("deferred");
                let event = cx.event();
                assert!(
                    !cx.dump().is_empty() && cx.remove(event),
                    "it exists while it runs"
                );
            })
            .expect("defer");
        })
        .expect("defer");
    event_loop
        .defer(|order, _| order.push("second"))
        .expect("defer");
    let mut order = Vec::new();
    event_loop.run(&mut order).expect("run");
    assert_eq!(order, ["first", "second", "deferred"]);
    assert_eq!(event_loop.counters().inserted, 0);
}

fn a_user_event_is_told_how_often_it_was_activated(backend: Backend) {
    let mut event_loop = open::<Vec<u32>>(backend);
    let event = event_loop
        .user_event(|counts: &mut Vec<u32>, cx, count| {
            counts.push(count);
            if counts.len() == 1 {
                // During its own run: it runs again.
                let event = cx.event();
                cx.activate(event, 4).expect("activate");
                cx.activate(event, 1).expect("activate");
            }
            Keep
        })
        .expect("user event");
    event_loop.activate(event, 1).expect("activate");
    event_loop.activate(event, 2).expect("activate");
    let mut counts = Vec::new();
    assert_eq!(event_loop.run(&mut counts).expect("run"), StopReason::Empty);
    assert_eq!(counts, [3, 5]);
    event_loop.remove(event);
    assert_eq!(event_loop.activate(event, 1), Err(EventError::Gone));
}

fn with_engine<S: 'static>(backend: Backend, engine: EngineConfig) -> EventLoop<'static, S> {
    let config = LoopConfig {
        engine,
        ..config(backend)
    };
    EventLoop::with_config(config).expect("open")
}

fn two_priorities(backend: Backend) -> EventLoop<'static, Vec<&'static str>> {
    let engine = EngineConfig {
        priorities: 2,
        ..EngineConfig::default()
    };
    with_engine(backend, engine)
}

fn pf_05_a_limited_class_is_interrupted_by_a_more_urgent_event(backend: Backend) {
    let engine = EngineConfig {
        priorities: 3,
        dispatch_limit: Some(DispatchLimit {
            interval: None,
            callbacks_max: Some(8),
            from_priority: 1,
        }),
        ..EngineConfig::default()
    };
    let mut event_loop = with_engine::<Vec<u32>>(backend, engine);
    let urgent = event_loop
        .user_event(|order: &mut Vec<u32>, _, _| {
            order.push(1000);
            Keep
        })
        .expect("user event");
    for number in 0..30 {
        let event = event_loop
            .user_event(move |order: &mut Vec<u32>, cx, _| {
                order.push(number);
                if number == 3 {
                    cx.activate(urgent, 1).expect("activate");
                }
                Keep
            })
            .expect("user event");
        event_loop.set_priority(event, 2).expect("priority");
        event_loop.activate(event, 1).expect("activate");
    }
    // More urgent than the limit: never cut, though there are more than eight.
    for number in 100..120 {
        let event = event_loop
            .user_event(move |order: &mut Vec<u32>, _, _| {
                order.push(number);
                Keep
            })
            .expect("user event");
        event_loop.activate(event, 1).expect("activate");
    }
    let mut order = Vec::new();
    event_loop.run(&mut order).expect("run");
    let expected: Vec<u32> = (100..120).chain(0..8).chain([1000]).chain(8..30).collect();
    assert_eq!(order, expected);
}

fn pf_05_a_limit_in_time_does_not_cut_what_is_short(backend: Backend) {
    let limit = DispatchLimit {
        interval: Some(Duration::from_secs(3600)),
        callbacks_max: None,
        from_priority: 0,
    };
    let engine = EngineConfig {
        dispatch_limit: Some(limit),
        ..EngineConfig::default()
    };
    // Without any timer, so that nothing else asks for the time.
    let mut event_loop = with_engine::<u32>(backend, engine);
    for _ in 0..100 {
        event_loop.defer(|count, _| *count += 1).expect("defer");
    }
    let mut count = 0;
    event_loop.run(&mut count).expect("run");
    assert_eq!((count, event_loop.counters().turns), (100, 1));
    let engine = EngineConfig {
        dispatch_limit: Some(DispatchLimit {
            interval: Some(Duration::ZERO),
            ..limit
        }),
        ..EngineConfig::default()
    };
    let mut event_loop = with_engine::<u32>(backend, engine);
    for _ in 0..10 {
        event_loop.defer(|count, _| *count += 1).expect("defer");
    }
    event_loop.run(&mut count).expect("run");
    assert_eq!((count, event_loop.counters().turns), (110, 10), "one each");
}

fn a_loop_whose_handles_report_once_sleeps_when_idle(backend: Backend) {
    let engine = EngineConfig {
        notify: windlass_core::Notify::Once,
        ..EngineConfig::default()
    };
    let mut event_loop = with_engine::<u32>(backend, engine);
    event_loop.hold();
    let poster = event_loop.poster();
    for round in 1..=3 {
        let poster = poster.clone();
        let (go, went) = std::sync::mpsc::channel();
        event_loop.on_prepare(move |_, _| {
            let _ = go.send(());
            Remove
        });
        let thread = thread::spawn(move || {
            went.recv().expect("about to wait");
            poster.post(|count: &mut u32, _| *count += 1).expect("post");
        });
        let mut count = 0;
        event_loop.run_once(&mut count).expect("run");
        assert_eq!(count, 1);
        thread.join().expect("join");
        let before = event_loop.counters().turns;
        event_loop.stop_after(Duration::from_millis(20));
        event_loop.run(&mut count).expect("run");
        let turns = event_loop.counters().turns - before;
        assert!(
            turns <= 5,
            "{turns} turns in 20 ms of nothing, round {round}"
        );
    }
}

/// A class 0 that is always active, and a timer and a readable pipe in class 2. Answers the calls
/// of the flood, and of the others, until `end` of the flood or both others have run.
fn flood(backend: Backend, starvation_limit_turns: Option<u32>, end: u32) -> (u32, u32) {
    let engine = EngineConfig {
        priorities: 3,
        starvation_limit_turns,
        ..EngineConfig::default()
    };
    let mut event_loop = with_engine::<(u32, u32)>(backend, engine);
    let flood = event_loop
        .user_event(move |(flood, _): &mut (u32, u32), cx, _| {
            *flood += 1;
            if *flood == end {
                cx.break_loop();
            }
            let event = cx.event();
            cx.activate(event, 1).expect("activate");
            Keep
        })
        .expect("user event");
    event_loop.activate(flood, 1).expect("activate");
    let timer = event_loop
        .every(Duration::ZERO, |(_, others), _| {
            *others += 1;
            Remove
        })
        .expect("arm");
    event_loop.set_priority(timer, 2).expect("priority");
    let (reader, _writer) = readable_pipe();
    let reader = event_loop
        .on_readable(reader, |(_, others), cx, _| {
            *others += 1;
            cx.break_loop();
            Remove
        })
        .expect("register");
    event_loop.set_priority(reader, 2).expect("priority");
    let mut seen = (0, 0);
    event_loop.run(&mut seen).expect("run");
    seen
}

fn pf_05_an_urgent_class_starves_the_others_without_a_bound(backend: Backend) {
    assert_eq!(flood(backend, None, 1000), (1000, 0));
}

fn pf_05_a_starving_class_runs_with_a_bound(backend: Backend) {
    let (flood, others) = flood(backend, Some(5), 1000);
    assert!(flood <= 12 && others >= 1, "{flood} {others}");
}
