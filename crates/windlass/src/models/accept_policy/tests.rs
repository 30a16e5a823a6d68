//! The policy against a listener and a server that do as they are told.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

use windlass_core::EventId;

use super::*;
use crate::models::room::{Activates, Room};

/// What accept4(2) answers.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Connection,
    Gone,
    NoDescriptors,
    Broken,
}

/// Answers as it was told, then that nobody waits.
struct Script {
    room: Arc<Room>,
    driver: Arc<NoDriver>,
    answers: VecDeque<Answer>,
    /// So many threads can be had.
    threads: usize,
    accepts: usize,
    served: Vec<Arrival>,
}

#[derive(Debug)]
struct NoDriver;

impl Activates for NoDriver {
    fn activate(&self, _event: EventId) {}
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            room: Arc::new(Room::new(1, usize::MAX)),
            driver: Arc::new(NoDriver),
            answers: answers.into_iter().collect(),
            threads: usize::MAX,
            accepts: 0,
            served: Vec::new(),
        }
    }
}

impl AcceptSite for Script {
    fn take_place(&mut self) -> Option<Place> {
        self.room.take(0, &self.driver, EventId::from_bits(0))
    }

    fn accept(&mut self) -> Result<Option<net::Accepted>, AcceptError> {
        self.accepts += 1;
        match self.answers.pop_front() {
            None => Ok(None),
            Some(Answer::Connection) => Ok(Some((File::open("/dev/null").unwrap().into(), None))),
            Some(Answer::Gone) => Err(AcceptError::Connection(io::ErrorKind::TimedOut.into())),
            Some(Answer::NoDescriptors) => {
                Err(AcceptError::Exhausted(io::ErrorKind::OutOfMemory.into()))
            }
            Some(Answer::Broken) => Err(AcceptError::Listener(io::ErrorKind::InvalidInput.into())),
        }
    }

    fn serve(&mut self, arrival: Arrival) -> Result<(), Arrival> {
        if self.served.len() == self.threads {
            return Err(arrival);
        }
        self.served.push(arrival);
        Ok(())
    }
}

fn pause_ms(after: AfterAccepting) -> u128 {
    match after {
        AfterAccepting::Pause(pause) => pause.as_millis(),
        other => panic!("it does not pause: {other:?}"),
    }
}

#[test]
fn one_that_is_gone_before_it_is_accepted_is_passed_over() {
    let mut script = Script::new([Answer::Gone, Answer::Connection, Answer::Gone]);
    let after = AcceptPolicy::new(Sharing::Own).run(&mut script);
    assert_eq!(after, AfterAccepting::Listen);
    assert_eq!((script.served.len(), script.accepts), (1, 4));
}

#[test]
fn a_batch_ends_and_one_of_a_shared_listener_takes_one() {
    for (sharing, batch) in [
        (Sharing::Own, BATCH_MAX),
        (Sharing::Shared, 1),
        (Sharing::Duplicate, 1),
    ] {
        let mut script = Script::new([Answer::Connection; 100]);
        let after = AcceptPolicy::new(sharing).run(&mut script);
        assert_eq!(after, AfterAccepting::Listen);
        assert_eq!((script.served.len(), script.accepts), (batch, batch));
    }
}

#[test]
fn nothing_is_accepted_that_there_is_no_room_for() {
    let mut script = Script::new([Answer::Connection; 3]);
    script.room.set_connections_max(2);
    let mut policy = AcceptPolicy::new(Sharing::Own);
    assert_eq!(policy.run(&mut script), AfterAccepting::WaitForRoom);
    assert_eq!((script.served.len(), script.accepts), (2, 2));
    script.served.pop();
    assert_eq!(policy.run(&mut script), AfterAccepting::WaitForRoom);
    assert_eq!((script.served.len(), script.accepts), (2, 3));
}

#[test]
fn a_place_that_was_taken_in_vain_is_given_back() {
    let mut script = Script::new([Answer::Gone, Answer::NoDescriptors]);
    script.room.set_connections_max(1);
    let mut policy = AcceptPolicy::new(Sharing::Own);
    assert_eq!(pause_ms(policy.run(&mut script)), 10);
    assert_eq!(policy.run(&mut script), AfterAccepting::Listen);
    assert!(script.take_place().is_some());
}

#[test]
fn pauses_double_until_a_connection_is_served() {
    let mut policy = AcceptPolicy::new(Sharing::Own);
    for error in [Answer::NoDescriptors, Answer::Broken] {
        let mut script = Script::new([error; 9]);
        let pauses = [(); 9].map(|()| pause_ms(policy.run(&mut script)));
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 640, 640]);
        assert_eq!(script.accepts, 9);
        // That nobody waits is no success.
        assert_eq!(policy.run(&mut script), AfterAccepting::Listen);
        script.answers = [error, Answer::Connection, error].into();
        assert_eq!(pause_ms(policy.run(&mut script)), 640);
        assert_eq!(pause_ms(policy.run(&mut script)), 10);
        script.answers = [Answer::Connection].into();
        assert_eq!(policy.run(&mut script), AfterAccepting::Listen);
    }
}

#[test]
fn what_cannot_be_served_is_held_and_comes_first() {
    let mut script = Script::new([Answer::Connection; 2]);
    script.threads = 0;
    let mut policy = AcceptPolicy::new(Sharing::Own);
    assert_eq!(pause_ms(policy.run(&mut script)), 10);
    assert_eq!(pause_ms(policy.run(&mut script)), 20);
    // Nothing else is accepted meanwhile.
    assert_eq!(script.accepts, 1);
    script.threads = 1;
    assert_eq!(pause_ms(policy.run(&mut script)), 10);
    assert_eq!((script.served.len(), script.accepts), (1, 2));
    script.threads = 2;
    assert_eq!(policy.run(&mut script), AfterAccepting::Listen);
    assert_eq!((script.served.len(), script.accepts), (2, 3));
}
