//! How far the comparison is, on standard error: a line that is rewritten on a terminal, else a line
//! now and then.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Without a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    told: Option<Instant>,
    done: usize,
    total: usize,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        Self {
            begun: Instant::now(),
            told: None,
            done: 0,
            total,
            is_terminal: io::stderr().is_terminal(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// So many steps are about to be done, or are left out.
    pub(super) fn skip(&mut self, steps: usize) {
        self.done += steps;
    }

    /// The next step.
    pub(super) fn step(&mut self, what: &str) {
        let line = line(self.done, self.total, self.begun.elapsed(), what);
        self.done += 1;
        let mut stderr = io::stderr().lock();
        // Nobody may read it.
        if self.is_terminal {
            let _ = write!(stderr, "\r\x1b[K{line}");
            let _ = stderr.flush();
        } else if self.told.is_none_or(|told| told.elapsed() >= LINE_EVERY) {
            self.told = Some(Instant::now());
            let _ = writeln!(stderr, "{line}");
        }
    }

    /// Clears the line.
    pub(super) fn end(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(done: usize, total: usize, elapsed: Duration, what: &str) -> String {
    let left = match done {
        0 => String::new(),
        // All steps take about as long.
        _ => {
            let each = elapsed.as_secs_f64() / done as f64;
            let left = each * total.saturating_sub(done) as f64;
            format!(", about {} left", clock(Duration::from_secs_f64(left)))
        }
    };
    format!("[{}/{total}] {what} ({}{left})", done + 1, clock(elapsed))
}

/// Minutes and seconds.
pub(super) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_long_it_will_take() {
        let at = |done, seconds| line(done, 10, Duration::from_secs(seconds), "hello");
        assert_eq!(at(0, 0), "[1/10] hello (0:00)");
        assert_eq!(at(5, 65), "[6/10] hello (1:05, about 1:05 left)");
    }
}
