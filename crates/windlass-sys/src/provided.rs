//! Pools of buffers that receives take from only when there is something to receive.
//!
//! A thousand idle connections need no buffer each: the driver picks one of the pool when data is
//! there. It is handed out as a [`ProvidedBuffer`] and goes back when that is dropped, in any order
//! and at any time, also after the pool or the ring is gone: whoever has a buffer keeps the memory.
//! With the ring the kernel itself picks (io_uring_register_buf_ring(3), Linux 5.19).
//!
//! # Invariants
//!
//! A buffer is either the kernel's (in its ring, or named by a completion that was not looked at)
//! or lent to one `ProvidedBuffer`. The memory lives as long as the pool, any of its buffers, or a
//! ring that has it registered; a ring that can't make sure that the kernel is done with it leaks it.
//!
//! # Threads
//!
//! Pools and buffers stay in one thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags};

use crate::uring::Ring;

/// Names a pool of one [`BufferPools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(u16);

impl PoolId {
    /// The kernel's number for it (`bgid`), also its index.
    pub(crate) const fn number(self) -> u16 {
        self.0
    }
}

/// The pools of a driver.
#[derive(Debug, Default)]
pub struct BufferPools {
    pools: Vec<Rc<Pool>>,
}

/// The most buffers that a pool can have.
pub const BUFFERS_MAX: u16 = 32_768;

impl BufferPools {
    /// Without any pool.
    #[must_use]
    pub const fn new() -> Self {
        Self { pools: Vec::new() }
    }

    /// Makes a pool of `count` buffers (1 to [`BUFFERS_MAX`], rounded up to a power of two) of
    /// `size_bytes` each. With a `ring` it is the kernel that picks from it; without, whoever calls
    /// [`acquire`](Self::acquire). The memory is mapped, and used only as buffers are.
    ///
    /// # Errors
    ///
    /// `EINVAL` (a count or size of zero or too large; the kernel has no buffer rings), `ENOMEM`.
    pub fn add(
        &mut self,
        ring: Option<&mut Ring>,
        count: u16,
        size_bytes: u32,
    ) -> io::Result<PoolId> {
        let number = u16::try_from(self.pools.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if count == 0 || count > BUFFERS_MAX || size_bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = Arc::new(PoolMemory::map(count.next_power_of_two(), size_bytes)?);
        let id = PoolId(number);
        let kind = match ring {
            Some(ring) => {
                ring.register_pool(id, &memory)?;
                Kind::Kernel
            }
            None => Kind::Local,
        };
        self.pools.push(Rc::new(Pool::new(memory, kind)));
        Ok(id)
    }

    /// Whether the kernel knows these pools by `memories` alone, those of one ring.
    pub(crate) fn are_among(&self, memories: &[Arc<PoolMemory>]) -> bool {
        self.pools.iter().enumerate().all(|(number, pool)| {
            let is_same = |memory| Arc::ptr_eq(memory, &pool.memory);
            pool.kind == Kind::Local || memories.get(number).is_some_and(is_same)
        })
    }

    /// Registers all pools with `ring` in place of the one that they were added with, which the
    /// kernel is done with: two would give the same buffer to two. What is lent stays lent.
    pub(crate) fn register_again(&self, ring: &mut Ring) -> io::Result<()> {
        for (number, pool) in (0_u16..).zip(&self.pools) {
            if pool.kind == Kind::Kernel {
                ring.register_pool(PoolId(number), &pool.memory)?;
                pool.refill();
            }
        }
        Ok(())
    }

    /// Takes a buffer that is free, empty; `None` if there is none left. Only of pools that were
    /// added without a ring.
    #[must_use]
    pub fn acquire(&self, id: PoolId) -> Option<ProvidedBuffer> {
        let pool = self.get(id)?;
        if pool.kind == Kind::Kernel {
            return None;
        }
        let index = pool.free.borrow_mut().pop()?;
        pool.lend(index);
        Some(ProvidedBuffer {
            pool: Rc::clone(pool),
            index,
            len: 0,
        })
    }

    /// Whether not all buffers of a pool are lent; `false` if there is no such pool.
    #[must_use]
    pub fn has_room(&self, id: PoolId) -> bool {
        self.get(id)
            .is_some_and(|pool| pool.lent_count.get() < pool.memory.count)
    }

    /// Whether there is such a pool.
    #[must_use]
    pub fn contains(&self, id: PoolId) -> bool {
        self.get(id).is_some()
    }

    /// How many buffers of a pool are lent.
    #[must_use]
    pub fn lent_count(&self, id: PoolId) -> u16 {
        self.get(id).map_or(0, |pool| pool.lent_count.get())
    }

    /// Hands out what the kernel has filled: buffer `index` of a pool that lies in `memory`.
    #[inline]
    pub(crate) fn take(
        &self,
        id: PoolId,
        memory: &Arc<PoolMemory>,
        index: u16,
        len: u32,
    ) -> Option<ProvidedBuffer> {
        let pool = self.get(id)?;
        if !Arc::ptr_eq(&pool.memory, memory) || index >= memory.count || pool.is_lent(index) {
            return None;
        }
        pool.lend(index);
        Some(ProvidedBuffer {
            pool: Rc::clone(pool),
            index,
            len: len.min(memory.size_bytes),
        })
    }

    fn get(&self, id: PoolId) -> Option<&Rc<Pool>> {
        self.pools.get(usize::from(id.0))
    }
}

/// Who picks the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Kernel,
    Local,
}

struct Pool {
    memory: Arc<PoolMemory>,
    kind: Kind,
    /// Which buffers are lent.
    lent: Box<[Cell<bool>]>,
    lent_count: Cell<u16>,
    /// Those that are not, if the kernel does not have them.
    free: RefCell<Vec<u16>>,
    /// Where the next buffer is put into the kernel's ring.
    tail: Cell<u16>,
}

impl Pool {
    fn new(memory: Arc<PoolMemory>, kind: Kind) -> Self {
        let pool = Self {
            lent: (0..memory.count).map(|_| Cell::new(false)).collect(),
            memory,
            kind,
            lent_count: Cell::new(0),
            free: RefCell::new(Vec::new()),
            tail: Cell::new(0),
        };
        match kind {
            Kind::Kernel => pool.refill(),
            Kind::Local => pool.free.borrow_mut().extend((0..pool.memory.count).rev()),
        }
        pool
    }

    /// Gives the kernel all that is not lent, from the start of a ring that is new to it.
    fn refill(&self) {
        self.tail.set(0);
        self.publish();
        for index in 0..self.memory.count {
            if !self.is_lent(index) {
                self.put(index);
            }
        }
        self.publish();
    }

    #[inline]
    fn is_lent(&self, index: u16) -> bool {
        self.lent[usize::from(index)].get()
    }

    #[inline]
    fn lend(&self, index: u16) {
        self.lent[usize::from(index)].set(true);
        self.lent_count.set(self.lent_count.get() + 1);
    }

    #[inline]
    fn give_back(&self, index: u16) {
        self.lent[usize::from(index)].set(false);
        self.lent_count.set(self.lent_count.get() - 1);
        match self.kind {
            Kind::Kernel => {
                self.put(index);
                self.publish();
            }
            Kind::Local => self.free.borrow_mut().push(index),
        }
    }

    /// Writes a buffer into the next place of the kernel's ring, which sees it when it is
    /// published.
    #[inline]
    fn put(&self, index: u16) {
        let tail = self.tail.get();
        let at = usize::from(tail & (self.memory.count - 1));
        let address = self.memory.buffer(index).as_ptr() as u64;
        // SAFETY: `at` is below `count`, so the entry lies in the mapping, which lives as long as
        // `self.memory`.
        let entry = unsafe { self.memory.entries.add(at) };
        // SAFETY: The kernel reads an entry only below the tail that was published; this one is
        // beyond, as there are at most `count` buffers. Only this thread makes such references:
        // the pool is not `Send`. All bytes of the mapping are initialised, with zeros.
        let entry = unsafe { &mut *entry.as_ptr() };
        entry.set_addr(address);
        entry.set_len(self.memory.size_bytes);
        entry.set_bid(index);
        self.tail.set(tail.wrapping_add(1));
    }

    /// Shows the kernel what was put.
    #[inline]
    fn publish(&self) {
        // SAFETY: `entries` is the address of the ring's first entry, in a mapping that is alive.
        let tail = unsafe { BufRingEntry::tail(self.memory.entries.as_ptr()) };
        // SAFETY: It points into the mapping, aligned for a `u16`, and is read by the kernel
        // meanwhile, atomically; nobody else writes it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail.get(), Ordering::Release);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("count", &self.memory.count)
            .field("size_bytes", &self.memory.size_bytes)
            .field("lent", &self.lent_count.get())
            .finish_non_exhaustive()
    }
}

/// The memory of a pool: the kernel's ring of entries, and behind it the buffers.
pub(crate) struct PoolMemory {
    /// The start of the mapping, on a page.
    entries: NonNull<BufRingEntry>,
    buffers: NonNull<u8>,
    mapped_bytes: usize,
    count: u16,
    size_bytes: u32,
}

// SAFETY: This is an address and two numbers; what lies there is touched by the kernel and by the
// pool and the buffers only, which stay in one thread.
unsafe impl Send for PoolMemory {}
// SAFETY: As above: a shared reference gives no access to the memory.
unsafe impl Sync for PoolMemory {}

impl PoolMemory {
    fn map(count: u16, size_bytes: u32) -> io::Result<Self> {
        let entries_bytes = usize::from(count) * size_of::<BufRingEntry>();
        let mapped_bytes = (size_bytes as usize)
            .checked_mul(usize::from(count))
            .and_then(|buffers| buffers.checked_add(entries_bytes))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: A new mapping at an address that the kernel picks; nothing lies there.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: `entries_bytes` is at most the length of the mapping.
        let buffers = unsafe { start.add(entries_bytes) };
        Ok(Self {
            entries: start.cast(),
            buffers,
            mapped_bytes,
            count,
            size_bytes,
        })
    }

    /// The address of the kernel's ring.
    pub(crate) fn ring_address(&self) -> u64 {
        self.entries.as_ptr() as u64
    }

    /// How many buffers there are: a power of two.
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    #[inline]
    fn buffer(&self, index: u16) -> NonNull<u8> {
        debug_assert!(index < self.count);
        let offset = usize::from(index) * self.size_bytes as usize;
        // SAFETY: `index` is below `count` at all callers: an index of a loop to `count`, or one
        // that `take` has checked. So the offset lies in the mapping.
        unsafe { self.buffers.add(offset) }
    }
}

impl Drop for PoolMemory {
    fn drop(&mut self) {
        let start = self.entries.as_ptr().cast();
        // SAFETY: It is the mapping that `map` made, and nobody has its address any more: not the
        // pool and its buffers, nor the kernel through a ring, as each would keep this alive.
        let unmapped = unsafe { rustix::mm::munmap(start, self.mapped_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Bytes that were received, in a buffer of a pool; dropping it returns the buffer.
pub struct ProvidedBuffer {
    pool: Rc<Pool>,
    index: u16,
    len: u32,
}

impl ProvidedBuffer {
    /// The whole buffer, to receive into; then [`set_len`](Self::set_len).
    #[must_use]
    pub fn room_mut(&mut self) -> &mut [u8] {
        let start = self.pool.memory.buffer(self.index).as_ptr();
        let len = self.pool.memory.size_bytes as usize;
        // SAFETY: The buffer is lent to `self` alone, which is borrowed exclusively; its bytes are
        // initialised, as the mapping began with zeros, and live as long as `self.pool`.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Sets how many bytes are in it; at most as many as fit.
    pub fn set_len(&mut self, len: usize) {
        let size_bytes = self.pool.memory.size_bytes;
        self.len = u32::try_from(len).map_or(size_bytes, |len| len.min(size_bytes));
    }
}

impl Deref for ProvidedBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let start = self.pool.memory.buffer(self.index).as_ptr();
        // SAFETY: The buffer is lent to `self`: the kernel writes it no more until it is given
        // back by the drop. `len` is at most its size, its bytes are initialised, and the mapping
        // lives as long as `self.pool`.
        unsafe { std::slice::from_raw_parts(start, self.len as usize) }
    }
}

impl Drop for ProvidedBuffer {
    #[inline]
    fn drop(&mut self) {
        self.pool.give_back(self.index);
    }
}

impl fmt::Debug for ProvidedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProvidedBuffer")
            .field("index", &self.index)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_pool_lends_each_buffer_once() {
        let mut pools = BufferPools::new();
        let id = pools.add(None, 2, 8).expect("a pool");
        let mut first = pools.acquire(id).expect("free");
        let second = pools.acquire(id).expect("free");
        assert!(pools.acquire(id).is_none() && !pools.has_room(id));
        first.room_mut()[..3].copy_from_slice(b"abc");
        first.set_len(3);
        assert_eq!((&first[..], &second[..]), (&b"abc"[..], &b""[..]));
        drop(first);
        assert_eq!(pools.lent_count(id), 1);
        assert!(pools.acquire(id).is_some());
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let mut pools = BufferPools::new();
        let id = pools.add(None, 1, 4096).expect("a pool");
        let mut buffer = pools.acquire(id).expect("free");
        drop(pools);
        buffer.room_mut().fill(7);
        buffer.set_len(usize::MAX);
        assert_eq!(&buffer[..], [7; 4096]);
    }

    #[test]
    fn sizes_of_nothing_are_refused() {
        let mut pools = BufferPools::new();
        for (count, size_bytes) in [(0, 8), (8, 0), (BUFFERS_MAX + 1, 8)] {
            let error = pools.add(None, count, size_bytes).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
