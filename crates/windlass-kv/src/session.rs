//! The session of one client, and the service that opens them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass::session::{
    Input, Next, Now, Output, Peer, Progress, Service, Session, SessionContext,
};

use crate::client::Client;
use crate::command::{Call, Command};
use crate::parser::{Args, Found, Parser, ProtocolError};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::store::{Access, Store};

/// An incomplete command beyond this is taken over from the driver, whose buffer is limited.
const LEAVE_BYTES_MAX: usize = 1024;

/// Opens a [`KvSession`] for each connection.
#[derive(Debug)]
pub struct KvService {
    store: Arc<Store>,
}

/// What the sessions of one thread share: the store, which is that of all threads, and memory for
/// arguments.
#[derive(Debug)]
pub struct KvLocal {
    store: Arc<Store>,
    spare: Vec<Range<usize>>,
}

/// The protocol of one connection.
#[derive(Debug)]
pub struct KvSession {
    parser: Parser,
    /// A large command as far as it came. Empty while commands are read in place.
    partial: Vec<u8>,
    client: Client,
    /// To count it out again.
    store: Arc<Store>,
}

impl KvService {
    /// A service of `store`.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// The keys and values.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Service for KvService {
    type Local = KvLocal;
    type Session = KvSession;

    fn local(&self) -> KvLocal {
        KvLocal {
            store: Arc::clone(&self.store),
            spare: Vec::new(),
        }
    }

    fn open(&self, _local: &mut KvLocal, _peer: &Peer, now: Now) -> KvSession {
        let counters = &self.store.counters;
        counters.clients.fetch_add(1, Ordering::Relaxed);
        let id = counters.connections.fetch_add(1, Ordering::Relaxed) + 1;
        counters.note_start(now.unix_ms);
        KvSession {
            parser: Parser::default(),
            partial: Vec::new(),
            client: Client::new(id),
            store: Arc::clone(&self.store),
        }
    }

    /// Keys expire by the [timer of a loop](crate::ExpiryTimer), as a loop that is idle settles
    /// nothing.
    fn settles(&self) -> bool {
        false
    }
}

impl Session for KvSession {
    type Local = KvLocal;

    fn advance(&mut self, cx: &mut SessionContext<'_, KvLocal>, input: Input<'_>) -> Progress {
        let KvLocal { store, spare } = &mut *cx.local;
        self.parser.swap_spare(spare);
        let mut run = Run {
            access: store.access(),
            output: cx.output,
            input: input.bytes,
            at: 0,
            now_ms: cx.now.unix_ms,
        };
        let next = run.go_on(self);
        let consumed = run.at;
        drop(run);
        self.parser.swap_spare(spare);
        let next = match next {
            // What is half said will never be finished.
            Next::Read if input.ended => Next::Close,
            next => next,
        };
        Progress { consumed, next }
    }
}

/// One call of a session.
struct Run<'r> {
    access: Access<'r>,
    output: &'r mut Output,
    input: &'r [u8],
    /// How much of the input is done with.
    at: usize,
    now_ms: u64,
}

impl Run<'_> {
    /// Does the commands that are there.
    #[inline]
    fn go_on(&mut self, session: &mut KvSession) -> Next {
        loop {
            if session.client.quits {
                return Next::Close;
            }
            if self.output.is_full() {
                return Next::Flush;
            }
            let step = if session.partial.is_empty() {
                self.step_in_place(session)
            } else {
                self.step_in_partial(session)
            };
            match step {
                Ok(true) => {}
                Ok(false) => return Next::Read,
                Err(error) => {
                    let refusal = Refusal::Protocol(error);
                    Reply::new(self.output, session.client.version).refusal(&refusal);
                    return Next::Close;
                }
            }
        }
    }

    /// Reads a command from the input; answers whether to go on.
    #[inline]
    fn step_in_place(&mut self, session: &mut KvSession) -> Result<bool, ProtocolError> {
        let bytes = &self.input[self.at..];
        let config = self.access.store().config();
        match session.parser.parse(bytes, config)? {
            Found::Command { consumed, form } => {
                self.at += consumed;
                let args = session.parser.args(bytes, form);
                self.call(&mut session.client, args);
                Ok(true)
            }
            Found::Nothing { consumed } => {
                self.at += consumed;
                Ok(true)
            }
            Found::Incomplete { .. } => {
                if bytes.len() > LEAVE_BYTES_MAX {
                    session.partial.extend_from_slice(bytes);
                    self.at = self.input.len();
                }
                Ok(false)
            }
        }
    }

    /// Goes on with a command that was taken over; answers whether to go on.
    #[cold]
    fn step_in_partial(&mut self, session: &mut KvSession) -> Result<bool, ProtocolError> {
        let config = self.access.store().config();
        let consumed = match session.parser.parse(&session.partial, config)? {
            Found::Command { consumed, form } => {
                let args = session.parser.args(&session.partial, form);
                self.call(&mut session.client, args);
                consumed
            }
            Found::Nothing { consumed } => consumed,
            Found::Incomplete { needed } => {
                let more = &self.input[self.at..];
                if more.is_empty() {
                    return Ok(false);
                }
                let count = next_piece(more, needed);
                session.partial.extend_from_slice(&more[..count]);
                self.at += count;
                return Ok(true);
            }
        };
        // Nothing may follow it there, but after a line that did not end as it should.
        session.partial.drain(..consumed);
        if session.partial.is_empty() {
            session.partial = Vec::new();
        }
        Ok(true)
    }

    /// Does a command, and answers it.
    #[inline]
    fn call(&mut self, client: &mut Client, args: Args<'_>) {
        self.access.note_command();
        let name = args.at(0);
        let mut reply = Reply::new(self.output, client.version);
        let Some(command) = Command::find(name, client.last) else {
            reply.refusal(&Refusal::UnknownCommand(args));
            return;
        };
        client.last = command;
        if !command.takes(args.len()) {
            reply.refusal(&Refusal::WrongArity(command.name));
            return;
        }
        let mut call = Call {
            args,
            access: &mut self.access,
            client,
            reply,
            command,
            now_ms: self.now_ms,
        };
        if let Err(refusal) = (command.run)(&mut call) {
            call.reply.refusal(&refusal);
        }
    }
}

/// How much of `more` belongs to a command of which at least `needed` bytes are missing.
fn next_piece(more: &[u8], needed: usize) -> usize {
    if needed > 1 {
        return needed.min(more.len());
    }
    // A line.
    memchr::memchr(b'\n', more).map_or(more.len(), |end| end + 1)
}

impl Drop for KvSession {
    fn drop(&mut self) {
        self.store.counters.clients.fetch_sub(1, Ordering::Relaxed);
    }
}
