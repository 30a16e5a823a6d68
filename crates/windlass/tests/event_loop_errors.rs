//! Registration errors, over each back end: they name the handle and the cause, give back what was
//! handed in, and leave nothing behind. And what the compiler must know of the types.

#[path = "common/loops.rs"]
mod common;

use std::error::Error;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use common::{
    config, in_own_process, on_each_backend, open, open_descriptors, pipe, readable_pipe,
};
use windlass::Disposition::{self, Keep, Remove};
use windlass::demultiplexer::{Backend, BackendConfig};
use windlass::event_loop::{
    Context, EventHandler, EventLoop, IoOptions, LoopConfig, OpenError, Poster, Reactor,
    RegisterErrorKind, Signal, StuckHandler, Waker, Watchdog,
};
use windlass::{EngineConfig, EventError, Happened, StopReason, Trigger};
use windlass_core::Features;

on_each_backend! {
    a_closed_number_is_refused_by_name
    a_handler_without_a_handle_comes_back
    a_priority_out_of_range_is_refused
    a_signal_that_cannot_be_caught_is_refused_by_name
    a_source_of_a_failed_registration_is_closed
    calls_for_an_event_that_is_gone_are_refused
    failed_registrations_leave_no_descriptor
    mixed_triggers_on_one_handle_are_refused
    what_a_back_end_lacks_is_said_when_it_is_opened
}

/// A handler for a number, whatever is open there.
struct Numbered(RawFd);

impl<'l> EventHandler<'l, u32> for Numbered {
    fn handle_event(
        &mut self,
        calls: &mut u32,
        _: &mut Context<'_, 'l, u32>,
        _: Happened,
    ) -> Disposition {
        *calls += 1;
        Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: a number that is beyond the limit of descriptors, so that nothing is open there;
        // that it is refused is what is tested.
        Some(unsafe { BorrowedFd::borrow_raw(self.0) })
    }
}

fn a_closed_number_is_refused_by_name(backend: Backend) {
    /// Beyond any limit of open descriptors, and still a small table.
    const CLOSED: RawFd = 1_999_999;
    let mut event_loop = open::<u32>(backend);
    for _ in 0..3 {
        let error = event_loop
            .register_handler(Box::new(Numbered(CLOSED)), IoOptions::default())
            .expect_err("refused");
        let text = error.to_string();
        assert!(
            text.contains(backend.name()) && text.contains("handle 1999999"),
            "{text}"
        );
        let cause = error.source().expect("a cause").to_string();
        assert!(cause.contains("os error 9"), "{cause}");
        let RegisterErrorKind::Demultiplexer { backend: name, .. } = error.kind else {
            panic!("{:?}", error.kind);
        };
        assert_eq!(name, backend.name());
        assert!(error.rejected.get_handle().is_some(), "the handler is back");
    }
    assert_eq!(event_loop.counters().inserted, 0);
    assert_eq!(event_loop.run(&mut 0).expect("run"), StopReason::Empty);
}

fn a_handler_without_a_handle_comes_back(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let token = Rc::new(());
    let held = Rc::clone(&token);
    let handler = move |(): &mut (), _: &mut Context<'_, '_, ()>, _: Happened| {
        let _ = &held;
        Keep
    };
    let error = event_loop
        .register_handler(Box::new(handler), IoOptions::default())
        .expect_err("refused");
    assert!(matches!(error.kind, RegisterErrorKind::NoHandle), "{error}");
    assert_eq!(Rc::strong_count(&token), 2);
    drop(error.rejected);
    assert_eq!(Rc::strong_count(&token), 1);
}

fn a_signal_that_cannot_be_caught_is_refused_by_name(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    for (number, name) in [
        (9, "signal 9"),
        (19, "signal 19"),
        (11, "signal 11"),
        (0, "signal 0"),
        (65, "signal 65"),
        (-1, "signal -1"),
    ] {
        let signal = Signal::from_number(number);
        let error = event_loop
            .on_signal(signal, |(), _, _| Keep)
            .expect_err("refused");
        assert_eq!(error.to_string(), format!("watch {name}"));
        let cause = error.source().expect("a cause").to_string();
        assert!(cause.contains(&number.to_string()), "{cause}");
    }
    assert_eq!(event_loop.events().count(), 1, "the wake-up channel alone");
}

fn a_source_of_a_failed_registration_is_closed(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let (reader, _writer) = pipe();
    let token = Rc::new(());
    let held = Rc::clone(&token);
    let options = IoOptions {
        priority: 7,
        ..IoOptions::default()
    };
    let error = event_loop
        .watch(reader, options, move |(), _, _, _| {
            let _ = &held;
            Keep
        })
        .expect_err("refused");
    assert!(error.to_string().contains("priority 7"), "{error}");
    assert_eq!(Rc::strong_count(&token), 1);
}

fn a_priority_out_of_range_is_refused(backend: Backend) {
    let config = LoopConfig {
        engine: EngineConfig {
            priorities: 2,
            ..EngineConfig::default()
        },
        ..config(backend)
    };
    let mut event_loop = EventLoop::<()>::with_config(config).expect("open");
    let event = event_loop.user_event(|(), _, _| Keep).expect("user event");
    assert_eq!(event_loop.set_priority(event, 1), Ok(()));
    assert_eq!(
        event_loop.set_priority(event, 2),
        Err(EventError::PriorityRange)
    );
    event_loop.activate(event, 1).expect("activate");
    assert_eq!(event_loop.set_priority(event, 0), Err(EventError::Active));
}

fn mixed_triggers_on_one_handle_are_refused(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let (reader, _writer) = readable_pipe();
    let reader = Rc::new(reader);
    event_loop
        .on_readable(Rc::clone(&reader), |calls: &mut u32, _, _| {
            *calls += 1;
            Remove
        })
        .expect("register");
    let fd = reader.as_raw_fd();
    let options = IoOptions {
        trigger: Trigger::Edge,
        ..IoOptions::default()
    };
    let error = event_loop
        .watch(reader, options, |_, _, _, _| Keep)
        .expect_err("refused");
    assert!(
        error.to_string().contains(&format!("handle {fd}")),
        "{error}"
    );
    let mut calls = 0;
    event_loop.run(&mut calls).expect("the first one is well");
    assert_eq!(calls, 1);
}

fn calls_for_an_event_that_is_gone_are_refused(backend: Backend) {
    let mut event_loop = open::<()>(backend);
    let gone = event_loop.defer(|(), _| {}).expect("defer");
    assert!(event_loop.remove(gone));
    let same_slot = event_loop.user_event(|(), _, _| Keep).expect("user event");
    assert_eq!(same_slot.slot(), gone.slot());
    for result in [
        event_loop.enable(gone),
        event_loop.disable(gone),
        event_loop.activate(gone, 1),
        event_loop.set_priority(gone, 0),
        event_loop.set_interest(gone, windlass::Interest::READ),
        event_loop.arm_after(gone, Duration::ZERO),
        event_loop.disarm(gone).map(drop),
    ] {
        assert_eq!(result, Err(EventError::Gone));
    }
    event_loop.set_label(gone, "gone");
    assert!(!event_loop.dump().contains("gone"));
    assert_eq!(
        event_loop.set_interest(same_slot, windlass::Interest::READ),
        Err(EventError::NoHandle)
    );
}

fn failed_registrations_leave_no_descriptor(backend: Backend) {
    let path = format!("{backend}::failed_registrations_leave_no_descriptor");
    in_own_process(&path, || {
        let before = open_descriptors();
        {
            let mut event_loop = open::<u32>(backend);
            let opened = open_descriptors();
            for _ in 0..10 {
                event_loop
                    .on_signal(Signal::from_number(9), |_, _, _| Keep)
                    .expect_err("refused");
                let (reader, _writer) = pipe();
                let options = IoOptions {
                    trigger: Trigger::Edge,
                    priority: u8::from(event_loop.features().edge_triggered),
                    ..IoOptions::default()
                };
                event_loop
                    .watch(reader, options, |_, _, _, _| Keep)
                    .expect_err("refused: no edges, or no such priority");
            }
            assert_eq!(open_descriptors(), opened);
            let signal = event_loop
                .on_signal(Signal::USR1, |_, _, _| Keep)
                .expect("signal");
            event_loop
                .on_signal(Signal::from_number(9), |_, _, _| Keep)
                .expect_err("refused");
            assert!(event_loop.dump().contains("SIGUSR1 pending"));
            assert!(event_loop.remove(signal));
        }
        assert_eq!(
            open_descriptors(),
            before,
            "a loop closes all that it opened"
        );
    });
}

fn what_a_back_end_lacks_is_said_when_it_is_opened(backend: Backend) {
    let required = Features {
        edge_triggered: true,
        ..Features::default()
    };
    let config = LoopConfig {
        backend: BackendConfig {
            required,
            ..config(backend).backend
        },
        ..config(backend)
    };
    match EventLoop::<()>::with_config(config) {
        Ok(event_loop) => assert!(event_loop.features().edge_triggered),
        Err(OpenError::Backend(cause)) => {
            assert!(!backend.features().edge_triggered);
            let text = cause.to_string();
            assert!(
                text.contains(backend.name()) && text.contains("edge"),
                "{text}"
            );
        }
        Err(other) => panic!("{other}"),
    }
}

// What follows is checked by the compiler. A type that implements a trait makes the method of the
// trait ambiguous with that of all types.

macro_rules! assert_not_impl {
    ($type:ty: $($bound:ident)*) => {
        const _: () = {
            $({
                trait Ambiguous<A> {
                    fn check() {}
                }
                struct Invalid;
                impl<T: ?Sized> Ambiguous<()> for T {}
                impl<T: ?Sized + $bound> Ambiguous<Invalid> for T {}
                let _ = <$type as Ambiguous<_>>::check;
            })*
        };
    };
}

const fn is_shared<T: Send + Sync>() {}

/// A program's state that stays in its thread.
type Local = Rc<()>;

assert_not_impl!(EventLoop<'static, ()>: Send Sync);
assert_not_impl!(Reactor<'static, ()>: Send Sync);
assert_not_impl!(Context<'static, 'static, ()>: Send Sync);
const _: () = is_shared::<Poster<'static, ()>>();
// A loop over a state that is not `Send` is posted to all the same: closures bring none with them.
const _: () = is_shared::<Poster<'static, Local>>();
const _: () = is_shared::<Waker>();
const _: () = is_shared::<StuckHandler>();
const _: () = is_shared::<Signal>();
const _: () = is_shared::<Watchdog>();
const _: () = is_shared::<OpenError>();
