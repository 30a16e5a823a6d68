//! The health check, which load balancers ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fixed::FixedResponse;
use crate::method::Methods;
use crate::middleware::filter::{Filter, Verdict, reads};
use crate::request::Request;
use crate::responder::Responder;
use crate::response::{Response, ResponseError};
use crate::status::Status;

/// A [`Filter`] that answers one path: `200` and `ok`, or `503` once the server is about to stop.
/// These answers are not logged.
#[derive(Debug)]
pub struct Health {
    path: String,
    state: HealthState,
    fine: FixedResponse,
    stopping: FixedResponse,
}

/// What a health check says; all clones share it.
#[derive(Clone, Debug, Default)]
pub struct HealthState(Arc<AtomicBool>);

impl HealthState {
    /// Has the check say from now on that the server is about to stop.
    pub fn set_stopping(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Health {
    /// Answers requests for `path`, which begins with a slash.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the headers are constant and valid"
    )]
    #[must_use]
    pub fn new(path: impl Into<String>, state: HealthState) -> Self {
        let fixed = |status, body| {
            let answer = Response::new(status)
                .header("Content-Type", "text/plain; charset=utf-8")
                .and_then(|answer| answer.header("Cache-Control", "no-store"))
                .expect("both are valid");
            FixedResponse::new(answer.body(body))
        };
        Self {
            path: path.into(),
            state,
            fine: fixed(Status::OK, "ok\n"),
            stopping: fixed(Status::SERVICE_UNAVAILABLE, "stopping\n"),
        }
    }
}

impl Filter for Health {
    type Local = ();

    fn local(&self) -> Self::Local {}

    fn filter<'a>(
        &self,
        (): &mut Self::Local,
        request: &Request<'_>,
        _methods: Methods,
        response: Responder<'a>,
    ) -> Result<Verdict<'a>, ResponseError> {
        if request.path() != self.path || !reads(request.method()) {
            return Ok(Verdict::Pass(response));
        }
        let answer = if self.state.0.load(Ordering::Relaxed) {
            &self.stopping
        } else {
            &self.fine
        };
        Ok(Verdict::Answered(response.unlogged().fixed(answer)))
    }
}
