//! The service: wraps another, and holds the configuration that new connections get.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConfig;
use rustls::server::ProducesTickets;
use windlass::session::{Now, Output, OutputLimits, Peer, Service};

use crate::config::{TlsConfig, ticketer};
use crate::error::TlsConfigError;
use crate::report::{Counts, TlsReport};
use crate::session::TlsSession;

/// Serves another service over TLS.
///
/// The wrapped service's sessions are opened when the handshake is complete, with
/// [`Transport::Tls`](windlass::session::Transport::Tls) in their peer; their time limits start
/// there.
///
/// # What the layer keeps of a session's contract
///
/// - Output is encrypted as it is sent, not ahead: what the peer does not take stays, as plaintext
///   or file segment, in the wrapped session's own queue, whose marks are those of the driver's.
///   While that is so the driver is asked to drain, and reads no input.
/// - A file that got shorter ends the connection at once and without the closing alert, so that
///   the peer knows that it did not get all.
/// - A close is announced by `close_notify`. A peer that ends without it has ended its input all
///   the same: protocols that don't delimit their messages can't tell a cut from an end (RFC 8446
///   section 6.1), HTTP does.
/// - A job that follows output which is not encrypted yet starts when that is done.
pub struct TlsService<V> {
    shared: Arc<Shared<V>>,
}

/// What all threads share.
pub(crate) struct Shared<V> {
    pub(crate) inner: V,
    cell: Arc<ConfigCell>,
}

/// The configuration in force.
struct ConfigCell {
    /// Changes after each replacement; what differs from it is outdated.
    generation: AtomicU64,
    loaded: Mutex<Loaded>,
    counts: Counts,
}

struct Loaded {
    config: TlsConfig,
    active: Arc<Active>,
    ticketer: Arc<dyn ProducesTickets>,
}

/// What a new connection takes from the configuration.
pub(crate) struct Active {
    pub(crate) rustls: Arc<ServerConfig>,
    pub(crate) config: TlsConfig,
}

impl<V: Service> TlsService<V> {
    /// Serves `inner` over TLS.
    ///
    /// # Errors
    ///
    /// If the system gives no random bytes for the tickets' secret.
    pub fn new(inner: V, config: TlsConfig) -> Result<Self, TlsConfigError> {
        let ticketer = ticketer()?;
        let loaded = Loaded {
            active: Active::new(&config, &ticketer)?,
            config,
            ticketer,
        };
        let cell = ConfigCell {
            generation: AtomicU64::new(0),
            loaded: Mutex::new(loaded),
            counts: Counts::default(),
        };
        let shared = Shared {
            inner,
            cell: Arc::new(cell),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The service that is wrapped.
    #[must_use]
    pub fn inner(&self) -> &V {
        &self.shared.inner
    }

    /// The same TLS around another service, to
    /// [take the place](windlass::models::ServerState::replace_service) of this one: configuration,
    /// handles, counts and the secret of session tickets are those of this service, so clients
    /// resume across the change.
    #[must_use]
    pub fn with_inner<W: Service>(&self, inner: W) -> TlsService<W> {
        let cell = Arc::clone(&self.shared.cell);
        TlsService {
            shared: Arc::new(Shared { inner, cell }),
        }
    }

    /// A handle to replace the configuration and to see what was done.
    #[must_use]
    pub fn handle(&self) -> TlsHandle {
        TlsHandle {
            cell: Arc::clone(&self.shared.cell),
        }
    }
}

impl<V> fmt::Debug for TlsService<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsService")
            .field("report", &self.shared.cell.counts.report())
            .finish_non_exhaustive()
    }
}

/// Replaces the configuration of a [`TlsService`] while it serves. Cheap to clone; usable from any
/// thread.
#[derive(Clone)]
pub struct TlsHandle {
    cell: Arc<ConfigCell>,
}

impl TlsHandle {
    /// Reads the files of the configuration again. Connections that are accepted from then on get
    /// what is in them now; those that exist go on. Reads files, so it may block.
    ///
    /// # Errors
    ///
    /// If a file can't be used; then everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsConfigError> {
        let fresh = self.cell.loaded().config.read_again()?;
        self.replace(fresh)
    }

    /// Puts `config` in force for connections that are accepted from now on.
    ///
    /// # Errors
    ///
    /// If the system gives no random bytes for a new secret; then everything stays as it was.
    pub fn replace(&self, config: TlsConfig) -> Result<(), TlsConfigError> {
        let mut loaded = self.cell.loaded();
        let mut secret = Arc::clone(&loaded.ticketer);
        if config.verifies_clients() || loaded.config.verifies_clients() {
            // Whom the old configuration let in the new one may not: it must look itself.
            secret = ticketer()?;
        }
        let active = Active::new(&config, &secret)?;
        *loaded = Loaded {
            config,
            active,
            ticketer: secret,
        };
        self.cell.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// What was done so far.
    #[must_use]
    pub fn report(&self) -> TlsReport {
        self.cell.counts.report()
    }
}

impl fmt::Debug for TlsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHandle")
            .field("generation", &self.cell.generation)
            .finish_non_exhaustive()
    }
}

impl ConfigCell {
    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        // It is replaced as a whole: a panic elsewhere leaves it as it was.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    fn new(
        config: &TlsConfig,
        ticketer: &Arc<dyn ProducesTickets>,
    ) -> Result<Arc<Self>, TlsConfigError> {
        Ok(Arc::new(Self {
            rustls: config.to_rustls(Arc::clone(ticketer))?,
            config: config.clone(),
        }))
    }
}

impl<V: Service> Service for TlsService<V> {
    type Local = TlsLocal<V>;
    type Session = TlsSession<V>;

    fn local(&self) -> Self::Local {
        let cell = &self.shared.cell;
        TlsLocal {
            inner: self.shared.inner.local(),
            // Read first: a replacement in between is noticed at the next connection.
            generation: cell.generation.load(Ordering::Acquire),
            active: Arc::clone(&cell.loaded().active),
            shared: Arc::clone(&self.shared),
            scratch: Scratch::default(),
        }
    }

    fn open(&self, local: &mut Self::Local, peer: &Peer, now: Now) -> Self::Session {
        TlsSession::new(local.active(), *peer, now)
    }

    fn settles(&self) -> bool {
        self.shared.inner.settles()
    }

    fn settle(&self, local: &mut Self::Local, now: Now) {
        self.shared.inner.settle(&mut local.inner, now);
    }
}

/// What the TLS sessions of one driver thread share.
pub struct TlsLocal<V: Service> {
    pub(crate) inner: V::Local,
    pub(crate) shared: Arc<Shared<V>>,
    active: Arc<Active>,
    generation: u64,
    pub(crate) scratch: Scratch,
}

/// Memory that a session works in during a call. It is taken out and put back, so that nothing of
/// a session that panicked reaches another.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Records as they came.
    pub(crate) records: Vec<u8>,
    /// What was decrypted.
    pub(crate) plain: Vec<u8>,
    /// What is to be encrypted, where it is not in one piece already.
    pub(crate) piece: Vec<u8>,
    /// The wrapped session's output; empty between two calls.
    output: Option<Box<Output>>,
}

impl<V: Service> TlsLocal<V> {
    /// What the sessions of the wrapped service share.
    pub fn inner(&self) -> &V::Local {
        &self.inner
    }

    /// What the sessions of the wrapped service share.
    pub fn inner_mut(&mut self) -> &mut V::Local {
        &mut self.inner
    }

    /// The configuration in force: one atomic load if it is the one known already.
    fn active(&mut self) -> &Arc<Active> {
        let cell = &self.shared.cell;
        let generation = cell.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.active = Arc::clone(&cell.loaded().active);
        }
        &self.active
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.cell.counts
    }
}

impl Scratch {
    /// An empty queue with these limits.
    pub(crate) fn take_output(&mut self, limits: OutputLimits) -> Box<Output> {
        self.output
            .take()
            .filter(|output| output.limits() == limits)
            .unwrap_or_else(|| Box::new(Output::new(limits)))
    }

    /// Keeps `output` for the next call. It is empty.
    pub(crate) fn put_output(&mut self, output: Box<Output>) {
        debug_assert!(
            output.is_empty(),
            "output of one session would reach another"
        );
        self.output = Some(output);
    }
}

impl<V: Service> fmt::Debug for TlsLocal<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsLocal")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}
