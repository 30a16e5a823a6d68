//! The graceful stop.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use windlass::models::Limits;

use crate::harness::{Model, Options, PATIENCE, Server};
use crate::sessions::{LineService, Probe, pattern};

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

pub(crate) fn a_stop_closes_idle_connections_and_finishes_busy_ones<M: Model>() {
    let stop_deadline = PATIENCE;
    let (server, probe) = serve::<M>(Limits {
        stop_deadline,
        ..Limits::default()
    });
    let mut fresh = server.connect();
    let mut half = server.connect();
    half.send("echo hal");
    let mut idle = server.connect();
    assert_eq!(idle.ask("echo x"), "x");
    let mut reads_late = server.connect();
    let len = 32 * 1024 * 1024;
    reads_late.send(format!("echo first\nbig {len}\n"));
    assert_eq!(reads_late.line(), "first");
    let mut works = server.connect();
    works.send("gated-shout done\n");
    probe.wait("the job has begun", |seen| {
        (seen.jobs_begun, seen.opened) == (1, 5)
    });
    // It has a queued answer by then; its connection was served before this one.
    assert_eq!(idle.ask("echo y"), "y");

    server.stop();
    for client in [&mut fresh, &mut half, &mut idle] {
        assert!(client.rest().is_empty());
    }
    assert!(
        TcpStream::connect(server.addr).is_err(),
        "the listener is still open"
    );
    assert!(!server.has_ended());
    // A command that comes now is not begun.
    works.send("echo too late\n");
    probe.open_gate();
    assert_eq!(works.rest(), b"DONE\n");
    assert!(
        reads_late.rest() == pattern(len),
        "the queued answer was cut"
    );
    drop((fresh, half, idle, reads_late, works));
    let report = server.join();
    assert_eq!((report.accepted, report.cut), (5, 0));
}

pub(crate) fn a_stop_does_not_wait_for_idle_clients_to_close<M: Model>() {
    let limits = Limits {
        linger_timeout: PATIENCE,
        stop_deadline: PATIENCE * 2,
        ..Limits::default()
    };
    let (server, _) = serve::<M>(limits);
    let fresh = server.connect();
    let mut half = server.connect();
    // Its half line was read: what has just come would be a reason to linger.
    half.send("echo x\necho hal");
    assert_eq!(half.line(), "x");
    let mut idle = server.connect();
    assert_eq!(idle.ask("echo x"), "x");
    // That all are accepted.
    let begun = Instant::now();
    assert_eq!(server.stop_and_join().cut, 0);
    assert!(
        begun.elapsed() < PATIENCE / 2,
        "the stop waited for its idle clients"
    );
    for mut client in [fresh, half, idle] {
        assert!(client.rest_or_reset().0.is_empty());
    }
}

pub(crate) fn a_stop_closes_every_listener_first<M: Model>() {
    let service = LineService::default();
    let probe = Arc::clone(&service.probe);
    let (server, unused) = Server::start_on_two::<M, _>(service);
    let mut idle = server.connect();
    let mut works = server.connect();
    works.send("gated-shout x\n");
    probe.wait("the job has begun", |seen| {
        (seen.jobs_begun, seen.opened) == (1, 2)
    });
    server.stop();
    assert!(idle.rest().is_empty());
    for addr in [server.addr, unused] {
        assert!(
            TcpStream::connect(addr).is_err(),
            "{addr} is still listened on"
        );
    }
    probe.open_gate();
    assert_eq!(works.rest(), b"X\n");
    drop((idle, works));
    server.join();
}

pub(crate) fn a_stop_gives_up_at_its_deadline<M: Model>() {
    let stop_deadline = Duration::from_millis(200);
    let (server, probe) = serve::<M>(Limits {
        stop_deadline,
        ..Limits::default()
    });
    let mut works = server.connect();
    works.send("gated-shout x\n");
    probe.wait("the job has begun", |seen| seen.jobs_begun == 1);
    let mut blocked = server.connect();
    // Queued at once, and more than the kernel takes.
    blocked.send("big 33554432\n");
    blocked.bytes(8);
    let begun = Instant::now();
    let report = server.stop_and_join();
    assert!(begun.elapsed() >= stop_deadline);
    assert_eq!(report.cut, 2);
    assert!(works.rest_or_reset().0.is_empty());
    probe.open_gate();
}

pub(crate) fn a_second_stop_cuts<M: Model>() {
    let stop_deadline = PATIENCE * 2;
    let (server, probe) = serve::<M>(Limits {
        stop_deadline,
        ..Limits::default()
    });
    let mut works = server.connect();
    works.send("gated-shout x\n");
    probe.wait("the job has begun", |seen| seen.jobs_begun == 1);
    server.stop();
    server.stop();
    assert_eq!(server.join().cut, 1);
    assert!(works.rest_or_reset().0.is_empty());
    probe.open_gate();
}

/// Clients ask as fast as they can: each gets whole answers, then an end.
pub(crate) fn a_stop_under_load_loses_no_byte_of_an_answer<M: Model>() {
    for _ in 0..5 {
        let (server, _) = serve::<M>(Limits::default());
        let answered = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (addr, answered) = (server.addr, Arc::clone(&answered));
                thread::spawn(move || ask_until_the_end(addr, &answered))
            })
            .collect();
        while answered.load(Ordering::Relaxed) < 1000 {
            thread::yield_now();
        }
        let report = server.stop_and_join();
        assert_eq!(report.cut, 0);
        for client in clients {
            client.join().unwrap();
        }
    }
}

fn ask_until_the_end(addr: std::net::SocketAddr, answered: &AtomicUsize) {
    loop {
        let Ok(stream) = TcpStream::connect(addr) else {
            return;
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = BufReader::new(stream);
        let answer = "0123456789".repeat(100);
        for _ in 0..50 {
            let command = format!("shout x\necho {answer}\n");
            if stream.get_mut().write_all(command.as_bytes()).is_err() {
                break;
            }
            let (mut shout, mut echo) = (String::new(), String::new());
            let read = stream
                .read_line(&mut shout)
                .and_then(|_| stream.read_line(&mut echo));
            // Whole answers or none; a reset leaves what was read before it.
            assert!(shout.is_empty() || shout == "X\n", "{shout:?}");
            assert!(echo.is_empty() || echo.trim_end() == answer, "{echo:?}");
            if read.is_err() || echo.is_empty() {
                break;
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}
