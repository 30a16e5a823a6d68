//! A session answers the same, whatever the pieces that its input comes in.

use proptest::prelude::*;

use crate::client::encode;
use crate::session_cuts::check;

/// Commands with values of all sizes, and what is none between them.
fn inputs() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec!["get", "SET", "append", "mget", "echo", "incr", "scan"]);
    let arg = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..30),
        (0..5_usize).prop_map(|number| number.to_string().into_bytes()),
        (0..60_000_usize).prop_map(|len| vec![b'x'; len]),
    ];
    let command = (name, prop::collection::vec(arg, 0..4)).prop_map(|(name, args)| {
        let mut command = vec![name.as_bytes().to_vec()];
        command.extend(args);
        encode(&command)
    });
    let piece = prop_oneof![
        8 => command,
        1 => "[a-z \"'\\\\]{0,20}\r\n".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..10),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn pieces_do_not_change_the_answers(input in inputs(), choice: u8) {
        let mut data = vec![choice];
        data.extend(input);
        check(&data);
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_passes() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/kv");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let mut data = std::fs::read(entry.unwrap().path()).unwrap();
        for choice in 0..=255 {
            data[0] = choice;
            check(&data);
        }
        count += 1;
    }
    assert!(count >= 8, "{count}");
}
