//! Servers to be tested: ours in a thread, and Redis in a process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use windlass::models::{ModelKind, ServerReport, SingleLoop, StopHandle};
use windlass_kv::{Config, ExpiryTimer, KvService, Store};

use crate::client::{Client, PATIENCE};

/// One of ours.
pub(crate) struct Ours {
    pub(crate) addr: SocketAddr,
    pub(crate) store: Arc<Store>,
    stop: StopHandle,
    thread: Option<JoinHandle<ServerReport>>,
}

impl Ours {
    /// On one loop, which expires keys.
    pub(crate) fn start(config: Config) -> Self {
        let store = Arc::new(Store::new(config));
        let shared = Arc::clone(&store);
        Self::run(store, move |tell| {
            let service = Arc::new(KvService::new(Arc::clone(&shared)));
            let builder = SingleLoop::builder(service).listen("127.0.0.1:0".parse().unwrap());
            let mut server = builder.build().unwrap();
            ExpiryTimer::attach(server.reactor(), shared).unwrap();
            tell.send((server.local_addrs()[0], server.stop_handle()))
                .unwrap();
            server.run().unwrap()
        })
    }

    /// On any model, with a store of four shards.
    pub(crate) fn start_on(model: ModelKind) -> Self {
        let config = Config {
            shards: 4,
            ..Config::default()
        };
        let store = Arc::new(Store::new(config));
        let shared = Arc::clone(&store);
        Self::run(store, move |tell| {
            let service = Arc::new(KvService::new(shared));
            let builder = model
                .builder(service)
                .threads(NonZeroUsize::new(3).unwrap());
            let builder = builder.listen("127.0.0.1:0".parse().unwrap());
            let mut server = builder.build().unwrap();
            tell.send((server.local_addrs()[0], server.stop_handle()))
                .unwrap();
            server.run().unwrap()
        })
    }

    fn run(
        store: Arc<Store>,
        serve: impl FnOnce(mpsc::Sender<(SocketAddr, StopHandle)>) -> ServerReport + Send + 'static,
    ) -> Self {
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || serve(tell));
        let (addr, stop) = told.recv_timeout(PATIENCE).unwrap();
        Self {
            addr,
            store,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::tcp(self.addr)
    }

    /// Stops it, and answers what it did.
    pub(crate) fn stop(mut self) -> ServerReport {
        self.stop.stop().unwrap();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // It has ended, or a test fails and it is on its own.
        let _ = self.stop.stop();
    }
}

/// Redis, as Debian has it, on a Unix socket.
pub(crate) struct Redis {
    child: Child,
    socket: PathBuf,
}

impl Redis {
    pub(crate) fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-kv-redis-{}-{count}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let mut child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server is missing: tools/test-tools installs it");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = |line: std::io::Result<String>| line.unwrap().contains("onnections");
        assert!(lines.by_ref().any(is_ready), "redis-server does not start");
        // It goes on telling: nobody must keep it waiting.
        thread::spawn(move || lines.count());
        Self { child, socket }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::unix(&self.socket)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // It may not have come so far.
        let _ = std::fs::remove_file(&self.socket);
    }
}
