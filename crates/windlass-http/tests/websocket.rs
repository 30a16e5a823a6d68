//! WebSocket without I/O: the handshake, frames in any cut, limits, closing, time-outs. Named by
//! sections of RFC 6455.

#![cfg(feature = "websocket")]

mod common;

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::Connection;
use windlass_http::websocket::{
    self, CloseCode, Closed, Message, Origins, SocketContext, SocketHandler, SocketSender,
    WebSocketConfig,
};
use windlass_http::{Handler, HttpConfig, HttpService, Request, Responder, TrySendError};

const HEADERS: &str = "Host: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn request(more: &str) -> String {
    format!("GET /chat HTTP/1.1\r\n{HEADERS}{KEY}{VERSION}{more}\r\n")
}

/// What a handler was called with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Open(Option<String>),
    Message(Message),
    Ready,
    Closed(Closed),
}

/// Echoes, and obeys some words.
struct Echo {
    seen: Sender<Seen>,
    senders: Sender<SocketSender>,
}

impl SocketHandler for Echo {
    fn on_open(&mut self, socket: &mut SocketContext<'_>) {
        self.see(Seen::Open(socket.protocol().map(str::to_owned)));
        self.senders.send(socket.sender()).unwrap_or_default();
    }

    fn on_message(&mut self, socket: &mut SocketContext<'_>, message: Message) {
        self.see(Seen::Message(message.clone()));
        match &message {
            Message::Text(text) if **text == *"close" => {
                socket.close(CloseCode::NORMAL, "as you wish");
                assert!(!socket.is_open());
                socket.send("not sent");
            }
            Message::Text(text) if **text == *"much" => {
                while !socket.is_full() {
                    socket.send(vec![0; 10_000]);
                }
            }
            _ => socket.send(message),
        }
    }

    fn on_ready(&mut self, _: &mut SocketContext<'_>) {
        self.see(Seen::Ready);
    }

    fn on_close(&mut self, why: &Closed) {
        self.see(Seen::Closed(why.clone()));
    }
}

impl Echo {
    fn see(&self, seen: Seen) {
        // A test that is over does not look any more.
        self.seen.send(seen).unwrap_or_default();
    }
}

struct Watched {
    seen: Receiver<Seen>,
    senders: Receiver<SocketSender>,
}

fn service(config: WebSocketConfig) -> (HttpService<impl Handler>, Watched) {
    let (seen, seen_out) = mpsc::channel();
    let (senders, senders_out) = mpsc::channel();
    let out = Mutex::new((seen, senders));
    let handler = move |request: &Request<'_>, response: Responder<'_>| {
        let (seen, senders) = out.lock().expect("no panic").clone();
        websocket::accept(request, response, &config, Echo { seen, senders })
    };
    let watched = Watched {
        seen: seen_out,
        senders: senders_out,
    };
    (HttpService::new(handler, HttpConfig::default()), watched)
}

impl Watched {
    fn all(&self) -> Vec<Seen> {
        self.seen.try_iter().collect()
    }

    fn closed(&self) -> Option<Closed> {
        self.seen.try_iter().find_map(|seen| match seen {
            Seen::Closed(why) => Some(why),
            _ => None,
        })
    }
}

/// A client's frame: `first` has the end mark and the kind, the payload is masked.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..=125 => frame.push(0x80 | len as u8),
        len @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(b, m)| b ^ m));
    frame
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
const FIN: u8 = 0x80;

/// Opens a socket; the answer is taken from what was sent.
fn open<H: Handler>(service: &HttpService<H>) -> Connection<HttpService<H>> {
    let mut connection = Connection::open(service);
    connection.feed(request("").as_bytes());
    assert_eq!(connection.text(), SWITCHED);
    connection.sent.clear();
    connection
}

#[test]
fn handshake_4_2_2_is_answered_as_in_the_example() {
    let (service, watched) = service(WebSocketConfig::default());
    let _connection = open(&service);
    assert_eq!(watched.all(), [Seen::Open(None)]);
}

#[test]
fn handshake_4_2_1_that_is_broken_is_refused() {
    let (service, watched) = service(WebSocketConfig::default());
    let short_key = "Sec-WebSocket-Key: c2hvcnQ=\r\n";
    let other = "Host: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n";
    let old = "Sec-WebSocket-Version: 8\r\n";
    for (status, request) in [
        (426, "GET / HTTP/1.1\r\nHost: h\r\n".to_owned()),
        (426, format!("GET / HTTP/1.0\r\n{HEADERS}{KEY}{VERSION}")),
        (426, format!("GET / HTTP/1.1\r\n{other}{KEY}{VERSION}")),
        (
            426,
            format!("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n{KEY}{VERSION}"),
        ),
        (426, format!("HEAD / HTTP/1.1\r\n{HEADERS}{KEY}{VERSION}")),
        (
            426,
            format!("GET / HTTP/1.1\r\n{HEADERS}{KEY}{VERSION}Content-Length: 1\r\n"),
        ),
        (426, format!("GET / HTTP/1.1\r\n{HEADERS}{KEY}")),
        (426, format!("GET / HTTP/1.1\r\n{HEADERS}{KEY}{old}")),
        (
            426,
            format!("GET / HTTP/1.1\r\n{HEADERS}{KEY}{VERSION}{old}"),
        ),
        (400, format!("GET / HTTP/1.1\r\n{HEADERS}{VERSION}")),
        (
            400,
            format!("GET / HTTP/1.1\r\n{HEADERS}{VERSION}{short_key}"),
        ),
        (
            400,
            format!("GET / HTTP/1.1\r\n{HEADERS}{VERSION}{KEY}{KEY}"),
        ),
    ] {
        let mut connection = Connection::open(&service);
        connection.feed(request.as_bytes()).feed(b"\r\n");
        let text = connection.text();
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}{text}"
        );
        let says_how = text.contains("\r\nSec-WebSocket-Version: 13\r\n")
            && text.contains("\r\nUpgrade: websocket\r\n");
        assert_eq!(says_how, status == 426, "{text}");
    }
    assert_eq!(watched.all(), [], "no handler heard of it");
}

#[test]
fn post_is_never_a_handshake() {
    let mut connection = common::open(|request, response| {
        let (seen, senders) = (mpsc::channel().0, mpsc::channel().0);
        let config = WebSocketConfig::default();
        websocket::accept(request, response, &config, Echo { seen, senders })
    });
    connection.feed(request("").replace("GET", "POST").as_bytes());
    assert_eq!(connection.statuses(), [426]);
}

#[test]
fn handshake_10_2_pages_of_other_sites_are_refused() {
    let listed = Origins::Listed(vec!["https://good.example".into()]);
    for (origins, origin, accepted) in [
        (Origins::SameHost, "", true),
        (Origins::SameHost, "Origin: http://h\r\n", true),
        (Origins::SameHost, "Origin: https://H\r\n", true),
        (Origins::SameHost, "Origin: http://h:81\r\n", false),
        (Origins::SameHost, "Origin: http://h.evil\r\n", false),
        (Origins::SameHost, "Origin: null\r\n", false),
        (
            Origins::SameHost,
            "Origin: http://h\r\nOrigin: http://h\r\n",
            false,
        ),
        (listed.clone(), "Origin: https://GOOD.example\r\n", true),
        (listed.clone(), "Origin: http://good.example\r\n", false),
        (listed, "Origin: http://h\r\n", false),
        (Origins::Any, "Origin: null\r\n", true),
    ] {
        let mut config = WebSocketConfig::default();
        config.origins = origins.clone();
        let (service, _watched) = service(config);
        let mut connection = Connection::open(&service);
        connection.feed(request(origin).as_bytes());
        let expected = if accepted { "101" } else { "403" };
        assert_eq!(&connection.text()[9..12], expected, "{origins:?} {origin}");
    }
}

#[test]
fn subprotocol_is_the_first_of_the_clients_that_is_spoken() {
    for (offered, chosen) in [
        ("", None),
        ("Sec-WebSocket-Protocol: x, two ,one\r\n", Some("two")),
        (
            "Sec-WebSocket-Protocol: x\r\nSec-WebSocket-Protocol: one\r\n",
            Some("one"),
        ),
        ("Sec-WebSocket-Protocol: ONE\r\n", None),
    ] {
        let mut config = WebSocketConfig::default();
        config.protocols = vec!["one".into(), "two".into()];
        let (service, watched) = service(config);
        let mut connection = Connection::open(&service);
        connection.feed(request(offered).as_bytes());
        let text = connection.text();
        let told = text
            .lines()
            .find_map(|line| line.strip_prefix("Sec-WebSocket-Protocol: "));
        assert_eq!(told, chosen, "{offered}");
        assert_eq!(watched.all(), [Seen::Open(chosen.map(str::to_owned))]);
    }
}

/// Frames of all kinds, and what must be sent for them.
fn conversation() -> (Vec<u8>, Vec<u8>, Vec<Seen>) {
    let long = "ä".repeat(100);
    let longer = vec![7; 70_000];
    let input = [
        frame(FIN | TEXT, b"hello"),
        // 5.4: fragments, cut within a character, with control frames between them.
        frame(TEXT, b"\xe2\x82"),
        frame(PING, b"still there?"),
        frame(CONTINUATION, b""),
        frame(PONG, b"unasked for"),
        frame(FIN | CONTINUATION, b"\xac"),
        frame(FIN | TEXT, long.as_bytes()),
        frame(FIN | BINARY, &longer),
        frame(FIN | BINARY, b""),
        frame(CLOSE, b"\x03\xe8bye"),
    ];
    let output = [
        &b"\x81\x05hello\x8a\x0cstill there?\x81\x03\xe2\x82\xac\x81\x7e\x00\xc8"[..],
        long.as_bytes(),
        b"\x82\x7f\0\0\0\0\0\x01\x11\x70",
        &longer,
        b"\x82\x00\x88\x05\x03\xe8bye",
    ];
    let seen = vec![
        Seen::Open(None),
        Seen::Message("hello".into()),
        Seen::Message("€".into()),
        Seen::Message(long.as_str().into()),
        Seen::Message(longer.clone().into()),
        Seen::Ready,
        Seen::Message(Vec::new().into()),
        Seen::Closed(Closed::ByPeer {
            code: CloseCode::new(1000),
            reason: "bye".into(),
        }),
    ];
    (input.concat(), output.concat(), seen)
}

#[test]
fn frames_5_mean_the_same_in_any_cut() {
    let (input, output, seen) = conversation();
    let whole = [request("").as_bytes(), &input].concat();
    let expected = [SWITCHED.as_bytes(), &output].concat();
    let check = |pieces: &mut dyn Iterator<Item = &[u8]>, cut: usize| {
        let (service, watched) = service(WebSocketConfig::default());
        let mut connection = Connection::open(&service);
        for piece in pieces {
            connection.feed(piece);
        }
        assert!(connection.sent == expected, "cut at {cut}");
        assert!(connection.closed, "the server closes first (7.1.1)");
        assert_eq!(watched.all(), seen, "cut at {cut}");
    };
    for step in [1, 2, 3, 4096, whole.len()] {
        check(&mut whole.chunks(step), step);
    }
    // The long payload is the same everywhere.
    for at in (0..700).chain(whole.len() - 50..whole.len()) {
        let (first, second) = whole.split_at(at);
        check(&mut [first, second].into_iter(), at);
    }
}

#[test]
fn frames_that_break_the_rules_fail_the_connection() {
    let unmasked = b"\x81\x05hello".to_vec();
    for (section, code, input) in [
        ("5.1: not masked", 1002, unmasked),
        ("5.2: RSV1", 1002, frame(FIN | 0x40 | TEXT, b"x")),
        ("5.2: RSV2", 1002, frame(FIN | 0x20 | TEXT, b"x")),
        ("5.2: RSV3", 1002, frame(FIN | 0x10 | TEXT, b"x")),
        ("5.2: reserved data", 1002, frame(FIN | 3, b"x")),
        ("5.2: reserved control", 1002, frame(FIN | 11, b"x")),
        (
            "5.4: nothing to continue",
            1002,
            frame(FIN | CONTINUATION, b"x"),
        ),
        (
            "5.4: not continued",
            1002,
            [frame(TEXT, b"x"), frame(FIN | TEXT, b"y")].concat(),
        ),
        ("5.5: fragmented control", 1002, frame(0x09, b"x")),
        ("5.5: long control", 1002, frame(PING, &[b'x'; 126])),
        ("5.5.1: close of one byte", 1002, frame(CLOSE, b"\x03")),
        (
            "5.5.1: close that is not UTF-8",
            1007,
            frame(CLOSE, b"\x03\xe8\xff"),
        ),
        ("7.4.1: close of 1005", 1002, frame(CLOSE, b"\x03\xed")),
        ("7.4.2: close of 999", 1002, frame(CLOSE, b"\x03\xe7")),
        ("8.1: not UTF-8", 1007, frame(FIN | TEXT, b"\xff")),
        ("8.1: cut character", 1007, frame(FIN | TEXT, b"\xe2\x82")),
        ("8.1: surrogate", 1007, frame(FIN | TEXT, b"\xed\xa0\x80")),
        ("8.1: early in fragments", 1007, frame(TEXT, b"\xc0\x80")),
    ] {
        for step in [1, 1000] {
            let (service, watched) = service(WebSocketConfig::default());
            let mut connection = open(&service);
            for piece in input.chunks(step) {
                connection.feed(piece);
            }
            assert!(connection.closed, "{section}");
            let sent = &connection.sent;
            assert_eq!(sent[0], CLOSE, "{section}: {sent:?}");
            assert_eq!(u16::from_be_bytes([sent[2], sent[3]]), code, "{section}");
            let messages = watched.all();
            assert_eq!(messages.len(), 2, "{section}: {messages:?}");
            // A close frame with a bad code is a close, all the same.
            assert!(matches!(messages[1], Seen::Closed(_)), "{section}");
        }
    }
}

#[test]
fn limits_10_4_of_frames_and_messages_are_kept() {
    let mut config = WebSocketConfig::default();
    config.frame_bytes = 100;
    config.message_bytes = 150;
    let announced = [
        FIN | BINARY,
        0x80 | 127,
        0x7f,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        1,
        2,
        3,
        4,
    ];
    for (input, is_taken) in [
        (frame(FIN | BINARY, &[0; 100]), true),
        (frame(FIN | BINARY, &[0; 101]), false),
        (announced.to_vec(), false),
        (
            [
                frame(BINARY, &[0; 100]),
                frame(FIN | CONTINUATION, &[0; 50]),
            ]
            .concat(),
            true,
        ),
        (
            [
                frame(BINARY, &[0; 100]),
                frame(FIN | CONTINUATION, &[0; 51]),
            ]
            .concat(),
            false,
        ),
        (
            [frame(TEXT, &[b'x'; 100]), frame(CONTINUATION, &[b'x'; 51])].concat(),
            false,
        ),
    ] {
        let (service, watched) = service(config.clone());
        let mut connection = open(&service);
        connection.feed(&input);
        assert_eq!(connection.closed, !is_taken);
        let failed = (!is_taken).then_some(Closed::Failed(CloseCode::TOO_LARGE));
        assert_eq!(watched.closed(), failed);
        if !is_taken {
            assert_eq!(&connection.sent[2..4], &1009_u16.to_be_bytes());
        }
    }
}

#[test]
fn close_7_1_by_the_handler_waits_for_the_clients_answer() {
    let (service, watched) = service(WebSocketConfig::default());
    let mut connection = open(&service);
    let sender = watched.senders.recv().expect("a sender");
    connection.feed(&frame(FIN | TEXT, b"close"));
    assert_eq!(connection.sent, b"\x88\x0d\x03\xe8as you wish");
    assert!(!connection.closed && sender.is_closed());
    connection.feed(&frame(FIN | TEXT, b"was on its way"));
    connection.feed(&frame(CLOSE, b"\x03\xe8"));
    assert!(connection.closed);
    let code = CloseCode::NORMAL;
    let acknowledged = true;
    assert_eq!(
        watched.all(),
        [
            Seen::Open(None),
            Seen::Message("close".into()),
            Seen::Closed(Closed::ByUs { code, acknowledged })
        ]
    );
}

#[test]
fn close_7_1_does_not_wait_for_ever() {
    let (service, watched) = service(WebSocketConfig::default());
    let mut connection = open(&service);
    connection.feed(&frame(FIN | TEXT, b"close"));
    connection.pass(Duration::from_millis(4999));
    assert!(!connection.closed);
    connection.pass(Duration::from_millis(1));
    assert!(connection.closed);
    let code = CloseCode::NORMAL;
    let acknowledged = false;
    assert_eq!(watched.closed(), Some(Closed::ByUs { code, acknowledged }));
}

#[test]
fn a_server_that_stops_says_1001() {
    let (service, watched) = service(WebSocketConfig::default());
    let mut connection = open(&service);
    connection.stop();
    assert_eq!(connection.sent, b"\x88\x02\x03\xe9");
    assert!(!connection.closed);
    connection.feed(&frame(CLOSE, b"\x03\xe9"));
    assert!(connection.closed);
    let code = CloseCode::GOING_AWAY;
    let acknowledged = true;
    assert_eq!(watched.closed(), Some(Closed::ByUs { code, acknowledged }));
}

#[test]
fn a_connection_that_is_lost_is_told_once() {
    let (service, watched) = service(WebSocketConfig::default());
    let mut connection = open(&service);
    connection.feed(&frame(TEXT, b"half of a mess"));
    connection.end();
    assert!(connection.closed);
    assert_eq!(watched.closed(), Some(Closed::Lost));
    drop(connection);
    assert_eq!(watched.closed(), None);
    let connection = open(&service);
    drop(connection);
    assert_eq!(watched.closed(), Some(Closed::Lost));
}

#[test]
fn a_silent_client_is_pinged_and_reset_if_it_stays_silent() {
    let (service, watched) = service(WebSocketConfig::default());
    let mut connection = open(&service);
    for answer in [frame(PONG, b""), frame(FIN | TEXT, b"x")] {
        connection.pass(Duration::from_secs(30));
        assert_eq!(connection.sent, b"\x89\0", "a ping");
        connection.pass(Duration::from_secs(19));
        connection.feed(&answer);
        connection.sent.clear();
        // 20 s after the ping it is looked at again, and 30 s after it was heard.
        connection.pass(Duration::from_secs(1));
        connection.pass(Duration::from_secs(28));
        assert!(connection.sent.is_empty() && !connection.closed);
        connection.pass(Duration::from_secs(1));
        assert_eq!(connection.sent, b"\x89\0");
        connection.feed(&frame(PONG, b""));
        connection.sent.clear();
        connection.pass(Duration::from_secs(20));
        connection.pass(Duration::from_secs(9));
        connection.feed(&frame(PONG, b""));
    }
    while connection.sent.is_empty() {
        connection.pass(Duration::from_secs(1));
    }
    connection.pass(Duration::from_secs(20));
    assert!(connection.closed);
    assert_eq!(watched.closed(), Some(Closed::TimedOut));
}

#[test]
fn pf37_no_message_is_taken_while_the_output_is_full() {
    let (service, watched) = service(WebSocketConfig::default());
    let mut connection = open(&service);
    let input = [frame(FIN | TEXT, b"much"), frame(FIN | TEXT, b"next")].concat();
    connection.feed(&input.repeat(3));
    assert_eq!(connection.flushes, 3);
    let pass = [
        Seen::Message("much".into()),
        Seen::Ready,
        Seen::Message("next".into()),
    ];
    assert_eq!(
        watched.all()[1..],
        [pass.clone(), pass.clone(), pass].concat()
    );
}

#[test]
fn others_send_and_close_through_a_sender() {
    let mut config = WebSocketConfig::default();
    config.queue_bytes = 100;
    let (service, watched) = service(config);
    let mut connection = open(&service);
    let sender = watched.senders.recv().expect("a sender");
    sender.try_send("one").expect("room");
    assert!(connection.serve_notification());
    assert_eq!(connection.sent, b"\x81\x03one");
    connection.sent.clear();
    sender.try_send(vec![2; 80]).expect("room");
    let refused = sender.try_send("three");
    assert_eq!(refused, Err(TrySendError::Full("three".into())));
    let told = Arc::new(Mutex::new(0));
    let count = Arc::clone(&told);
    sender.on_change(move || *count.lock().expect("no panic") += 1);
    assert!(connection.serve_notification());
    assert_eq!(*told.lock().expect("no panic"), 1);
    let clone = sender.clone();
    clone.try_send("three").expect("room again");
    clone.close(CloseCode::POLICY, "enough");
    assert!(sender.is_closed());
    let closed = sender.try_send("four");
    assert_eq!(closed, Err(TrySendError::Closed("four".into())));
    connection.sent.clear();
    assert!(connection.serve_notification());
    assert_eq!(connection.sent, b"\x81\x05three\x88\x08\x03\xf0enough");
    connection.feed(&frame(CLOSE, b"\x03\xf0"));
    assert!(connection.closed);
}

/// Asks for its sender at the first message only.
struct Late(Sender<SocketSender>);

impl SocketHandler for Late {
    fn on_message(&mut self, socket: &mut SocketContext<'_>, _: Message) {
        self.0.send(socket.sender()).expect("the test looks");
    }
}

#[test]
fn a_sender_that_is_made_while_a_message_is_handled_wakes_the_socket() {
    let (senders, made) = mpsc::channel();
    let senders = Mutex::new(senders);
    let handler = move |request: &Request<'_>, response: Responder<'_>| {
        let handler = Late(senders.lock().expect("no panic").clone());
        websocket::accept(request, response, &WebSocketConfig::default(), handler)
    };
    let service = HttpService::new(handler, HttpConfig::default());
    let mut connection = open(&service);
    connection.feed(&frame(FIN | TEXT, b"x"));
    let sender = made.recv().expect("a sender");
    sender.try_send("one").expect("room");
    assert!(connection.serve_notification());
    assert_eq!(connection.sent, b"\x81\x03one");
}
