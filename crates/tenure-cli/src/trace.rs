//! Trace of which this call is a part: one span for the life of the process.

use std::sync::OnceLock;
pub(crate) use tenure_engine::trace::TRACEPARENT;
use tenure_engine::trace::Trace;

/// The span of this call. `None` if its caller names no trace.
pub(crate) fn of_call() -> Option<&'static Trace> {
    static TRACE: OnceLock<Option<Trace>> = OnceLock::new();
    let read = || Trace::below(&std::env::var(TRACEPARENT).ok()?);
    TRACE.get_or_init(read).as_ref()
}
