//! How connections end: in order, late, in the middle, by either side.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use windlass::models::Limits;

use crate::harness::{Client, End, Model, Options, PATIENCE, Server};
use crate::sessions::{LineService, Probe, pattern};

const MIB: usize = 1024 * 1024;

fn serve<M: Model>(limits: Limits) -> (Server, Arc<Probe>) {
    let service = LineService::default();
    let probe = Arc::clone(&service.probe);
    (
        Server::start::<M, _>(
            service,
            Options {
                limits,
                ..Options::default()
            },
        ),
        probe,
    )
}

pub(crate) fn the_answer_survives_unread_input<M: Model>() {
    let limits = Limits {
        linger_bytes_max: 128 * MIB as u64,
        linger_timeout: PATIENCE,
        ..Limits::default()
    };
    let (server, _) = serve::<M>(limits);
    // Each time more than the kernel holds between two ends.
    let unread = vec![b'x'; 24 * MIB];
    for _ in 0..20 {
        let mut client = server.connect();
        client.send("bye answer\n").send(&unread);
        assert_eq!(client.rest(), b"answer\n");
    }
    assert_eq!(server.stop_and_join().failed, 0);
}

/// Neither side can be done with writing before the other reads: the server must.
pub(crate) fn a_large_answer_survives_unread_input<M: Model>() {
    let limits = Limits {
        linger_bytes_max: 128 * MIB as u64,
        linger_timeout: PATIENCE,
        ..Limits::default()
    };
    let (server, _) = serve::<M>(limits);
    let answer = pattern(32 * MIB);
    let mut client = server.connect();
    client
        .send(format!("bye-big {}\n", answer.len()))
        .send(vec![b'x'; 64 * MIB]);
    assert!(client.rest() == answer);
    // And if the client then closes its sending side before it reads.
    let mut client = server.connect();
    client
        .send(format!("bye-big {}\n", answer.len()))
        .send(vec![b'x'; 16 * MIB])
        .end();
    assert!(client.rest() == answer);
    assert_eq!(server.stop_and_join().failed, 0);
}

pub(crate) fn lingering_ends_at_its_limits<M: Model>() {
    let limits = Limits {
        linger_bytes_max: 10_000,
        linger_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let (server, probe) = serve::<M>(limits);
    // Silent, and never closing.
    let mut silent = server.connect();
    assert_eq!(silent.ask("bye x"), "x");
    assert!(silent.rest().is_empty());
    probe.wait("the silent one is closed", |seen| seen.dropped == 1);
    // Sending without end.
    let endless = server.connect();
    let mut socket = endless.socket();
    socket.write_all(b"bye x\n").unwrap();
    while socket.write(&[b'x'; 4096]).is_ok() {}
    probe.wait("the endless one is closed", |seen| seen.dropped == 2);
    drop((silent, endless));
    server.stop_and_join();
}

pub(crate) fn a_client_that_closed_its_sending_side_gets_its_answer<M: Model>() {
    let (server, probe) = serve::<M>(Limits::default());
    for len in [10, 10 * MIB] {
        let mut client = server.connect();
        client.send(format!("big {len}\necho after\n")).end();
        let bytes = client.rest();
        assert!(
            bytes[..len] == pattern(len) && &bytes[len..] == b"after\n",
            "{len} bytes"
        );
    }
    let mut client = server.connect();
    client
        .send(format!("gated-shout late\nbig {}\n", 10 * MIB))
        .end();
    probe.wait("the job has begun", |seen| seen.jobs_begun == 1);
    probe.open_gate();
    assert_eq!(client.line(), "LATE");
    assert!(client.rest() == pattern(10 * MIB));
    probe.wait("all are closed", |seen| seen.dropped == 3);
    assert_eq!(server.stop_and_join().failed, 0);
}

pub(crate) fn an_incomplete_command_at_the_end_of_input_gets_no_answer<M: Model>() {
    let (server, probe) = serve::<M>(Limits::default());
    for input in ["", "echo x", "echo x\necho y"] {
        let mut client = server.connect();
        client.send(input).end();
        let answers = input.matches('\n').count();
        assert_eq!(client.rest(), &b"x\n"[..2 * answers]);
    }
    probe.wait("all are closed", |seen| seen.dropped == 3);
    assert_eq!(server.stop_and_join().failed, 0);
}

pub(crate) fn a_deadline_is_kept_and_put_off<M: Model>() {
    let (server, probe) = serve::<M>(Limits::default());
    let mut waits = server.connect();
    let begun = Instant::now();
    waits.send("expire 100\n");
    // This one is not there in time, and then is taken back by a command.
    let mut works = server.connect();
    works.send("expire 60000\n");
    assert_eq!(works.ask("echo x"), "x");
    assert_eq!(waits.rest(), b"expired\n");
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(works.ask("echo y"), "y");
    assert_eq!(probe.seen().expired, 1);
    // Shorter than the one that is armed.
    works.send("expire 60000\nexpire 1\n");
    assert_eq!(works.rest(), b"expired\n");
    server.stop_and_join();
}

pub(crate) fn output_may_go_on_after_a_deadline<M: Model>() {
    let (server, _) = serve::<M>(Limits::default());
    let mut client = server.connect();
    client.send("flood-later 1\n");
    assert_eq!(client.bytes(20 * MIB).len(), 20 * MIB);
    drop(client);
    // One that did not close but reads on.
    let mut client = server.connect();
    client.send("read-on-later 1\n");
    assert_eq!(client.ask("echo x"), "x");
    drop(client);
    server.stop_and_join();
}

/// While the output of a session is full its deadline may come; the input has ended by then.
pub(crate) fn a_deadline_after_the_end_of_input_ends_the_connection<M: Model>() {
    let (server, probe) = serve::<M>(Limits::default());
    let mut client = server.connect();
    client.send("read-on-later 50\n").end();
    assert!(client.rest().is_empty());
    probe.wait("it is closed", |seen| seen.dropped == 1);
    server.stop_and_join();
}

pub(crate) fn a_peer_that_takes_nothing_is_cut<M: Model>() {
    let write_stall_timeout = Some(Duration::from_millis(200));
    let (server, probe) = serve::<M>(Limits {
        write_stall_timeout,
        ..Limits::default()
    });
    let mut flooded = server.connect();
    flooded.send("flood\n");
    let mut closing = server.connect();
    closing.send(format!("bye-big {}\n", 32 * MIB));
    probe.wait("both are closed", |seen| seen.dropped == 2);
    for mut client in [flooded, closing] {
        assert_eq!(client.rest_or_reset().1, End::Reset);
    }
    assert_eq!(server.stop_and_join().write_stalls, 2);
}

/// Where the machine held the reader up, an attempt tells nothing; the next one has more time.
pub(crate) fn a_slow_but_steady_reader_is_not_cut<M: Model>() {
    for timeout_ms in [500, 1000, 2000, 4000, 8000] {
        let timeout = Duration::from_millis(timeout_ms);
        let (stalls, longest_pause) = read_slowly::<M>(timeout);
        if stalls == 0 {
            return;
        }
        assert!(
            longest_pause >= timeout / 4,
            "cut after {timeout:?}, but it paused for {longest_pause:?} at most"
        );
    }
    panic!("this machine is too busy for a steady reader");
}

/// Reads for longer than the time that a peer may take nothing; answers how many were cut for that,
/// and the longest time between two reads.
fn read_slowly<M: Model>(timeout: Duration) -> (u64, Duration) {
    let (server, _) = serve::<M>(Limits {
        write_stall_timeout: Some(timeout),
        ..Limits::default()
    });
    let mut client = server.connect();
    client.send("flood\n");
    let (begun, mut last) = (Instant::now(), Instant::now());
    let mut longest_pause = Duration::ZERO;
    // Fast enough for the window to open now and then.
    let mut piece = vec![0; 256 * 1024];
    while begun.elapsed() < 3 * timeout && client.socket().read_exact(&mut piece).is_ok() {
        thread::park_timeout(Duration::from_millis(10));
        longest_pause = longest_pause.max(last.elapsed());
        last = Instant::now();
    }
    longest_pause = longest_pause.max(last.elapsed());
    drop(client);
    (server.stop_and_join().write_stalls, longest_pause)
}

pub(crate) fn a_panic_ends_one_connection_and_leaks_nothing<M: Model>() {
    let (server, probe) = serve::<M>(Limits::default());
    let mut other = server.connect();
    assert_eq!(other.ask("echo before"), "before");
    let commands = [
        "panic\n",
        "echo ok\npanic\n",
        "panic-later 1\n",
        "panic-after-job x\n",
    ];
    for (at, command) in commands.iter().enumerate() {
        let mut client = server.connect();
        client.send(command);
        let (bytes, _) = client.rest_or_reset();
        assert!(
            bytes.is_empty() || bytes == b"ok\n",
            "{command:?} was answered {bytes:?}"
        );
        probe.wait("its session is gone", |seen| seen.dropped == 2 * at + 1);
        assert_eq!(other.ask("echo after"), "after");
        assert_eq!(server.connect().ask("echo new"), "new");
        probe.wait("the new one is gone", |seen| seen.dropped == 2 * at + 2);
    }
    drop(other);
    assert_eq!(server.stop_and_join().panics, commands.len() as u64);
}

pub(crate) fn an_abort_resets_the_connection<M: Model>() {
    let (server, _) = serve::<M>(Limits::default());
    let mut client = server.connect();
    client.send("abort\n");
    let (bytes, end) = client.rest_or_reset();
    assert_eq!((bytes.as_slice(), end), (&b""[..], End::Reset));
    server.stop_and_join();
}

pub(crate) fn a_reset_by_the_peer_ends_the_session_in_every_state<M: Model>() {
    let (server, probe) = serve::<M>(Limits::default());
    let states = [
        "",
        "echo half",
        "flood\n",
        "gated-shout x\n",
        "bye-big 32000000\n",
        "bye x\n",
    ];
    for (at, state) in states.iter().enumerate() {
        let mut client = server.connect();
        client.send(state);
        match *state {
            "flood\n" | "bye-big 32000000\n" | "bye x\n" => drop(client.bytes(1)),
            "gated-shout x\n" => {
                probe.wait("the job has begun", |seen| seen.jobs_begun == 1);
            }
            _ => {
                probe.wait("it is accepted", |seen| seen.opened == at + 1);
            }
        }
        reset(client);
        if *state == "gated-shout x\n" {
            probe.open_gate();
        }
        probe.wait("its session is gone", |seen| seen.dropped == at + 1);
    }
    assert_eq!(server.connect().ask("echo on"), "on");
    server.stop_and_join();
}

/// Ends a connection by a reset.
fn reset(client: Client) {
    windlass_sys::net::set_linger_zero(client.socket().as_fd()).unwrap();
    drop(client);
}
