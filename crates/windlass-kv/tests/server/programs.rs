//! Redis' own programs against the server program.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};

use windlass::models::ModelKind;

/// The server program, on a port of its own.
struct Program {
    child: Child,
    stderr: BufReader<ChildStderr>,
    port: String,
}

impl Program {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_windlass-kv"))
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let addr = line.trim().strip_prefix("listening on 127.0.0.1:");
        let port = addr.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self {
            child,
            stderr,
            port,
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-p", &self.port]).stdin(Stdio::null());
        command
    }

    /// Has it end as a service manager does; answers what it said.
    fn end(mut self) -> String {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: kill takes two numbers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ended already, unless a test fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs it to its good end; answers what it printed.
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .expect("redis-tools are missing: tools/test-tools installs them");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

#[test]
fn redis_cli_talks_to_it() {
    let program = Program::start(&[]);
    let cli = |args: &[&str]| output(program.command("redis-cli").args(args));
    assert_eq!(
        cli(&["SET", "greeting", "hello there", "EX", "100"]),
        "OK\n"
    );
    assert_eq!(cli(&["GET", "greeting"]), "hello there\n");
    assert_eq!(cli(&["-3", "GET", "nothing"]), "\n");
    assert_eq!(cli(&["--scan", "--pattern", "gr*"]), "greeting\n");
    assert!(cli(&["INFO"]).contains("redis_version:7.0.0"));
    assert!(cli(&["NONSENSE"]).contains("unknown command"));
    // As with several lines from a file.
    let mut cli = program.command("redis-cli");
    cli.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = cli.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(b"INCR n\nINCR n\nMGET n greeting\n")
        .unwrap();
    drop(stdin);
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(text, "1\n2\n2\nhello there\n");
    assert!(program.end().contains("connections, "));
}

#[test]
fn redis_cli_loads_in_bulk() {
    let program = Program::start(&[]);
    let mut pipe = program.command("redis-cli");
    pipe.arg("--pipe")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = pipe.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for number in 0..20_000 {
        let (key, value) = (format!("key:{number}"), "v".repeat(number % 300));
        stdin
            .write_all(&crate::client::encode(&["SET", &key, &value]))
            .unwrap();
    }
    drop(stdin);
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(text.contains("errors: 0, replies: 20000"), "{text}");
    assert_eq!(
        output(program.command("redis-cli").arg("DBSIZE")),
        "20000\n"
    );
}

#[test]
fn redis_benchmark_measures_it_on_every_model() {
    for model in ModelKind::ALL {
        let program = Program::start(&["--model", model.name(), "--threads", "2"]);
        for pipeline in ["1", "16"] {
            let mut benchmark = program.command("redis-benchmark");
            benchmark.args([
                "-n", "2000", "-c", "10", "-r", "100", "--csv", "-P", pipeline,
            ]);
            benchmark.args(["-t", "ping_inline,ping_mbulk,set,get,incr,mset"]);
            let text = output(&mut benchmark);
            for name in [
                "PING_INLINE",
                "PING_MBULK",
                "SET",
                "GET",
                "INCR",
                "MSET (10 keys)",
            ] {
                assert!(text.contains(&format!("\"{name}\",\"")), "{model}: {text}");
            }
        }
        // Some of its connections end with answers unread.
        assert!(program.end().contains("connections, "), "{model}");
    }
}
