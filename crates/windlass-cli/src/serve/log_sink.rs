//! The log sink: lines go to a thread that writes them, so that a reader that does not read holds
//! up no connection.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Hands what is written to a thread; drops it when that is far behind.
#[derive(Debug)]
pub(super) struct LogSink {
    /// `None`: finished, or the other side is gone.
    sender: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    lost: u64,
}

/// Writes on their way; each holds the lines of one turn of the loop.
const QUEUE_MAX: usize = 1024;

impl LogSink {
    /// Starts the thread.
    pub(super) fn open(mut output: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = sync_channel::<Vec<u8>>(QUEUE_MAX);
        let thread = Builder::new().name("access-log".into()).spawn(move || {
            while let Ok(bytes) = receiver.recv() {
                // Nobody reads any more: the sender finds the channel closed.
                if output.write_all(&bytes).and_then(|()| output.flush()).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { sender: Some(sender), thread: Some(thread), lost: 0 })
    }

    /// Writes out what is queued; answers how many writes were lost.
    pub(super) fn finish(&mut self) -> u64 {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // It panicked only if the output did.
            let _ = thread.join();
        }
        self.lost
    }
}

impl Write for LogSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(sender) = &self.sender {
            match sender.try_send(bytes.to_vec()) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => self.lost += 1,
                Err(TrySendError::Disconnected(_)) => self.sender = None,
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
    use std::sync::mpsc::{Receiver, channel};
    use std::sync::{Arc, Mutex};

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
}
