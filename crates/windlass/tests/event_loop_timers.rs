//! Timers of the loop, over each back end: never early, never in the way of others, and each
//! policy for missed ticks. The times of these tests are lower bounds, which no load can break.

#[path = "common/loops.rs"]
mod common;

use std::hint::spin_loop;
use std::io::Read;
use std::time::{Duration, Instant};

use common::{on_each_backend, open, readable_pipe};
use windlass::Disposition::{Disable, Keep, Remove};
use windlass::demultiplexer::Backend;
use windlass::{CatchUp, StopReason, Timeout};

on_each_backend! {
    a_common_timeout_restarts_with_each_run_and_can_be_taken_away
    a_far_timer_is_clamped_and_does_not_fire
    a_one_shot_timer_is_gone_after_it_ran
    a_periodic_timer_is_never_early
    a_timer_armed_by_hand_fires_once_per_arming
    a_timer_is_not_early_within_a_millisecond
    burst_makes_up_for_each_missed_tick
    delay_keeps_the_distance_after_a_miss
    now_outside_of_a_run_is_not_stale
    pf_06_a_timer_armed_in_a_slow_handler_is_not_early
    pf_06_the_cached_clock_is_early_by_its_age_and_no_more
    pf_07_a_zero_timer_lets_io_and_stop_have_their_turn
    pf_07_run_once_runs_a_zero_timer_once
    skip_stays_on_the_grid_and_leaves_missed_ticks_out
    steady_starts_a_new_grid_after_a_miss
    timers_run_in_order_of_deadline_then_of_arming
}

const TICK: Duration = Duration::from_millis(10);

/// Works, in the way that a handler should not.
fn work_until(end: Instant) {
    while Instant::now() < end {
        spin_loop();
    }
}

fn a_one_shot_timer_is_gone_after_it_ran(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let start = Instant::now();
    let event = event_loop.after(TICK, |calls, _| *calls += 1).expect("arm");
    let mut calls = 0;
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Empty);
    assert!(start.elapsed() >= TICK);
    assert_eq!(calls, 1);
    assert!(event_loop.arm_after(event, TICK).is_err(), "it is gone");
    assert!(!event_loop.remove(event));
}

fn a_timer_is_not_early_within_a_millisecond(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    for us in [1, 50, 120, 333, 700, 999, 1001, 1999] {
        let delay = Duration::from_micros(us);
        let start = Instant::now();
        event_loop
            .after(delay, move |calls: &mut u32, _| {
                assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
                *calls += 1;
            })
            .expect("arm");
        event_loop.run(&mut 0).expect("run");
    }
}

fn a_periodic_timer_is_never_early(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let start = Instant::now();
    event_loop
        .every(TICK, move |ticks: &mut u32, cx| {
            *ticks += 1;
            assert!(start.elapsed() >= TICK * *ticks, "tick {ticks}");
            if *ticks == 5 {
                cx.stop();
            }
            Keep
        })
        .expect("arm");
    let mut ticks = 0;
    event_loop.run(&mut ticks).expect("run");
    assert_eq!(ticks, 5);
}

fn a_timer_armed_by_hand_fires_once_per_arming(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let timer = event_loop
        .timer(|calls, _| {
            *calls += 1;
            Keep
        })
        .expect("make");
    let mut calls = 0;
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Empty);
    assert_eq!((calls, event_loop.deadline(timer)), (0, None));
    for expected in 1..=2 {
        event_loop.arm_after(timer, TICK).expect("arm");
        assert!(event_loop.deadline(timer).is_some());
        event_loop.run(&mut calls).expect("run");
        assert_eq!(calls, expected);
    }
    event_loop.arm_after(timer, TICK).expect("arm");
    assert!(event_loop.disarm(timer).expect("disarm"));
    assert!(!event_loop.disarm(timer).expect("disarm"));
    event_loop.run(&mut calls).expect("run");
    assert_eq!(calls, 2);
    // A later arming is in place of the earlier one.
    event_loop
        .arm_after(timer, Duration::MAX)
        .expect("arm far away");
    let soon = event_loop.fresh_now() + Duration::from_millis(1);
    event_loop.arm_at(timer, soon).expect("arm");
    event_loop.run(&mut calls).expect("run");
    assert_eq!(calls, 3);
}

fn a_far_timer_is_clamped_and_does_not_fire(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    for delay in [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_secs(1 << 40),
    ] {
        event_loop
            .after(delay, |_, _| panic!("centuries are over"))
            .expect("arm");
    }
    event_loop
        .after(TICK, |calls, cx| {
            *calls += 1;
            cx.stop();
        })
        .expect("arm");
    let mut calls = 0;
    event_loop.run(&mut calls).expect("run");
    assert_eq!(calls, 1);
    // With nothing but the far ones the wait is as long as the method allows.
    let poster = event_loop.poster();
    let stopper = std::thread::spawn(move || poster.stop());
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Exit);
    stopper.join().expect("join");
}

fn timers_run_in_order_of_deadline_then_of_arming(backend: Backend) {
    let mut event_loop = open::<Vec<u32>>(backend);
    let now = event_loop.fresh_now();
    for (name, at_ms) in [(0, 3), (1, 1), (2, 2), (3, 1), (4, 3), (5, 1)] {
        let timer = event_loop
            .timer(move |order: &mut Vec<u32>, _| {
                order.push(name);
                Keep
            })
            .expect("make");
        event_loop
            .arm_at(timer, now + Duration::from_millis(at_ms))
            .expect("arm");
    }
    work_until(Instant::now() + Duration::from_millis(4));
    let mut order = Vec::new();
    event_loop.run(&mut order).expect("run");
    assert_eq!(order, [1, 3, 5, 2, 0, 4]);
}

/// One call of a periodic timer, by the loop's clock: nanoseconds since its first deadline.
#[derive(Clone, Copy, Debug)]
struct Tick {
    /// When it was due.
    due: i64,
    called: i64,
    /// What it is armed for next.
    next: i64,
}

const TICK_NS: i64 = 10_000_000;

/// How long the first tick works: the next three are due by then.
const WORK_NS: i64 = 35_000_000;

/// Five calls of a timer of 10 ms, the first of which works for 35 ms.
fn ticks_after_a_miss(backend: Backend, catch_up: CatchUp) -> Vec<Tick> {
    let mut event_loop = open::<(i64, Vec<Tick>)>(backend);
    let timer = event_loop
        .every_with(
            TICK,
            catch_up,
            |(first, ticks): &mut (i64, Vec<Tick>), cx| {
                let event = cx.event();
                let since = |at: windlass::Instant| at.as_nanos().cast_signed() - *first;
                let called = since(cx.fresh_now());
                let next = since(cx.deadline(event).expect("armed"));
                let due = ticks.last().map_or(0, |last| last.next);
                ticks.push(Tick { due, called, next });
                while ticks.len() == 1 && since(cx.fresh_now()) < WORK_NS {
                    spin_loop();
                }
                if ticks.len() == 5 {
                    cx.stop();
                }
                Keep
            },
        )
        .expect("arm");
    let first = event_loop.deadline(timer).expect("armed");
    let mut state = (first.as_nanos().cast_signed(), Vec::new());
    event_loop.run(&mut state).expect("run");
    let ticks = state.1;
    assert!(
        ticks.iter().all(|tick| tick.called >= tick.due),
        "{ticks:?}"
    );
    assert!(ticks[1].called >= WORK_NS, "{ticks:?}");
    ticks
}

fn burst_makes_up_for_each_missed_tick(backend: Backend) {
    let ticks = ticks_after_a_miss(backend, CatchUp::Burst);
    assert!(
        ticks.iter().all(|tick| tick.next == tick.due + TICK_NS),
        "{ticks:?}"
    );
}

fn skip_stays_on_the_grid_and_leaves_missed_ticks_out(backend: Backend) {
    let ticks = ticks_after_a_miss(backend, CatchUp::Skip);
    assert!(
        ticks.iter().all(|tick| tick.next % TICK_NS == 0),
        "{ticks:?}"
    );
    // The next on the grid after the work: what was due at 20 and at 30 ms is left out.
    assert!(ticks[1].next >= 4 * TICK_NS, "{ticks:?}");
}

fn delay_keeps_the_distance_after_a_miss(backend: Backend) {
    let ticks = ticks_after_a_miss(backend, CatchUp::Delay);
    assert!(
        ticks.iter().all(|tick| tick.next >= tick.due + TICK_NS),
        "{ticks:?}"
    );
    assert!(ticks[1].next >= WORK_NS + TICK_NS, "{ticks:?}");
}

fn steady_starts_a_new_grid_after_a_miss(backend: Backend) {
    let ticks = ticks_after_a_miss(backend, CatchUp::Steady);
    assert!(ticks[1].next >= WORK_NS + TICK_NS, "{ticks:?}");
    // On the grid as long as none is missed; a loaded machine may miss more.
    let is_on_grid = |tick: &Tick| tick.next == tick.due + TICK_NS;
    let is_late = |tick: &Tick| tick.next > tick.due + TICK_NS && tick.called > tick.due + TICK_NS;
    assert!(
        ticks.iter().all(|tick| is_on_grid(tick) || is_late(tick)),
        "{ticks:?}"
    );
}

fn pf_06_a_timer_armed_in_a_slow_handler_is_not_early(backend: Backend) {
    let mut event_loop = open::<Option<Instant>>(backend);
    let delay = Duration::from_millis(50);
    let timer = event_loop
        .timer(move |armed: &mut Option<Instant>, _| {
            let armed = armed.expect("armed by the slow handler");
            assert!(armed.elapsed() >= delay, "by hand: {:?}", armed.elapsed());
            Keep
        })
        .expect("make");
    event_loop
        .defer(move |armed, cx| {
            // Reads the turn's time, so that it is cached and gets old.
            let _ = cx.now();
            work_until(Instant::now() + delay * 2);
            let start = Instant::now();
            *armed = Some(start);
            let check = move |what: &str| {
                assert!(start.elapsed() >= delay, "{what}: {:?}", start.elapsed());
            };
            cx.after(delay, move |_, _| check("after")).expect("after");
            cx.every(delay, move |_, _| {
                check("every");
                Remove
            })
            .expect("every");
            cx.arm_after(timer, delay).expect("arm");
        })
        .expect("defer");
    event_loop.run(&mut None).expect("run");
}

fn pf_06_the_cached_clock_is_early_by_its_age_and_no_more(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let delay = Duration::from_millis(50);
    let timer = event_loop.timer(|(), _| Keep).expect("make");
    event_loop
        .defer(move |(), cx| {
            let cached = cx.now();
            work_until(Instant::now() + Duration::from_millis(20));
            assert_eq!(cx.now(), cached, "the turn's time does not move by itself");
            let deadline = cx.now() + delay;
            cx.arm_at(timer, deadline).expect("arm");
            assert_eq!(cx.deadline(timer), Some(cached + delay));
            let fresh = cx.fresh_now();
            assert!(fresh.saturating_since(cached) >= Duration::from_millis(20));
            assert_eq!(cx.now(), fresh, "it is the turn's time from now on");
        })
        .expect("defer");
    event_loop.run(&mut ()).expect("run");
}

fn now_outside_of_a_run_is_not_stale(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let mut seen = event_loop.now();
    for _ in 0..3 {
        event_loop
            .after(Duration::ZERO, |(), cx| {
                let _ = cx.now();
            })
            .expect("arm");
        event_loop.run(&mut ()).expect("run");
        work_until(Instant::now() + Duration::from_millis(2));
        let now = event_loop.now();
        assert!(now.saturating_since(seen) >= Duration::from_millis(2));
        seen = now;
    }
}

fn pf_07_a_zero_timer_lets_io_and_stop_have_their_turn(backend: Backend) {
    let mut event_loop = open::<(u32, u32)>(backend);
    let (reader, _writer) = readable_pipe();
    let timer = event_loop
        .timer(|(timers, _), cx| {
            *timers += 1;
            assert!(*timers <= 200, "stop and I/O have no turn");
            let event = cx.event();
            cx.arm_after(event, Duration::ZERO).expect("arm");
            Keep
        })
        .expect("make");
    event_loop.arm_after(timer, Duration::ZERO).expect("arm");
    event_loop
        .on_readable(reader, |(timers, reads), cx, mut reader| {
            let _ = reader.read(&mut []).expect("read");
            *reads += 1;
            if *timers >= 100 {
                cx.stop();
            }
            Keep
        })
        .expect("register");
    let mut seen = (0, 0);
    assert_eq!(event_loop.run(&mut seen).expect("run"), StopReason::Exit);
    assert!(seen.1 >= 50, "I/O had its turns: {seen:?}");
}

fn pf_07_run_once_runs_a_zero_timer_once(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let timer = event_loop
        .timer(|calls, cx| {
            *calls += 1;
            let event = cx.event();
            cx.arm_after(event, Duration::ZERO).expect("arm");
            Keep
        })
        .expect("make");
    event_loop.arm_after(timer, Duration::ZERO).expect("arm");
    let mut calls = 0;
    for expected in 1..=10 {
        event_loop.run_once(&mut calls).expect("run");
        assert_eq!(calls, expected);
    }
    for expected in 11..=20 {
        event_loop.run_nonblocking(&mut calls).expect("run");
        assert_eq!(calls, expected);
    }
    let ticks = event_loop
        .every(Duration::ZERO, |_, _| Disable)
        .expect("arm");
    event_loop.remove(timer);
    event_loop.run(&mut calls).expect("run");
    assert!(event_loop.remove(ticks), "it was disabled, not removed");
}

fn a_common_timeout_restarts_with_each_run_and_can_be_taken_away(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let timeout = event_loop.common_timeout(TICK).expect("room");
    assert_eq!(
        event_loop.common_timeout(TICK),
        Ok(timeout),
        "equal lengths are one"
    );
    let event = event_loop
        .timer(|calls: &mut u32, cx| {
            *calls += 1;
            if *calls == 3 {
                let event = cx.event();
                cx.set_timeout(event, None).expect("it exists");
            }
            Keep
        })
        .expect("arm");
    event_loop
        .set_timeout(event, Some(Timeout::Common(timeout)))
        .expect("it exists");
    event_loop.enable(event).expect("it exists");
    let (start, mut calls) = (Instant::now(), 0);
    assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Empty);
    assert_eq!(calls, 3);
    assert!(start.elapsed() >= TICK * 3);
}
