//! Leases: they tell etcd, and with it every other caller, that this process is alive.
//!
//! All claims of a process with the same ttl live by one lease. The connection's runtime renews it three
//! times within its ttl, whatever the callers do. The renewal of one hold renews the lease too, and counts
//! for all holds that were to be renewed before it began (`lease_key`). When etcd answers a renewal with *no such lease*, the
//! session is over. The handle of a claim under it then has to attach its lease key to a new lease (by a
//! renewal or a look). That succeeds only if no caller has removed the claim from the list meanwhile.
//!
//! A detached hold has a lease of its own, which only its owner's heartbeat renews.

use super::cluster::Cluster;
use super::connection::{Connection, Endpoints, Fault, Pause};
use crate::contract::LEASE_MIN_MS;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tenure_core::{Now, Stamp, interval_ms};
use tenure_os::clock::{Clock, SystemClock, instant};

/// The shortest lease that etcd gives.
const TTL_MIN_SECONDS: u64 = LEASE_MIN_MS / 1_000;

/// The longest lease that we ask for; etcd's own limit is nine billion seconds.
const TTL_MAX_SECONDS: u64 = 10 * 365 * 24 * 3_600;

/// How long a renewal may take.
const BEAT_ANSWER_MAX: Duration = Duration::from_secs(2);

/// A lease that this process keeps alive.
pub(super) struct Session {
    pub(super) lease: i64,
    /// The epoch of the servers in which they gave the lease.
    epoch: u64,
    cluster: Arc<Cluster>,
    over: AtomicBool,
    /// When the last successful renewal began, by this machine's boot clock. From then on the lease runs
    /// for its ttl at least.
    renewed_ms: AtomicU64,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Whether etcd has told us that the lease has run out, or is another etcd by now.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst) || self.cluster.epoch() != self.epoch
    }

    /// The last certain sign of life, for a claim of this machine: no later than `now`.
    pub(super) fn last_sign(&self, now: &Now) -> Stamp {
        let since = now
            .boot_ms
            .saturating_sub(self.renewed_ms.load(Ordering::SeqCst));
        let now = now.stamp();
        Stamp {
            wall_ms: now.wall_ms.saturating_sub(since),
            boot_ms: now.boot_ms.saturating_sub(since),
        }
    }

    /// Whether a renewal that succeeded began after this instant of the same boot.
    pub(super) fn was_renewed_after(&self, asked: &Now, here: &Now) -> bool {
        asked.boot_id == here.boot_id && self.renewed_ms.load(Ordering::SeqCst) > asked.boot_ms
    }

    /// Notes a successful renewal that began at this time.
    pub(super) fn renewed(&self, began_ms: u64) {
        self.renewed_ms.fetch_max(began_ms, Ordering::SeqCst);
    }

    /// Notes that the lease has run out.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// The sessions of a process on one etcd, by their ttl.
#[derive(Default)]
pub(super) struct Sessions {
    by_ttl: Mutex<HashMap<u64, Arc<Session>>>,
}

/// The ttl of a lease for a claim: whole seconds, never less than what the claim promises.
pub(super) fn seconds(ttl_ms: u64) -> u64 {
    ttl_ms
        .div_ceil(1_000)
        .clamp(TTL_MIN_SECONDS, TTL_MAX_SECONDS)
}

impl Sessions {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Session>>> {
        self.by_ttl.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session for claims of this ttl, if there is one whose lease counts.
    pub(super) fn present(&self, ttl_ms: u64) -> Option<Arc<Session>> {
        let sessions = self.lock();
        let session = sessions.get(&seconds(ttl_ms))?;
        (!session.is_over()).then(|| Arc::clone(session))
    }

    /// The session for claims of this ttl, begun if there is none whose lease counts.
    pub(super) async fn get(
        &self,
        endpoints: &Arc<Endpoints>,
        clock: &SystemClock,
        ttl_ms: u64,
        end: Instant,
    ) -> Result<Arc<Session>, Fault> {
        if let Some(session) = self.present(ttl_ms) {
            return Ok(session);
        }
        let ttl = seconds(ttl_ms);
        let began = clock.now().boot_ms;
        let cluster = Arc::clone(endpoints.cluster());
        let epoch = cluster.epoch();
        let lease = grant(endpoints, ttl_ms, end).await?;
        let session = Arc::new(Session {
            lease,
            epoch,
            cluster,
            over: AtomicBool::new(false),
            renewed_ms: AtomicU64::new(began),
        });
        // Another task may have made one at the same time. That one is as good, and ours runs out
        // unused.
        let kept = {
            let mut sessions = self.lock();
            let kept = sessions.entry(ttl).or_insert_with(|| Arc::clone(&session));
            if kept.is_over() {
                *kept = Arc::clone(&session);
            }
            Arc::clone(kept)
        };
        if Arc::ptr_eq(&kept, &session) {
            let every = Duration::from_millis(interval_ms(ttl.saturating_mul(1_000), None));
            let kept = Arc::downgrade(&session);
            tokio::spawn(keep(Arc::clone(endpoints), clock.clone(), kept, every));
        }
        Ok(kept)
    }

    /// Notes that a lease is gone, so that no claim is made under it any more.
    pub(super) fn forget(&self, lease: i64) {
        for session in self
            .lock()
            .values()
            .filter(|session| session.lease == lease)
        {
            session.end();
        }
    }

    /// Whether a lease is one that this process keeps alive.
    pub(super) fn keeps(&self, lease: i64) -> bool {
        let sessions = self.lock();
        let mut kept = sessions.values().filter(|session| !session.is_over());
        kept.any(|session| session.lease == lease)
    }

    /// Gives all leases back, so that etcd need not wait for their end.
    pub(super) fn give_back(&self, connection: &Connection) {
        if !connection.is_ours() {
            // In a forked child, another thread may have had the lock of the sessions at the fork. It
            // stays locked for ever.
            return;
        }
        let leases: Vec<i64> = self
            .lock()
            .drain()
            .map(|(_, session)| session.lease)
            .collect();
        if leases.is_empty() {
            return;
        }
        let endpoints = Arc::clone(connection.endpoints());
        let _ = connection.block("giving the lease back", async move {
            for lease in leases {
                let revoked =
                    endpoints.once(|client| async move { client.revoke_lease(lease).await });
                let _ = tokio::time::timeout(Duration::from_millis(200), revoked).await;
            }
            Ok(())
        });
    }
}

/// Takes a new lease. If the answer is lost, the lease runs out unused.
pub(super) async fn grant(
    endpoints: &Arc<Endpoints>,
    ttl_ms: u64,
    end: Instant,
) -> Result<i64, Fault> {
    let ttl = i64::try_from(seconds(ttl_ms)).unwrap_or(i64::MAX);
    endpoints
        .until(end, |client| async move { client.grant_lease(ttl).await })
        .await
}

/// Renews a lease, and repeats that until etcd answers. `LeaseGone` if there is no such lease.
pub(super) async fn renew(
    endpoints: &Arc<Endpoints>,
    lease: i64,
    end: Instant,
) -> Result<(), Fault> {
    let answer = endpoints
        .until(end, |client| async move { client.renew_lease(lease).await })
        .await?;
    if answer {
        Ok(())
    } else {
        Err(Fault::LeaseGone)
    }
}

/// Keeps a lease alive until no caller needs it, or it is gone.
///
/// A renewal that fails, or whose answer is late, is tried again, and at another endpoint. The holders
/// themselves know how long the lease still runs for certain: they count from the start of the last
/// successful renewal.
async fn keep(
    endpoints: Arc<Endpoints>,
    clock: SystemClock,
    session: Weak<Session>,
    every: Duration,
) {
    let mut pause = Pause::default();
    let mut next = every;
    loop {
        tokio::time::sleep(next).await;
        let Some(session) = session.upgrade().filter(|session| !session.is_over()) else {
            return;
        };
        let (began, began_ms) = (instant(), clock.now().boot_ms);
        match renew(&endpoints, session.lease, began + BEAT_ANSWER_MAX).await {
            Ok(()) => {
                session.renewed(began_ms);
                pause = Pause::default();
                next = every.saturating_sub(instant().saturating_duration_since(began));
            }
            Err(Fault::LeaseGone) => {
                session.end();
                return;
            }
            Err(_) => next = pause.next(),
        }
    }
}
