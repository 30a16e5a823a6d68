//! The whole session against itself, in different cuts. Shared by a test and a fuzz target.

use windlass::session::{
    Front, Input, Next, Now, Output, OutputLimits, Peer, Progress, Service, Session,
    SessionContext, Wakeups,
};
use windlass_kv::{Config, KvService, Store};

/// What a driver keeps of an incomplete command at most.
const LEFT_BYTES_MAX: usize = 1024;

/// Gives what is behind the first byte to a session at once, and to another one in pieces that the
/// first byte chooses.
///
/// # Panics
///
/// If the two answer differently, or one of them breaks a rule of sessions.
pub(crate) fn check(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else {
        return;
    };
    let whole = answers(input, input.len().max(1), OutputLimits::default());
    let limits = OutputLimits {
        high_bytes: 1 + u64::from(choice % 4) * 50,
        low_bytes: 0,
    };
    let pieces = answers(input, 1 + usize::from(choice / 4), limits);
    assert!(
        whole == pieces,
        "at once: {}\nin pieces: {}",
        whole.escape_ascii(),
        pieces.escape_ascii()
    );
}

/// All that a session of a new store answers.
fn answers(input: &[u8], piece_len: usize, limits: OutputLimits) -> Vec<u8> {
    let config = Config {
        args_max: 1000,
        bulk_bytes_max: 100_000,
        command_bytes_max: 200_000,
        key_bytes_max: 1000,
        shards: 1,
    };
    let service = KvService::new(Store::new(config).into());
    let mut local = service.local();
    let now = Now {
        unix_ms: 1_000_000,
        ..Now::default()
    };
    let mut session = service.open(&mut local, &Peer::default(), now);
    let mut output = Output::new(limits);
    let (mut left, mut answers) = (Vec::new(), Vec::new());
    let end: &[u8] = &[];
    for piece in input.chunks(piece_len).chain([end]) {
        left.extend_from_slice(piece);
        let ended = piece.is_empty();
        loop {
            let mut notifier = None;
            let make = || unreachable!("it waits for nobody");
            let mut cx = SessionContext {
                local: &mut local,
                output: &mut output,
                now,
                wakeups: Wakeups::new(&mut notifier, &make),
            };
            let bytes = &left[..];
            let Progress { consumed, next } = session.advance(&mut cx, Input { bytes, ended });
            left.drain(..consumed);
            take(&mut output, &mut answers);
            match next {
                Next::Read => break,
                Next::Flush => {}
                Next::Close => return answers,
                other => panic!("it asks for {other:?}"),
            }
        }
        assert!(left.len() <= LEFT_BYTES_MAX, "it leaves {}", left.len());
    }
    panic!("it goes on after the end of its input");
}

fn take(output: &mut Output, to: &mut Vec<u8>) {
    while let Some(front) = output.front() {
        let Front::Bytes(bytes) = front else {
            panic!("it sends a file");
        };
        to.extend_from_slice(bytes);
        let count = bytes.len() as u64;
        output.advance(count);
    }
}
