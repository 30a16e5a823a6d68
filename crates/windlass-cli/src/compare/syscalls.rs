//! How many system calls a process makes: counted by perf(1) or, if it may not, by strace(1).
//!
//! perf counts in the kernel and slows the process a little. strace stops it at each call: it is
//! several times slower then, and finds more ready when it waits, so that the share of the waits
//! shrinks. Either is used in a run of its own that nothing else is measured in.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use super::interrupt::{Interrupt, kill};

/// How long a tool may take to start or to stop counting.
const TOOL_LIMIT: Duration = Duration::from_secs(10);
const EVENT: &str = "raw_syscalls:sys_enter";

/// What counts, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Perf,
    Strace,
    /// Nothing can, and why.
    Unavailable(String),
}

impl Counter {
    /// Tries what there is. `dir` is for files that pass.
    pub(super) fn find(dir: &Path) -> Self {
        let out = dir.join("probe");
        let perf = try_tool(
            Command::new("perf").args(["stat", "-x;", "-e", EVENT, "-o"]),
            &out,
        );
        let perf = perf.and_then(|text| perf_count(&text).map(drop));
        let Err(no_perf) = perf else {
            return Self::Perf;
        };
        let strace = try_tool(Command::new("strace").args(["-f", "-c", "-o"]), &out);
        match strace.and_then(|text| strace_count(&text).map(drop)) {
            Ok(()) => Self::Strace,
            Err(no_strace) => Self::Unavailable(format!("perf: {no_perf}; strace: {no_strace}")),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Strace => "strace",
            Self::Unavailable(_) => "nothing",
        }
    }

    /// How long to count, where others are measured for `duration`: long enough that what attaching
    /// strace adds, a call for each thread that waits, is a small part.
    pub(super) fn window(&self, duration: Duration) -> Duration {
        match self {
            Self::Strace => duration.clamp(Duration::from_millis(300), Duration::from_millis(500)),
            Self::Perf | Self::Unavailable(_) => duration.min(Duration::from_millis(300)) / 2,
        }
    }

    /// Begins to count the calls of `pid` and its threads.
    pub(super) fn start(
        &self,
        pid: u32,
        dir: &Path,
        interrupt: &Interrupt,
    ) -> Result<Counting, String> {
        let out = dir.join("calls");
        // What is left of the run before.
        let _ = fs::remove_file(&out);
        match self {
            Self::Perf => start_perf(pid, dir, out, interrupt),
            Self::Strace => start_strace(pid, out, interrupt),
            Self::Unavailable(why) => Err(why.clone()),
        }
    }
}

/// Runs a tool over a program that does nothing; answers what it wrote.
fn try_tool(command: &mut Command, out: &Path) -> Result<String, String> {
    command.arg(out).args(["--", "true"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "not installed".to_owned(),
        _ => error.to_string(),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().map(str::trim).find(|line| !line.is_empty());
        return Err(first.unwrap_or("not permitted").to_owned());
    }
    fs::read_to_string(out).map_err(|error| error.to_string())
}

/// A tool that counts. Killed when it is dropped.
#[derive(Debug)]
pub(super) struct Counting {
    tool: Child,
    /// perf's control channels: orders, answers.
    control: Option<(File, File)>,
    out: PathBuf,
    interrupt: Interrupt,
}

fn spawn(
    command: &mut Command,
    out: PathBuf,
    control: Option<(File, File)>,
    interrupt: &Interrupt,
) -> Result<Counting, String> {
    use std::os::unix::process::CommandExt;
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let tool = command.spawn().map_err(|error| error.to_string())?;
    interrupt.add(tool.id());
    Ok(Counting {
        tool,
        control,
        out,
        interrupt: interrupt.clone(),
    })
}

fn start_perf(
    pid: u32,
    dir: &Path,
    out: PathBuf,
    interrupt: &Interrupt,
) -> Result<Counting, String> {
    let (orders, answers) = (dir.join("orders"), dir.join("answers"));
    let control = open_fifo(&orders).and_then(|orders| Ok((orders, open_fifo(&answers)?)));
    let control = control.map_err(|error| error.to_string())?;
    let mut command = Command::new("perf");
    // Disabled at first: it is told when.
    command.args([
        "stat",
        "-x;",
        "-D",
        "-1",
        "-e",
        EVENT,
        "-p",
        &pid.to_string(),
    ]);
    command
        .arg("--control")
        .arg(format!("fifo:{},{}", orders.display(), answers.display()));
    command.arg("-o").arg(&out).stderr(Stdio::null());
    let mut counting = spawn(&mut command, out, Some(control), interrupt)?;
    counting.order("enable")?;
    Ok(counting)
}

/// A FIFO, open at both ends: nobody waits for the other side.
fn open_fifo(path: &Path) -> io::Result<File> {
    // What is left of the run before, with what nobody has read.
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    OpenOptions::new().read(true).write(true).open(path)
}

fn start_strace(pid: u32, out: PathBuf, interrupt: &Interrupt) -> Result<Counting, String> {
    let mut command = Command::new("strace");
    command
        .args(["-f", "-c", "-p", &pid.to_string(), "-o"])
        .arg(&out);
    command.stderr(Stdio::piped());
    let mut counting = spawn(&mut command, out, None, interrupt)?;
    let Some(stderr) = counting.tool.stderr.take() else {
        return Err("strace says nothing".into());
    };
    let (heard, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // All is read, so that strace never waits; only the first is of interest.
            let _ = heard.send(line);
        }
    });
    match lines.recv_timeout(TOOL_LIMIT) {
        Ok(line) if line.contains("attached") => Ok(counting),
        Ok(line) => Err(line),
        Err(_) => Err("strace does not attach".into()),
    }
}

impl Counting {
    /// Has perf do something, and waits until it is done.
    fn order(&mut self, what: &str) -> Result<(), String> {
        let Some((orders, answers)) = &mut self.control else {
            return Ok(());
        };
        writeln!(orders, "{what}").map_err(|error| error.to_string())?;
        let limit = Timespec::try_from(TOOL_LIMIT).map_err(|error| error.to_string())?;
        let mut fds = [PollFd::new(answers, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(1..) => {}
            Ok(0) => return Err("perf does not answer".into()),
            Err(error) => return Err(error.to_string()),
        }
        let mut answer = [0; 16];
        answers
            .read(&mut answer)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Ends; answers how many calls there were.
    pub(super) fn end(mut self) -> Result<u64, String> {
        self.order("disable")?;
        kill(self.tool.id(), Signal::INT);
        self.interrupt.remove(self.tool.id());
        self.tool.wait().map_err(|error| error.to_string())?;
        let text = fs::read_to_string(&self.out).map_err(|error| error.to_string())?;
        match self.control {
            Some(_) => perf_count(&text),
            None => strace_count(&text),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // It has ended, if all went well.
        let _ = self.tool.kill();
        self.interrupt.remove(self.tool.id());
        let _ = self.tool.wait();
    }
}

/// The count in what `perf stat -x;` writes: `123;;raw_syscalls:sys_enter;...`.
fn perf_count(text: &str) -> Result<u64, String> {
    let line = text.lines().find(|line| line.contains(EVENT));
    let count = line.and_then(|line| line.split(';').next());
    match count {
        // Nothing of it ran.
        Some("<not counted>") => Ok(0),
        Some(count) => count
            .parse()
            .map_err(|_| format!("perf says {count:?} for {EVENT}")),
        None => Err("perf wrote no count".into()),
    }
}

/// The sum of the calls in the table of `strace -c`.
fn strace_count(text: &str) -> Result<u64, String> {
    let mut count = 0;
    let mut rows = 0;
    // % time, seconds, usecs/call, calls, perhaps errors, name
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Calls that strace has interrupted, and that go on, are no new ones.
        let is_other = matches!(fields.last(), Some(&("total" | "restart_syscall")));
        let is_row = matches!(fields.len(), 5 | 6) && !is_other;
        if let Some(calls) = is_row.then(|| fields[3].parse::<u64>().ok()).flatten() {
            count += calls;
            rows += 1;
        }
    }
    match rows {
        0 if !text.trim().is_empty() => Err("strace wrote another table than expected".into()),
        _ => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_perf_is_found() {
        let text = "# started on Mon\n\n1234;;raw_syscalls:sys_enter;567;100.00;;\n";
        assert_eq!(perf_count(text), Ok(1234));
        assert_eq!(
            perf_count("<not counted>;;raw_syscalls:sys_enter;0;100.00;;"),
            Ok(0)
        );
        assert!(perf_count("<not supported>;;raw_syscalls:sys_enter;0;100.00;;").is_err());
        assert!(perf_count("").is_err());
    }

    #[test]
    fn the_rows_of_strace_are_added_up() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.00    0.000999         999         4           restart_syscall
 60.00    0.000123          15         8           sendto
 40.00    0.000107          53        21         1 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000230           7        29         1 total
";
        assert_eq!(strace_count(text), Ok(29));
        assert_eq!(strace_count(""), Ok(0));
        assert!(strace_count("strace: no\n").is_err());
    }
}
