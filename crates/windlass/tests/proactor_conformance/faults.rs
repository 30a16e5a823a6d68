//! Drivers whose work goes wrong: submissions that fail for now, calls that are interrupted or do
//! less, reports and completions that come late, twice, or of nothing.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use windlass_sys::fd::Blocking;

use crate::harness::{
    BOTH, Make, Subject, bytes, connection, pair, pipe, read, receive, send, shared,
};
use crate::random::{first_seed, schedule};

pub(crate) fn pf_19_transient_failures_lose_nothing(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        for seed in 0..20 {
            let (ours, mut theirs) = connection(mode);
            let waiting = subject.start(receive(&ours, 10));
            subject
                .event_loop
                .inject_faults(seed, 1, 1 + seed % 5)
                .expect("a driver");
            let sending = subject.start(send(&ours, b"out"));
            theirs.write_all(b"in").expect("write");
            assert_eq!(bytes(&subject.next_of(sending)), 3);
            let got = subject.next_of(waiting).into_buffer();
            assert!(b"in".starts_with(&got[..]) && !got.is_empty());
            let (reader, writer) = pipe(mode);
            let waiting = subject.start(read(&shared(reader), 1));
            subject
                .event_loop
                .inject_faults(seed, 1, 1 + seed % 5)
                .expect("a driver");
            File::from(writer).write_all(b"x").expect("write");
            assert_eq!(subject.next_of(waiting).into_buffer(), b"x");
        }
        subject.event_loop.inject_faults(0, 1, 0).expect("a driver");
        subject.stays_quiet(Duration::from_millis(2));
    }
}

pub(crate) fn pf_20_stray_completions_hit_nothing(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    theirs.write_all(b"1").expect("write");
    let first = subject.start(receive(&ours, 8));
    assert_eq!(subject.next_of(first).into_buffer(), b"1");
    let second = subject.start(receive(&ours, 8));
    assert_eq!(second.slot(), first.slot());
    for _ in 0..3 {
        subject.event_loop.inject_stray_completion(first);
        // Of the emulated driver each report comes twice or in vain.
        subject.event_loop.inject_faults(1, 1, 2).expect("a driver");
        subject.settle();
    }
    assert!(subject.world.done.is_empty());
    theirs.write_all(b"2").expect("write");
    assert_eq!(subject.next_of(second).into_buffer(), b"2");
}

pub(crate) fn a_random_schedule_survives_faults(make: Make) {
    let first = first_seed();
    for (seed, one_in) in (first..).zip([2, 3, 5, 9]) {
        schedule(make, seed, 2000, one_in);
    }
}
