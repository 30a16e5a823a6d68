//! WebSocket: sends back what it is sent. With it the conformance suite is run, see
//! `docs/websocket.md`.
//!
//! Run `cargo run -p windlass-http --example websocket_echo`, and in the console of a browser:
//! `s = new WebSocket("ws://127.0.0.1:9001"); s.onmessage = console.log; s.onopen = () => s.send("hi")`.
//! Ends on Ctrl-C.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::sync::Arc;

use windlass::Disposition::Keep;
use windlass::event_loop::Signal;
use windlass::models::SingleLoop;
use windlass_http::websocket::{
    self, Message, Origins, SocketContext, SocketHandler, WebSocketConfig,
};
use windlass_http::{HttpConfig, HttpService, Request, Responder};

struct Echo;

impl SocketHandler for Echo {
    fn on_message(&mut self, socket: &mut SocketContext<'_>, message: Message) {
        socket.send(message);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = WebSocketConfig::default();
    // An echo tells nothing that a page does not know, so pages of all sites may open it.
    config.origins = Origins::Any;
    config.message_bytes = 16 * 1024 * 1024;
    config.frame_bytes = 16 * 1024 * 1024;
    let handler = move |request: &Request<'_>, response: Responder<'_>| {
        websocket::accept(request, response, &config, Echo)
    };
    let service = HttpService::new(handler, HttpConfig::default());
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:9001").parse()?;
    let mut server = SingleLoop::builder(Arc::new(service))
        .listen(address)
        .build()?;
    server.reactor().on_signal(Signal::INT, |state, cx, _| {
        state.stop(cx);
        Keep
    })?;
    println!("ws://{}", server.local_addrs()[0]);
    println!("{}", server.run()?);
    Ok(())
}
