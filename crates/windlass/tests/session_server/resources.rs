//! Connections and descriptors are counted, and there may be too few.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use windlass::models::Limits;

use crate::harness::{Client, Model, Options, PATIENCE, Server, is_child, spawn_self};
use crate::sessions::LineService;

pub(crate) fn no_more_connections_than_the_limit<M: Model>() {
    let limits = Limits {
        connections_max: 2,
        ..Limits::default()
    };
    let service = LineService::default();
    let probe = Arc::clone(&service.probe);
    let server = Server::start::<M, _>(
        service,
        Options {
            limits,
            ..Options::default()
        },
    );
    let mut first = server.connect();
    let mut second = server.connect();
    assert_eq!(first.ask("echo 1"), "1");
    assert_eq!(second.ask("echo 2"), "2");
    let mut third = server.connect();
    third.send("echo 3\n");
    for _ in 0..100 {
        assert_eq!(first.ask("echo 1"), "1");
        assert_eq!(second.ask("echo 2"), "2");
    }
    assert_eq!(probe.seen().opened, 2);
    drop(first);
    assert_eq!(third.line(), "3");
    drop((second, third));
    let report = server.stop_and_join();
    // A limit of one's own is no lack of descriptors.
    assert_eq!((report.accepted, report.accept_pauses), (3, 0));
}

/// The server is another process, with 64 descriptors.
pub(crate) fn accepting_pauses_without_descriptors_and_resumes<M: Model>() {
    if is_child() {
        let server = Server::start::<M, _>(LineService::default(), Options::default());
        println!("\naddress {}", server.addr);
        // Until the parent has closed it.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        let report = server.stop_and_join();
        println!("\npauses {}", report.accept_pauses);
        println!("accepted {}", report.accepted);
        return;
    }
    let began = Instant::now();
    let mut child = spawn_self::<M>("accepting_pauses_without_descriptors_and_resumes", 64);
    let mut output = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut value = |name: &str| -> String {
        let mut lines = output.by_ref().map(Result::unwrap);
        lines
            .find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
            .unwrap()
    };
    let addr: SocketAddr = value("address").parse().unwrap();
    let mut existing = Client::connect(addr);
    assert_eq!(existing.ask("echo x"), "x");
    let mut clients: Vec<Client> = (0..200).map(|_| Client::connect(addr)).collect();
    for client in &mut clients {
        client.send("echo waited\n");
    }
    // As many as there are descriptors for are served.
    assert_eq!(clients[0].line(), "waited");
    let cpu_before = cpu_ticks(child.0.id());
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    // The pauses get longer from 10 to 640 ms; this is past the shorter ones.
    while begun.elapsed() < Duration::from_millis(1500) {
        let asked = Instant::now();
        assert_eq!(existing.ask("echo x"), "x");
        slowest = slowest.max(asked.elapsed());
        thread::park_timeout(Duration::from_millis(20));
    }
    let cpu = cpu_ticks(child.0.id()) - cpu_before;
    // Of 150 hundredths of a second; a loop that spins takes most of them.
    assert!(
        cpu < 40,
        "{cpu} hundredths of a second of processor time in 1.5 s"
    );
    assert!(
        slowest < PATIENCE / 6,
        "an existing connection waited for {slowest:?}"
    );
    let freed = Instant::now();
    let last = clients.pop().unwrap();
    drop(clients);
    let mut last = last;
    assert_eq!(last.line(), "waited");
    // 640 ms is the longest pause; twice it, and what a loaded machine adds.
    assert!(
        freed.elapsed() < PATIENCE / 3,
        "resumed after {:?}",
        freed.elapsed()
    );
    drop((existing, last));
    drop(child.0.stdin.take());
    let pauses: u64 = value("pauses").parse().unwrap();
    // Those up to 320 ms, twice at most as they begin anew, and then one each 640 ms.
    let pauses_max = 20 + began.elapsed().as_millis() as u64 / 640;
    assert!((1..pauses_max).contains(&pauses), "{pauses} pauses");
    assert_eq!(value("accepted"), "201");
    assert!(child.0.wait().unwrap().success());
}

/// User and system time of a process, in hundredths of a second.
pub(crate) fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    let ticks = |at: usize| fields.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
    ticks(11) + ticks(12)
}

/// In a process of its own, as other tests open descriptors too.
pub(crate) fn no_descriptor_is_left_behind<M: Model>() {
    if !is_child() {
        let mut child = spawn_self::<M>("no_descriptor_is_left_behind", 256);
        let mut output = String::new();
        child
            .0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut output)
            .unwrap();
        assert!(child.0.wait().unwrap().success(), "{output}");
        return;
    }
    let service = LineService::default();
    let probe = Arc::clone(&service.probe);
    let limits = Limits {
        linger_timeout: Duration::from_millis(1),
        ..Limits::default()
    };
    let server = Server::start::<M, _>(
        service,
        Options {
            limits,
            ..Options::default()
        },
    );
    // Whatever is opened once is open by then.
    assert_eq!(server.connect().ask("shout x"), "X");
    probe.wait("it is closed", |seen| seen.dropped == 1);
    let before = open_descriptors();
    let commands = [
        "echo x\n",
        "bye x\n",
        "panic\n",
        "abort\n",
        "shout x\n",
        "flood\n",
        "bye-big 9000000\n",
        "",
    ];
    let count = 240;
    for at in 0..count {
        let client = server.connect();
        client
            .socket()
            .write_all(commands[at % commands.len()].as_bytes())
            .unwrap();
        match at % 3 {
            // The other end may be gone.
            0 => drop(client.socket().shutdown(std::net::Shutdown::Write)),
            1 => windlass_sys::net::set_linger_zero(client.socket().as_fd()).unwrap(),
            _ => {}
        }
        if at % 5 == 0 && !commands[at % commands.len()].is_empty() {
            let _ = client.socket().read(&mut [0; 100]);
        }
        drop(client);
    }
    // A connection that was reset before it was accepted is not opened.
    let mut last = server.connect();
    assert_eq!(last.ask("echo last"), "last");
    drop(last);
    probe.wait("all are closed", |seen| seen.opened == seen.dropped);
    // One that was dealt to another thread may not have got there yet.
    let begun = Instant::now();
    while open_descriptors() > before && begun.elapsed() < PATIENCE {
        thread::yield_now();
    }
    // Fewer, if the first one was still about to be closed when they were counted.
    assert!(
        open_descriptors() <= before,
        "{} > {before}",
        open_descriptors()
    );
    server.stop_and_join();
    assert!(
        open_descriptors() < before,
        "the server's own are closed too"
    );
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
