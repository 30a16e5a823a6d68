//! The PROXY protocol: the client's address, told by a proxy in front of the connection's bytes.
//!
//! A proxy that passes on connections (HAProxy, nginx, a cloud's load balancer) is their peer; who
//! the client is it says in a header before the first byte. [`ProxyProtocol`] wraps a service,
//! reads that header, and opens the wrapped session with the client's address. Whoever can send
//! the header can claim any address: see [`ProxyPolicy`].
//!
//! It goes outside of TLS: `ProxyProtocol<TlsService<HttpService<_>>>`.

mod header;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use windlass_core::Instant;

pub use self::header::{
    PROXY_HEADER_BYTES_MAX, PROXY_LINE_BYTES_MAX, ProxyHeader, ProxyHeaderError, ProxyParse,
    parse_proxy_header,
};
use crate::session::{
    Input, JobResult, Next, Now, Peer, Progress, Service, Session, SessionContext,
};

/// From whom a header is taken. It is never guessed whether there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProxyPolicy {
    /// Every connection must begin with a header. For listeners that only proxies reach.
    #[default]
    Required,
    /// Those from `networks` must.
    RequiredFrom {
        /// Where the proxies are. A peer on a Unix socket, which has no address, is one of them:
        /// who may connect is said by the socket's permissions.
        networks: Vec<IpNet>,
        /// What becomes of the others.
        others: OtherPeers,
    },
}

/// What becomes of connections from elsewhere than the proxies' networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPeers {
    /// They are served as they are, under their own address; a header would be taken for a part of
    /// what they send.
    Direct,
    /// They are closed.
    Refused,
}

/// Serves another service behind proxies that tell the client's address, in version 1 or 2 of the
/// PROXY protocol.
///
/// A connection that must begin with a header and does not, or takes too long, is aborted without
/// a word.
pub struct ProxyProtocol<V> {
    shared: Arc<Shared<V>>,
}

struct Shared<V> {
    inner: V,
    policy: ProxyPolicy,
    timeout: Duration,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    headers: AtomicU64,
    malformed: AtomicU64,
    refused: AtomicU64,
    timeouts: AtomicU64,
}

/// What a [`ProxyProtocol`] did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyReport {
    /// Connections with a good header.
    pub headers: u64,
    /// Connections that were aborted because they began with something else, or ended within it.
    pub malformed: u64,
    /// Connections that were aborted because of where they came from.
    pub refused: u64,
    /// Connections whose header did not come in time.
    pub timeouts: u64,
}

impl fmt::Display for ProxyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} PROXY headers, {} malformed, {} refused, {} too late",
            self.headers, self.malformed, self.refused, self.timeouts
        )
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);
/// A connection that is older and has sent no header is closed by a stop; one that is not is served,
/// as its client need not expect that it fails.
const FRESH_GRACE: Duration = Duration::from_secs(1);

impl<V: Service> ProxyProtocol<V> {
    /// Serves `inner`; the header must come within 5 s.
    #[must_use]
    pub fn new(inner: V, policy: ProxyPolicy) -> Self {
        Self::with_timeout(inner, policy, TIMEOUT)
    }

    /// Serves `inner`; the header must come within `timeout` from the accept on.
    #[must_use]
    pub fn with_timeout(inner: V, policy: ProxyPolicy, timeout: Duration) -> Self {
        let shared = Shared {
            inner,
            policy,
            timeout,
            counts: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The service that is wrapped.
    #[must_use]
    pub fn inner(&self) -> &V {
        &self.shared.inner
    }

    /// A service to [take the place](crate::models::ServerState::replace_service) of this one, with
    /// the same time limit. Both count in the same [`ProxyReport`].
    #[must_use]
    pub fn successor<W: Service>(&self, inner: W, policy: ProxyPolicy) -> ProxyProtocol<W> {
        let shared = Shared {
            inner,
            policy,
            timeout: self.shared.timeout,
            counts: Arc::clone(&self.shared.counts),
        };
        ProxyProtocol {
            shared: Arc::new(shared),
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn report(&self) -> ProxyReport {
        let counts = &self.shared.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ProxyReport {
            headers: read(&counts.headers),
            malformed: read(&counts.malformed),
            refused: read(&counts.refused),
            timeouts: read(&counts.timeouts),
        }
    }
}

impl<V> fmt::Debug for ProxyProtocol<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyProtocol")
            .field("policy", &self.shared.policy)
            .field("timeout", &self.shared.timeout)
            .field("counts", &self.shared.counts)
            .finish_non_exhaustive()
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Direct,
    NeedsHeader,
    Refused,
}

impl ProxyPolicy {
    fn judge(&self, remote: Option<SocketAddr>) -> Verdict {
        let Self::RequiredFrom { networks, others } = self else {
            return Verdict::NeedsHeader;
        };
        // A listener for both families reports IPv4 peers in IPv6's clothes.
        let ip = remote.map(|remote| remote.ip().to_canonical());
        let is_proxy = ip.is_none_or(|ip| networks.iter().any(|network| network.contains(&ip)));
        match others {
            _ if is_proxy => Verdict::NeedsHeader,
            OtherPeers::Direct => Verdict::Direct,
            OtherPeers::Refused => Verdict::Refused,
        }
    }
}

impl<V: Service> Service for ProxyProtocol<V> {
    type Local = ProxyLocal<V>;
    type Session = ProxySession<V>;

    fn local(&self) -> Self::Local {
        ProxyLocal {
            inner: self.shared.inner.local(),
            shared: Arc::clone(&self.shared),
        }
    }

    fn open(&self, local: &mut Self::Local, peer: &Peer, now: Now) -> Self::Session {
        let stage = match self.shared.policy.judge(peer.remote) {
            Verdict::Direct => Stage::Open(self.shared.inner.open(&mut local.inner, peer, now)),
            Verdict::NeedsHeader => Stage::Header {
                peer: *peer,
                opened: now.monotonic,
                deadline: now.monotonic + self.shared.timeout,
                is_stopping: false,
            },
            Verdict::Refused => {
                count(&self.shared.counts.refused);
                Stage::Refused {
                    deadline: now.monotonic,
                }
            }
        };
        ProxySession { stage }
    }

    fn settles(&self) -> bool {
        self.shared.inner.settles()
    }

    fn settle(&self, local: &mut Self::Local, now: Now) {
        self.shared.inner.settle(&mut local.inner, now);
    }
}

/// What the sessions of one driver thread share.
pub struct ProxyLocal<V: Service> {
    inner: V::Local,
    shared: Arc<Shared<V>>,
}

impl<V: Service> ProxyLocal<V> {
    /// What the sessions of the wrapped service share.
    pub fn inner(&self) -> &V::Local {
        &self.inner
    }

    /// What the sessions of the wrapped service share.
    pub fn inner_mut(&mut self) -> &mut V::Local {
        &mut self.inner
    }
}

impl<V: Service> fmt::Debug for ProxyLocal<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyLocal").finish_non_exhaustive()
    }
}

/// One connection that a proxy may have passed on.
pub struct ProxySession<V: Service> {
    stage: Stage<V::Session>,
}

enum Stage<S> {
    Header {
        peer: Peer,
        opened: Instant,
        deadline: Instant,
        /// Whether a stop was asked for: then the wrapped session is told as it opens.
        is_stopping: bool,
    },
    Open(S),
    Refused {
        deadline: Instant,
    },
}

impl<V: Service> ProxySession<V> {
    /// Reads the header; when it is whole, opens the wrapped session.
    fn read_header(
        &mut self,
        cx: &mut SessionContext<'_, ProxyLocal<V>>,
        peer: Peer,
        input: Input<'_>,
    ) -> Progress {
        let (header, len) = match parse_proxy_header(input.bytes) {
            Ok(ProxyParse::Complete { header, len }) => (header, len),
            Ok(ProxyParse::Partial) if !input.ended => {
                return Progress {
                    consumed: 0,
                    next: Next::Read,
                };
            }
            Ok(ProxyParse::Partial) | Err(_) => {
                count(&cx.local.shared.counts.malformed);
                return Progress {
                    consumed: input.bytes.len(),
                    next: Next::Abort,
                };
            }
        };
        count(&cx.local.shared.counts.headers);
        let peer = match header {
            ProxyHeader::Client(client) => Peer {
                remote: Some(client),
                ..peer
            },
            ProxyHeader::ClientWithoutAddress => Peer {
                remote: None,
                ..peer
            },
            ProxyHeader::Local => peer,
        };
        let session = (cx.local.shared.inner).open(&mut cx.local.inner, &peer, cx.now);
        let before = std::mem::replace(&mut self.stage, Stage::Open(session));
        if let Stage::Header {
            is_stopping: true, ..
        } = before
        {
            let next = self.stop(cx);
            if !matches!(next, Next::Read) {
                return Progress {
                    consumed: len,
                    next,
                };
            }
        }
        let rest = Input {
            bytes: &input.bytes[len..],
            ended: input.ended,
        };
        let mut progress = Progress {
            consumed: 0,
            next: Next::Read,
        };
        if !rest.bytes.is_empty() || rest.ended {
            progress = self.advance(cx, rest);
        }
        progress.consumed += len;
        progress
    }
}

/// The context of the wrapped session.
fn inner_of<'a, V: Service>(
    cx: &'a mut SessionContext<'_, ProxyLocal<V>>,
) -> SessionContext<'a, V::Local> {
    SessionContext {
        local: &mut cx.local.inner,
        output: cx.output,
        now: cx.now,
        wakeups: cx.wakeups.reborrow(),
    }
}

impl<V: Service> Session for ProxySession<V> {
    type Local = ProxyLocal<V>;

    fn advance(&mut self, cx: &mut SessionContext<'_, Self::Local>, input: Input<'_>) -> Progress {
        match &mut self.stage {
            Stage::Open(session) => session.advance(&mut inner_of(cx), input),
            &mut Stage::Header { peer, .. } => self.read_header(cx, peer, input),
            Stage::Refused { .. } => Progress {
                consumed: input.bytes.len(),
                next: Next::Abort,
            },
        }
    }

    fn complete(&mut self, cx: &mut SessionContext<'_, Self::Local>, result: JobResult) -> Next {
        match &mut self.stage {
            Stage::Open(session) => session.complete(&mut inner_of(cx), result),
            Stage::Header { .. } | Stage::Refused { .. } => Next::Read,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Open(session) => session.deadline(),
            Stage::Header { deadline, .. } | Stage::Refused { deadline } => Some(*deadline),
        }
    }

    fn expire(&mut self, cx: &mut SessionContext<'_, Self::Local>) -> Next {
        match &mut self.stage {
            Stage::Open(session) => session.expire(&mut inner_of(cx)),
            Stage::Header {
                is_stopping: true, ..
            } => Next::Close,
            Stage::Header { .. } => {
                count(&cx.local.shared.counts.timeouts);
                Next::Abort
            }
            Stage::Refused { .. } => Next::Abort,
        }
    }

    fn stop(&mut self, cx: &mut SessionContext<'_, Self::Local>) -> Next {
        match &mut self.stage {
            Stage::Open(session) => session.stop(&mut inner_of(cx)),
            Stage::Header {
                opened,
                deadline,
                is_stopping,
                ..
            } if cx.now.monotonic < *opened + FRESH_GRACE => {
                *is_stopping = true;
                *deadline = (*deadline).min(*opened + FRESH_GRACE);
                Next::Read
            }
            Stage::Header { .. } | Stage::Refused { .. } => Next::Close,
        }
    }
}

impl<V: Service> fmt::Debug for ProxySession<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySession")
            .field("is_open", &matches!(self.stage, Stage::Open(_)))
            .finish_non_exhaustive()
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
