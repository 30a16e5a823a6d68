//! Model checks of the mailbox: all interleavings within loom's bounds.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p windlass-http --lib --release loom`
//!
//! A wake-up that is lost shows as a deadlock: the model waits for it without a limit.

use super::*;

/// What stands for a driver: sleeps until it is notified.
#[derive(Default)]
struct Driver {
    due: Mutex<bool>,
    changed: Condvar,
}

impl Driver {
    fn notifier(self: &Arc<Self>) -> Notifier {
        let driver = Arc::clone(self);
        Notifier::new(move || {
            *lock(&driver.due) = true;
            driver.changed.notify_all();
        })
    }

    fn sleep(&self) {
        let mut due = lock(&self.due);
        while !*due {
            due = wait(&self.changed, due);
        }
        *due = false;
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Takes all up to `last`, sleeping when there is nothing; answers how many there were.
fn drain(mailbox: &Mailbox<u32>, last: u32) -> u32 {
    let driver = Arc::new(Driver::default());
    let notifier = driver.notifier();
    let mut count = 0;
    loop {
        match mailbox.take(|| notifier.clone()) {
            Taken::Item(item) if item == last => return count,
            Taken::Item(_) => count += 1,
            Taken::Nothing => {
                driver.sleep();
                assert!(notifier.take(), "it slept for a notification");
            }
        }
    }
}

#[test]
fn loom_what_is_sent_arrives_without_another_wake_up() {
    check(|| {
        let mailbox = Arc::new(Mailbox::new(10));
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            loom::thread::spawn(move || {
                mailbox.try_send(1, 1).expect("room");
                mailbox.try_send(2, 1).expect("room");
                mailbox.seal(0);
            })
        };
        assert_eq!(drain(&mailbox, 0), 2);
        sender.join().expect("no panic");
    });
}

#[test]
fn loom_blocked_senders_go_on() {
    check(|| {
        let mailbox = Arc::new(Mailbox::new(1));
        let senders = [1, 2].map(|number| {
            let mailbox = Arc::clone(&mailbox);
            loom::thread::spawn(move || mailbox.send(number, 1).expect("it is open"))
        });
        let driver = Arc::new(Driver::default());
        let notifier = driver.notifier();
        let mut left = 2;
        while left > 0 {
            match mailbox.take(|| notifier.clone()) {
                Taken::Item(_) => left -= 1,
                Taken::Nothing => {
                    driver.sleep();
                    assert!(notifier.take());
                }
            }
        }
        for sender in senders {
            sender.join().expect("no panic");
        }
    });
}

#[test]
fn loom_refused_sender_is_told_of_room() {
    check(|| {
        let mailbox = Arc::new(Mailbox::new(1));
        let room = Arc::new(Driver::default());
        let callback = Arc::clone(&room);
        mailbox.on_change(Arc::new(move || {
            *lock(&callback.due) = true;
            callback.changed.notify_all();
        }));
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            loom::thread::spawn(move || {
                for number in 1..=2 {
                    while mailbox.try_send(number, 1).is_err() {
                        room.sleep();
                    }
                }
                mailbox.seal(0);
            })
        };
        assert_eq!(drain(&mailbox, 0), 2);
        sender.join().expect("no panic");
    });
}

#[test]
fn loom_a_connection_that_ends_frees_a_blocked_sender() {
    check(|| {
        let mailbox = Arc::new(Mailbox::new(1));
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            loom::thread::spawn(move || while mailbox.send(1, 1).is_ok() {})
        };
        let notifier = Notifier::new(|| {});
        let _first = mailbox.take(|| notifier.clone());
        mailbox.close();
        sender.join().expect("no panic");
    });
}
