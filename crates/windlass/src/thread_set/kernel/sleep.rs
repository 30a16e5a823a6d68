//! How threads sleep: parked, on standby, or as a dispatcher that has paused.

use super::ranks::{AfterNap, MemberId, NAP};
use super::{Guard, Kernel, Poller, Wake};
use crate::sync::{park_timeout, thread};

impl<P, D: Poller> Kernel<P, D> {
    pub(super) fn park<'a>(&'a self, mut shared: Guard<'a, P, D>, me: MemberId) -> Guard<'a, P, D> {
        shared.ranks.park(me);
        // The last one that has nothing to do tells the dispatcher.
        let mut wake = Wake::default();
        if !shared.engine.has_ready() {
            wake.thread = shared.ranks.resume_dispatcher();
        }
        let mut shared = self.sleep(shared, me, wake);
        while !shared.is_stopped && shared.ranks.is_called_up(me) {
            shared = self.nap(shared, me);
        }
        shared
    }

    /// Sleeps until the thread's rank says otherwise.
    fn sleep<'a>(
        &'a self,
        mut shared: Guard<'a, P, D>,
        me: MemberId,
        mut wake: Wake,
    ) -> Guard<'a, P, D> {
        loop {
            self.release(shared, std::mem::take(&mut wake));
            thread::park();
            shared = self.lock();
            if shared.ranks.is_awake(me) || shared.is_stopped {
                return shared;
            }
        }
    }

    /// The standby: naps, until a handler turns out to be slow, or nobody handles.
    fn nap<'a>(&'a self, mut shared: Guard<'a, P, D>, me: MemberId) -> Guard<'a, P, D> {
        loop {
            shared.ranks.nap(me);
            self.release(shared, Wake::default());
            park_timeout(NAP);
            shared = self.lock();
            if shared.ranks.is_awake(me) || shared.is_stopped {
                return shared;
            }
            let has_work = shared.has_work(self.roles);
            match shared.ranks.after_nap(me, has_work) {
                AfterNap::Nap => {}
                AfterNap::Work => return shared,
                AfterNap::Park => {
                    shared.ranks.park(me);
                    return self.sleep(shared, me, Wake::default());
                }
            }
        }
    }

    /// The dispatcher pauses while the others have more to do than they can.
    pub(super) fn pause<'a>(
        &'a self,
        mut shared: Guard<'a, P, D>,
        me: MemberId,
    ) -> Guard<'a, P, D> {
        shared.ranks.pause_dispatcher(me);
        let wake = shared.promote_new_leader(self.roles);
        self.sleep(shared, me, wake)
    }
}
