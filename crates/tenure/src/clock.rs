//! The clock by which a store is called.

pub use tenure_engine::clock::{Clock, SystemClock};
pub(crate) use tenure_engine::clock::{instant, since};
