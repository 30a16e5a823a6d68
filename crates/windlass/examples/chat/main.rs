//! A line chat on one loop: connections reach each other without a lock.
//!
//! The room is plain data in the service's `Local`, which the loop hands to each session in turn. A
//! session that says something puts it into the others' mailboxes and uses their notifiers, so that
//! the loop calls them; each takes its mail to its own output. A reader that is too slow loses
//! messages, is told how many, and holds up nobody.
//!
//! Try it: `cargo run --example chat`, then in several terminals `nc 127.0.0.1 7007`, or
//! `telnet`. Ctrl-C ends it. `cargo run --example chat 0.0.0.0:7007` is for others, too.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

mod room;
mod session;

use std::error::Error;
use std::sync::Arc;

use windlass::Disposition::Keep;
use windlass::event_loop::Signal;
use windlass::models::SingleLoop;

use self::session::ChatService;

fn main() -> Result<(), Box<dyn Error>> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:7007").parse()?;
    let mut server = SingleLoop::builder(Arc::new(ChatService))
        .listen(addr)
        .build()?;
    for signal in [Signal::INT, Signal::TERM] {
        server.reactor().on_signal(signal, |state, cx, _| {
            // Says goodbye to all; another one ends it at once.
            state.stop(cx);
            Keep
        })?;
    }
    println!("listening on {}", server.local_addrs()[0]);
    println!("{}", server.run()?);
    Ok(())
}
