//! Leases: what tells etcd, and with it everybody, that this process is alive.
//!
//! All claims of a process whose ttl is the same live by one lease. It is renewed three times within
//! that ttl on the connection's thread, whatever the callers do. When a renewal is answered with *no
//! such lease*, the session is over: whoever still has a claim under it has to show its life again
//! under a new one (`Store::renew`, `Store::advance`), which succeeds only if nobody has taken the
//! claim out of the list meanwhile.
//!
//! A grant promises its holder a whole ttl, and the lease was there before. So it runs for a third
//! longer than the ttl, which is the time between two renewals; and whoever is granted something
//! under a lease whose last renewal is older than that renews it first ([`Session::lasts`]).
//!
//! A detached hold has a lease of its own, which nobody renews but its owner's heartbeat.

use super::link::{Endpoints, Fault, Link, Pause};
use crate::clock::{Clock, SystemClock, instant};
use etcd_client::{Client, Error};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The shortest lease that etcd gives.
const TTL_MIN_SECONDS: u64 = 2;

/// The longest that is asked for; etcd itself gives up at nine billion seconds.
const TTL_MAX_SECONDS: u64 = 10 * 365 * 24 * 3_600;

/// The longest time between two renewals.
const BEAT_MAX: Duration = Duration::from_secs(30);

/// A lease that this process keeps alive.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) lease: i64,
    ttl_ms: u64,
    /// When the last renewal that succeeded was begun, by the clock that counts a suspended
    /// machine's sleep.
    renewed_ms: AtomicU64,
    over: AtomicBool,
}

fn boot_ms() -> u64 {
    SystemClock::new(None).now().boot_ms
}

impl Session {
    /// Whether its lease runs for at least so long from now on.
    pub(super) fn lasts(&self, time_ms: u64) -> bool {
        let end = (self.renewed_ms.load(Ordering::SeqCst)).saturating_add(self.ttl_ms);
        !self.is_over() && end >= boot_ms().saturating_add(time_ms)
    }

    /// Whether etcd has told us that it has run out.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Notes that it has.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// The sessions of a process on one etcd, by their ttl.
#[derive(Default)]
pub(super) struct Sessions {
    by_ttl: Mutex<HashMap<u64, Arc<Session>>>,
}

/// The ttl of a lease: whole seconds, never less than what is promised.
fn seconds(ttl_ms: u64) -> u64 {
    ttl_ms
        .div_ceil(1_000)
        .clamp(TTL_MIN_SECONDS, TTL_MAX_SECONDS)
}

/// The same of a session's lease for claims of this ttl.
fn session_seconds(ttl_ms: u64) -> u64 {
    seconds(ttl_ms.saturating_add(ttl_ms / 3))
}

impl Sessions {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Session>>> {
        self.by_ttl.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session for claims of this ttl, if there is one that counts.
    pub(super) fn present(&self, ttl_ms: u64) -> Option<Arc<Session>> {
        let sessions = self.lock();
        let session = sessions.get(&session_seconds(ttl_ms))?;
        (!session.is_over()).then(|| Arc::clone(session))
    }

    /// One whose lease runs for the whole ttl from now on: the same, renewed if need be, or a new
    /// one.
    pub(super) async fn get(
        &self,
        endpoints: &Arc<Endpoints>,
        ttl_ms: u64,
        end: Instant,
    ) -> Result<Arc<Session>, Fault> {
        if let Some(session) = self.present(ttl_ms) {
            if session.lasts(ttl_ms) {
                return Ok(session);
            }
            match renew(endpoints, &session, end).await {
                Ok(()) => return Ok(session),
                Err(Fault::LeaseGone) => {}
                Err(other) => return Err(other),
            }
        }
        let ttl = session_seconds(ttl_ms);
        let (lease, renewed_ms) = grant_for(endpoints, ttl, end).await?;
        let session = Arc::new(Session {
            lease,
            ttl_ms: ttl.saturating_mul(1_000),
            renewed_ms: AtomicU64::new(renewed_ms),
            over: AtomicBool::new(false),
        });
        // Somebody may have made one at the same time; theirs is as good, and ours runs out unused.
        let kept = {
            let mut sessions = self.lock();
            let kept = sessions.entry(ttl).or_insert_with(|| Arc::clone(&session));
            if kept.is_over() {
                *kept = Arc::clone(&session);
            }
            Arc::clone(kept)
        };
        if Arc::ptr_eq(&kept, &session) {
            let every = (Duration::from_secs(ttl) / 4).min(BEAT_MAX);
            tokio::spawn(keep(Arc::clone(endpoints), Arc::downgrade(&session), every));
        }
        Ok(kept)
    }

    /// Notes that a lease is gone, so that nobody makes a claim under it any more.
    pub(super) fn forget(&self, lease: i64) {
        for session in self
            .lock()
            .values()
            .filter(|session| session.lease == lease)
        {
            session.end();
        }
    }

    /// Gives all leases back, so that etcd need not wait for their end.
    pub(super) fn give_back(&self, link: &Link) {
        let leases: Vec<i64> = self
            .lock()
            .drain()
            .map(|(_, session)| session.lease)
            .collect();
        if leases.is_empty() {
            return;
        }
        let endpoints = Arc::clone(link.endpoints());
        let _ = link.block("giving the lease back", async move {
            for lease in leases {
                let revoked = endpoints
                    .once(|mut client| async move { client.lease_revoke(lease).await.map(|_| ()) });
                let _ = tokio::time::timeout(Duration::from_millis(200), revoked).await;
            }
            Ok(())
        });
    }
}

/// A new lease that nobody keeps alive. One whose answer was lost runs out unused.
pub(super) async fn grant(endpoints: &Endpoints, ttl_ms: u64, end: Instant) -> Result<i64, Fault> {
    let (lease, _) = grant_for(endpoints, seconds(ttl_ms), end).await?;
    Ok(lease)
}

/// A new lease, and when it was asked for at the latest.
async fn grant_for(endpoints: &Endpoints, ttl: u64, end: Instant) -> Result<(i64, u64), Fault> {
    let ttl = i64::try_from(ttl).unwrap_or(i64::MAX);
    let granted = endpoints
        .until(end, |mut client: Client| async move {
            let began_ms = boot_ms();
            let granted = client.lease_grant(ttl, None).await?;
            Ok((granted.id(), began_ms))
        })
        .await?;
    Ok(granted)
}

/// Renews the lease of a session once. `LeaseGone` if there is none; the session is over then.
async fn renew_once(endpoints: &Endpoints, session: &Session) -> Result<(), Fault> {
    let lease = session.lease;
    let began_ms = boot_ms();
    let answer = endpoints
        .once(|mut client: Client| async move {
            match client.lease_keep_alive(lease).await {
                Ok(_) => Ok(true),
                // What the client says of an answer with a ttl of nothing.
                Err(Error::LeaseKeepAliveError(said)) if said == "lease not found" => Ok(false),
                Err(error) => Err(error),
            }
        })
        .await;
    match answer {
        Ok(true) => {
            session.renewed_ms.fetch_max(began_ms, Ordering::SeqCst);
            Ok(())
        }
        Ok(false) | Err(Fault::LeaseGone) => {
            session.end();
            Err(Fault::LeaseGone)
        }
        Err(other) => Err(other),
    }
}

/// The same again and again until it is answered.
pub(super) async fn renew(
    endpoints: &Endpoints,
    session: &Session,
    end: Instant,
) -> Result<(), Fault> {
    let mut pause = Pause::default();
    loop {
        match renew_once(endpoints, session).await {
            Err(Fault::Unsure(_)) if pause.fits(end) => tokio::time::sleep(pause.next()).await,
            answer => return answer,
        }
    }
}

/// Keeps a lease alive until nobody needs it, or it is gone.
///
/// When an answer is late, the next renewal goes to another endpoint. How long the lease still runs for certain is the
/// holders' own affair: they count from when they began a renewal that succeeded.
async fn keep(endpoints: Arc<Endpoints>, session: Weak<Session>, every: Duration) {
    let mut pause = Pause::default();
    let mut next = every;
    loop {
        tokio::time::sleep(next).await;
        let Some(session) = session.upgrade() else {
            return;
        };
        let began = instant();
        match renew_once(&endpoints, &session).await {
            Ok(()) => {
                pause = Pause::default();
                next = every.saturating_sub(instant().saturating_duration_since(began));
            }
            Err(Fault::LeaseGone) => return,
            Err(_) => next = pause.next(),
        }
    }
}
