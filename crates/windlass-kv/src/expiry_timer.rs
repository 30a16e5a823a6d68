//! Expiry timer: how a loop has keys leave the store when their time is over.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use windlass::Disposition;
use windlass::event_loop::{Reactor, RegisterError};

use crate::store::Store;

/// The longest that is waited at once: the wall clock may be set.
const WAIT_MS_MAX: u64 = 60_000;

/// Removes keys whose time is over, by a timer of a loop: of the server's, or of any other one.
///
/// The timer is armed for the first deadline there is, so that a store without deadlines wakes
/// nobody. A deadline that a session sets is seen before the loop waits again; one of another
/// thread wakes it, if it is earlier than all others.
#[derive(Debug)]
#[non_exhaustive]
pub struct ExpiryTimer;

impl ExpiryTimer {
    /// Has the loop of `reactor` expire the keys of `store`. One loop is enough for a store.
    ///
    /// # Errors
    ///
    /// If the engine is full.
    pub fn attach<S: 'static>(
        reactor: &mut Reactor<'static, S>,
        store: Arc<Store>,
    ) -> Result<(), RegisterError> {
        let armed_for: Rc<Cell<Option<u64>>> = Rc::default();
        let (expired, over) = (Arc::clone(&store), Rc::clone(&armed_for));
        let timer = reactor.timer(move |_, _| {
            over.set(None);
            expired.expire(unix_ms());
            Disposition::Keep
        })?;
        let (_, waker) = reactor.waker(|_, _| Disposition::Keep)?;
        // Of two loops with one store, the first one is woken.
        let _ = store.on_earlier_deadline(move || waker.wake());
        reactor.on_prepare(move |_, cx| {
            let next_ms = store.next_deadline_ms();
            if next_ms != armed_for.get()
                && let Some(deadline_ms) = next_ms
            {
                armed_for.set(next_ms);
                // Its last millisecond must be over.
                let left_ms = (deadline_ms + 1).saturating_sub(unix_ms());
                let delay = Duration::from_millis(left_ms.min(WAIT_MS_MAX));
                // It exists, as it is never removed.
                let _ = cx.arm_after(timer, delay);
            }
            Disposition::Keep
        });
        Ok(())
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
