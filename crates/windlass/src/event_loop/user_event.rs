//! User events: handlers that run when the program says so.

use std::panic::Location;

use windlass_core::{Disposition, EventId, EventSpec, Happened, Lifetime, Readiness, Source};

use crate::event_loop::context::Context;
use crate::event_loop::error::RegisterError;
use crate::event_loop::golden_rule::Origin;
use crate::event_loop::handler::BoxedHandler;
use crate::event_loop::reactor::Reactor;

impl<'l, S: 'l> Reactor<'l, S> {
    /// Makes an event whose handler runs, in a turn to come, when it was
    /// [activated](Self::activate); it is told how often since it last ran. It does not keep the
    /// loop running.
    ///
    /// # Errors
    ///
    /// If the engine is full.
    #[track_caller]
    pub fn user_event<F>(&mut self, mut run: F) -> Result<EventId, RegisterError>
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>, u32) -> Disposition + 'l,
    {
        let handler = Box::new(
            move |state: &mut S, cx: &mut Context<'_, 'l, S>, happened: Happened| {
                run(state, cx, happened.count)
            },
        );
        self.insert_user(handler, Lifetime::Persistent, Location::caller())
    }

    /// Calls `run` in the next turn, when what is active now and I/O have had theirs.
    ///
    /// # Errors
    ///
    /// If the engine is full.
    #[track_caller]
    pub fn defer<F>(&mut self, run: F) -> Result<EventId, RegisterError>
    where
        F: FnOnce(&mut S, &mut Context<'_, 'l, S>) + 'l,
    {
        let mut run = Some(run);
        let handler = Box::new(
            move |state: &mut S, cx: &mut Context<'_, 'l, S>, _: Happened| {
                if let Some(run) = run.take() {
                    run(state, cx);
                }
                Disposition::Remove
            },
        );
        let event = self.insert_user(handler, Lifetime::OneShot, Location::caller())?;
        // It exists, as it was just inserted.
        let _ = self.engine.activate_event(event, Readiness::NONE, 1);
        Ok(event)
    }

    pub(crate) fn insert_user(
        &mut self,
        handler: BoxedHandler<'l, S>,
        lifetime: Lifetime,
        place: &'static Location<'static>,
    ) -> Result<EventId, RegisterError> {
        let spec = EventSpec {
            lifetime,
            ..EventSpec::new(Source::User)
        };
        let origin = Origin { label: None, place };
        self.insert(spec, handler, origin)
            .map_err(|error| error.map(drop))
    }
}
