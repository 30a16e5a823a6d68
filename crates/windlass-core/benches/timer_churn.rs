//! What do timers cost when many are armed: insert, re-arm, cancel, fire?
//!
//! Each number is for one operation with so many other timers armed (throughput in elements).

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use windlass_core::{Instant, TimerQueue};

const COUNTS: [u32; 2] = [1_000, 100_000];
const SPAN_NS: u64 = 60_000_000_000;

/// Deadlines all over a minute, the same in every run.
fn deadline(index: u32) -> Instant {
    Instant::from_nanos(u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15) % SPAN_NS)
}

fn filled(count: u32) -> TimerQueue {
    let mut queue = TimerQueue::new();
    for index in 0..count {
        queue.arm(index, deadline(index));
    }
    queue
}

fn timer_churn(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("timer_churn");
    for count in COUNTS {
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function(BenchmarkId::new("insert", count), |bencher| {
            bencher.iter(|| filled(black_box(count)));
        });
        group.bench_function(BenchmarkId::new("rearm", count), |bencher| {
            // As a connection's idle timeout does: later each time.
            let mut queue = filled(count);
            let mut now = 0;
            bencher.iter(|| {
                now += 1_000;
                for index in 0..count {
                    queue.arm(index, Instant::from_nanos(now + SPAN_NS));
                }
            });
        });
        group.bench_function(BenchmarkId::new("rearm_common", count), |bencher| {
            let mut queue = TimerQueue::new();
            let timeout = queue
                .common_timeout(Duration::from_nanos(SPAN_NS))
                .expect("the first one");
            let mut now = 0;
            bencher.iter(|| {
                now += 1_000;
                for index in 0..count {
                    queue.arm_common(index, timeout, Instant::from_nanos(now));
                }
            });
        });
        group.bench_function(BenchmarkId::new("cancel", count), |bencher| {
            bencher.iter_batched_ref(
                || filled(count),
                |queue| (0..count).for_each(|index| assert!(queue.disarm(index))),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("fire", count), |bencher| {
            let mut due = Vec::with_capacity(count as usize);
            bencher.iter_batched_ref(
                || filled(count),
                |queue| {
                    due.clear();
                    for step in 1..=600 {
                        queue.expire(Instant::from_nanos(step * SPAN_NS / 600), &mut due);
                    }
                    assert_eq!(due.len(), count as usize);
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, timer_churn);
criterion_main!(benches);
