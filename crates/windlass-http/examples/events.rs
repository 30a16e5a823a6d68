//! Server-sent events: a clock that a page shows, one event a second for all that watch.
//!
//! Run `cargo run -p windlass-http --example events` and open the address it prints in a browser,
//! or read the stream by `curl -N http://127.0.0.1:8080/time`. Ends on Ctrl-C.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windlass::Disposition::Keep;
use windlass::event_loop::Signal;
use windlass::models::SingleLoop;
use windlass_http::{
    Broadcast, Event, EventsConfig, HttpConfig, HttpService, Request, Responder, Status,
};

const PAGE: &str = "<!doctype html><title>Clock</title><p id=time>…</p><script>
new EventSource('/time').addEventListener('second', event => {
    document.getElementById('time').textContent = new Date(event.data * 1000).toLocaleString();
});
</script>";

fn main() -> Result<(), Box<dyn Error>> {
    let clock = Broadcast::default();
    let watchers = clock.clone();
    let handler = move |request: &Request<'_>, response: Responder<'_>| match request.path() {
        "/" => Ok(response
            .start(Status::OK)
            .header("Content-Type", "text/html; charset=utf-8")?
            .body(PAGE)),
        "/time" => {
            let head = response.start(Status::OK);
            let (answered, sender) = head.events(EventsConfig::default());
            watchers.add(sender);
            Ok(answered)
        }
        _ => Ok(response.start(Status::NOT_FOUND).empty()),
    };
    let service = HttpService::new(handler, HttpConfig::default());
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    let mut server = SingleLoop::builder(Arc::new(service))
        .listen(address)
        .build()?;
    let reactor = server.reactor();
    reactor.on_signal(Signal::INT, |state, cx, _| {
        state.stop(cx);
        Keep
    })?;
    reactor.every(Duration::from_secs(1), move |_, _| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let second = now.unwrap_or_default().as_secs().to_string();
        let event = Event::new(&second).event("second");
        // A number has no line end, so it can be written.
        clock.send(&event).unwrap_or_default();
        Keep
    })?;
    println!("http://{}/", server.local_addrs()[0]);
    println!("{}", server.run()?);
    Ok(())
}
