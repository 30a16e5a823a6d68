//! Files that change while a whole server sends them.

mod common;
mod site;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use site::Site;
use windlass::models::{SingleLoop, StopHandle};
use windlass_http::{HttpConfig, HttpService, StaticFiles};

struct Server {
    addr: SocketAddr,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(files: StaticFiles) -> Self {
        let service = Arc::new(HttpService::new(files, HttpConfig::default()));
        let (send, started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let builder = SingleLoop::builder(service).listen(addr);
            let mut server = builder.build().expect("build");
            let started = (server.local_addrs()[0], server.stop_handle());
            send.send(started).expect("the test waits");
            server.run().expect("run");
        });
        let (addr, stop) = started.recv().expect("it starts");
        Self {
            addr,
            stop,
            thread: Some(thread),
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr).expect("connect");
        let timeout = Some(Duration::from_secs(20));
        client.set_read_timeout(timeout).expect("a time-out");
        client
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let mut client = self.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("send");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("receive");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; the thread tells.
        let _stopped = self.stop.stop();
        let thread = self.thread.take().expect("is joined once");
        thread.join().expect("no panic");
    }
}

const LONG: u64 = 80_000_000;

/// Writes a long file quickly: one with holes.
fn write_long(site: &Site) -> std::path::PathBuf {
    let path = site.write("long.bin", "");
    let file = fs::File::options().write(true).open(&path).expect("open");
    file.set_len(LONG).expect("extend");
    path
}

/// Begins to read an answer: its head, and how much of the body came with it.
fn read_head(client: &mut TcpStream) -> (String, u64) {
    let mut start = Vec::new();
    let mut buf = [0; 4096];
    loop {
        let count = client.read(&mut buf).expect("receive");
        assert!(count > 0, "the server closed");
        start.extend_from_slice(&buf[..count]);
        if let Some(at) = start.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8(start[..at].to_vec()).expect("ASCII");
            return (head, (start.len() - at - 4) as u64);
        }
    }
}

/// Reads to the end, however it comes; answers how many bytes there were.
fn read_rest(client: &mut TcpStream) -> u64 {
    let mut buf = vec![0; 65536];
    let mut sum = 0;
    loop {
        match client.read(&mut buf) {
            Ok(0) => return sum,
            Ok(count) => sum += count as u64,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return sum,
            Err(error) => panic!("receive: {error}"),
        }
    }
}

#[test]
fn pf39_a_file_cut_while_it_is_sent_ends_the_connection() {
    let site = Site::empty();
    let path = write_long(&site);
    let server = Server::start(site.files());
    for headers in [
        "",
        "Range: bytes=0-70000000\r\n",
        "Range: bytes=0-9,100-70000000\r\n",
    ] {
        write_long(&site);
        let mut client = server.connect();
        let request = format!("GET /long.bin HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
        // A second request waits behind: its answer must not be taken for content.
        client
            .write_all(request.repeat(2).as_bytes())
            .expect("send");
        let (head, begun) = read_head(&mut client);
        assert!(head.contains("Content-Length: "), "{head}");
        let file = fs::File::options().write(true).open(&path).expect("open");
        file.set_len(1_000_000).expect("cut");
        let got = begun + read_rest(&mut client);
        assert!(got < 60_000_000, "{got} bytes of a file that was cut");
    }
    // The server goes on, and tells the new length.
    let answer = server.get("/long.bin");
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.len() > 1_000_000);
}

#[test]
fn pf39_a_file_deleted_or_replaced_while_it_is_sent_is_sent_as_it_was_opened() {
    let site = Site::empty();
    let path = write_long(&site);
    let server = Server::start(site.files());
    for round in 0..2 {
        write_long(&site);
        let mut client = server.connect();
        let request = b"GET /long.bin HTTP/1.1\r\nHost: h\r\n\r\n";
        client.write_all(request).expect("send");
        let (_, begun) = read_head(&mut client);
        if round == 0 {
            fs::remove_file(&path).expect("remove");
        } else {
            fs::rename(site.write("other", "other"), &path).expect("rename");
        }
        let mut rest = (&client).take(LONG - begun);
        let mut content = Vec::new();
        rest.read_to_end(&mut content).expect("receive");
        assert_eq!(begun + content.len() as u64, LONG);
        assert!(content.iter().all(|byte| *byte == 0));
        // The connection is still good for the next, which sees the change.
        client.write_all(request).expect("send");
        let (head, _) = read_head(&mut client);
        let expected = if round == 0 {
            "HTTP/1.1 404"
        } else {
            "HTTP/1.1 200"
        };
        assert!(head.starts_with(expected), "{head}");
    }
}

#[test]
fn pf40_a_directory_that_is_swapped_for_a_link_all_the_time_never_leaks() {
    let site = Site::empty();
    let root = site.root();
    site.write("d/f.txt", "public");
    fs::create_dir(site.dir.join("secret")).expect("create");
    fs::write(site.dir.join("secret/f.txt"), "SECRET").expect("write");
    symlink("../secret", site.dir.join("link")).expect("link");
    let server = Server::start(site.files());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs::rename(root.join("d"), site.dir.join("kept")).expect("rename");
                fs::rename(site.dir.join("link"), root.join("d")).expect("rename");
                fs::rename(root.join("d"), site.dir.join("link")).expect("rename");
                fs::rename(site.dir.join("kept"), root.join("d")).expect("rename");
            }
        });
        let mut served = 0;
        for _ in 0..1500 {
            let answer = String::from_utf8(server.get("/d/f.txt")).expect("ASCII");
            assert!(!answer.contains("SECRET"), "{answer}");
            served += usize::from(answer.contains("public"));
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(served > 0, "nothing was served at all");
    });
}

#[test]
fn a_file_replaced_all_the_time_is_always_whole_and_its_tag_names_its_content() {
    let site = Site::empty();
    let path = site.write("f.txt", "a".repeat(1000));
    let server = Server::start(site.files());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let byte = char::from(b'a' + (n % 26) as u8);
                fs::rename(site.write("new", byte.to_string().repeat(1000)), &path)
                    .expect("rename");
            }
        });
        let mut tags = std::collections::HashMap::new();
        for _ in 0..1000 {
            let answer = String::from_utf8(server.get("/f.txt")).expect("ASCII");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            assert_eq!(body.len(), 1000);
            assert!(body.bytes().all(|byte| byte == body.as_bytes()[0]));
            if let Some(tag) = head.lines().find(|line| line.starts_with("ETag")) {
                let first = tags
                    .entry(tag.to_owned())
                    .or_insert_with(|| body.to_owned());
                assert_eq!(first, body, "{tag} names two contents");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
