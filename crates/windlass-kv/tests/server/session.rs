//! Sizes, order and ends of connections.

use windlass_kv::Config;

use crate::client::{Value, encode};
use crate::servers::Ours;

fn small() -> Config {
    Config {
        args_max: 50,
        bulk_bytes_max: 1_000_000,
        command_bytes_max: 2_000_000,
        key_bytes_max: 100,
        shards: 1,
    }
}

#[test]
fn values_up_to_the_limit_pass_and_larger_ones_are_refused() {
    let ours = Ours::start(small());
    let mut client = ours.connect();
    for len in [0, 1, 22, 23, 1000, 1024, 16_384, 65_536, 1_000_000] {
        let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        assert_eq!(client.call_args(&[b"SET", b"k", &value]), Value::ok());
        assert_eq!(client.call("GET k"), Value::bulk(&value), "{len}");
    }
    let too_long =
        Value::Error("ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned());
    assert_eq!(client.call("APPEND k x"), too_long);
    client.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000001\r\n");
    assert_eq!(
        client.rest(),
        b"-ERR Protocol error: invalid bulk length\r\n"
    );
}

#[test]
fn commands_have_a_largest_size_and_count() {
    let ours = Ours::start(small());
    let value = vec![b'v'; 900_000];
    let mut client = ours.connect();
    client.write(&encode(&[b"MSET", &b"a"[..], &value, b"b", &value]));
    assert_eq!(client.value(), Value::ok());
    client.write(&encode(&[b"MSET", &b"a"[..], &value, b"b", &value]));
    client.write(b"*4\r\n$3\r\nDEL\r\n$900000\r\n");
    client.write(&value);
    client.write(b"\r\n$900000\r\n");
    client.write(&value);
    client.write(b"\r\n$900000\r\n");
    assert_eq!(client.value(), Value::ok());
    assert_eq!(client.rest(), b"-ERR Protocol error: too big command\r\n");
    let mut client = ours.connect();
    client.write(b"*51\r\n");
    assert_eq!(
        client.rest(),
        b"-ERR Protocol error: invalid multibulk length\r\n"
    );
}

#[test]
fn a_key_that_is_too_long_is_refused_by_every_command_that_makes_one() {
    let ours = Ours::start(small());
    let mut client = ours.connect();
    let key = "k".repeat(101);
    let refused = Value::Error("ERR key exceeds maximum allowed size".to_owned());
    for command in [
        "SET K v",
        "SET K v NX",
        "SETEX K 1 v",
        "SETNX K v",
        "GETSET K v",
        "APPEND K v",
        "INCR K",
        "MSET a v K v",
    ] {
        assert_eq!(
            client.call(&command.replace('K', &key)),
            refused,
            "{command}"
        );
    }
    assert_eq!(client.call(&format!("GET {key}")), Value::Null);
    assert_eq!(client.call("DBSIZE"), Value::Integer(0));
}

#[test]
fn more_answers_than_the_output_holds_come_all_and_in_order() {
    let ours = Ours::start(Config::default());
    let mut client = ours.connect();
    let value = vec![b'v'; 10_000];
    client.call_args(&[b"SET", b"k", &value]);
    // 20 MB of answers, which nobody reads until all is asked. The questions fit into the sockets.
    for number in 0..2000 {
        client.write(b"GET k\r\n");
        client.write(format!("ECHO {number}\r\n").as_bytes());
    }
    for number in 0..2000 {
        assert_eq!(client.value(), Value::bulk(&value));
        assert_eq!(client.value(), Value::bulk(number.to_string()));
    }
}

#[test]
fn a_long_value_that_is_being_sent_is_not_changed_by_others() {
    let ours = Ours::start(Config::default());
    let mut client = ours.connect();
    let value = vec![b'a'; 20_000_000];
    client.call_args(&[b"SET", b"k", &value]);
    let mut reader = ours.connect();
    reader.write(b"GET k\r\nSTRLEN k\r\n");
    // More than the sockets take: when it is overwritten, most of it is not sent.
    while client.call("INFO stats") == Value::Null {}
    client.call_args(&[b"APPEND", b"k", b"bbb"]);
    client.call_args(&[b"SET", b"k", &vec![b'c'; 20_000_000]]);
    let found = reader.value().into_bulk();
    let is_old = found == value;
    let is_new = found == [b'c'; 20_000_000] || found.len() == 20_000_003;
    assert!(is_old || is_new, "a mixture");
}

#[test]
fn quit_answers_and_ends_the_connection_with_what_follows_undone() {
    let ours = Ours::start(Config::default());
    let mut client = ours.connect();
    client.write(b"SET a 1\r\nQUIT\r\nSET a 2\r\n");
    assert_eq!(client.rest(), b"+OK\r\n+OK\r\n");
    assert_eq!(ours.connect().call("GET a"), Value::bulk("1"));
}

#[test]
fn half_a_command_at_the_end_is_not_done() {
    let ours = Ours::start(Config::default());
    for half in [&b"SET a 1"[..], b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1"] {
        let stream = std::net::TcpStream::connect(ours.addr).unwrap();
        std::io::Write::write_all(&mut &stream, half).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut &stream, &mut rest).unwrap();
        assert_eq!(rest, b"");
    }
    assert_eq!(ours.store.key_count(), 0);
}
