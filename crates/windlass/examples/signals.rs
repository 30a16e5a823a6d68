//! Signals as events: who sent them, several of one kind merged, children that ended.
//!
//! Try it: `cargo run --example signals`, and from another terminal `kill -USR1 <pid>` or
//! `kill -HUP <pid>`; it prints its process id. Ctrl-C or `kill <pid>` end it. Programs that it
//! starts see none of this: masks are not touched, and the original dispositions are theirs.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::process::{self, Child, Command};

use windlass::Disposition::{self, Keep};
use windlass::event_loop::{Context, EventLoop, Signal, SignalInfo};

/// The programs that were started and not reported yet.
#[derive(Default)]
struct App {
    children: Vec<Child>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut event_loop = EventLoop::<App>::new()?;
    for signal in [Signal::USR1, Signal::USR2, Signal::HUP] {
        event_loop.on_signal(signal, report)?;
    }
    for signal in [Signal::INT, Signal::TERM] {
        event_loop.on_signal(signal, |app, cx, info| {
            cx.stop();
            report(app, cx, info)
        })?;
    }
    event_loop.on_signal(Signal::CHLD, |app, _, _| {
        // Several that end at once are one signal: look at all.
        app.children.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                println!("child {} ended: {status}", child.id());
                false
            }
            Err(error) => {
                println!("child {}: {error}", child.id());
                false
            }
        });
        Keep
    })?;
    let mut app = App::default();
    for program in ["true", "false"] {
        app.children.push(Command::new(program).spawn()?);
    }
    println!("process {} waits for signals", process::id());
    event_loop.run(&mut app)?;
    println!("done");
    Ok(())
}

fn report(_: &mut App, _: &mut Context<'_, '_, App>, info: SignalInfo) -> Disposition {
    println!(
        "{} from process {} ({} merged)",
        info.signal, info.pid, info.count
    );
    Keep
}
