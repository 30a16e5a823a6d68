//! The real program as a child, and a plain client.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{
    Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// What takes so long hangs: generous, as machines are loaded.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// No program that a test starts lives longer.
const LIFE_MAX: Duration = Duration::from_secs(120);

/// The pages that the repository serves.
pub fn site() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../site")
}

/// A program that a test started: killed when the test ends, or hangs.
pub struct Program {
    child: Child,
    /// Dropped: the program needs no watching any more.
    done: Option<Sender<()>>,
}

impl Program {
    pub fn start(command: &mut Command) -> Self {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        let pid = child.id();
        let (done, is_done) = channel::<()>();
        thread::spawn(move || {
            if is_done.recv_timeout(LIFE_MAX) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                send_signal(pid, Signal::KILL);
            }
        });
        Self {
            child,
            done: Some(done),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard error, if it was asked for and not taken before.
    pub fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("a pipe")
    }

    /// Its standard input and output, if they were asked for and not taken before.
    pub fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        let stdin = self.child.stdin.take().expect("a pipe");
        (stdin, self.child.stdout.take().expect("a pipe"))
    }

    pub fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("wait");
        self.done = None;
        status
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn send_signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // Ended already.
    let _ = kill_process(pid, signal);
}

/// Runs a program to its end.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["--kill-after=1", "100", program])
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("start {program}: {error}"))
}

/// Runs curl; answers what it wrote.
pub fn curl(arguments: &[&str]) -> Vec<u8> {
    let output = run(
        "curl",
        &[&["--silent", "--show-error", "--max-time", "60"], arguments].concat(),
    );
    assert!(output.status.success(), "curl {arguments:?}: {output:?}");
    output.stdout
}

/// Runs curl; answers the status and a header.
pub fn curl_header(arguments: &[&str], header: &str) -> (u16, String) {
    let format = format!("%{{http_code}} %header{{{header}}}");
    let output = curl(
        &[
            &["--output", "/dev/null", "--write-out", &format],
            arguments,
        ]
        .concat(),
    );
    let output = String::from_utf8(output).unwrap();
    let (status, value) = output.split_once(' ').unwrap();
    (status.parse().unwrap(), value.to_owned())
}

/// `windlass serve`, running.
pub struct Serve {
    program: Program,
    pub addrs: Vec<SocketAddr>,
    stdout: Option<ChildStdout>,
    stderr: Receiver<String>,
}

impl Serve {
    /// Serves `dir` on a free port without a log.
    pub fn quiet(dir: impl AsRef<Path>) -> Self {
        Self::start(dir, &["--access-log", "off"])
    }

    /// Serves `dir` on a free port, unless `arguments` say where.
    pub fn start(dir: impl AsRef<Path>, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.arg("serve").arg(dir.as_ref()).args(arguments);
        Self::spawn(command, arguments)
    }

    /// Serves under strace.
    pub fn traced(dir: impl AsRef<Path>, strace: &[&str]) -> Self {
        let mut command = Command::new("strace");
        command.args(strace).arg(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(["serve", "--access-log", "off"])
            .arg(dir.as_ref());
        Self::spawn(command, &[])
    }

    /// Serves by `command`, on a free port.
    pub fn over(command: Command) -> Self {
        Self::spawn(command, &[])
    }

    fn spawn(mut command: Command, arguments: &[&str]) -> Self {
        let listens = arguments
            .iter()
            .filter(|argument| argument.starts_with("--listen"))
            .count();
        if listens == 0 {
            command.arg("--listen=127.0.0.1:0");
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut program = Program::start(&mut command);
        let stdout = program.child.stdout.take();
        let (lines, stderr) = channel();
        let pipe = BufReader::new(program.child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                // The test does not want to know.
                let _ = lines.send(line);
            }
        });
        let mut serve = Self {
            program,
            addrs: Vec::new(),
            stdout,
            stderr,
        };
        while serve.addrs.len() < listens.max(1) {
            let line = serve.line();
            let url = line
                .split_once(" at http://")
                .or_else(|| line.split_once(" at https://"));
            if let Some((_, url)) = url {
                serve.addrs.push(url.trim_end_matches('/').parse().unwrap());
            }
        }
        serve
    }

    /// The next line on standard error.
    pub fn line(&self) -> String {
        self.stderr
            .recv_timeout(PATIENCE)
            .expect("a line on standard error")
    }

    /// Waits for a line on standard error that has `words` in it; answers it.
    pub fn line_with(&self, words: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(words) {
                return line;
            }
        }
    }

    pub fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.stdout.take().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// The server's own process, if it is the only child of what was started.
    pub fn child_pid(&self) -> u32 {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.trim().parse().unwrap()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addrs[0])
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.addrs[0])
    }

    pub fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// Stops gracefully; answers what was reported.
    pub fn stop(self) -> String {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Waits for the end, which must be a success; answers what was said on standard error.
    pub fn end(mut self) -> String {
        let status = self.program.wait();
        let said: Vec<String> = self.stderr.iter().collect();
        assert_eq!(status.code(), Some(0), "{said:?}");
        said.join("\n")
    }

    pub fn status(&self) -> Status {
        Status::of(self.pid())
    }

    pub fn open_descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    /// Waits until the server has closed all but `count` descriptors: it needs some turns, and
    /// nothing says when they are over.
    pub fn wait_for_descriptors(&self, count: usize) {
        let begun = Instant::now();
        while self.open_descriptors() > count {
            assert!(
                begun.elapsed() < PATIENCE,
                "{} descriptors are open",
                self.open_descriptors()
            );
            thread::yield_now();
        }
    }
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    pub rss_kib: u64,
    pub rss_peak_kib: u64,
    /// User and system time, in hundredths of a second.
    pub cpu_ticks: u64,
}

impl Status {
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kib = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1;
        let ticks = |at: usize| fields.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
        Self {
            rss_kib: kib("VmRSS:"),
            rss_peak_kib: kib("VmHWM:"),
            cpu_ticks: ticks(11) + ticks(12),
        }
    }
}

/// A blocking HTTP client on one connection.
pub struct Client {
    pub stream: BufReader<TcpStream>,
}

/// An answer, of which the head is text.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Client {
    pub fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).expect("connect"))
    }

    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream
            .get_mut()
            .write_all(bytes.as_ref())
            .expect("send");
        self
    }

    pub fn get(&mut self, target: &str) -> Answer {
        self.send(get(target)).answer()
    }

    pub fn answer(&mut self) -> Answer {
        self.try_answer().expect("an answer")
    }

    /// `None`: the connection ended before an answer began.
    pub fn try_answer(&mut self) -> Option<Answer> {
        let mut head = String::new();
        loop {
            match self.stream.read_line(&mut head) {
                Ok(0) | Err(_) if head.is_empty() => return None,
                Ok(0) => panic!("the connection ended within {head:?}"),
                Ok(_) if head.ends_with("\r\n\r\n") => break,
                Ok(_) => {}
                Err(error) => panic!("{error} after {head:?}"),
            }
        }
        let len = header(&head, "content-length").map_or(0, |value| value.parse().unwrap());
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).expect("the body");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(Answer { status, head, body })
    }

    /// Reads to the end, orderly or not.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
                panic!("read: {error}")
            }
            _ => bytes,
        }
    }
}

/// Clients that ask without a pause.
pub struct Load {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Each request on a connection of its own: each must be answered.
    pub fn start(addr: SocketAddr) -> Self {
        Self::of(move || {
            let request = "GET /data.json HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            assert_eq!(Client::connect(addr).send(request).answer().status, 200);
        })
    }

    /// Each calls `ask`, which panics if it fails, again and again.
    pub fn of(ask: impl Fn() + Clone + Send + 'static) -> Self {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let threads = (0..4).map(|_| {
            let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
            let ask = ask.clone();
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    ask();
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let threads = threads.collect();
        Self {
            stop,
            asked,
            threads,
        }
    }

    /// Waits until so many more were answered.
    pub fn wait_for(&self, more: usize) {
        let wanted = self.asked.load(Ordering::Relaxed) + more;
        let begun = Instant::now();
        while self.asked.load(Ordering::Relaxed) < wanted {
            assert!(begun.elapsed() < PATIENCE, "no answers");
            thread::yield_now();
        }
    }

    /// Ends; answers how many were answered.
    pub fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.asked.load(Ordering::Relaxed)
    }
}

/// The number in "... process N ...".
pub fn pid_in(line: &str) -> u32 {
    let rest = line.split_once("process ").unwrap().1;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// Where a server says that its metrics are.
pub fn metrics_addr(serve: &Serve) -> SocketAddr {
    let line = serve.line_with("metrics are at http://");
    let url = line.split_once("http://").unwrap().1;
    url.strip_suffix("/metrics").unwrap().parse().unwrap()
}

/// The value of a metric without labels.
pub fn metric(addr: SocketAddr, name: &str) -> f64 {
    let page = Client::connect(addr).get("/metrics").body;
    let page = String::from_utf8(page).unwrap();
    let mut lines = page.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(found, _)| *found == name);
    found
        .unwrap_or_else(|| panic!("{name} in {page}"))
        .1
        .parse()
        .unwrap()
}

pub fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A certificate for `name` and 127.0.0.1 that signs itself, and its key.
pub fn certificate(dir: &Path, name: &str) -> [String; 2] {
    let path = |kind: &str| dir.join(format!("{kind}.pem")).to_str().unwrap().to_owned();
    let [cert, key] = [path("cert"), path("key")];
    let subject = format!("/CN={name}");
    let made = run(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            &subject,
            "-addext",
            &format!("subjectAltName=IP:127.0.0.1,DNS:{name}"),
            "-keyout",
            &key,
            "-out",
            &cert,
        ],
    );
    assert!(made.status.success(), "{made:?}");
    [cert, key]
}

/// HAProxy in TCP mode, in front of a server.
pub struct HaProxy {
    _program: Program,
    pub addr: SocketAddr,
    _dir: TempDir,
}

impl HaProxy {
    /// Passes connections on to `server`, which is written as HAProxy wants it; when this returns,
    /// HAProxy listens.
    pub fn start(server: &str, options: &str) -> Self {
        // The port is free again when the listener is gone, and HAProxy is quick to take it.
        let front = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = front.local_addr().unwrap();
        drop(front);
        let dir = TempDir::new("haproxy");
        let config = dir.0.join("haproxy.cfg");
        let text = format!(
            "defaults\n mode tcp\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n\
             listen front\n bind {addr}\n server windlass {server} {options}\n"
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f"]).arg(&config);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let program = Program::start(&mut command);
        let begun = Instant::now();
        while TcpStream::connect(addr).is_err() {
            assert!(begun.elapsed() < PATIENCE, "HAProxy does not listen");
            thread::yield_now();
        }
        Self {
            _program: program,
            addr,
            _dir: dir,
        }
    }
}

/// A directory that is gone when the test is over.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-cli-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// With a file that takes no space: a hole.
    pub fn with_hole(name: &str, len: u64) -> Self {
        let dir = Self::new(name);
        fs::File::create(dir.0.join("hole"))
            .unwrap()
            .set_len(len)
            .unwrap();
        dir
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // What is left is in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Keeps figures in the test's output.
#[expect(clippy::print_stdout, reason = "shown with --show-output")]
pub fn report(what: std::fmt::Arguments<'_>) {
    println!("measured: {what}");
}
