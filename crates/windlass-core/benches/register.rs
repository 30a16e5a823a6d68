//! What do registrations cost: a handle that comes and goes, an interest that changes?

use criterion::{Criterion, criterion_group, criterion_main};
use windlass_core::{Engine, EngineConfig, EventId, EventSpec, Instant, Interest, Source, Trigger};

fn add(engine: &mut Engine<u64>, raw: i32) -> EventId {
    let source = Source::Handle {
        raw,
        interest: Interest::READ,
        trigger: Trigger::Level,
    };
    let id = engine.insert(EventSpec::new(source), 0).expect("it fits");
    engine.enable(id, Instant::ZERO).expect("just inserted");
    id
}

fn register(criterion: &mut Criterion) {
    let mut engine = Engine::new(EngineConfig::default());
    let ids: Vec<_> = (0..10_000).map(|raw| add(&mut engine, raw)).collect();
    let mut changes = Vec::new();
    engine.take_changes(&mut changes);
    changes.clear();
    let mut group = criterion.benchmark_group("register");
    group.bench_function("insert_apply_remove_apply", |bencher| {
        bencher.iter(|| {
            let id = add(&mut engine, 10_000);
            engine.take_changes(&mut changes);
            engine.remove(id).expect("just inserted");
            engine.take_changes(&mut changes);
            assert_eq!(changes.len(), 2);
            changes.clear();
        });
    });
    group.bench_function("interest_there_and_back", |bencher| {
        bencher.iter(|| {
            engine
                .set_interest(ids[5_000], Interest::WRITE)
                .expect("it exists");
            engine.take_changes(&mut changes);
            engine
                .set_interest(ids[5_000], Interest::READ)
                .expect("it exists");
            engine.take_changes(&mut changes);
            assert_eq!(changes.len(), 2);
            changes.clear();
        });
    });
    group.bench_function("interest_undone", |bencher| {
        bencher.iter(|| {
            engine
                .set_interest(ids[5_000], Interest::WRITE)
                .expect("it exists");
            engine
                .set_interest(ids[5_000], Interest::READ)
                .expect("it exists");
            engine.take_changes(&mut changes);
            assert!(changes.is_empty());
        });
    });
    group.finish();
}

criterion_group!(benches, register);
criterion_main!(benches);
