//! Leader/followers: four threads take turns to wait for the same handles. Whoever takes an event
//! has another thread wait, handles it, and says so.
//!
//! Try it: `cargo run --example leader_followers`, then `nc 127.0.0.1 PORT` in several terminals.
//! Each line comes back by whichever thread was free; `sleep` keeps its thread busy for two
//! seconds, in which the others go on. `stop` ends it, as Ctrl-C does.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use windlass::Disposition::{self, Keep, Remove};
use windlass::event_loop::RunError;
use windlass::thread_set::{HandleOptions, HandleSet, ThreadSet};

/// What each thread has for itself.
struct Worker {
    number: u32,
    handled: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let set = ThreadSet::<Worker>::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    println!("listening on {}", listener.local_addr()?);
    let (handles, options) = (set.handles(), HandleOptions::default());
    handles.watch(listener, options, move |worker, cx, listener, _| {
        // One at a time: if more wait, the listener is still readable.
        if let Ok((stream, peer)) = listener.accept() {
            println!("thread {} accepts {peer}", worker.number);
            // Without room for it its peer sees a close.
            let _ = cx.watch(stream, options, |worker, cx, stream, _| {
                echo(worker, cx, stream).unwrap_or(Remove)
            });
        }
        Keep
    })?;
    handles.every(Duration::from_secs(1), |worker, _, _| {
        println!("thread {} ticks", worker.number);
        Keep
    })?;
    thread::scope(|scope| {
        let set = &set;
        let threads = [1, 2, 3, 4].map(|number| scope.spawn(move || work(set, number)));
        (threads.into_iter()).try_for_each(|thread| thread.join().expect("no handler panics"))
    })?;
    Ok(())
}

/// One thread: `set.join(&mut worker)` is this loop, but for the count.
fn work(set: &ThreadSet<Worker>, number: u32) -> Result<(), RunError> {
    let (mut worker, mut follower) = (Worker { number, handled: 0 }, set.follow());
    while let Some(led) = follower.wait_for_event()? {
        worker.handled += 1;
        // Without this it can't be handled.
        led.promote_new_leader().handle(&mut worker);
    }
    println!("thread {number} handled {} events", worker.handled);
    Ok(())
}

/// Brings back what one connection sent. No two threads do so for one at a time.
fn echo(me: &Worker, set: &HandleSet<Worker>, mut stream: &TcpStream) -> io::Result<Disposition> {
    let mut buf = [0; 1000];
    // It is ready. A peer that does not read blocks the write, and this thread alone.
    let count = stream.read(&mut buf)?;
    stream.write_all(&buf[..count])?;
    match String::from_utf8_lossy(&buf[..count]).trim() {
        "sleep" => thread::sleep(Duration::from_secs(2)),
        "stop" => set.stop(),
        text => println!("thread {} echoes {text:?}", me.number),
    }
    Ok(if count > 0 { Keep } else { Remove })
}
