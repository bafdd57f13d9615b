//! The outer layer: what a person calls. It decides who may work, and does none of the work.

use crate::checkpoint::Checkpoint;
use crate::{Call, Failure, job};
use std::path::PathBuf;
use tenure::resume::ResumeLockManager;

/// Where sessions are kept, and their locks.
pub(crate) struct Runner {
    pub(crate) dir: PathBuf,
    pub(crate) locks: ResumeLockManager,
}

impl Runner {
    /// Begins a job.
    pub(crate) fn start(
        &self,
        id: &str,
        items: Vec<String>,
        call: &Call,
    ) -> Result<String, Failure> {
        // Before the checkpoint is looked for: two starts at once would both find none.
        let lock = self.locks.acquire_lock_blocking_with(id, call.overriding)?;
        if Checkpoint::exists(&self.dir, id) {
            return Err(Failure::File(format!(
                "{id} was started already; `resume` goes on with it"
            )));
        }
        Checkpoint::of(items).save(&self.dir, id)?;
        job::run(&self.dir, lock.again(), call)
    }

    /// Goes on with a job.
    pub(crate) fn resume(&self, id: &str, call: &Call) -> Result<String, Failure> {
        let lock = self.locks.acquire_lock_blocking_with(id, call.overriding)?;
        // The layer below works under the same hold. An acquire of its own would be answered
        // with "held by this process".
        let done = job::run(&self.dir, lock.again(), call)?;
        // The drop would do; this says so if the lock was lost in the very end.
        lock.release()?;
        Ok(done)
    }

    /// How far a job is. A checkpoint is replaced as a whole, so it can be read at any time.
    pub(crate) fn status(&self, id: &str) -> Result<String, Failure> {
        let checkpoint = Checkpoint::load(&self.dir, id)?;
        Ok(format!("{id}: {}", checkpoint.progress()))
    }
}
