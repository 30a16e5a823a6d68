//! A driver in memory, a client of rustls, and scripted sessions to put inside the layer.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "what is missing fails the test")]

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    SupportedProtocolVersion,
};
use windlass::Instant;
use windlass::session::{
    Front, Input, Job, JobResult, Next, Notifier, Now, Output, OutputLimits, Peer, Progress,
    Service, Session, SessionContext, Wakeups,
};
use windlass_tls::{TlsConfig, TlsService};

/// A self-signed certificate for `names` and its key, as PEM.
pub fn certificate(names: &[&str]) -> (String, String) {
    let names = names.iter().map(|&name| name.to_owned());
    let made = rcgen::generate_simple_self_signed(names.collect::<Vec<_>>()).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

pub fn config() -> TlsConfig {
    let (chain, key) = certificate(&["localhost"]);
    TlsConfig::from_pem(&chain, &key).unwrap()
}

pub fn wrap<V: Service>(service: V) -> TlsService<V> {
    TlsService::new(service, config()).unwrap()
}

/// A client that takes any certificate.
pub fn client_config(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TakesAny))
        .with_no_client_auth()
}

pub const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
pub const ONLY_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
pub const ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

#[derive(Debug)]
struct TakesAny;

impl ServerCertVerifier for TakesAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = aws_lc_rs::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// One call of a scripted session.
pub enum Call<'a> {
    Advance(Input<'a>),
    Complete(JobResult),
    Expire,
    Stop,
}

type Step = Box<dyn FnMut(&mut SessionContext<'_, ()>, Call<'_>) -> (usize, Next) + Send>;

/// A service whose sessions are closures.
pub struct Script {
    make: Box<dyn Fn() -> Step + Send + Sync>,
    pub deadline: Arc<Mutex<Option<Instant>>>,
    pub peers: Arc<Mutex<Vec<Peer>>>,
}

pub struct ScriptSession {
    step: Step,
    deadline: Arc<Mutex<Option<Instant>>>,
}

impl Script {
    pub fn new<F>(make: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: FnMut(&mut SessionContext<'_, ()>, Call<'_>) -> (usize, Next) + Send + 'static,
    {
        Self {
            make: Box::new(move || Box::new(make())),
            deadline: Arc::default(),
            peers: Arc::default(),
        }
    }

    /// Sends back what it gets; closes when the input has ended.
    pub fn echo() -> Self {
        Self::new(|| {
            |cx: &mut SessionContext<'_, ()>, call: Call<'_>| {
                let Call::Advance(input) = call else {
                    return (0, Next::Close);
                };
                cx.output.push(input.bytes);
                let next = if input.ended { Next::Close } else { Next::Read };
                (input.bytes.len(), next)
            }
        })
    }
}

impl Service for Script {
    type Local = ();
    type Session = ScriptSession;

    fn local(&self) {}

    fn open(&self, (): &mut (), peer: &Peer, _now: Now) -> ScriptSession {
        self.peers.lock().unwrap().push(*peer);
        ScriptSession {
            step: (self.make)(),
            deadline: Arc::clone(&self.deadline),
        }
    }
}

impl Session for ScriptSession {
    type Local = ();

    fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
        let (consumed, next) = (self.step)(cx, Call::Advance(input));
        Progress { consumed, next }
    }

    fn complete(&mut self, cx: &mut SessionContext<'_, ()>, result: JobResult) -> Next {
        (self.step)(cx, Call::Complete(result)).1
    }

    fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock().unwrap()
    }

    fn expire(&mut self, cx: &mut SessionContext<'_, ()>) -> Next {
        (self.step)(cx, Call::Expire).1
    }

    fn stop(&mut self, cx: &mut SessionContext<'_, ()>) -> Next {
        (self.step)(cx, Call::Stop).1
    }
}

/// What the driver does now.
#[derive(Debug)]
pub enum Waits {
    Read,
    Flush,
    Wait,
    Job(Job),
    Close,
    Abort,
}

/// One connection and its driver, which reads only when it was asked to.
pub struct Server<V: Service> {
    pub session: V::Session,
    pub local: V::Local,
    pub output: Output,
    pub now: Now,
    notifier: Option<Notifier>,
    pending: Vec<u8>,
    ended: bool,
    pub waits: Waits,
    /// What the peer took.
    pub sent: Vec<u8>,
    /// The most that was queued at once.
    pub queued_max: u64,
}

pub const LIMITS: OutputLimits = OutputLimits {
    high_bytes: 64 * 1024,
    low_bytes: 16 * 1024,
};

impl<V: Service> Server<V> {
    pub fn open(service: &V) -> Self {
        let now = Now::default();
        let mut local = service.local();
        let peer = Peer::new(Some(([192, 0, 2, 1], 4711).into()));
        let session = service.open(&mut local, &peer, now);
        Self {
            session,
            local,
            output: Output::new(LIMITS),
            now,
            notifier: None,
            pending: Vec::new(),
            ended: false,
            waits: Waits::Read,
            sent: Vec::new(),
            queued_max: 0,
        }
    }

    /// Whether it reads.
    pub fn reads(&self) -> bool {
        matches!(self.waits, Waits::Read | Waits::Wait) && !self.output.is_full()
    }

    pub fn is_over(&self) -> bool {
        matches!(self.waits, Waits::Close | Waits::Abort)
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        assert!(self.reads(), "nobody reads in {:?}", self.waits);
        self.pending.extend_from_slice(bytes);
        self.advance();
    }

    pub fn end(&mut self) {
        self.ended = true;
        if matches!(self.waits, Waits::Read | Waits::Wait) {
            self.advance();
        }
    }

    /// Lets the peer take up to `max` bytes.
    pub fn drain(&mut self, mut max: usize) {
        while max > 0 {
            let Some(Front::Bytes(bytes)) = self.output.front() else {
                assert!(self.output.is_empty(), "a file reached the wire");
                break;
            };
            let count = bytes.len().min(max);
            self.sent.extend_from_slice(&bytes[..count]);
            self.output.advance(count as u64);
            max -= count;
        }
        if matches!(self.waits, Waits::Flush) && self.output.is_low() {
            self.advance();
        }
    }

    pub fn run_job(&mut self) {
        let Waits::Job(job) = std::mem::replace(&mut self.waits, Waits::Read) else {
            panic!("no job, but {:?}", self.waits);
        };
        let result = job.run();
        let next = self.call(|session, cx| session.complete(cx, result));
        self.follow(next);
        if matches!(self.waits, Waits::Read) {
            self.advance();
        }
    }

    /// Calls the session if it was notified; answers whether it was.
    pub fn serve_notification(&mut self) -> bool {
        let notified = self.notifier.as_ref().is_some_and(Notifier::take);
        if notified && matches!(self.waits, Waits::Read | Waits::Wait) {
            self.advance();
        }
        notified
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        let deadline = self.session.deadline();
        if deadline.is_some_and(|deadline| deadline <= self.now.monotonic) {
            let next = self.call(|session, cx| session.expire(cx));
            self.follow(next);
        }
    }

    pub fn stop(&mut self) {
        let next = self.call(|session, cx| session.stop(cx));
        self.follow(next);
    }

    fn advance(&mut self) {
        let bytes = std::mem::take(&mut self.pending);
        let input = Input {
            bytes: &bytes,
            ended: self.ended,
        };
        let progress = self.call(|session, cx| session.advance(cx, input));
        assert!(progress.consumed <= bytes.len());
        self.pending = bytes[progress.consumed..].to_vec();
        self.follow(progress.next);
    }

    fn follow(&mut self, next: Next) {
        if matches!(self.waits, Waits::Job(_))
            && matches!(next, Next::Read | Next::Flush | Next::Wait)
        {
            return;
        }
        self.waits = match next {
            Next::Read => Waits::Read,
            Next::Flush | Next::Finish => Waits::Flush,
            Next::Wait => Waits::Wait,
            Next::Job(job) => Waits::Job(job),
            Next::Close => Waits::Close,
            Next::Abort => Waits::Abort,
            other => panic!("unknown: {other:?}"),
        };
        self.queued_max = self.queued_max.max(self.output.queued_bytes());
    }

    fn call<R>(
        &mut self,
        f: impl FnOnce(&mut V::Session, &mut SessionContext<'_, V::Local>) -> R,
    ) -> R {
        let make = || Notifier::new(|| {});
        let mut cx = SessionContext {
            local: &mut self.local,
            output: &mut self.output,
            now: self.now,
            wakeups: Wakeups::new(&mut self.notifier, &make),
        };
        f(&mut self.session, &mut cx)
    }
}

/// A TLS client without a socket.
pub struct Client {
    pub tls: ClientConnection,
    /// Plaintext that came.
    pub received: Vec<u8>,
    /// The server said that it sends no more.
    pub closed: bool,
    pub error: Option<rustls::Error>,
    /// Records that are not sent yet.
    pub outgoing: Vec<u8>,
}

impl Client {
    pub fn new(config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        Self {
            tls: ClientConnection::new(Arc::clone(config), name).unwrap(),
            received: Vec::new(),
            closed: false,
            error: None,
            outgoing: Vec::new(),
        }
    }

    pub fn with(versions: &[&'static SupportedProtocolVersion]) -> Self {
        Self::new(&Arc::new(client_config(versions)))
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.tls.set_buffer_limit(None);
        self.tls.writer().write_all(bytes).unwrap();
        self.collect();
    }

    pub fn close(&mut self) {
        self.tls.send_close_notify();
        self.collect();
    }

    fn collect(&mut self) {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.outgoing).unwrap();
        }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.error.is_none() {
            self.tls.read_tls(&mut bytes).unwrap();
            match self.tls.process_new_packets() {
                Ok(state) => self.closed |= state.peer_has_closed(),
                Err(error) => self.error = Some(error),
            }
            // Would-block says that there is no more for now.
            let _ = self.tls.reader().read_to_end(&mut self.received);
        }
        self.collect();
    }
}

/// Carries bytes between the two in pieces of `cut` until nothing moves any more. Jobs wait.
pub fn carry<V: Service>(client: &mut Client, server: &mut Server<V>, cut: usize) {
    loop {
        let mut moved = false;
        client.collect();
        if !client.outgoing.is_empty() && server.reads() {
            let count = client.outgoing.len().min(cut);
            let piece = client.outgoing.drain(..count).collect::<Vec<_>>();
            server.feed(&piece);
            moved = true;
        }
        if !server.output.is_empty() {
            server.drain(cut);
            moved = true;
        }
        if !server.sent.is_empty() && !matches!(server.waits, Waits::Abort) {
            client.take(&std::mem::take(&mut server.sent));
            moved = true;
        }
        if !moved {
            return;
        }
    }
}

/// `len` bytes that repeat late.
pub fn pattern(len: usize) -> Vec<u8> {
    // All that there is comes again after so many bytes; copied, as tests make megabytes of them
    // without optimisation.
    let period: Vec<u8> = (0..251 * 256)
        .map(|at| (at % 251) as u8 ^ (at / 251) as u8)
        .collect();
    let mut bytes = period.repeat(len.div_ceil(period.len()));
    bytes.truncate(len);
    bytes
}

/// A file with this content, without a name.
pub fn file_of(content: &[u8]) -> std::fs::File {
    static SERIAL: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("windlass-tls-{}-{serial}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = std::fs::File::options();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all_at(content, 0).unwrap();
    file
}
