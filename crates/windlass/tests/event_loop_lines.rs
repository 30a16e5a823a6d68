//! Line sources over each back end: pipes, files, terminals, and all that lines can look like.

#[path = "common/loops.rs"]
mod common;

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use common::{config, on_each_backend, open, pipe};
use windlass::Disposition::{Disable, Keep, Rearm, Remove};
use windlass::StopReason;
use windlass::demultiplexer::Backend;
use windlass::event_loop::{EventLoop, LoopConfig};
use windlass_sys::fd::{Blocking, blocking};

on_each_backend! {
    a_line_in_many_pieces_is_one_line
    a_line_source_that_removes_itself_gets_no_more
    a_long_line_comes_in_pieces
    an_activation_by_hand_does_not_block
    bytes_that_are_no_text_are_replaced
    disabled_lines_wait_until_enabled
    dev_null_is_an_end
    lines_after_a_stop_wait_for_the_next_run
    lines_of_a_file_arrive_and_then_the_end
    lines_of_a_pipe_arrive_and_then_the_end
    lines_of_a_terminal_arrive_and_its_end_too
    rearm_goes_on
}

type Lines = Vec<Option<String>>;

/// All lines of `text`, through a pipe that does not block, in pieces of `piece` bytes.
fn lines_of(backend: Backend, text: &[u8], piece: usize, line_bytes_max: usize) -> Vec<String> {
    let config = LoopConfig {
        line_bytes_max,
        ..config(backend)
    };
    let mut event_loop = EventLoop::<Lines>::with_config(config).expect("open");
    let (reader, mut writer) = pipe();
    event_loop
        .on_line(reader, |lines, _, line| {
            lines.push(line.map(str::to_owned));
            Keep
        })
        .expect("register");
    let mut lines = Lines::new();
    for piece in text.chunks(piece) {
        writer.write_all(piece).expect("write");
        // Level-triggered: there is something to read.
        event_loop.run_nonblocking(&mut lines).expect("run");
    }
    drop(writer);
    assert_eq!(event_loop.run(&mut lines).expect("run"), StopReason::Empty);
    assert_eq!(lines.pop(), Some(None), "the end comes last");
    lines
        .into_iter()
        .map(|line| line.expect("and only once"))
        .collect()
}

fn lines_of_a_pipe_arrive_and_then_the_end(backend: Backend) {
    let lines = |text: &[u8]| lines_of(backend, text, 4096, 64);
    assert_eq!(lines(b""), [""; 0]);
    assert_eq!(lines(b"one\ntwo\n"), ["one", "two"]);
    assert_eq!(
        lines(b"one\ntwo"),
        ["one", "two"],
        "without a last line end"
    );
    assert_eq!(lines(b"\n\na\n\n"), ["", "", "a", ""]);
    assert_eq!(
        lines(b"one\r\ntwo\r\n\r\nthr\ree\r\n"),
        ["one", "two", "", "thr\ree"]
    );
}

fn a_line_in_many_pieces_is_one_line(backend: Backend) {
    let text = "zwölf\r\n\r\n€ and more\nlast".as_bytes();
    for piece in 1..=text.len() {
        let lines = lines_of(backend, text, piece, 64);
        assert_eq!(
            lines,
            ["zwölf", "", "€ and more", "last"],
            "pieces of {piece}"
        );
    }
}

fn a_long_line_comes_in_pieces(backend: Backend) {
    for piece in [1, 3, 7, 100] {
        let lines = |text: &str| lines_of(backend, text.as_bytes(), piece, 8);
        assert_eq!(lines("12345678\nx\n"), ["12345678", "x"], "it just fits");
        assert_eq!(
            lines("12345678\r\nx\n"),
            ["12345678", "x"],
            "with CR LF too"
        );
        assert_eq!(lines("123456789\nx\n"), ["12345678", "9", "x"]);
        assert_eq!(lines("1234567890123456\n\n"), ["12345678", "90123456", ""]);
        assert_eq!(lines("1234567890123456"), ["12345678", "90123456"]);
        assert_eq!(
            lines("1234567ö9\n"),
            ["1234567", "ö9"],
            "no character is cut"
        );
        assert_eq!(lines("12345€\n"), ["12345€"]);
    }
    // A limit that is smaller than a character still ends.
    assert_eq!(lines_of(backend, "ab\n".as_bytes(), 9, 1), ["a", "b"]);
    let million = "x".repeat(1 << 20);
    let (mut count, mut bytes) = (0, 0);
    for line in lines_of(backend, million.as_bytes(), 4096, 64 * 1024) {
        count += 1;
        bytes += line.len();
        assert!(line.len() <= 64 * 1024);
    }
    assert_eq!((count, bytes), (16, 1 << 20));
}

fn bytes_that_are_no_text_are_replaced(backend: Backend) {
    let lines = lines_of(backend, b"a\xffb\n\xc3\n\0\n\x80\x80\x80\n", 4096, 2);
    assert_eq!(lines[..2], ["a\u{fffd}", "b"]);
    assert_eq!(lines[2..4], ["\u{fffd}", "\0"]);
    assert!(lines[4..].concat().chars().all(|c| c == '\u{fffd}'));
}

fn lines_of_a_file_arrive_and_then_the_end(backend: Backend) {
    let path =
        std::env::temp_dir().join(format!("windlass-lines-{}-{backend}", std::process::id()));
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .expect("open");
    std::fs::remove_file(&path).expect("remove");
    for number in 0..5000 {
        writeln!(file, "line {number}").expect("write");
    }
    write!(file, "the last").expect("write");
    file.rewind().expect("rewind");
    let mut event_loop = open::<Lines>(backend);
    event_loop
        .on_line(file, |lines, _, line| {
            lines.push(line.map(str::to_owned));
            Keep
        })
        .expect("register");
    let mut lines = Lines::new();
    event_loop.run(&mut lines).expect("run");
    assert_eq!(lines.len(), 5002);
    assert_eq!(lines[4321].as_deref(), Some("line 4321"));
    assert_eq!(lines[5000..], [Some("the last".to_owned()), None]);
}

fn dev_null_is_an_end(backend: Backend) {
    let mut event_loop = open::<Lines>(backend);
    event_loop
        .on_line(File::open("/dev/null").expect("open"), |lines, _, line| {
            lines.push(line.map(str::to_owned));
            Keep
        })
        .expect("register");
    let mut lines = Lines::new();
    event_loop.run(&mut lines).expect("run");
    assert_eq!(lines, [None]);
}

/// A pseudo-terminal: the side of the keyboard and the program's.
fn terminal() -> (File, File) {
    // SAFETY: posix_openpt takes flags and gives a new descriptor.
    let raw = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    assert!(raw >= 0, "{}", io::Error::last_os_error());
    // SAFETY: it was just opened and has no other owner.
    let keyboard = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: a terminal's descriptor.
    assert_eq!(unsafe { libc::grantpt(keyboard.as_raw_fd()) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::unlockpt(keyboard.as_raw_fd()) }, 0);
    let mut name = [0_u8; 64];
    // SAFETY: the buffer is a local of the length given.
    let got =
        unsafe { libc::ptsname_r(keyboard.as_raw_fd(), name.as_mut_ptr().cast(), name.len()) };
    assert_eq!(got, 0);
    let length = name.iter().position(|&byte| byte == 0).expect("terminated");
    let path = std::str::from_utf8(&name[..length]).expect("ASCII");
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOCTTY);
    (File::from(keyboard), options.open(path).expect("open"))
}

fn lines_of_a_terminal_arrive_and_its_end_too(backend: Backend) {
    for hangs_up in [false, true] {
        let (mut keyboard, terminal) = terminal();
        let mut event_loop = open::<Lines>(backend);
        event_loop
            .on_line(&terminal, |lines, _, line| {
                lines.push(line.map(str::to_owned));
                Keep
            })
            .expect("register");
        let mut lines = Lines::new();
        // The terminal gives whole lines, one for each read, and blocks otherwise.
        assert_eq!(
            blocking(terminal.as_fd()).expect("mode"),
            Blocking::Blocking
        );
        keyboard.write_all(b"one\rtwo\r").expect("type");
        while lines.len() < 2 {
            event_loop.run_once(&mut lines).expect("run");
        }
        if hangs_up {
            drop(keyboard);
        } else {
            keyboard.write_all(b"\x04").expect("type Ctrl-D");
        }
        assert_eq!(event_loop.run(&mut lines).expect("run"), StopReason::Empty);
        assert_eq!(
            lines,
            [Some("one".to_owned()), Some("two".to_owned()), None]
        );
    }
}

/// A pipe whose reading end blocks, with `text` in it.
fn blocking_pipe(text: &[u8]) -> (PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().expect("pipe");
    writer.write_all(text).expect("write");
    (reader, writer)
}

fn lines_after_a_stop_wait_for_the_next_run(backend: Backend) {
    for breaks in [false, true] {
        let mut event_loop = open::<Lines>(backend);
        let (reader, writer) = blocking_pipe(b"a\nquit\nb\nc\nquit\n");
        event_loop
            .on_line(reader, move |lines, cx, line| {
                lines.push(line.map(str::to_owned));
                if line == Some("quit") {
                    if breaks {
                        cx.break_loop();
                    } else {
                        cx.stop();
                    }
                }
                Keep
            })
            .expect("register");
        let mut lines = Lines::new();
        let text = |lines: &Lines| -> String {
            let text = |line: &Option<String>| line.clone().unwrap_or_else(|| "end".into());
            lines.iter().map(text).collect::<Vec<_>>().join(" ")
        };
        event_loop.run(&mut lines).expect("run");
        assert_eq!(text(&lines), "a quit");
        event_loop.run(&mut lines).expect("run");
        assert_eq!(text(&lines), "a quit b c quit");
        drop(writer);
        event_loop.run(&mut lines).expect("run");
        assert_eq!(text(&lines), "a quit b c quit end");
    }
}

fn disabled_lines_wait_until_enabled(backend: Backend) {
    for by_answer in [true, false] {
        let mut event_loop = open::<Lines>(backend);
        let (reader, writer) = blocking_pipe(b"1\n2\n3\nrest");
        let event = event_loop
            .on_line(reader, move |lines, cx, line| {
                lines.push(line.map(str::to_owned));
                if by_answer {
                    return Disable;
                }
                let event = cx.event();
                cx.disable(event).expect("disable");
                Keep
            })
            .expect("register");
        let mut lines = Lines::new();
        for number in 1..=3 {
            assert_eq!(event_loop.run(&mut lines).expect("run"), StopReason::Empty);
            assert_eq!(lines.len(), number, "{lines:?}");
            assert_eq!(lines[number - 1].as_deref(), Some(&*number.to_string()));
            event_loop.enable(event).expect("enable");
        }
        drop(writer);
        event_loop.run(&mut lines).expect("run");
        assert_eq!(lines[3..], [Some("rest".to_owned())]);
        event_loop.enable(event).expect("enable");
        event_loop.run(&mut lines).expect("run");
        assert_eq!(lines[4..], [None]);
        event_loop.enable(event).expect_err("gone after the end");
    }
}

fn a_line_source_that_removes_itself_gets_no_more(backend: Backend) {
    for by_answer in [true, false] {
        let mut event_loop = open::<Lines>(backend);
        let (reader, _writer) = blocking_pipe(b"1\n2\n3\n");
        event_loop
            .on_line(reader, move |lines, cx, line| {
                lines.push(line.map(str::to_owned));
                if by_answer {
                    return Remove;
                }
                let event = cx.event();
                assert!(cx.remove(event), "it is called no more after this");
                Keep
            })
            .expect("register");
        let mut lines = Lines::new();
        assert_eq!(event_loop.run(&mut lines).expect("run"), StopReason::Empty);
        assert_eq!(lines, [Some("1".to_owned())]);
    }
}

fn rearm_goes_on(backend: Backend) {
    let mut event_loop = open::<Lines>(backend);
    let (reader, writer) = blocking_pipe(b"1\n2\n3\n");
    drop(writer);
    event_loop
        .on_line(reader, |lines, _, line| {
            lines.push(line.map(str::to_owned));
            Rearm
        })
        .expect("register");
    let mut lines = Lines::new();
    event_loop.run(&mut lines).expect("run");
    assert_eq!(lines.len(), 4, "{lines:?}");
}

fn an_activation_by_hand_does_not_block(backend: Backend) {
    let mut event_loop = open::<Lines>(backend);
    let (reader, mut writer) = blocking_pipe(b"");
    let event = event_loop
        .on_line(reader, |lines, _, line| {
            lines.push(line.map(str::to_owned));
            Keep
        })
        .expect("register");
    event_loop.activate(event, 1).expect("activate");
    let mut lines = Lines::new();
    event_loop.run_nonblocking(&mut lines).expect("run");
    assert_eq!(lines, []);
    // And a loop that waits for a line of a blocking pipe still hears of other threads.
    let poster = event_loop.poster();
    let thread = thread::spawn(move || poster.stop());
    event_loop
        .after(Duration::from_secs(3600), |_, _| {})
        .expect("arm");
    assert_eq!(event_loop.run(&mut lines).expect("run"), StopReason::Exit);
    thread.join().expect("join");
    writer.write_all(b"x\n").expect("write");
    event_loop.run_once(&mut lines).expect("run");
    assert_eq!(lines, [Some("x".to_owned())]);
}
