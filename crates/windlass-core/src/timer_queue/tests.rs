//! The queue against a sorted list: any uptime, any mix of deadlines, exact order.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// A sorted list that does the same.
#[derive(Default)]
struct Model {
    by_deadline: BTreeMap<(u64, u64), u32>,
    key: BTreeMap<u32, (u64, u64)>,
    sequence: u64,
}

impl Model {
    fn arm(&mut self, index: u32, deadline: u64) {
        self.disarm(index);
        self.sequence += 1;
        self.by_deadline.insert((deadline, self.sequence), index);
        self.key.insert(index, (deadline, self.sequence));
    }
    fn disarm(&mut self, index: u32) -> bool {
        self.key
            .remove(&index)
            .map(|key| self.by_deadline.remove(&key))
            .is_some()
    }
    fn expire(&mut self, now: u64) -> Vec<(u64, u32)> {
        let mut due = Vec::new();
        while let Some((&key, &index)) = self.by_deadline.first_key_value() {
            if key.0 > now {
                break;
            }
            self.by_deadline.remove(&key);
            self.key.remove(&index);
            due.push((key.0, index));
        }
        due
    }
}

#[derive(Clone, Debug)]
enum Op {
    Arm { index: u32, length: u64 },
    ArmCommon { index: u32, which: usize },
    Disarm { index: u32 },
    Pass { length: u64 },
    PassToNext,
    Next,
}

/// Lengths from nothing to the maximum, all magnitudes alike.
fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0_u32..64, any::<u64>()).prop_map(|(bits, x)| x >> bits),
        1 => Just(0_u64),
        1 => Just(333_000_000_u64),
        1 => Just(u64::MAX),
        4 => 0_u64..200_000_000,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (0_u32..40, length()).prop_map(|(index, length)| Op::Arm { index, length }),
        2 => (0_u32..40, 0_usize..3).prop_map(|(index, which)| Op::ArmCommon { index, which }),
        4 => (0_u32..40).prop_map(|index| Op::Disarm { index }),
        4 => (0_u64..400_000_000).prop_map(|length| Op::Pass { length }),
        1 => length().prop_map(|length| Op::Pass { length: length / 64 }),
        3 => Just(Op::PassToNext),
        2 => Just(Op::Next),
    ]
}

fn check(start: u64, ops: &[Op]) {
    let mut queue = TimerQueue::new();
    let mut model = Model::default();
    let mut now = start;
    let lengths = [10_000_000_u64, 1_000_000_000, 60_000_000_000];
    let common = lengths.map(|ns| queue.common_timeout(Duration::from_nanos(ns)).unwrap());
    let mut due = Vec::new();
    for op in ops {
        match *op {
            Op::Arm { index, length } => {
                let deadline = now.saturating_add(length);
                queue.arm(index, Instant::from_nanos(deadline));
                model.arm(index, deadline);
            }
            Op::ArmCommon { index, which } => {
                let at = queue.arm_common(index, common[which], Instant::from_nanos(now));
                assert_eq!(at.as_nanos(), now.saturating_add(lengths[which]));
                model.arm(index, at.as_nanos());
            }
            Op::Disarm { index } => assert_eq!(queue.disarm(index), model.disarm(index)),
            Op::Pass { length } => now = now.saturating_add(length),
            Op::PassToNext => {
                if let Some(next) = queue.next_deadline() {
                    now = now.max(next.as_nanos());
                }
            }
            Op::Next => {
                let expected = model.by_deadline.first_key_value().map(|(key, _)| key.0);
                assert_eq!(queue.next_deadline().map(Instant::as_nanos), expected);
            }
        }
        if matches!(op, Op::Pass { .. } | Op::PassToNext) {
            due.clear();
            queue.expire(Instant::from_nanos(now), &mut due);
            let got: Vec<_> = due.iter().map(|d| (d.deadline_ns, d.index)).collect();
            assert_eq!(got, model.expire(now), "at {now}");
        }
        assert_eq!(queue.len(), model.key.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pf08_order_and_time_equal_a_sorted_list_at_any_uptime(
        start in prop_oneof![Just(0_u64), any::<u64>(), 0_u64..4_000_000_000_000_000_000],
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        check(start, &ops);
    }
}

#[test]
fn pf08_short_timers_are_found_with_a_maximal_one_present_near_each_level_boundary() {
    for level in 0..9_u32 {
        let boundary = 1_u64
            .checked_shl(14 + 6 * (level + 1))
            .unwrap_or(u64::MAX - 20_000_000_000);
        let mut queue = TimerQueue::new();
        let mut due = Vec::new();
        queue.arm(0, Instant::FAR);
        let mut now = boundary - 400_000;
        queue.expire(Instant::from_nanos(now), &mut due);
        for index in 1..50 {
            queue.arm(index, Instant::from_nanos(now + 333_000_000));
            assert_eq!(queue.next_deadline().unwrap().as_nanos(), now + 333_000_000);
            queue.expire(Instant::from_nanos(now + 332_999_999), &mut due);
            assert!(due.is_empty(), "level {level}: early");
            now += 333_000_000;
            queue.expire(Instant::from_nanos(now), &mut due);
            assert_eq!(due.pop().map(|d| d.index), Some(index), "level {level}");
        }
    }
}

#[test]
fn a_large_bucket_expires_in_order() {
    let mut queue = TimerQueue::new();
    let mut model = Model::default();
    let mut x = 88172645463325252_u64;
    for index in 0..20_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let deadline = x % 100_000_000;
        queue.arm(index, Instant::from_nanos(deadline));
        model.arm(index, deadline);
        if index % 3 == 0 {
            let moved = deadline + x % 50_000_000;
            queue.arm(index, Instant::from_nanos(moved));
            model.arm(index, moved);
        }
    }
    let mut due = Vec::new();
    queue.expire(Instant::from_nanos(80_000_000), &mut due);
    queue.expire(Instant::from_nanos(150_000_000), &mut due);
    let mut expected = model.expire(80_000_000);
    expected.extend(model.expire(150_000_000));
    let got: Vec<_> = due.iter().map(|d| (d.deadline_ns, d.index)).collect();
    assert!(got == expected, "the order differs");
    assert!(queue.is_empty());
}

#[test]
fn a_bounded_expiry_takes_the_earliest_and_leaves_the_rest_due() {
    let mut queue = TimerQueue::new();
    let common = queue.common_timeout(Duration::from_millis(3)).unwrap();
    let mut model = Model::default();
    for index in 0..5000_u32 {
        let deadline = u64::from(index.wrapping_mul(2_654_435_761) % 10_000_000);
        queue.arm(index, Instant::from_nanos(deadline));
        model.arm(index, deadline);
    }
    for index in 5000..5100 {
        let now = Instant::from_nanos(u64::from(index - 5000) * 50_000);
        let deadline = queue.arm_common(index, common, now);
        model.arm(index, deadline.as_nanos());
    }
    let now = Instant::from_nanos(20_000_000);
    let (mut got, mut passes) = (Vec::new(), 0);
    while !queue.is_empty() {
        let mut due = Vec::new();
        queue.expire_some(now, 100, &mut due);
        assert!((1..=1000).contains(&due.len()), "{} at once", due.len());
        got.extend(due.iter().map(|d| (d.deadline_ns, d.index)));
        passes += 1;
    }
    assert!(passes > 5, "{passes} passes");
    let expected = model.expire(20_000_000);
    assert_eq!(got.len(), expected.len());
    let differs = got
        .iter()
        .zip(&expected)
        .position(|(got, expected)| got != expected);
    assert_eq!(
        differs,
        None,
        "{:?}",
        differs.map(|at| (got[at], expected[at]))
    );
}

#[test]
fn dead_entries_are_bounded() {
    let mut queue = TimerQueue::new();
    for round in 0..200_000_u64 {
        // Ever earlier: each re-arm leaves a dead entry.
        let index = (round % 100) as u32;
        queue.arm(
            index,
            Instant::from_nanos(1_000_000_000_000 - round * 1_000),
        );
    }
    assert_eq!(queue.len(), 100);
    assert!(
        queue.entry_count <= ENTRIES_PER_TIMER_MAX * 100 + DEAD_SLACK + 1,
        "{} entries",
        queue.entry_count
    );
}

#[test]
fn common_queue_of_a_busy_timer_is_bounded() {
    let mut queue = TimerQueue::new();
    let timeout = queue.common_timeout(Duration::from_secs(30)).unwrap();
    for ns in 0..100_000 {
        queue.arm_common((ns % 10) as u32, timeout, Instant::from_nanos(ns));
    }
    assert_eq!(
        queue.next_deadline().unwrap().as_nanos(),
        30_000_000_000 + 99_990
    );
    let mut due = Vec::new();
    queue.expire(Instant::from_nanos(40_000_000_000), &mut due);
    assert_eq!(due.len(), 10);
}

#[test]
fn at_most_256_lengths_are_common() {
    let mut queue = TimerQueue::new();
    for ms in 0..256 {
        queue.common_timeout(Duration::from_millis(ms)).unwrap();
    }
    assert!(queue.common_timeout(Duration::from_millis(7)).is_ok());
    let error = queue
        .common_timeout(Duration::from_millis(256))
        .unwrap_err();
    assert!(error.to_string().contains("256"));
}
