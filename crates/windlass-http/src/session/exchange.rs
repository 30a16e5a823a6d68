//! From a head to its answer.

use std::mem::MaybeUninit;

use windlass::Instant;
use windlass::session::SessionContext;

use super::late::Late;
use super::{HttpSession, Phase, Step, WaitsFor};
use crate::access_log::LoggedRequest;
use crate::body::Framing;
use crate::config::Limits;
#[cfg(feature = "compression")]
use crate::content_coding::Coding;
use crate::handler::Handler;
use crate::head::{HEADER_COUNT_MAX, Head, VERSION_LINE_END, refuse_syntax};
use crate::known_heads::KnownHeads;
use crate::method::{Method, Methods};
use crate::refusal::Refusal;
use crate::request::{HeaderLines, Request, Version};
use crate::responder::{Framer, Kind, Logging, Outcome, Persistence, Responder};
use crate::response::Response;
use crate::service::{HttpLocal, Logged};
use crate::status::Status;
use crate::syntax::is_token_byte;

impl<H: Handler> HttpSession<H> {
    /// Takes one head, or says that it is not complete.
    pub(super) fn head(&mut self, cx: &mut SessionContext<'_, HttpLocal<H>>, input: &[u8]) -> Step {
        let Limits {
            head_bytes,
            header_count,
            target_bytes,
            ..
        } = cx.local.shared.config.limits;
        let Some(&first) = input.first() else {
            return self.wait_for(WaitsFor::Idle, cx);
        };
        let window = &input[..input.len().min(head_bytes)];
        let known_heads = &cx.local.known_heads;
        if let Some((head, known)) =
            Head::of_known(window, known_heads, self.last_section, target_bytes)
        {
            let section_at = head.method.name().len() + 1 + head.raw_target.len();
            let section_at = section_at + VERSION_LINE_END.len();
            let head_len = section_at + known.bytes;
            let lines = Lines::Known {
                section: &window[section_at..head_len],
                index: known.index,
            };
            return self.answer(cx, &head, lines, head_len);
        }
        if !is_token_byte(first) {
            return self.blank_line(cx, input);
        }
        let Some(lines_len) = last_line_end(window, self.scanned_bytes as usize) else {
            return self.incomplete_head(cx, window);
        };
        let lines = &window[..lines_len];
        let mut headers = [const { MaybeUninit::uninit() }; HEADER_COUNT_MAX];
        let headers = &mut headers[..header_count.min(HEADER_COUNT_MAX)];
        let mut raw = httparse::Request::new(&mut []);
        let head_len = match raw.parse_with_uninit_headers(lines, headers) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return self.incomplete_head(cx, window),
            Err(error) => return self.refuse(cx, refuse_syntax(error, lines), lines),
        };
        let known_host = &mut cx.local.known_host;
        match Head::new(&lines[..head_len], &raw, target_bytes, known_host) {
            Ok(head) => {
                let section_at = memchr::memchr(b'\n', lines).map_or(0, |at| at + 1);
                let section = &lines[section_at..head_len];
                let last = &mut self.last_section;
                cx.local.known_heads.note(last, section, &head, raw.headers);
                self.answer(cx, &head, Lines::Parsed(raw.headers), head_len)
            }
            Err(refusal) => self.refuse(cx, refusal, lines),
        }
    }

    /// One empty line before a request line is skipped (RFC 9112 section 2.2).
    fn blank_line(&mut self, cx: &mut SessionContext<'_, HttpLocal<H>>, input: &[u8]) -> Step {
        const NO_REQUEST: Refusal = Refusal::bad("this is not an HTTP request");
        match input {
            [b'\r'] if !self.skipped_blank => {
                self.scanned_bytes = 0;
                self.wait_for(WaitsFor::Head, cx)
            }
            [b'\r', b'\n', ..] if !self.skipped_blank => {
                self.skipped_blank = true;
                self.scanned_bytes = 0;
                Step::Consumed(2)
            }
            _ => self.refuse(cx, NO_REQUEST, input),
        }
    }

    /// Waits for the rest of a head, if it may still fit.
    fn incomplete_head(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        window: &[u8],
    ) -> Step {
        if window.len() < cx.local.shared.config.limits.head_bytes {
            // Heads are far shorter than 4 GiB; a longer part would only be looked at again.
            self.scanned_bytes = u32::try_from(window.len()).unwrap_or(0);
            return self.wait_for(WaitsFor::Head, cx);
        }
        let refusal = if memchr::memchr(b'\n', window).is_none() {
            Refusal::new(Status::URI_TOO_LONG, "the request line is too long")
        } else {
            Refusal::new(
                Status::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the header lines are too long",
            )
        };
        self.refuse(cx, refusal, window)
    }

    /// Lets the handler answer a request, or answers in its place.
    fn answer(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        head: &Head<'_>,
        lines: Lines<'_>,
        head_len: usize,
    ) -> Step {
        let framer = self.framer(head, &cx.local.shared.config.limits);
        let carried = self.carried.take();
        let HttpLocal {
            shared,
            scratch,
            extra,
            date,
            handler,
            known_heads,
            ..
        } = &mut *cx.local;
        let request = Request {
            head,
            lines: lines.resolve(known_heads),
            peer: &self.peer,
            now: cx.now,
            carried: carried.as_deref().map(|carried| &**carried),
            route: None,
        };
        #[cfg(feature = "compression")]
        let framer = match &shared.config.compression {
            None => framer,
            Some(compression) => Framer {
                coding: compression.choose(&request),
                ..framer
            },
        };
        scratch.clear();
        extra.clear();
        let mut outcome = Outcome::default();
        let responder = Responder {
            output: cx.output,
            scratch,
            extra,
            date: date.text(),
            config: &shared.config,
            framer,
            outcome: &mut outcome,
        };
        let result = if shared.methods.contains(head.method) && head.method != Method::Connect {
            shared.handler.handle(handler, &request, responder)
        } else {
            Ok(responder.respond(answer_other_method(head, shared.methods)))
        };
        self.scanned_bytes = 0;
        self.skipped_blank = false;
        self.waits_for = WaitsFor::Nothing;
        self.deadline = Instant::FAR;
        match outcome {
            Outcome {
                kind: Kind::Answered { status, body_bytes },
                taker: None,
                discarded: None,
                closes,
                logging,
                ..
            } => {
                if shared.config.access_log.is_some() && logging == Logging::Logged {
                    let logged = logged_request(head, lines, known_heads);
                    cx.local
                        .log(self.peer, Logged::Now(logged), status, body_bytes);
                } else {
                    cx.local.count(status);
                }
                let persistence = if closes {
                    Persistence::Close
                } else {
                    framer.persistence
                };
                self.go_on(cx, persistence, head.framing);
                if matches!(self.phase, Phase::Over) {
                    Step::Over
                } else {
                    Step::Consumed(head_len)
                }
            }
            outcome => {
                let logged = logged_request(head, lines, known_heads);
                let is_ok = result.is_ok();
                self.keep(cx, framer, logged, (outcome, is_ok), head_len)
            }
        }
    }

    /// Remembers what must be of a request that is not answered at once, and goes on with it.
    #[cold]
    fn keep(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        framer: Framer,
        logged: LoggedRequest<'_>,
        (outcome, is_ok): (Outcome, bool),
        head_len: usize,
    ) -> Step {
        let late = Late {
            framer,
            kept: cx.local.keep_for_log(logged),
            extra: std::mem::take(&mut cx.local.extra),
            taker: None,
            body_bytes_max: cx.local.shared.config.limits.body_bytes,
        };
        let outcome = match outcome.again() {
            Ok(job) if is_ok => {
                self.phase = Phase::Again(Box::new(late));
                // The head stays where it is, to be looked at again.
                return Step::Job(0, job);
            }
            Ok(_) => Outcome::default(),
            Err(outcome) => outcome,
        };
        match self.conclude(cx, outcome, is_ok, late) {
            Step::Consumed(_) => Step::Consumed(head_len),
            Step::Job(_, job) => Step::Job(head_len, job),
            other => other,
        }
    }

    /// How the answer is framed, and whether it is the last.
    #[inline]
    fn framer(&self, head: &Head<'_>, limits: &Limits) -> Framer {
        let too_long = matches!(head.framing, Framing::Length(len) if len > limits.drain_bytes);
        let last_if_read = !head.persistent || self.stopping;
        // A client that waits for 100 Continue and gets a final answer may leave out the body, so
        // what comes next could be either (RFC 9110 section 10.1.1).
        let last = last_if_read || head.expects_continue || too_long;
        let persistence = |last| match head.version {
            _ if last => Persistence::Close,
            Version::Http10 => Persistence::PersistentHttp10,
            Version::Http11 => Persistence::Persistent,
        };
        Framer {
            head_only: head.method == Method::Head,
            version: head.version,
            persistence: persistence(last),
            persistence_if_read: persistence(last_if_read),
            framing: head.framing,
            expects_continue: head.expects_continue,
            upgrades: head.upgrades,
            #[cfg(feature = "compression")]
            coding: Coding::Identity,
        }
    }

    /// Answers a request that no handler sees; the connection then ends.
    pub(super) fn refuse(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        refusal: Refusal,
        lines: &[u8],
    ) -> Step {
        let framer = Framer {
            head_only: lines.starts_with(b"HEAD "),
            version: Version::Http11,
            persistence: Persistence::Close,
            persistence_if_read: Persistence::Close,
            framing: Framing::Length(0),
            expects_continue: false,
            upgrades: false,
            #[cfg(feature = "compression")]
            coding: Coding::Identity,
        };
        let response = Response::text(refusal.status, refusal.why);
        let logged = Logged::Now(LoggedRequest::default());
        self.respond(cx, framer, logged, &[], response);
        self.phase = Phase::Over;
        Step::Over
    }

    /// Appends `response`, with the header lines `extra_lines`, and logs it.
    pub(super) fn respond(
        &self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        framer: Framer,
        logged: Logged<'_>,
        extra_lines: &[u8],
        response: Response,
    ) {
        let HttpLocal {
            scratch,
            extra,
            date,
            shared,
            ..
        } = &mut *cx.local;
        scratch.clear();
        extra.clear();
        extra.extend_from_slice(extra_lines);
        let mut outcome = Outcome::default();
        let responder = Responder {
            output: cx.output,
            scratch,
            extra,
            date: date.text(),
            config: &shared.config,
            framer,
            outcome: &mut outcome,
        };
        let _answered = responder.respond(response);
        if let Kind::Answered { status, body_bytes } = outcome.kind {
            cx.local.log(self.peer, logged, status, body_bytes);
        }
    }
}

/// Where the header lines of a request are.
#[derive(Clone, Copy)]
enum Lines<'a> {
    Known { section: &'a [u8], index: u8 },
    Parsed(&'a [httparse::Header<'a>]),
}

impl<'a> Lines<'a> {
    #[inline]
    fn resolve<'k>(self, known_heads: &'k KnownHeads) -> HeaderLines<'a, 'k> {
        match self {
            Self::Known { section, index } => HeaderLines::Known {
                section,
                fields: known_heads.fields(index),
            },
            Self::Parsed(headers) => HeaderLines::Parsed(headers),
        }
    }
}

/// Where the last whole line in `bytes` ends, if it ends beyond `scanned`.
fn last_line_end(bytes: &[u8], scanned: usize) -> Option<usize> {
    match &bytes[scanned..] {
        // Nearly always the input ends with a head.
        [.., b'\n'] => Some(bytes.len()),
        fresh => memchr::memrchr(b'\n', fresh).map(|at| scanned + at + 1),
    }
}

/// The answer to a known method that the handler does not serve.
pub(crate) fn answer_other_method(head: &Head<'_>, methods: Methods) -> Response {
    let response = if head.method == Method::Options && head.raw_target == "*" {
        Response::new(Status::NO_CONTENT)
    } else {
        let detail = format_args!("{} is not served here", head.method);
        Response::text(Status::METHOD_NOT_ALLOWED, detail)
    };
    response
        .header("Allow", methods.allow_value())
        .expect("method names are a valid header value")
}

pub(super) fn internal_error() -> Response {
    Response::text(
        Status::INTERNAL_SERVER_ERROR,
        "the answer could not be made",
    )
}

fn logged_request<'a>(
    head: &Head<'a>,
    lines: Lines<'a>,
    known_heads: &KnownHeads,
) -> LoggedRequest<'a> {
    let lines = lines.resolve(known_heads);
    LoggedRequest {
        line: Some((head.method.name(), head.raw_target, head.version.name())),
        authorization: lines.header("authorization"),
        host: lines.header("host"),
        referer: lines.header("referer"),
        user_agent: lines.header("user-agent"),
    }
}
