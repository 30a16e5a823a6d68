//! Every model serves the store, and its threads share it.

use std::thread;

use windlass::models::ModelKind;

use crate::client::{Value, encode};
use crate::servers::Ours;

const CLIENTS: u64 = 6;

/// Runs `run` for several clients at once, and once afterwards.
fn with_clients(
    ours: &Ours,
    run: impl Fn(&mut crate::client::Client, u64) + Send + Sync + Copy + 'static,
) {
    let addr = ours.addr;
    let threads: Vec<_> = (0..CLIENTS)
        .map(|number| thread::spawn(move || run(&mut crate::client::Client::tcp(addr), number)))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn no_increment_is_lost_on_any_model() {
    for model in ModelKind::ALL {
        let ours = Ours::start_on(model);
        with_clients(&ours, |client, _| {
            let step = [&b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"[..]; 50].concat();
            for _ in 0..20 {
                client.write(&step);
                for _ in 0..50 {
                    let _ = client.value();
                }
            }
        });
        let sum = (CLIENTS * 1000).to_string();
        assert_eq!(ours.connect().call("GET n"), Value::bulk(sum), "{model}");
        assert_eq!(ours.stop().accepted, CLIENTS + 1);
    }
}

#[test]
fn commands_on_several_keys_are_atomic_on_any_model() {
    for model in ModelKind::ALL {
        println!("{model}");
        let ours = Ours::start_on(model);
        ours.connect().call("MSET a 0 b 0 c 0 d 0 e 0");
        with_clients(&ours, |client, number| {
            for round in 0..200 {
                if number % 2 == 0 {
                    let value = format!("{number}-{round}");
                    let mset = "MSET e V a V d V b V c V".replace('V', &value);
                    assert_eq!(client.call(&mset), Value::ok());
                } else {
                    let values = client.call("MGET a b c d e").into_array();
                    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                }
            }
        });
    }
}

#[test]
fn every_key_of_all_shards_is_scanned_while_others_come_and_go() {
    let ours = Ours::start_on(ModelKind::MultiLoop);
    let mut client = ours.connect();
    for number in 0..500 {
        client.write(&encode(&["SET", &format!("stays:{number}"), "v"]));
        client.write(&encode(&["SET", &format!("goes:{number}"), "v"]));
    }
    for _ in 0..1000 {
        assert_eq!(client.value(), Value::ok());
    }
    let mut met = std::collections::BTreeSet::new();
    let (mut cursor, mut round) = ("0".to_owned(), 0);
    loop {
        let scan = format!("SCAN {cursor} COUNT 7 MATCH stays:*");
        let reply = client.call(&scan).into_array();
        met.extend(
            reply[1]
                .clone()
                .into_array()
                .into_iter()
                .map(Value::into_bulk),
        );
        cursor = String::from_utf8(reply[0].clone().into_bulk()).unwrap();
        if cursor == "0" {
            break;
        }
        for _ in 0..3 {
            client.call(&format!("DEL goes:{round}"));
            client.call(&format!("SET comes:{round} v"));
            round += 1;
        }
    }
    assert_eq!(met.len(), 500);
}

#[test]
fn connections_and_commands_are_counted_on_any_model() {
    for model in ModelKind::ALL {
        let ours = Ours::start_on(model);
        let (mut one, mut other) = (ours.connect(), ours.connect());
        assert_eq!(one.call("PING"), Value::Simple("PONG".to_owned()));
        other.call("GET nothing");
        let info = String::from_utf8(one.call("INFO clients stats").into_bulk()).unwrap();
        for line in [
            "connected_clients:2",
            "total_connections_received:2",
            "keyspace_misses:1",
        ] {
            assert!(info.contains(&format!("{line}\r\n")), "{model}: {info}");
        }
        assert!(!info.contains("# Server"), "{info}");
    }
}
