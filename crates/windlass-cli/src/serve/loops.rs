//! The running loops, as other threads reach them.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use windlass::models::{ServerThread, StopHandle, ThreadHandle};

use super::site::Served;

/// How long a loop may take to answer. One that takes longer is stuck, or as good as.
const PATIENCE: Duration = Duration::from_secs(1);

/// All loops of the server.
#[derive(Debug)]
pub(super) struct Loops<V: Served> {
    pub(super) handles: Vec<ThreadHandle<V>>,
    pub(super) stop: StopHandle,
}

impl<V: Served> Loops<V> {
    /// Has each loop call `question` and answers what they said, the first loop's first; nothing
    /// for one that does not answer within a second.
    pub(super) fn ask<T, F>(&self, question: F) -> Vec<Option<T>>
    where
        T: Send + 'static,
        F: Fn(&mut dyn ServerThread<V>) -> T,
        F: Clone + Send + 'static,
    {
        let (answer, answers) = channel();
        for (at, handle) in self.handles.iter().enumerate() {
            let (answer, question) = (answer.clone(), question.clone());
            // A loop that is gone says nothing, which is seen below.
            let _ = handle.post(move |thread| {
                // Nobody waits any more.
                let _ = answer.send((at, question(thread)));
            });
        }
        drop(answer);
        let mut said: Vec<Option<T>> = self.handles.iter().map(|_| None).collect();
        let deadline = Instant::now() + PATIENCE;
        // Ends at the latest when each has answered or dropped the question.
        while let Ok((at, what)) =
            answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            said[at] = Some(what);
        }
        said
    }
}

impl<V: Served> Clone for Loops<V> {
    fn clone(&self) -> Self {
        Self {
            handles: self.handles.clone(),
            stop: self.stop.clone(),
        }
    }
}
