//! Sleeping until something happens to a key: watches, and a pipe that reports it.
//!
//! A watch begins at the revision after its caller's last look, so it misses nothing in between. After
//! each broken stream it begins there again. A revision that was compacted away meanwhile counts as a
//! notice: the caller looks again. So is a new epoch (`cluster`), and for a holder a stream that broke and began anew:
//! the servers may have been restored meanwhile, and tell nothing of what they no longer know. A waiter looks every few
//! seconds in any case.

use super::api::{FilterType, KeyValue, WatchCreateRequest};
use super::connection::{Connection, Endpoints, Pause, revision_of};
use crate::store::StoreError;
use rustix::pipe::PipeFlags;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::task::AbortHandle;

/// How long after a refusal a refused watch counts as a notice.
const REFUSED: Duration = Duration::from_secs(1);

/// A key or a range of keys, and which of their changes are notices.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) key: String,
    /// The end of a range.
    pub(super) end: Option<String>,
    /// Only its deletion is a notice, or its end with its lease.
    pub(super) only_end: bool,
    /// The first revision that counts.
    pub(super) from: i64,
    /// The revision up to which the caller knows every change of the key, because it has made or seen it.
    /// It rises while the key is watched.
    pub(super) known: Option<Arc<AtomicI64>>,
}

impl Watched {
    /// Every change of a key.
    pub(super) fn changes(key: String, from: i64) -> Self {
        Self {
            key,
            end: None,
            only_end: false,
            from,
            known: None,
        }
    }

    /// The same without the changes of which the caller knows by then.
    pub(super) fn known_up_to(mut self, known: Arc<AtomicI64>) -> Self {
        self.known = Some(known);
        self
    }

    /// Whether a change of a key is one that the caller knows.
    fn knows(&self, change: &KeyValue) -> bool {
        let known = self.known.as_ref();
        self.key.as_bytes() == change.key
            && known.is_some_and(|known| change.mod_revision <= known.load(Ordering::SeqCst))
    }

    /// The end of a key.
    pub(super) fn end(key: String, from: i64) -> Self {
        Self {
            key,
            end: None,
            only_end: true,
            from,
            known: None,
        }
    }

    /// Its watch, from this revision on; 0 for from now on.
    fn watch(&self, start_revision: i64) -> WatchCreateRequest {
        let puts = self.only_end.then_some(FilterType::Noput.into());
        WatchCreateRequest {
            key: self.key.clone().into(),
            range_end: self.end.clone().unwrap_or_default().into(),
            start_revision,
            filters: puts.into_iter().collect(),
        }
    }
}

/// Notices of some keys, as long as this is kept.
pub(super) struct Notices {
    reads: OwnedFd,
    task: Option<AbortHandle>,
}

impl Notices {
    /// Watches the keys.
    pub(super) fn of(connection: &Connection, keys: Vec<Watched>) -> Result<Self, StoreError> {
        let (reads, writes) = pipe(connection)?;
        let endpoints = Arc::clone(connection.endpoints());
        let task = connection.spawn(async move {
            let _ = first(&endpoints, &mut endpoints.cluster().epochs(), &keys, false).await;
            ring(&writes);
        });
        Ok(Self { reads, task })
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.reads
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// A descriptor that becomes readable each time that something has happened to one of the keys, and the
/// task that writes to it.
pub(super) fn lasting(
    connection: &Connection,
    mut keys: Vec<Watched>,
) -> Result<(OwnedFd, Option<AbortHandle>), StoreError> {
    let (reads, writes) = pipe(connection)?;
    // Kept open on this side too, so that no write causes SIGPIPE after the other copy is closed.
    let kept = reads
        .try_clone()
        .map_err(|error| failed(connection, error))?;
    let endpoints = Arc::clone(connection.endpoints());
    let task = connection.spawn(async move {
        let mut epochs = endpoints.cluster().epochs();
        loop {
            let from = first(&endpoints, &mut epochs, &keys, true).await;
            for key in &mut keys {
                key.from = key.from.max(from);
            }
            ring(&writes);
            let _ = &kept;
        }
    });
    Ok((reads, task))
}

fn pipe(connection: &Connection) -> Result<(OwnedFd, OwnedFd), StoreError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|errno| failed(connection, errno.into()))
}

fn failed(connection: &Connection, source: std::io::Error) -> StoreError {
    StoreError::Io {
        place: connection.place().to_owned(),
        doing: "making a pipe",
        source,
    }
}

fn ring(writes: &OwnedFd) {
    // A full pipe has the same effect.
    let _ = rustix::io::write(writes, &[1]);
}

/// Waits for the first notice, or a new epoch. Answers with the revision from which to watch on.
async fn first(
    endpoints: &Arc<Endpoints>,
    epochs: &mut tokio::sync::watch::Receiver<u64>,
    keys: &[Watched],
    holds: bool,
) -> i64 {
    let mut notice = std::pin::pin!(notice(endpoints, keys, holds));
    let mut changed = std::pin::pin!(epochs.changed());
    std::future::poll_fn(|context| {
        let noticed = notice.as_mut().poll(context);
        let begins = changed.as_mut().poll(context);
        match noticed {
            Poll::Pending if begins.is_ready() => Poll::Ready(0),
            noticed => noticed,
        }
    })
    .await
}

/// Waits for the first notice.
async fn notice(endpoints: &Arc<Endpoints>, keys: &[Watched], holds: bool) -> i64 {
    let mut pause = Pause::default();
    let mut has_broken = false;
    loop {
        let opened = endpoints.once(|client| async move {
            client
                .watch(keys.iter().map(|key| key.watch(key.from)))
                .await
        });
        if let Ok(mut stream) = opened.await {
            let mut is_doubled = false;
            while let Ok(Some(answer)) = stream.message().await {
                if answer.canceled {
                    if answer.compact_revision == 0 {
                        // The watch was refused, and the next one may be too. The caller then looks for
                        // itself, but not without a pause.
                        tokio::time::sleep(REFUSED).await;
                    }
                    return answer.compact_revision;
                }
                // A watch that begins in the past gets its first notice from a loop of etcd that runs
                // every 100 ms. A second watch, which begins now, reports the next event at once.
                let revision = revision_of(answer.header);
                if answer.created && has_broken && holds {
                    return 0;
                }
                let is_past = keys.iter().any(|key| key.from <= revision);
                if answer.created && is_past && !is_doubled {
                    is_doubled = true;
                    for key in keys {
                        if !stream.watch(key.watch(0)).await {
                            break;
                        }
                    }
                }
                let last = answer.events.iter().filter_map(|event| event.kv.as_ref());
                let last = last.filter(|change| !keys.iter().any(|key| key.knows(change)));
                if let Some(last) = last.map(|change| change.mod_revision).max() {
                    return last + 1;
                }
                pause = Pause::default();
            }
            has_broken = true;
        }
        tokio::time::sleep(pause.next()).await;
    }
}
