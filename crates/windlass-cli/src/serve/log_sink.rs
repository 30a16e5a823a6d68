//! The log sink: lines go to a thread that writes them, so that a reader that does not read holds
//! up no connection.
//!
//! The thread takes lines and redirections from one queue, so that a line goes to the file that was
//! in force when it was queued, whole. What cannot be written is lost and counted; of a line that
//! was written in part the rest comes first when writing works again. A redirection that finds the
//! queue full stays with the sender until there is room; lines behind it are lost until then, so
//! that neither who redirects nor a loop ever waits for the thread.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Duration;

use crate::say;

/// Hands what is written to a thread; drops it when that is far behind.
#[derive(Debug)]
pub(super) struct LogSink {
    /// `None`: finished.
    sender: Option<SyncSender<Message>>,
    /// Where the lines to come go, while the queue has no room to say so.
    redirection: Option<File>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    counts: Arc<Counts>,
}

/// The sink as the loops and the control thread share it.
pub(super) type SharedLog = Arc<Mutex<LogSink>>;

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    File(PathBuf),
    Stdout,
}

/// Lines on their way, and those that were lost.
#[derive(Debug, Default)]
struct Counts {
    behind: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
enum Message {
    Lines(Vec<u8>),
    Redirect(File),
}

/// Messages on their way; one of lines holds those of one turn of a loop.
const QUEUE_MAX: usize = 1024;
/// How long the end of the program waits for a reader that is behind.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait when a descriptor that another program shares is non-blocking and full.
const FULL_PAUSE: Duration = Duration::from_millis(10);

impl Target {
    pub(super) fn of(file: Option<&Path>) -> Self {
        file.map_or(Self::Stdout, |path| Self::File(path.to_owned()))
    }

    fn open(&self) -> io::Result<File> {
        match self {
            Self::File(path) => OpenOptions::new().append(true).create(true).open(path),
            Self::Stdout => Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
        }
    }
}

/// Opens `target` and has all lines of `log` from now on go there; on an error nothing changes.
/// Opening may block (a named pipe): the loops' lines go on meanwhile.
pub(super) fn redirect(log: &Mutex<LogSink>, target: &Target) -> io::Result<()> {
    let file = target.open()?;
    log.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .redirect(file);
    Ok(())
}

impl LogSink {
    /// Opens `target` and starts the thread.
    pub(super) fn open(target: &Target) -> io::Result<Self> {
        Self::over(target.open()?, Arc::default())
    }

    fn over(output: impl Output, counts: Arc<Counts>) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let (end, ended) = channel();
        let mut writer = Writer {
            output,
            counts: Arc::clone(&counts),
            rest: Vec::new(),
            fails: false,
        };
        Builder::new().name("access-log".into()).spawn(move || {
            // Dropped last, when the channel of lines is closed.
            let _end = end;
            let receiver = receiver;
            while let Ok(message) = receiver.recv() {
                match message {
                    Message::Lines(lines) => writer.write(&lines),
                    Message::Redirect(file) => writer.redirect(file),
                }
            }
        })?;
        Ok(Self {
            sender: Some(sender),
            redirection: None,
            ended,
            counts,
        })
    }

    /// Has all lines from now on go to `file`. What was queued goes where it was to go. Counts go
    /// on. Never waits.
    fn redirect(&mut self, file: File) {
        self.redirection = Some(file);
        self.push_redirection();
    }

    /// Queues the redirection that is due, if there is room.
    fn push_redirection(&mut self) {
        let Some(file) = self.redirection.take() else {
            return;
        };
        let Some(sender) = &self.sender else { return };
        if let Err(TrySendError::Full(Message::Redirect(file))) =
            sender.try_send(Message::Redirect(file))
        {
            self.redirection = Some(file);
        }
    }

    /// Queues lines, if there is room and they would not overtake a redirection.
    fn push_lines(&mut self, lines: Vec<u8>) -> Result<(), Lost> {
        self.push_redirection();
        let sender = self.sender.as_ref().ok_or(Lost)?;
        if self.redirection.is_some() {
            return Err(Lost);
        }
        sender.try_send(Message::Lines(lines)).map_err(|_| Lost)
    }

    /// How many lines were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// Writes out what is queued, unless nobody reads it within two seconds; answers how many
    /// lines were lost.
    pub(super) fn finish(&mut self) -> u64 {
        self.sender = None;
        match self.ended.recv_timeout(PATIENCE) {
            // The thread hangs in a write and ends with the program.
            Err(RecvTimeoutError::Timeout) => {
                self.lost() + self.counts.behind.load(Ordering::Relaxed)
            }
            _ => self.lost(),
        }
    }
}

impl Write for LogSink {
    /// Never fails and never waits.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = count_lines(bytes);
        // Before they are sent, as the thread may be through with them at once.
        self.counts.behind.fetch_add(count, Ordering::Relaxed);
        if self.push_lines(bytes.to_vec()).is_err() {
            self.counts.behind.fetch_sub(count, Ordering::Relaxed);
            self.counts.lost.fetch_add(count, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines that were not queued.
#[derive(Debug)]
struct Lost;

/// What the thread writes to.
trait Output: Write + Send + 'static {
    fn redirect(&mut self, file: File);
}

impl Output for File {
    fn redirect(&mut self, file: File) {
        *self = file;
    }
}

/// The thread's side.
struct Writer<O> {
    output: O,
    counts: Arc<Counts>,
    /// The rest of a line that was written in part.
    rest: Vec<u8>,
    /// Whether the last write failed, which is said once.
    fails: bool,
}

impl<O: Output> Writer<O> {
    /// Writes lines.
    fn write(&mut self, lines: &[u8]) {
        let count = count_lines(lines);
        let (kept, result) = self.put(lines);
        self.counts.lost.fetch_add(count - kept, Ordering::Relaxed);
        self.counts.behind.fetch_sub(count, Ordering::Relaxed);
        let failed = std::mem::replace(&mut self.fails, result.is_err());
        match result {
            Ok(()) if failed => {
                let lost = self.counts.lost.load(Ordering::Relaxed);
                say(format_args!(
                    "the access log is written again; {lost} lines were lost"
                ));
            }
            Err(error) if !failed => {
                say(format_args!(
                    "the access log cannot be written, lines are lost: {error}"
                ));
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Writes what is left of an earlier line, then lines; answers how many of those were written
    /// or begun.
    fn put(&mut self, lines: &[u8]) -> (u64, io::Result<()>) {
        let (written, result) = write_some(&mut self.output, &self.rest);
        self.rest.drain(..written);
        if result.is_err() {
            return (0, result);
        }
        let (written, result) = write_some(&mut self.output, lines);
        let (done, left) = lines.split_at(written);
        if result.is_err() && !done.is_empty() && !done.ends_with(b"\n") {
            let end = left.iter().position(|&byte| byte == b'\n');
            self.rest
                .extend_from_slice(&left[..end.map_or(left.len(), |at| at + 1)]);
        }
        (count_lines(done) + u64::from(!self.rest.is_empty()), result)
    }

    /// Has what follows written to `file`. The rest of a line stays behind with its beginning.
    fn redirect(&mut self, file: File) {
        // That it fails again was said.
        let _ = write_some(&mut self.output, &self.rest);
        self.rest.clear();
        self.output.redirect(file);
    }
}

/// Writes as much of `bytes` as is taken; answers how much, and why not all.
fn write_some(output: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park_timeout(FULL_PAUSE),
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    /// Takes, or refuses, as it is told.
    struct Told(Receiver<io::Result<usize>>, Arc<Mutex<Vec<u8>>>);

    type Written = Arc<Mutex<Vec<u8>>>;

    impl Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let told = self.0.recv().map_err(io::Error::other)??;
            let count = told.min(bytes.len());
            self.1.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output for Told {
        fn redirect(&mut self, _file: File) {}
    }

    fn told() -> (LogSink, Sender<io::Result<usize>>, Written) {
        let (tell, told) = channel();
        let written = Written::default();
        let sink = LogSink::over(Told(told, Arc::clone(&written)), Arc::default()).unwrap();
        (sink, tell, written)
    }

    #[test]
    fn a_reader_that_does_not_read_blocks_nobody_and_the_loss_is_counted() {
        let (mut sink, tell, written) = told();
        for _ in 0..QUEUE_MAX + 10 {
            sink.write_all(b"line\n").unwrap();
        }
        for _ in 0..QUEUE_MAX + 10 {
            // The sink may need fewer.
            let _ = tell.send(Ok(5));
        }
        let lost = sink.finish();
        assert!((1..=10).contains(&lost), "{lost}");
        let lines = written.lock().unwrap().len() / 5;
        assert_eq!(lines as u64 + lost, QUEUE_MAX as u64 + 10);
    }

    #[test]
    fn a_reader_that_does_not_read_does_not_hold_up_the_end() {
        // Never told: the writer hangs until the test ends.
        let (mut sink, _tell, _) = told();
        for _ in 0..3 {
            sink.write_all(b"line\nline\n").unwrap();
        }
        assert_eq!(sink.finish(), 6);
    }

    #[test]
    fn a_line_that_was_written_in_part_is_completed_and_the_others_are_lost() {
        let (mut sink, tell, written) = told();
        let full = || Err(ErrorKind::StorageFull.into());
        // "one", then nothing, then all.
        for answer in [Ok(3), full(), full(), full(), Ok(99), Ok(99)] {
            tell.send(answer).unwrap();
        }
        sink.write_all(b"one-one\ntwo\nthree\n").unwrap();
        sink.write_all(b"four\n").unwrap();
        sink.write_all(b"five\n").unwrap();
        sink.write_all(b"six\n").unwrap();
        assert_eq!(sink.finish(), 4);
        assert_eq!(&*written.lock().unwrap(), b"one-one\nsix\n");
    }

    #[test]
    fn what_is_lost_on_a_reader_that_is_gone_is_counted_and_a_redirection_goes_on() {
        let (mut sink, tell, written) = told();
        for answer in [Err(ErrorKind::BrokenPipe.into()), Ok(0), Ok(99), Ok(99)] {
            tell.send(answer).unwrap();
        }
        sink.write_all(b"one\ntwo\n").unwrap();
        sink.write_all(b"three\n").unwrap();
        sink.redirect(Target::File("/dev/null".into()).open().unwrap());
        sink.write_all(b"four\n").unwrap();
        assert_eq!(sink.finish(), 3);
        assert_eq!(&*written.lock().unwrap(), b"four\n");
    }

    #[test]
    fn a_redirection_waits_for_no_reader_and_no_line_overtakes_it() {
        let (mut sink, tell, written) = told();
        let mut line_count = 0;
        // The thread may have taken a message out of the full queue meanwhile, but only one.
        while sink.redirection.is_none() {
            let before = sink.lost();
            while sink.lost() == before {
                sink.write_all(b"line\n").unwrap();
                line_count += 1;
            }
            sink.redirect(Target::File("/dev/null".into()).open().unwrap());
        }
        let lost = sink.lost();
        sink.write_all(b"behind\n").unwrap();
        assert_eq!(sink.lost(), lost + 1);
        for _ in 0..line_count {
            tell.send(Ok(99)).unwrap();
        }
        // Room comes as the thread gets on.
        while sink.redirection.is_some() {
            sink.push_redirection();
            thread::yield_now();
        }
        assert_eq!(sink.finish(), lost + 1);
        let lines = written.lock().unwrap().len() as u64 / 5;
        assert_eq!(lines + lost, line_count);
    }

    #[test]
    fn lines_before_a_redirection_go_to_the_old_file_and_those_after_to_the_new() {
        let dir = std::env::temp_dir().join(format!("windlass-log-sink-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let target = Target::File(dir.join("log"));
        let mut sink = LogSink::open(&target).unwrap();
        sink.write_all(b"before\n").unwrap();
        std::fs::rename(dir.join("log"), dir.join("log.1")).unwrap();
        sink.write_all(b"between\n").unwrap();
        sink.redirect(target.open().unwrap());
        sink.write_all(b"after\n").unwrap();
        let missing = Target::File(dir.join("missing/log"));
        assert!(missing.open().is_err());
        sink.write_all(b"still\n").unwrap();
        assert_eq!(sink.finish(), 0);
        let read = |name| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(
            (read("log.1"), read("log")),
            ("before\nbetween\n".into(), "after\nstill\n".into())
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
