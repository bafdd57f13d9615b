//! The clock by which a store is called.

pub use tenure_os::clock::{Clock, SystemClock};
pub(crate) use tenure_os::clock::{instant, since};
