//! What the types promise: which may cross threads, and which may exist only once.

use windlass_core::*;

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

/// Does not compile if `$type` is `$forbidden`: the call would be ambiguous.
macro_rules! assert_not_implemented {
    ($type:ty, $forbidden:path) => {{
        trait Ambiguous<Marker> {
            fn some() {}
        }
        struct Has;
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: ?Sized + $forbidden> Ambiguous<Has> for T {}
        let _ = <$type as Ambiguous<_>>::some;
    }};
}

#[test]
fn an_engine_may_cross_threads_as_its_payload_may() {
    is_send::<Engine<Box<dyn FnMut() + Send>>>();
    is_sync::<Engine<std::sync::Arc<dyn Fn() + Send + Sync>>>();
    assert_not_implemented!(Engine<std::rc::Rc<u8>>, Send);
    is_send::<Batch>();
    is_send::<WaitPlan>();
    is_send::<InFlight>();
    is_send::<Call<Box<dyn FnMut() + Send>>>();
    is_send::<sim::SimDemultiplexer>();
    is_send::<Box<dyn EventDemultiplexer + Send>>();
}

#[test]
fn the_tokens_of_a_turn_cannot_be_copied() {
    assert_not_implemented!(WaitPlan, Clone);
    assert_not_implemented!(Waited, Clone);
    assert_not_implemented!(Turn, Clone);
    assert_not_implemented!(InFlight, Clone);
    assert_not_implemented!(Call<u8>, Clone);
    assert_not_implemented!(WatcherCursor, Clone);
    assert_not_implemented!(WatcherCall<u8>, Clone);
}

#[test]
fn ids_are_one_word() {
    assert_eq!(size_of::<HandleId>(), 8);
    assert_eq!(size_of::<EventId>(), 8);
    let id = HandleId::from_bits(0x0000_0007_0000_0003);
    assert_eq!(
        (id.to_bits(), format!("{id:?}")),
        (0x0000_0007_0000_0003, "h3.7".into())
    );
}

#[test]
fn errors_are_errors() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<InsertError<Box<dyn FnMut() + Send + Sync>>>();
    is_error::<EventError>();
    is_error::<CommonTimeoutError>();
}
