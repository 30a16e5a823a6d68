//! What the loop says of its handlers, over each back end: slow ones, stuck ones, panics, lag, and
//! the dump.

#[path = "common/loops.rs"]
mod common;

use std::any::Any;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{config, drain, on_each_backend, open, pipe, readable_pipe};
use windlass::Disposition::{Keep, Remove};
use windlass::demultiplexer::Backend;
use windlass::event_loop::{
    EventLoop, HandlerTimes, IoOptions, LoopConfig, PanicPolicy, PanicReport, Signal,
};
use windlass::{Interest, StopReason};

on_each_backend! {
    a_contained_panic_is_reported_and_the_others_go_on
    a_handler_that_removed_itself_is_reported_by_its_own_name
    a_loop_that_was_exchanged_under_its_handler_is_noticed
    a_panic_propagates_and_the_loop_is_usable_afterwards
    a_panicking_hook_is_removed_and_reported_by_its_place
    a_slow_handler_is_counted_with_label_and_place
    a_slow_hook_and_a_slow_post_are_counted
    a_stuck_handler_is_reported_while_it_is_stuck
    a_stuck_hook_is_reported
    durations_are_measured_if_asked_for
    lateness_shows_in_the_histogram
    lateness_shows_without_any_timer
    the_check_can_be_switched_off
    the_dump_names_each_event
}

const LIMIT: Duration = Duration::from_millis(20);

fn with_limit<S: 'static>(backend: Backend) -> EventLoop<'static, S> {
    let config = LoopConfig {
        slow_handler_limit: Some(LIMIT),
        ..config(backend)
    };
    EventLoop::with_config(config).expect("open")
}

fn durations_are_measured_if_asked_for(backend: Backend) {
    // Any but the first may be slow too on a loaded machine, but not most of them.
    for (limit, slow) in [(Some(LIMIT), 1..=5), (None, 0..=0)] {
        let config = LoopConfig {
            slow_handler_limit: limit,
            handler_times: HandlerTimes::Measured,
            ..config(backend)
        };
        let mut event_loop = EventLoop::<()>::with_config(config).expect("open");
        event_loop.defer(|(), _| overrun()).expect("register");
        for _ in 0..9 {
            event_loop.defer(|(), _| {}).expect("register");
        }
        event_loop.run(&mut ()).expect("run");
        let times = event_loop.handler_times().expect("they are measured");
        assert_eq!(times.count(), 10);
        assert!(times.max() >= LIMIT * 3 && times.sum() >= times.max());
        assert!(times.quantile(0.5) < LIMIT);
        assert!(slow.contains(&event_loop.slow_handler_count()));
    }
    assert!(open::<()>(backend).handler_times().is_none());
}

/// Works for longer than the limit, by more than a tick of the coarse clock.
fn overrun() {
    let end = Instant::now() + LIMIT * 3;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn a_slow_handler_is_counted_with_label_and_place(backend: Backend) {
    let mut event_loop = with_limit::<()>(backend);
    let (reader, _writer) = readable_pipe();
    let line = line!() + 2;
    let event = event_loop
        .on_readable(reader, |(), _, _| {
            overrun();
            Remove
        })
        .expect("register");
    event_loop.set_label(event, "slow reader");
    event_loop.run(&mut ()).expect("run");
    // Others may be slow on a loaded machine; this one is.
    assert!(event_loop.slow_handler_count() >= 1);
    let slow = event_loop
        .slow_handlers()
        .find(|slow| slow.event == event)
        .expect("remembered");
    assert!(slow.duration > LIMIT);
    assert_eq!(slow.origin.label.as_deref(), Some("slow reader"));
    assert_eq!(
        (slow.origin.place.file(), slow.origin.place.line()),
        (file!(), line)
    );
    let text = slow.to_string();
    assert!(
        text.contains("slow reader") && text.contains(file!()),
        "{text}"
    );
}

fn a_handler_that_removed_itself_is_reported_by_its_own_name(backend: Backend) {
    let mut event_loop = with_limit::<()>(backend);
    let line = line!() + 2;
    let event = event_loop
        .defer(|(), cx| {
            let own = cx.event();
            cx.remove(own);
            for _ in 0..3 {
                let next = cx.defer(|(), _| {}).expect("defer");
                assert_eq!(next.slot(), own.slot(), "the slot is used again");
                cx.remove(next);
            }
            cx.defer(|(), _| {}).expect("defer");
            overrun();
        })
        .expect("defer");
    event_loop.run(&mut ()).expect("run");
    let slow = event_loop
        .slow_handlers()
        .find(|slow| slow.event == event)
        .expect("remembered");
    assert_eq!(slow.origin.place.line(), line, "{slow}");
}

fn a_slow_hook_and_a_slow_post_are_counted(backend: Backend) {
    let mut event_loop = with_limit::<()>(backend);
    let line = line!() + 1;
    event_loop.on_prepare(|(), _| {
        overrun();
        Remove
    });
    event_loop.defer(|(), _| {}).expect("defer");
    event_loop.run(&mut ()).expect("run");
    let places: Vec<_> = event_loop
        .slow_handlers()
        .map(|slow| (slow.origin.place.file(), slow.origin.place.line()))
        .collect();
    assert!(places.contains(&(file!(), line)), "{places:?}");
    event_loop.poster().post(|(), _| overrun()).expect("post");
    event_loop.run(&mut ()).expect("run");
    let mut reports = event_loop.slow_handlers().map(ToString::to_string);
    assert!(reports.any(|report| report.contains("posts")));
}

fn the_check_can_be_switched_off(backend: Backend) {
    let config = LoopConfig {
        slow_handler_limit: None,
        ..config(backend)
    };
    let mut event_loop = EventLoop::<()>::with_config(config).expect("open");
    event_loop.defer(|(), _| overrun()).expect("defer");
    event_loop.run(&mut ()).expect("run");
    assert_eq!(event_loop.slow_handler_count(), 0);
}

fn a_stuck_handler_is_reported_while_it_is_stuck(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let (tell, told) = mpsc::channel();
    let watchdog = event_loop
        .watch_for_stuck_handlers(LIMIT, move |stuck| {
            tell.send(stuck.clone()).expect("send");
        })
        .expect("watchdog");
    let event = event_loop
        .defer(move |(), cx| {
            // Removed and its slot used again: it is this one that is stuck.
            let own = cx.event();
            cx.remove(own);
            cx.defer(|(), _| {}).expect("defer");
            loop {
                // Blocks until the watchdog has seen it; others may be slow on a loaded machine.
                let stuck = told.recv().expect("reported");
                if stuck.event == own {
                    assert!(stuck.running_for > LIMIT);
                    assert_eq!(stuck.origin.place.file(), file!());
                    assert!(stuck.to_string().contains("has been running"), "{stuck}");
                    break;
                }
            }
        })
        .expect("defer");
    event_loop.set_label(event, "stuck");
    event_loop.run(&mut ()).expect("run");
    drop(watchdog);
    event_loop.defer(|(), _| {}).expect("defer");
    event_loop
        .run(&mut ())
        .expect("the loop goes on without it");
}

fn a_stuck_hook_is_reported(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let (tell, told) = mpsc::channel();
    let _watchdog = event_loop
        .watch_for_stuck_handlers(LIMIT, move |stuck| {
            tell.send(stuck.origin.place.line()).expect("send");
        })
        .expect("watchdog");
    let line = line!() + 1;
    event_loop.on_check(move |(), _| {
        while told.recv().expect("reported") != line {}
        Remove
    });
    event_loop.defer(|(), _| {}).expect("defer");
    event_loop.run(&mut ()).expect("run");
}

fn a_panic_propagates_and_the_loop_is_usable_afterwards(backend: Backend) {
    let mut event_loop = open::<Vec<&'static str>>(backend);
    let (reader, writer) = readable_pipe();
    event_loop
        .on_readable(reader, |_, _, _| panic!("of a reader"))
        .expect("register");
    event_loop
        .after(Duration::from_millis(1), |seen, _| seen.push("timer"))
        .expect("arm");
    let mut seen = Vec::new();
    let panic = catch_unwind(AssertUnwindSafe(|| event_loop.run(&mut seen))).expect_err("panics");
    assert_eq!(panic.downcast_ref(), Some(&"of a reader"));
    assert_eq!(event_loop.counters().inserted, 1, "its handler is removed");
    assert_eq!(event_loop.counters().in_flight, 0);
    {
        let mut writer = &writer;
        std::io::Write::write_all(&mut writer, b"x").expect_err("its descriptor is closed");
    }
    assert_eq!(event_loop.run(&mut seen).expect("run"), StopReason::Empty);
    assert_eq!(seen, ["timer"]);
}

fn a_contained_panic_is_reported_and_the_others_go_on(backend: Backend) {
    static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fn report(report: &PanicReport<'_>) {
        let text = format!("{} at {}", report.message(), report.origin);
        REPORTS.lock().expect("lock").push(text);
    }
    let config = LoopConfig {
        panic_policy: PanicPolicy::Contain(report),
        ..config(backend)
    };
    let mut event_loop = EventLoop::<u32>::with_config(config).expect("open");
    let label = format!("panics on {backend}");
    let event = event_loop
        .every(Duration::from_millis(1), |_, cx| {
            // Its slot has another occupant when it is reported.
            let own = cx.event();
            cx.remove(own);
            cx.defer(|count, _| *count += 1).expect("defer");
            panic!("number {}", 7)
        })
        .expect("arm");
    event_loop.set_label(event, label.clone());
    event_loop
        .after(Duration::from_millis(2), |_, _| {
            std::panic::panic_any(Box::new(0_u8) as Box<dyn Any + Send>)
        })
        .expect("arm");
    event_loop
        .every(Duration::from_millis(1), |count, _| {
            *count += 1;
            if *count < 10 { Keep } else { Remove }
        })
        .expect("arm");
    let mut count = 0;
    assert_eq!(event_loop.run(&mut count).expect("run"), StopReason::Empty);
    assert!(count >= 10);
    let reports = REPORTS.lock().expect("lock");
    let mine = |report: &&String| report.contains("number 7") && report.contains(&label);
    assert_eq!(reports.iter().filter(mine).count(), 1, "{reports:?}");
    assert!(reports.iter().any(|report| report.contains("(no text)")));
}

fn a_panicking_hook_is_removed_and_reported_by_its_place(backend: Backend) {
    static PLACES: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let config = LoopConfig {
        panic_policy: PanicPolicy::Contain(|report| {
            PLACES
                .lock()
                .expect("lock")
                .push(report.origin.place.line());
        }),
        ..config(backend)
    };
    let mut event_loop = EventLoop::<()>::with_config(config).expect("open");
    let line = line!() + 1;
    event_loop.on_check(|(), _| panic!("of a hook"));
    for _ in 0..2 {
        event_loop.defer(|(), _| {}).expect("defer");
        event_loop.run(&mut ()).expect("run");
    }
    assert!(PLACES.lock().expect("lock").contains(&line));
    // By default it propagates, and the hook is gone all the same.
    let mut event_loop = open::<u32>(backend);
    event_loop.on_prepare(|_, _| panic!("of a hook"));
    event_loop.defer(|calls, _| *calls += 1).expect("defer");
    let mut calls = 0;
    catch_unwind(AssertUnwindSafe(|| event_loop.run(&mut calls))).expect_err("panics");
    event_loop.run(&mut calls).expect("run");
    assert_eq!(calls, 1);
}

fn a_loop_that_was_exchanged_under_its_handler_is_noticed(backend: Backend) {
    struct Two {
        other: Option<Box<EventLoop<'static, Self>>>,
    }
    let mut event_loop = open::<Two>(backend);
    event_loop
        .defer(|two: &mut Two, cx| {
            let other = two.other.as_mut().expect("set below");
            std::mem::swap::<windlass::event_loop::Reactor<'_, _>>(cx, other);
        })
        .expect("defer");
    let other = Some(Box::new(open(backend)));
    let panic = catch_unwind(AssertUnwindSafe(|| event_loop.run(&mut Two { other })));
    let panic = panic.expect_err("a broken rule");
    let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("exchanged its event loop"), "{text}");
}

fn lateness_shows_in_the_histogram(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    assert_eq!(event_loop.lag().count(), 0);
    event_loop
        .after(Duration::from_millis(1), |_, cx| {
            overrun();
            cx.after(Duration::ZERO, |_, _| {}).expect("arm");
        })
        .expect("arm");
    event_loop
        .after(Duration::from_millis(1), |_, _| {})
        .expect("arm");
    event_loop.run(&mut 0).expect("run");
    let lag = event_loop.lag();
    assert!(lag.count() >= 3, "{lag:?}");
    assert!(
        lag.max() >= LIMIT,
        "the second timer waited for the first: {lag:?}"
    );
    assert!(lag.quantile(0.0) <= lag.quantile(0.5) && lag.quantile(1.0) == lag.max());
    assert_eq!(
        lag.buckets().map(|(_, count)| count).sum::<u64>(),
        lag.count()
    );
}

fn lateness_shows_without_any_timer(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop.defer(|_, _| overrun()).expect("defer");
    event_loop.defer(|_, _| {}).expect("defer");
    event_loop.run(&mut 0).expect("run");
    let lag = event_loop.lag();
    assert!(
        lag.max() >= LIMIT,
        "the second waited for the first: {lag:?}"
    );
}

fn the_dump_names_each_event(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let (reader, _writer) = pipe();
    let fd = reader.as_raw_fd();
    let line = line!() + 7;
    let options = IoOptions {
        interest: Interest::READ,
        label: Some("the reader".into()),
        ..IoOptions::default()
    };
    event_loop
        .watch(reader, options, |(), _, reader, _| {
            drain(reader);
            Keep
        })
        .expect("register");
    let timer = event_loop
        .every(Duration::from_secs(1), |(), _| Keep)
        .expect("arm");
    event_loop.set_label(timer, "the ticker");
    let one_shot = event_loop.defer(|(), _| {}).expect("defer");
    event_loop
        .on_signal(Signal::WINCH, |(), _, _| Keep)
        .expect("signal");
    let dump = event_loop.dump();
    let line_with = |what: &str| -> &str {
        let found = dump.lines().find(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in\n{dump}"))
    };
    assert!(
        dump.lines()
            .next()
            .expect("a heading")
            .contains(backend.name())
    );
    let reader = line_with("the reader");
    for part in [
        &format!("fd {fd} READ"),
        "pending",
        file!(),
        &format!(":{line}:"),
    ] {
        assert!(reader.contains(part), "no {part} in {reader}");
    }
    let ticker = line_with("the ticker");
    assert!(
        ticker.contains("timer pending") && ticker.contains("due"),
        "{ticker}"
    );
    let deferred = line_with(&format!("{one_shot:?} user"));
    assert!(
        deferred.contains("active") && deferred.contains("one-shot"),
        "{deferred}"
    );
    assert!(line_with("SIGWINCH").contains("pending"));
    assert!(line_with("signal channel").contains("internal"));
    assert!(line_with("wake-up channel").contains("internal"));
    assert_eq!(event_loop.events().count(), dump.lines().count() - 1);
}
