//! What the servers of a comparison serve.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use windlass::session::{Input, Next, Now, Peer, Progress, Service, Session, SessionContext};
use windlass_http::{
    Answered, FixedResponse, Handler, HttpConfig, HttpService, Request, Responder, Response,
    ResponseError, StaticFiles, Status,
};

use super::model::Compute;
use super::workload::{COMPUTE_PATH, COMPUTE_TIME, HELLO_BODY};

/// Answers the requests of all workloads that are HTTP.
#[derive(Debug)]
pub(super) struct Site {
    hello: FixedResponse,
    computed: FixedResponse,
    files: StaticFiles,
    compute: Compute,
    steps: u64,
}

impl Site {
    /// Serves the files below `dir`; a computation has `steps`.
    pub(super) fn service(
        dir: &Path,
        compute: Compute,
        steps: u64,
    ) -> io::Result<HttpService<Self>> {
        let site = Self {
            hello: FixedResponse::new(hello()),
            computed: FixedResponse::new(hello()),
            files: StaticFiles::new(dir)?,
            compute,
            steps,
        };
        Ok(HttpService::new(site, HttpConfig::default()))
    }
}

fn hello() -> Response {
    Response::text(Status::OK, "").body(HELLO_BODY)
}

impl Handler for Site {
    type Local = <StaticFiles as Handler>::Local;

    fn local(&self) -> Self::Local {
        self.files.local()
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        match request.path() {
            "/" => Ok(response.fixed(&self.hello)),
            COMPUTE_PATH => Ok(self.computed(response)),
            _ => self.files.handle(local, request, response),
        }
    }
}

impl Site {
    fn computed(&self, response: Responder<'_>) -> Answered {
        let steps = self.steps;
        match self.compute {
            Compute::OffLoaded => response.job(move || {
                compute(steps);
                hello()
            }),
            Compute::InLoop | Compute::InThread => {
                compute(steps);
                response.fixed(&self.computed)
            }
        }
    }
}

/// Keeps a processor busy for `steps`. No system call, no memory: the same work wherever it runs.
fn compute(steps: u64) {
    let mut value = 88_172_645_463_325_252_u64;
    for _ in 0..steps {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        value = black_box(value);
    }
}

/// How many steps take [`COMPUTE_TIME`] on this machine: measured a few times, and the fastest
/// believed, as the others were interrupted.
pub(super) fn calibrate() -> u64 {
    const STEPS: u64 = 200_000;
    let time = |_| {
        let begun = Instant::now();
        compute(STEPS);
        begun.elapsed().max(Duration::from_nanos(1))
    };
    let fastest = (0..8).map(time).min().unwrap_or(COMPUTE_TIME);
    let steps = COMPUTE_TIME.as_nanos() * u128::from(STEPS) / fastest.as_nanos();
    u64::try_from(steps).unwrap_or(u64::MAX).max(1)
}

/// Sends back what it gets.
#[derive(Debug)]
pub(super) struct Echo;

/// One connection of [`Echo`].
#[derive(Debug)]
pub(super) struct EchoSession;

impl Service for Echo {
    type Local = ();
    type Session = EchoSession;

    fn local(&self) {}

    fn open(&self, (): &mut (), _peer: &Peer, _now: Now) -> EchoSession {
        EchoSession
    }

    fn settles(&self) -> bool {
        false
    }
}

impl Session for EchoSession {
    type Local = ();

    fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
        if cx.output.is_full() {
            return Progress {
                consumed: 0,
                next: Next::Flush,
            };
        }
        cx.output.push(input.bytes);
        Progress {
            consumed: input.bytes.len(),
            next: match input.ended {
                true => Next::Close,
                false => Next::Read,
            },
        }
    }
}
