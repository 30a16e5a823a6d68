//! The client over TLS: verification, names, ALPN, truncation, time-outs.

#![cfg(feature = "client-tls")]

mod client_support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use client_support::{OK, Server, State, get, run};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use windlass_http::client::{
    ClientConfig, ClientError, ClientErrorKind, ClientRequest, Pulled, RedirectFault,
};

// Of an authority whose key was thrown away, for `localhost` and 127.0.0.1; valid for a century.
const AUTHORITY: &[u8] = include_bytes!("data/tls/ca.der");
const CERTIFICATE: &[u8] = include_bytes!("data/tls/leaf.der");
const KEY: &[u8] = include_bytes!("data/tls/leaf-key.der");

type Tls = StreamOwned<ServerConnection, TcpStream>;

/// Accepts `count` connections one after the other.
fn serve(count: usize, mut script: impl FnMut(usize, Tls) + Send + 'static) -> Server {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(KEY));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key)
        .expect("they belong together");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let config = Arc::new(config);
    Server::start(count, move |number, connection| {
        let tls = ServerConnection::new(Arc::clone(&config)).expect("valid");
        script(number, StreamOwned::new(tls, connection.stream));
    })
}

fn config() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(AUTHORITY))
        .expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut config = ClientConfig::default();
    config.tls = Some(Arc::new(tls));
    config.idle_connections_max = 0;
    config
}

fn url(server: &Server) -> String {
    format!("https://localhost:{}/", server.addr.port())
}

fn read_head(stream: &mut Tls) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            break;
        }
        head.push(byte[0]);
    }
    Ok(String::from_utf8(head).expect("text"))
}

fn finish(mut stream: Tls) {
    stream.conn.send_close_notify();
    stream.flush().expect("the client is there");
}

fn is_tls(result: Result<impl std::fmt::Debug, ClientError>) -> bool {
    matches!(
        result.expect_err("no response").kind(),
        ClientErrorKind::Tls(_)
    )
}

#[test]
fn a_response_comes_over_tls_with_name_and_protocol_told() {
    for by_name in [true, false] {
        let server = serve(1, move |_, mut stream| {
            read_head(&mut stream).expect("a request");
            let tls = &stream.conn;
            assert_eq!(tls.server_name(), by_name.then_some("localhost"));
            assert_eq!(tls.alpn_protocol(), Some(&b"http/1.1"[..]));
            stream.write_all(OK.as_bytes()).expect("send");
            finish(stream);
        });
        let url = if by_name {
            url(&server)
        } else {
            format!("https://{}/", server.addr)
        };
        let response = get(config(), &url).expect("a response");
        assert_eq!(&response.body[..], b"ok");
        server.join();
    }
}

#[test]
fn a_kept_tls_connection_carries_the_next_request() {
    let server = serve(1, |_, mut stream| {
        for _ in 0..3 {
            read_head(&mut stream).expect("a request");
            stream.write_all(OK.as_bytes()).expect("send");
        }
        assert_eq!(read_head(&mut stream).expect("closed in order"), "");
    });
    let mut config = config();
    config.connections_per_origin = 1;
    config.idle_connections_max = 1;
    let state = run(config, |client, event_loop| {
        for _ in 0..3 {
            client_support::ask(client, event_loop, &url(&server));
        }
        let own = client.clone();
        event_loop.on_prepare(move |state: &mut State, cx| {
            if state.results.len() == 3 {
                own.close_idle(cx);
            }
            windlass::Disposition::Keep
        });
    });
    assert!(
        state.results.iter().all(Result::is_ok),
        "{:?}",
        state.results
    );
    server.join();
}

#[test]
fn certificates_that_are_not_trusted_or_for_another_name_are_refused() {
    let server = serve(1, |_, mut stream| {
        read_head(&mut stream).expect_err("refused");
    });
    // The roots of the web do not know the authority.
    assert!(is_tls(get(ClientConfig::default(), &url(&server))));
    server.join();
    let server = serve(1, |_, mut stream| {
        read_head(&mut stream).expect_err("refused");
    });
    let other = format!("https://[::ffff:127.0.0.1]:{}/", server.addr.port());
    assert!(is_tls(get(config(), &other)));
    server.join();
}

#[test]
fn an_end_that_was_not_announced_is_an_error() {
    for announced in [true, false] {
        let server = serve(1, move |_, mut stream| {
            read_head(&mut stream).expect("a request");
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf or all")
                .expect("send");
            if announced {
                finish(stream);
            }
        });
        let result = get(config(), &url(&server));
        match (announced, result) {
            (true, result) => assert_eq!(&result.expect("complete").body[..], b"half or all"),
            (false, result) => assert!(is_tls(result)),
        }
        server.join();
    }
}

#[test]
fn a_server_that_speaks_no_tls_is_an_error() {
    let server = Server::start(1, |_, mut connection| {
        connection.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        connection.wait_for_end();
    });
    assert!(is_tls(get(config(), &url(&server))));
    server.join();
    let server = Server::start(1, |_, connection| drop(connection));
    let error = get(config(), &url(&server)).expect_err("closed");
    let kind = error.kind();
    assert!(
        matches!(kind, ClientErrorKind::Tls(_) | ClientErrorKind::Socket(_)),
        "{error:?}"
    );
    server.join();
}

#[test]
fn a_handshake_that_hangs_runs_into_the_connect_timeout() {
    let server = Server::start(1, |_, mut connection| connection.wait_for_end());
    let mut config = config();
    config.timeouts.connect = Some(Duration::from_millis(40));
    let error = get(config, &url(&server)).expect_err("silence");
    assert!(
        matches!(error.kind(), ClientErrorKind::ConnectTimeout),
        "{error:?}"
    );
    server.join();
}

#[test]
fn long_bodies_pass_both_ways() {
    const COUNT: usize = 3_000_000;
    let server = serve(1, |_, mut stream| {
        read_head(&mut stream).expect("a request");
        let mut body = vec![0; COUNT];
        stream.read_exact(&mut body).expect("the body");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {COUNT}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("send");
        stream.write_all(&body).expect("send");
        finish(stream);
    });
    let mut made = 0_usize;
    let source = move |piece: &mut Vec<u8>| {
        let count = (COUNT - made).min(10_000);
        piece.extend((made..made + count).map(|at| (at % 251) as u8));
        made += count;
        Ok(if made == COUNT {
            Pulled::End
        } else {
            Pulled::More
        })
    };
    let request = ClientRequest::post(&url(&server)).expect("valid");
    let request = request.body_stream(source, Some(COUNT as u64));
    let state = run(config(), |client, event_loop| {
        client
            .send(event_loop, request, |state: &mut State, _, result| {
                state.results.push(result)
            })
            .expect("sent");
    });
    let body = &state.results[0].as_ref().expect("a response").body;
    assert_eq!(body.len(), COUNT);
    assert!(
        body.iter()
            .enumerate()
            .all(|(at, byte)| *byte == (at % 251) as u8)
    );
    server.join();
}

#[test]
fn a_redirect_to_plain_http_is_refused() {
    let server = serve(1, |_, mut stream| {
        read_head(&mut stream).expect("a request");
        let answer =
            "HTTP/1.1 302 Found\r\nLocation: http://localhost/\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).expect("send");
    });
    let error = get(config(), &url(&server)).expect_err("refused");
    assert!(matches!(
        error.kind(),
        ClientErrorKind::Redirect(RedirectFault::Downgrade)
    ));
    server.join();
}
