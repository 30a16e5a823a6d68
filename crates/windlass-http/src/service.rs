//! The service: opens a session per connection, and what the sessions of one thread share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass::session::{Now, Peer, Service};

use crate::access_log::{self, KeptRequest, LoggedAnswer, LoggedRequest};
use crate::config::HttpConfig;
use crate::date::CachedDate;
use crate::handler::Handler;
use crate::head::KnownHost;
use crate::known_heads::KnownHeads;
use crate::method::Methods;
use crate::session::HttpSession;
use crate::status::Status;

/// Serves HTTP/1.1 with a [`Handler`].
pub struct HttpService<H> {
    shared: Arc<Shared<H>>,
}

/// What all threads share.
pub(crate) struct Shared<H> {
    pub(crate) handler: H,
    pub(crate) config: HttpConfig,
    pub(crate) methods: Methods,
    log_failures: AtomicU64,
}

impl<H: Handler> HttpService<H> {
    /// Serves with `handler` under `config`.
    #[must_use]
    pub fn new(handler: H, config: HttpConfig) -> Self {
        let methods = handler.methods();
        let shared = Shared {
            handler,
            config,
            methods,
            log_failures: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The handler.
    #[must_use]
    pub fn handler(&self) -> &H {
        &self.shared.handler
    }

    /// How often the access log could not be written; those lines are lost.
    #[must_use]
    pub fn log_failures(&self) -> u64 {
        self.shared.log_failures.load(Ordering::Relaxed)
    }
}

impl<H> fmt::Debug for HttpService<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl<H: Handler> Service for HttpService<H> {
    type Local = HttpLocal<H>;
    type Session = HttpSession<H>;

    fn local(&self) -> Self::Local {
        HttpLocal {
            shared: Arc::clone(&self.shared),
            scratch: Vec::with_capacity(1024),
            now: Now::default(),
            extra: Vec::new(),
            date: CachedDate::new(0),
            known_host: KnownHost::default(),
            known_heads: KnownHeads::default(),
            log_lines: Vec::new(),
            handler: self.shared.handler.local(),
            answers: Box::new([0; STATUS_CODES]),
        }
    }

    fn open(&self, _local: &mut Self::Local, peer: &Peer, now: Now) -> Self::Session {
        HttpSession::new(*peer, now, &self.shared.config)
    }

    fn settles(&self) -> bool {
        self.shared.config.access_log.is_some()
    }

    fn settle(&self, local: &mut Self::Local, _now: Now) {
        if !local.log_lines.is_empty() {
            local.write_log();
        }
    }
}

/// What the sessions of one driver thread share.
pub struct HttpLocal<H: Handler> {
    pub(crate) shared: Arc<Shared<H>>,
    /// Where heads of answers are gathered.
    pub(crate) scratch: Vec<u8>,
    /// The time of the call that is under way.
    now: Now,
    /// Header lines that wrapping handlers have added to the answer that is being made.
    pub(crate) extra: Vec<u8>,
    pub(crate) date: CachedDate,
    pub(crate) known_host: KnownHost,
    pub(crate) known_heads: KnownHeads,
    /// Lines of the access log that are not written yet.
    log_lines: Vec<u8>,
    pub(crate) handler: H::Local,
    /// How many answers were given, by status code.
    answers: Box<[u64; STATUS_CODES]>,
}

/// One more than the highest status code.
const STATUS_CODES: usize = 600;

impl<H: Handler> HttpLocal<H> {
    /// How many answers this thread has given, by status code: only those that there were.
    pub fn answers(&self) -> impl Iterator<Item = (u16, u64)> {
        let counted = (0..).zip(self.answers.iter().copied());
        counted.filter(|(_, count)| *count > 0)
    }

    /// Adds to the counts of [`answers`](Self::answers): those of an earlier service, which this
    /// one has replaced.
    pub fn add_answers(&mut self, counts: impl IntoIterator<Item = (u16, u64)>) {
        for (code, count) in counts {
            if let Some(sum) = self.answers.get_mut(usize::from(code)) {
                *sum += count;
            }
        }
    }

    /// What the handler keeps for this thread.
    #[must_use]
    pub fn handler(&self) -> &H::Local {
        &self.handler
    }

    /// Counts an answer.
    #[inline]
    pub(crate) fn count(&mut self, status: Status) {
        if let Some(count) = self.answers.get_mut(usize::from(status.code())) {
            *count += 1;
        }
    }

    /// Notes the time of a call.
    #[inline]
    pub(crate) fn see(&mut self, now: Now) {
        self.now = now;
        self.date.update(now.unix_ms);
    }

    /// Counts an answer, and appends a line to the access log, if there is one.
    pub(crate) fn log(&mut self, peer: Peer, request: Logged<'_>, status: Status, body_bytes: u64) {
        self.count(status);
        let Some(log) = &self.shared.config.access_log else {
            return;
        };
        let answer = LoggedAnswer {
            peer,
            date: self.date.text(),
            now: self.now,
            status,
            body_bytes,
        };
        let lines = &mut self.log_lines;
        match request {
            Logged::Now(request) => log.line_now(lines, &request, &answer),
            Logged::Kept(kept) => log.line_kept(lines, kept, &answer),
        }
        if access_log::is_full(&self.log_lines) {
            self.write_log();
        }
    }

    /// What of `request` must be kept to log it later; nothing if there is no log.
    pub(crate) fn keep_for_log(&self, request: LoggedRequest<'_>) -> KeptRequest {
        let log = self.shared.config.access_log.as_ref();
        log.map_or_else(KeptRequest::default, |log| {
            log.keep(&request, self.now.monotonic)
        })
    }

    fn write_log(&mut self) {
        let Some(log) = &self.shared.config.access_log else {
            return;
        };
        if log.write(&mut self.log_lines).is_err() {
            self.shared.log_failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<H: Handler> fmt::Debug for HttpLocal<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpLocal")
            .field("date", &self.date)
            .finish_non_exhaustive()
    }
}

/// The request of a line of the access log.
#[derive(Debug)]
pub(crate) enum Logged<'a> {
    Kept(&'a KeptRequest),
    Now(LoggedRequest<'a>),
}
