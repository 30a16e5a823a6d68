//! The dump: each event of a loop for people and tools.

use std::fmt;

use windlass_core::{EventInfo, Source, Timeout};

use crate::event_loop::golden_rule::Origin;
use crate::event_loop::reactor::Reactor;
use crate::event_loop::signal::Signal;

/// One event as a line of text: state, source, priority, deadline, label, place.
#[derive(Clone, Debug)]
pub struct EventDescription {
    /// What the engine knows of it.
    pub info: EventInfo,
    /// Where it comes from.
    pub origin: Option<Origin>,
}

impl<'l, S: 'l> Reactor<'l, S> {
    /// All events, the loop's own included, in no particular order.
    pub fn events(&self) -> impl Iterator<Item = EventDescription> + '_ {
        self.engine.infos().map(|info| {
            let origin = self.origins.get(info.id);
            EventDescription { info, origin }
        })
    }

    /// All events as text, a line each.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut text = format!("{} {:?}\n", self.backend(), self.counters());
        for event in self.events() {
            text.push_str(&event.to_string());
            text.push('\n');
        }
        text
    }
}

impl fmt::Display for EventDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = &self.info;
        write!(f, "{:?} ", info.id)?;
        match info.source {
            Source::Handle {
                raw,
                interest,
                trigger,
            } => {
                write!(f, "fd {raw} {interest:?} {trigger:?}")?;
            }
            Source::Signal(number) => write!(f, "{}", Signal::from_number(number))?,
            Source::Timer => f.write_str("timer")?,
            Source::User => f.write_str("user")?,
        }
        let state = info.state;
        f.write_str(match (state.pending, state.active, state.in_flight) {
            (_, _, true) => " running",
            (true, true, _) => " pending active",
            (true, false, _) => " pending",
            (false, true, _) => " active",
            (false, false, _) => " initialised",
        })?;
        if !info.persistent {
            f.write_str(" one-shot")?;
        }
        if info.internal {
            f.write_str(" internal")?;
        }
        write!(f, " priority {}", info.priority)?;
        match info.timeout {
            Some(Timeout::After(length)) => write!(f, " timeout {length:?}")?,
            Some(Timeout::Common(_)) => f.write_str(" common timeout")?,
            None => {}
        }
        if let Some(deadline) = info.deadline {
            write!(f, " due {deadline}")?;
        }
        match &self.origin {
            Some(origin) => write!(f, " {origin}"),
            None => Ok(()),
        }
    }
}
