//! Work lists: which endpoints need attention. The cost of a tick follows their lengths.

use crate::ids::{EndpointRow, FragmentRow};
use tickwire_tables::list::List;
use tickwire_tables::wheel::TimerWheel;
use tickwire_tables::worklist::WorkList;

pub(crate) struct WorkLists {
    /// Packed segments wait and the window may allow one.
    pub ready: WorkList<EndpointRow>,
    /// Fragments wait to be packed.
    pub to_pack: WorkList<EndpointRow>,
    /// Lost segments wait to be sent again.
    pub resend: WorkList<EndpointRow>,
    /// An ack is due now.
    pub ack_due: WorkList<EndpointRow>,
    /// An ack is due at `endpoints.ack_deadline`; in order of deadlines, as the delay is one.
    pub ack_delayed: WorkList<EndpointRow>,
    /// Addresses wait to be given to the port.
    pub to_insert: WorkList<EndpointRow>,
    /// Condemned peers, to be buried.
    pub dying: WorkList<EndpointRow>,
    /// One timer an endpoint, armed no later than anything of it is due: its flight's deadline,
    /// the end of its silence, a probe, a goodbye.
    pub timers: TimerWheel<EndpointRow>,
    /// Sends that are done, to be reported.
    pub finished: List<FragmentRow>,
}

impl WorkLists {
    pub fn new(peers: usize, now: u64) -> Self {
        // About 16 us a step: finer than any timeout's floor.
        const WHEEL_STEP_NS: u64 = 1 << 14;
        Self {
            ready: WorkList::new(peers),
            to_pack: WorkList::new(peers),
            resend: WorkList::new(peers),
            ack_due: WorkList::new(peers),
            ack_delayed: WorkList::new(peers),
            to_insert: WorkList::new(peers),
            dying: WorkList::new(peers),
            timers: TimerWheel::new(peers, WHEEL_STEP_NS, now),
            finished: List::default(),
        }
    }

    /// All lists of endpoints, so that a peer can be taken off each.
    pub fn of_endpoints(&mut self) -> [&mut WorkList<EndpointRow>; 7] {
        [
            &mut self.ready,
            &mut self.to_pack,
            &mut self.resend,
            &mut self.ack_due,
            &mut self.ack_delayed,
            &mut self.to_insert,
            &mut self.dying,
        ]
    }

    /// Memory taken, in bytes. The pattern names every list, so none can be forgotten.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let Self {
            ready,
            to_pack,
            resend,
            ack_due,
            ack_delayed,
            to_insert,
            dying,
            timers,
            finished: _,
        } = self;
        let lists = [ready, to_pack, resend, ack_due, ack_delayed, to_insert, dying];
        lists.iter().map(|list| list.bytes()).sum::<usize>() + timers.bytes()
    }
}
