//! WebSockets of a running server, with the client of another crate.

#![cfg(feature = "websocket")]

mod common;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::server::Server;
use tungstenite::protocol::frame::coding::CloseCode as Code;
use tungstenite::{Message as Frame, WebSocket};
use windlass_http::websocket::{
    self, Closed, Message, SocketContext, SocketHandler, SocketSender, WebSocketConfig,
};
use windlass_http::{Handler, HttpConfig, HttpService, Request, Responder};

type Room = Arc<Mutex<HashMap<u32, SocketSender>>>;

/// Echoes, and tells all others by "all:"; a number and a colon ask for so many bytes.
struct Guest {
    room: Room,
    number: u32,
    owed: usize,
    gone: mpsc::Sender<Closed>,
}

impl Guest {
    fn pay(&mut self, socket: &mut SocketContext<'_>) {
        while self.owed > 0 && !socket.is_full() {
            let part = self.owed.min(50_000);
            socket.send(vec![b'.'; part]);
            self.owed -= part;
        }
    }
}

impl SocketHandler for Guest {
    fn on_open(&mut self, socket: &mut SocketContext<'_>) {
        let mut room = self.room.lock().expect("no panic");
        room.insert(self.number, socket.sender());
        socket.send(format!("you are {} of {}", self.number, room.len()));
    }

    fn on_message(&mut self, socket: &mut SocketContext<'_>, message: Message) {
        let Message::Text(text) = &message else {
            return socket.send(message);
        };
        if let Some((count, _)) = text.split_once(':')
            && let Ok(count) = count.parse::<usize>()
        {
            self.owed += count;
            return self.pay(socket);
        }
        if text.starts_with("all:") {
            for guest in self.room.lock().expect("no panic").values() {
                guest.try_send(message.clone()).expect("room");
            }
            return;
        }
        socket.send(message);
    }

    fn on_ready(&mut self, socket: &mut SocketContext<'_>) {
        self.pay(socket);
    }

    fn on_close(&mut self, why: &Closed) {
        self.room.lock().expect("no panic").remove(&self.number);
        self.gone.send(why.clone()).unwrap_or_default();
    }
}

fn service() -> (HttpService<impl Handler>, mpsc::Receiver<Closed>) {
    let (room, numbers) = (Room::default(), Mutex::new(0));
    let (gone, closed) = mpsc::channel();
    let gone = Mutex::new(gone);
    let config = WebSocketConfig::default();
    let handler = move |request: &Request<'_>, response: Responder<'_>| {
        let mut number = numbers.lock().expect("no panic");
        *number += 1;
        let guest = Guest {
            room: Arc::clone(&room),
            number: *number,
            owed: 0,
            gone: gone.lock().expect("no panic").clone(),
        };
        websocket::accept(request, response, &config, guest)
    };
    (HttpService::new(handler, HttpConfig::default()), closed)
}

fn connect(server: &Server) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(server.address).expect("connect");
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit).expect("a limit");
    let (client, _) =
        tungstenite::client(format!("ws://{}/", server.address), stream).expect("a handshake");
    client
}

fn text(client: &mut WebSocket<TcpStream>) -> String {
    client
        .read()
        .expect("a message")
        .into_text()
        .expect("text")
        .to_string()
}

#[test]
fn another_implementations_client_is_served() {
    let (service, closed) = service();
    let server = Server::start(service);
    let mut client = connect(&server);
    assert_eq!(text(&mut client), "you are 1 of 1");
    for size in [0, 1, 125, 126, 65_535, 65_536, 300_000] {
        let message = Frame::binary(vec![size as u8; size]);
        client.send(message.clone()).expect("send");
        assert_eq!(client.read().expect("an echo"), message);
    }
    client.send(Frame::Ping("x".into())).expect("send");
    assert_eq!(client.read().expect("a pong"), Frame::Pong("x".into()));
    client.close(None).expect("close");
    while client.read().is_ok() {}
    let why = closed.recv().expect("told");
    assert!(matches!(why, Closed::ByPeer { code: None, .. }), "{why:?}");
    assert_eq!(server.stop().cut, 0);
}

#[test]
fn sockets_of_one_loop_send_to_each_other_and_are_told_of_the_stop() {
    let (service, closed) = service();
    let server = Server::start(service);
    let mut clients: Vec<_> = (1..=5)
        .map(|number| {
            let mut client = connect(&server);
            assert_eq!(text(&mut client), format!("you are {number} of {number}"));
            client
        })
        .collect();
    clients[3].send("all:hello".into()).expect("send");
    for client in &mut clients {
        assert_eq!(text(client), "all:hello");
    }
    drop(clients.pop());
    assert_eq!(closed.recv(), Ok(Closed::Lost));
    server.begin_stop();
    for client in &mut clients {
        let Frame::Close(Some(close)) = client.read().expect("a close frame") else {
            panic!("another message");
        };
        assert_eq!(close.code, Code::Away);
        while client.read().is_ok() {}
    }
    // The server waits for them to close too.
    drop(clients);
    assert_eq!(server.join().cut, 0);
}

#[test]
fn pf37_a_handler_that_sends_on_its_own_pauses_and_gets_all_through() {
    const BYTES: usize = 30 * 1024 * 1024;
    let (service, _closed) = service();
    let server = Server::start(service);
    let mut client = connect(&server);
    assert_eq!(text(&mut client), "you are 1 of 1");
    client.send(format!("{BYTES}:").into()).expect("send");
    let mut read = 0;
    while read < BYTES {
        read += client.read().expect("a part").len();
    }
    assert_eq!(read, BYTES);
    client.send("still there".into()).expect("send");
    assert_eq!(text(&mut client), "still there");
    server.begin_stop();
    while client.read().is_ok() {}
    drop(client);
    server.join();
}

#[test]
fn a_client_that_breaks_the_rules_reads_why_before_the_end() {
    let (service, closed) = service();
    let server = Server::start(service);
    let mut client = connect(&server);
    assert_eq!(text(&mut client), "you are 1 of 1");
    let stream = client.get_mut();
    // Not masked, and more behind it that nobody will read.
    stream.write_all(b"\x81\x01x").expect("write");
    stream.write_all(&[0; 100_000]).expect("write");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("no reset");
    assert_eq!(rest, b"\x88\x02\x03\xea");
    let why = closed.recv().expect("told");
    assert!(matches!(why, Closed::Failed(code) if code.code() == 1002));
    drop(client);
    server.stop();
}
