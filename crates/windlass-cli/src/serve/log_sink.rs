//! The log sink: lines go to a thread that writes them, so that a reader that does not read holds
//! up no connection.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread::Builder;
use std::time::Duration;

/// Hands what is written to a thread; drops it when that is far behind.
#[derive(Debug)]
pub(super) struct LogSink {
    /// `None`: finished, or the other side is gone.
    sender: Option<SyncSender<Vec<u8>>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    /// Writes that were accepted and are not through.
    behind: Arc<AtomicU64>,
    lost: u64,
}

/// Writes on their way; each holds the lines of one turn of the loop.
const QUEUE_MAX: usize = 1024;
/// How long the end of the program waits for a reader that is behind.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

impl LogSink {
    /// Starts the thread.
    pub(super) fn open(mut output: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = sync_channel::<Vec<u8>>(QUEUE_MAX);
        let (end, ended) = channel();
        let behind = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&behind);
        Builder::new().name("access-log".into()).spawn(move || {
            let _end = end;
            while let Ok(bytes) = receiver.recv() {
                // Nobody reads any more: the sender finds the channel closed.
                if output
                    .write_all(&bytes)
                    .and_then(|()| output.flush())
                    .is_err()
                {
                    break;
                }
                counted.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self {
            sender: Some(sender),
            ended,
            behind,
            lost: 0,
        })
    }

    /// Writes out what is queued, unless nobody reads it within two seconds; answers how many
    /// writes were lost.
    pub(super) fn finish(&mut self) -> u64 {
        self.sender = None;
        match self.ended.recv_timeout(FINISH_TIMEOUT) {
            // The thread hangs in a write and ends with the program.
            Err(RecvTimeoutError::Timeout) => self.lost + self.behind.load(Ordering::Relaxed),
            _ => self.lost,
        }
    }
}

impl Write for LogSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(sender) = &self.sender {
            // Before it is sent, as the thread may be through with it at once.
            self.behind.fetch_add(1, Ordering::Relaxed);
            let Err(error) = sender.try_send(bytes.to_vec()) else {
                return Ok(bytes.len());
            };
            self.behind.fetch_sub(1, Ordering::Relaxed);
            match error {
                TrySendError::Full(_) => self.lost += 1,
                TrySendError::Disconnected(_) => self.sender = None,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Blocked(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_blocks_nobody_and_the_loss_is_counted() {
        let (go, blocked) = channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut sink = LogSink::open(Blocked(blocked, Arc::clone(&written))).unwrap();
        for _ in 0..QUEUE_MAX + 10 {
            sink.write_all(b"line\n").unwrap();
        }
        for _ in 0..QUEUE_MAX + 10 {
            // The sink may need fewer.
            let _ = go.send(());
        }
        let lost = sink.finish();
        assert!((1..=10).contains(&lost), "{lost}");
        let lines = written.lock().unwrap().len() / 5;
        assert_eq!(lines as u64 + lost, QUEUE_MAX as u64 + 10);
    }
    #[test]
    fn a_reader_that_does_not_read_does_not_hold_up_the_end() {
        // Never sent to: the writer hangs until the test ends.
        let (_go, blocked) = channel();
        let mut sink = LogSink::open(Blocked(blocked, Arc::default())).unwrap();
        for _ in 0..3 {
            sink.write_all(b"line\n").unwrap();
        }
        assert_eq!(sink.finish(), 3);
    }
}
