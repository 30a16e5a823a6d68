//! Requests and answers: what is sent when, and what becomes of what comes back.

use std::os::fd::AsFd;

use windlass::Disposition::{self, Keep};
use windlass::{Happened, Interest, Readiness};
use windlass_sys::net;

use super::connection::{Answer, Class, Role, Sent};
use super::{BUF_BYTES, FAILURES_MAX, Generator, Loop, Phase};
use crate::compare::workload::{COMPUTE_EVERY, Workload};

impl Generator {
    /// Sends the next request of an active connection, that was due at `due_ns`.
    pub(super) fn ask(&mut self, cx: &mut Loop, index: usize, due_ns: u64) {
        self.sent_count += 1;
        let computes = self.arguments.workload == Workload::Compute
            && self.sent_count.is_multiple_of(COMPUTE_EVERY);
        let class = match computes {
            true => Class::Compute,
            false => Class::Plain,
        };
        self.in_flight += 1;
        self.send(cx, index, due_ns, class);
    }

    pub(super) fn send(&mut self, cx: &mut Loop, index: usize, due_ns: u64, class: Class) {
        let connection = &mut self.connections[index];
        connection.prepare(&self.requests, Sent { due_ns, class });
        self.flush(cx, index);
    }

    fn flush(&mut self, cx: &mut Loop, index: usize) {
        let connection = &mut self.connections[index];
        match connection.flush() {
            Ok(all) if all == connection.waits_to_write => {
                connection.waits_to_write = !all;
                let interest = match all {
                    true => Interest::READ,
                    false => Interest::READ | Interest::WRITE,
                };
                // It exists as long as the connection.
                let _ = cx.set_interest(connection.event, interest);
            }
            Ok(_) => {}
            Err(error) => self.fail(cx, index, &format!("send: {}", error.kind())),
        }
    }

    /// A socket is ready.
    pub(super) fn ready(&mut self, cx: &mut Loop, index: usize, happened: Happened) -> Disposition {
        // What is broken is readable: a read finds out.
        if happened.readiness.intersects(Readiness::WRITE) {
            self.flush(cx, index);
        }
        if !happened.readiness.without(Readiness::WRITE).is_none() {
            self.receive(cx, index, BUF_BYTES);
        }
        Keep
    }

    pub(super) fn receive(&mut self, cx: &mut Loop, index: usize, bytes_max: usize) {
        let connection = &mut self.connections[index];
        let buf = &mut self.buf[..bytes_max];
        match net::recv(connection.socket.as_fd(), buf) {
            Ok(None) => {}
            Ok(Some(0)) => self.fail(cx, index, "closed by the server"),
            Ok(Some(count)) => {
                if connection.role == Role::SlowReader {
                    self.record.slow_bytes(count);
                }
                match connection.feed(&buf[..count]) {
                    Answer::Broken(what) => self.fail(cx, index, &what),
                    Answer::Complete(sent, verdict) => {
                        if let Err(what) = &verdict {
                            self.record.error(what);
                        }
                        self.answered(cx, index, sent, verdict.is_ok());
                    }
                    Answer::Incomplete => {}
                }
            }
            Err(error) => self.fail(cx, index, &format!("receive: {}", error.kind())),
        }
    }

    /// An answer is complete.
    fn answered(&mut self, cx: &mut Loop, index: usize, sent: Sent, is_good: bool) {
        let now = cx.fresh_now().as_nanos();
        if self.phase == Phase::Opening {
            if !is_good {
                return self.give_up(cx, "the first answer is not as it should be");
            }
            self.opening -= 1;
            self.opened(cx, index);
            return self.open_more(cx);
        }
        match self.connections[index].role {
            Role::Active => {}
            Role::Idle => return,
            Role::SlowReader | Role::SlowWriter => return self.record.slow_answer(),
        }
        self.in_flight -= 1;
        if self.phase >= Phase::Measuring && is_good {
            let is_within = now < self.end_ns;
            self.record.answer(sent.class, now - sent.due_ns, is_within);
        }
        self.next(cx, index, now);
    }

    /// An active connection is free.
    fn next(&mut self, cx: &mut Loop, index: usize, now: u64) {
        match self.phase {
            Phase::WarmUp => self.ask(cx, index, now),
            Phase::Settling => self.settle(cx),
            Phase::Measuring if self.arguments.rate.is_none() => {
                if now < self.end_ns {
                    self.ask(cx, index, now);
                }
            }
            Phase::Measuring | Phase::Draining => {
                match self.overdue.pop_front() {
                    Some(due) => self.ask(cx, index, due),
                    None => self.free.push_back(index),
                }
                if self.phase == Phase::Draining {
                    self.drain(cx);
                }
            }
            Phase::Opening | Phase::Ready | Phase::Over => {}
        }
    }

    /// A connection is of no use any more: opens another one in its place.
    pub(super) fn fail(&mut self, cx: &mut Loop, index: usize, what: &str) {
        self.record.error(what);
        if self.phase == Phase::Opening {
            return self.give_up(cx, &format!("connection {index}: {what}"));
        }
        let connection = &mut self.connections[index];
        let role = connection.role;
        let was_under_way = connection.take_sent().is_some();
        cx.remove(connection.event);
        let is_replaced = self.phase < Phase::Draining && self.record.error_count() < FAILURES_MAX;
        let opened = is_replaced.then(|| self.open(cx, index, role));
        if let Some(Err(error)) = &opened {
            self.record.error(&format!("connect: {error}"));
        }
        let is_open = match opened {
            Some(Ok(connection)) => {
                self.connections[index] = connection;
                self.opened(cx, index);
                true
            }
            _ => false,
        };
        if role == Role::Active && was_under_way {
            self.in_flight -= 1;
            let now = cx.fresh_now().as_nanos();
            match (is_open, self.phase) {
                (true, _) => self.next(cx, index, now),
                (false, Phase::Settling) => self.settle(cx),
                (false, Phase::Draining) => self.drain(cx),
                (false, _) => {}
            }
        }
    }
}
