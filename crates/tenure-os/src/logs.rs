//! Carries the logs of a caller to the thread that works for it.

use tracing::{Dispatch, Span, dispatcher};

/// Where the logs of a caller go, for work that another thread does for it.
pub struct Logs {
    dispatch: Dispatch,
    span: Span,
}

impl Logs {
    /// The logs of the present caller.
    pub fn here() -> Self {
        Self {
            dispatch: dispatcher::get_default(Clone::clone),
            span: Span::current(),
        }
    }

    /// Has the logs of `work` go there.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        dispatcher::with_default(&self.dispatch, || self.span.in_scope(work))
    }
}
