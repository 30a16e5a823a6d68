use std::net::{TcpListener, TcpStream};
use std::process::Output;

use super::*;

/// Tells a test that it is the child, and what it is to do.
const CHILD: &str = "WINDLASS_TEST_ACTIVATION";
const VARIABLE: &str = "WINDLASS_TEST_LISTEN_FDS";

fn text(value: &str) -> Option<OsString> {
    Some(value.into())
}

/// This program again, for one test.
fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", &format!("activation::tests::{test}")])
        .args(["--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    command
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.lines().filter_map(|line| line.strip_prefix("said "));
    said.map(str::to_owned).collect()
}

#[test]
fn variables_for_another_process_are_not_for_this_one() {
    for (pid, count, expected) in [
        (None, text("1"), None),
        (text("7"), None, None),
        (text("8"), text("1"), None),
        (text("7"), text("0"), Some(0)),
        (text("7"), text("2"), Some(2)),
    ] {
        assert_eq!(passed_count(pid, count, 7).expect("sound"), expected);
    }
    for (pid, count) in [
        ("x", "1"),
        ("7", "x"),
        ("7", "-1"),
        ("7", "99999999"),
        ("7", ""),
    ] {
        let error = passed_count(text(pid), text(count), 7).expect_err("not sound");
        assert!(matches!(error, ActivationError::Malformed { .. }));
    }
}

#[test]
fn lists_of_numbers_are_read_strictly() {
    let read = |value: &str| numbers_of("V", OsStr::new(value));
    assert_eq!(read("").expect("empty"), []);
    assert_eq!(read("3,7,8").expect("sound"), [3, 7, 8]);
    for value in [
        "2",
        "0,3",
        "3,",
        ",3",
        "3,3",
        "-1",
        "x",
        "3;4",
        "99999999999",
    ] {
        assert!(read(value).is_err(), "{value}");
    }
    let many: Vec<_> = (3..5000).map(|raw| raw.to_string()).collect();
    assert!(read(&many.join(",")).is_err());
}

#[test]
fn what_is_no_listener_is_refused_and_stays_open() {
    let (reader, _writer) = io::pipe().expect("pipe");
    let error = take(&[reader.as_raw_fd()]).expect_err("a pipe");
    assert!(matches!(error, ActivationError::NoListener { fd } if fd == reader.as_raw_fd()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    assert!(take(&[client.as_raw_fd()]).is_err());
    assert!(take(&[9999]).is_err());
    // All or none.
    assert!(take(&[listener.as_raw_fd(), 9999]).is_err());
    assert!(listener.local_addr().is_ok() && fd::is_open(reader.as_raw_fd()));
}

#[test]
fn listeners_are_passed_to_a_program_and_taken_once() {
    if is_child() {
        let listeners = inherited_listeners(VARIABLE).expect("listeners");
        for listener in listeners {
            let flags = rustix::io::fcntl_getfd(&listener).expect("flags");
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            let listener = TcpListener::from(listener);
            println!("\nsaid {}", listener.local_addr().expect("address"));
        }
        let error = inherited_listeners(VARIABLE).expect_err("they were taken");
        assert!(matches!(error, ActivationError::TakenBefore { .. }));
        return;
    }
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("listen"));
    let mut command = again("listeners_are_passed_to_a_program_and_taken_once");
    let borrowed = listeners.each_ref().map(AsFd::as_fd);
    pass_listeners(&mut command, VARIABLE, &borrowed).expect("pass");
    let said = lines(&command.output().expect("run"));
    let addrs = listeners.map(|listener| listener.local_addr().expect("address").to_string());
    assert_eq!(said, addrs);
    assert!(inherited_listeners(VARIABLE).expect("not set").is_empty());
}

#[test]
fn a_service_managers_listeners_have_their_names() {
    if is_child() {
        for (listener, name) in listen_fds().expect("listeners") {
            let listener = TcpListener::from(listener);
            println!("\nsaid {name} {}", listener.local_addr().expect("address"));
        }
        assert!(listen_fds().is_err(), "they were taken");
        return;
    }
    assert!(listen_fds().expect("none").is_empty());
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("listen"));
    let addrs = listeners
        .each_ref()
        .map(|one| one.local_addr().expect("address"));
    let program = again("a_service_managers_listeners_have_their_names");
    // A shell is what knows the number of the process that the program will be.
    let mut command = Command::new("sh");
    command
        .args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""])
        .arg(program.get_program())
        .args(program.get_args())
        .env(CHILD, "1")
        .env("LISTEN_FDS", "2")
        .env("LISTEN_FDNAMES", "web:");
    // Away from the numbers that they are to have.
    let high = listeners.map(|one| fd::duplicate_from(one.as_fd(), 100).expect("duplicate"));
    let place = move || {
        for (raw, from) in (FIRST..).zip(&high) {
            // SAFETY: both are numbers; the child has nothing of its own at the second.
            if unsafe { libc::dup2(from.as_raw_fd(), raw) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: it only calls dup2(2), which is async-signal-safe.
    unsafe { command.pre_exec(place) };
    let said = lines(&command.output().expect("run"));
    assert_eq!(
        said,
        [format!("web {}", addrs[0]), format!("unknown {}", addrs[1])]
    );
}

#[test]
fn word_is_sent_to_a_path_and_to_an_abstract_name() {
    let name = format!("windlass-notify-{}", std::process::id());
    let path = std::env::temp_dir().join(&name);
    let by_path = UnixDatagram::bind(&path).expect("bind");
    let addr = SocketAddr::from_abstract_name(&name).expect("name");
    let by_name = UnixDatagram::bind_addr(&addr).expect("bind");
    notify_at(path.as_os_str(), "READY=1\nSTATUS=x").expect("send");
    notify_at(OsStr::new(&format!("@{name}")), "STOPPING=1").expect("send");
    let mut buf = [0; 64];
    let len = by_path.recv(&mut buf).expect("receive");
    assert_eq!(&buf[..len], b"READY=1\nSTATUS=x");
    let len = by_name.recv(&mut buf).expect("receive");
    assert_eq!(&buf[..len], b"STOPPING=1");
    drop(by_path);
    assert!(
        notify_at(path.as_os_str(), "READY=1").is_err(),
        "nobody is there"
    );
    std::fs::remove_file(&path).expect("remove");
    for to in ["relative", "vsock:1:2"] {
        assert!(notify_at(OsStr::new(to), "READY=1").is_err());
    }
}
