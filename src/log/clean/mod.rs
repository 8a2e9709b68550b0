//! Compaction: of each key the newest record stays (`LogCleaner`, `Cleaner`). Pure decisions and
//! bytes; whoever reads and writes files asks these.
//!
//! A round has two passes. The first goes over the dirty part, which nobody has cleaned yet, and
//! notes for each key where its newest record is ([`OffsetMap`]), as far as memory allows. The
//! second goes over everything up to where the first came, in groups of segments ([`groups`]), and
//! writes what stays ([`Filter`]).

mod choose;
mod filter;
mod group;
mod map;
mod transactions;

mod output;

mod round;

pub use choose::{Cleanable, cleanable};
pub use filter::{Filter, FilterError, Kept, LastOfProducers, Seen};
pub use group::{Measured, groups};
pub use map::{OffsetMap, SLOT_BYTES};
pub(in crate::log) use output::Output;
pub use round::{CleanError, RoundEnd, RoundOptions, RoundReport};
pub(in crate::log) use round::{Phase, Round, Source, With};
pub use transactions::CleanedTransactions;
