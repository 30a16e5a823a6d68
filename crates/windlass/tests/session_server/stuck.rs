//! The end of a server whose sessions or jobs are stuck, in the models whose threads may block.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use windlass::models::Limits;
use windlass::session::{
    Input, Job, JobResult, Next, Now, Peer, Progress, Service, Session, SessionContext,
};

use crate::harness::{Client, Model, Options, PATIENCE, Server};

/// More than any model has threads that call sessions, or workers of its pool.
const CLIENTS: usize = 40;
/// So many are stuck at once in any model.
const STUCK_MIN: usize = 4;

/// Blocks in what it is asked to.
#[derive(Debug, Default)]
struct Stuck(Arc<Gate>);

#[derive(Debug, Default)]
struct Gate {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    is_open: bool,
    stuck: usize,
    dropped: usize,
}

impl Gate {
    fn update(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap());
        self.changed.notify_all();
    }

    /// Blocks until it is open.
    fn pass(&self) {
        self.update(|seen| seen.stuck += 1);
        self.wait("the gate opens", |seen| seen.is_open);
    }

    fn wait(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let seen = self.seen.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(seen, PATIENCE, |seen| !holds(seen));
        let (seen, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "waited in vain that {what}: {seen:?}");
    }
}

impl Service for Stuck {
    type Local = ();
    type Session = StuckSession;

    fn local(&self) {}

    fn open(&self, (): &mut (), _: &Peer, _: Now) -> StuckSession {
        let gate = Arc::clone(&self.0);
        StuckSession {
            gate,
            is_in_job: false,
        }
    }
}

#[derive(Debug)]
struct StuckSession {
    gate: Arc<Gate>,
    is_in_job: bool,
}

impl Drop for StuckSession {
    fn drop(&mut self) {
        self.gate.update(|seen| seen.dropped += 1);
    }
}

impl Session for StuckSession {
    type Local = ();

    fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
        let mut next = Next::Read;
        match input.bytes {
            b"call\n" => self.gate.pass(),
            b"job\n" => {
                let gate = Arc::clone(&self.gate);
                self.is_in_job = true;
                next = Next::Job(Job::new(move || gate.pass()));
            }
            b"hello\n" => cx.output.push(b"hello\n"),
            bytes if input.ended && bytes.is_empty() => next = Next::Close,
            _ => return Progress { consumed: 0, next },
        }
        let consumed = input.bytes.len();
        Progress { consumed, next }
    }

    fn complete(&mut self, _: &mut SessionContext<'_, ()>, _: JobResult) -> Next {
        Next::Read
    }

    fn stop(&mut self, _: &mut SessionContext<'_, ()>) -> Next {
        match self.is_in_job {
            true => Next::Read,
            false => Next::Close,
        }
    }
}

pub(crate) fn calls_that_do_not_end_keep_no_server_that_is_cut<M: Model>() {
    end_while_stuck_in::<M>("call\n");
}

pub(crate) fn jobs_that_do_not_end_keep_no_server_that_is_cut<M: Model>() {
    end_while_stuck_in::<M>("job\n");
}

fn end_while_stuck_in<M: Model>(command: &str) {
    let service = Stuck::default();
    let gate = Arc::clone(&service.0);
    let limits = Limits {
        stop_deadline: Duration::from_millis(10),
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    let server = Server::start::<M, _>(service, options);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("hello"), "hello");
    }
    for client in &mut clients {
        client.send(command);
    }
    gate.wait("many are stuck", |seen| seen.stuck >= STUCK_MIN);
    let begun = Instant::now();
    let report = server.stop_and_join();
    assert!(begun.elapsed() < PATIENCE / 2, "it waited for those");
    assert!(report.cut >= STUCK_MIN as u64, "{report:?}");
    // Their peers do not wait for them either.
    for client in &mut clients {
        assert!(client.rest_or_reset().0.is_empty());
    }
    gate.update(|seen| seen.is_open = true);
    gate.wait("no session is left", |seen| seen.dropped == CLIENTS);
}
