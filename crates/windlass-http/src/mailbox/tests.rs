use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::*;

/// A notifier that counts, as a driver that never calls would have it.
fn counted() -> (Notifier, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let inner = Arc::clone(&count);
    let notifier = Notifier::new(move || {
        inner.fetch_add(1, Ordering::Relaxed);
    });
    (notifier, count)
}

fn take<T>(mailbox: &Mailbox<T>, notifier: &Notifier) -> Option<T> {
    match mailbox.take(|| notifier.clone()) {
        Taken::Item(item) => Some(item),
        Taken::Nothing => None,
    }
}

#[test]
fn the_connection_is_woken_only_after_it_found_nothing() {
    let mailbox = Mailbox::new(100);
    let (notifier, wakes) = counted();
    mailbox.try_send('a', 1).expect("room");
    assert_eq!(wakes.load(Ordering::Relaxed), 0);
    assert_eq!(take(&mailbox, &notifier), Some('a'));
    assert_eq!(take(&mailbox, &notifier), None);
    mailbox.try_send('b', 1).expect("room");
    mailbox.try_send('c', 1).expect("room");
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
    assert!(notifier.take());
    assert_eq!(take(&mailbox, &notifier), Some('b'));
    mailbox.try_send('d', 1).expect("room");
    assert_eq!(wakes.load(Ordering::Relaxed), 1, "it is not waiting");
}

#[test]
fn the_senders_are_told_of_room_once_for_each_time_they_were_refused() {
    let mailbox = Mailbox::new(10);
    let (notifier, _) = counted();
    let told = Arc::new(AtomicUsize::new(0));
    let inner = Arc::clone(&told);
    mailbox.on_change(Arc::new(move || {
        inner.fetch_add(1, Ordering::Relaxed);
    }));
    for number in 0..5 {
        mailbox.try_send(number, 2).expect("room");
    }
    assert_eq!(mailbox.try_send(5, 2), Err(TrySendError::Full(5)));
    assert_eq!(mailbox.try_send(6, 8), Err(TrySendError::Full(6)));
    for expected in [0, 0, 0, 1, 1] {
        assert!(take(&mailbox, &notifier).is_some());
        assert_eq!(told.load(Ordering::Relaxed), expected, "8 bytes must fit");
    }
    mailbox.try_send(7, 2).expect("room");
    assert!(take(&mailbox, &notifier).is_some());
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

#[test]
fn an_item_beyond_the_capacity_goes_alone() {
    let mailbox = Mailbox::new(10);
    let (notifier, _) = counted();
    mailbox.try_send('a', 1000).expect("the queue is empty");
    assert_eq!(mailbox.free_bytes(), 0);
    assert_eq!(mailbox.try_send('b', 1), Err(TrySendError::Full('b')));
    assert_eq!(take(&mailbox, &notifier), Some('a'));
    mailbox.try_send('b', 1).expect("room");
    assert_eq!(mailbox.try_send('c', 1000), Err(TrySendError::Full('c')));
}

#[test]
fn after_the_last_item_nothing_is_taken_in() {
    let mailbox = Mailbox::new(10);
    let (notifier, _) = counted();
    mailbox.try_send('a', 10).expect("room");
    mailbox.seal('z');
    mailbox.seal('y');
    assert!(mailbox.is_closed());
    assert_eq!(mailbox.try_send('b', 1), Err(TrySendError::Closed('b')));
    assert_eq!(mailbox.send('b', 1), Err('b'));
    assert_eq!(take(&mailbox, &notifier), Some('a'));
    assert_eq!(take(&mailbox, &notifier), Some('z'));
    assert_eq!(take(&mailbox, &notifier), None);
}

#[test]
fn an_abort_takes_the_place_of_what_is_queued() {
    let mailbox = Mailbox::new(10);
    let (notifier, wakes) = counted();
    assert_eq!(take(&mailbox, &notifier), None);
    mailbox.try_send('a', 10).expect("room");
    mailbox.seal('z');
    mailbox.seal_now('!');
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
    assert_eq!(take(&mailbox, &notifier), Some('!'));
    assert_eq!(take(&mailbox, &notifier), None);
}

#[test]
fn a_blocked_sender_goes_on_with_room_and_fails_when_the_connection_is_gone() {
    let mailbox = Arc::new(Mailbox::new(1));
    let (notifier, _) = counted();
    mailbox.try_send(0, 1).expect("room");
    let (result, results) = mpsc::channel();
    let sender = {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || {
            for number in 1..=3 {
                result.send(mailbox.send(number, 1)).expect("listening");
            }
        })
    };
    for number in 0..2 {
        assert_eq!(take(&mailbox, &notifier), Some(number));
        assert_eq!(results.recv(), Ok(Ok(())));
    }
    mailbox.close();
    assert_eq!(results.recv(), Ok(Err(3)));
    sender.join().expect("no panic");
}

#[test]
fn closing_tells_and_a_late_listener_too() {
    let mailbox = Mailbox::<()>::new(1);
    let told = Arc::new(AtomicUsize::new(0));
    let tell = {
        let told = Arc::clone(&told);
        move || {
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    mailbox.on_change(Arc::new(tell.clone()));
    mailbox.note_stopping();
    mailbox.note_stopping();
    assert_eq!(
        (told.load(Ordering::Relaxed), mailbox.is_stopping()),
        (1, true)
    );
    mailbox.close();
    assert_eq!(told.load(Ordering::Relaxed), 2);
    mailbox.on_change(Arc::new(tell));
    assert_eq!(told.load(Ordering::Relaxed), 3);
    assert_eq!(Arc::strong_count(&told), 1, "no callback is kept");
}
