//! A line protocol whose commands ask a driver for everything that a session can ask for.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use windlass::Instant;
use windlass::session::{
    Input, Job, JobResult, Next, Now, Peer, Progress, Service, Session, SessionContext,
};

use crate::harness::PATIENCE;

/// What is appended at once by the endless producer.
pub(crate) const FLOOD_CHUNK_BYTES: usize = 16 * 1024;

/// What the sessions of a server tell the test, and what it tells their jobs.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    seen: Mutex<Seen>,
    changed: Condvar,
}

/// Counts of a [`Probe`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) opened: usize,
    /// Sessions that were dropped; their socket is closed by then.
    pub(crate) dropped: usize,
    pub(crate) expired: usize,
    pub(crate) jobs_begun: usize,
    /// The most that was ever queued for one connection, in bytes.
    pub(crate) queued_max: u64,
    /// Bytes that the endless producers appended.
    pub(crate) flooded: u64,
    gate_open: bool,
}

impl Probe {
    pub(crate) fn seen(&self) -> Seen {
        *self.seen.lock().unwrap()
    }

    /// Waits until `holds`.
    pub(crate) fn wait(&self, what: &str, mut holds: impl FnMut(&Seen) -> bool) -> Seen {
        let seen = self.seen.lock().unwrap();
        let (seen, timeout) = self
            .changed
            .wait_timeout_while(seen, PATIENCE, |seen| !holds(seen))
            .unwrap();
        assert!(
            !timeout.timed_out(),
            "waited in vain until {what}: {:?}",
            *seen
        );
        *seen
    }

    /// Lets the gated jobs go on.
    pub(crate) fn open_gate(&self) {
        self.update(|seen| seen.gate_open = true);
    }

    fn update(&self, change: impl FnOnce(&mut Seen)) {
        // A session that panicked meant to.
        change(&mut self.seen.lock().unwrap());
        self.changed.notify_all();
    }
}

/// Opens a [`LineSession`] for each connection.
#[derive(Debug, Default)]
pub(crate) struct LineService {
    pub(crate) probe: Arc<Probe>,
    /// What `file` sends.
    pub(crate) file: Option<PathBuf>,
}

/// Each line is a command, see [`LineSession::run`]; what they answer comes in order.
#[derive(Debug)]
pub(crate) struct LineSession {
    probe: Arc<Probe>,
    file: Option<PathBuf>,
    mode: Mode,
    deadline: Option<Instant>,
    /// What to do at the deadline or when a job is done.
    then: Then,
    stopping: bool,
    /// Numbers that the endless producer has appended.
    numbers: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Lines,
    Flood,
    Work,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Answer,
    Flood,
    Panic,
    ReadOn,
}

impl Service for LineService {
    type Local = ();
    type Session = LineSession;

    fn local(&self) {}

    fn open(&self, (): &mut (), _peer: &Peer, _now: Now) -> LineSession {
        self.probe.update(|seen| seen.opened += 1);
        LineSession {
            probe: Arc::clone(&self.probe),
            file: self.file.clone(),
            mode: Mode::Lines,
            deadline: None,
            then: Then::Answer,
            stopping: false,
            numbers: 0,
        }
    }
}

impl Drop for LineSession {
    fn drop(&mut self) {
        self.probe.update(|seen| seen.dropped += 1);
    }
}

type Cx<'a> = SessionContext<'a, ()>;

impl LineSession {
    /// Runs one command; `None`: go on with the next line.
    fn run(&mut self, cx: &mut Cx<'_>, line: &str) -> Option<Next> {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.parse::<u64>().unwrap();
        self.then = Then::Answer;
        match command {
            "echo" => {
                cx.output.push(rest.as_bytes());
                cx.output.push(b"\n");
            }
            // So many bytes; `bye-big`: and then close.
            "big" | "bye-big" => {
                let bytes = pattern(number() as usize);
                cx.output.push_shared(bytes.into());
            }
            "bye" => {
                cx.output.push(rest.as_bytes());
                cx.output.push(b"\n");
            }
            "abort" => {
                cx.output.push(b"never sent");
                return Some(Next::Abort);
            }
            "panic" => {
                cx.output.push(b"PARTIAL");
                panic!("as asked");
            }
            "file" => {
                let file = File::open(self.file.as_ref().unwrap()).unwrap();
                let len = file.metadata().unwrap().len();
                cx.output.push(b"file\n");
                cx.output.push_file(Arc::new(file), 0, len);
                cx.output.push(b"end\n");
            }
            "flood" => self.mode = Mode::Flood,
            // The same text in capitals, made by a job; gated: when the test opens the gate.
            "shout" => return Some(self.start_job(rest, JobKind::Free, Then::Answer)),
            "gated-shout" => return Some(self.start_job(rest, JobKind::Gated, Then::Answer)),
            "job-that-panics" => return Some(self.start_job(rest, JobKind::Panics, Then::Answer)),
            "panic-after-job" => return Some(self.start_job(rest, JobKind::Free, Then::Panic)),
            "flood-after-job" => return Some(self.start_job(rest, JobKind::Free, Then::Flood)),
            // What to do in so many milliseconds, if no line comes.
            "expire" | "flood-later" | "panic-later" | "read-on-later" => {
                self.deadline = Some(cx.now.monotonic + Duration::from_millis(number()));
                self.then = match command {
                    "expire" => Then::Answer,
                    "flood-later" => Then::Flood,
                    "panic-later" => Then::Panic,
                    _ => Then::ReadOn,
                };
            }
            _ => cx.output.push(b"what?\n"),
        }
        command.starts_with("bye").then(|| {
            self.mode = Mode::Over;
            Next::Close
        })
    }

    fn start_job(&mut self, text: &str, kind: JobKind, then: Then) -> Next {
        self.mode = Mode::Work;
        self.then = then;
        let (text, probe) = (text.to_uppercase(), Arc::clone(&self.probe));
        Next::Job(Job::new(move || {
            probe.update(|seen| seen.jobs_begun += 1);
            match kind {
                JobKind::Free => {}
                JobKind::Gated => {
                    // Not by `wait`: a test may end without opening it.
                    let seen = probe.seen.lock().unwrap();
                    let _seen = probe
                        .changed
                        .wait_timeout_while(seen, PATIENCE, |seen| !seen.gate_open)
                        .unwrap();
                }
                JobKind::Panics => panic!("as asked, in a job"),
            }
            text
        }))
    }

    fn flood(&mut self, cx: &mut Cx<'_>) -> Next {
        while !cx.output.is_full() {
            let first = self.numbers;
            self.numbers += FLOOD_CHUNK_BYTES as u64 / 8;
            cx.output.push_with(|buf| {
                for number in first..self.numbers {
                    buf.extend_from_slice(&number.to_be_bytes());
                }
            });
            self.probe
                .update(|seen| seen.flooded += FLOOD_CHUNK_BYTES as u64);
        }
        self.note_queued(cx);
        Next::Flush
    }

    fn note_queued(&self, cx: &Cx<'_>) {
        let queued = cx.output.queued_bytes();
        self.probe
            .update(|seen| seen.queued_max = seen.queued_max.max(queued));
    }

    fn then(&mut self, cx: &mut Cx<'_>, answer: &str) -> Next {
        match self.then {
            Then::Answer => cx.output.push(answer.as_bytes()),
            Then::Flood => {
                self.mode = Mode::Flood;
                return self.flood(cx);
            }
            Then::Panic => {
                cx.output.push(b"PARTIAL");
                panic!("as asked, later")
            }
            Then::ReadOn => {}
        }
        Next::Read
    }
}

#[derive(Clone, Copy, Debug)]
enum JobKind {
    Free,
    Gated,
    Panics,
}

impl Session for LineSession {
    type Local = ();

    fn advance(&mut self, cx: &mut Cx<'_>, input: Input<'_>) -> Progress {
        let mut consumed = 0;
        loop {
            let next = match self.mode {
                Mode::Flood => Some(self.flood(cx)),
                Mode::Over => {
                    consumed = input.bytes.len();
                    Some(Next::Close)
                }
                Mode::Work => panic!("advanced while a job runs"),
                Mode::Lines if cx.output.is_full() => {
                    self.note_queued(cx);
                    Some(Next::Flush)
                }
                Mode::Lines => {
                    let rest = &input.bytes[consumed..];
                    match rest.iter().position(|&byte| byte == b'\n') {
                        None if input.ended => Some(Next::Close),
                        None => Some(Next::Read),
                        Some(end) => {
                            consumed += end + 1;
                            self.deadline = None;
                            self.run(cx, std::str::from_utf8(&rest[..end]).unwrap())
                        }
                    }
                }
            };
            if let Some(next) = next {
                return Progress { consumed, next };
            }
        }
    }

    fn complete(&mut self, cx: &mut Cx<'_>, result: JobResult) -> Next {
        self.mode = Mode::Lines;
        let text = result
            .downcast::<String>()
            .map_or_else(|_| "job failed".into(), |text| *text);
        let next = self.then(cx, &format!("{text}\n"));
        if self.stopping {
            self.mode = Mode::Over;
            return Next::Close;
        }
        next
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn expire(&mut self, cx: &mut Cx<'_>) -> Next {
        assert!(
            self.deadline
                .is_some_and(|deadline| deadline <= cx.now.monotonic),
            "too early"
        );
        self.probe.update(|seen| seen.expired += 1);
        self.deadline = None;
        let answers = self.then == Then::Answer;
        let next = self.then(cx, "expired\n");
        if answers {
            self.mode = Mode::Over;
            return Next::Close;
        }
        next
    }

    fn stop(&mut self, _cx: &mut Cx<'_>) -> Next {
        assert!(!self.stopping, "told to stop twice");
        self.stopping = true;
        if self.mode == Mode::Work {
            return Next::Read;
        }
        self.mode = Mode::Over;
        Next::Close
    }
}

/// Consumes nothing, ever.
#[derive(Debug, Default)]
pub(crate) struct HoardingService;

/// See [`HoardingService`].
#[derive(Debug)]
pub(crate) struct HoardingSession;

impl Service for HoardingService {
    type Local = ();
    type Session = HoardingSession;

    fn local(&self) {}

    fn open(&self, (): &mut (), _peer: &Peer, _now: Now) -> HoardingSession {
        HoardingSession
    }
}

impl Session for HoardingSession {
    type Local = ();

    fn advance(&mut self, _cx: &mut Cx<'_>, _input: Input<'_>) -> Progress {
        Progress {
            consumed: 0,
            next: Next::Read,
        }
    }
}

/// `count` bytes that tell where they were moved: the byte at `n` is `n % 251`. Copied, as tests
/// make hundreds of megabytes of them without optimisation.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..251).collect();
    let mut bytes = period.repeat(count.div_ceil(period.len()));
    bytes.truncate(count);
    bytes
}
