//! Keys leave in time, by the timer of a loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass::event_loop::EventLoop;
use windlass_kv::{Config, ExpiryTimer, Store};

use crate::client::{PATIENCE, Value};
use crate::servers::Ours;

/// Waits until the store has so many keys, without a call that could expire any.
fn wait_for_keys(store: &Store, count: usize) {
    let end = Instant::now() + PATIENCE;
    while store.key_count() != count {
        assert!(Instant::now() < end, "{} keys are left", store.key_count());
        std::thread::yield_now();
    }
}

#[test]
fn keys_leave_memory_without_being_asked_for() {
    let ours = Ours::start(Config::default());
    let mut client = ours.connect();
    client.call("SET far v EX 1000");
    for number in 0..5000 {
        client.write(format!("SET near{number} v PX {}\r\n", 1 + number % 50).as_bytes());
    }
    for _ in 0..5000 {
        assert_eq!(client.value(), Value::ok());
    }
    client.call("SET stays v");
    // Nothing is sent from here on: the loop wakes by itself.
    wait_for_keys(&ours.store, 2);
    assert_eq!(client.call("GET far"), Value::bulk("v"));
    let info = String::from_utf8(client.call("INFO").into_bulk()).unwrap();
    assert!(info.contains("expired_keys:5000\r\n"), "{info}");
    assert!(info.contains("db0:keys=2,expires=1,"), "{info}");
}

#[test]
fn an_earlier_deadline_is_not_missed_behind_a_later_one() {
    let ours = Ours::start(Config::default());
    let mut client = ours.connect();
    for (life, left) in [("EX 1000", 1), ("PX 20", 1), ("EX 100", 2), ("PX 1", 2)] {
        client.call(&format!("SET {} v {life}", life.replace(' ', "")));
        wait_for_keys(&ours.store, left);
    }
    // Taken away, it is not met; given back, it is.
    assert_eq!(client.call("PERSIST EX100"), Value::Integer(1));
    assert_eq!(client.call("PEXPIRE EX1000 5"), Value::Integer(1));
    wait_for_keys(&ours.store, 1);
    assert_eq!(client.call("EXISTS EX100"), Value::Integer(1));
}

#[test]
fn a_key_is_there_until_its_time_and_gone_afterwards() {
    let ours = Ours::start(Config::default());
    let mut client = ours.connect();
    let start = Instant::now();
    client.call("SET k v PX 300");
    loop {
        let before = Instant::now();
        let value = client.call("GET k");
        // The server's clock is the wall's, in whole milliseconds.
        if value == Value::Null {
            assert!(start.elapsed() >= Duration::from_millis(298));
            break;
        }
        assert!(before - start < PATIENCE);
    }
    assert_eq!(ours.store.key_count(), 0);
}

#[test]
fn a_store_without_deadlines_wakes_nobody() {
    let store = Arc::new(Store::new(Config::default()));
    let mut event_loop: EventLoop<'_, u32> = EventLoop::new().unwrap();
    ExpiryTimer::attach(&mut event_loop, Arc::clone(&store)).unwrap();
    // With nothing to wait for, the loop ends: the timer is not armed.
    event_loop.run(&mut 0).unwrap();
    assert_eq!(store.next_deadline_ms(), None);
}
