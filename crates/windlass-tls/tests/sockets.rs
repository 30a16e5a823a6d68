//! The layer over real sockets, on one loop, with curl, OpenSSL and rustls as clients.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{BOTH, Call, ONLY_12, ONLY_13, Script, certificate, client_config, config, pattern};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use windlass::models::{Limits, ServerReport, SingleLoop, StopHandle};
use windlass::session::{Next, OutputLimits, ProxyPolicy, ProxyProtocol, Service, SessionContext};
use windlass_http::{HttpConfig, HttpService, Request, Responder, Status};
use windlass_tls::{TlsConfig, TlsService};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server in a thread of its own.
struct Running {
    addr: SocketAddr,
    stop: StopHandle,
    thread: thread::JoinHandle<ServerReport>,
}

impl Running {
    fn start<V: Service>(service: V, limits: Limits) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let any = "127.0.0.1:0".parse().unwrap();
            let builder = SingleLoop::builder(Arc::new(service)).listen(any);
            let mut server = builder.limits(limits).build().unwrap();
            tell.send((server.local_addrs()[0], server.stop_handle()))
                .unwrap();
            server.run().unwrap()
        });
        let (addr, stop) = told.recv_timeout(PATIENCE).unwrap();
        Self { addr, stop, thread }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn connect_tls(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from("localhost").unwrap();
        let config = Arc::new(client_config(BOTH));
        StreamOwned::new(ClientConnection::new(config, name).unwrap(), self.connect())
    }

    fn end(self) -> ServerReport {
        self.stop.stop().unwrap();
        self.thread.join().unwrap()
    }
}

/// Answers with the path.
fn http() -> impl Service {
    HttpService::new(
        |request: &Request<'_>, response: Responder<'_>| {
            Ok(response
                .start(Status::OK)
                .body(format!("path {}", request.path())))
        },
        HttpConfig::default(),
    )
}

/// Writes the certificate and key of `name` to files.
fn pem_files(name: &str) -> (PathBuf, PathBuf) {
    let (chain, key) = certificate(&[name]);
    let start = format!("windlass-tls-{}-{name}", std::process::id());
    let chain_file = std::env::temp_dir().join(format!("{start}.crt"));
    let key_file = std::env::temp_dir().join(format!("{start}.key"));
    fs::write(&chain_file, chain).unwrap();
    fs::write(&key_file, key).unwrap();
    (chain_file, key_file)
}

fn curl(args: &[&str]) -> (String, bool) {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20"])
        .args(args)
        .output()
        .expect("curl is installed, tools/test-tools does that");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, output.status.success())
}

#[test]
fn curl_is_answered_in_both_versions_and_told_when_it_forgets_tls() {
    let config = config().plain_http_answer("HTTP/1.0 400 Bad Request\r\n\r\nThis is HTTPS\n");
    let server = Running::start(TlsService::new(http(), config).unwrap(), Limits::default());
    let url = format!("https://{}/hello", server.addr);
    for versions in [
        ["--tlsv1.2", "--tls-max", "1.2"],
        ["--tlsv1.3", "--tls-max", "1.3"],
    ] {
        let args = [
            &versions[..],
            &["-k", &url, &url, "-w", " %{num_connects},%{http_version};"],
        ];
        let (answer, succeeded) = curl(&args.concat());
        assert!(succeeded);
        // The second request went over the same connection.
        assert_eq!(answer, "path /hello 1,1.1;path /hello 0,1.1;");
    }
    let (answer, succeeded) = curl(&[&url.replace("https", "http")]);
    assert!(succeeded);
    assert_eq!(answer, "This is HTTPS\n");
    let report = server.end();
    assert_eq!((report.accepted, report.failed, report.panics), (3, 0, 0));
}

#[test]
fn certificate_is_chosen_by_the_name() {
    let (first, first_key) = pem_files("first.test");
    let (wild, wild_key) = pem_files("*.wild.test");
    let config = TlsConfig::from_pem_files(&first, &first_key).unwrap();
    let config = config.add(&wild, &wild_key).unwrap();
    let server = Running::start(TlsService::new(http(), config).unwrap(), Limits::default());
    let port = server.addr.port();
    for (name, trusted, expected) in [
        ("first.test", &first, true),
        ("any.wild.test", &wild, true),
        ("first.test", &wild, false),
        ("any.wild.test", &first, false),
    ] {
        let resolve = format!("{name}:{port}:127.0.0.1");
        let url = format!("https://{name}:{port}/");
        let trusted = trusted.display().to_string();
        let (answer, succeeded) = curl(&["--cacert", &trusted, "--resolve", &resolve, &url]);
        assert_eq!(succeeded, expected, "{name}");
        assert_eq!(answer == "path /", expected);
    }
    server.end();
    for file in [first, first_key, wild, wild_key] {
        fs::remove_file(file).unwrap();
    }
}

/// Runs s_client with `args`, sends a request, and answers all that it printed.
fn s_client(addr: SocketAddr, args: &[&str]) -> String {
    let mut child = Command::new("timeout")
        .args([
            "20",
            "openssl",
            "s_client",
            "-connect",
            &addr.to_string(),
            "-ign_eof",
        ])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed, tools/test-tools does that");
    let request = b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    child.stdin.take().unwrap().write_all(request).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{args:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn openssl_agrees_on_a_protocol_and_resumes() {
    let service = TlsService::new(http(), config()).unwrap();
    let handle = service.handle();
    let server = Running::start(service, Limits::default());
    for version in ["-tls1_2", "-tls1_3"] {
        let name = format!("windlass-tls-{}{version}.session", std::process::id());
        let ticket = std::env::temp_dir().join(name).display().to_string();
        let before = handle.report();
        let args = [version, "-alpn", "h2,http/1.1", "-sess_out", &ticket];
        let first = s_client(server.addr, &args);
        assert!(first.contains("ALPN protocol: http/1.1"), "{first}");
        assert!(
            first.contains("path /x") && first.contains("New, TLSv1"),
            "{first}"
        );
        let second = s_client(server.addr, &[version, "-sess_in", &ticket]);
        assert!(
            second.contains("path /x") && second.contains("Reused, TLSv1"),
            "{second}"
        );
        let after = handle.report();
        assert_eq!(after.handshakes - before.handshakes, 2);
        assert_eq!(after.resumed - before.resumed, 1);
        fs::remove_file(ticket).unwrap();
    }
    assert_eq!(server.end().failed, 0);
}

#[test]
fn reload_keeps_open_connections_and_a_broken_file_changes_nothing() {
    let (chain, key) = pem_files("reload.test");
    let config = TlsConfig::from_pem_files(&chain, &key).unwrap();
    let service = TlsService::new(Script::echo(), config).unwrap();
    let handle = service.handle();
    let server = Running::start(service, Limits::default());
    let mut old = server.connect_tls();
    let shown = |stream: &mut StreamOwned<ClientConnection, TcpStream>| {
        stream.write_all(b"ping").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    };
    let first = shown(&mut old);
    let good = fs::read(&chain).unwrap();
    fs::write(&chain, "nothing").unwrap();
    assert!(handle.reload().is_err());
    assert_eq!(shown(&mut server.connect_tls()), first);
    fs::write(&chain, &good).unwrap();
    pem_files("reload.test");
    handle.reload().unwrap();
    assert_ne!(shown(&mut server.connect_tls()), first);
    assert_eq!(shown(&mut old), first);
    drop(old);
    server.end();
    fs::remove_file(chain).unwrap();
    fs::remove_file(key).unwrap();
}

#[test]
fn half_handshake_ends_at_the_time_out() {
    let timeout = Duration::from_millis(400);
    let service = TlsService::new(Script::echo(), config().handshake_timeout(timeout)).unwrap();
    let handle = service.handle();
    let server = Running::start(service, Limits::default());
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let start = Instant::now();
        let mut stream = server.connect();
        stream.write_all(sent).unwrap();
        let ended = stream.read(&mut [0; 10]);
        let is_over = match &ended {
            Ok(count) => *count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(is_over, "{ended:?}");
        assert!(start.elapsed() >= timeout);
    }
    assert_eq!(handle.report().handshake_timeouts, 2);
    server.end();
}

#[test]
fn garbage_and_abrupt_ends_disturb_nobody() {
    let service = TlsService::new(Script::echo(), config()).unwrap();
    let server = Running::start(service, Limits::default());
    let mut steady = server.connect_tls();
    for round in 0..20 {
        let mut stream = server.connect();
        stream.write_all(&pattern(300 + round)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut alert = Vec::new();
        stream.read_to_end(&mut alert).unwrap();
        assert_eq!(alert.len(), 7, "{alert:?}");
        // In the middle of a handshake, and of data that is not read back: a reset.
        server.connect().write_all(b"\x16\x03\x01").unwrap();
        let mut gone = server.connect_tls();
        gone.write_all(&pattern(100_000)).unwrap();
        drop(gone);
        steady.write_all(b"ping").unwrap();
        let mut answer = [0; 4];
        steady.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
    }
    drop(steady);
    assert_eq!(server.end().panics, 0);
}

/// PF-30: an early answer is not lost by a reset, though the client reads only when it has sent
/// everything.
#[test]
fn early_answer_survives_unread_input() {
    // The second does not fit into the queue and the buffers of the sockets.
    for (len, count) in [(20_000, 10), (8_000_000, 1)] {
        early_answer_arrives(len, count);
    }
}

fn early_answer_arrives(len: usize, count: usize) {
    let refusing = || {
        Script::new(move || {
            move |cx: &mut SessionContext<'_, ()>, call: Call<'_>| match call {
                Call::Advance(input) if !input.bytes.is_empty() => {
                    cx.output.push(&pattern(len));
                    (input.bytes.len(), Next::Close)
                }
                _ => (0, Next::Read),
            }
        })
    };
    let limits = Limits {
        linger_bytes_max: 100 * 1024 * 1024,
        linger_timeout: PATIENCE,
        ..Limits::default()
    };
    let server = Running::start(TlsService::new(refusing(), config()).unwrap(), limits);
    let body = pattern(16 * 1024 * 1024);
    for _ in 0..count {
        let mut stream = server.connect_tls();
        stream.write_all(&body).unwrap();
        let mut answer = Vec::new();
        // An end without close_notify would be an error here.
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer == pattern(len));
    }
    assert_eq!(server.end().failed, 0);
}

#[test]
fn large_answers_reach_slow_and_fast_readers_whole() {
    let total = 3_000_000;
    let script = Script::new(move || {
        let mut at = 0;
        let all = pattern(total);
        move |cx: &mut SessionContext<'_, ()>, call: Call<'_>| match call {
            Call::Advance(input) if at > 0 || !input.bytes.is_empty() => {
                while at < total && !cx.output.is_full() {
                    let end = total.min(at + 30_000);
                    cx.output.push(&all[at..end]);
                    at = end;
                }
                let next = if at == total {
                    Next::Close
                } else {
                    Next::Flush
                };
                (input.bytes.len(), next)
            }
            _ => (0, Next::Read),
        }
    });
    let limits = Limits {
        output: OutputLimits {
            high_bytes: 40_000,
            low_bytes: 10_000,
        },
        ..Limits::default()
    };
    let server = Running::start(TlsService::new(script, config()).unwrap(), limits);
    for piece in [100, 5000, 1_000_000] {
        let mut stream = server.connect_tls();
        stream.write_all(b"go").unwrap();
        let mut answer = Vec::new();
        let mut buf = vec![0; piece];
        loop {
            match stream.read(&mut buf).unwrap() {
                0 => break,
                count => answer.extend_from_slice(&buf[..count]),
            }
        }
        assert!(answer == pattern(total), "{} bytes", answer.len());
    }
    assert_eq!(server.end().failed, 0);
}

#[test]
fn stop_closes_idle_connections_and_half_handshakes() {
    let service = TlsService::new(Script::echo(), config()).unwrap();
    let server = Running::start(service, Limits::default());
    let mut idle = server.connect_tls();
    idle.write_all(b"x").unwrap();
    idle.read_exact(&mut [0]).unwrap();
    let mut half = server.connect();
    half.write_all(b"\x16\x03").unwrap();
    // The next answer shows that the loop has seen both.
    idle.write_all(b"y").unwrap();
    idle.read_exact(&mut [0]).unwrap();
    server.stop.stop().unwrap();
    // With close_notify, or this would be an error.
    assert_eq!(idle.read(&mut [0; 10]).unwrap(), 0);
    assert!(matches!(half.read(&mut [0; 10]), Ok(0) | Err(_)));
    drop((idle, half));
    let report = server.thread.join().unwrap();
    assert_eq!((report.cut, report.panics), (0, 0));
}

#[test]
fn proxy_protocol_goes_before_tls() {
    let script = Script::echo();
    let peers = Arc::clone(&script.peers);
    let tls = TlsService::new(script, config()).unwrap();
    let server = Running::start(
        ProxyProtocol::new(tls, ProxyPolicy::Required),
        Limits::default(),
    );
    for versions in [ONLY_12, ONLY_13] {
        let mut socket = server.connect();
        socket
            .write_all(b"PROXY TCP4 192.0.2.9 192.0.2.2 99 443\r\n")
            .unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let config = Arc::new(client_config(versions));
        let tls = ClientConnection::new(config, name).unwrap();
        let mut stream = StreamOwned::new(tls, socket);
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    let peers = peers.lock().unwrap();
    assert_eq!(peers.len(), 2);
    assert!(
        peers
            .iter()
            .all(|peer| peer.remote == Some(([192, 0, 2, 9], 99).into()))
    );
    drop(peers);
    server.end();
}
