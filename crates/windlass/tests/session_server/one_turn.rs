//! What happens within one turn of the single loop.

use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use windlass::Disposition;
use windlass::models::SingleLoop;
use windlass::session::{Input, Next, Now, Peer, Progress, Service, Session, SessionContext};

use crate::harness::{Client, PATIENCE};

/// Counts the pieces of input that it answers, and what of that it is let settle.
#[derive(Debug, Default)]
struct CountingService {
    answered: Arc<AtomicUsize>,
    settled: Arc<AtomicUsize>,
}

struct CountingSession(Arc<AtomicUsize>);

impl Service for CountingService {
    /// What is not settled.
    type Local = usize;
    type Session = CountingSession;

    fn local(&self) -> usize {
        0
    }

    fn open(&self, _: &mut usize, _peer: &Peer, _now: Now) -> CountingSession {
        CountingSession(Arc::clone(&self.answered))
    }

    fn settle(&self, local: &mut usize, _now: Now) {
        self.settled
            .fetch_add(std::mem::take(local), Ordering::Relaxed);
    }
}

impl Session for CountingSession {
    type Local = usize;

    fn advance(&mut self, cx: &mut SessionContext<'_, usize>, input: Input<'_>) -> Progress {
        if !input.bytes.is_empty() {
            *cx.local += 1;
            self.0.fetch_add(1, Ordering::Relaxed);
            cx.output.push(b"answer\n");
        }
        Progress {
            consumed: input.bytes.len(),
            next: Next::Read,
        }
    }
}

/// The loop is held up until a request and the order to cut are both there, so that one wait brings
/// both, in this order where the back end keeps it.
#[test]
fn what_the_last_turn_answered_is_settled() {
    let service = CountingService::default();
    let (answered, settled) = (Arc::clone(&service.answered), Arc::clone(&service.settled));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (hold_reader, mut hold) = io::pipe().unwrap();
    let (cut_reader, mut cut) = io::pipe().unwrap();
    let (held, is_held) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (end, ended) = mpsc::channel();
    let serving = thread::spawn(move || {
        let mut server = SingleLoop::builder(Arc::new(service))
            .listener(listener)
            .build()
            .unwrap();
        server
            .reactor()
            .on_readable(hold_reader, move |_, _, _| {
                held.send(()).unwrap();
                may_go_on.recv_timeout(PATIENCE).unwrap();
                Disposition::Remove
            })
            .unwrap();
        server
            .reactor()
            .on_readable(cut_reader, |state, cx, _| {
                state.stop(cx);
                state.stop(cx);
                Disposition::Remove
            })
            .unwrap();
        server.run().unwrap();
        end.send(()).unwrap();
    });
    let mut client = Client::connect(addr);
    assert_eq!(client.ask("request"), "answer");
    hold.write_all(b"x").unwrap();
    is_held.recv_timeout(PATIENCE).unwrap();
    client.send("request\n");
    cut.write_all(b"x").unwrap();
    go_on.send(()).unwrap();
    ended.recv_timeout(PATIENCE).unwrap();
    assert_eq!(
        settled.load(Ordering::Relaxed),
        answered.load(Ordering::Relaxed)
    );
    serving.join().unwrap();
}
