//! An echo server on the proactor: a connection is one event and one buffer, which goes from a
//! receive to a send and back. Says by whom operations are done.
//!
//! Try it: `cargo run --example proactor_echo`, then `nc 127.0.0.1 PORT`; Ctrl-C ends it.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use windlass::Disposition::{self, Keep, Remove};
use windlass::Happened;
use windlass::event_loop::{CompletionOptions, Context, EventLoop, LoopConfig, Signal};
use windlass::proactor::{Completion, DriverChoice, Operation, Outcome, Repeat};

type Cx<'c> = Context<'c, 'static, ()>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = LoopConfig::default();
    config.proactor.driver = DriverChoice::Automatic;
    let mut event_loop = EventLoop::<()>::with_config(config)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?);
    println!("operations are done by {}", event_loop.proactor_driver());
    let (listener, repeat) = (Arc::new(listener.into()), Repeat::Multishot);
    let accept = Operation::Accept { listener, repeat };
    event_loop.start(accept, |(), cx, completion| {
        if let Ok(Outcome::Accepted(socket)) = completion.result {
            serve(cx, socket.into());
        }
    })?;
    event_loop.on_signal(Signal::INT, |(), cx, _| {
        cx.stop();
        Keep
    })?;
    event_loop.run(&mut ())?;
    Ok(())
}

fn serve(cx: &mut Cx<'_>, socket: TcpStream) {
    // A short part does not wait, up to 40 ms, until the peer has confirmed the one before.
    let _ = socket.set_nodelay(true);
    let receive = Operation::Receive {
        socket: Arc::new(socket.into()),
        buffer: Vec::with_capacity(4096),
    };
    // Without room for another its peer sees a close.
    if let Ok(event) = cx.completion_event(Box::new(go_on), CompletionOptions::default()) {
        let _ = cx.start_for(event, receive);
    }
}

fn go_on((): &mut (), cx: &mut Cx<'_>, _: Happened) -> Disposition {
    let event = cx.event();
    while let Some(completion) = cx.next_completion(event) {
        let next = next_after(completion).map(|operation| cx.start_for(event, operation));
        if !matches!(next, Some(Ok(_))) {
            return Remove;
        }
    }
    Keep
}

fn next_after(completion: Completion) -> Option<Operation> {
    match (completion.result, completion.operation) {
        (Ok(Outcome::Bytes(1..)), Some(Operation::Receive { socket, buffer })) => {
            let payload = buffer.into();
            Some(Operation::Send { socket, payload })
        }
        (Ok(Outcome::Bytes(_)), Some(Operation::Send { socket, payload })) => {
            let mut buffer = payload.into_vec()?;
            buffer.clear();
            Some(Operation::Receive { socket, buffer })
        }
        // The peer is done, or gone.
        _ => None,
    }
}
