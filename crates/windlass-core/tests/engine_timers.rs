//! Timers and timeouts: restarts, missed periods, order, and what a change takes back.

mod common;

use std::time::Duration;

use common::*;
use windlass_core::*;

fn driver() -> Driver {
    Driver::new(EngineConfig::default())
}

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + MS * u32::try_from(ms).expect("small")
}

#[test]
fn a_timeout_on_a_persistent_event_restarts_when_it_fires() {
    let mut d = driver();
    let spec = EventSpec {
        timeout: Some(Timeout::After(MS * 10)),
        ..reads(1)
    };
    let id = d.add(spec, "idle");
    for fired in 1..4 {
        d.turn();
        assert!(d.last().timed_out && d.last().readiness.is_none());
        assert_eq!(d.now(), at_ms(10 * fired));
    }
    assert_eq!(d.engine.deadline(id), Some(at_ms(40)));
}

#[test]
fn a_timeout_on_a_persistent_event_restarts_when_it_is_activated() {
    let mut d = driver();
    let spec = EventSpec {
        timeout: Some(Timeout::After(MS * 10)),
        ..reads(1)
    };
    let id = d.add(spec, "connection");
    d.control.pass(MS * 7);
    d.control.set_ready(1, Readiness::READ);
    d.turn();
    assert!(!d.last().timed_out);
    assert_eq!(d.engine.deadline(id), Some(at_ms(17)), "by readiness");
    d.control.set_ready(1, Readiness::NONE);
    d.control.pass(MS * 3);
    d.engine.activate_event(id, Readiness::NONE, 1).unwrap();
    d.turn();
    assert_eq!(d.engine.deadline(id), Some(at_ms(20)), "by the program");
}

#[test]
fn a_one_shot_event_is_initialised_and_unarmed_before_its_handler_runs() {
    let mut d = driver();
    let spec = once(EventSpec {
        timeout: Some(Timeout::After(MS * 10)),
        ..reads(1)
    });
    let id = d.add(spec, "once");
    d.control.set_ready(1, Readiness::READ);
    d.turn_with(|d, _| {
        let in_flight = State {
            in_flight: true,
            ..State::default()
        };
        assert_eq!(d.engine.state(id), Some(in_flight));
        assert_eq!(d.engine.deadline(id), None);
        Disposition::Keep
    });
    assert_eq!(d.engine.state(id), Some(State::default()));
    assert_eq!(d.turn(), Some(StopReason::Empty));
}

#[test]
fn a_one_shot_event_that_answers_rearm_is_called_again() {
    let mut d = driver();
    d.add(once(every(MS)), "again");
    for fired in 1..4 {
        assert_eq!(d.turn_with(|_, _| Disposition::Rearm), None);
        assert_eq!(d.called.len(), fired);
    }
}

#[test]
fn timers_run_in_order_of_deadline_and_ties_in_order_of_arming() {
    let mut d = driver();
    for (ms, name) in [(30, "late"), (10, "tie 1"), (10, "tie 2"), (5, "first")] {
        d.add(once(every(MS * ms)), name);
    }
    d.control.pass(MS * 50);
    d.turn();
    assert_eq!(d.names(), ["first", "tie 1", "tie 2", "late"]);
}

#[test]
fn pf07_a_timer_of_no_length_fires_once_in_a_turn_and_lets_the_others_in() {
    for catch_up in [
        CatchUp::Burst,
        CatchUp::Delay,
        CatchUp::Skip,
        CatchUp::Steady,
    ] {
        let mut d = driver();
        d.add(
            EventSpec {
                catch_up,
                ..every(Duration::ZERO)
            },
            "busy",
        );
        let rearmed = d.add(once(every(Duration::ZERO)), "rearmed");
        d.add(reads(1), "reader");
        d.control.set_ready(1, Readiness::READ);
        for turn in 0..100 {
            d.turn_with(|d, call| {
                if call.payload == "rearmed" {
                    d.engine.arm(rearmed, d.now()).unwrap();
                }
                Disposition::Keep
            });
            let mut names = d.names();
            names.sort_unstable();
            // A handler takes time.
            d.control.pass(Duration::from_nanos(1));
            assert_eq!(
                names,
                ["busy", "reader", "rearmed"],
                "turn {turn}, {catch_up:?}"
            );
        }
        // One pass runs each at most once.
        d.engine.begin_run(RunMode {
            once: true,
            ..RunMode::default()
        });
        assert_eq!(d.turn(), Some(StopReason::Passed));
        assert_eq!(d.names().len(), 3);
    }
}

/// The deadlines that a periodic timer of 10 ms reached, if its second firing came 35 ms late.
fn reached(catch_up: CatchUp) -> Vec<u128> {
    let mut d = driver();
    d.add(
        EventSpec {
            catch_up,
            ..every(MS * 10)
        },
        "tick",
    );
    for turn in 0..7 {
        if turn == 1 {
            d.control.pass(MS * 45);
        }
        d.turn();
    }
    let ms = |happened: &Happened| {
        happened
            .deadline
            .expect("it timed out")
            .saturating_since(Instant::ZERO)
            .as_millis()
    };
    d.called.iter().map(|(_, happened)| ms(happened)).collect()
}

#[test]
fn a_late_timer_with_burst_fires_once_for_each_period_missed() {
    assert_eq!(reached(CatchUp::Burst), [10, 20, 30, 40, 50, 60, 70]);
}

#[test]
fn a_late_timer_with_delay_starts_anew_from_now() {
    assert_eq!(reached(CatchUp::Delay), [10, 20, 65, 75, 85, 95, 105]);
}

#[test]
fn a_late_timer_with_skip_stays_on_the_grid() {
    assert_eq!(reached(CatchUp::Skip), [10, 20, 60, 70, 80, 90, 100]);
}

#[test]
fn a_late_timer_with_steady_starts_a_new_grid() {
    assert_eq!(reached(CatchUp::Steady), [10, 20, 65, 75, 85, 95, 105]);
    // On time, it keeps the grid although handlers run a little late.
    let mut d = driver();
    let id = d.add(
        EventSpec {
            catch_up: CatchUp::Steady,
            ..every(MS * 10)
        },
        "tick",
    );
    d.control.pass(MS * 13);
    d.turn();
    assert_eq!(d.engine.deadline(id), Some(at_ms(20)));
}

#[test]
fn skip_counts_periods_of_any_age_without_counting_them_one_by_one() {
    let mut d = driver();
    let spec = EventSpec {
        catch_up: CatchUp::Skip,
        ..every(Duration::from_nanos(1))
    };
    let id = d.add(spec, "tick");
    d.control.pass(Duration::from_secs(500 * 365 * 86_400));
    d.turn();
    assert_eq!(
        d.engine.deadline(id),
        Some(d.now() + Duration::from_nanos(1))
    );
}

#[test]
fn a_timer_without_length_waits_for_the_one_deadline_it_is_armed_for() {
    let mut d = driver();
    let id = d
        .engine
        .insert(EventSpec::new(Source::Timer), "alarm")
        .unwrap();
    d.engine.enable(id, d.now()).unwrap();
    assert_eq!(
        d.engine.state(id),
        Some(State::default()),
        "there is nothing to wait for"
    );
    d.engine.arm(id, at_ms(25)).unwrap();
    d.engine.arm(id, at_ms(15)).unwrap();
    d.turn();
    assert_eq!((d.now(), d.last().deadline), (at_ms(15), Some(at_ms(15))));
    assert_eq!(d.turn(), Some(StopReason::Empty));
    assert_eq!(d.engine.disarm(id), Ok(false));
}

#[test]
fn arming_takes_back_a_timeout_that_was_reached_and_not_handled() {
    let mut d = driver();
    d.add(reads(1), "reader");
    let idle = EventSpec {
        timeout: Some(Timeout::After(MS * 10)),
        ..reads(2)
    };
    let ids = [
        d.add(idle, "a"),
        d.add(idle, "b"),
        d.add(idle, "c"),
        d.add(idle, "d"),
    ];
    d.control.set_ready(1, Readiness::READ);
    d.control.pass(MS * 10);
    // All are due in the batch in which data comes for them.
    d.turn_with(|d, call| {
        if call.payload == "reader" {
            let now = d.now();
            d.engine.arm(ids[0], now + MS * 10).unwrap();
            d.engine.enable(ids[1], now).unwrap();
            d.engine
                .set_timeout(ids[2], Some(Timeout::After(MS * 10)), now)
                .unwrap();
            d.engine.disarm(ids[3]).unwrap();
        }
        Disposition::Keep
    });
    assert_eq!(d.names(), ["reader"]);
    assert_eq!(d.engine.counters().active, 0);
    d.control.set_ready(1, Readiness::NONE);
    d.turn();
    assert_eq!(d.names(), ["a", "b", "c"]);
    assert_eq!(d.now(), at_ms(20));
}

#[test]
fn arming_keeps_readiness_that_came_with_a_timeout() {
    let mut d = driver();
    d.add(reads(1), "first");
    let both = EventSpec {
        timeout: Some(Timeout::After(MS * 10)),
        ..reads(2)
    };
    let both = d.add(both, "both");
    d.control.set_ready(1, Readiness::READ);
    d.control.set_ready(2, Readiness::READ);
    d.control.pass(MS * 10);
    d.turn_with(|d, call| {
        if call.payload == "first" {
            let happened = d.engine.happened(both).unwrap();
            assert!(happened.timed_out && happened.readiness == Readiness::READ);
            d.engine.arm(both, d.now() + MS).unwrap();
        }
        Disposition::Keep
    });
    assert!(!d.last().timed_out && d.last().readiness == Readiness::READ);
}

#[test]
fn a_timer_that_loses_its_timeout_keeps_no_loop_running() {
    let mut d = driver();
    let id = d.add(every(MS), "tick");
    d.engine.set_timeout(id, None, d.now()).unwrap();
    assert_eq!(d.engine.state(id), Some(State::default()));
    assert_eq!(d.turn(), Some(StopReason::Empty));
}

#[test]
fn a_new_timeout_counts_from_when_it_was_set() {
    let mut d = driver();
    let id = d.add(reads(1), "reader");
    assert_eq!(d.engine.deadline(id), None);
    d.control.pass(MS * 5);
    d.engine
        .set_timeout(id, Some(Timeout::After(MS * 2)), d.now())
        .unwrap();
    assert_eq!(d.engine.deadline(id), Some(at_ms(7)));
    d.engine.disable(id).unwrap();
    d.engine
        .set_timeout(id, Some(Timeout::After(MS * 3)), d.now())
        .unwrap();
    assert_eq!(d.engine.deadline(id), None, "not pending");
    d.engine.enable(id, d.now()).unwrap();
    assert_eq!(d.engine.deadline(id), Some(at_ms(8)));
}

#[test]
fn common_timeouts_fire_in_order_and_restart() {
    let mut d = driver();
    let common = d.engine.common_timeout(MS * 10).unwrap();
    assert_eq!(d.engine.common_timeout(MS * 10), Ok(common));
    let spec = EventSpec {
        timeout: Some(Timeout::Common(common)),
        ..EventSpec::new(Source::Timer)
    };
    d.add(spec, "a");
    d.control.pass(MS * 3);
    let b = d.add(spec, "b");
    d.turn();
    assert_eq!(d.now(), at_ms(10));
    d.turn();
    assert_eq!(d.now(), at_ms(13));
    d.engine.remove(b).unwrap();
    d.turn();
    assert_eq!((d.now(), d.names()), (at_ms(20), vec!["a", "b", "a"]));
}

#[test]
fn a_common_timeout_armed_with_an_older_time_keeps_its_place_at_the_end() {
    let mut queue = TimerQueue::new();
    let timeout = queue.common_timeout(MS * 10).unwrap();
    assert_eq!(queue.arm_common(0, timeout, at_ms(7)), at_ms(17));
    assert_eq!(queue.arm_common(1, timeout, at_ms(5)), at_ms(17));
    let mut due = Vec::new();
    queue.expire(at_ms(16), &mut due);
    assert!(due.is_empty());
    queue.expire(at_ms(17), &mut due);
    assert_eq!(due.iter().map(|due| due.index).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn the_timer_of_a_removed_event_never_fires_for_its_successor() {
    let mut d = driver();
    for _ in 0..100 {
        let old = d.add(every(MS), "old");
        d.engine.remove(old).unwrap();
        let new = d.add(user(), "new");
        assert_eq!(d.engine.deadline(new), None);
        d.control.pass(MS * 2);
        d.engine.begin_run(RunMode {
            nonblock: true,
            ..RunMode::default()
        });
        assert_eq!(d.turn(), Some(StopReason::Passed));
        d.engine.remove(new).unwrap();
    }
    assert!(d.called.is_empty());
}

#[test]
fn a_deadline_out_of_range_never_comes_and_never_wraps() {
    let mut d = driver();
    let id = d.add(every(Duration::MAX), "never");
    // A timeout's length is cut to 292 years.
    assert!(d.engine.deadline(id) >= Some(Instant::from_nanos(u64::MAX / 2)));
    d.engine.arm(id, d.now() + Duration::MAX).unwrap();
    assert_eq!(d.engine.deadline(id), Some(Instant::FAR));
    d.add(every(MS), "tick");
    d.turn();
    assert_eq!(d.names(), ["tick"]);
}
