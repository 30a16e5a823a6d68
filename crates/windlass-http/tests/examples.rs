//! The examples that serve, run as their readers run them.

#![cfg(feature = "websocket")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tungstenite::WebSocket;

struct Example {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Example {
    /// Starts one; its first line ends with its address.
    fn start(name: &str) -> Self {
        let test = std::env::current_exe().expect("current_exe");
        let target = test.ancestors().nth(2).expect("target/debug");
        let path: PathBuf = target.join("examples").join(name);
        let mut child = Command::new(path)
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawn");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let address = line.split("://").nth(1).expect("an address");
        let address = address.trim_end().trim_end_matches('/').to_owned();
        Self {
            child,
            stdout,
            address,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("connect");
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).expect("a limit");
        stream
    }

    fn socket(&self, path: &str) -> WebSocket<TcpStream> {
        let url = format!("ws://{}{path}", self.address);
        tungstenite::client(url, self.connect())
            .expect("a handshake")
            .0
    }

    /// Ends it as Ctrl-C does; it must end well.
    fn interrupt(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("read");
        assert!(rest.contains(" connections, "), "{rest}");
        assert!(self.child.wait().expect("wait").success());
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It has ended, if the test went well.
        let _ = self.child.kill();
    }
}

#[test]
fn events_tells_the_time() {
    let example = Example::start("events");
    let mut client = example.connect();
    write!(client, "GET /time HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    let seconds = BufReader::new(client)
        .lines()
        .map(|line| line.expect("a line"))
        .filter_map(|line| line.strip_prefix("data: ")?.parse::<u64>().ok());
    let seen: Vec<_> = seconds.take(2).collect();
    assert!(seen[0] < seen[1], "{seen:?}");
    example.interrupt();
}

#[test]
fn websocket_chat_passes_on_what_one_says() {
    let example = Example::start("websocket_chat");
    let mut guests = [example.socket("/chat"), example.socket("/chat")];
    // Who has got its own words back is in the room.
    for guest in &mut guests {
        guest.send("hello".into()).expect("send");
        while guest.read().expect("a message").to_text().expect("text") != "hello" {}
    }
    guests[0].send("to all".into()).expect("send");
    for guest in &mut guests {
        while guest.read().expect("a message").to_text().expect("text") != "to all" {}
    }
    drop(guests);
    example.interrupt();
}

#[test]
fn websocket_echo_sends_back() {
    let example = Example::start("websocket_echo");
    let mut client = example.socket("/");
    client.send("hello".into()).expect("send");
    assert_eq!(
        client.read().expect("an echo").to_text().expect("text"),
        "hello"
    );
    drop(client);
    example.interrupt();
}
