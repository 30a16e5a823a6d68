//! The models that are compared: their names, what the page says of them, where each computes.

use std::fmt;

/// A concurrency model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Model {
    SingleLoop,
    MultiLoop,
    ReactorWorkers,
    EmulatedProactor,
    UringProactor,
    HalfSyncHalfAsync,
    LeaderFollowers,
    Hybrid,
    ThreadPerConnection,
    ThreadPool,
}

impl Model {
    pub(crate) const ALL: [Self; 10] = [
        Self::SingleLoop,
        Self::MultiLoop,
        Self::ReactorWorkers,
        Self::EmulatedProactor,
        Self::UringProactor,
        Self::HalfSyncHalfAsync,
        Self::LeaderFollowers,
        Self::Hybrid,
        Self::ThreadPerConnection,
        Self::ThreadPool,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SingleLoop => "single-loop",
            Self::MultiLoop => "multi-loop",
            Self::ReactorWorkers => "reactor-workers",
            Self::EmulatedProactor => "emulated-proactor",
            Self::UringProactor => "uring-proactor",
            Self::HalfSyncHalfAsync => "half-sync-half-async",
            Self::LeaderFollowers => "leader-followers",
            Self::Hybrid => "hybrid",
            Self::ThreadPerConnection => "thread-per-connection",
            Self::ThreadPool => "thread-pool",
        }
    }
}

impl Model {
    /// The one that the library builds servers of, if it has it.
    pub(super) fn kind(self) -> Option<windlass::models::ModelKind> {
        self.name().parse().ok()
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The model that the others are compared with.
pub(super) const BASELINE: Model = Model::SingleLoop;

/// Where a request that computes does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compute {
    /// In the thread that serves every connection: all wait.
    InLoop,
    /// In the one of several threads that has the request.
    InThread,
    /// As a job in a pool; the loop goes on.
    OffLoaded,
}

impl Compute {
    pub(super) fn of(kind: Model) -> Self {
        match kind {
            Model::SingleLoop | Model::MultiLoop | Model::UringProactor => Self::InLoop,
            Model::Hybrid => Self::OffLoaded,
            _ => Self::InThread,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::InLoop => "in the loop",
            Self::InThread => "in its threads",
            Self::OffLoaded => "off-loaded",
        }
    }
}

/// What a model is, in two sentences.
pub(super) fn summary(kind: Model) -> &'static str {
    match kind {
        Model::SingleLoop => {
            "One thread waits for all connections at once and serves whichever is ready. \
             Nothing is handed over and nothing is locked, so a request costs the least, \
             but a handler that computes or blocks holds up everybody."
        }
        Model::MultiLoop => {
            "One such loop per core, each with its own connections, which the kernel divides among \
             them. It scales with the cores and shares nothing, but a slow handler still holds up \
             the connections of its loop."
        }
        Model::ReactorWorkers => {
            "One thread only waits and queues what is ready; workers read, process and write. \
             A slow request occupies a worker and nobody else, at the price of a hand-over and a \
             re-armed registration for each event."
        }
        Model::EmulatedProactor => {
            "The loop’s thread reads and writes, and hands complete input to workers, whose output \
             it gets back. Workers never touch a socket; each request crosses between threads \
             twice."
        }
        Model::UringProactor => {
            "The kernel does the reading and writing, through io_uring, and reports what is \
             complete. Operations go in and completions come out in batches, so that a busy server \
             makes hardly any system call per request."
        }
        Model::HalfSyncHalfAsync => {
            "An asynchronous layer does the I/O and puts whole requests into a queue, from which \
             synchronous workers take them. The workers may block and stay simple; the queue costs \
             a lock and, when a worker sleeps, a wake-up."
        }
        Model::LeaderFollowers => {
            "Threads take turns: one leads and waits, and when something happens it promotes a \
             follower before it handles the event itself. Nothing is queued or handed over, and \
             several threads can compute at once."
        }
        Model::Hybrid => {
            "A loop does all the I/O and every short request, and a pool runs the jobs that \
             requests hand out because they compute or block. Short requests are as cheap as in a \
             single loop, and long ones do not hold them up."
        }
        Model::ThreadPerConnection => {
            "Each connection has a thread that reads, processes and writes, and blocks in between. \
             The simplest program, and the scheduler keeps it fair, but each connection costs a \
             stack and each request a context switch or two."
        }
        Model::ThreadPool => {
            "A fixed number of threads shares the connections, each doing blocking work for one \
             request at a time. It bounds threads and memory; when all of them are busy, the \
             others wait."
        }
    }
}

/// Reads a name of the command line.
pub(super) fn parse(text: &str) -> Result<Model, String> {
    let mut all = Model::ALL.into_iter();
    all.find(|model| model.name() == text).ok_or_else(|| {
        let names: Vec<_> = Model::ALL.iter().map(|model| model.name()).collect();
        format!("the models are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in Model::ALL {
            assert_eq!(parse(kind.name()), Ok(kind));
        }
        assert!(parse("none").unwrap_err().contains("single-loop, multi"));
    }

    #[test]
    fn no_model_of_the_library_is_left_out() {
        let ours: Vec<_> = Model::ALL.iter().filter_map(|model| model.kind()).collect();
        for kind in windlass::models::ModelKind::ALL {
            assert!(ours.contains(&kind), "{kind}");
        }
    }

    #[test]
    fn each_model_is_explained_in_two_sentences() {
        for kind in Model::ALL {
            let text = summary(kind);
            assert_eq!(text.matches('.').count(), 2, "{text}");
        }
    }
}
