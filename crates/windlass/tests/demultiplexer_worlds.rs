//! What every demultiplexer does alike, the simulated one included: the same claims over sockets
//! with each real back end, and over handles that exist only in the test.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use windlass::demultiplexer::{Backend, BackendConfig, EnvironmentUse, open};
use windlass_core::sim::{SimControl, SimDemultiplexer};
use windlass_core::{
    Batch, EventDemultiplexer, HandleId, Interest, Notify, RawHandle, Readiness, Trigger,
};

/// A demultiplexer and handles that it can watch.
trait World {
    fn demultiplexer(&mut self) -> &mut dyn EventDemultiplexer;
    /// A new handle, writable and not readable.
    fn handle(&mut self) -> RawHandle;
    fn make_readable(&mut self, raw: RawHandle);
    fn drain(&mut self, raw: RawHandle);
    /// The peer closes its sending side.
    fn half_close(&mut self, raw: RawHandle);
    /// The peer is gone.
    fn hang_up(&mut self, raw: RawHandle);
    /// The time on the clock that waits are measured by.
    fn now(&self) -> Duration;
}

struct Real {
    demultiplexer: Box<dyn EventDemultiplexer + Send>,
    pairs: BTreeMap<RawHandle, (UnixStream, Option<UnixStream>)>,
    start: Instant,
}

impl Real {
    fn new(backend: Backend) -> Self {
        let config = BackendConfig {
            force: Some(backend),
            environment: EnvironmentUse::Ignore,
            ..BackendConfig::default()
        };
        Self {
            demultiplexer: open(&config).expect("it is there on Linux"),
            pairs: BTreeMap::new(),
            start: Instant::now(),
        }
    }

    fn pair(&mut self, raw: RawHandle) -> &mut (UnixStream, Option<UnixStream>) {
        self.pairs.get_mut(&raw).expect("a handle of this world")
    }
}

impl World for Real {
    fn demultiplexer(&mut self) -> &mut dyn EventDemultiplexer {
        &mut *self.demultiplexer
    }

    fn handle(&mut self) -> RawHandle {
        let (ours, peer) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        let raw = ours.as_raw_fd();
        self.pairs.insert(raw, (ours, Some(peer)));
        raw
    }

    fn make_readable(&mut self, raw: RawHandle) {
        let peer = self.pair(raw).1.as_mut().expect("the peer is there");
        peer.write_all(b"x").expect("room");
    }

    fn drain(&mut self, raw: RawHandle) {
        let mut buf = [0; 64];
        while self.pair(raw).0.read(&mut buf).is_ok_and(|count| count > 0) {}
    }

    fn half_close(&mut self, raw: RawHandle) {
        let peer = self.pair(raw).1.as_ref().expect("the peer is there");
        peer.shutdown(Shutdown::Write).expect("shut");
    }

    fn hang_up(&mut self, raw: RawHandle) {
        self.pair(raw).1 = None;
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

struct Simulated {
    demultiplexer: SimDemultiplexer,
    control: SimControl,
    readiness: BTreeMap<RawHandle, Readiness>,
}

impl Simulated {
    fn new() -> Self {
        let (demultiplexer, control) = SimDemultiplexer::new();
        Self {
            demultiplexer,
            control,
            readiness: BTreeMap::new(),
        }
    }

    fn set(&mut self, raw: RawHandle, change: impl FnOnce(Readiness) -> Readiness) {
        let readiness = self.readiness.entry(raw).or_default();
        *readiness = change(*readiness);
        self.control.set_ready(raw, *readiness);
    }
}

impl World for Simulated {
    fn demultiplexer(&mut self) -> &mut dyn EventDemultiplexer {
        &mut self.demultiplexer
    }

    fn handle(&mut self) -> RawHandle {
        let raw = 10 + RawHandle::try_from(self.readiness.len()).expect("few");
        self.set(raw, |_| Readiness::WRITE);
        raw
    }

    fn make_readable(&mut self, raw: RawHandle) {
        self.set(raw, |was| was | Readiness::READ);
    }

    fn drain(&mut self, raw: RawHandle) {
        self.set(raw, |was| was.without(Readiness::READ));
    }

    fn half_close(&mut self, raw: RawHandle) {
        self.set(raw, |was| was | Readiness::READ | Readiness::PEER_CLOSED);
    }

    fn hang_up(&mut self, raw: RawHandle) {
        self.set(raw, |was| was | Readiness::READ | Readiness::HANG_UP);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.control.now().as_nanos())
    }
}

macro_rules! in_each_world {
    ($($name:ident)*) => {
        mod epoll {
            $(#[test] fn $name() { super::$name(&mut super::Real::new(super::Backend::Epoll)) })*
        }
        mod poll {
            $(#[test] fn $name() { super::$name(&mut super::Real::new(super::Backend::Poll)) })*
        }
        mod select {
            $(#[test] fn $name() { super::$name(&mut super::Real::new(super::Backend::Select)) })*
        }
        mod io_uring {
            $(#[test] fn $name() {
                use windlass_sys::uring::{Ring, RingOptions};
                match Ring::open(RingOptions::default()) {
                    Ok(_) => super::$name(&mut super::Real::new(super::Backend::Uring)),
                    Err(reason) => println!("skipped: {reason}"),
                }
            })*
        }
        mod simulated {
            $(#[test] fn $name() { super::$name(&mut super::Simulated::new()) })*
        }
    };
}

in_each_world! {
    a_half_close_is_reported_by_itself_where_that_is_offered
    a_hang_up_is_told_to_a_reader
    a_level_is_reported_again_and_an_edge_is_not
    a_removed_handle_is_silent_and_may_be_registered_anew
    a_report_carries_the_id_that_was_given
    a_wait_that_finds_nothing_is_never_shorter_than_asked
    a_watched_interest_is_replaced_by_a_modification
    once_is_once_until_modified
}

const NOW: Option<Duration> = Some(Duration::ZERO);
const READ: Interest = Interest::READ;

fn id(bits: u64) -> HandleId {
    HandleId::from_bits(bits)
}

/// What a wait without waiting finds, by id.
fn look(world: &mut dyn World) -> Vec<(HandleId, Readiness)> {
    let mut batch = Batch::new();
    world
        .demultiplexer()
        .demultiplex(&mut batch, NOW)
        .expect("wait");
    let mut found: Vec<_> = batch
        .reports()
        .iter()
        .map(|report| (report.handle, report.readiness))
        .collect();
    found.sort_by_key(|(handle, _)| handle.to_bits());
    found
}

fn watch(world: &mut dyn World, raw: RawHandle, bits: u64, interest: Interest) {
    world
        .demultiplexer()
        .register_event(raw, id(bits), interest, Trigger::Level, Notify::Always)
        .expect("register");
}

fn ids(found: &[(HandleId, Readiness)]) -> Vec<u64> {
    found.iter().map(|(handle, _)| handle.to_bits()).collect()
}

fn a_report_carries_the_id_that_was_given(world: &mut dyn World) {
    let (a, b, c) = (world.handle(), world.handle(), world.handle());
    for (raw, bits) in [(a, 7), (b, 1 << 40 | 3), (c, u64::MAX >> 1)] {
        watch(world, raw, bits, READ);
    }
    assert!(look(world).is_empty());
    world.make_readable(b);
    world.make_readable(c);
    let found = look(world);
    assert_eq!(ids(&found), [1 << 40 | 3, u64::MAX >> 1]);
    assert!(
        found
            .iter()
            .all(|(_, readiness)| *readiness == Readiness::READ)
    );
}

fn a_level_is_reported_again_and_an_edge_is_not(world: &mut dyn World) {
    let (level, edge) = (world.handle(), world.handle());
    watch(world, level, 1, READ);
    world.make_readable(level);
    assert_eq!(ids(&look(world)), [1]);
    assert_eq!(ids(&look(world)), [1]);
    world.drain(level);
    assert!(look(world).is_empty());
    let has_edges = world.demultiplexer().features().edge_triggered;
    let registered =
        world
            .demultiplexer()
            .register_event(edge, id(2), READ, Trigger::Edge, Notify::Always);
    assert_eq!(registered.is_ok(), has_edges);
    if has_edges {
        world.make_readable(edge);
        assert_eq!(ids(&look(world)), [2]);
        assert!(look(world).is_empty(), "reported once");
        world.drain(edge);
        world.make_readable(edge);
        assert_eq!(ids(&look(world)), [2], "readable anew");
    }
}

fn once_is_once_until_modified(world: &mut dyn World) {
    let raw = world.handle();
    let (level, once) = (Trigger::Level, Notify::Once);
    world
        .demultiplexer()
        .register_event(raw, id(5), READ, level, once)
        .expect("register");
    world.make_readable(raw);
    assert_eq!(ids(&look(world)), [5]);
    assert!(look(world).is_empty());
    world
        .demultiplexer()
        .modify_event(raw, id(5), READ, level, once)
        .expect("modify");
    assert_eq!(ids(&look(world)), [5]);
    assert!(look(world).is_empty());
}

fn a_watched_interest_is_replaced_by_a_modification(world: &mut dyn World) {
    let raw = world.handle();
    watch(world, raw, 9, READ);
    assert!(
        look(world).is_empty(),
        "it is writable, which nobody asked for"
    );
    world
        .demultiplexer()
        .modify_event(raw, id(10), Interest::WRITE, Trigger::Level, Notify::Always)
        .expect("modify");
    assert_eq!(look(world), [(id(10), Readiness::WRITE)]);
    world.make_readable(raw);
    assert_eq!(look(world), [(id(10), Readiness::WRITE)]);
}

fn a_removed_handle_is_silent_and_may_be_registered_anew(world: &mut dyn World) {
    let raw = world.handle();
    watch(world, raw, 1, READ);
    world.make_readable(raw);
    world.demultiplexer().remove_event(raw).expect("remove");
    assert!(look(world).is_empty());
    world
        .demultiplexer()
        .remove_event(raw)
        .expect("once more, quietly");
    watch(world, raw, 2, READ);
    assert_eq!(ids(&look(world)), [2]);
}

fn a_hang_up_is_told_to_a_reader(world: &mut dyn World) {
    let raw = world.handle();
    watch(world, raw, 1, READ);
    world.hang_up(raw);
    let found = look(world);
    assert_eq!(ids(&found), [1]);
    // Select has no word of its own for it: the read finds the end.
    assert!(found[0].1.intersects(Readiness::READ | Readiness::HANG_UP));
}

fn a_half_close_is_reported_by_itself_where_that_is_offered(world: &mut dyn World) {
    let raw = world.handle();
    let offered = world.demultiplexer().features().early_close;
    let registered = world.demultiplexer().register_event(
        raw,
        id(1),
        Interest::PEER_CLOSED,
        Trigger::Level,
        Notify::Always,
    );
    assert_eq!(registered.is_ok(), offered);
    if offered {
        world.make_readable(raw);
        assert!(look(world).is_empty(), "data is not what was asked for");
        world.half_close(raw);
        let found = look(world);
        assert_eq!(ids(&found), [1]);
        assert!(found[0].1.contains(Readiness::PEER_CLOSED));
    }
}

fn a_wait_that_finds_nothing_is_never_shorter_than_asked(world: &mut dyn World) {
    let raw = world.handle();
    watch(world, raw, 1, READ);
    let mut batch = Batch::new();
    for us in [1, 130, 2_700] {
        let (asked, start) = (Duration::from_micros(us), world.now());
        world
            .demultiplexer()
            .demultiplex(&mut batch, Some(asked))
            .expect("wait");
        assert!(batch.is_empty());
        assert!(world.now() - start >= asked, "{us} us");
    }
}
