//! `windlass serve` under load, under attack, and at its end.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Client, PATIENCE, Serve, Status, TempDir, curl, get, report, run, send_signal, site};
use rustix::net::sockopt;
use rustix::process::Signal;
use windlass_sys::limits::raise_descriptor_limit;
use windlass_sys::net::set_linger_zero;

/// Runs wrk for a second; answers requests per second. No error is tolerated.
fn wrk(url: &str, connections: u32) -> f64 {
    let connections = format!("-c{connections}");
    let output = run("wrk", &["-t1", &connections, "-d1s", "--timeout=20s", url]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        !text.contains("Socket errors") && !text.contains("Non-2xx"),
        "{text}"
    );
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))
        .unwrap();
    let rate: f64 = rate.trim().parse().unwrap();
    assert!(rate > 0.0, "{text}");
    rate
}

#[test]
fn load_brings_no_error() {
    let serve = Serve::quiet(site());
    let idle_descriptors = serve.open_descriptors();
    for (path, connections) in [("/data.json", 1), ("/data.json", 100), ("/models.html", 50)] {
        let rate = wrk(&serve.url(path), connections);
        report(format_args!(
            "{rate:.0} requests/s of {path} on {connections} connections"
        ));
    }
    serve.wait_for_descriptors(idle_descriptors);
    serve.stop();
}

#[test]
fn a_large_file_takes_no_memory() {
    const LEN: u64 = 1 << 30;
    let dir = TempDir::with_hole("large", LEN);
    let serve = Serve::quiet(&dir.0);
    assert_eq!(serve.connect().get("/missing").status, 404);
    let before = serve.status();
    let url = serve.url("/hole");
    let sizes = ["--output", "/dev/null", "--write-out", "%{size_download}"];
    let size = curl(&[&sizes[..], &[&url]].concat());
    assert_eq!(String::from_utf8(size).unwrap(), LEN.to_string());
    let grown = serve.status().rss_peak_kib - before.rss_peak_kib;
    report(format_args!(
        "{grown} KiB more memory at the peak of a download of 1 GiB"
    ));
    assert!(grown < 2048, "{grown} KiB");
    serve.stop();
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_hinder_nobody() {
    const COUNT: usize = 10_000;
    raise_descriptor_limit(COUNT as u64 + 200).unwrap();
    let serve = Serve::quiet(site());
    let request = get("/data.json");
    assert_eq!(serve.connect().get("/data.json").status, 200);
    let before = serve.status();
    let mut idle: Vec<Client> = (0..COUNT)
        .map(|_| {
            let mut client = serve.connect();
            client.send(&request);
            client
        })
        .collect();
    // That all are accepted, and idle as connections are: after an answer.
    for client in &mut idle {
        assert_eq!(client.answer().status, 200);
    }
    let grown = serve.status().rss_kib - before.rss_kib;
    let each = grown * 1024 / COUNT as u64;
    report(format_args!(
        "{each} bytes of user memory for each idle connection"
    ));
    assert!(each < 4096, "{each} bytes");
    let rate = wrk(&serve.url("/data.json"), 50);
    report(format_args!(
        "{rate:.0} requests/s beside {COUNT} idle connections"
    ));
    for client in idle.iter_mut().step_by(97) {
        assert_eq!(client.get("/data.json").status, 200);
    }
    let cpu = serve.status().cpu_ticks;
    let begun = Instant::now();
    let said = serve.stop();
    report(format_args!(
        "{cpu} ticks used; stopped in {:?}",
        begun.elapsed()
    ));
    assert!(!said.contains("cut at the stop"), "{said}");
}

#[test]
fn tiny_socket_buffers_change_nothing() {
    let dir = TempDir::new("tiny");
    let content: Vec<u8> = (0..30_000_u32).flat_map(u32::to_be_bytes).collect();
    fs::write(dir.0.join("numbers"), &content).unwrap();
    let serve = Serve::quiet(&dir.0);
    let mut client = serve.connect();
    sockopt::set_socket_recv_buffer_size(client.socket().as_fd(), 4096).unwrap();
    sockopt::set_socket_send_buffer_size(client.socket().as_fd(), 1).unwrap();
    for _ in 0..2 {
        client.send(get("/numbers")).send(get("/missing"));
    }
    for _ in 0..2 {
        assert!(client.answer().body == content);
        assert_eq!(client.answer().status, 404);
    }
    serve.stop();
}

#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    // Standard output is a pipe that the test does not read.
    let serve = Serve::start(site(), &["--access-log", "combined"]);
    let line = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(8000));
    let mut client = serve.connect();
    // Far more than a pipe takes.
    for _ in 0..200 {
        assert_eq!(client.send(&line).answer().status, 404);
    }
    let begun = Instant::now();
    let said = serve.stop();
    assert!(begun.elapsed() < PATIENCE / 2, "the log held up the end");
    assert!(said.contains("of the access log were lost"), "{said}");
}

#[test]
fn a_log_whose_reader_is_gone_holds_up_nobody() {
    let mut serve = Serve::start(site(), &[]);
    drop(serve.stdout());
    let mut client = serve.connect();
    for _ in 0..100 {
        assert_eq!(client.get("/data.json").status, 200);
    }
    serve.stop();
}

/// Clients ask as fast as they can; each gets whole answers, then an end.
#[test]
fn both_signals_stop_gracefully_under_load() {
    for signal in [Signal::INT, Signal::TERM] {
        let serve = Serve::quiet(site());
        let content = fs::read(site().join("models.html")).unwrap();
        let answered = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..16)
            .map(|_| {
                let mut client = serve.connect();
                let (answered, content) = (Arc::clone(&answered), content.clone());
                thread::spawn(move || {
                    while client
                        .stream
                        .get_mut()
                        .write_all(get("/models.html").as_bytes())
                        .is_ok()
                    {
                        let Some(answer) = client.try_answer() else {
                            break;
                        };
                        assert!(answer.status == 200 && answer.body == content);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while answered.load(Ordering::Relaxed) < 500 {
            thread::yield_now();
        }
        serve.signal(signal);
        let said = serve.end();
        assert!(
            said.contains("stopping") && !said.contains("cut at"),
            "{said}"
        );
        for client in clients {
            // Its connection is over, or this would not end.
            client.join().unwrap();
        }
    }
}

#[test]
fn a_second_signal_stops_at_once_and_the_first_lets_a_download_finish() {
    const LEN: u64 = 64 << 20;
    let dir = TempDir::with_hole("stop", LEN);
    let serve = Serve::start(&dir.0, &["--access-log=off", "--stop-deadline=1000"]);
    let mut client = serve.connect();
    client.send(get("/hole"));
    let mut first = [0; 1000];
    client.stream.read_exact(&mut first).unwrap();
    serve.signal(Signal::TERM);
    assert!(serve.line().ends_with("stopping"));
    let got = first.len() as u64 + client.rest().len() as u64;
    assert!((LEN..LEN + 1000).contains(&got), "{got} bytes");
    assert!(!serve.end().contains("cut"));

    let serve = Serve::start(&dir.0, &["--access-log=off", "--stop-deadline=1000"]);
    let mut client = serve.connect();
    client.send(get("/hole"));
    client.stream.read_exact(&mut first).unwrap();
    serve.signal(Signal::TERM);
    assert!(serve.line().ends_with("stopping"));
    serve.signal(Signal::INT);
    let said = serve.end();
    assert!(
        said.contains("stopping at once") && said.contains("1 cut at the stop"),
        "{said}"
    );
    assert!((client.rest().len() as u64) < LEN);
}

#[test]
fn a_stop_deadline_is_kept() {
    let dir = TempDir::with_hole("deadline", 64 << 20);
    let serve = Serve::start(&dir.0, &["--access-log=off", "--stop-deadline=1"]);
    let mut client = serve.connect();
    client.send(get("/hole"));
    client.stream.read_exact(&mut [0; 1000]).unwrap();
    let begun = Instant::now();
    let said = serve.stop();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(said.contains("1 cut at the stop"), "{said}");
}

#[test]
fn nobody_reading_standard_error_does_not_prevent_a_stop() {
    // The reader of standard error takes the first line, which has the address, and goes.
    let pipe = "exec \"$0\" serve --access-log off \"$1\" \"$2\" 2> >(head -n1 >&2)";
    let mut command = std::process::Command::new("bash");
    command
        .arg("-c")
        .arg(pipe)
        .arg(env!("CARGO_BIN_EXE_windlass"))
        .arg(site());
    let serve = Serve::over(command);
    assert_eq!(serve.connect().get("/").status, 200);
    serve.stop();
}

/// What clients do by malice or accident. Afterwards all is as before, and no time was burnt.
#[test]
fn hostile_clients_leave_nothing_behind() {
    let dir = TempDir::with_hole("hostile", 64 << 20);
    fs::write(dir.0.join("small"), "small").unwrap();
    raise_descriptor_limit(4096).unwrap();
    // Descriptors that are cached would be counted.
    let serve = Serve::start(&dir.0, &["--access-log=off", "--file-cache=0"]);
    let mut good = serve.connect();
    assert_eq!(good.get("/small").status, 200);
    let idle_descriptors = serve.open_descriptors();

    // Opened and closed, by a reset and in order.
    for at in 0..5000 {
        let stream = TcpStream::connect(serve.addrs[0]).unwrap();
        if at % 2 == 0 {
            set_linger_zero(stream.as_fd()).unwrap();
        }
    }
    // Nothing but an end; half a request; a request and a reset; a download and a reset.
    for at in 0..400 {
        let stream = TcpStream::connect(serve.addrs[0]).unwrap();
        let request = match at % 4 {
            0 => String::new(),
            1 => "GET /small HTTP/1.1\r\nHo".into(),
            2 => get("/small"),
            _ => get("/hole"),
        };
        (&stream).write_all(request.as_bytes()).unwrap();
        if at % 8 < 4 {
            stream.shutdown(Shutdown::Write).unwrap();
        } else {
            if at % 4 >= 2 {
                (&stream).read_exact(&mut [0; 10]).unwrap();
            }
            set_linger_zero(stream.as_fd()).unwrap();
        }
    }
    assert_eq!(good.get("/small").status, 200);
    // Heads without end, in one line and in many.
    for (piece, status) in [("x".repeat(1000), 414), ("A: b\r\n".repeat(200), 431)] {
        let mut client = serve.connect();
        client.send(if status == 414 {
            "GET /"
        } else {
            "GET / HTTP/1.1\r\nHost: h\r\n"
        });
        for _ in 0..100 {
            // The answer comes before the end of it.
            if client.socket().write_all(piece.as_bytes()).is_err() {
                break;
            }
        }
        assert_eq!(client.answer().status, status);
    }
    // Noise, and another protocol.
    for noise in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        &[0; 100_000],
        b"\n\n\n\n",
    ] {
        let mut client = serve.connect();
        let _ = client.socket().write_all(noise);
        let _ = client.socket().shutdown(Shutdown::Write);
        let answer = client.rest();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "));
    }
    serve.wait_for_descriptors(idle_descriptors);

    // Slow ones that hang on: a half request each, then a byte now and then; readers that stop.
    let mut slow: Vec<Client> = (0..500).map(|_| serve.connect()).collect();
    for (at, client) in slow.iter_mut().enumerate() {
        client.send(if at % 2 == 0 {
            "GET /small HTTP/1.1\r\nA".into()
        } else {
            get("/hole")
        });
    }
    assert_eq!(good.get("/small").status, 200);
    let before = serve.status();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        for client in slow.iter_mut().step_by(100) {
            client.send("a");
        }
        assert_eq!(good.get("/small").status, 200);
        thread::park_timeout(Duration::from_millis(50));
    }
    let ticks = serve.status().cpu_ticks - before.cpu_ticks;
    report(format_args!(
        "{ticks} of 200 ticks of processor time with 500 slow clients"
    ));
    assert!(
        ticks < 40,
        "{ticks} hundredths of a second of 2 s: it spins"
    );
    drop(slow);
    serve.wait_for_descriptors(idle_descriptors);
    serve.stop();
}

#[test]
fn a_server_that_was_frozen_goes_on() {
    let serve = Serve::quiet(site());
    let mut client = serve.connect();
    assert_eq!(client.get("/data.json").status, 200);
    serve.signal(Signal::STOP);
    let mut waiting: Vec<Client> = (0..100).map(|_| serve.connect()).collect();
    for client in &mut waiting {
        client.send(get("/data.json"));
    }
    client.send(get("/data.json"));
    serve.signal(Signal::CONT);
    assert_eq!(client.answer().status, 200);
    for client in &mut waiting {
        assert_eq!(client.answer().status, 200);
    }
    serve.stop();
}

/// With 64 descriptors: new connections wait, those that there are go on and get their files, for
/// which descriptors are kept, and no time is burnt.
#[test]
fn without_descriptors_those_connected_are_served() {
    let mut command = std::process::Command::new("sh");
    command
        .arg("-c")
        .arg("ulimit -n 64; exec \"$0\" serve --access-log off \"$1\" \"$2\"");
    command.arg(env!("CARGO_BIN_EXE_windlass")).arg(site());
    let serve = Serve::over(command);
    let mut good = serve.connect();
    assert_eq!(good.get("/data.json").status, 200);
    let mut clients: Vec<Client> = (0..200).map(|_| serve.connect()).collect();
    for client in &mut clients {
        client.send(get("/data.json"));
    }
    assert_eq!(clients[0].answer().status, 200);
    let before = Status::of(serve.pid());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        assert_eq!(good.get("/data.json").status, 200);
        thread::park_timeout(Duration::from_millis(20));
    }
    let ticks = serve.status().cpu_ticks - before.cpu_ticks;
    assert!(
        ticks < 30,
        "{ticks} hundredths of a second of 1 s: it spins"
    );
    drop(clients);
    let mut late = serve.connect();
    assert_eq!(late.get("/data.json").status, 200);
    let said = serve.stop();
    assert!(!said.contains("without descriptors"), "{said}");
}

#[test]
fn a_killed_server_frees_its_address_at_once() {
    let serve = Serve::quiet(site());
    let mut client = serve.connect();
    assert_eq!(client.get("/").status, 200);
    let addr = serve.addrs[0];
    send_signal(serve.pid(), Signal::KILL);
    assert!(client.rest().is_empty());
    drop(serve);
    let listen = format!("--listen={addr}");
    let again = Serve::start(site(), &["--access-log=off", &listen]);
    assert_eq!(again.connect().get("/").status, 200);
    again.stop();
}
