//! Handles: merged interests, stale reports, registrations that fail.

mod common;

use std::io::ErrorKind;

use common::*;
use windlass_core::*;

fn driver() -> Driver {
    Driver::new(EngineConfig::default())
}

fn once_driver() -> Driver {
    Driver::new(EngineConfig {
        notify: Notify::Once,
        ..EngineConfig::default()
    })
}

#[test]
fn interests_of_one_handle_are_merged_into_one_registration() {
    let mut d = driver();
    d.add(watches(7, READ, Trigger::Level), "reader");
    d.add(watches(7, WRITE, Trigger::Level), "writer");
    d.apply();
    assert_eq!(d.control.registration(7).unwrap().interest, READ | WRITE);
    assert_eq!(d.control.calls(), 1);
}

#[test]
fn each_event_is_told_only_what_it_asked_for() {
    let mut d = driver();
    d.add(watches(7, READ, Trigger::Level), "reader");
    d.add(watches(7, WRITE, Trigger::Level), "writer");
    d.control
        .set_ready(7, Readiness::READ | Readiness::PRIORITY);
    d.turn();
    assert_eq!(
        (d.last().readiness, d.names()),
        (Readiness::READ, vec!["reader"])
    );
    d.control.set_ready(7, Readiness::READ | Readiness::WRITE);
    d.turn();
    let told: Vec<_> = d
        .called
        .iter()
        .map(|(_, happened)| happened.readiness)
        .collect();
    assert_eq!(told, [Readiness::READ, Readiness::WRITE]);
}

#[test]
fn hang_up_is_told_to_every_event_of_the_handle() {
    let mut d = driver();
    d.add(watches(7, READ, Trigger::Level), "reader");
    d.add(watches(7, Interest::PEER_CLOSED, Trigger::Level), "closer");
    d.control.set_ready(7, Readiness::HANG_UP);
    d.turn();
    let told: Vec<_> = d
        .called
        .iter()
        .map(|(_, happened)| happened.readiness)
        .collect();
    assert_eq!(
        told,
        [Readiness::HANG_UP | Readiness::READ, Readiness::HANG_UP]
    );
}

#[test]
fn an_interest_that_changes_and_changes_back_costs_no_call() {
    let mut d = driver();
    let id = d.add(reads(7), "reader");
    d.apply();
    d.engine.set_interest(id, READ | WRITE).unwrap();
    d.engine.set_interest(id, READ).unwrap();
    d.engine.disable(id).unwrap();
    d.engine.enable(id, Instant::ZERO).unwrap();
    d.apply();
    assert_eq!(d.control.calls(), 1);
}

#[test]
fn interest_that_is_given_up_before_the_handler_runs_is_not_told() {
    let mut d = driver();
    d.add(reads(1), "first");
    let both = d.add(watches(2, READ | WRITE, Trigger::Level), "both");
    let writer = d.add(watches(3, WRITE, Trigger::Level), "writer");
    d.control.set_ready(1, Readiness::READ);
    d.control.set_ready(2, Readiness::READ | Readiness::WRITE);
    d.control.set_ready(3, Readiness::WRITE);
    d.turn_with(|d, call| {
        if call.payload == "first" {
            d.engine.set_interest(both, READ).unwrap();
            d.engine.set_interest(writer, READ).unwrap();
        }
        Disposition::Keep
    });
    assert_eq!(d.last().readiness, Readiness::READ);
    assert_eq!(d.names(), ["first", "both"]);
}

#[test]
fn an_edge_is_not_lost_when_its_interest_changes_and_changes_back_before_it_runs() {
    let mut d = driver();
    d.add(watches(1, READ, Trigger::Edge), "first");
    let second = d.add(watches(2, READ, Trigger::Edge), "second");
    d.control.set_ready(1, Readiness::READ);
    d.control.set_ready(2, Readiness::READ);
    d.turn_with(|d, call| {
        if call.payload == "first" {
            d.engine.set_interest(second, Interest::NONE).unwrap();
            d.engine.set_interest(second, READ).unwrap();
        }
        Disposition::Keep
    });
    assert_eq!(d.names(), ["first"]);
    d.turn();
    assert_eq!(d.names(), ["second"]);
}

#[test]
fn an_edge_is_not_lost_when_its_its_event_is_disabled_and_enabled_before_it_runs() {
    let mut d = driver();
    d.add(watches(1, READ, Trigger::Edge), "first");
    let second = d.add(watches(2, READ, Trigger::Edge), "second");
    d.control.set_ready(1, Readiness::READ);
    d.control.set_ready(2, Readiness::READ);
    d.turn_with(|d, call| {
        if call.payload == "first" {
            d.engine.disable(second).unwrap();
            d.engine.enable(second, d.now()).unwrap();
        }
        Disposition::Keep
    });
    assert_eq!(d.names(), ["first"]);
    d.turn();
    assert_eq!(d.names(), ["second"]);
    d.engine.begin_run(RunMode {
        nonblock: true,
        ..RunMode::default()
    });
    assert_eq!(d.turn(), Some(StopReason::Passed), "told once only");
}

#[test]
fn a_second_edge_triggered_event_hears_of_what_is_ready_already() {
    let mut d = driver();
    d.add(watches(1, READ, Trigger::Edge), "early");
    d.control.set_ready(1, Readiness::READ);
    d.turn();
    d.add(watches(1, READ, Trigger::Edge), "late");
    d.turn();
    assert_eq!(d.names(), ["early", "early", "late"]);
}

#[test]
fn a_one_shot_edge_event_enabled_by_its_own_handler_hears_of_what_is_left() {
    let mut d = driver();
    let id = d.add(once(watches(1, READ, Trigger::Edge)), "reader");
    d.control.set_ready(1, Readiness::READ);
    for _ in 0..3 {
        d.turn_with(|d, _| {
            d.engine.enable(id, d.now()).unwrap();
            Disposition::Keep
        });
    }
    assert_eq!(d.names().len(), 3);
}

#[test]
fn pf02_a_handler_that_removes_a_ready_sibling_keeps_it_from_running() {
    for order in [[1, 2], [2, 1]] {
        let mut d = driver();
        let ids = order.map(|raw| (raw, d.add(reads(raw), if raw == 1 { "a" } else { "b" })));
        d.control.set_ready(1, Readiness::READ);
        d.control.set_ready(2, Readiness::READ);
        d.turn_with(|d, call| {
            for (raw, id) in ids {
                if id != call.happened.event {
                    assert!(d.engine.remove(id).unwrap().is_some());
                    d.apply();
                    d.control.close(raw);
                }
            }
            Disposition::Keep
        });
        assert_eq!(d.names().len(), 1, "order {order:?}");
        assert_eq!(d.engine.counters().stale_reports, 0);
    }
}

#[test]
fn a_stale_report_after_close_and_reuse_of_the_number_in_one_batch_is_dropped() {
    let mut d = driver();
    let old = d.add(reads(5), "old");
    d.apply();
    let old_handle = d.engine.handle_of(old).unwrap();
    // The wait is over with a report for it, and before that is handed in another thread closes it
    // and registers its successor under the same number.
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("not over")
    };
    let mut batch = Batch::new();
    batch.push(old_handle, Readiness::READ);
    d.engine.remove(old).unwrap();
    d.apply();
    d.control.close(5);
    let new = d.add(reads(5), "new");
    assert_ne!(d.engine.handle_of(new).unwrap(), old_handle);
    let mut turn = d.engine.activate(plan.waited(), &mut batch, Instant::ZERO);
    assert_eq!(turn.stale(), Some(old_handle));
    assert!(d.engine.dispatch(&mut turn, Instant::ZERO).is_none());
    assert_eq!(d.engine.counters().stale_reports, 1);
    let TurnEnd::Again = d.engine.finish(turn) else {
        panic!("nothing to stop for")
    };
    d.apply();
    assert_eq!(
        d.control.registration(5).unwrap().handle,
        d.engine.handle_of(new).unwrap()
    );
}

#[test]
fn a_number_in_use_again_before_the_removal_was_applied_is_removed_then_registered() {
    let mut d = driver();
    let old = d.add(reads(5), "old");
    d.apply();
    d.engine.remove(old).unwrap();
    d.add(reads(5), "new");
    let mut changes = Vec::new();
    d.engine.take_changes(&mut changes);
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[0].kind, ChangeKind::Remove);
    assert!(matches!(
        changes[1].kind,
        ChangeKind::Register { interest: READ, .. }
    ));
}

#[test]
fn a_registration_that_reports_once_is_armed_again_when_its_handler_has_settled() {
    let mut d = once_driver();
    let id = d.add(reads(1), "reader");
    d.control.set_ready(1, Readiness::READ);
    for turn in 1..4 {
        d.turn_with(|d, _| {
            // Not even another interest arms it while the handler runs.
            let interest = if turn % 2 == 0 { READ } else { READ | WRITE };
            d.engine.set_interest(id, interest).unwrap();
            d.apply();
            assert!(!d.control.registration(1).unwrap().is_armed());
            Disposition::Keep
        });
        assert!(d.engine.has_changes());
        assert_eq!(d.called.len(), turn);
    }
    // One call to register, one to arm before each later turn.
    assert_eq!(d.control.calls(), 3);
}

#[test]
fn an_edge_that_comes_while_its_handler_runs_is_reported_and_nothing_is_armed_again() {
    let mut d = Driver::new(EngineConfig {
        notify: Notify::Once,
        handle_sharing: HandleSharing::Exclusive,
        ..EngineConfig::default()
    });
    let id = d.add(watches(1, READ, Trigger::Edge), "reader");
    d.control.set_ready(1, Readiness::READ);
    d.turn();
    for _ in 0..3 {
        d.control.set_ready(1, Readiness::NONE);
        d.control.set_ready(1, Readiness::READ);
        d.turn_with(|d, _| {
            assert!(d.control.registration(1).unwrap().is_armed());
            Disposition::Keep
        });
    }
    assert_eq!(d.called.len(), 4);
    assert!(d.engine.state(id).unwrap().pending);
    assert_eq!(d.control.calls(), 1, "only the registration");
}

#[test]
fn a_registration_that_reported_once_is_armed_again_if_its_only_event_was_disabled_meanwhile() {
    let mut d = once_driver();
    d.add(reads(1), "first");
    let second = d.add(reads(2), "second");
    d.control.set_ready(1, Readiness::READ);
    d.control.set_ready(2, Readiness::READ);
    d.turn_with(|d, _| {
        d.engine.disable(second).unwrap();
        Disposition::Disable
    });
    assert_eq!(d.names(), ["first"]);
    d.engine.enable(second, d.now()).unwrap();
    d.turn();
    assert_eq!(d.names(), ["second"]);
    // And if it is undone within one handler.
    d.control.set_ready(1, Readiness::NONE);
    d.turn_with(|d, _| {
        d.engine.disable(second).unwrap();
        d.engine.enable(second, d.now()).unwrap();
        Disposition::Keep
    });
    d.turn();
    assert_eq!(d.names(), ["second", "second"]);
}

#[test]
fn a_registration_that_reports_once_to_nobody_is_armed_again() {
    let mut d = once_driver();
    let id = d.add(reads(1), "reader");
    d.apply();
    d.control.set_ready(1, Readiness::READ);
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("not over")
    };
    let mut batch = Batch::new();
    d.demultiplexer
        .demultiplex(&mut batch, plan.timeout(d.now()))
        .unwrap();
    d.engine.set_interest(id, WRITE).unwrap();
    let turn = d
        .engine
        .activate(plan.waited(), &mut batch, d.control.now());
    assert_eq!(turn.priority(), None);
    assert_eq!(d.engine.finish(turn), TurnEnd::Again);
    d.apply();
    let registration = d.control.registration(1).unwrap();
    assert!(registration.is_armed() && registration.interest == WRITE);
}

#[test]
fn a_registration_that_reports_once_what_nobody_asked_for_is_armed_again() {
    let mut d = once_driver();
    let id = d.add(reads(1), "reader");
    d.apply();
    let handle = d.engine.handle_of(id).unwrap();
    d.control.set_ready(1, Readiness::READ);
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("not over")
    };
    // It is silent from here on, but what it tells is of no use to anyone.
    let timeout = Some(std::time::Duration::ZERO);
    d.demultiplexer
        .demultiplex(&mut Batch::new(), timeout)
        .unwrap();
    let mut batch = Batch::new();
    batch.push(handle, Readiness::PRIORITY);
    let turn = d
        .engine
        .activate(plan.waited(), &mut batch, d.control.now());
    assert_eq!(turn.priority(), None);
    assert_eq!(d.engine.finish(turn), TurnEnd::Again);
    d.apply();
    assert!(d.control.registration(1).unwrap().is_armed());
}

#[test]
fn a_registration_that_fails_before_the_wait_makes_the_plan_not_wait() {
    let mut d = driver();
    d.add(reads(1), "reader");
    d.control.fail_next(ErrorKind::OutOfMemory);
    d.apply();
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("not over")
    };
    assert_eq!(plan.wait(), Wait::Poll);
    // A driver that applied after it must look again.
    assert!(d.engine.wake_needed(Wait::Forever));
}

#[test]
fn a_registration_that_fails_makes_its_pending_events_active_with_an_error() {
    let mut d = driver();
    d.add(reads(1), "reader");
    let idle = d.engine.insert(reads(1), "initialised").unwrap();
    d.control.fail_next(ErrorKind::OutOfMemory);
    d.turn();
    assert_eq!(d.last().readiness, Readiness::ERROR | Readiness::READ);
    assert_eq!(d.names(), ["reader"]);
    assert_eq!(d.engine.state(idle), Some(State::default()));
}

#[test]
fn a_registration_that_failed_is_tried_again_when_its_event_is_enabled_again() {
    let mut d = driver();
    let id = d.add(reads(1), "reader");
    d.control.fail_next(ErrorKind::OutOfMemory);
    d.apply();
    assert_eq!(d.control.registration(1), None);
    d.engine.enable(id, d.now()).unwrap();
    d.apply();
    assert!(d.control.registration(1).is_some());
}

#[test]
fn a_change_that_failed_leaves_no_registration_behind() {
    let mut d = driver();
    let id = d.add(reads(1), "reader");
    d.apply();
    d.engine.set_interest(id, WRITE).unwrap();
    d.control.fail_next(ErrorKind::OutOfMemory);
    d.apply();
    assert_eq!(
        d.control.registration(1).unwrap().interest,
        READ,
        "the change failed"
    );
    d.engine.remove(id).unwrap();
    d.apply();
    assert_eq!(d.control.registration(1), None);
}

#[test]
fn a_change_that_failed_can_be_made_later() {
    let mut d = driver();
    let id = d.add(reads(1), "reader");
    d.apply();
    d.engine.set_interest(id, WRITE).unwrap();
    d.control.fail_next(ErrorKind::OutOfMemory);
    d.apply();
    d.engine.set_interest(id, READ | WRITE).unwrap();
    d.apply();
    assert_eq!(d.control.registration(1).unwrap().interest, READ | WRITE);
}

#[test]
fn everything_is_registered_anew_after_the_kernels_set_was_rebuilt() {
    let mut d = driver();
    d.add(reads(1), "a");
    d.add(watches(2, WRITE, Trigger::Level), "b");
    let removed = d.add(reads(3), "c");
    d.apply();
    d.engine.remove(removed).unwrap();
    d.demultiplexer.reinit().unwrap();
    d.engine.mark_all_unapplied();
    d.apply();
    assert_eq!(d.control.registration(1).unwrap().interest, READ);
    assert_eq!(d.control.registration(2).unwrap().interest, WRITE);
    assert_eq!(d.control.registration(3), None);
}

#[test]
fn an_insertion_that_does_not_fit_gives_the_payload_back() {
    let mut engine = Engine::new(EngineConfig {
        priorities: 2,
        ..EngineConfig::default()
    });
    engine.insert(reads(1), "level").unwrap();
    let refused = [
        (
            at_priority(2, user()),
            InsertErrorKind::PriorityRange {
                priority: 2,
                priorities: 2,
            },
        ),
        (reads(-1), InsertErrorKind::HandleNegative { raw: -1 }),
        (
            watches(1, READ, Trigger::Edge),
            InsertErrorKind::MixedTriggers { raw: 1 },
        ),
        (
            EventSpec::new(Source::Signal(0)),
            InsertErrorKind::SignalRange { number: 0 },
        ),
        (
            EventSpec::new(Source::Signal(65)),
            InsertErrorKind::SignalRange { number: 65 },
        ),
    ];
    for (spec, kind) in refused {
        let error = engine.insert(spec, "mine").unwrap_err();
        assert_eq!((error.kind, error.payload), (kind, "mine"));
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(engine.counters().inserted, 1);
    assert_eq!(engine.infos().count(), 1);
}

#[test]
fn signals_are_told_to_each_event_with_their_count() {
    let mut d = driver();
    d.add(EventSpec::new(Source::Signal(15)), "one");
    d.add(once(EventSpec::new(Source::Signal(15))), "two");
    d.add(EventSpec::new(Source::Signal(2)), "other");
    assert!(d.engine.watched_signals().contains(15) && d.engine.watched_signals().contains(2));
    let Step::Wait(plan) = d.engine.prepare() else {
        panic!("not over")
    };
    let mut batch = Batch::new();
    batch.push_signal(15, 3);
    batch.push_signal(99, 1);
    let mut turn = d.engine.activate(plan.waited(), &mut batch, Instant::ZERO);
    for name in ["one", "two"] {
        let call = d.engine.dispatch(&mut turn, Instant::ZERO).unwrap();
        assert_eq!((call.payload, call.happened.count), (name, 3));
        assert!(call.happened.signalled);
        let Settled::Kept =
            d.engine
                .settle(call.token, call.payload, Disposition::Keep, Instant::ZERO)
        else {
            panic!("kept")
        };
    }
    assert!(d.engine.dispatch(&mut turn, Instant::ZERO).is_none());
    assert_eq!(d.engine.finish(turn), TurnEnd::Again);
}
