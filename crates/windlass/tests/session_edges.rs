//! Connections that are watched for edges: nothing that has arrived is left lying.

#![allow(unsafe_code, reason = "std can't send urgent data")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use windlass::models::SingleLoop;
use windlass::session::{Input, Next, Now, Peer, Progress, Service, Session, SessionContext};

struct Echo;

struct EchoSession;

impl Service for Echo {
    type Local = ();
    type Session = EchoSession;

    fn local(&self) {}

    fn open(&self, _local: &mut (), _peer: &Peer, _now: Now) -> EchoSession {
        EchoSession
    }
}

impl Session for EchoSession {
    type Local = ();

    fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
        cx.output.push(input.bytes);
        let consumed = input.bytes.len();
        let next = if input.ended { Next::Close } else { Next::Read };
        Progress { consumed, next }
    }
}

const STUCK: Option<Duration> = Some(Duration::from_secs(60));

/// Serves until the process ends.
fn serve(listener: impl Into<std::os::fd::OwnedFd> + Send + 'static) {
    thread::spawn(move || {
        let builder = SingleLoop::builder(Arc::new(Echo)).listener(listener);
        builder.build().expect("build").run().expect("run");
    });
}

fn read_exactly(stream: &mut impl Read, count: usize) -> Vec<u8> {
    let mut got = vec![0; count];
    stream.read_exact(&mut got).expect("all of it comes");
    got
}

#[test]
fn what_follows_urgent_data_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    client.set_nodelay(true).expect("set");
    client.set_read_timeout(STUCK).expect("set");
    client.write_all(b"AAA").expect("send");
    // SAFETY: the descriptor is open and the byte lives through the call.
    let sent = unsafe { libc::send(client.as_raw_fd(), b"x".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
    client.write_all(b"BBB").expect("send");
    // All is there before the server looks.
    serve(listener);
    assert_eq!(read_exactly(&mut client, 6), b"AAABBB");
}

#[test]
fn data_and_the_close_behind_it_in_one_report_are_both_seen() {
    for len in [1, 65_535, 65_536, 65_537, 200_000] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let addr = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(addr).expect("connect");
        client.set_read_timeout(STUCK).expect("set");
        let data = vec![b'd'; len];
        let mut writer = client.try_clone().expect("dup");
        let sender = thread::spawn(move || {
            writer.write_all(&data).expect("send");
            writer.shutdown(std::net::Shutdown::Write).expect("shut");
        });
        serve(listener);
        let mut got = Vec::new();
        client.read_to_end(&mut got).expect("the server closes");
        assert_eq!(got.len(), len);
        sender.join().expect("no panic");
    }
}

#[test]
fn a_unix_socket_is_read_to_its_end() {
    let dir = std::env::temp_dir().join(format!("windlass-edges-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("make");
    let path = dir.join("socket");
    let listener = UnixListener::bind(&path).expect("bind");
    let mut client = std::os::unix::net::UnixStream::connect(&path).expect("connect");
    client.set_read_timeout(STUCK).expect("set");
    for piece in [&b"one"[..], b"two", b"three"] {
        client.write_all(piece).expect("send");
    }
    serve(listener);
    assert_eq!(read_exactly(&mut client, 11), b"onetwothree");
    std::fs::remove_dir_all(&dir).expect("remove");
}
