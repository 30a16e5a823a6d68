//! The load generator of one run, a process of its own: `windlass compare-load`.
//!
//! ```text
//!  Opening ─▶ WarmUp ─▶ Settling ─▶ Ready ─"go"─▶ Measuring ─▶ Draining ─▶ Over
//! ```
//!
//! Each connection has one request under way at most. In a *closed loop* it asks again as soon as it
//! is answered. At a *fixed rate* (open loop) requests are due at times that do not depend on the
//! answers: one for which no connection is free waits here, and its latency counts from when it was
//! due. So a server that stops for a while is charged for all the requests that it kept from being
//! sent, not only for those that were under way (what is called coordinated omission otherwise).
//!
//! Before `Ready` and after the last answer nothing is under way, unless the server does not answer:
//! what it used in between is for the requests that were counted, and for no others.
//!
//! Every answer is checked: its status and length, or its bytes (echo). One thread, one loop, no
//! allocation for a request.

mod connection;
mod record;
mod slow;
mod traffic;

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::time::Duration;

use windlass::Disposition::Keep;
use windlass::event_loop::{EventLoop, IoOptions, Reactor};
use windlass::{EventId, Instant};
use windlass_sys::limits::raise_descriptor_limit;

use super::args::LoadArguments;
use super::machine;
use super::wire::{GO, LoadSays, UsageFigures, tell};
use super::workload::{SLOW_TICK, Workload};
use connection::{Class, Connection, Requests, Role, Sent};
use record::Record;

/// What is read at once.
const BUF_BYTES: usize = 256 * 1024;
/// Connections that are being opened at a time: fewer than a listener's queue holds.
const OPENING_MAX: usize = 128;
/// How long the first answers may take, all together.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// How long the last ones may, at least and at most; in between, four windows.
const DRAIN_LIMIT_MIN: Duration = Duration::from_secs(1);
const DRAIN_LIMIT_MAX: Duration = Duration::from_secs(3);
/// After so many failures connections stay closed.
const FAILURES_MAX: u64 = 1000;

type Loop = Reactor<'static, Generator>;

/// Measures one server.
pub(crate) fn run(arguments: &LoadArguments) -> Result<(), Box<dyn Error>> {
    machine::stay_on(&arguments.cpus)?;
    machine::be_punctual();
    // With fewer, opening them fails and says so.
    let _ = raise_descriptor_limit(1 << 20);
    let mut generator = Generator::new(arguments)?;
    let mut event_loop = EventLoop::new()?;
    event_loop.on_line(io::stdin(), |generator: &mut Generator, cx, line| {
        match line {
            Some(GO) if generator.phase == Phase::Ready => generator.go(cx),
            Some(_) => {}
            None => cx.stop(),
        }
        Keep
    })?;
    let pacer = event_loop.timer(|generator: &mut Generator, cx| {
        generator.pace(cx);
        Keep
    })?;
    generator.pacer = Some(pacer);
    event_loop.after(OPEN_LIMIT, |generator, cx| generator.open_limit(cx))?;
    if arguments.workload == Workload::Slow {
        event_loop.every(SLOW_TICK, |generator: &mut Generator, cx| {
            generator.tick_slow(cx);
            Keep
        })?;
    }
    generator.open_more(&mut event_loop);
    event_loop.run(&mut generator)?;
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Opening,
    WarmUp,
    Settling,
    Ready,
    Measuring,
    Draining,
    Over,
}

/// The state of the loop.
struct Generator {
    arguments: LoadArguments,
    requests: Requests,
    roles: Vec<Role>,
    connections: Vec<Connection>,
    phase: Phase,
    /// Connections that have no first answer yet.
    opening: usize,
    /// Requests of the active connections that have no answer yet.
    in_flight: usize,
    /// Requests of the window so far.
    sent_count: u64,
    pacer: Option<EventId>,
    /// At a fixed rate: connections without a request.
    free: VecDeque<usize>,
    /// At a fixed rate: when the requests that wait for a connection were due.
    overdue: VecDeque<u64>,
    due_count: u64,
    start_ns: u64,
    end_ns: u64,
    record: Record,
    buf: Box<[u8]>,
    used_before: UsageFigures,
}

impl Generator {
    fn new(arguments: &LoadArguments) -> Result<Self, Box<dyn Error>> {
        let roles = Role::all(arguments);
        Ok(Self {
            requests: Requests::new(arguments)?,
            connections: Vec::with_capacity(roles.len()),
            roles,
            phase: Phase::Opening,
            opening: 0,
            in_flight: 0,
            sent_count: 0,
            pacer: None,
            free: VecDeque::new(),
            overdue: VecDeque::new(),
            due_count: 0,
            start_ns: 0,
            end_ns: 0,
            record: Record::new()?,
            buf: vec![0; BUF_BYTES].into_boxed_slice(),
            used_before: UsageFigures::default(),
            arguments: arguments.clone(),
        })
    }

    /// Opens connections, each with a request that shows that it is served.
    fn open_more(&mut self, cx: &mut Loop) {
        while self.phase == Phase::Opening
            && self.opening < OPENING_MAX
            && self.connections.len() < self.roles.len()
        {
            let index = self.connections.len();
            let role = self.roles[index];
            match self.open(cx, index, role) {
                Ok(connection) => self.connections.push(connection),
                Err(error) => return self.give_up(cx, &format!("connection {index}: {error}")),
            }
            self.opening += 1;
            self.send(cx, index, 0, Class::Plain);
        }
        if self.opening == 0 && self.phase == Phase::Opening {
            self.warm_up(cx);
        }
    }

    fn open(&self, cx: &mut Loop, index: usize, role: Role) -> Result<Connection, Box<dyn Error>> {
        let socket = connection::connect(&self.arguments.addr, role)?;
        let event = cx.watch(
            socket.clone(),
            IoOptions::default(),
            move |generator: &mut Self, cx, _, happened| generator.ready(cx, index, happened),
        )?;
        let is_echo = self.arguments.workload == Workload::Echo;
        Ok(Connection::new(socket, event, role, is_echo))
    }

    fn open_limit(&mut self, cx: &mut Loop) {
        if self.phase == Phase::Opening {
            let missing = self.opening + self.roles.len() - self.connections.len();
            let all = self.roles.len();
            let seconds = OPEN_LIMIT.as_secs();
            let why = format!("{missing} of {all} connections were not served within {seconds} s");
            self.give_up(cx, &why);
        }
    }

    fn warm_up(&mut self, cx: &mut Loop) {
        self.phase = Phase::WarmUp;
        let now = cx.fresh_now().as_nanos();
        for index in self.active() {
            self.ask(cx, index, now);
        }
        self.later(cx, self.arguments.warm_up, |generator, cx| {
            generator.phase = Phase::Settling;
            // What has no answer by then keeps its connection busy, in the window too.
            generator.later(cx, generator.drain_limit(), Self::settled);
            generator.settle(cx);
        });
    }

    fn active(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.arguments.connections as usize
    }

    fn settle(&mut self, cx: &mut Loop) {
        if self.in_flight == 0 {
            self.settled(cx);
        }
    }

    fn settled(&mut self, cx: &mut Loop) {
        if self.phase == Phase::Settling {
            self.phase = Phase::Ready;
            self.say(cx, &LoadSays::Ready);
        }
    }

    fn drain_limit(&self) -> Duration {
        let windows = self.arguments.duration * 4;
        windows.clamp(DRAIN_LIMIT_MIN, DRAIN_LIMIT_MAX)
    }

    /// Begins to measure.
    fn go(&mut self, cx: &mut Loop) {
        self.phase = Phase::Measuring;
        // What the slow ones did meanwhile does not count.
        self.record.restart();
        self.sent_count = 0;
        self.used_before = UsageFigures::take();
        self.start_ns = cx.fresh_now().as_nanos();
        let duration_ns = u64::try_from(self.arguments.duration.as_nanos()).unwrap_or(u64::MAX);
        self.end_ns = self.start_ns.saturating_add(duration_ns);
        let idle = self.active();
        let idle = idle.filter(|index| self.connections[*index].is_idle());
        let idle: Vec<_> = idle.collect();
        if self.arguments.rate.is_some() {
            self.free.extend(idle);
            self.pace(cx);
        } else {
            for index in idle {
                self.ask(cx, index, self.start_ns);
            }
        }
        self.later(cx, self.arguments.duration, Self::end_window);
    }

    /// Sends what is due at a fixed rate, and waits for the next.
    fn pace(&mut self, cx: &mut Loop) {
        let (Some(rate), Some(pacer), Phase::Measuring) =
            (self.arguments.rate, self.pacer, self.phase)
        else {
            return;
        };
        let now = cx.fresh_now().as_nanos();
        let mut due = due_at(self.start_ns, rate, self.due_count);
        while due <= now && due < self.end_ns {
            self.overdue.push_back(due);
            self.due_count += 1;
            due = due_at(self.start_ns, rate, self.due_count);
        }
        while let Some(&index) = self.free.front() {
            let Some(due) = self.overdue.pop_front() else {
                break;
            };
            self.free.pop_front();
            self.record.late(now.saturating_sub(due));
            self.ask(cx, index, due);
        }
        if due < self.end_ns {
            // The timer is the generator's own and exists.
            let _ = cx.arm_at(pacer, Instant::from_nanos(due));
        }
    }

    fn end_window(&mut self, cx: &mut Loop) {
        self.record
            .end_window(UsageFigures::take().since(self.used_before));
        self.phase = Phase::Draining;
        self.later(cx, self.drain_limit(), Self::finish);
        self.drain(cx);
    }

    fn drain(&mut self, cx: &mut Loop) {
        if self.in_flight == 0 && self.overdue.is_empty() {
            self.finish(cx);
        }
    }

    /// Reports. What was not answered counts as an error, and with the time it has waited.
    fn finish(&mut self, cx: &mut Loop) {
        if self.phase == Phase::Over {
            return;
        }
        let now = cx.fresh_now().as_nanos();
        let active = self.arguments.connections as usize;
        let under_way = self.connections.iter_mut().take(active);
        let waiting = under_way.filter_map(Connection::take_sent);
        let unsent = self.overdue.drain(..).map(|due_ns| Sent {
            due_ns,
            class: Class::Plain,
        });
        for sent in waiting.chain(unsent) {
            self.record
                .unanswered(sent.class, now.saturating_sub(sent.due_ns));
        }
        self.phase = Phase::Over;
        let result = self.record.result(self.arguments.duration);
        self.say(cx, &LoadSays::Result(Box::new(result)));
    }

    fn give_up(&mut self, cx: &mut Loop, why: &str) {
        if self.phase != Phase::Over {
            self.phase = Phase::Over;
            self.say(cx, &LoadSays::Failed(why.to_owned()));
        }
    }

    /// Tells the parent; without one there is nothing to do.
    fn say(&self, cx: &mut Loop, what: &LoadSays) {
        if tell(what).is_err() {
            cx.stop();
        }
    }

    fn later(&mut self, cx: &mut Loop, delay: Duration, run: fn(&mut Self, &mut Loop)) {
        let armed = cx.after(delay, move |generator: &mut Self, cx| run(generator, cx));
        if let Err(error) = armed {
            self.give_up(cx, &error.to_string());
        }
    }
}

/// When request number `count` is due.
fn due_at(start_ns: u64, rate: f64, count: u64) -> u64 {
    // Below 2^53 ns, 100 days, exact.
    start_ns.saturating_add((count as f64 * 1e9 / rate) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_even_distances_without_drift() {
        assert_eq!(due_at(7, 1000.0, 0), 7);
        assert_eq!(due_at(7, 1000.0, 1), 1_000_007);
        assert_eq!(due_at(0, 3.0, 3_000_000), 1_000_000_000_000_000);
    }
}
