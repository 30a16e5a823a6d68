//! Answers of the kernel, and the completions that they are.

use std::io;
use std::sync::Arc;

use super::flight::{Flight, Found, Next};
use super::submission::cancel_entry;
use super::{IGNORED, POLL, Reaped, Ring};
use crate::operation::{Completion, OpId, Operation, Outcome};
use crate::provided::{BufferPools, PoolMemory};

impl Ring {
    /// Looks at one answer of the kernel.
    #[inline]
    pub(super) fn answered(
        &mut self,
        pools: &BufferPools,
        data: u64,
        result: i32,
        flags: u32,
    ) -> Option<Reaped> {
        if data & POLL != 0 {
            return (data != IGNORED).then_some(Reaped::Poll {
                key: data & !POLL,
                result,
                has_more: io_uring::cqueue::more(flags),
            });
        }
        let id = OpId::from_bits(data);
        let Some(flight) = self.flights.get_mut(id) else {
            self.counters.stale += 1;
            return None;
        };
        let (found, next) = flight.answered(result, flags);
        let result = match found {
            Found::Nothing => None,
            Found::Result(result) => Some(result),
            Found::Buffer(index, len) => {
                Some(lend(pools, &self.pools, &flight.operation, index, len))
            }
        };
        match next {
            Next::Finish => {
                let flight = self.flights.remove(id)?;
                let result = result.unwrap_or(Ok(Outcome::Done));
                return Some(Reaped::Operation(completion(id, result, flight)));
            }
            Next::Keep => {}
            Next::Submit => self.submit(id),
            Next::Park => self.parked.push(id),
            Next::Cancel => self.push(cancel_entry(id.to_bits())),
        }
        let result = result?;
        Some(Reaped::Operation(Completion {
            id,
            result,
            operation: None,
        }))
    }
}

/// Hands out the buffer that a receive was given.
#[inline]
fn lend(
    pools: &BufferPools,
    memories: &[Arc<PoolMemory>],
    operation: &Operation,
    index: u16,
    len: u32,
) -> io::Result<Outcome> {
    let Operation::ReceiveMultishot { pool, .. } = operation else {
        unreachable!("only a multishot receive names a pool");
    };
    let memory = memories.get(usize::from(pool.number()));
    let buffer = memory.and_then(|memory| pools.take(*pool, memory, index, len));
    match buffer {
        // The end of the stream may have taken one.
        Some(_) if len == 0 => Ok(Outcome::Bytes(0)),
        Some(buffer) => Ok(Outcome::Buffer(buffer)),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

#[inline]
fn completion(id: OpId, result: io::Result<Outcome>, flight: Flight) -> Completion {
    Completion {
        id,
        result,
        operation: Some(flight.operation),
    }
}
