//! A TCP echo server on a Reactor, with a client in the same loop.
//!
//! Try it: `cargo run --example echo` sends the lines of standard input through the server and
//! ends when the last has come back; `... -- --serve` serves until Ctrl-C (`nc localhost <port>`).
//! What a peer does not read back stops being read from it.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use windlass::Disposition::{Disable, Keep, Remove};
use windlass::Interest;
use windlass::event_loop::{EventLoop, IoOptions, Reactor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut event_loop = EventLoop::<()>::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    println!("listening on {address}");
    event_loop.on_readable(listener, |(), cx, listener| {
        // One at a time: if more wait, the listener is still readable.
        let accepted = listener.accept();
        if let Err(error) = accepted.and_then(|(stream, _)| serve(cx, stream)) {
            println!("accept: {error}");
        }
        Keep
    })?;
    if std::env::args().nth(1).as_deref() != Some("--serve") {
        start_client(&mut event_loop, TcpStream::connect(address)?)?;
    }
    event_loop.run(&mut ())?;
    Ok(())
}

/// Echoes one connection: writes what it has read, and reads on when nothing is left.
fn serve(reactor: &mut Reactor<'static, ()>, stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let (mut buf, mut left) = ([0; 4096], 0..0);
    reactor.watch(stream, IoOptions::default(), move |(), cx, mut io, _| {
        let moved = match left.len() {
            0 => io.read(&mut buf).inspect(|&count| left = 0..count),
            _ => (io.write(&buf[left.clone()])).inspect(|count| left.start += count),
        };
        let interest = match moved {
            Ok(1..) if left.is_empty() => Interest::READ,
            Ok(1..) => Interest::WRITE,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Keep,
            _ => return Remove,
        };
        let event = cx.event();
        cx.set_interest(event, interest).map_or(Remove, |()| Keep)
    })?;
    Ok(())
}

/// Sends a line, and the next when it has come back.
fn start_client(event_loop: &mut EventLoop<'static, ()>, server: TcpStream) -> io::Result<()> {
    let mut to_server = server.try_clone()?;
    let input = event_loop.on_line(io::stdin(), move |(), _, line| {
        let sent = match line {
            Some(line) => to_server.write_all(format!("{line}\n").as_bytes()),
            None => to_server.shutdown(Shutdown::Write),
        };
        sent.map_or(Remove, |()| Disable)
    })?;
    event_loop.on_line(server, move |(), cx, line| {
        match line {
            Some(line) => println!("echoed: {line}"),
            None => cx.stop(),
        }
        // It is gone if the input is at its end.
        let _ = cx.enable(input);
        Keep
    })?;
    Ok(())
}
