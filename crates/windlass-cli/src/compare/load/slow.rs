//! Slow clients: some read in sips, some write byte by byte. Neither is measured.

use super::connection::{Class, Role, Sent};
use super::{Generator, Loop, Phase};
use crate::compare::workload::{SLOW_READ_BYTES, SLOW_WRITE_BYTES};

impl Generator {
    /// A slow connection has its first answer. A reader is looked after by the tick from now on: the
    /// loop must not tell that there is something to read.
    pub(super) fn opened(&self, cx: &mut Loop, index: usize) {
        let connection = &self.connections[index];
        if connection.role == Role::SlowReader {
            // It exists as long as the connection.
            let _ = cx.disable(connection.event);
        }
    }

    /// Each slow client goes on a little.
    pub(super) fn tick_slow(&mut self, cx: &mut Loop) {
        if matches!(self.phase, Phase::Opening | Phase::Over) {
            return;
        }
        for index in self.arguments.connections as usize..self.connections.len() {
            let connection = &mut self.connections[index];
            let is_idle = connection.is_idle();
            let sent = Sent {
                due_ns: 0,
                class: Class::Plain,
            };
            match connection.role {
                Role::SlowReader if is_idle => self.send(cx, index, 0, Class::Plain),
                Role::SlowReader => self.receive(cx, index, SLOW_READ_BYTES),
                Role::SlowWriter => {
                    if is_idle {
                        connection.prepare(&self.requests, sent);
                    }
                    if let Err(error) = connection.dribble(SLOW_WRITE_BYTES) {
                        self.fail(cx, index, &format!("send: {}", error.kind()));
                    }
                }
                Role::Active | Role::Idle => {}
            }
        }
    }
}
