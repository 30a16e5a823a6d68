use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;

use super::shard::SetDeadline;
use super::*;

fn store(shards: usize) -> Store {
    Store::new(Config {
        shards,
        ..Config::default()
    })
}

fn set(store: &Store, key: &[u8], value: &[u8], deadline: SetDeadline) {
    let mut access = store.access();
    let (shard, hashed) = access.shard(key);
    shard.set(hashed, value, deadline);
    if let SetDeadline::At(deadline_ms) = deadline {
        access.note_deadline(deadline_ms);
    }
}

fn get(store: &Store, key: &[u8], now_ms: u64) -> Option<Vec<u8>> {
    let mut access = store.access();
    let (shard, hashed) = access.shard(key);
    shard.get(hashed, now_ms).map(|value| value.to_vec())
}

fn remove(store: &Store, key: &[u8]) {
    let mut access = store.access();
    let (shard, hashed) = access.shard(key);
    if let Some(place) = shard.find(hashed, 0) {
        shard.remove(place);
    }
}

#[test]
fn a_key_lives_through_its_last_millisecond() {
    let store = store(1);
    set(&store, b"k", b"v", SetDeadline::At(100));
    assert_eq!(store.expire(100), 0);
    assert_eq!(get(&store, b"k", 100).as_deref(), Some(&b"v"[..]));
    assert_eq!(get(&store, b"k", 101), None);
    assert_eq!(store.totals().expired, 1);
    assert_eq!(store.key_count(), 0);
}

#[test]
fn keys_expire_in_the_order_of_their_deadlines_and_leave_memory() {
    for shards in [1, 8] {
        let store = store(shards);
        for number in 0..100_u64 {
            let deadline = SetDeadline::At(1000 - number * 10);
            set(&store, &number.to_ne_bytes(), b"v", deadline);
        }
        for left in (0..100_usize).rev() {
            let next = store.next_deadline_ms().expect("one is left");
            assert_eq!(next, 1000 - left as u64 * 10);
            assert_eq!((store.expire(next), store.expire(next + 1)), (0, 1));
            assert_eq!(store.key_count(), left);
        }
        assert_eq!(store.next_deadline_ms(), None);
    }
}

#[test]
fn a_long_expiry_is_done_in_parts() {
    let store = store(1);
    for number in 0..3000_u64 {
        set(&store, &number.to_ne_bytes(), b"v", SetDeadline::At(1));
    }
    assert_eq!(store.expire(2), EXPIRED_AT_ONCE_MAX);
    assert_eq!(store.next_deadline_ms(), Some(1));
    while store.next_deadline_ms().is_some() {
        assert!(store.expire(2) > 0);
    }
    assert_eq!(store.key_count(), 0);
}

#[test]
fn only_an_earlier_deadline_wakes() {
    let store = store(4);
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wakes);
    assert!(store.on_earlier_deadline(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    assert!(!store.on_earlier_deadline(|| {}));
    for (deadline_ms, expected) in [(500, 1), (600, 1), (500, 1), (400, 2), (450, 2)] {
        set(
            &store,
            &deadline_ms.to_string().into_bytes(),
            b"v",
            SetDeadline::At(deadline_ms),
        );
        assert_eq!(wakes.load(Ordering::Relaxed), expected, "{deadline_ms}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Expire,
    Get(u8),
    Remove(u8),
    Set(u8, u8, Option<u8>),
    Tick,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        Just(Step::Expire),
        (0..20_u8).prop_map(Step::Get),
        (0..20_u8).prop_map(Step::Remove),
        (0..20_u8, any::<u8>(), prop::option::of(0..10_u8))
            .prop_map(|(key, value, life)| Step::Set(key, value, life)),
        Just(Step::Tick),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn as_a_sorted_map_with_deadlines(steps in steps(), shards in 1..5_usize) {
        let store = store(shards);
        let mut model: BTreeMap<u8, (u8, Option<u64>)> = BTreeMap::new();
        let mut now_ms = 1;
        for step in steps {
            match step {
                Step::Expire => {
                    store.expire(now_ms);
                    model.retain(|_, (_, end)| end.is_none_or(|end| end >= now_ms));
                    prop_assert_eq!(store.key_count(), model.len());
                    let first = model.values().filter_map(|(_, end)| *end).min();
                    prop_assert_eq!(store.next_deadline_ms(), first);
                }
                Step::Get(key) => {
                    let live = model.get(&key).filter(|(_, end)| end.is_none_or(|end| end >= now_ms));
                    prop_assert_eq!(get(&store, &[key], now_ms), live.map(|(value, _)| vec![*value]));
                }
                Step::Remove(key) => {
                    remove(&store, &[key]);
                    model.remove(&key);
                }
                Step::Set(key, value, life) => {
                    let end = life.map(|life| now_ms + u64::from(life));
                    let deadline = end.map_or(SetDeadline::Never, SetDeadline::At);
                    set(&store, &[key], &[value], deadline);
                    model.insert(key, (value, end));
                }
                Step::Tick => now_ms += 1,
            }
        }
    }

    /// What is there from start to end is met, whatever comes and goes meanwhile.
    #[test]
    fn a_walk_meets_all_that_stays(
        stays in prop::collection::btree_set(any::<u16>(), 0..60),
        before in prop::collection::vec(any::<u16>(), 0..60),
        changes in prop::collection::vec((any::<u16>(), any::<bool>()), 0..200),
        count in 1..7_usize,
    ) {
        let store = store(1);
        for key in before.iter().chain(&stays) {
            set(&store, &key.to_ne_bytes(), b"v", SetDeadline::Never);
        }
        let mut met = BTreeSet::new();
        let (mut end, mut changes) = (usize::MAX, changes.into_iter());
        let mut removable = before.iter().cycle();
        while end > 0 {
            let mut access = store.access();
            end = access.nth(0).expect("the only one").walk(end, count, 0, |key| {
                met.insert(key.to_vec());
            });
            drop(access);
            for (key, inserts) in changes.by_ref().take(5) {
                if inserts {
                    set(&store, &key.to_ne_bytes(), b"v", SetDeadline::Never);
                } else if let Some(key) = removable.next().filter(|key| !stays.contains(key)) {
                    remove(&store, &key.to_ne_bytes());
                }
            }
        }
        for key in stays {
            prop_assert!(met.contains(&key.to_ne_bytes()[..]), "{key} was not met");
        }
    }
}
