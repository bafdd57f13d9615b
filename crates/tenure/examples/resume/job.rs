//! The inner layer: one item after the other, a checkpoint after each.

use crate::checkpoint::Checkpoint;
use crate::{Call, Failure};
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;
use tenure::resume::ResumeLock;

/// Does what is left of the job that `lock` stands for. The lock comes first: whoever has none
/// cannot load the checkpoint.
pub(crate) fn run(dir: &Path, lock: ResumeLock, call: &Call) -> Result<String, Failure> {
    let id = lock.id().to_owned();
    let mut checkpoint = Checkpoint::load(dir, &id)?;
    let path = dir.join(format!("{id}.out"));
    let failed = |error| Failure::File(format!("{}: {error}", path.display()));
    let mut output = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed)?;
    // What was written after the checkpoint belongs to an item that does not count as done.
    output.set_len(checkpoint.output_bytes).map_err(failed)?;
    let before = checkpoint.done;
    while let Some(item) = checkpoint.next_item() {
        std::thread::sleep(Duration::from_millis(call.delay_ms));
        // Another caller may have overridden us meanwhile.
        lock.verify()?;
        let line = format!("{item} {}\n", std::process::id());
        output
            .seek(SeekFrom::Start(checkpoint.output_bytes))
            .and_then(|_| output.write_all(line.as_bytes()))
            .and_then(|()| output.sync_data())
            .map_err(failed)?;
        checkpoint.output_bytes += line.len() as u64;
        checkpoint.done += 1;
        checkpoint.save(dir, &id)?;
    }
    // The layer above goes on holding it. Called by itself, this layer's would be the last.
    lock.release()?;
    let did = checkpoint.done - before;
    Ok(format!("{id}: did {did}, {}", checkpoint.progress()))
}
