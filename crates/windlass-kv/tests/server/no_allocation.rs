//! Commands that are read in place: once warm, GET and SET allocate nothing.

use windlass::session::{
    Input, Next, Now, Output, OutputLimits, Peer, Service, Session, SessionContext, Wakeups,
};
use windlass_kv::{Config, KvService, Store};

use crate::counting::{allocations, count_this_thread};

#[test]
fn commands_in_place_allocate_nothing() {
    let service = KvService::new(Store::new(Config::default()).into());
    let (mut local, now) = (service.local(), Now::default());
    let mut session = service.open(&mut local, &Peer::default(), now);
    let mut output = Output::new(OutputLimits::default());
    let mut call = |bytes: &[u8], expected: &[u8]| {
        let mut notifier = None;
        let make = || unreachable!("nobody notifies");
        let mut cx = SessionContext {
            local: &mut local,
            output: &mut output,
            now,
            wakeups: Wakeups::new(&mut notifier, &make),
        };
        let input = Input {
            bytes,
            ended: false,
        };
        let progress = session.advance(&mut cx, input);
        assert!(matches!(progress.next, Next::Read));
        assert_eq!(progress.consumed, bytes.len());
        assert_eq!(output.as_copied(), Some(expected));
        output.clear();
    };
    let long = "v".repeat(1000);
    let set = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n$1000\r\n{long}\r\n");
    let get = b"*2\r\n$3\r\nGET\r\n$4\r\nlong\r\n";
    let answer = format!("$1000\r\n{long}\r\n");
    let round = |call: &mut dyn FnMut(&[u8], &[u8])| {
        call(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n", b"+OK\r\n");
        call(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"$3\r\nabc\r\n");
        call(b"*2\r\n$3\r\nget\r\n$1\r\nx\r\n", b"$-1\r\n");
        call(
            b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*2\r\n$3\r\nDEL\r\n$1\r\nn\r\n",
            b":1\r\n:1\r\n",
        );
        call(set.as_bytes(), b"+OK\r\n");
        call(get, answer.as_bytes());
    };
    round(&mut call);
    count_this_thread();
    let before = allocations();
    for _ in 0..100 {
        round(&mut call);
    }
    assert_eq!(allocations() - before, 0);
}
