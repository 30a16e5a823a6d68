//! A directory with a root to serve and things beside it that must stay hidden.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windlass_http::{HttpConfig, HttpService, StaticFiles};

use crate::common::{Answer, Connection, answers};

/// The directory; removed when dropped.
pub struct Site {
    pub dir: PathBuf,
}

/// A connection to a server of a site.
pub type Client = Connection<HttpService<StaticFiles>>;

impl Site {
    /// A root with nothing in it.
    pub fn empty() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-http-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(dir.join("root")).expect("create");
        Self { dir }
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Writes a file below the root, and the directories on the way to it.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("create");
        fs::write(&path, content).expect("write");
        path
    }

    pub fn files(&self) -> StaticFiles {
        StaticFiles::new(self.root()).expect("a directory")
    }

    /// A server of `files`, at a time when all that was written before is settled.
    pub fn client(&self, files: StaticFiles) -> Client {
        let mut client = Connection::open(&HttpService::new(files, HttpConfig::default()));
        client.now.unix_ms = real_now_ms() + 10_000;
        client
    }

    /// A server with the usual options.
    pub fn plain(&self) -> Client {
        self.client(self.files())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).expect("remove");
    }
}

/// Asks, and gives the one answer.
pub fn get(client: &mut Client, target: &str, headers: &str) -> Answer {
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let mut found = answers(&raw(client, request.as_bytes()));
    assert_eq!(found.len(), 1, "{target}");
    found.pop().expect("one")
}

/// What `client` is sent for `request`.
pub fn raw(client: &mut Client, request: &[u8]) -> Vec<u8> {
    client.sent.clear();
    client.feed(request);
    client.sent.clone()
}

/// The head of the answer to HEAD; fails if a body follows.
pub fn head(client: &mut Client, target: &str, headers: &str) -> Answer {
    let request = format!("HEAD {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
    let sent = raw(client, request.as_bytes());
    assert!(sent.ends_with(b"\r\n\r\n"), "{target}: a body was sent");
    let head = String::from_utf8(sent).expect("ASCII");
    assert_eq!(head.matches("\r\n\r\n").count(), 1, "{target}");
    Answer {
        status: head[9..12].parse().expect("a status"),
        head,
        body: Vec::new(),
    }
}

pub fn real_now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_millis() as u64
}

/// Sets the time of the last change of content.
pub fn set_modified(path: &std::path::Path, unix_secs: u64, nanos: u32) {
    let file = fs::File::options().write(true).open(path).expect("open");
    let time = UNIX_EPOCH + Duration::new(unix_secs, nanos);
    file.set_modified(time).expect("set");
}
