//! Events and WebSocket as a browser sees them.

#![cfg(feature = "websocket")]

mod common;

use std::process::{Command, Stdio};

use common::server::Server;
use windlass_http::websocket::{self, Message, SocketContext, SocketHandler, WebSocketConfig};
use windlass_http::{Event, EventsConfig, HttpConfig, HttpService, Request, Responder, Status};

/// Notes on the document's root what it got.
const PAGE: &str = "<!doctype html><html><script>
const root = document.documentElement.dataset;
const source = new EventSource('/events');
source.addEventListener('news', event => {
    root.event = JSON.stringify([event.lastEventId, event.data]);
    source.close();
});
const socket = new WebSocket(`ws://${location.host}/socket`, ['x', 'echo']);
socket.onopen = () => socket.send('héllo '.repeat(50_000));
socket.onmessage = event => {
    root.socket = JSON.stringify([socket.protocol, event.data.length]);
    socket.close(3000, 'seen');
};
socket.onclose = event => { root.close = JSON.stringify([event.code, event.wasClean]); };
</script></html>";

struct Echo;

impl SocketHandler for Echo {
    fn on_message(&mut self, socket: &mut SocketContext<'_>, message: Message) {
        socket.send(message);
    }
}

#[test]
fn a_browser_gets_events_and_talks_by_websocket() {
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
        "/socket" => websocket::accept(request, response, &config, Echo),
        _ => Ok(response.start(Status::NOT_FOUND).empty()),
    };
    let server = Server::start(HttpService::new(handler, HttpConfig::default()));
    let profile = std::env::temp_dir().join(format!("windlass-browser-{}", std::process::id()));
    let output = Command::new("timeout")
        .args([
            "60",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--dump-dom", "--virtual-time-budget=5000"])
        .arg(format!("http://{}/", server.address))
        .stderr(Stdio::null())
        .output();
    // It may not have come so far as to make it.
    std::fs::remove_dir_all(&profile).unwrap_or_default();
    let page = String::from_utf8(output.expect("chromium runs").stdout).expect("UTF-8");
    let page = page.replace("&quot;", "'");
    for wanted in [
        r#"data-event="['7','two\n lines']""#,
        r#"data-socket="['echo',300000]""#,
        r#"data-close="[3000,true]""#,
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    server.stop();
}
