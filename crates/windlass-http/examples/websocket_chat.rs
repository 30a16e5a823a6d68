//! A chat among the WebSockets of one loop: what one says is sent to all.
//!
//! Run `cargo run -p windlass-http --example websocket_chat` and open the address it prints in two
//! windows of a browser. Ends on Ctrl-C.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass::Disposition::Keep;
use windlass::event_loop::Signal;
use windlass::models::SingleLoop;
use windlass_http::websocket::{
    self, Closed, Message, SocketContext, SocketHandler, SocketSender, WebSocketConfig,
};
use windlass_http::{HttpConfig, HttpService, Request, Responder, Status};

const PAGE: &str = "<!doctype html><title>Chat</title><input id=say autofocus><ul id=said></ul>
<script>
const socket = new WebSocket(`ws://${location.host}/chat`);
socket.onmessage = event => { said.appendChild(document.createElement('li')).append(event.data); };
say.onchange = () => { socket.send(say.value); say.value = ''; };
</script>";

/// Who is there, by a number.
type Room = Arc<Mutex<HashMap<u64, SocketSender>>>;

fn enter(room: &Room) -> MutexGuard<'_, HashMap<u64, SocketSender>> {
    room.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Guest(Room, u64);

impl SocketHandler for Guest {
    fn on_open(&mut self, socket: &mut SocketContext<'_>) {
        enter(&self.0).insert(self.1, socket.sender());
    }

    fn on_message(&mut self, _: &mut SocketContext<'_>, said: Message) {
        for guest in enter(&self.0).values() {
            // A guest whose queue is full misses it; one that is gone is removed by itself.
            let _ = guest.try_send(said.clone());
        }
    }

    fn on_close(&mut self, _: &Closed) {
        enter(&self.0).remove(&self.1);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (room, config) = (Room::default(), WebSocketConfig::default());
    let guests = AtomicU64::new(0);
    let handler = move |request: &Request<'_>, response: Responder<'_>| {
        if request.path() == "/chat" {
            let guest = Guest(Arc::clone(&room), guests.fetch_add(1, Ordering::Relaxed));
            return websocket::accept(request, response, &config, guest);
        }
        let head = response.start(Status::OK);
        Ok(head.header("Content-Type", "text/html")?.body(PAGE))
    };
    let service = HttpService::new(handler, HttpConfig::default());
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    let mut server = SingleLoop::builder(Arc::new(service))
        .listen(address)
        .build()?;
    server.reactor().on_signal(Signal::INT, |state, cx, _| {
        state.stop(cx);
        Keep
    })?;
    println!("http://{}/", server.local_addrs()[0]);
    println!("{}", server.run()?);
    Ok(())
}
