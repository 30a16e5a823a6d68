//! The checks of the simulation: after every step the engine equals the model in all that shows.

use windlass_core::*;

use crate::model::{Called, Event, What};
use crate::world::{HANDLES, World};

impl World {
    pub(crate) fn check_call(&self, call: &Call<u32>, expected: Option<Called>) {
        let happened = call.happened;
        assert_eq!(call.token.event(), happened.event);
        let got = Called {
            serial: call.payload,
            id: happened.event,
            instance: expected.and_then(|called| called.instance),
            what: what(happened),
        };
        assert_eq!(Some(got), expected);
        assert_eq!(happened.timed_out, happened.deadline.is_some());
        self.log(|| format!("call {got:?}"));
        assert!(
            !self
                .in_flight
                .iter()
                .any(|(.., other)| other.serial == got.serial)
        );
        if self.model.config.handle_sharing == HandleSharing::Exclusive && got.instance.is_some() {
            let same = |(.., other): &&(_, _, Called)| other.instance == got.instance;
            assert!(
                self.in_flight.iter().find(same).is_none(),
                "a handle in two hands"
            );
        }
    }

    /// The engine and the model agree on everything that can be seen.
    pub(crate) fn check(&mut self) {
        let events = &self.model.events;
        assert_eq!(self.engine.infos().count(), events.len());
        for event in events {
            let info = self.engine.info(event.id).expect("it exists");
            let state = State {
                pending: event.pending,
                active: event.active.is_some(),
                in_flight: event.in_flight,
            };
            let timeout = event.timeout.map(|length| match length.common {
                Some(which) => Timeout::Common(self.common[which]),
                None => Timeout::After(length.length),
            });
            assert_eq!((info.id, info.source), (event.id, event.source));
            assert_eq!(info.state, state, "of {event:?}");
            assert_eq!(self.engine.state(event.id), Some(state));
            assert_eq!((info.priority, info.timeout), (event.priority, timeout));
            assert_eq!(
                (info.persistent, info.internal),
                (!event.one_shot, event.internal)
            );
            let deadline = event.deadline.map(|(ns, _)| Instant::from_nanos(ns));
            assert_eq!(info.deadline, deadline, "of {event:?}");
            let happened = self.engine.happened(event.id).map(what);
            assert_eq!(happened, event.active, "to {event:?}");
            let payload = (!event.in_flight).then_some(event.serial);
            assert_eq!(self.engine.payload(event.id).copied(), payload);
        }
        let count = |which: fn(&Event) -> bool| {
            events
                .iter()
                .filter(|event| !event.internal && which(event))
                .count()
        };
        let counters = *self.engine.counters();
        assert_eq!(counters.inserted, count(|_| true));
        assert_eq!(counters.pending, count(|event| event.pending));
        assert_eq!(counters.active, count(|event| event.active.is_some()));
        assert!(counters.pending_max >= counters.pending);
        assert!(counters.active_max >= counters.active);
        assert!(counters.holds_max >= counters.holds);
        assert_eq!(
            (counters.holds, counters.in_flight),
            (self.model.holds, self.model.in_flight)
        );
        assert_eq!(counters.in_flight, self.in_flight.len());
        assert_eq!(
            (counters.turns, counters.dispatched),
            (self.model.turn, self.model.dispatched)
        );
        assert_eq!(counters.stale_reports, self.model.stale_reports);
        assert_eq!(counters.expired, self.model.expired);
        let next = self.engine.next_deadline().map(Instant::as_nanos);
        assert_eq!(next, self.model.next_deadline());
        let signals = self.engine.watched_signals();
        for number in 1..=SignalSet::NUMBER_MAX {
            let watched = |event: &Event| event.pending && event.source == Source::Signal(number);
            assert_eq!(
                signals.contains(number),
                self.model.events.iter().any(watched)
            );
        }
    }

    /// All is applied: the demultiplexer watches what pending events want, and nothing else.
    pub(crate) fn check_registrations(&self) {
        for raw in 0..HANDLES as i32 {
            let Some(handle) = self.model.handles.iter().find(|handle| handle.raw == raw) else {
                assert_eq!(self.control.registration(raw), None, "of handle {raw}");
                continue;
            };
            if handle.failed {
                continue;
            }
            let interest = self.model.merged(handle.instance);
            let found = self.control.registration(raw);
            if interest.is_none() {
                assert_eq!(found, None, "of handle {raw}");
                continue;
            }
            let found = found.unwrap_or_else(|| panic!("handle {raw} is not watched"));
            if handle.in_flight > 0 && self.model.config.notify == Notify::Once {
                // If it reported, it is silent until its handler has settled.
                assert_eq!(found.handle, handle.id);
                continue;
            }
            assert_eq!((found.handle, found.interest), (handle.id, interest));
            let notify = match found.trigger {
                Trigger::Edge => Notify::Always,
                Trigger::Level => self.model.config.notify,
            };
            assert_eq!(found.notify, notify);
            let busy = self.model.of_instance(handle.instance).iter().any(|&at| {
                let event = &self.model.events[at];
                event.in_flight || event.active.is_some()
            });
            let busy = busy || handle.in_flight > 0;
            assert!(
                busy || found.is_armed(),
                "handle {raw} is silent and nobody will arm it"
            );
        }
    }
}

fn what(happened: Happened) -> What {
    What {
        readiness: happened.readiness,
        timed_out: happened.deadline.map(Instant::as_nanos),
        signalled: happened.signalled,
        user: happened.user,
        count: happened.count,
    }
}
