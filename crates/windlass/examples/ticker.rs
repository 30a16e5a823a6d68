//! A ticking timer, lines from standard input, and Ctrl-C: the classic first program of an event
//! loop. Three kinds of event, one state, no thread, no shared cell.
//!
//! Try it in a terminal (`cargo run --example ticker`), where `quit`, Ctrl-D and Ctrl-C end it;
//! and with other inputs: `... < Cargo.toml`, `echo quit | ...`, `... < /dev/null`.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::io;
use std::time::Duration;

use windlass::Disposition::Keep;
use windlass::event_loop::{EventLoop, Signal};

#[derive(Default)]
struct App {
    ticks: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut event_loop = EventLoop::<App>::new()?;
    event_loop.every(Duration::from_secs(1), |app, _| {
        app.ticks += 1;
        println!("[tick {}]", app.ticks);
        Keep
    })?;
    event_loop.on_line(io::stdin(), |_, cx, line| {
        match line {
            Some("quit") | None => cx.stop(),
            Some(line) => println!("you typed: {line:?}"),
        }
        Keep
    })?;
    event_loop.on_signal(Signal::INT, |_, cx, info| {
        println!("caught {info}, shutting down");
        cx.stop();
        Keep
    })?;
    println!("type a line, or quit");
    let mut app = App::default();
    event_loop.run(&mut app)?;
    println!("ticked {} times", app.ticks);
    Ok(())
}
