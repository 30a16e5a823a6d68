//! A keep-alive request with a fixed answer allocates nothing.

#[path = "common/counting.rs"]
mod counting;

use counting::{allocations, count_this_thread};
use windlass::session::{
    Input, Next, Notifier, Now, Output, Peer, Service, Session, SessionContext, Wakeups,
};
use windlass_http::{FixedResponse, HttpConfig, HttpService, Request, Responder, Response, Status};

#[test]
fn fixed_answer_on_a_kept_connection_allocates_nothing() {
    let fixed = FixedResponse::new(Response::new(Status::OK).body(vec![b'x'; 64]));
    let handler = move |_: &Request<'_>, response: Responder<'_>| Ok(response.fixed(&fixed));
    let service = HttpService::new(handler, HttpConfig::default());
    let mut local = service.local();
    let mut session = service.open(&mut local, &Peer::default(), Now::default());
    let mut output = Output::default();
    let make = || Notifier::new(|| {});
    let mut notifier = None;
    let input = b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n".repeat(3);
    let mut ask = || {
        let now = Now {
            unix_ms: 1,
            ..Now::default()
        };
        let mut cx = SessionContext {
            local: &mut local,
            output: &mut output,
            now,
            wakeups: Wakeups::new(&mut notifier, &make),
        };
        let progress = session.advance(
            &mut cx,
            Input {
                bytes: &input,
                ended: false,
            },
        );
        assert!(matches!(progress.next, Next::Read) && progress.consumed == input.len());
        assert!(session.deadline().is_some());
        output.advance(output.queued_bytes());
    };
    ask();

    count_this_thread();
    let before = allocations();
    for _ in 0..1000 {
        ask();
    }
    assert_eq!(allocations() - before, 0);
}
