//! The PROXY protocol before a service: in memory at every cut, and with HAProxy in front.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use windlass::models::{SingleLoop, StopHandle};
use windlass::session::{
    Input, Next, Notifier, Now, OtherPeers, Output, Peer, Progress, ProxyPolicy, ProxyProtocol,
    ProxySession, Service, Session, SessionContext, Wakeups,
};

/// Answers each line with the client's address and the line.
struct WhoAmI(Peer);

impl Session for WhoAmI {
    type Local = ();

    fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
        let Some(end) = input.bytes.iter().position(|&byte| byte == b'\n') else {
            let next = if input.ended { Next::Close } else { Next::Read };
            return Progress { consumed: 0, next };
        };
        let remote = self.0.remote.map(|remote| remote.to_string());
        let line = String::from_utf8_lossy(&input.bytes[..end]);
        let answer = format!("{} {line}\n", remote.unwrap_or_else(|| "nobody".into()));
        cx.output.push(answer.as_bytes());
        Progress {
            consumed: end + 1,
            next: Next::Close,
        }
    }
}

struct WhoAmIService;

impl Service for WhoAmIService {
    type Local = ();
    type Session = WhoAmI;

    fn local(&self) {}

    fn open(&self, (): &mut (), peer: &Peer, _now: Now) -> WhoAmI {
        WhoAmI(*peer)
    }
}

type Proxied = ProxyProtocol<WhoAmIService>;

const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n";
const HTTP: &[u8] = b"GET / HTTP/1.1\r\n";

/// A connection in memory: gives `pieces` in turn, then the end if `ends`.
struct Memory {
    session: ProxySession<WhoAmIService>,
    local: <Proxied as Service>::Local,
    output: Output,
    now: Now,
    pending: Vec<u8>,
}

impl Memory {
    fn open(service: &Proxied, remote: Option<SocketAddr>) -> Self {
        let mut local = service.local();
        let session = service.open(&mut local, &Peer::new(remote), Now::default());
        Self {
            session,
            local,
            output: Output::default(),
            now: Now::default(),
            pending: Vec::new(),
        }
    }

    fn call<R>(
        &mut self,
        f: impl FnOnce(
            &mut ProxySession<WhoAmIService>,
            &mut SessionContext<'_, <Proxied as Service>::Local>,
        ) -> R,
    ) -> R {
        let make = || Notifier::new(|| {});
        let mut slot = None;
        let mut cx = SessionContext {
            local: &mut self.local,
            output: &mut self.output,
            now: self.now,
            wakeups: Wakeups::new(&mut slot, &make),
        };
        f(&mut self.session, &mut cx)
    }

    fn give(&mut self, piece: &[u8], ended: bool) -> Next {
        self.pending.extend_from_slice(piece);
        let bytes = std::mem::take(&mut self.pending);
        let input = Input {
            bytes: &bytes,
            ended,
        };
        let Progress { consumed, next } = self.call(|session, cx| session.advance(cx, input));
        self.pending = bytes[consumed..].to_vec();
        next
    }

    fn answer(&self) -> String {
        match self.output.front() {
            Some(windlass::session::Front::Bytes(bytes)) => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            _ => String::new(),
        }
    }
}

fn remote() -> Option<SocketAddr> {
    Some(([10, 0, 0, 7], 1234).into())
}

#[test]
fn header_and_what_follows_may_be_cut_anywhere() {
    let all = [LINE, b"hello\n"].concat();
    let service = ProxyProtocol::new(WhoAmIService, ProxyPolicy::Required);
    for cut in 0..all.len() {
        let mut memory = Memory::open(&service, remote());
        assert!(
            matches!(memory.give(&all[..cut], false), Next::Read),
            "{cut}"
        );
        assert!(
            matches!(memory.give(&all[cut..], false), Next::Close),
            "{cut}"
        );
        assert_eq!(memory.answer(), "192.0.2.1:4711 hello\n");
    }
    assert_eq!(service.report().headers, all.len() as u64);
}

#[test]
fn each_kind_of_header_names_the_peer() {
    let v2 = |command: u8, family: u8, block: &[u8]| {
        let len = u8::try_from(block.len()).unwrap();
        let start = [b"\r\n\r\n\0\r\nQUIT\n", &[command, family, 0, len][..]].concat();
        [&start, block].concat()
    };
    let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 1, 187];
    let service = ProxyProtocol::new(WhoAmIService, ProxyPolicy::Required);
    for (header, expected) in [
        (v2(0x21, 0x11, &v4), "192.0.2.1:80 x\n"),
        (v2(0x20, 0x00, &[]), "10.0.0.7:1234 x\n"),
        (v2(0x21, 0x00, &[]), "10.0.0.7:1234 x\n"),
        (v2(0x21, 0x31, &[b'/'; 216]), "nobody x\n"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "10.0.0.7:1234 x\n"),
        (
            b"PROXY TCP6 2001:db8::1 ::1 80 443\r\n".to_vec(),
            "[2001:db8::1]:80 x\n",
        ),
    ] {
        let mut memory = Memory::open(&service, remote());
        assert!(matches!(
            memory.give(&[&header[..], b"x\n"].concat(), false),
            Next::Close
        ));
        assert_eq!(memory.answer(), expected);
    }
}

#[test]
fn connection_without_a_header_is_aborted() {
    let service = ProxyProtocol::new(WhoAmIService, ProxyPolicy::Required);
    for (bytes, ended) in [
        (HTTP, false),
        (b"\r\n\r\n\0\r\nQUIT\n\x41", false),
        (b"PROXY TCP4 nonsense\r\n", false),
        (&LINE[..20], true),
        (b"", true),
    ] {
        let mut memory = Memory::open(&service, remote());
        assert!(
            matches!(memory.give(bytes, ended), Next::Abort),
            "{bytes:?}"
        );
        assert!(memory.output.is_empty());
    }
    assert_eq!(service.report().malformed, 5);
}

#[test]
fn header_must_come_in_time() {
    let service = ProxyProtocol::new(WhoAmIService, ProxyPolicy::Required);
    let mut memory = Memory::open(&service, remote());
    assert!(matches!(memory.give(&LINE[..10], false), Next::Read));
    let expected = memory.now.monotonic + Duration::from_secs(5);
    assert_eq!(memory.session.deadline(), Some(expected));
    memory.now.monotonic = expected;
    assert!(matches!(
        memory.call(|session, cx| session.expire(cx)),
        Next::Abort
    ));
    assert_eq!(service.report().timeouts, 1);
    // After the header the wrapped session's own deadline counts: it has none.
    let mut memory = Memory::open(&service, remote());
    assert!(matches!(memory.give(LINE, false), Next::Read));
    assert_eq!(memory.session.deadline(), None);
}

#[test]
fn stop_lets_a_fresh_connection_send_its_header_and_ends_an_old_one() {
    let service = ProxyProtocol::new(WhoAmIService, ProxyPolicy::Required);
    let stop = |memory: &mut Memory| memory.call(|session, cx| session.stop(cx));
    let mut fresh = Memory::open(&service, remote());
    assert!(matches!(stop(&mut fresh), Next::Read));
    // The session behind closes when it is told.
    assert!(matches!(fresh.give(LINE, false), Next::Close));
    let mut silent = Memory::open(&service, remote());
    assert!(matches!(stop(&mut silent), Next::Read));
    silent.now.monotonic = silent.session.deadline().unwrap();
    assert_eq!(silent.now.monotonic, Now::default().monotonic + GRACE);
    let expired = silent.call(|session, cx| session.expire(cx));
    assert!(matches!(expired, Next::Close));
    let mut old = Memory::open(&service, remote());
    old.now.monotonic = old.now.monotonic + GRACE;
    assert!(matches!(stop(&mut old), Next::Close));
    assert_eq!(service.report().timeouts, 0);
}

/// How long a connection is fresh.
const GRACE: Duration = Duration::from_secs(1);

#[test]
fn successors_count_together_under_another_policy() {
    let first = ProxyProtocol::new(WhoAmIService, ProxyPolicy::Required);
    assert!(matches!(
        Memory::open(&first, remote()).give(LINE, false),
        Next::Read
    ));
    let networks = vec!["192.0.2.0/24".parse().unwrap()];
    let others = OtherPeers::Refused;
    let policy = ProxyPolicy::RequiredFrom { networks, others };
    let second = first.successor(WhoAmIService, policy);
    let mut refused = Memory::open(&second, remote());
    assert!(matches!(refused.give(LINE, false), Next::Abort));
    for service in [&first, &second] {
        let report = service.report();
        assert_eq!((report.headers, report.refused), (1, 1));
    }
}

#[test]
fn only_trusted_networks_tell_addresses() {
    let policy = |others| ProxyPolicy::RequiredFrom {
        networks: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
        others,
    };
    let direct = ProxyProtocol::new(WhoAmIService, policy(OtherPeers::Direct));
    let refusing = ProxyProtocol::new(WhoAmIService, policy(OtherPeers::Refused));
    let with_header = [LINE, b"x\n"].concat();
    for trusted in ["10.255.0.1:1", "[fd00::1]:1", "[::ffff:10.1.2.3]:1"] {
        let trusted = Some(trusted.parse().unwrap());
        for service in [&direct, &refusing] {
            let mut memory = Memory::open(service, trusted);
            assert!(matches!(memory.give(&with_header, false), Next::Close));
            assert_eq!(memory.answer(), "192.0.2.1:4711 x\n");
            let mut memory = Memory::open(service, trusted);
            assert!(matches!(memory.give(HTTP, false), Next::Abort));
        }
    }
    for other in ["11.0.0.1:1", "[fe80::1]:1", "[::ffff:11.0.0.1]:1"] {
        let remote = Some(other.parse().unwrap());
        let mut memory = Memory::open(&direct, remote);
        assert!(matches!(memory.give(&with_header, false), Next::Close));
        let claimed = String::from_utf8_lossy(LINE)
            .trim_end_matches('\n')
            .to_owned();
        assert_eq!(memory.answer(), format!("{other} {claimed}\n"));
        let mut memory = Memory::open(&refusing, remote);
        assert_eq!(memory.session.deadline(), Some(memory.now.monotonic));
        assert!(matches!(memory.give(&with_header, false), Next::Abort));
    }
    assert_eq!(refusing.report().refused, 3);
    // A Unix socket's peer has no address, and was let in by the socket's permissions.
    let mut memory = Memory::open(&refusing, None);
    assert!(matches!(memory.give(&with_header, false), Next::Close));
}

/// Serves in a thread of its own; the value's `stop` ends it.
fn serve(service: Arc<Proxied>) -> (SocketAddr, StopHandle, thread::JoinHandle<()>) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut server = SingleLoop::builder(service).listen(any).build().unwrap();
        tell.send((server.local_addrs()[0], server.stop_handle()))
            .unwrap();
        server.run().unwrap();
    });
    let (addr, stop) = told.recv_timeout(Duration::from_secs(20)).unwrap();
    (addr, stop, thread)
}

/// HAProxy in front of `server`, in TCP mode; killed when dropped.
struct HaProxy {
    child: Child,
    addr: SocketAddr,
    config: std::path::PathBuf,
}

impl HaProxy {
    fn start(server: SocketAddr, option: &str) -> Self {
        // The port is free again when the listener is dropped, and HAProxy is quick to take it.
        let addr = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let name = format!(
            "windlass-haproxy-{}-{}.cfg",
            std::process::id(),
            addr.port()
        );
        let config = std::env::temp_dir().join(name);
        let text = format!(
            "defaults\n mode tcp\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n\
             listen front\n bind {addr}\n server back {server} {option}\n"
        );
        std::fs::write(&config, text).unwrap();
        let child = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy is installed, tools/test-tools does that");
        Self {
            child,
            addr,
            config,
        }
    }

    /// Connects as soon as HAProxy listens.
    fn connect(&mut self) -> TcpStream {
        let start = std::time::Instant::now();
        loop {
            if let Ok(stream) = TcpStream::connect(self.addr) {
                return stream;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "haproxy ended");
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "haproxy does not listen"
            );
            thread::yield_now();
        }
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.config);
    }
}

#[test]
fn clients_address_comes_through_haproxy_in_both_versions() {
    let service = Arc::new(ProxyProtocol::new(WhoAmIService, ProxyPolicy::Required));
    let (addr, stop, thread) = serve(Arc::clone(&service));
    for option in [
        "send-proxy",
        "send-proxy-v2",
        "send-proxy-v2 proxy-v2-options crc32c,unique-id",
    ] {
        let mut haproxy = HaProxy::start(addr, option);
        let mut stream = haproxy.connect();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(b"hello\n").unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        let expected = format!("{} hello\n", stream.local_addr().unwrap());
        assert_eq!(answer, expected, "{option}");
    }
    assert_eq!(
        (service.report().headers, service.report().malformed),
        (3, 0)
    );
    // Without the option there is no header, and no answer.
    let mut haproxy = HaProxy::start(addr, "");
    let mut stream = haproxy.connect();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(b"hello\n").unwrap();
    let mut answer = Vec::new();
    // A reset, or an end: HAProxy may pass on either.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    assert_eq!(service.report().malformed, 1);
    stop.stop().unwrap();
    thread.join().unwrap();
}
