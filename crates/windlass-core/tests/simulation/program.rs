//! The program in simulation: what it, its handlers and other threads do at random.

use std::io;
use std::time::Duration;

use windlass_core::*;

use crate::model::{Event, Handle, Length};
use crate::world::{COMMON, EVENTS_MAX, HANDLES, MS, Random, World};

impl World {
    /// The program, or a handler, does something.
    pub(crate) fn act(&mut self, random: &mut Random) {
        if self.quiet {
            return;
        }
        match random.below(40) {
            0..=5 => self.insert(random),
            6..=11 => {
                let raw = random.below(HANDLES) as i32;
                let bits = random.pick(&[0, 0, 1, 1, 2, 3, 4, 8, 16, 17, 32]);
                self.log(|| format!("ready {raw} {bits}"));
                self.set_ready(raw, Readiness::from_bits(bits));
            }
            12 => self.close(random),
            13 | 14 => {
                let passes = random.pick(&[1, MS, 5 * MS, 20 * MS, 1_000 * MS]);
                self.control.pass(Duration::from_nanos(passes));
            }
            15 => self
                .signals
                .push((1 + random.below(3) as i32, 1 + random.below(3) as u32)),
            16 => self.control_loop(random),
            17 if random.one_in(4) => {
                self.log(|| "reinit".into());
                self.demultiplexer.reinit().expect("simulated");
                self.engine.mark_all_unapplied();
                for handle in &mut self.model.handles {
                    handle.failed = false;
                }
            }
            18 if random.one_in(3) => self.control.fail_next(io::ErrorKind::OutOfMemory),
            19 => self.touch_what_is_gone(random),
            _ => self.change(random),
        }
    }

    fn control_loop(&mut self, random: &mut Random) {
        let what = random.below(12);
        self.log(|| format!("control {what}"));
        match what {
            0 => {
                self.engine.break_loop();
                self.model.break_asked = true;
            }
            1 => {
                self.engine.exit_loop();
                self.model.exit_asked = true;
            }
            2..=5 => {
                self.engine.continue_loop();
                self.model.continue_asked = true;
            }
            6 | 7 => {
                let at = self.ns().saturating_sub(5 * MS) + random.below(40) * MS;
                self.engine.exit_loop_at(Instant::from_nanos(at));
                self.model.exit_at = Some(self.model.exit_at.map_or(at, |before| before.min(at)));
            }
            8 | 9 => {
                self.engine.hold();
                self.model.holds += 1;
            }
            _ if self.model.holds > 0 => {
                self.engine.release();
                self.model.holds -= 1;
            }
            _ => {}
        }
        assert_eq!(self.engine.break_asked(), self.model.break_asked);
        assert_eq!(self.engine.exit_asked(), self.model.exit_asked);
    }

    fn length(&self, random: &mut Random) -> (Timeout, Length) {
        if random.one_in(3) {
            let which = random.below(2) as usize;
            let length = Duration::from_nanos(COMMON[which]);
            (
                Timeout::Common(self.common[which]),
                Length {
                    length,
                    common: Some(which),
                },
            )
        } else {
            let ns = random.pick(&[
                0,
                1,
                7,
                MS,
                10 * MS,
                10 * MS,
                33 * MS,
                5_000 * MS,
                u64::MAX >> 1,
            ]);
            let length = Duration::from_nanos(ns);
            (
                Timeout::After(length),
                Length {
                    length,
                    common: None,
                },
            )
        }
    }

    fn interest(random: &mut Random) -> Interest {
        Interest::from_bits(random.pick(&[1, 1, 1, 2, 2, 3, 4, 5, 8, 15, 0]))
    }

    fn insert(&mut self, random: &mut Random) {
        if self.model.events.len() >= EVENTS_MAX {
            return;
        }
        let raw = random.below(HANDLES) as i32;
        let source = match random.below(8) {
            0..=3 => {
                let mut trigger = self.triggers[raw as usize];
                if random.one_in(20) {
                    trigger = random.pick(&[Trigger::Level, Trigger::Edge]);
                }
                Source::Handle {
                    raw,
                    interest: Self::interest(random),
                    trigger,
                }
            }
            4 => Source::Signal(random.below(5) as i32),
            5 | 6 => Source::Timer,
            _ => Source::User,
        };
        let timeout = random.one_in(2).then(|| self.length(random));
        let spec = EventSpec {
            source,
            lifetime: random.pick(&[
                Lifetime::OneShot,
                Lifetime::Persistent,
                Lifetime::Persistent,
            ]),
            priority: random.below(4) as u8,
            timeout: timeout.map(|(timeout, _)| timeout),
            catch_up: random.pick(&[
                CatchUp::Burst,
                CatchUp::Delay,
                CatchUp::Skip,
                CatchUp::Steady,
            ]),
            accounting: if random.one_in(8) {
                Accounting::Internal
            } else {
                Accounting::Counted
            },
        };
        let serial = self.next_serial;
        self.next_serial += 1;
        let result = self.engine.insert(spec, serial);
        let expected = self.insert_error(&spec);
        let id = match result {
            Ok(id) => id,
            Err(InsertError { kind, payload }) => {
                assert_eq!((Some(kind), payload), (expected, serial));
                return;
            }
        };
        assert_eq!(expected, None);
        assert!(!self.gone.contains(&id), "an id was given twice");
        self.log(|| format!("insert {serial} {id:?} {spec:?}"));
        let instance = matches!(source, Source::Handle { .. }).then(|| self.instance(raw, id));
        self.model.events.push(Event {
            serial,
            id,
            source,
            instance,
            one_shot: spec.lifetime == Lifetime::OneShot,
            priority: spec.priority,
            timeout: timeout.map(|(_, length)| length),
            catch_up: spec.catch_up,
            internal: spec.accounting == Accounting::Internal,
            pending: false,
            in_flight: false,
            deferred: false,
            active: None,
            active_since_turn: 0,
            deadline: None,
            owed: Readiness::NONE,
        });
        if !random.one_in(5) {
            let at = self.model.events.len() - 1;
            self.engine
                .enable(id, self.control.now())
                .expect("just inserted");
            self.model.enable(at, self.ns(), self.ready_of(at));
        }
    }

    fn insert_error(&self, spec: &EventSpec) -> Option<InsertErrorKind> {
        let priorities = self.model.config.priorities;
        if u16::from(spec.priority) >= priorities {
            return Some(InsertErrorKind::PriorityRange {
                priority: spec.priority,
                priorities,
            });
        }
        match spec.source {
            Source::Handle { raw, trigger, .. } => {
                let mixed = |event: &Event| {
                    matches!(event.source, Source::Handle { raw: r, trigger: t, .. }
                        if r == raw && t != trigger)
                };
                let mixed = self.model.events.iter().any(mixed);
                mixed.then_some(InsertErrorKind::MixedTriggers { raw })
            }
            Source::Signal(number) => {
                (number == 0).then_some(InsertErrorKind::SignalRange { number })
            }
            Source::Timer | Source::User => None,
        }
    }

    /// The registration that a new event of `raw` belongs to.
    fn instance(&mut self, raw: RawHandle, id: EventId) -> u32 {
        let handle = self.engine.handle_of(id).expect("it watches a handle");
        assert_eq!(self.engine.raw_of(handle), Some(raw));
        if let Some(known) = self.model.handles.iter().find(|known| known.raw == raw) {
            assert_eq!(known.id, handle);
            return known.instance;
        }
        assert!(
            self.handle_ids.insert(handle),
            "a handle id was given twice"
        );
        self.next_instance += 1;
        let instance = self.next_instance;
        self.model.handles.push(Handle {
            raw,
            instance,
            id: handle,
            in_flight: 0,
            failed: false,
        });
        instance
    }

    /// Closes a handle: its events are removed before or after, the number is soon in use again.
    fn close(&mut self, random: &mut Random) {
        let raw = random.below(HANDLES) as i32;
        self.log(|| format!("close {raw}"));
        let before = random.one_in(2);
        if before {
            self.control.close(raw);
        }
        while let Some(at) = self
            .model
            .events
            .iter()
            .position(|event| matches!(event.source, Source::Handle { raw: r, .. } if r == raw))
        {
            self.remove(at);
        }
        if !before {
            if random.one_in(2) {
                self.apply_changes();
            }
            self.control.close(raw);
        }
        let was = core::mem::take(&mut self.ready[raw as usize]);
        self.model.readiness_changed(raw, was, Readiness::NONE);
    }

    fn remove(&mut self, at: usize) {
        let event = self.model.events[at].clone();
        self.log(|| format!("remove {}", event.serial));
        let payload = self.engine.remove(event.id).expect("it exists");
        assert_eq!(payload, (!event.in_flight).then_some(event.serial));
        self.model.remove(at);
        self.bury(event.id);
    }

    fn touch_what_is_gone(&mut self, random: &mut Random) {
        if self.gone.is_empty() {
            return;
        }
        let id = random.pick(&self.gone);
        let now = self.now();
        assert_eq!(self.engine.enable(id, now), Err(EventError::Gone));
        assert_eq!(self.engine.disable(id), Err(EventError::Gone));
        assert_eq!(self.engine.arm(id, now), Err(EventError::Gone));
        assert_eq!(self.engine.disarm(id), Err(EventError::Gone));
        assert_eq!(self.engine.remove(id), Err(EventError::Gone));
        assert_eq!(
            self.engine.set_interest(id, Interest::READ),
            Err(EventError::Gone)
        );
        assert_eq!(self.engine.set_priority(id, 0), Err(EventError::Gone));
        assert_eq!(
            self.engine.set_timeout(id, None, now),
            Err(EventError::Gone)
        );
        let activated = self.engine.activate_event(id, Readiness::READ, 1);
        assert_eq!(activated, Err(EventError::Gone));
        assert_eq!(self.engine.state(id), None);
        assert!(self.engine.payload(id).is_none() && self.engine.info(id).is_none());
    }

    /// Changes one event, often the one whose handler runs.
    fn change(&mut self, random: &mut Random) {
        if self.model.events.is_empty() {
            return;
        }
        let mut at = random.below(self.model.events.len() as u64) as usize;
        if random.one_in(3)
            && let Some((.., called)) = self.in_flight.last()
            && let Some(own) = self.model.find(called.serial)
        {
            at = own;
        }
        let (id, serial) = (self.model.events[at].id, self.model.events[at].serial);
        let (now, ns, ready) = (self.now(), self.ns(), self.ready_of(at));
        let what = random.below(20);
        self.log(|| format!("change {serial} {what}"));
        match what {
            0..=2 => {
                self.engine.enable(id, now).expect("it exists");
                self.model.enable(at, ns, ready);
            }
            3 | 4 => {
                self.engine.disable(id).expect("it exists");
                self.model.disable(at);
            }
            5 | 6 => self.remove(at),
            7..=9 => {
                let wish = Self::interest(random);
                let result = self.engine.set_interest(id, wish);
                if matches!(self.model.events[at].source, Source::Handle { .. }) {
                    assert_eq!(result, Ok(()));
                    self.model.set_interest(at, wish, ready);
                } else {
                    assert_eq!(result, Err(EventError::NoHandle));
                }
            }
            10 => {
                let priority = random.below(5) as u8;
                let expected = if u16::from(priority) >= self.model.config.priorities {
                    Err(EventError::PriorityRange)
                } else if self.model.events[at].active.is_some() {
                    Err(EventError::Active)
                } else {
                    self.model.events[at].priority = priority;
                    Ok(())
                };
                assert_eq!(self.engine.set_priority(id, priority), expected);
            }
            11..=13 => {
                let readiness = Readiness::from_bits(random.pick(&[0, 0, 1, 2, 63]));
                let count = random.pick(&[0, 1, 1, 7, u32::MAX]);
                self.engine
                    .activate_event(id, readiness, count)
                    .expect("it exists");
                self.model.activate_event(at, readiness, count);
            }
            14..=16 => {
                let deadline = (ns + random.below(30) * MS).saturating_sub(3 * MS);
                self.engine
                    .arm(id, Instant::from_nanos(deadline))
                    .expect("it exists");
                self.model.arm(at, deadline, ready);
            }
            17 => {
                let expected = self.model.disarm(at);
                assert_eq!(self.engine.disarm(id), Ok(expected));
            }
            _ => {
                let timeout = random.one_in(3).then(|| self.length(random));
                let spec = timeout.map(|(timeout, _)| timeout);
                self.engine.set_timeout(id, spec, now).expect("it exists");
                self.model
                    .set_timeout(at, timeout.map(|(_, length)| length), ns);
            }
        }
    }
}
