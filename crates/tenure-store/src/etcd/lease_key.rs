//! What keeps a claim alive: which lease keys a change attaches, and to which leases.

use super::connection::Fault;
use super::handle::EtcdHandle;
use super::list::{Attachment, List};
use super::session::{self, Session};
use super::transact::{ChangeRun, Transaction};
use super::{EtcdStore, RENEWAL_MIN};
use crate::StoreError;
use crate::contract::{About, NewClaim};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{Claim, Entry, Kind};
use tenure_os::clock::{Clock, instant};

impl Transaction<'_> {
    /// Renews the lease before the claim: a claim that is written while its lease runs out is no sign of
    /// life. The lease key is attached anew if it is attached to another lease than the one renewed
    /// here.
    pub(super) fn renew_lease(&mut self, handle: &EtcdHandle) -> Result<(), StoreError> {
        // The caller has to know in time that its renewal did not work.
        let third = Duration::from_millis(handle.ttl_ms / 3);
        self.end = self.end.min(instant() + third.max(RENEWAL_MIN));
        if handle.kind != Kind::Kernel {
            return Ok(());
        }
        let (shared, end) = (&self.store.shared, self.end);
        let session = self.store.session(handle.ttl_ms, end)?;
        let began = shared.clock.now();
        if session.was_renewed_after(self.ask.now, &began) {
            // The holder counts from the instant at which it asked, and the lease was renewed later than
            // that: by the session, or for another hold. So many holds that are due together cost one
            // renewal of their lease. If the lease has run out since, its lease keys are gone, and the
            // change finds that.
            return Ok(());
        }
        self.beat(&session, end)
    }

    /// Renews a lease that is older than half its ttl before a claim is granted under it. The hold counts from the last
    /// renewal: a command that begins with a used-up lease would be ended at once.
    pub(super) fn freshen(&self) -> Result<(), StoreError> {
        let (About::Turn(_), Some(handle)) = (self.ask.about, self.handle) else {
            return Ok(());
        };
        let shared = &self.store.shared;
        match shared.sessions.present(handle.ttl_ms) {
            Some(session) => self.beat_if_old(&session, handle.ttl_ms),
            None => Ok(()),
        }
    }

    fn beat_if_old(&self, session: &Arc<Session>, ttl_ms: u64) -> Result<(), StoreError> {
        let now = self.store.shared.clock.now();
        let age_ms = now.boot_ms.saturating_sub(session.last_sign(&now).boot_ms);
        if age_ms <= ttl_ms / 2 {
            return Ok(());
        }
        self.beat(session, self.end)
    }

    /// Renews a lease, or finds that it has run out.
    fn beat(&self, session: &Arc<Session>, end: Instant) -> Result<(), StoreError> {
        let shared = &self.store.shared;
        let endpoints = Arc::clone(shared.connection.endpoints());
        let (session, began_ms) = (Arc::clone(session), shared.clock.now().boot_ms);
        shared.connection.block("renewing the lease", async move {
            match session::renew(&endpoints, session.lease, end).await {
                Ok(()) => {
                    session.renewed(began_ms);
                    Ok(())
                }
                Err(Fault::LeaseGone) => {
                    session.end();
                    Ok(())
                }
                other => other,
            }
        })
    }

    /// Whether the lease key of the renewed claim is attached to the renewed lease.
    pub(super) fn is_renewed(&self, list: &List) -> bool {
        let (About::Renewal(_), Some(handle)) = (self.ask.about, self.handle) else {
            return false;
        };
        let session = self.store.shared.sessions.present(handle.ttl_ms);
        let row = list.row(handle.ticket);
        row.is_some_and(|row| session.is_some_and(|session| session.lease == row.lease))
    }

    /// The lease key of a claim that the change makes.
    pub(super) fn attach(
        &mut self,
        list: &List,
        after: &Entry,
        made: NewClaim,
    ) -> Result<Attachment, StoreError> {
        let ttl_ms = after
            .claim(made.ticket)
            .map_or(0, |claim| claim.lease.ttl_ms);
        let attempt = if let Some(attempt) = self.attempt.take() {
            attempt
        } else {
            let attempt = self.store.attempt(ttl_ms, self.end)?;
            self.beat_if_old(&attempt.session, ttl_ms)?;
            attempt
        };
        let attachment = Attachment {
            ticket: made.ticket,
            id: list.row(made.ticket).is_none().then(|| attempt.id.clone()),
            lease_key: attempt.id.clone(),
            lease: attempt.session.lease,
            is_new: true,
        };
        self.attempt = Some(attempt);
        Ok(attachment)
    }

    /// The lease key that a change to an own claim has to attach. It has run out, or is attached to
    /// another lease than the one that this process keeps alive now.
    pub(super) fn own_attachment(&self, list: &List) -> Result<Option<Attachment>, StoreError> {
        let (About::Turn(_) | About::Renewal(_), Some(handle)) = (self.ask.about, self.handle)
        else {
            return Ok(None);
        };
        let Some(row) = list.row(handle.ticket) else {
            return Ok(None);
        };
        let waits = row.written.claim.token.is_none();
        if row.written.lease_key != handle.lease_key || !(waits || handle.kind == Kind::Kernel) {
            return Ok(None);
        }
        let session = self.store.session(handle.ttl_ms, self.end)?;
        Ok((row.lease != session.lease).then(|| Attachment {
            ticket: handle.ticket,
            id: None,
            lease_key: handle.lease_key.clone(),
            lease: session.lease,
            is_new: false,
        }))
    }

    /// A detached hold lives by a lease of its own, which the grant attaches, and each renewal anew.
    pub(super) fn attach_pulses(
        &mut self,
        before: &List,
        after: &Entry,
        attachments: &mut Vec<Attachment>,
    ) -> Result<(), StoreError> {
        for claim in after.granted().filter(|claim| claim.kind == Kind::Detached) {
            let seen = before.entry.claim(claim.ticket);
            let is_renewed = seen.is_none_or(|seen| {
                seen.token.is_none() || seen.lease.renewals != claim.lease.renewals
            });
            if !is_renewed {
                continue;
            }
            let lease = self.pulse(claim.lease.ttl_ms)?;
            let attached = attachments
                .iter_mut()
                .find(|attachment| attachment.ticket == claim.ticket);
            match (attached, before.row(claim.ticket)) {
                (Some(attachment), _) => attachment.lease = lease,
                (None, Some(row)) => attachments.push(Attachment {
                    ticket: claim.ticket,
                    id: None,
                    lease_key: row.written.lease_key.clone(),
                    lease,
                    is_new: false,
                }),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Renews the leases of detached holds as they are, for a change that renews them and does nothing else. False for
    /// any other change, and if one of them has run out. The record does not show the renewal; the lease is what counts.
    pub(super) fn beats(&self, before: &List, after: &Entry) -> Result<bool, StoreError> {
        let same = |claim: &Claim| {
            let seen = before.entry.claim(claim.ticket);
            seen.is_some_and(|seen| {
                let mut claim = claim.clone();
                claim.lease = seen.lease;
                claim == *seen
            })
        };
        let claims = &after.claims;
        if claims.len() != before.entry.claims.len() || !claims.iter().all(same) {
            return Ok(false);
        }
        let renewed = claims.iter().filter(|claim| {
            let seen = before.entry.claim(claim.ticket);
            seen.is_some_and(|seen| seen.lease != claim.lease)
        });
        let leases: Vec<i64> = renewed
            .filter_map(|claim| before.row(claim.ticket))
            .map(|row| row.lease)
            .collect();
        let connection = &self.store.shared.connection;
        let (endpoints, end) = (Arc::clone(connection.endpoints()), self.end);
        connection.block("renewing the lease", async move {
            for lease in leases {
                match session::renew(&endpoints, lease, end).await {
                    Err(Fault::LeaseGone) => return Ok(false),
                    renewed => renewed?,
                }
            }
            Ok(true)
        })
    }

    /// A lease that only its owner's heartbeats keep alive.
    fn pulse(&mut self, ttl_ms: u64) -> Result<i64, StoreError> {
        if let Some((_, lease)) = self.pulse.filter(|(ttl, _)| *ttl == ttl_ms) {
            return Ok(lease);
        }
        let connection = &self.store.shared.connection;
        let (endpoints, end) = (Arc::clone(connection.endpoints()), self.end);
        let lease = connection.block("taking a lease", async move {
            session::grant(&endpoints, ttl_ms, end).await
        })?;
        self.pulse = Some((ttl_ms, lease));
        Ok(lease)
    }

    /// A claim of this process that is made or granted counts from the last sign of life of this process
    /// that etcd has had.
    pub(super) fn count_from_the_last_sign(&self, before: &List, tried: &mut ChangeRun) {
        let made = tried.makes().map(|made| made.ticket);
        let granted = match (self.ask.about, self.handle) {
            (About::Turn(_), Some(handle)) => {
                let seen = before.entry.claim(handle.ticket);
                let waited = seen.is_some_and(|seen| seen.token.is_none());
                let claim = tried.entry.claim(handle.ticket);
                let claim = claim.filter(|claim| waited && claim.token.is_some());
                claim.map(|claim| claim.ticket)
            }
            _ => None,
        };
        let own = made.or(granted);
        let own = own.and_then(|ticket| tried.entry.claim_mut(ticket));
        let attached = self
            .attempt
            .as_ref()
            .map(|attempt| Arc::clone(&attempt.session));
        if let Some(claim) = own.filter(|claim| claim.kind == Kind::Kernel)
            && let Some(session) =
                attached.or_else(|| self.store.shared.sessions.present(claim.lease.ttl_ms))
        {
            claim.lease.renewed = session.last_sign(self.ask.now);
        }
    }
}

impl EtcdStore {
    pub(super) fn session(&self, ttl_ms: u64, end: Instant) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.shared.sessions.present(ttl_ms) {
            return Ok(session);
        }
        let shared = Arc::clone(&self.shared);
        self.shared.connection.block("taking a lease", async move {
            let endpoints = Arc::clone(shared.connection.endpoints());
            let sessions = &shared.sessions;
            // A grant is to follow, which needs the floor.
            let floor = {
                let (shared, endpoints) = (Arc::clone(&shared), Arc::clone(&endpoints));
                let key = shared.keys.floor();
                tokio::spawn(async move { shared.floors.read(&endpoints, &key, end).await })
            };
            let session = sessions.get(&endpoints, &shared.clock, ttl_ms, end).await;
            let _ = floor.await;
            session
        })
    }
}
