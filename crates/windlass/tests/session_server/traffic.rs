//! Bytes, jobs, floods and files on their way.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use windlass::models::Limits;
use windlass::pool::{PoolConfig, WorkerPool};

use crate::harness::{Client, End, Model, Options, Server};
use crate::sessions::{FLOOD_CHUNK_BYTES, HoardingService, LineService, Probe, pattern};

/// More than the kernel buffers between two ends.
const LARGE_BYTES: usize = 20 * 1024 * 1024;

fn serve<M: Model>(options: Options) -> (Server, Arc<Probe>) {
    let service = LineService::default();
    let probe = Arc::clone(&service.probe);
    (Server::start::<M, _>(service, options), probe)
}

pub(crate) fn answers_come_whole_and_in_order_however_the_input_is_cut<M: Model>() {
    let (server, _) = serve::<M>(Options::default());
    let input = b"echo one\necho\necho three 3\nwhat\necho five\n";
    let wanted = "one\n\nthree 3\nwhat?\nfive\n";
    for step in 1..=input.len() {
        let mut client = server.connect();
        for piece in input.chunks(step) {
            client.send(piece);
        }
        client.end();
        assert_eq!(
            String::from_utf8(client.rest()).unwrap(),
            wanted,
            "in pieces of {step}"
        );
    }
    let report = server.stop_and_join();
    assert_eq!(report.accepted, input.len() as u64);
    assert_eq!(report.received_bytes, (input.len() * input.len()) as u64);
    assert_eq!(report.sent_bytes, (wanted.len() * input.len()) as u64);
    assert_eq!((report.failed, report.cut), (0, 0));
}

pub(crate) fn many_clients_are_served_at_once<M: Model>() {
    let (server, _) = serve::<M>(Options::default());
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for round in 0..5 {
        for (at, client) in clients.iter_mut().enumerate() {
            client.send(format!("echo {at} {round}\n"));
        }
        for (at, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.line(), format!("{at} {round}"));
        }
    }
    drop(clients);
    assert_eq!(server.stop_and_join().accepted, 200);
}

pub(crate) fn pipelined_input_beyond_the_input_limit_is_answered<M: Model>() {
    let limits = Limits {
        input_bytes_max: 4096,
        ..Limits::default()
    };
    let (server, _) = serve::<M>(Options {
        limits,
        ..Options::default()
    });
    let mut client = server.connect();
    let mut writer = client.socket().try_clone().unwrap();
    let lines = 200_000;
    let sending = thread::spawn(move || {
        let mut input = String::new();
        for line in 0..lines {
            input.push_str(&format!("echo {line}\n"));
        }
        writer.write_all(input.as_bytes()).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    for line in 0..lines {
        assert_eq!(client.line(), line.to_string());
    }
    assert!(client.rest().is_empty());
    sending.join().unwrap();
    server.stop_and_join();
}

pub(crate) fn input_that_is_never_consumed_ends_the_connection_at_the_limit<M: Model>() {
    let limits = Limits {
        input_bytes_max: 8192,
        ..Limits::default()
    };
    let server = Server::start::<M, _>(
        HoardingService,
        Options {
            limits,
            ..Options::default()
        },
    );
    let mut client = server.connect();
    // The connection may end meanwhile.
    let _ = client.socket().write_all(&[b'x'; 100_000]);
    let (bytes, _) = client.rest_or_reset();
    assert!(bytes.is_empty());
    assert_eq!(server.stop_and_join().failed, 1);
}

pub(crate) fn jobs_keep_the_order_of_answers<M: Model>() {
    let (server, _) = serve::<M>(Options::default());
    let mut client = server.connect();
    client.send("shout a\nshout b\necho c\nshout d\nbye e\nshout never\n");
    assert_eq!(client.rest(), b"A\nB\nc\nD\ne\n");
    server.stop_and_join();
}

pub(crate) fn a_job_holds_up_no_other_connection<M: Model>() {
    let (server, probe) = serve::<M>(Options::default());
    let (mut waits, mut works) = (server.connect(), server.connect());
    waits.send("gated-shout slow\necho after\n").end();
    probe.wait("the job has begun", |seen| seen.jobs_begun == 1);
    for _ in 0..10 {
        assert_eq!(works.ask("echo quick"), "quick");
        assert_eq!(works.ask("shout quick"), "QUICK");
    }
    probe.open_gate();
    assert_eq!(waits.rest(), b"SLOW\nafter\n");
    server.stop_and_join();
}

pub(crate) fn more_jobs_than_the_pool_takes_are_all_done<M: Model>() {
    let config = PoolConfig {
        threads: 1,
        threads_min: 1,
        queue_max: 1,
        ..PoolConfig::default()
    };
    let pool = Some(WorkerPool::new(config).unwrap());
    let (server, probe) = serve::<M>(Options {
        pool,
        ..Options::default()
    });
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(format!("gated-shout from {at}\n"));
    }
    // With the pool one at a time; a model whose threads may block does without it.
    probe.wait("a job has begun", |seen| seen.jobs_begun >= 1);
    // The rest waits; nobody else does.
    assert_eq!(server.connect().ask("echo quick"), "quick");
    probe.open_gate();
    for (at, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.line(), format!("FROM {at}"));
    }
    drop(clients);
    server.stop_and_join();
}

pub(crate) fn a_job_that_panics_is_its_sessions_business<M: Model>() {
    let (server, _) = serve::<M>(Options::default());
    let mut client = server.connect();
    assert_eq!(client.ask("job-that-panics"), "job failed");
    assert_eq!(client.ask("shout on"), "ON");
    server.stop_and_join();
}

pub(crate) fn a_job_whose_client_is_gone_disturbs_nobody<M: Model>() {
    let (server, probe) = serve::<M>(Options::default());
    for round in 1..=20 {
        let mut client = server.connect();
        client.send("gated-shout x\n");
        drop(client);
        probe.wait("the connection is accepted", |seen| seen.opened == round);
    }
    let mut client = server.connect();
    probe.open_gate();
    assert_eq!(client.ask("shout on"), "ON");
    drop(client);
    probe.wait("all sessions are gone", |seen| seen.dropped == 21);
    server.stop_and_join();
}

pub(crate) fn output_may_go_on_after_a_job<M: Model>() {
    let (server, _) = serve::<M>(Options::default());
    let mut client = server.connect();
    client.send("flood-after-job x\n");
    check_flood(&client.bytes(LARGE_BYTES), 0);
    drop(client);
    server.stop_and_join();
}

pub(crate) fn output_of_a_slow_reader_is_bounded_and_goes_on<M: Model>() {
    let (server, probe) = serve::<M>(Options::default());
    let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    let mut got = 0;
    for client in &mut clients {
        client.send("flood\n");
        check_flood(&client.bytes(FLOOD_CHUNK_BYTES), 0);
        got += FLOOD_CHUNK_BYTES as u64;
    }
    // Others are served while these wait, often enough for their output to fill up.
    let mut other = server.connect();
    for _ in 0..1000 {
        assert_eq!(other.ask("echo x"), "x");
    }
    let seen = probe.seen();
    let high = Limits::default().output.high_bytes;
    assert!(
        seen.queued_max < high + FLOOD_CHUNK_BYTES as u64,
        "{seen:?}"
    );
    // What a connection has beyond that is in the kernel, which has its own limits.
    assert!(
        seen.flooded - got < 10 * (high + 16 * 1024 * 1024),
        "{seen:?}"
    );
    for client in &mut clients[..3] {
        let bytes = client.bytes(LARGE_BYTES);
        check_flood(&bytes, FLOOD_CHUNK_BYTES);
    }
    drop(clients);
    drop(other);
    server.stop_and_join();
}

/// Whether `bytes` are those of a flood from `offset` on.
fn check_flood(bytes: &[u8], offset: usize) {
    for (number, eight) in (offset as u64 / 8..).zip(bytes.chunks_exact(8)) {
        assert_eq!(eight, number.to_be_bytes(), "at {number}");
    }
}

pub(crate) fn a_flood_starves_nobody<M: Model>() {
    let (server, probe) = serve::<M>(Options::default());
    let mut greedy = server.connect();
    greedy.send("flood\n");
    // The flood runs before the others ask: a model may first have to start a thread for it.
    check_flood(&greedy.bytes(FLOOD_CHUNK_BYTES), 0);
    let reading = thread::spawn(move || {
        let mut bytes = vec![0; 1 << 20];
        while greedy
            .socket()
            .read(&mut bytes)
            .is_ok_and(|count| count > 0)
        {}
    });
    let before = probe.seen().flooded;
    let mut other = server.connect();
    for _ in 0..100 {
        assert_eq!(other.ask("echo x"), "x");
        assert_eq!(other.ask("shout x"), "X");
    }
    // Nor do the others stop the flood.
    probe.wait("the flood goes on", |seen| seen.flooded > before);
    drop(other);
    server.stop_and_join();
    reading.join().unwrap();
}

/// A file that is gone when the test is over.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, content: &[u8]) -> Self {
        let name = format!("windlass-session-server-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, content).unwrap();
        Self(path)
    }

    /// One of zeros that takes no room.
    fn sparse(name: &str, len: usize) -> Self {
        let file = Self::new(name, b"");
        file.set_len(len);
        file
    }

    fn set_len(&self, len: usize) {
        let file = fs::OpenOptions::new().write(true).open(&self.0).unwrap();
        file.set_len(len as u64).unwrap();
    }

    fn serve<M: Model>(&self) -> (Server, Arc<Probe>) {
        let service = LineService {
            file: Some(self.0.clone()),
            ..LineService::default()
        };
        let probe = Arc::clone(&service.probe);
        (Server::start::<M, _>(service, Options::default()), probe)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Deleted by the test.
        let _ = fs::remove_file(&self.0);
    }
}

pub(crate) fn a_file_is_sent_between_other_output<M: Model>() {
    for len in [0, 1, 70_000, LARGE_BYTES] {
        let content = pattern(len);
        let file = TempFile::new("whole", &content);
        let (server, _) = file.serve::<M>();
        let mut client = server.connect();
        client.send("echo before\nfile\nfile\necho after\n");
        assert_eq!(client.line(), "before");
        for _ in 0..2 {
            assert_eq!(client.line(), "file");
            assert!(client.bytes(len) == content, "{len} bytes");
            assert_eq!(client.line(), "end");
        }
        assert_eq!(client.line(), "after");
        server.stop_and_join();
    }
}

pub(crate) fn a_file_that_is_replaced_or_deleted_is_sent_as_it_was_opened<M: Model>() {
    let content = pattern(LARGE_BYTES);
    let file = TempFile::new("replaced", &content);
    let (server, _) = file.serve::<M>();
    for round in 0..2 {
        let mut client = server.connect();
        assert_eq!(client.ask("file"), "file");
        if round == 0 {
            let fresh = TempFile::new("replacement", &content);
            fs::rename(&fresh.0, &file.0).unwrap();
        } else {
            fs::remove_file(&file.0).unwrap();
        }
        assert!(client.bytes(LARGE_BYTES) == content);
        assert_eq!(client.line(), "end");
    }
    assert_eq!(server.stop_and_join().truncated_files, 0);
}

pub(crate) fn a_file_that_gets_shorter_ends_the_connection<M: Model>() {
    let len = 4 * LARGE_BYTES;
    let file = TempFile::sparse("truncated", len);
    let (server, probe) = file.serve::<M>();
    let mut client = server.connect();
    client.send("file\necho never\n");
    assert_eq!(client.line(), "file");
    file.set_len(1 << 20);
    let (bytes, end) = client.rest_or_reset();
    assert_eq!(end, End::Reset);
    assert!(bytes.len() < len);
    probe.wait("the session is gone", |seen| seen.dropped == 1);
    assert_eq!(server.stop_and_join().truncated_files, 1);
}

pub(crate) fn a_client_that_breaks_off_is_no_file_that_gets_shorter<M: Model>() {
    let file = TempFile::sparse("broken-off", 4 * LARGE_BYTES);
    let (server, probe) = file.serve::<M>();
    for round in 0..4 {
        let mut client = server.connect();
        assert_eq!(client.ask("file"), "file");
        client.bytes(1 << round);
        // With bytes that were not read it is a reset.
        drop(client);
        probe.wait("the session is gone", |seen| seen.dropped == round + 1);
    }
    assert_eq!(server.stop_and_join().truncated_files, 0);
}

pub(crate) fn a_unix_socket_is_served_in_small_pieces<M: Model>() {
    let content = pattern(LARGE_BYTES);
    let file = TempFile::new("unix", &content);
    let path = std::env::temp_dir().join(format!("windlass-unix-{}", std::process::id()));
    // Left by a run that was killed.
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let service = LineService {
        file: Some(file.0.clone()),
        ..LineService::default()
    };
    let server = Server::start_on_unix::<M, _>(service, listener);
    let mut client = UnixStream::connect(&path).unwrap();
    fs::remove_file(&path).unwrap();
    client
        .write_all(b"echo one\nfile\nbig 3000000\nshout two\n")
        .unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut wanted = b"one\nfile\n".to_vec();
    wanted.extend_from_slice(&content);
    wanted.extend_from_slice(b"end\n");
    wanted.extend_from_slice(&pattern(3_000_000));
    wanted.extend_from_slice(b"TWO\n");
    let mut got = Vec::new();
    let mut piece = [0; 777];
    loop {
        let count = client.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        got.extend_from_slice(&piece[..count]);
    }
    assert!(got == wanted, "{} bytes of {}", got.len(), wanted.len());
    server.stop_and_join();
}
