//! The golden rule, checked: handlers that ran too long, by their label and place of registration.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_core::{EventId, Instant};
use windlass_sys::clock;

use crate::event_loop::config::HandlerTimes;
use crate::event_loop::lag::LagHistogram;

/// Where a handler comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Its label, if it was given one ([`set_label`](super::Reactor::set_label)).
    pub label: Option<Cow<'static, str>>,
    /// Where it was registered.
    pub place: &'static Location<'static>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "{label} ({})", self.place),
            None => self.place.fmt(f),
        }
    }
}

/// A handler that ran longer than the limit.
#[derive(Clone, Debug)]
pub struct SlowHandler {
    /// Its event.
    pub event: EventId,
    /// Where it comes from.
    pub origin: Origin,
    /// How long it ran, to one tick of the coarse clock.
    pub duration: Duration,
}

impl fmt::Display for SlowHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handler {} ran for {:?}", self.origin, self.duration)
    }
}

/// Where all events and hooks come from; shared with a watchdog, so behind a lock that is taken
/// only to register, remove and report.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins(Arc<Mutex<OriginTable>>);

#[derive(Debug, Default)]
struct OriginTable {
    /// By slot: the last event there.
    events: Vec<Option<(EventId, Origin)>>,
    /// The event whose handler runs, if it was removed meanwhile and its slot has another.
    displaced: Option<(EventId, Origin)>,
    /// Hooks have ids of their own, of no slot.
    hooks: Vec<(EventId, Origin)>,
}

impl Origins {
    fn lock(&self) -> MutexGuard<'_, OriginTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a new event; `running` is the one whose handler runs.
    pub(super) fn set(&self, event: EventId, origin: Origin, running: Option<EventId>) {
        let mut table = self.lock();
        let at = event.slot();
        if at >= table.events.len() {
            table.events.resize(at + 1, None);
        }
        let earlier = table.events[at].replace((event, origin));
        if earlier.as_ref().map(|(earlier, _)| *earlier) == running && running.is_some() {
            table.displaced = earlier;
        }
    }

    pub(super) fn set_label(&self, event: EventId, label: Cow<'static, str>) {
        if let Some(Some((id, origin))) = self.lock().events.get_mut(event.slot())
            && *id == event
        {
            origin.label = Some(label);
        }
    }

    pub(super) fn get(&self, event: EventId) -> Option<Origin> {
        let table = self.lock();
        let by_slot = table.events.get(event.slot()).and_then(Option::as_ref);
        by_slot
            .into_iter()
            .chain(&table.displaced)
            .chain(&table.hooks)
            .find(|(id, _)| *id == event)
            .map(|(_, origin)| origin.clone())
    }

    pub(super) fn set_hook(&self, hook: EventId, origin: Origin) {
        self.lock().hooks.push((hook, origin));
    }

    pub(super) fn remove_hook(&self, hook: EventId) {
        self.lock().hooks.retain(|(id, _)| *id != hook);
    }
}

/// Times each handler against the limit.
#[derive(Debug)]
pub(super) struct GoldenRule {
    limit_ns: u64,
    began_ns: u64,
    last_ns: u64,
    /// How long handlers took, if that is measured.
    pub(super) times: Option<LagHistogram>,
    /// How often the limit was overrun.
    pub(super) overruns: u64,
    /// The last of them.
    pub(super) recent: VecDeque<SlowHandler>,
}

/// How many overruns are remembered.
const RECENT_MAX: usize = 32;

impl GoldenRule {
    pub(super) fn new(limit: Option<Duration>, times: HandlerTimes) -> Self {
        let limit_ns = limit.map_or(u64::MAX, |limit| {
            u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
        });
        Self {
            limit_ns,
            began_ns: 0,
            last_ns: 0,
            times: (times == HandlerTimes::Measured).then(LagHistogram::default),
            overruns: 0,
            recent: VecDeque::new(),
        }
    }

    /// Handlers start to run.
    #[inline]
    pub(super) fn begin(&mut self, known: Option<Instant>) {
        if self.times.is_some() {
            self.last_ns = clock::monotonic_ns();
            self.began_ns = self.last_ns;
        } else if self.limit_ns != u64::MAX {
            // A time just read is within a tick of the coarse one, and costs nothing.
            self.last_ns = known.map_or_else(clock::monotonic_coarse_ns, Instant::as_nanos);
            self.began_ns = self.last_ns;
        }
    }

    /// How long the handlers took that are back since [`begin`](Self::begin), in whole ticks; zero
    /// if the check is off.
    pub(super) fn first_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.began_ns)
    }

    /// A handler is back.
    #[inline]
    pub(super) fn check(&mut self, event: EventId, origins: &Origins) {
        let now_ns = match &self.times {
            Some(_) => clock::monotonic_ns(),
            None if self.limit_ns == u64::MAX => return,
            None => clock::monotonic_coarse_ns(),
        };
        let took_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        if let Some(times) = &mut self.times {
            times.record(took_ns);
        }
        if took_ns > self.limit_ns {
            self.note(event, Duration::from_nanos(took_ns), origins);
        }
    }

    #[cold]
    fn note(&mut self, event: EventId, duration: Duration, origins: &Origins) {
        self.overruns += 1;
        let Some(origin) = origins.get(event) else {
            return;
        };
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(SlowHandler {
            event,
            origin,
            duration,
        });
    }
}
