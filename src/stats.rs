//! Counters: one per event worth knowing, one per reason to drop.

use crate::wire::WireError;
use serde::Serialize;

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// Name and value of each counter, in order of declaration.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }

        impl std::ops::AddAssign<&$name> for $name {
            fn add_assign(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// What happened since the engine was built.
    Counters {
        /// Messages that the user handed over.
        messages_sent,
        /// Messages that the user was given.
        messages_received,
        /// Bytes of those.
        bytes_received,
        /// Data and chunk segments transmitted, resends included.
        segments_sent,
        /// Segments transmitted again.
        segments_resent,
        /// Resends because the timer ran out (the rest: because later ones arrived).
        segments_timed_out,
        /// Chunks packed for sending.
        chunks_packed,
        /// Standalone acks sent.
        acks_standalone,
        /// Acks that rode on a data segment and took a due one's place.
        acks_piggybacked,
        /// Standalone acks received.
        acks_received,
        /// Datagrams received, good or bad.
        datagrams_received,
        /// Data and chunk segments accepted.
        segments_accepted,
        /// Segments accepted while an earlier one was missing.
        segments_out_of_order,
        /// Calls refused with `Again`.
        refused_again,
        /// Peers that died.
        peers_died,
        /// Sends that the port reported as failed for good.
        sends_failed,
        /// Receives that the port reported as failed.
        receives_failed,
        /// Dropped: arrived before (duplicate or below the window).
        drops_duplicate,
        /// Dropped: beyond the window.
        drops_above_window,
        /// Dropped: shorter than a header.
        drops_too_short,
        /// Dropped: another wire version.
        drops_wrong_version,
        /// Dropped: another job key.
        drops_wrong_job_key,
        /// Dropped: unknown kind.
        drops_unknown_kind,
        /// Dropped: lengths that do not fit.
        drops_wrong_length,
        /// Dropped: checksum does not match.
        drops_bad_checksum,
        /// Dropped: the tag does not match: changed, forged, of another key, or of an earlier turn.
        drops_bad_tag,
        /// Dropped: a standalone ack, probe or bye that is no newer than one before it (only with
        /// `authenticate`).
        drops_stale_ack,
        /// Dropped: no peer of that rank.
        drops_unknown_rank,
        /// Dropped: another session: sent by or meant for an earlier process, or forged.
        drops_wrong_session,
        /// Dropped: of a peer that is dead or replaced.
        drops_gone_peer,
        /// Dropped: acks what was never sent.
        drops_impossible_ack,
        /// Dropped: chunk off the grid or outside its message.
        drops_off_grid_chunk,
        /// Dropped: chunk that disagrees with its message's other chunks.
        drops_chunk_mismatch,
        /// Dropped: message larger than the limit.
        drops_too_large,
        /// Dropped for now: no memory or row for a half-received message; the peer resends.
        drops_no_memory,
        /// Dropped for now: no slot or ring to hold an early segment; the peer resends.
        drops_no_room,
    }
}

impl Counters {
    /// Counts a datagram that was not one of ours.
    pub(crate) fn count_wire_error(&mut self, error: WireError) {
        *match error {
            WireError::TooShort => &mut self.drops_too_short,
            WireError::WrongVersion => &mut self.drops_wrong_version,
            WireError::WrongJobKey => &mut self.drops_wrong_job_key,
            WireError::UnknownKind => &mut self.drops_unknown_kind,
            WireError::WrongLength => &mut self.drops_wrong_length,
            WireError::BadChecksum => &mut self.drops_bad_checksum,
        } += 1;
    }

    /// Sum of all drops.
    pub fn drops(&self) -> u64 {
        self.rows().iter().filter(|(name, _)| name.starts_with("drops_")).map(|(_, n)| n).sum()
    }
}

/// What one tick did. Zero everywhere: the caller may idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Completions read from the port.
    pub completions: u32,
    /// Datagrams posted.
    pub posted: u32,
    /// Chunks packed and addresses reaped.
    pub prepared: u32,
}

impl Work {
    /// Whether nothing happened.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.completions += other.completions;
        self.posted += other.posted;
        self.prepared += other.prepared;
    }
}
