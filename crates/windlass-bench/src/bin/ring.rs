//! What the ring's ways of doing one thing cost beside each other: `ring [--rounds N]`.
//!
//! Files to a socket (read and send, splice through a pipe, sendfile(2) when writable), sends with
//! and without copy, receives and accepts that go on beside those that are started again. CPU time
//! of the measuring thread and of the kernel's workers for it, so of the process less the peer's
//! thread; medians of interleaved rounds.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use rustix::time::{ClockId, clock_gettime};
use windlass_bench::arg_num;
use windlass_sys::epoll;
use windlass_sys::file::send_file;
use windlass_sys::operation::{
    Completion, Operation, Outcome, Payload, Position, Repeat, SharedFd,
};
use windlass_sys::provided::{BufferPools, PoolId};
use windlass_sys::uring::{Reaped, Ring, RingOptions};

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

struct Bench {
    ring: Ring,
    pools: BufferPools,
    pool: PoolId,
    /// Of fewer and larger buffers.
    large_pool: PoolId,
    socket: SharedFd,
    peer: Peer,
}

/// The other end: a thread that reads everything, or writes on request.
struct Peer {
    orders: mpsc::Sender<Order>,
    cpu_ns: mpsc::Receiver<u64>,
}

enum Order {
    /// Write so many messages of so many bytes.
    Write { count: usize, bytes: usize },
    /// Tell how much CPU time was used.
    Tell,
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

impl Peer {
    fn start(stream: TcpStream) -> Fallible<Self> {
        let (orders, ordered) = mpsc::channel();
        let (telling, cpu_ns_of) = mpsc::channel();
        let reader_ns = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let mut reader = stream.try_clone()?;
        let noted = Arc::clone(&reader_ns);
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while reader.read(&mut buffer).is_ok_and(|count| count > 0) {
                let now = cpu_ns(ClockId::ThreadCPUTime);
                noted.store(now, std::sync::atomic::Ordering::Relaxed);
            }
        });
        thread::spawn(move || {
            let mut stream = stream;
            for order in ordered {
                match order {
                    Order::Write { count, bytes } => {
                        let message = vec![7; bytes];
                        for _ in 0..count {
                            if stream.write_all(&message).is_err() {
                                return;
                            }
                        }
                    }
                    Order::Tell => {
                        let own = cpu_ns(ClockId::ThreadCPUTime);
                        let both = own + reader_ns.load(std::sync::atomic::Ordering::Relaxed);
                        if telling.send(both).is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Self {
            orders,
            cpu_ns: cpu_ns_of,
        })
    }

    fn used_ns(&self) -> Fallible<u64> {
        self.orders.send(Order::Tell)?;
        Ok(self.cpu_ns.recv()?)
    }
}

impl Bench {
    fn new() -> Fallible<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (ours, _) = listener.accept()?;
        ours.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let mut ring = Ring::open(RingOptions::default())?;
        let mut pools = BufferPools::new();
        let pool = pools.add(Some(&mut ring), 256, 4096)?;
        let large_pool = pools.add(Some(&mut ring), 64, 16384)?;
        Ok(Self {
            ring,
            pools,
            pool,
            large_pool,
            socket: Arc::new(ours.into()),
            peer: Peer::start(client)?,
        })
    }

    fn next(&mut self) -> Fallible<Completion> {
        loop {
            let mut found = None;
            self.ring.wait(&self.pools, None)?;
            self.ring.reap(&self.pools, |reaped| {
                if let Reaped::Operation(completion) = reaped {
                    found = Some(completion);
                }
            })?;
            if let Some(completion) = found {
                return Ok(completion);
            }
        }
    }

    fn run(&mut self, operation: Operation) -> Fallible<(usize, Option<Operation>)> {
        self.ring.start(operation);
        let completion = self.next()?;
        match completion.result? {
            Outcome::Bytes(count) => Ok((count, completion.operation)),
            _ => Ok((0, completion.operation)),
        }
    }

    /// CPU nanoseconds of `work`, without the peer's.
    fn cost(&mut self, work: impl FnOnce(&mut Self) -> Fallible) -> Fallible<f64> {
        let (all, peers) = (cpu_ns(ClockId::ProcessCPUTime), self.peer.used_ns()?);
        work(self)?;
        let all = cpu_ns(ClockId::ProcessCPUTime) - all;
        let peers = self.peer.used_ns()? - peers;
        Ok(all.saturating_sub(peers) as f64)
    }
}

/// One way to do something, and what it costs each time, in nanoseconds.
type Way<'a> = (&'a str, Box<dyn Fn(&mut Bench) -> Fallible<f64> + 'a>);

fn file_ways<'a>(
    (file, shared): (&'a Arc<File>, &'a SharedFd),
    length: u64,
    count: u64,
) -> Vec<Way<'a>> {
    let per = count as f64;
    vec![
        (
            "read, send",
            Box::new(move |bench| {
                let cost = bench.cost(|bench| {
                    for _ in 0..count {
                        bench.run(Operation::SendFile {
                            file: Arc::clone(file),
                            offset: 0,
                            length,
                            socket: Arc::clone(&bench.socket),
                        })?;
                    }
                    Ok(())
                })?;
                Ok(cost / per)
            }),
        ),
        (
            "splice, splice",
            Box::new(move |bench| {
                let (reader, writer) = rustix::pipe::pipe()?;
                let size = rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20)?;
                let (reader, writer): (SharedFd, SharedFd) = (Arc::new(reader), Arc::new(writer));
                let cost = bench.cost(|bench| {
                    for _ in 0..count {
                        splice_all(bench, shared, (&reader, &writer), length, size as u64)?;
                    }
                    Ok(())
                })?;
                Ok(cost / per)
            }),
        ),
        (
            "poll, sendfile",
            Box::new(move |bench| {
                rustix::io::ioctl_fionbio(&*bench.socket, true)?;
                let cost = bench.cost(|bench| {
                    for _ in 0..count {
                        sendfile_all(bench, file, length)?;
                    }
                    Ok(())
                });
                rustix::io::ioctl_fionbio(&*bench.socket, false)?;
                Ok(cost? / per)
            }),
        ),
    ]
}

fn splice_all(
    bench: &mut Bench,
    file: &SharedFd,
    pipe: (&SharedFd, &SharedFd),
    length: u64,
    size: u64,
) -> Fallible {
    let mut offset = 0;
    while offset < length {
        let (mut here, _) = bench.run(Operation::Splice {
            from: Arc::clone(file),
            from_position: Position::At(offset),
            to: Arc::clone(pipe.1),
            to_position: Position::Current,
            length: (length - offset).min(size) as u32,
        })?;
        offset += here as u64;
        while here > 0 {
            let (went, _) = bench.run(Operation::Splice {
                from: Arc::clone(pipe.0),
                from_position: Position::Current,
                to: Arc::clone(&bench.socket),
                to_position: Position::Current,
                length: here as u32,
            })?;
            here -= went;
        }
    }
    Ok(())
}

fn sendfile_all(bench: &mut Bench, file: &File, length: u64) -> Fallible {
    let mut offset = 0;
    while offset < length {
        let rest = (length - offset) as usize;
        if send_file(bench.socket.as_fd(), file.as_fd(), &mut offset, rest)?.is_none() {
            bench.run(Operation::Poll {
                fd: Arc::clone(&bench.socket),
                events: epoll::OUT,
            })?;
        }
    }
    Ok(())
}

fn send_ways(bytes: usize, count: usize) -> Vec<Way<'static>> {
    let way = move |zero_copy: bool| {
        move |bench: &mut Bench| {
            let mut payload = Some(Payload::from(vec![7; bytes]));
            let cost = bench.cost(|bench| {
                for _ in 0..count {
                    let socket = Arc::clone(&bench.socket);
                    let payload_now = payload.take().ok_or("the payload comes back")?;
                    let operation = if zero_copy {
                        Operation::SendZeroCopy {
                            socket,
                            payload: payload_now,
                        }
                    } else {
                        Operation::Send {
                            socket,
                            payload: payload_now,
                        }
                    };
                    payload = match bench.run(operation)?.1 {
                        Some(
                            Operation::Send { payload, .. }
                            | Operation::SendZeroCopy { payload, .. },
                        ) => Some(payload),
                        _ => None,
                    };
                }
                Ok(())
            })?;
            Ok(cost / count as f64)
        }
    };
    vec![
        ("send", Box::new(way(false))),
        ("send, zero copy", Box::new(way(true))),
    ]
}

fn receive_ways(bytes: usize, count: usize) -> Vec<Way<'static>> {
    vec![
        (
            "receive, started again",
            Box::new(move |bench| {
                let cost = bench.cost(|bench| {
                    bench.peer.orders.send(Order::Write { count, bytes })?;
                    let (mut left, mut buffer) = (count * bytes, Vec::with_capacity(4096));
                    while left > 0 {
                        buffer.clear();
                        let socket = Arc::clone(&bench.socket);
                        let (got, operation) = bench.run(Operation::Receive { socket, buffer })?;
                        left -= got;
                        buffer = match operation {
                            Some(Operation::Receive { buffer, .. }) => buffer,
                            _ => return Err("the buffer comes back".into()),
                        };
                    }
                    Ok(())
                })?;
                Ok(cost / count as f64)
            }),
        ),
        (
            "receive, multishot",
            Box::new(move |bench| {
                let pool = bench.pool;
                receive_multishot(bench, pool, bytes, count)
            }),
        ),
        (
            "same, buffers of 16 KiB",
            Box::new(move |bench| {
                let pool = bench.large_pool;
                receive_multishot(bench, pool, bytes, count)
            }),
        ),
    ]
}

fn receive_multishot(bench: &mut Bench, pool: PoolId, bytes: usize, count: usize) -> Fallible<f64> {
    let cost = bench.cost(|bench| {
        bench.peer.orders.send(Order::Write { count, bytes })?;
        let mut left = count * bytes;
        let receive = |bench: &Bench| Operation::ReceiveMultishot {
            socket: Arc::clone(&bench.socket),
            pool,
        };
        let mut id = bench.ring.start(receive(bench));
        let mut ended = false;
        while !ended || left > 0 {
            if ended {
                // The buffers ran out.
                id = bench.ring.start(receive(bench));
                ended = false;
            }
            bench.ring.wait(&bench.pools, None)?;
            bench.ring.reap(&bench.pools, |reaped| {
                if let Reaped::Operation(completion) = reaped {
                    ended |= !completion.has_more();
                    if let Ok(Outcome::Buffer(buffer)) = completion.result {
                        left -= buffer.len();
                    }
                }
            })?;
            if left == 0 {
                bench.ring.cancel(id);
            }
        }
        Ok(())
    })?;
    Ok(cost / count as f64)
}

fn accept_ways(count: usize) -> Vec<Way<'static>> {
    let way = move |repeat: Repeat| {
        move |bench: &mut Bench| {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let listener: SharedFd = Arc::new(listener.into());
            let mut clients = Vec::new();
            let mut cost = 0.0;
            // At most the backlog at a time, and not counting the connects.
            for _ in 0..count / 100 {
                for _ in 0..100 {
                    clients.push(TcpStream::connect(address)?);
                }
                cost += bench.cost(|bench| {
                    let accept = || Operation::Accept {
                        listener: Arc::clone(&listener),
                        repeat,
                    };
                    let mut id = bench.ring.start(accept());
                    let mut accepted = 0;
                    while accepted < 100 {
                        let mut ended = false;
                        bench.ring.wait(&bench.pools, None)?;
                        bench.ring.reap(&bench.pools, |reaped| {
                            if let Reaped::Operation(completion) = reaped {
                                ended = !completion.has_more();
                                accepted += usize::from(completion.result.is_ok());
                            }
                        })?;
                        if ended && accepted < 100 {
                            id = bench.ring.start(accept());
                        }
                    }
                    if repeat == Repeat::Multishot {
                        bench.ring.cancel(id);
                        bench.next()?;
                    }
                    Ok(())
                })?;
                clients.clear();
            }
            Ok(cost / count as f64)
        }
    };
    vec![
        ("accept, started again", Box::new(way(Repeat::Once))),
        ("accept, multishot", Box::new(way(Repeat::Multishot))),
    ]
}

#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn compare(title: &str, ways: &[Way<'_>], rounds: usize) -> Fallible {
    let mut figures = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        for at in 0..ways.len() {
            let at = (at + round) % ways.len();
            figures[at].push((ways[at].1)(&mut Bench::new()?)?);
        }
    }
    let mut first = None;
    for ((name, _), figures) in ways.iter().zip(&mut figures) {
        figures.sort_by(f64::total_cmp);
        let median = figures[figures.len() / 2];
        let ratio = median / *first.get_or_insert(median);
        println!(
            "{title:28} {name:24} {:10.2} us  {ratio:5.2}",
            median / 1000.0
        );
    }
    Ok(())
}

fn main() -> Fallible {
    let rounds = usize::try_from(arg_num("--rounds", 7))?;
    let path = std::env::temp_dir().join(format!("windlass-ring-{}", std::process::id()));
    File::create(&path)?.write_all(&vec![b'x'; 8 << 20])?;
    let file = Arc::new(File::open(&path)?);
    let shared: SharedFd = Arc::new(file.try_clone()?.into());
    std::fs::remove_file(&path)?;
    for (length, count) in [
        (4096, 2000),
        (64 << 10, 1000),
        (1 << 20, 100),
        (8 << 20, 12),
    ] {
        let title = format!("file of {} KiB", length >> 10);
        compare(&title, &file_ways((&file, &shared), length, count), rounds)?;
    }
    for (bytes, count) in [
        (1 << 10, 4000),
        (16 << 10, 2000),
        (128 << 10, 500),
        (1 << 20, 100),
    ] {
        let title = format!("send of {} KiB", bytes >> 10);
        compare(&title, &send_ways(bytes, count), rounds)?;
    }
    compare("receive of 100 bytes", &receive_ways(100, 20_000), rounds)?;
    let upload = receive_ways(64 << 10, 2000);
    compare("receive of 64 KiB", &upload, rounds)?;
    compare("accept", &accept_ways(2000), rounds)?;
    Ok(())
}
