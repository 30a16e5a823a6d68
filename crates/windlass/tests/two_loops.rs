//! Loops in several threads that call each other.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use windlass::event_loop::{EventLoop, Poster};

const MESSAGES: u64 = 1_000_000;
/// Chains of messages under way at once.
const CHAINS: u64 = 64;

/// Answers message `number` by posting the next one to the other loop, until all are done.
fn answer(own: Poster<'static, u64>, other: Poster<'static, u64>, number: u64) {
    if number >= MESSAGES {
        own.stop();
        other.stop();
        return;
    }
    let next = other.clone();
    // The other loop is gone only when all messages are done.
    let _ = next.post(move |count: &mut u64, _| {
        *count += 1;
        answer(other, own, number + CHAINS);
    });
}

#[test]
fn pf_12_two_loops_whose_handlers_post_to_each_other_do_not_deadlock() {
    let (send_poster, poster) = mpsc::channel();
    let (send_count, count) = mpsc::channel();
    let mut posters = Vec::new();
    let mut go = Vec::new();
    for _ in 0..2 {
        let (send_poster, send_count) = (send_poster.clone(), send_count.clone());
        let (send_go, wait_for_go) = mpsc::channel::<()>();
        go.push(send_go);
        thread::spawn(move || {
            let mut event_loop = EventLoop::<u64>::new().expect("open");
            event_loop.hold();
            send_poster
                .send(event_loop.poster())
                .expect("the test waits");
            wait_for_go.recv().expect("the test says so");
            let mut answered = 0;
            event_loop.run(&mut answered).expect("run");
            send_count.send(answered).expect("the test waits");
        });
        posters.push(poster.recv().expect("a loop"));
    }
    for chain in 0..CHAINS {
        let (a, b) = (posters[0].clone(), posters[1].clone());
        if chain % 2 == 0 {
            answer(a, b, chain);
        } else {
            answer(b, a, chain);
        }
    }
    go.into_iter()
        .for_each(|go| go.send(()).expect("a loop waits"));
    let mut answered = 0;
    for _ in 0..2 {
        answered += count
            .recv_timeout(Duration::from_secs(120))
            .expect("no deadlock");
    }
    // The first chain that is through stops both; the others are nearly as far.
    assert!(answered >= MESSAGES / CHAINS, "{answered} answered");
}
