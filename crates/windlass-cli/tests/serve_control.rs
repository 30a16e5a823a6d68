//! `windlass serve` and its signals: reload, dump, restart; and sockets that are passed to it.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use common::{Client, Load, PATIENCE, Serve, TempDir, get, header, pid_in, send_signal, site};
use rustix::process::Signal;

#[test]
fn restarts_under_load_fail_no_request() {
    let serve = Serve::start(
        site(),
        &["--access-log=off", "--threads=2", "--listen=127.0.0.1:0"],
    );
    let load = Load::start(serve.addrs[0]);
    let mut pid = serve.pid();
    for _ in 0..2 {
        load.wait_for(200);
        send_signal(pid, Signal::USR2);
        pid = pid_in(&serve.line_with("started process"));
        let over = serve.line_with("has taken over");
        assert_eq!(pid_in(&over), pid);
        serve.line_with("stopped:");
        load.wait_for(200);
    }
    assert!(load.end() >= 800);
    send_signal(pid, Signal::TERM);
    let said = serve.end();
    assert!(!said.contains("cut at the stop"), "{said}");
}

#[test]
fn a_restart_lets_answers_finish_and_idle_connections_end() {
    const LEN: u64 = 64 << 20;
    let dir = TempDir::with_hole("restart", LEN);
    let serve = Serve::quiet(&dir.0);
    let mut idle = serve.connect();
    assert_eq!(idle.get("/missing").status, 404);
    let mut busy = serve.connect();
    busy.send(get("/hole"));
    let mut first = [0; 1000];
    busy.stream.read_exact(&mut first).unwrap();
    serve.signal(Signal::USR2);
    let successor = pid_in(&serve.line_with("has taken over"));
    assert!(idle.rest().is_empty());
    assert_eq!(serve.connect().get("/missing").status, 404);
    let got = first.len() as u64 + busy.rest().len() as u64;
    assert!((LEN..LEN + 1000).contains(&got), "{got} bytes");
    serve.line_with("stopped:");
    send_signal(successor, Signal::TERM);
    serve.end();
}

#[test]
fn a_successor_that_cannot_start_leaves_all_as_it_was() {
    let dir = TempDir::new("bad-successor");
    let config = dir.0.join("windlass.toml");
    fs::write(&config, "dir = \".\"\n").unwrap();
    fs::write(dir.0.join("a"), "a").unwrap();
    let flag = format!("--config={}", config.display());
    let serve = Serve::start(&dir.0, &["--access-log=off", &flag]);
    fs::write(&config, "dri = \".\"\n").unwrap();
    serve.signal(Signal::USR2);
    let why = serve.line_with("windlass.toml:1:");
    assert!(why.contains("dri"), "{why}");
    let gave_up = serve.line_with("this process goes on");
    assert!(
        gave_up.contains("before it was ready (exit status: 1)"),
        "{gave_up}"
    );
    assert_eq!(serve.connect().get("/a").status, 200);
    // It can be tried again.
    fs::write(&config, "dir = \".\"\n").unwrap();
    serve.signal(Signal::USR2);
    let successor = pid_in(&serve.line_with("has taken over"));
    assert_eq!(serve.connect().get("/a").status, 200);
    send_signal(successor, Signal::TERM);
    serve.end();
}

#[test]
fn a_unix_socket_outlives_a_restart_and_not_the_server() {
    let dir = TempDir::new("unix");
    let path = dir.0.join("socket");
    let flag = format!("--unix={}", path.display());
    let arguments = [
        "--access-log=off",
        "--listen=127.0.0.1:0",
        &flag,
        "--unix-mode=600",
    ];
    let serve = Serve::start(site(), &arguments);
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(&path), 0o600);
    let ask = || {
        let socket = path.to_str().unwrap();
        let url = "http://localhost/data.json";
        let status = ["--output", "/dev/null", "--write-out", "%{http_code}"];
        common::curl(&[&status[..], &["--unix-socket", socket, url]].concat())
    };
    assert_eq!(ask(), b"200");
    serve.signal(Signal::USR2);
    let successor = pid_in(&serve.line_with("has taken over"));
    serve.line_with("stopped:");
    assert_eq!(ask(), b"200");
    send_signal(successor, Signal::TERM);
    serve.end();
    assert!(!path.exists());
}

/// Starts the server as a service manager does: with a listener as descriptor 3.
fn activated(listener: &TcpListener, arguments: &str) -> Command {
    rustix::io::fcntl_setfd(listener, rustix::io::FdFlags::empty()).unwrap();
    let script = format!(
        "exec 3<&{}; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve {arguments} \"$@\"",
        listener.as_raw_fd()
    );
    // Other shells take descriptors of one digit only, and other tests have some open.
    let mut command = Command::new("bash");
    command
        .args(["-c", &script, env!("CARGO_BIN_EXE_windlass")])
        .arg(site());
    command
}

#[test]
fn a_passed_socket_is_served_also_by_a_successor() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // The harness adds --listen, which gives way.
    let serve = Serve::over(activated(&listener, "--access-log=off --threads=2"));
    drop(listener);
    assert_eq!(serve.addrs, [addr]);
    assert_eq!(serve.connect().get("/").status, 200);
    serve.signal(Signal::USR2);
    let successor = pid_in(&serve.line_with("has taken over"));
    serve.line_with("stopped:");
    assert_eq!(serve.connect().get("/").status, 200);
    send_signal(successor, Signal::TERM);
    serve.end();
}

#[test]
fn the_service_manager_is_told() {
    let dir = TempDir::new("notify");
    let path = dir.0.join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut buf = [0; 200];
        let len = manager.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..len]).into_owned()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.env("NOTIFY_SOCKET", &path);
    command.args(["serve", "--access-log=off"]).arg(site());
    let serve = Serve::over(command);
    assert_eq!(told(), "READY=1");
    serve.signal(Signal::HUP);
    let reloading = told();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(told(), "READY=1");
    serve.signal(Signal::USR2);
    let successor = pid_in(&serve.line_with("has taken over"));
    assert_eq!(told(), format!("MAINPID={successor}\nREADY=1"));
    send_signal(successor, Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    serve.end();
}

#[test]
fn a_reload_changes_what_is_served_and_a_broken_one_nothing() {
    let dir = TempDir::new("reload");
    let config = dir.0.join("windlass.toml");
    let write = |text: &str| fs::write(&config, format!("dir = \"site\"\n{text}")).unwrap();
    fs::create_dir(dir.0.join("site")).unwrap();
    fs::write(dir.0.join("site/a"), "a").unwrap();
    fs::write(dir.0.join("404.html"), "<p>first").unwrap();
    write("headers = [\"X-A: 1\"]\nerror_pages = [\"404=404.html\"]\nthreads = 2\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["serve", "--access-log=off", "--config"])
        .arg(&config);
    let serve = Serve::over(command);
    let mut open = serve.connect();
    let look = |client: &mut Client| {
        let found = client.get("/a");
        let missing = client.get("/b");
        assert_eq!((found.status, missing.status), (200, 404));
        let value = header(&found.head, "x-a").unwrap_or("none").to_owned();
        (value, String::from_utf8(missing.body).unwrap())
    };
    assert_eq!(look(&mut open), ("1".into(), "<p>first".into()));

    fs::write(dir.0.join("404.html"), "<p>second").unwrap();
    write("headers = [\"X-A: 2\"]\nerror_pages = [\"404=404.html\"]\nthreads = 3\n");
    serve.signal(Signal::HUP);
    serve.line_with("reloaded");
    serve.line_with("threads has changed, which takes a restart");
    // Loops take it in turn; an open connection goes on with it.
    while look(&mut open).0 != "2" {}
    assert_eq!(look(&mut open), ("2".into(), "<p>second".into()));
    let mut fresh = serve.connect();
    while look(&mut fresh).0 != "2" {}

    for broken in ["headers = 1\n", "error_pages = [\"404=gone.html\"]\n"] {
        write(broken);
        serve.signal(Signal::HUP);
        let why = serve.line_with("all stays as it was");
        assert!(
            why.contains("windlass.toml:2:") || why.contains("gone.html"),
            "{why}"
        );
        assert_eq!(look(&mut open), ("2".into(), "<p>second".into()));
    }
    serve.stop();
}

#[test]
fn rotating_the_log_under_load_loses_no_line() {
    const ROTATIONS: usize = 5;
    let dir = TempDir::new("rotate");
    let log = dir.0.join("access.log");
    let flag = format!("--access-log-file={}", log.display());
    let serve = Serve::start(site(), &[&flag, "--access-log=json", "--threads=2"]);
    let load = Load::start(serve.addrs[0]);
    for number in 0..ROTATIONS {
        load.wait_for(100);
        fs::rename(&log, dir.0.join(format!("access.log.{number}"))).unwrap();
        serve.signal(Signal::HUP);
        serve.line_with("reloaded");
        assert!(log.exists());
    }
    load.wait_for(100);
    let asked = load.end();
    serve.stop();
    let mut lines = 0;
    for entry in fs::read_dir(&dir.0).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        for line in text.lines() {
            assert!(
                line.starts_with("{\"time\":\"") && line.ends_with("\"tls\":false}"),
                "{line}"
            );
            lines += 1;
        }
    }
    assert_eq!(lines, asked);
}

#[test]
fn a_dump_lists_the_events_of_each_loop() {
    let serve = Serve::start(
        site(),
        &["--access-log=off", "--threads=2", "--listen=127.0.0.1:0"],
    );
    serve.signal(Signal::USR1);
    for at in 0..2 {
        let listener = serve.line_with("listener 127.0.0.1:");
        assert!(listener.starts_with(&format!("loop {at}: ")), "{listener}");
    }
    assert_eq!(serve.connect().get("/").status, 200);
    serve.stop();
}

#[test]
fn a_health_check_fails_during_the_delay_of_a_stop_while_others_are_served() {
    let arguments = [
        "--access-log=off",
        "--healthz",
        "--stop-delay=1h",
        "--listen=127.0.0.1:0",
    ];
    let serve = Serve::start(site(), &arguments);
    let mut client = serve.connect();
    let check = client.get("/healthz");
    assert_eq!((check.status, &check.body[..]), (200, &b"ok\n"[..]));
    serve.signal(Signal::TERM);
    serve.line_with("stopping in 1h");
    assert_eq!(client.get("/healthz").status, 503);
    assert_eq!(serve.connect().get("/").status, 200);
    serve.signal(Signal::TERM);
    let said = serve.end();
    assert!(said.contains("again: stopping at once"), "{said}");
}

#[test]
fn what_was_cut_at_the_deadline_is_reported() {
    let dir = TempDir::with_hole("cut", 64 << 20);
    let serve = Serve::start(&dir.0, &["--access-log=off", "--stop-deadline=200ms"]);
    let mut client = serve.connect();
    client.send(get("/hole"));
    client.stream.read_exact(&mut [0; 1000]).unwrap();
    let local = client.socket().local_addr().unwrap();
    let said = serve.stop();
    assert!(said.contains(&format!("cut {local}: answering")), "{said}");
    assert!(said.contains("1 cut at the stop"), "{said}");
    let _ = client.socket().write_all(b"x");
}
