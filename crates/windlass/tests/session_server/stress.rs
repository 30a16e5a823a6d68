//! Random clients: commands cut anywhere, slow and half-closed peers, resets, stops in the middle.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use windlass::models::Limits;
use windlass_sys::net;

use crate::harness::{Model, Options, PATIENCE, Server};
use crate::sessions::{LineService, Probe};

const CLIENTS: u64 = 8;

/// A small generator of random numbers (xorshift), so that a failing run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn serve<M: Model>() -> (Server, Arc<Probe>) {
    let service = LineService::default();
    let probe = Arc::clone(&service.probe);
    let limits = Limits {
        linger_timeout: Duration::from_millis(20),
        stop_deadline: PATIENCE,
        ..Limits::default()
    };
    let options = Options {
        limits,
        ..Options::default()
    };
    (Server::start::<M, _>(service, options), probe)
}

/// Begins a connection; nothing if the server is gone.
fn connect(addr: SocketAddr) -> Option<BufReader<TcpStream>> {
    let stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // Pieces arrive as they are sent, and none waits 40 ms for a delayed acknowledgement.
    stream.set_nodelay(true).unwrap();
    Some(BufReader::new(stream))
}

/// Sends `bytes` in pieces of any length; whether the server took them.
fn send_in_pieces(stream: &mut TcpStream, bytes: &[u8], random: &mut Random) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = (1 + random.below(40) as usize).min(rest.len());
        if stream.write_all(&rest[..len]).is_err() {
            return false;
        }
        rest = &rest[len..];
        if random.below(4) == 0 {
            thread::yield_now();
        }
    }
    true
}

/// One exchange of commands; answers whether the connection is still good.
fn exchange(stream: &mut BufReader<TcpStream>, random: &mut Random) -> bool {
    let (mut commands, mut wanted) = (String::new(), Vec::new());
    for _ in 0..=random.below(4) {
        let number = random.below(1_000_000);
        if random.below(3) == 0 {
            commands.push_str(&format!("shout a{number}\n"));
            wanted.push(format!("A{number}"));
        } else {
            commands.push_str(&format!("echo e{number}\n"));
            wanted.push(format!("e{number}"));
        }
    }
    if !send_in_pieces(stream.get_mut(), commands.as_bytes(), random) {
        return false;
    }
    for wanted in wanted {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            // A stop leaves what was not begun.
            Ok(0) | Err(_) => return false,
            Ok(_) => assert!(
                line.trim_end() == wanted || !line.ends_with('\n'),
                "{line:?} in place of {wanted:?}"
            ),
        }
    }
    true
}

/// Ends a connection in one of many ways.
fn end(mut stream: BufReader<TcpStream>, random: &mut Random) {
    let last: &[u8] = match random.below(8) {
        0 => b"echo half",
        1 => b"flood\n",
        2 => b"bye x\n",
        3 => b"panic\n",
        4 => b"shout never read\n",
        5 => b"bye-big 300000\n",
        6 => b"expire 3\n",
        _ => b"",
    };
    // The server may be gone.
    let _ = stream.get_mut().write_all(last);
    let is_answered = !last.is_empty() && !last.starts_with(b"echo");
    if is_answered && random.below(3) == 0 {
        let _ = stream.read(&mut [0; 1000]);
    }
    match random.below(3) {
        0 => net::set_linger_zero(stream.get_ref().as_fd()).unwrap(),
        1 => drop(stream.get_ref().shutdown(Shutdown::Write)),
        _ => {}
    }
}

fn client(addr: SocketAddr, seed: u64, connections: u64) {
    let mut random = Random(seed);
    for _ in 0..connections {
        let Some(mut stream) = connect(addr) else {
            return;
        };
        let rounds = random.below(6);
        let is_good = (0..rounds).all(|_| exchange(&mut stream, &mut random));
        if is_good {
            end(stream, &mut random);
        }
    }
}

/// Runs the clients, and `meanwhile`.
fn run(addr: SocketAddr, seed: u64, connections: u64, meanwhile: impl FnOnce()) {
    thread::scope(|scope| {
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|number| {
                let seed = seed.wrapping_mul(number).max(1);
                scope.spawn(move || client(addr, seed, connections))
            })
            .collect();
        meanwhile();
        for client in clients {
            assert!(client.join().is_ok(), "with seed {seed:#x}");
        }
    });
}

pub(crate) fn random_clients_leave_nothing_behind<M: Model>() {
    for seed in [0x9e37_79b9_7f4a_7c15_u64, 0x2545_f491_4f6c_dd1d] {
        let (server, probe) = serve::<M>();
        run(server.addr, seed, 120, || {});
        // It serves on.
        assert_eq!(server.connect().ask("shout on"), "ON");
        probe.wait("all sessions are gone", |seen| seen.opened == seen.dropped);
        assert_eq!(server.stop_and_join().cut, 0, "with seed {seed:#x}");
    }
}

pub(crate) fn a_stop_among_random_clients_ends_them_all<M: Model>() {
    for seed in 1..=8 {
        let (server, probe) = serve::<M>();
        let opened = 20 * seed as usize;
        let addr = server.addr;
        run(addr, seed * 0x9e37_79b9, 1_000_000, || {
            probe.wait("some were opened", |seen| seen.opened >= opened);
            server.stop_and_join();
        });
        let seen = probe.seen();
        assert_eq!(seen.opened, seen.dropped, "with seed {seed}");
    }
}
