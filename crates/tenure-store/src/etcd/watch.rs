//! Sleeping until something happens to a key: watches, and a pipe that reports it.
//!
//! A watch counts from the revision after its caller's last look, so it misses nothing in between. After
//! each broken stream it begins there again. A revision that was compacted away meanwhile counts as a
//! notice: the caller looks again. So is a new epoch (`cluster`), and for a holder a stream that broke and began anew:
//! the servers may have been restored meanwhile, and tell nothing of what they no longer know. A waiter looks every few
//! seconds in any case.

use super::api::{
    FilterType, KeyValue, RangeRequest, RequestOp, Response, TxnRequest, WatchCreateRequest,
};
use super::connection::{Connection, Endpoints, Fault, Pause, revision_of};
use crate::StoreError;
use rustix::pipe::PipeFlags;
use std::collections::BTreeSet;
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
pub(super) struct WatchTarget {
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

impl WatchTarget {
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

    /// Leaves out the changes of which the caller knows by then.
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

    /// The watch request, from now on.
    fn watch(&self) -> WatchCreateRequest {
        let puts = self.only_end.then_some(FilterType::Noput.into());
        WatchCreateRequest {
            key: self.key.clone().into(),
            range_end: self.end.clone().unwrap_or_default().into(),
            start_revision: 0,
            filters: puts.into_iter().collect(),
        }
    }

    /// Reads which keys there are at a revision; 0 for now.
    fn range(&self, revision: i64) -> RangeRequest {
        RangeRequest {
            revision,
            keys_only: true,
            ..RangeRequest::of(self.key.clone()).with_range(self.end.clone().unwrap_or_default())
        }
    }

    /// Whether what is there `now` differs from what was there at the caller's look by a change that is a notice.
    fn has_changed(&self, now: &[KeyValue], then: &[KeyValue]) -> bool {
        let stands: BTreeSet<_> = (now.iter())
            .map(|key| (&key.key, key.create_revision))
            .collect();
        let mut before = then.iter().map(|key| (&key.key, key.create_revision));
        let is_news = |key: &KeyValue| self.from <= key.mod_revision && !self.knows(key);
        before.any(|key| !stands.contains(&key)) || (!self.only_end && now.iter().any(is_news))
    }
}

/// Notices of some keys, as long as this is kept.
pub(super) struct Notices {
    reads: OwnedFd,
    _task: Task,
}

/// Watches keys until their first notice, as long as this is kept.
pub(super) struct Task(Option<AbortHandle>);

impl Task {
    pub(super) fn new(
        connection: &Connection,
        keys: Vec<WatchTarget>,
        rings: impl FnOnce() + Send + 'static,
    ) -> Self {
        let endpoints = Arc::clone(connection.endpoints());
        Self(connection.spawn(async move {
            let _ = first(&endpoints, &mut endpoints.cluster().epochs(), &keys, false).await;
            rings();
        }))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Notices {
    /// Watches the keys.
    pub(super) fn of(connection: &Connection, keys: Vec<WatchTarget>) -> Result<Self, StoreError> {
        let (reads, writes) = pipe(connection)?;
        Ok(Self {
            reads,
            _task: Task::new(connection, keys, move || ring(&writes)),
        })
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.reads
    }
}

/// A descriptor that becomes readable each time that something has happened to one of the keys, and the
/// task that writes to it.
pub(super) fn lasting(
    connection: &Connection,
    mut keys: Vec<WatchTarget>,
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
    keys: &[WatchTarget],
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

/// Waits for the first notice. Answers with the revision from which to watch on.
///
/// A watch that begins in the past gets its first notice from a loop of etcd that runs every 100 ms. So the keys are
/// watched from now on, and once they are, one look says whether anything has happened to them since the caller's own.
/// Nothing is missed: the look is later than the begin of each watch.
async fn notice(endpoints: &Arc<Endpoints>, keys: &[WatchTarget], holds: bool) -> i64 {
    let mut pause = Pause::default();
    let mut has_broken = false;
    loop {
        let opened = endpoints
            .once(|client| async move { client.watch(keys.iter().map(WatchTarget::watch)).await });
        if let Ok(mut stream) = opened.await {
            let mut created = 0;
            while let Ok(Some(answer)) = stream.message().await {
                let revision = revision_of(answer.header);
                if answer.canceled {
                    if answer.compact_revision == 0 {
                        // The watch was refused, and the next one may be too. The caller then looks for
                        // itself, but not without a pause.
                        tokio::time::sleep(REFUSED).await;
                    }
                    return answer.compact_revision;
                }
                let last = answer.events.iter().filter_map(|event| event.kv.as_ref());
                let last = last.filter(|change| !keys.iter().any(|key| key.knows(change)));
                if let Some(last) = last.map(|change| change.mod_revision).max() {
                    return last + 1;
                }
                created += usize::from(answer.created);
                if answer.created && has_broken && holds {
                    return 0;
                }
                if answer.created && created == keys.len() {
                    match meanwhile(endpoints, keys, revision).await {
                        Ok(None) => {}
                        Ok(Some(seen)) => return seen + 1,
                        Err(Fault::Unsure(_)) => break,
                        // The revision of the caller's look is compacted away by now.
                        Err(Fault::Refused(why)) if why.contains("compacted") => {
                            return revision + 1;
                        }
                        Err(
                            Fault::Refused(_)
                            | Fault::Denied(_)
                            | Fault::LeaseGone
                            | Fault::Stranger(_),
                        ) => {
                            tokio::time::sleep(REFUSED).await;
                            return revision + 1;
                        }
                    }
                }
                pause = Pause::default();
            }
            has_broken = true;
        }
        tokio::time::sleep(pause.next()).await;
    }
}

/// How many keys one request looks at: twice as many reads, of the 128 that etcd takes at once.
const LOOKED_AT_ONCE: usize = 32;

/// Whether anything happened to the keys between the caller's look and now, `revision` or later: the revision up to which
/// that is known.
async fn meanwhile(
    endpoints: &Arc<Endpoints>,
    keys: &[WatchTarget],
    revision: i64,
) -> Result<Option<i64>, Fault> {
    let keys: Vec<_> = keys.iter().filter(|key| key.from <= revision).collect();
    for some in keys.chunks(LOOKED_AT_ONCE) {
        let steps = some
            .iter()
            .flat_map(|key| [key.range(0), key.range(key.from - 1)]);
        let steps: Vec<RequestOp> = steps.map(RequestOp::get).collect();
        let looked = endpoints.once(|client| {
            let txn = TxnRequest::default().and_then(steps.clone());
            async move { client.txn(txn).await }
        });
        let answer = looked.await?;
        let mut ranges = answer.responses.iter().map(|step| match &step.response {
            Some(Response::ResponseRange(range)) => range.kvs.as_slice(),
            _ => &[],
        });
        let has_changed = some.iter().any(|key| {
            let (now, then) = (ranges.next(), ranges.next());
            key.has_changed(now.unwrap_or_default(), then.unwrap_or_default())
        });
        if has_changed {
            return Ok(Some(revision_of(answer.header)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, created: i64, modified: i64) -> KeyValue {
        KeyValue {
            key: name.into(),
            create_revision: created,
            mod_revision: modified,
            ..KeyValue::default()
        }
    }

    /// What happened between a caller's look, at revision 9, and its watch.
    #[test]
    fn what_happened_before_the_watch_is_seen_table() {
        let before = [key("a", 3, 5)];
        let known = Arc::new(AtomicI64::new(12));
        for (what, now, changed, ended) in [
            ("nothing", vec![key("a", 3, 5)], false, false),
            ("it was written", vec![key("a", 3, 11)], true, false),
            ("it is gone", vec![], true, true),
            (
                "another came in its place",
                vec![key("a", 11, 11)],
                true,
                true,
            ),
            (
                "one more came",
                vec![key("a", 3, 5), key("b", 11, 11)],
                true,
                false,
            ),
        ] {
            let changes = WatchTarget::changes("a".to_owned(), 10);
            let own = changes.clone().known_up_to(Arc::clone(&known));
            let end = WatchTarget::end("a".to_owned(), 10);
            assert_eq!(changes.has_changed(&now, &before), changed, "{what}");
            assert_eq!(end.has_changed(&now, &before), ended, "{what}");
            let is_foreign = ended || now.len() > 1;
            assert_eq!(
                own.has_changed(&now, &before),
                is_foreign,
                "{what}, by its owner"
            );
        }
        assert!(
            !WatchTarget::end("a".to_owned(), 10).has_changed(&[], &[]),
            "it was gone before"
        );
    }
}
