//! A simulated port with a hook behind every call that sends.

use std::cell::RefCell;
use std::rc::Rc;
use tickwire::ports::sim::SimPort;
use tickwire::ports::{
    Channel, Completion, InsertResult, Insertion, Port, PortCaps, PortError, PortPeer, RawAddress,
    SendOp,
};
use tickwire::time::Nanos;

/// What happens before a send call returns.
pub type Hook = Rc<RefCell<Option<Box<dyn FnMut()>>>>;

/// A port that calls its hook before a send call returns.
pub struct Shim {
    pub inner: SimPort,
    pub hook: Hook,
}

impl Port for Shim {
    fn caps(&self) -> &PortCaps {
        self.inner.caps()
    }
    fn now(&self) -> Nanos {
        self.inner.now()
    }
    fn local_address(&self, channel: Channel) -> RawAddress {
        self.inner.local_address(channel)
    }
    fn attach(&mut self, arena: &tickwire_tables::arena::DatagramArena) -> Result<(), PortError> {
        self.inner.attach(arena)
    }
    fn insert(
        &mut self,
        channel: Channel,
        address: &RawAddress,
        context: u64,
    ) -> Result<Insertion, PortError> {
        self.inner.insert(channel, address, context)
    }
    fn reap_inserts(&mut self, out: &mut arrayvec::ArrayVec<InsertResult, 64>) {
        self.inner.reap_inserts(out);
    }
    fn remove(&mut self, channel: Channel, peer: PortPeer) {
        self.inner.remove(channel, peer);
    }
    fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize {
        self.inner.post_recvs(channel, slots)
    }
    fn post_sends(&mut self, channel: Channel, ops: &[SendOp]) -> usize {
        let taken = self.inner.post_sends(channel, ops);
        if let Some(hook) = self.hook.borrow_mut().as_mut() {
            hook();
        }
        taken
    }
    fn poll(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        self.inner.poll(channel, out)
    }
    fn wait(&mut self, timeout_ns: Nanos) {
        self.inner.wait(timeout_ns);
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}
