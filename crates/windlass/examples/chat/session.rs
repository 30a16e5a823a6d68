//! The session of one member: lines in, mail out.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use windlass::Instant;
use windlass::session::{
    Input, Next, Now, Output, Peer, Progress, Service, Session, SessionContext,
};

use crate::room::{Place, Room};

/// How long one may take to say who one is.
const NAME_TIMEOUT: Duration = Duration::from_secs(60);
const LINE_BYTES_MAX: usize = 1024;
/// Lines that one may say before the others have read them: fewer than a mailbox holds.
const LINES_AT_ONCE_MAX: usize = 16;

/// Opens a session for each connection.
#[derive(Debug)]
pub(crate) struct ChatService;

/// What all sessions of the loop share.
#[derive(Debug)]
pub(crate) struct Local {
    room: Room,
    /// Whose connection is gone. A session that is dropped, for whatever reason, sees no room; so it
    /// leaves a note here.
    gone: (Sender<Place>, Receiver<Place>),
}

#[derive(Debug)]
pub(crate) struct ChatSession {
    opened_at: Instant,
    state: State,
    gone: Sender<Place>,
}

#[derive(Debug)]
enum State {
    /// Nothing was said yet.
    Opened,
    /// It was asked for its name.
    Asked,
    Member(Place),
    /// It only reads what is left for it.
    Left,
}

type Cx<'c> = SessionContext<'c, Local>;

impl Service for ChatService {
    type Local = Local;
    type Session = ChatSession;

    fn local(&self) -> Local {
        Local {
            room: Room::default(),
            gone: channel(),
        }
    }

    fn open(&self, local: &mut Local, _peer: &Peer, now: Now) -> ChatSession {
        ChatSession {
            opened_at: now.monotonic,
            state: State::Opened,
            gone: local.gone.0.clone(),
        }
    }

    /// Before the loop waits: those who are gone leave the room, and the others are told.
    fn settle(&self, local: &mut Local, _now: Now) {
        while let Ok(place) = local.gone.1.try_recv() {
            local.room.leave(place);
        }
    }
}

impl Session for ChatSession {
    type Local = Local;

    /// Called for input, for mail, and when the output has drained.
    fn advance(&mut self, cx: &mut Cx<'_>, input: Input<'_>) -> Progress {
        let (mut consumed, mut lines) = (0, 0);
        let next = loop {
            if let State::Member(place) = self.state
                && !cx.local.room.deliver(place, cx.output)
            {
                // A reader that is slow: its mail waits, and what it types, too.
                break Next::Flush;
            }
            let rest = &input.bytes[consumed..];
            let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
                if rest.len() > LINE_BYTES_MAX {
                    cx.output.push(b"* that line is too long\n");
                    break Next::Close;
                }
                break if input.ended { Next::Close } else { Next::Read };
            };
            if lines == LINES_AT_ONCE_MAX {
                // It is called again when the others have had their turn.
                cx.wakeups.notifier().notify();
                break Next::Wait;
            }
            lines += 1;
            consumed += end + 1;
            if self.on_line(cx, &printable(&rest[..end])) == Goes::Away {
                break Next::Close;
            }
        };
        if matches!(next, Next::Close) {
            // The connection may last until the peer has read everything.
            self.leave(&mut cx.local.room);
        }
        Progress { consumed, next }
    }

    /// Over at once at first: that is how a session speaks before it is spoken to.
    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Opened => Some(self.opened_at),
            State::Asked => Some(self.opened_at + NAME_TIMEOUT),
            State::Member(_) | State::Left => None,
        }
    }

    fn expire(&mut self, cx: &mut Cx<'_>) -> Next {
        if matches!(self.state, State::Opened) {
            self.state = State::Asked;
            cx.output.push(b"* welcome; what is your name?\n");
            return Next::Read;
        }
        cx.output.push(b"* nobody stays without a name\n");
        Next::Close
    }

    fn stop(&mut self, cx: &mut Cx<'_>) -> Next {
        cx.output.push(b"* the chat ends\n");
        Next::Close
    }
}

/// Whether one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    Away,
    On,
}

impl ChatSession {
    fn on_line(&mut self, cx: &mut Cx<'_>, line: &str) -> Goes {
        let line = line.trim();
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let State::Member(place) = self.state else {
            if command == "/quit" {
                return Goes::Away;
            }
            self.join(cx, line);
            return Goes::On;
        };
        let (room, output) = (&mut cx.local.room, &mut *cx.output);
        match command {
            "" => {}
            "/quit" => {
                output.push(b"* goodbye\n");
                return Goes::Away;
            }
            "/who" => tell(output, format_args!("{}", list(room))),
            "/nick" => match room.rename(place, rest.trim()) {
                Ok(()) => tell(output, format_args!("you are now {}", rest.trim())),
                Err(reason) => tell(output, format_args!("{reason}")),
            },
            "/msg" => {
                let (to, text) = rest.split_once(' ').unwrap_or((rest, ""));
                if !room.whisper(place, to, text) {
                    tell(output, format_args!("nobody here is called {to}"));
                }
            }
            _ if command.starts_with('/') => {
                tell(
                    output,
                    format_args!("there are /who, /nick NAME, /msg NAME TEXT, /quit"),
                );
            }
            _ => room.say(place, line),
        }
        Goes::On
    }

    fn leave(&mut self, room: &mut Room) {
        if let State::Member(place) = std::mem::replace(&mut self.state, State::Left) {
            room.leave(place);
        }
    }

    fn join(&mut self, cx: &mut Cx<'_>, name: &str) {
        let room = &mut cx.local.room;
        match room.join(name, cx.wakeups.notifier()) {
            Ok(place) => {
                self.state = State::Member(place);
                tell(cx.output, format_args!("{}", list(room)));
            }
            Err(reason) => tell(cx.output, format_args!("{reason}")),
        }
    }
}

impl Drop for ChatSession {
    fn drop(&mut self) {
        if let State::Member(place) = self.state {
            // The loop is gone, too.
            let _ = self.gone.send(place);
        }
    }
}

fn list(room: &Room) -> String {
    let names: Vec<&str> = room.names().collect();
    format!("here: {}", names.join(", "))
}

fn tell(output: &mut Output, what: std::fmt::Arguments<'_>) {
    output.push(format!("* {what}\n").as_bytes());
}

/// Text that does nothing to the terminals of others.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars().filter(|c| !c.is_control()).collect()
}
