//! Events and WebSocket as a browser sees them.

#![cfg(feature = "websocket")]

mod common;

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::server::Server;
use windlass_http::websocket::{self, Message, SocketContext, SocketHandler, WebSocketConfig};
use windlass_http::{Event, EventsConfig, HttpConfig, HttpService, Request, Responder, Status};

/// Tells the server what it got, when it has got all.
const PAGE: &str = "<!doctype html><html><script>
const got = new URLSearchParams();
function note(what, value) {
    got.set(what, JSON.stringify(value));
    if ([...got].length == 3) fetch('/report?' + got);
}
const source = new EventSource('/events');
source.addEventListener('news', event => {
    note('event', [event.lastEventId, event.data]);
    source.close();
});
const socket = new WebSocket(`ws://${location.host}/socket`, ['x', 'echo']);
socket.onopen = () => socket.send('héllo '.repeat(50_000));
socket.onmessage = event => {
    note('socket', [socket.protocol, event.data.length]);
    socket.close(3000, 'seen');
};
socket.onclose = event => note('close', [event.code, event.wasClean]);
</script></html>";

struct Echo;

impl SocketHandler for Echo {
    fn on_message(&mut self, socket: &mut SocketContext<'_>, message: Message) {
        socket.send(message);
    }
}

#[test]
fn a_browser_gets_events_and_talks_by_websocket() {
    let (reports, reported) = mpsc::channel();
    let mut config = WebSocketConfig::default();
    config.protocols = vec!["echo".into()];
    let handler = move |request: &Request<'_>, response: Responder<'_>| match request.path() {
        "/" => {
            let head = response
                .start(Status::OK)
                .header("Content-Type", "text/html; charset=utf-8")?;
            Ok(head.body(PAGE))
        }
        "/events" => {
            let (answered, sender) = response.start(Status::OK).events(EventsConfig::default());
            let event = Event::new("two\r\n lines").event("news").id("7");
            sender.send(&event).expect("room");
            // The browser would connect again if the stream ended before it has closed it.
            std::mem::forget(sender);
            Ok(answered)
        }
        "/report" => {
            let query = request.query().unwrap_or_default().as_bytes();
            let pairs: HashMap<_, _> = url::form_urlencoded::parse(query).into_owned().collect();
            reports.send(pairs).expect("the test waits");
            Ok(response.start(Status::NO_CONTENT).empty())
        }
        "/socket" => websocket::accept(request, response, &config, Echo),
        _ => Ok(response.start(Status::NOT_FOUND).empty()),
    };
    let server = Server::start(HttpService::new(handler, HttpConfig::default()));
    let profile = std::env::temp_dir().join(format!("windlass-browser-{}", std::process::id()));
    let mut browser = Command::new("timeout")
        .args(["120", "chromium", "--headless", "--no-sandbox"])
        .args(["--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("http://{}/", server.address))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromium runs");
    let report = reported.recv_timeout(Duration::from_secs(100));
    // It hands the signal on to the browser.
    let timeout = rustix::process::Pid::from_child(&browser);
    rustix::process::kill_process(timeout, rustix::process::Signal::TERM).expect("it runs");
    browser.wait().expect("it ends");
    // It may not have come so far as to make it.
    std::fs::remove_dir_all(&profile).unwrap_or_default();
    let report = report.expect("the browser's report");
    assert_eq!(report["event"], r#"["7","two\n lines"]"#);
    assert_eq!(report["socket"], r#"["echo",300000]"#);
    assert_eq!(report["close"], "[3000,true]");
    server.stop();
}
