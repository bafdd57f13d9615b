//! No logs: a build without the feature `tracing`.

/// Where the logs of a caller would go.
pub struct Logs;

impl Logs {
    /// The logs of the present caller.
    pub fn here() -> Self {
        Self
    }

    /// Does the work.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }
}
