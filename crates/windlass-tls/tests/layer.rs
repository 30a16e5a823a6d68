//! The session contract through the TLS layer, with a driver in memory.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{
    BOTH, Call, Client, LIMITS, ONLY_12, ONLY_13, Script, Server, Waits, carry, client_config,
    config, file_of, pattern, wrap,
};
use proptest::prelude::*;
use windlass::session::{Job, Next, Notifier, Session, SessionContext, Transport};
use windlass_tls::TlsService;

type Inner<'a> = SessionContext<'a, ()>;

/// A connection whose handshake is done.
fn connected(service: &TlsService<Script>) -> (Client, Server<TlsService<Script>>) {
    let (mut client, mut server) = (Client::with(BOTH), Server::open(service));
    carry(&mut client, &mut server, usize::MAX);
    assert!(!client.tls.is_handshaking());
    (client, server)
}

#[test]
fn handshake_and_data_may_be_cut_anywhere() {
    let service = wrap(Script::echo());
    for versions in [ONLY_12, ONLY_13] {
        for cut in (1..40).chain([100, 1000, 5000]) {
            let (mut client, mut server) = (Client::with(versions), Server::open(&service));
            client.write(b"hello, ");
            carry(&mut client, &mut server, cut);
            client.write(b"world");
            carry(&mut client, &mut server, cut);
            assert_eq!(client.received, b"hello, world", "cut at {cut}");
            client.close();
            carry(&mut client, &mut server, cut);
            assert!(
                client.closed && matches!(server.waits, Waits::Close),
                "cut at {cut}"
            );
        }
    }
    let report = service.handle().report();
    assert_eq!((report.handshakes, report.failed_handshakes), (84, 0));
}

#[test]
fn wrapped_session_learns_of_the_transport() {
    let script = Script::echo();
    let peers = Arc::clone(&script.peers);
    let (_client, _server) = connected(&wrap(script));
    let peers = peers.lock().unwrap();
    assert_eq!(peers.len(), 1);
    assert_eq!(peers[0].transport, Transport::Tls);
    assert_eq!(peers[0].remote, Some(([192, 0, 2, 1], 4711).into()));
}

#[test]
fn end_without_close_notify_ends_the_input() {
    let service = wrap(Script::echo());
    let (mut client, mut server) = connected(&service);
    client.write(b"last");
    carry(&mut client, &mut server, 1000);
    server.end();
    carry(&mut client, &mut server, 1000);
    assert!(matches!(server.waits, Waits::Close));
    assert!(client.closed);
    assert_eq!(client.received, b"last");
}

#[test]
fn half_a_record_at_the_end_is_not_taken_for_data() {
    let service = wrap(Script::echo());
    let (mut client, mut server) = connected(&service);
    client.write(b"never whole");
    client.outgoing.pop();
    carry(&mut client, &mut server, 1000);
    server.end();
    carry(&mut client, &mut server, 1000);
    assert!(matches!(server.waits, Waits::Close));
    assert!(client.received.is_empty());
}

#[test]
fn answer_after_the_peers_close_notify_arrives() {
    let service = wrap(Script::new(|| {
        |cx: &mut Inner<'_>, call: Call<'_>| match call {
            Call::Advance(input) if input.ended => {
                cx.output.push(b"after all");
                (input.bytes.len(), Next::Close)
            }
            Call::Advance(_) => (0, Next::Read),
            _ => (0, Next::Close),
        }
    }));
    for versions in [ONLY_12, ONLY_13] {
        let (mut client, mut server) = (Client::with(versions), Server::open(&service));
        client.write(b"request");
        carry(&mut client, &mut server, 100);
        client.close();
        carry(&mut client, &mut server, 100);
        assert_eq!(client.received, b"after all");
        assert!(client.closed && matches!(server.waits, Waits::Close));
    }
}

/// Produces `total` bytes as fast as it is let, then closes.
fn producer(total: usize, produced: &Arc<AtomicUsize>) -> Script {
    let produced = Arc::clone(produced);
    Script::new(move || {
        let produced = Arc::clone(&produced);
        move |cx: &mut Inner<'_>, call: Call<'_>| {
            let Call::Advance(input) = call else {
                return (0, Next::Close);
            };
            if input.bytes.is_empty() && produced.load(Ordering::Relaxed) == 0 {
                return (0, Next::Read);
            }
            let mut at = produced.load(Ordering::Relaxed);
            while !cx.output.is_full() && at < total {
                let piece = pattern(total)[at..total.min(at + 5000)].to_vec();
                at += piece.len();
                match at % 2 {
                    0 => cx.output.push(&piece),
                    _ => cx.output.push_shared(Bytes::from(piece)),
                }
            }
            produced.store(at, Ordering::Relaxed);
            let next = if at == total {
                Next::Close
            } else {
                Next::Flush
            };
            (input.bytes.len(), next)
        }
    })
}

#[test]
fn slow_reader_holds_the_producer_back() {
    let total = 1_000_001;
    let produced = Arc::new(AtomicUsize::new(0));
    let service = wrap(producer(total, &produced));
    let (mut client, mut server) = connected(&service);
    client.write(b"go");
    server.feed(&std::mem::take(&mut client.outgoing));
    // Nobody reads: one high mark of ciphertext, and one of plaintext with what overshoots it.
    assert!(matches!(server.waits, Waits::Flush));
    let bound = 2 * LIMITS.high_bytes as usize + 5000;
    assert!(produced.load(Ordering::Relaxed) <= bound);
    let mut taken = 0;
    while !server.is_over() || !server.output.is_empty() {
        server.drain(777);
        taken += server.sent.len();
        let ahead = produced.load(Ordering::Relaxed).saturating_sub(taken);
        assert!(ahead <= bound, "{ahead} ahead");
        carry_back(&mut client, &mut server);
    }
    assert!(
        server.queued_max <= LIMITS.high_bytes + 4096,
        "{}",
        server.queued_max
    );
    assert!(client.closed && client.received == pattern(total));
}

fn carry_back(client: &mut Client, server: &mut Server<TlsService<Script>>) {
    let sent = std::mem::take(&mut server.sent);
    let mut bytes = &sent[..];
    while !bytes.is_empty() {
        client.tls.read_tls(&mut bytes).unwrap();
        client.closed |= client.tls.process_new_packets().unwrap().peer_has_closed();
        // Would-block says that there is no more for now.
        let _ = std::io::Read::read_to_end(&mut client.tls.reader(), &mut client.received);
    }
}

/// Answers the first input with a head, a file of `promised` bytes, and a tail.
fn file_sender(file: std::fs::File, promised: u64) -> Script {
    let file = Arc::new(file);
    Script::new(move || {
        let file = Arc::clone(&file);
        move |cx: &mut Inner<'_>, call: Call<'_>| match call {
            Call::Advance(input) if !input.bytes.is_empty() => {
                cx.output.push(b"head");
                cx.output.push_file(Arc::clone(&file), 3, promised);
                cx.output.push(b"tail");
                (input.bytes.len(), Next::Flush)
            }
            Call::Advance(input) if input.ended => (0, Next::Close),
            _ => (0, Next::Read),
        }
    })
}

#[test]
fn file_is_sent_between_other_output_and_never_ahead() {
    for len in [0, 1, 16_383, 16_384, 16_385, 300_000] {
        let content = pattern(len + 3);
        let service = wrap(file_sender(file_of(&content), len as u64));
        for cut in [500, 16_406, usize::MAX] {
            let (mut client, mut server) = connected(&service);
            client.write(b"get");
            carry(&mut client, &mut server, cut);
            let expected = [b"head", &content[3..], b"tail"].concat();
            assert!(client.received == expected, "{len} bytes, cut at {cut}");
            assert!(server.queued_max <= LIMITS.high_bytes + 4096);
            assert!(matches!(server.waits, Waits::Read));
        }
    }
}

#[test]
fn file_that_got_shorter_aborts_without_close_notify() {
    let file = file_of(&pattern(200_000));
    let shortened = file.try_clone().unwrap();
    let service = wrap(file_sender(file, 199_997));
    let (mut client, mut server) = connected(&service);
    client.write(b"get");
    server.feed(&std::mem::take(&mut client.outgoing));
    assert!(matches!(server.waits, Waits::Flush));
    shortened.set_len(100_000).unwrap();
    carry(&mut client, &mut server, 10_000);
    assert!(matches!(server.waits, Waits::Abort));
    assert!(!client.closed && client.received.len() < 100_000);
    assert_eq!(service.handle().report().truncated_files, 1);
}

#[test]
fn job_starts_when_the_output_before_it_is_encrypted() {
    let service = wrap(Script::new(|| {
        |cx: &mut Inner<'_>, call: Call<'_>| match call {
            Call::Advance(input) if !input.bytes.is_empty() => {
                cx.output.push(&pattern(300_000));
                (input.bytes.len(), Next::Job(Job::new(|| 42_u32)))
            }
            Call::Complete(result) => {
                let value = result.downcast::<u32>().unwrap();
                cx.output.push(format!("{value}").as_bytes());
                (0, Next::Close)
            }
            _ => (0, Next::Read),
        }
    }));
    let (mut client, mut server) = connected(&service);
    client.write(b"go");
    server.feed(&std::mem::take(&mut client.outgoing));
    assert!(matches!(server.waits, Waits::Flush));
    carry(&mut client, &mut server, 4000);
    assert!(matches!(server.waits, Waits::Job(_)));
    assert_eq!(client.received.len(), 300_000);
    server.run_job();
    carry(&mut client, &mut server, 4000);
    assert!(client.received.ends_with(b"42") && client.closed);
}

#[test]
fn input_that_came_before_a_job_is_given_after_it() {
    let service = wrap(Script::new(|| {
        |cx: &mut Inner<'_>, call: Call<'_>| match call {
            // One letter at a time.
            Call::Advance(input) if !input.bytes.is_empty() => {
                let letter = input.bytes[0];
                (1, Next::Job(Job::new(move || letter)))
            }
            Call::Complete(result) => {
                cx.output.push(&[*result.downcast::<u8>().unwrap()]);
                (0, Next::Read)
            }
            Call::Advance(input) if input.ended => (0, Next::Close),
            _ => (0, Next::Read),
        }
    }));
    let (mut client, mut server) = connected(&service);
    client.write(b"ab");
    client.write(b"cd");
    client.close();
    loop {
        carry(&mut client, &mut server, usize::MAX);
        if server.is_over() {
            break;
        }
        server.run_job();
    }
    assert_eq!(client.received, b"abcd");
    assert!(client.closed);
}

#[test]
fn notification_reaches_a_waiting_session_and_input_is_kept_to_the_limit() {
    let given = Arc::new(Mutex::new(None::<Notifier>));
    let slot = Arc::clone(&given);
    let seen = Arc::new(AtomicUsize::new(0));
    let most = Arc::clone(&seen);
    let inner = Script::new(move || {
        let (slot, most) = (Arc::clone(&slot), Arc::clone(&most));
        move |cx: &mut Inner<'_>, call: Call<'_>| {
            let Call::Advance(input) = call else {
                return (0, Next::Close);
            };
            most.fetch_max(input.bytes.len(), Ordering::Relaxed);
            if slot.lock().unwrap().is_none() {
                *slot.lock().unwrap() = Some(cx.wakeups.notifier());
            }
            if input.bytes.len() == 300_000 || input.ended {
                cx.output.push(b"all");
                return (input.bytes.len(), Next::Close);
            }
            cx.output.push(b".");
            (0, Next::Wait)
        }
    });
    let service = TlsService::new(inner, config().input_bytes_max(50_000)).unwrap();
    let (mut client, mut server) = connected(&service);
    let dots = client.received.len();
    given.lock().unwrap().as_ref().unwrap().notify();
    assert!(server.serve_notification());
    carry(&mut client, &mut server, 1000);
    assert_eq!(client.received.len(), dots + 1);
    // More than the limit is not decrypted while the session waits.
    client.write(&pattern(200_000));
    let all = std::mem::take(&mut client.outgoing);
    for piece in all.chunks(1000) {
        server.feed(piece);
        server.drain(usize::MAX);
    }
    let most = seen.load(Ordering::Relaxed);
    assert!((50_000..50_000 + 17_000).contains(&most), "{most}");
    assert!(matches!(server.waits, Waits::Wait));
}

#[test]
fn session_that_leaves_more_than_the_limit_ends() {
    let inner = Script::new(|| |_: &mut Inner<'_>, _: Call<'_>| (0, Next::Read));
    let service = TlsService::new(inner, config().input_bytes_max(20_000)).unwrap();
    let (mut client, mut server) = connected(&service);
    client.write(&pattern(30_000));
    carry(&mut client, &mut server, 1000);
    assert!(matches!(server.waits, Waits::Close));
}

#[test]
fn deadlines_pass_through_and_an_answer_may_be_appended() {
    let inner = Script::new(|| {
        |cx: &mut Inner<'_>, call: Call<'_>| match call {
            Call::Expire => {
                cx.output.push(b"too late");
                (0, Next::Close)
            }
            _ => (0, Next::Read),
        }
    });
    let deadline = Arc::clone(&inner.deadline);
    let service = wrap(inner);
    let (mut client, mut server) = connected(&service);
    assert_eq!(server.session.deadline(), None);
    *deadline.lock().unwrap() = Some(server.now.monotonic + Duration::from_secs(3));
    assert_eq!(server.session.deadline(), *deadline.lock().unwrap());
    server.pass(Duration::from_secs(2));
    assert!(matches!(server.waits, Waits::Read));
    server.pass(Duration::from_secs(1));
    carry(&mut client, &mut server, 1000);
    assert_eq!(client.received, b"too late");
    assert!(client.closed && matches!(server.waits, Waits::Close));
    assert_eq!(server.session.deadline(), None);
}

#[test]
fn deadline_that_is_not_moved_closes() {
    let inner = Script::new(|| |_: &mut Inner<'_>, _: Call<'_>| (0, Next::Read));
    let deadline = Arc::clone(&inner.deadline);
    let service = wrap(inner);
    let (mut client, mut server) = connected(&service);
    *deadline.lock().unwrap() = Some(server.now.monotonic);
    server.pass(Duration::ZERO);
    carry(&mut client, &mut server, 1000);
    assert!(client.closed && matches!(server.waits, Waits::Close));
}

#[test]
fn stop_lets_a_session_finish_and_closes_with_the_alert() {
    let service = wrap(Script::new(|| {
        |cx: &mut Inner<'_>, call: Call<'_>| {
            if let Call::Stop = call {
                cx.output.push(b"bye");
                return (0, Next::Close);
            }
            (0, Next::Read)
        }
    }));
    let (mut client, mut server) = connected(&service);
    server.stop();
    carry(&mut client, &mut server, 1000);
    assert!(client.closed && matches!(server.waits, Waits::Close));
    assert_eq!(client.received, b"bye");
}

#[test]
fn stop_while_a_job_runs_waits_for_it() {
    let service = wrap(Script::new(|| {
        |cx: &mut Inner<'_>, call: Call<'_>| match call {
            Call::Advance(input) if !input.bytes.is_empty() => {
                (input.bytes.len(), Next::Job(Job::new(|| ())))
            }
            Call::Complete(_) => {
                cx.output.push(b"done");
                (0, Next::Close)
            }
            _ => (0, Next::Read),
        }
    }));
    let (mut client, mut server) = connected(&service);
    client.write(b"go");
    carry(&mut client, &mut server, 1000);
    server.stop();
    assert!(matches!(server.waits, Waits::Job(_)));
    server.run_job();
    carry(&mut client, &mut server, 1000);
    assert_eq!(client.received, b"done");
    assert!(client.closed);
}

#[test]
fn stop_during_a_fresh_handshake_is_told_the_session_that_follows() {
    let service = wrap(Script::new(|| {
        |cx: &mut Inner<'_>, call: Call<'_>| match call {
            Call::Stop => {
                cx.output.push(b"bye");
                (0, Next::Close)
            }
            _ => (0, Next::Read),
        }
    }));
    let (mut client, mut server) = (Client::with(BOTH), Server::open(&service));
    client.write(b"early");
    server.feed(&client.outgoing[..20]);
    client.outgoing.drain(..20);
    server.stop();
    assert!(matches!(server.waits, Waits::Read));
    carry(&mut client, &mut server, 100);
    assert_eq!(client.received, b"bye");
    assert!(client.closed);
    assert!(matches!(server.waits, Waits::Close));
}

#[test]
fn stop_ends_a_handshake_that_takes_long() {
    let service = wrap(Script::echo());
    for pause in [Duration::ZERO, Duration::from_millis(400)] {
        let mut server = Server::open(&service);
        server.feed(b"\x16\x03");
        server.pass(pause);
        server.stop();
        assert!(matches!(server.waits, Waits::Read));
        server.pass(Duration::from_millis(1000) - pause);
        assert!(matches!(server.waits, Waits::Close));
    }
    let mut server = Server::open(&service);
    server.pass(Duration::from_secs(1));
    server.stop();
    assert!(matches!(server.waits, Waits::Close));
    assert_eq!(service.handle().report().handshake_timeouts, 0);
}

#[test]
fn abort_passes_through_without_close_notify() {
    let service = wrap(Script::new(|| {
        |cx: &mut Inner<'_>, call: Call<'_>| match call {
            Call::Advance(input) if !input.bytes.is_empty() => {
                cx.output.push(b"half an ans");
                (input.bytes.len(), Next::Abort)
            }
            _ => (0, Next::Read),
        }
    }));
    let (mut client, mut server) = connected(&service);
    client.write(b"go");
    carry(&mut client, &mut server, 1000);
    assert!(matches!(server.waits, Waits::Abort) && !client.closed);
    assert!(client.received.is_empty());
}

#[test]
fn handshake_that_takes_too_long_is_aborted() {
    let config = config().handshake_timeout(Duration::from_secs(4));
    let service = TlsService::new(Script::echo(), config).unwrap();
    let mut client = Client::with(BOTH);
    client.write(b"x");
    for given in [0, 1, 5, 100] {
        let mut server = Server::open(&service);
        server.feed(&client.outgoing[..given]);
        server.pass(Duration::from_millis(3999));
        assert!(matches!(server.waits, Waits::Read));
        server.pass(Duration::from_millis(1));
        assert!(matches!(server.waits, Waits::Abort));
    }
    assert_eq!(service.handle().report().handshake_timeouts, 4);
}

#[test]
fn garbage_gets_an_alert() {
    let service = wrap(Script::echo());
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x00\x05\x09\x00\x00\x01\x00",
        &[0xff; 300],
    ] {
        let mut server = Server::open(&service);
        server.feed(garbage);
        server.drain(usize::MAX);
        assert!(matches!(server.waits, Waits::Close));
        // A fatal alert, in clear (RFC 8446 section 6).
        assert_eq!((server.sent[0], server.sent[5]), (21, 2), "{garbage:?}");
    }
    assert_eq!(service.handle().report().failed_handshakes, 3);
}

#[test]
fn clear_text_http_gets_the_configured_answer_however_it_is_cut() {
    let answer = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    let service = TlsService::new(Script::echo(), config().plain_http_answer(answer)).unwrap();
    let request = b"OPTIONS * HTTP/1.1\r\n\r\n";
    for cut in 1..request.len() {
        let mut server = Server::open(&service);
        server.feed(&request[..cut]);
        if !server.is_over() {
            server.feed(&request[cut..]);
        }
        server.drain(usize::MAX);
        assert!(matches!(server.waits, Waits::Close));
        assert_eq!(server.sent, answer.as_bytes());
    }
    // And TLS works all the same.
    let (mut client, mut server) = connected(&service);
    client.write(b"x");
    carry(&mut client, &mut server, 3);
    assert_eq!(client.received, b"x");
}

#[test]
fn damaged_record_gets_an_alert_and_ends_the_connection() {
    let service = wrap(Script::echo());
    let (mut client, mut server) = connected(&service);
    client.write(b"hello");
    *client.outgoing.last_mut().unwrap() ^= 1;
    carry(&mut client, &mut server, 1000);
    assert!(matches!(server.waits, Waits::Close));
    let alert = rustls::AlertDescription::BadRecordMac;
    assert_eq!(client.error, Some(rustls::Error::AlertReceived(alert)));
    assert_eq!(service.handle().report().protocol_errors, 1);
}

#[test]
fn peer_that_ends_during_the_handshake_is_counted() {
    let service = wrap(Script::echo());
    let mut server = Server::open(&service);
    server.feed(b"\x16\x03");
    server.end();
    assert!(matches!(server.waits, Waits::Close));
    assert_eq!(service.handle().report().failed_handshakes, 1);
}

#[test]
fn sessions_resume_and_survive_a_reload() {
    let service = wrap(Script::echo());
    for versions in [ONLY_12, ONLY_13] {
        let before = service.handle().report().resumed;
        let config = Arc::new(client_config(versions));
        for round in 0..3 {
            let (mut client, mut server) = (Client::new(&config), Server::open(&service));
            client.write(b"x");
            carry(&mut client, &mut server, usize::MAX);
            assert_eq!(client.received, b"x");
            assert_eq!(service.handle().report().resumed - before, round);
            service.handle().reload().unwrap();
        }
    }
}

#[test]
fn sessions_resume_with_another_inner_service_and_handles_and_counts_go_on() {
    let service = wrap(Script::echo());
    let handle = service.handle();
    for (round, versions) in [ONLY_12, ONLY_13].into_iter().enumerate() {
        let config = Arc::new(client_config(versions));
        let ask = |service: &TlsService<Script>| {
            let (mut client, mut server) = (Client::new(&config), Server::open(service));
            client.write(b"x");
            carry(&mut client, &mut server, usize::MAX);
            client.received
        };
        assert_eq!(ask(&service), b"x");
        let other = service.with_inner(Script::new(|| {
            |cx: &mut Inner<'_>, call: Call<'_>| match call {
                Call::Advance(input) if !input.bytes.is_empty() => {
                    cx.output.push(b"other");
                    (input.bytes.len(), Next::Read)
                }
                _ => (0, Next::Read),
            }
        }));
        handle.reload().unwrap();
        assert_eq!(ask(&other), b"other");
        let report = handle.report();
        let round = round as u64 + 1;
        assert_eq!((report.handshakes, report.resumed), (2 * round, round));
    }
}

#[test]
fn key_updates_are_answered() {
    let service = wrap(Script::echo());
    let (mut client, mut server) = (Client::with(ONLY_13), Server::open(&service));
    carry(&mut client, &mut server, usize::MAX);
    for _ in 0..5 {
        client.tls.refresh_traffic_keys().unwrap();
        client.write(b"x");
        carry(&mut client, &mut server, 7);
    }
    assert_eq!(client.received, b"xxxxx");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever is sent and however it is cut comes back.
    #[test]
    fn echo_is_exact(
        pieces in prop::collection::vec(0_usize..40_000, 1..8),
        cut in 1_usize..70_000,
        is_old in any::<bool>(),
    ) {
        let service = wrap(Script::echo());
        let versions = if is_old { ONLY_12 } else { ONLY_13 };
        let (mut client, mut server) = (Client::with(versions), Server::open(&service));
        let mut expected = Vec::new();
        for len in pieces {
            let piece = pattern(len);
            client.write(&piece);
            expected.extend(piece);
            carry(&mut client, &mut server, cut.max(len / 500 + 1));
        }
        client.close();
        carry(&mut client, &mut server, cut.max(100));
        prop_assert!(client.received == expected);
        prop_assert!(client.closed && matches!(server.waits, Waits::Close));
    }

    /// Whatever a handshake is damaged to, the connection ends in order, or waits for more.
    #[test]
    fn damaged_handshake_does_no_harm(
        at in 0_usize..400,
        flip in 1_u8..=255,
        cut in 1_usize..500,
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let service = wrap(Script::echo());
        let (mut client, mut server) = (Client::with(BOTH), Server::open(&service));
        client.write(b"x");
        let at = at % client.outgoing.len();
        client.outgoing[at] ^= flip;
        client.outgoing.extend(noise);
        carry(&mut client, &mut server, cut);
        server.end();
        carry(&mut client, &mut server, cut);
    }
}
