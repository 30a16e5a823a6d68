//! A prepared request on a kept connection allocates nothing.

#[path = "common/counting.rs"]
mod counting;

use counting::{allocations, count_this_thread};
use windlass::session::{Input, Output};
use windlass_http::client::{
    ClientConnection, ClientNext, ClientRequest, Flow, ResponseLimits, ResponseSink, Reuse,
};

/// Counts bytes, as a load generator does.
struct Count(u64);

impl ResponseSink for Count {
    fn body(&mut self, piece: &[u8]) -> Flow {
        self.0 += piece.len() as u64;
        Flow::Continue
    }
}

#[test]
fn a_prepared_request_and_its_response_allocate_nothing() {
    let request = ClientRequest::get("http://h/a").expect("valid").prepare();
    let mut connection = ClientConnection::new(ResponseLimits::default());
    let mut output = Output::default();
    let mut count = Count(0);
    let answers: [&[u8]; 2] = [
        b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
    ];
    let mut ask = |bytes: &[u8]| {
        connection.send(&request, &mut output);
        output.advance(output.queued_bytes());
        // In two pieces, as networks cut it.
        let first = &bytes[..20];
        let input = Input {
            bytes: first,
            ended: false,
        };
        let progress = connection.advance(input, &mut count).expect("a head");
        assert_eq!((progress.consumed, progress.next), (0, ClientNext::Read));
        let input = Input {
            bytes,
            ended: false,
        };
        let progress = connection.advance(input, &mut count).expect("a response");
        assert_eq!(progress.next, ClientNext::Done(Reuse::Keep));
        assert_eq!(progress.consumed, bytes.len());
    };
    answers.iter().for_each(|answer| ask(answer));
    count_this_thread();
    let before = allocations();
    for _ in 0..1000 {
        answers.iter().for_each(|answer| ask(answer));
    }
    assert_eq!(allocations() - before, 0);
    assert_eq!(count.0, 2002 * 5);
}
