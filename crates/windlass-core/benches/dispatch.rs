//! What does a report cost on its way through activate, dispatch and settle?
//!
//! One turn with 1, 64 or 1000 reports; the handler does nothing. Throughput is reports.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use windlass_core::{
    Batch, Call, Disposition, Engine, EngineConfig, EventSpec, HandleId, Instant, Interest,
    Readiness, Settled, Source, Step, Trigger, TurnEnd,
};

type Payload = Box<u64>;

fn engine(handles: i32) -> (Engine<Payload>, Vec<HandleId>) {
    let mut engine = Engine::new(EngineConfig::default());
    let ids = (0..handles)
        .map(|raw| {
            let source = Source::Handle {
                raw,
                interest: Interest::READ,
                trigger: Trigger::Level,
            };
            let id = engine
                .insert(EventSpec::new(source), Box::new(0))
                .expect("it fits");
            engine.enable(id, Instant::ZERO).expect("just inserted");
            engine.handle_of(id).expect("it watches a handle")
        })
        .collect();
    engine.take_changes(&mut Vec::new());
    (engine, ids)
}

fn turn(engine: &mut Engine<Payload>, reports: &[HandleId], batch: &mut Batch) {
    let Step::Wait(plan) = engine.prepare() else {
        panic!("events are pending")
    };
    for &handle in reports {
        batch.push(handle, Readiness::READ);
    }
    let mut turn = engine.activate(plan.waited(), batch, Instant::ZERO);
    while let Some(call) = engine.dispatch(&mut turn, Instant::ZERO) {
        let Call {
            token,
            mut payload,
            happened,
        } = call;
        *payload += u64::from(happened.readiness.bits());
        let settled = engine.settle(token, payload, Disposition::Keep, Instant::ZERO);
        assert!(matches!(settled, Settled::Kept));
    }
    assert_eq!(engine.finish(turn), TurnEnd::Again);
}

fn dispatch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch");
    for reports in [1, 64, 1_000_usize] {
        group.throughput(Throughput::Elements(reports as u64));
        group.bench_function(BenchmarkId::new("reports", reports), |bencher| {
            let (mut engine, ids) = engine(10_000);
            // Spread over the table, as ready connections are.
            let ids: Vec<_> = (0..reports).map(|at| ids[at * 7_919 % ids.len()]).collect();
            let mut batch = Batch::new();
            bencher.iter(|| turn(&mut engine, &ids, &mut batch));
        });
    }
    group.finish();
}

criterion_group!(benches, dispatch);
criterion_main!(benches);
