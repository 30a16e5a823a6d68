//! Priorities: what is urgent runs first, whatever else is waiting, and how a bound on starvation
//! lets the rest have a turn.
//!
//! Try it: `cargo run --example priorities`. It ends by itself. A flood of urgent events never
//! stops; the background job runs in the second part only, which has a bound.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;

use windlass::Disposition::Keep;
use windlass::EngineConfig;
use windlass::event_loop::{EventLoop, LoopConfig};

const URGENT: u8 = 0;
const NORMAL: u8 = 1;
const BACKGROUND: u8 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    println!("in order of priority, whatever was activated first:");
    let mut event_loop = open(None)?;
    for (name, priority) in [
        ("background", BACKGROUND),
        ("normal", NORMAL),
        ("urgent", URGENT),
        ("urgent, the second", URGENT),
    ] {
        let event = event_loop.user_event(move |_, _, _| {
            println!("  {name}");
            Keep
        })?;
        event_loop.set_priority(event, priority)?;
        event_loop.activate(event, 1)?;
    }
    event_loop.run(&mut 0)?;

    for starvation_limit_turns in [None, Some(10)] {
        let mut event_loop = open(starvation_limit_turns)?;
        let background = event_loop.user_event(|turns, cx, _| {
            println!("  background runs, after {turns} urgent turns");
            cx.stop();
            Keep
        })?;
        event_loop.set_priority(background, BACKGROUND)?;
        event_loop.activate(background, 1)?;
        let flood = event_loop.user_event(|turns, cx, _| {
            *turns += 1;
            if *turns == 1000 {
                println!("  background never ran in {turns} urgent turns");
                cx.break_loop();
            }
            let event = cx.event();
            // It exists: it runs.
            let _ = cx.activate(event, 1);
            Keep
        })?;
        event_loop.activate(flood, 1)?;
        println!("a flood, with the starvation limit {starvation_limit_turns:?}:");
        event_loop.run(&mut 0)?;
    }
    Ok(())
}

fn open(starvation_limit_turns: Option<u32>) -> Result<EventLoop<'static, u32>, Box<dyn Error>> {
    let engine = EngineConfig {
        priorities: 3,
        starvation_limit_turns,
        ..EngineConfig::default()
    };
    Ok(EventLoop::with_config(LoopConfig {
        engine,
        ..LoopConfig::default()
    })?)
}
