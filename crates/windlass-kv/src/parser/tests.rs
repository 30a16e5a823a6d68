use proptest::prelude::*;

use super::*;

fn config() -> Config {
    Config {
        args_max: 100,
        bulk_bytes_max: 1000,
        command_bytes_max: 10_000,
        ..Config::default()
    }
}

/// All commands of `input`, given to the parser as it grows to each of `ends`, and the error that
/// ends it.
fn parse_in_pieces(input: &[u8], ends: &[usize]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut parser = Parser::default();
    let (mut commands, mut start) = (Vec::new(), 0);
    for &end in ends {
        loop {
            let bytes = &input[start..end];
            match parser.parse(bytes, &config()) {
                Ok(Found::Command { consumed, form }) => {
                    let args = parser.args(bytes, form).from(0);
                    commands.push(args.map(<[u8]>::to_vec).collect());
                    start += consumed;
                }
                Ok(Found::Nothing { consumed }) => start += consumed,
                Ok(Found::Incomplete { needed }) => {
                    assert!(needed > 0);
                    break;
                }
                Err(error) => return (commands, Some(error)),
            }
            assert!(!parser.is_midway());
        }
    }
    (commands, None)
}

fn parse(input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    parse_in_pieces(input, &[input.len()])
}

fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

const STREAM: &[u8] = b"*2\r\n$3\r\nGET\r\n$5\r\n\r\nabc\r\n*0\r\n*-1\r\n\r\nPING\r\n  \n\
    *1\r\n$4\r\nPING\r\nset a \"b\\x41 c\"\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\n$3\r\nGET\r\n*1\r\r\n";

#[test]
fn a_stream_is_the_same_in_all_cuts_into_three() {
    let whole = parse(STREAM);
    assert_eq!(whole.1, None);
    assert_eq!(whole.0.len(), 5);
    assert_eq!(whole.0[3][2], b"bA c");
    for first in 0..=STREAM.len() {
        for second in first..=STREAM.len() {
            let parsed = parse_in_pieces(STREAM, &[first, second, STREAM.len()]);
            assert_eq!(parsed, whole, "cut at {first} and {second}");
        }
    }
}

#[test]
fn a_stream_is_the_same_byte_by_byte() {
    let ends: Vec<usize> = (1..=STREAM.len()).collect();
    assert_eq!(parse_in_pieces(STREAM, &ends), parse(STREAM));
}

#[test]
fn errors_have_their_kind_in_every_cut() {
    use ProtocolError::*;
    for (input, error) in [
        (&b"*1\r\n:1\r\n"[..], ExpectedDollar(b':')),
        (b"*1\r\nPING\r\n", ExpectedDollar(b'P')),
        (b"*x\r\n", InvalidMultibulkLength),
        (b"*01\r\n", InvalidMultibulkLength),
        (b"*101\r\n", InvalidMultibulkLength),
        (b"*99999999999999999999\r\n", InvalidMultibulkLength),
        (b"*\r\n", InvalidMultibulkLength),
        (b"*1\r\n$-1\r\n", InvalidBulkLength),
        (b"*1\r\n$\r\n", InvalidBulkLength),
        (b"*1\r\n$1001\r\n", InvalidBulkLength),
        (b"*1\r\n$1 \r\n", InvalidBulkLength),
        (b"get \"a\r\n", UnbalancedQuotes),
    ] {
        for cut in 0..=input.len() {
            let parsed = parse_in_pieces(input, &[cut, input.len()]);
            assert_eq!(parsed, (vec![], Some(error)), "{}", input.escape_ascii());
        }
    }
}

#[test]
fn lines_have_a_longest() {
    let long = [b'1'; LINE_BYTES_MAX + 2];
    let after = |before: &[u8]| parse(&[before, &long].concat()).1;
    assert_eq!(after(b"*"), Some(ProtocolError::TooBigMultibulkCount));
    assert_eq!(after(b"*1\r\n$"), Some(ProtocolError::TooBigBulkCount));
    assert_eq!(after(b"get "), Some(ProtocolError::TooBigInline));
}

#[test]
fn a_command_has_a_largest_size() {
    let command = vec![vec![b'x'; 999]; 11];
    assert_eq!(
        parse(&encode(&command)).1,
        Some(ProtocolError::TooBigCommand)
    );
    assert_eq!(parse(&encode(&command[..9])).0, [&command[..9]]);
}

#[test]
fn what_is_needed_is_never_too_much() {
    let input = encode(&[b"SET".to_vec(), vec![b'k'; 300], vec![b'v'; 900]]);
    let (mut parser, mut have, mut calls) = (Parser::default(), 0, 0);
    loop {
        match parser.parse(&input[..have], &config()).expect("correct") {
            Found::Incomplete { needed } => have += needed,
            found => {
                let (consumed, form) = (input.len(), Form::Array);
                assert_eq!(found, Found::Command { consumed, form });
                break;
            }
        }
        calls += 1;
    }
    // Each byte of the lines, and each string at once.
    assert!(calls < 40, "{calls}");
}

proptest! {
    #[test]
    fn what_was_encoded_is_read_in_any_cuts(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let input: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(input.len());
        prop_assert_eq!(parse_in_pieces(&input, &ends), (commands, None));
    }

    #[test]
    fn anything_is_read_the_same_in_any_cuts(
        input in "[*$\\r\\n0-9a\"' x\\\\-]{0,60}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let input = input.as_bytes();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(input.len());
        prop_assert_eq!(parse_in_pieces(input, &ends), parse(input));
    }
}
