//! Turns: priorities, limits, fresh activations, stops, modes, reentrant changes, watchers.

mod common;

use std::time::Duration;

use common::*;
use windlass_core::*;

fn driver() -> Driver {
    Driver::new(EngineConfig::default())
}

fn with_priorities(priorities: u16) -> EngineConfig {
    EngineConfig {
        priorities,
        ..EngineConfig::default()
    }
}

fn activate(d: &mut Driver, id: EventId) {
    d.engine
        .activate_event(id, Readiness::NONE, 1)
        .expect("it exists");
}

#[test]
fn all_of_the_most_urgent_priority_run_before_any_less_urgent_then_the_loop_looks_again() {
    let mut d = Driver::new(with_priorities(3));
    let low = d.add(at_priority(2, user()), "low");
    let mid = [
        d.add(at_priority(1, user()), "m1"),
        d.add(at_priority(1, user()), "m2"),
    ];
    activate(&mut d, low);
    for id in mid {
        activate(&mut d, id);
    }
    d.add(at_priority(0, reads(1)), "urgent");
    d.turn();
    assert_eq!(d.names(), ["m1", "m2"]);
    // What came meanwhile and is more urgent goes first.
    d.control.set_ready(1, Readiness::READ);
    d.turn();
    d.control.set_ready(1, Readiness::NONE);
    d.turn();
    assert_eq!(d.names(), ["urgent", "low"]);
}

#[test]
fn order_of_activation_is_kept_within_a_priority() {
    let mut d = driver();
    let names = ["a", "b", "c", "d", "e"];
    let ids = names.map(|name| d.add(user(), name));
    for at in [3, 0, 4, 1, 3, 2] {
        activate(&mut d, ids[at]);
    }
    d.engine.disable(ids[4]).unwrap();
    d.turn();
    assert_eq!(d.names(), ["d", "a", "b", "c"]);
}

#[test]
fn several_activations_before_a_call_are_one_call_with_their_sum() {
    let mut d = driver();
    let id = d.add(user(), "event");
    d.engine.activate_event(id, Readiness::READ, 2).unwrap();
    d.engine
        .activate_event(id, Readiness::WRITE, u32::MAX)
        .unwrap();
    d.turn();
    let happened = d.last();
    assert!(happened.user && happened.count == u32::MAX);
    assert_eq!(happened.readiness, Readiness::READ | Readiness::WRITE);
    assert_eq!(d.names().len(), 1);
}

#[test]
fn pf05_limited_priorities_look_again_after_so_many_callbacks_and_others_do_not() {
    let limit = DispatchLimit {
        interval: None,
        callbacks_max: Some(8),
        from_priority: 1,
    };
    let mut d = Driver::new(EngineConfig {
        dispatch_limit: Some(limit),
        ..with_priorities(3)
    });
    let urgent = d.add(at_priority(0, user()), "urgent");
    for _ in 0..20 {
        let id = d.add(at_priority(2, user()), "low");
        activate(&mut d, id);
    }
    let mut calls = 0;
    while d.called.len() < 21 {
        d.turn_with(|d, _| {
            calls += 1;
            if calls == 3 {
                activate(d, urgent);
            }
            Disposition::Keep
        });
    }
    let at = d.names().iter().position(|&name| name == "urgent");
    assert_eq!(at, Some(8), "at the look after the eighth");
    // Priority 0 is beyond the limit's reach: all twenty in one turn.
    for _ in 0..20 {
        let id = d.add(at_priority(0, user()), "urgent");
        activate(&mut d, id);
    }
    d.turn();
    assert_eq!(d.names().len(), 20);
}

#[test]
fn a_dispatch_interval_ends_the_turn_but_one_handler_always_runs() {
    let limit = DispatchLimit {
        interval: Some(MS * 5),
        callbacks_max: Some(0),
        from_priority: 0,
    };
    let interval_only = DispatchLimit {
        callbacks_max: None,
        ..limit
    };
    for (limit, expected) in [(limit, 1), (interval_only, 3)] {
        let config = EngineConfig {
            dispatch_limit: Some(limit),
            ..EngineConfig::default()
        };
        let mut d = Driver::new(config);
        for _ in 0..10 {
            let id = d.add(user(), "slow");
            activate(&mut d, id);
        }
        d.turn_with(|d, _| {
            d.control.pass(MS * 2);
            Disposition::Keep
        });
        assert_eq!(d.names().len(), expected);
    }
}

/// The priorities that ran in each of so many turns, all being active all the time.
fn turns_of(priorities: u16, limit: Option<u32>, turns: usize) -> Vec<u8> {
    let config = EngineConfig {
        starvation_limit_turns: limit,
        ..with_priorities(priorities)
    };
    let mut d = Driver::new(config);
    for priority in 0..priorities {
        let id = d.add(
            at_priority(priority as u8, reads(i32::from(priority))),
            "busy",
        );
        assert!(d.engine.state(id).is_some_and(|state| state.pending));
        d.control.set_ready(i32::from(priority), Readiness::READ);
    }
    for _ in 0..turns {
        d.turn();
    }
    d.called
        .iter()
        .filter_map(|(_, happened)| d.engine.info(happened.event))
        .map(|info| info.priority)
        .collect()
}

#[test]
fn pf05_less_urgent_priorities_starve_unless_a_bound_is_asked_for() {
    assert_eq!(turns_of(2, None, 6), [0, 0, 0, 0, 0, 0]);
    assert_eq!(turns_of(2, Some(2), 7), [0, 0, 1, 0, 0, 1, 0]);
}

#[test]
fn pf05_the_bound_on_starvation_holds_for_every_priority_the_most_urgent_included() {
    for limit in 0..5_u32 {
        for priorities in 2..8_u16 {
            let ran = turns_of(priorities, Some(limit), 200);
            for priority in 0..priorities as u8 {
                let mut waited = 0;
                for &which in &ran {
                    waited = if which == priority { 0 } else { waited + 1 };
                    let bound = limit + u32::from(priorities);
                    assert!(
                        waited <= bound,
                        "priority {priority} of {priorities}, {limit}"
                    );
                }
            }
        }
    }
}

#[test]
fn waiting_counts_anew_when_a_priority_became_empty_meanwhile() {
    let config = EngineConfig {
        starvation_limit_turns: Some(3),
        ..with_priorities(2)
    };
    let mut d = Driver::new(config);
    d.add(reads(0), "busy");
    d.control.set_ready(0, Readiness::READ);
    let low = d.add(at_priority(1, user()), "low");
    activate(&mut d, low);
    for _ in 0..3 {
        d.turn();
    }
    d.engine.disable(low).unwrap();
    d.turn();
    activate(&mut d, low);
    d.turn();
    assert_eq!(d.names(), ["busy"; 5]);
}

#[test]
fn fresh_activations_wait_for_the_next_turn() {
    let mut d = driver();
    let id = d.add(user(), "again");
    activate(&mut d, id);
    for turns in 1..5 {
        d.turn_with(|d, _| {
            activate(d, id);
            Disposition::Keep
        });
        assert_eq!(d.called.len(), turns);
    }
}

#[test]
fn fresh_activations_run_in_the_same_turn_when_configured_so() {
    let fresh_activations = FreshActivations::SameTurn;
    let mut d = Driver::new(EngineConfig {
        fresh_activations,
        ..with_priorities(2)
    });
    let id = d.add(user(), "again");
    let low = d.add(at_priority(1, user()), "low");
    activate(&mut d, id);
    let mut left = 5;
    d.turn_with(|d, _| {
        activate(d, low);
        if left > 0 {
            left -= 1;
            activate(d, id);
        }
        Disposition::Keep
    });
    assert_eq!(d.names(), ["again"; 6], "and none of another priority");
}

#[test]
fn pf04_a_stop_asked_for_before_the_run_is_kept_until_a_run_used_it() {
    let mut d = driver();
    d.add(reads(1), "reader");
    d.engine.break_loop();
    assert_eq!(d.run(RunMode::default()), StopReason::Break);
    d.engine.exit_loop();
    assert_eq!(d.run(RunMode::default()), StopReason::Exit);
    assert!(!d.engine.break_asked() && !d.engine.exit_asked(), "used up");
    d.engine.break_loop();
    d.engine.exit_loop();
    assert_eq!(d.run(RunMode::default()), StopReason::Break);
    assert_eq!(
        d.run(RunMode::default()),
        StopReason::Exit,
        "each ends one run"
    );
}

#[test]
fn pf04_entering_as_libevent_does_forgets_a_break_and_keeps_a_scheduled_exit() {
    let mut d = driver();
    let id = d.add(user(), "event");
    activate(&mut d, id);
    d.engine.break_loop();
    // event_base_loopexit without a delay.
    d.engine.exit_loop_at(d.now());
    d.engine.forget_stops();
    assert_eq!(d.run(RunMode::default()), StopReason::Exit);
    assert_eq!(d.names(), ["event"], "one pass was made");
}

#[test]
fn an_exit_at_a_deadline_lets_that_turn_end_and_the_earliest_counts() {
    let mut d = driver();
    d.add(every(MS * 10), "tick");
    d.engine.exit_loop_at(Instant::ZERO + MS * 35);
    d.engine.exit_loop_at(Instant::ZERO + MS * 90);
    assert_eq!(d.run(RunMode::default()), StopReason::Exit);
    assert_eq!((d.names().len(), d.now()), (3, Instant::ZERO + MS * 35));
    // A loop with no event waits for it.
    let mut d = driver();
    d.engine.exit_loop_at(Instant::ZERO + MS);
    assert_eq!(d.run(RunMode::default()), StopReason::Exit);
    assert_eq!(d.now(), Instant::ZERO + MS);
}

#[test]
fn a_break_keeps_the_rest_of_the_batch_active_and_an_exit_runs_it() {
    for (is_break, expected) in [(true, 1), (false, 3)] {
        let mut d = driver();
        for name in ["a", "b", "c"] {
            let id = d.add(user(), name);
            activate(&mut d, id);
        }
        d.turn_with(|d, _| {
            if is_break {
                d.engine.break_loop()
            } else {
                d.engine.exit_loop()
            }
            Disposition::Keep
        });
        assert_eq!(d.names().len(), expected);
        assert_eq!(d.engine.counters().active, 3 - expected);
        assert!(d.turn().is_some());
        if is_break {
            d.turn();
            assert_eq!(d.names(), ["b", "c"]);
        }
    }
}

#[test]
fn continue_ends_the_turn_and_looks_again() {
    let mut d = Driver::new(with_priorities(2));
    let urgent = d.add(user(), "urgent");
    for name in ["a", "b"] {
        let id = d.add(at_priority(1, user()), name);
        activate(&mut d, id);
    }
    d.turn_with(|d, _| {
        activate(d, urgent);
        d.engine.continue_loop();
        Disposition::Keep
    });
    d.turn();
    d.turn();
    assert_eq!(d.names(), ["a", "urgent", "b"]);
}

#[test]
fn once_ends_after_a_pass_in_which_an_event_that_counts_ran_and_none_is_left() {
    let once = RunMode {
        once: true,
        ..RunMode::default()
    };
    let mut d = Driver::new(with_priorities(2));
    d.add(every(MS * 10), "tick");
    assert_eq!(d.run(once), StopReason::Passed);
    assert_eq!(d.now(), Instant::ZERO + MS * 10);
    // All priorities get their turn before the run ends.
    let a = d.add(user(), "a");
    let b = d.add(at_priority(1, user()), "b");
    activate(&mut d, a);
    activate(&mut d, b);
    assert_eq!(d.run(once), StopReason::Passed);
    assert_eq!(d.names(), ["tick", "a", "b"]);
    // The driver's own events do not end it.
    let internal = EventSpec {
        accounting: Accounting::Internal,
        ..user()
    };
    let wake = d.add(internal, "wake");
    activate(&mut d, wake);
    assert_eq!(d.run(once), StopReason::Passed);
    assert_eq!(d.names(), ["wake", "tick"]);
}

#[test]
fn nonblock_never_waits_and_ends_when_nothing_is_active() {
    let nonblock = RunMode {
        nonblock: true,
        ..RunMode::default()
    };
    let mut d = driver();
    d.add(every(MS * 10), "tick");
    let id = d.add(user(), "event");
    activate(&mut d, id);
    assert_eq!(d.run(nonblock), StopReason::Passed);
    assert_eq!((d.names(), d.now()), (vec!["event"], Instant::ZERO));
}

#[test]
fn a_loop_without_events_ends_unless_told_to_go_on_or_held() {
    let mut d = driver();
    assert_eq!(d.turn(), Some(StopReason::Empty));
    let internal = EventSpec {
        accounting: Accounting::Internal,
        ..reads(1)
    };
    d.add(internal, "wake");
    assert_eq!(
        d.turn(),
        Some(StopReason::Empty),
        "the driver's own event keeps nothing going"
    );
    d.engine.hold();
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("held")
    };
    assert_eq!(plan.wait(), Wait::Forever);
    d.engine.release();
    assert_eq!(d.turn(), Some(StopReason::Empty));
    assert_eq!(
        (d.engine.counters().holds, d.engine.counters().holds_max),
        (0, 1)
    );
    d.engine.begin_run(RunMode {
        no_exit_on_empty: true,
        ..RunMode::default()
    });
    assert!(matches!(d.engine.prepare(), Step::Wait(_)));
}

#[test]
#[should_panic(expected = "release without a hold")]
fn a_release_without_a_hold_is_the_programs_error() {
    driver().engine.release();
}

#[test]
fn pf03_a_handler_may_remove_itself_its_sibling_and_the_last_event_and_insert_others() {
    let mut d = driver();
    let a = d.add(user(), "a");
    let b = d.add(user(), "b");
    activate(&mut d, a);
    activate(&mut d, b);
    let mut successors = Vec::new();
    d.turn_with(|d, call| {
        assert_eq!(d.engine.remove(call.happened.event), Ok(None), "it is out");
        assert_eq!(d.engine.remove(b), Ok(Some("b")));
        assert!(!d.engine.is_empty(), "a handler runs");
        // They take the slots that just became free.
        successors = vec![d.add(user(), "c"), d.add(user(), "d")];
        // An answer for the old id touches none of them.
        Disposition::Remove
    });
    assert_eq!(d.released, ["a"]);
    for id in successors {
        assert_eq!(
            d.engine.state(id).unwrap(),
            State {
                pending: true,
                ..State::default()
            }
        );
        activate(&mut d, id);
    }
    d.turn_with(|_, _| Disposition::Remove);
    assert_eq!(d.names(), ["a", "c", "d"]);
    assert_eq!(d.turn(), Some(StopReason::Empty));
    assert_eq!(d.engine.counters().inserted, 0);
}

#[test]
fn an_event_activated_while_its_handler_runs_is_called_again_afterwards() {
    let mut d = driver();
    let id = d.add(user(), "event");
    activate(&mut d, id);
    d.turn_with(|d, call| {
        if call.happened.count == 1 {
            d.engine.activate_event(id, Readiness::NONE, 9).unwrap();
            let both = State {
                pending: true,
                active: true,
                in_flight: true,
            };
            assert_eq!(d.engine.state(id), Some(both));
        }
        Disposition::Keep
    });
    d.turn();
    assert_eq!(d.last().count, 9);
    // Unless it answers that it wants no more.
    activate(&mut d, id);
    d.turn_with(|d, _| {
        activate(d, id);
        Disposition::Disable
    });
    assert_eq!(d.turn(), Some(StopReason::Empty));
}

#[test]
fn a_handler_that_panicked_is_removed() {
    let mut d = driver();
    let id = d.add(user(), "event");
    activate(&mut d, id);
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("not over")
    };
    let mut turn = d
        .engine
        .activate(plan.waited(), &mut Batch::new(), Instant::ZERO);
    let call = d.engine.dispatch(&mut turn, Instant::ZERO).unwrap();
    activate(&mut d, id);
    d.engine.abandon(call.token);
    assert_eq!(d.engine.state(id), None);
    assert!(d.engine.dispatch(&mut turn, Instant::ZERO).is_none());
    assert_eq!(d.engine.finish(turn), TurnEnd::Again);
    assert_eq!(d.turn(), Some(StopReason::Empty));
}

#[test]
fn counters_and_the_listing_show_every_event() {
    let mut d = Driver::new(with_priorities(2));
    let reader = EventSpec {
        timeout: Some(Timeout::After(MS)),
        ..at_priority(1, reads(3))
    };
    let id = d.add(reader, "reader");
    d.engine.insert(once(user()), "initialised").unwrap();
    d.add(
        EventSpec {
            accounting: Accounting::Internal,
            ..user()
        },
        "internal",
    );
    let counters = *d.engine.counters();
    assert_eq!(
        (counters.inserted, counters.pending, counters.pending_max),
        (2, 1, 1)
    );
    let infos: Vec<_> = d.engine.infos().collect();
    assert_eq!(infos.len(), 3);
    let info = infos.iter().find(|info| info.id == id).unwrap();
    assert_eq!(info.source, reader.source);
    assert!(info.persistent && !info.internal && info.state.pending && info.priority == 1);
    assert_eq!(info.deadline, Some(Instant::ZERO + MS));
    d.engine.remove(id).unwrap();
    d.engine.reset_maxima();
    assert_eq!(d.engine.counters().pending_max, 0);
}

#[test]
fn priority_of_an_active_event_stays() {
    let mut d = Driver::new(with_priorities(2));
    let id = d.add(user(), "event");
    assert_eq!(d.engine.set_priority(id, 2), Err(EventError::PriorityRange));
    activate(&mut d, id);
    assert_eq!(d.engine.set_priority(id, 1), Err(EventError::Active));
    d.turn();
    assert_eq!(d.engine.set_priority(id, 1), Ok(()));
    assert_eq!(d.engine.info(id).unwrap().priority, 1);
}

#[test]
fn watchers_may_be_added_and_removed_during_a_pass() {
    let mut engine: Engine<&str> = Engine::new(EngineConfig::default());
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(engine.insert_watcher(WatcherKind::Prepare, name));
    }
    engine.insert_watcher(WatcherKind::Check, "other kind");
    let mut cursor = engine.watch(WatcherKind::Prepare);
    let call = engine.next_watcher(&mut cursor).unwrap();
    assert_eq!(call.payload, "a");
    // "a" removes the next and itself, and adds one for the next pass.
    assert_eq!(engine.remove_watcher(ids[1]), Some("b"));
    assert_eq!(engine.remove_watcher(ids[0]), None, "it runs");
    engine.insert_watcher(WatcherKind::Prepare, "d");
    assert_eq!(
        engine.settle_watcher(call.id, call.payload, Disposition::Keep),
        Some("a")
    );
    let call = engine.next_watcher(&mut cursor).unwrap();
    assert_eq!(call.payload, "c");
    engine.abandon_watcher(call.id);
    assert!(engine.next_watcher(&mut cursor).is_none());
    let mut cursor = engine.watch(WatcherKind::Prepare);
    let call = engine.next_watcher(&mut cursor).unwrap();
    assert_eq!(call.payload, "d");
    assert_eq!(
        engine.settle_watcher(call.id, call.payload, Disposition::Keep),
        None
    );
    assert!(engine.next_watcher(&mut cursor).is_none());
}

#[test]
fn a_waiting_thread_must_be_woken_for_whatever_ends_its_wait_earlier() {
    let mut d = driver();
    let reader = d.add(reads(1), "reader");
    let event = d.add(user(), "event");
    d.apply();
    assert!(!d.engine.wake_needed(Wait::Forever));
    d.engine.set_interest(reader, WRITE).unwrap();
    assert!(d.engine.wake_needed(Wait::Forever) && !d.engine.wake_needed(Wait::Poll));
    d.apply();
    assert!(
        !d.engine.wake_needed(Wait::Forever),
        "the change is applied"
    );
    d.engine.arm(event, Instant::ZERO + MS * 10).unwrap();
    assert!(d.engine.wake_needed(Wait::Forever));
    assert!(!d.engine.wake_needed(Wait::Until(Instant::ZERO + MS * 10)));
    assert!(d.engine.wake_needed(Wait::Until(Instant::ZERO + MS * 11)));
    d.engine.disarm(event).unwrap();
    activate(&mut d, event);
    assert!(d.engine.wake_needed(Wait::Forever));
    d.engine.remove(event).unwrap();
    d.engine.break_loop();
    assert!(d.engine.wake_needed(Wait::Until(Instant::ZERO)));
    d.engine.forget_stops();
    d.engine.remove(reader).unwrap();
    d.apply();
    assert!(
        d.engine.wake_needed(Wait::Forever),
        "nothing is left to wait for"
    );
    d.engine.hold();
    assert!(!d.engine.wake_needed(Wait::Forever));
}

#[test]
fn two_events_of_one_handle_do_not_run_at_once_when_handles_are_exclusive() {
    let exclusive = HandleSharing::Exclusive;
    let config = EngineConfig {
        handle_sharing: exclusive,
        ..EngineConfig::default()
    };
    let mut d = Driver::new(config);
    d.add(watches(1, READ, Trigger::Level), "reader");
    let writer = d.add(watches(1, WRITE, Trigger::Level), "writer");
    d.add(reads(2), "other");
    d.apply();
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("not over")
    };
    let mut batch = Batch::new();
    d.control.set_ready(1, Readiness::READ | Readiness::WRITE);
    d.control.set_ready(2, Readiness::READ);
    d.demultiplexer
        .demultiplex(&mut batch, Some(Duration::ZERO))
        .unwrap();
    let mut turn = d.engine.activate(plan.waited(), &mut batch, Instant::ZERO);
    let reader = d.engine.dispatch(&mut turn, Instant::ZERO).unwrap();
    let other = d.engine.dispatch(&mut turn, Instant::ZERO).unwrap();
    assert_eq!((reader.payload, other.payload), ("reader", "other"));
    assert!(
        d.engine.dispatch(&mut turn, Instant::ZERO).is_none(),
        "the writer waits"
    );
    assert!(d.engine.state(writer).unwrap().active);
    assert_eq!(d.engine.finish(turn), TurnEnd::Again);
    // What waits for a running handler makes no waiting thread spin.
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("not over")
    };
    assert_eq!(plan.wait(), Wait::Forever);
    let settled = d
        .engine
        .settle(reader.token, "reader", Disposition::Remove, Instant::ZERO);
    let Settled::Released("reader") = settled else {
        panic!("it answered remove")
    };
    assert!(d.engine.wake_needed(plan.wait()), "the writer may run now");
    let mut turn = d
        .engine
        .activate(plan.waited(), &mut Batch::new(), Instant::ZERO);
    let call = d.engine.dispatch(&mut turn, Instant::ZERO).unwrap();
    assert_eq!(call.payload, "writer");
    // A deferred event that is removed leaves nothing behind.
    d.engine.activate_event(writer, Readiness::NONE, 1).unwrap();
    assert_eq!(d.engine.remove(writer), Ok(None));
    assert_eq!(d.engine.counters().active, 0);
    for (token, name) in [(call.token, "writer"), (other.token, "other")] {
        let settled = d
            .engine
            .settle(token, name, Disposition::Keep, Instant::ZERO);
        assert_eq!(matches!(settled, Settled::Kept), name == "other");
    }
    assert_eq!(d.engine.finish(turn), TurnEnd::Again);
}

#[test]
fn a_deferred_event_may_be_removed_or_disabled_while_it_waits() {
    let exclusive = HandleSharing::Exclusive;
    let config = EngineConfig {
        handle_sharing: exclusive,
        ..EngineConfig::default()
    };
    let mut d = Driver::new(config);
    for remove in [true, false] {
        let first = d.add(reads(1), "first");
        let deferred = d.add(reads(1), "deferred");
        activate(&mut d, first);
        activate(&mut d, deferred);
        let Step::Wait(plan) = d.engine.prepare() else {
            panic!("not over")
        };
        let mut turn = d
            .engine
            .activate(plan.waited(), &mut Batch::new(), Instant::ZERO);
        let call = d.engine.dispatch(&mut turn, Instant::ZERO).unwrap();
        assert!(d.engine.dispatch(&mut turn, Instant::ZERO).is_none());
        if remove {
            d.engine.remove(deferred).unwrap();
        } else {
            d.engine.disable(deferred).unwrap();
        }
        let settled = d
            .engine
            .settle(call.token, "first", Disposition::Remove, Instant::ZERO);
        assert!(matches!(settled, Settled::Released("first")));
        assert!(d.engine.dispatch(&mut turn, Instant::ZERO).is_none());
        assert_eq!(d.engine.finish(turn), TurnEnd::Again);
        assert_eq!(d.engine.counters().active, 0);
        let _ = d.engine.remove(deferred);
        assert!(d.engine.is_empty());
    }
}
