//! Looks whether a waiting claim holds now, and grants it in the same transaction.

use super::api::{Compare, CompareOp, Txn, TxnOp, TxnResponse};
use super::change::{Scope, settle_events};
use super::keys::end_of;
use super::link::{read_by, revision_of};
use super::list::{Guard, List, number};
use super::seat::Seat;
use super::{EtcdStore, value};
use crate::store::{Advanced, StoreError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tenure_core::{Advance, Claim, Entry, Evidence, Kind, Now};

impl EtcdStore {
    /// Looks whether a waiting claim holds now.
    ///
    /// Of a claim that was never away, only those before it matter: whoever is granted behind it has
    /// counted it, with what it tolerates, and is overtaken if it has changed since. Behind a claim
    /// that came back, somebody may hold who has not.
    pub(super) fn advance_until(
        &self,
        end: Instant,
        seat: &Seat,
        now: &Now,
    ) -> Result<Advanced, StoreError> {
        if let Some(advanced) = self.advance_at_once(seat, now)? {
            return Ok(advanced);
        }
        let (scope, guard) = if !seat.was_away && seat.kind == Kind::Kernel {
            (Scope::Upto(seat.ticket), Guard::Upto(seat.ticket))
        } else {
            (Scope::All, Guard::All)
        };
        let made = self.change_until(end, &seat.name, &scope, |draft, list, _| {
            let light = self.relight(seat, list, end)?;
            let relit = light.is_some();
            draft.lights.extend(light);
            let evidence = |claim: &Claim| {
                let mut seen = list.evidence(&self.shared.here, claim);
                if relit && claim.ticket == seat.ticket {
                    seen.beacon = tenure_core::Beacon::Lit;
                }
                seen
            };
            let policy = &self.shared.policy;
            let events = &mut draft.events;
            let advance = draft
                .entry
                .advance(policy, seat.ticket, now, evidence, events);
            if let Advance::Granted { .. } = &advance {
                draft.guard = guard;
                // Whoever holds counts from the last sign of life that etcd has had of it.
                if seat.kind == Kind::Kernel
                    && let Some(session) = self.shared.sessions.present(seat.ttl_ms)
                    && let Some(claim) = draft.entry.claim_mut(seat.ticket)
                {
                    claim.lease.renewed = session.last_sign(now);
                }
            }
            Ok(advance)
        });
        let made = made.inspect_err(|_| seat.doubtful.store(true, Ordering::SeqCst))?;
        let mut advance = made.answer;
        seat.remember(&made.before, &self.shared.keys);
        if let Advance::Granted { token } = &mut advance
            && let Some(claim) = made.after.claim(seat.ticket)
        {
            *token = claim.token.unwrap_or(*token);
            seat.note_grant(claim, &made.before);
        }
        if made.revision.is_some() {
            // It was written since that list.
            seat.state().waiting = None;
        }
        seat.saw(made.revision.unwrap_or(made.before.revision));
        Ok(Advanced {
            advance,
            entry: made.after,
            events: made.events,
        })
    }

    /// Grants a claim in one transaction and without a look, if its wait was ended by something that
    /// happened: mostly that was the end of the last one before it. That there is none is the
    /// condition, and that nobody has asked it to stop, and that it lives by the lease that this
    /// process keeps alive. `None` if any of that is not so or not known, for whoever looks.
    pub(super) fn advance_at_once(
        &self,
        seat: &Seat,
        now: &Now,
    ) -> Result<Option<Advanced>, StoreError> {
        let (woken, waiting) = {
            let mut state = seat.state();
            (std::mem::take(&mut state.woken), state.waiting.clone())
        };
        let session = self.shared.sessions.present(seat.ttl_ms);
        let (Some((claim, modified)), Some(session)) = (waiting, session) else {
            return Ok(None);
        };
        if !woken || seat.was_away || seat.kind != Kind::Kernel {
            return Ok(None);
        }
        let mut entry = Entry {
            claims: vec![claim],
            ..Entry::default()
        };
        let mut events = Vec::new();
        let lit = |_: &Claim| Evidence {
            beacon: tenure_core::Beacon::Lit,
            process: tenure_core::Liveness::NotRecorded,
            command: tenure_core::Liveness::NotRecorded,
        };
        let policy = &self.shared.policy;
        let advance = entry.advance(policy, seat.ticket, now, lit, &mut events);
        let (Advance::Granted { .. }, Some(granted)) = (advance, entry.claim_mut(seat.ticket))
        else {
            return Ok(None);
        };
        granted.lease.renewed = session.last_sign(now);
        let written = value::Written {
            claim: granted.clone(),
            life: seat.life.clone(),
            was_away: false,
        };
        let value = self.told(value::encode(written, true))?;
        let keys = &self.shared.keys;
        let (own, life) = (
            keys.claim(&seat.name, &seat.id),
            keys.life(&seat.name, &seat.life),
        );
        let claims = keys.claims(&seat.name);
        let before = i64::try_from(seat.ticket).unwrap_or(i64::MAX) - 1;
        let first = Compare::create_revision(claims.clone(), CompareOp::Greater, before);
        let txn = Txn::new()
            .when([
                Compare::mod_revision(own.clone(), CompareOp::Equal, modified),
                Compare::lease(life, CompareOp::Equal, session.lease),
                first.with_range(end_of(&claims)),
            ])
            .and_then([
                TxnOp::put(own, value, None),
                TxnOp::get(keys.header(&seat.name), None),
            ]);
        let endpoints = Arc::clone(self.shared.link.endpoints());
        let answer = self.shared.link.block("writing the lock", async move {
            let answer = endpoints.once(|client| async move { client.kv_client().txn(txn).await });
            // Whatever else became of it, whoever looks finds out.
            Ok(answer.await.ok())
        })?;
        let Some(answer) = answer.filter(TxnResponse::succeeded) else {
            return Ok(None);
        };
        let revision = revision_of(answer.header());
        let (found, _) = read_by(&answer);
        let list = List::of(keys, &seat.name, revision, &found);
        entry.history = list.entry.history;
        entry.last = number(revision);
        let token = number(revision);
        if let Some(granted) = entry.claim_mut(seat.ticket) {
            granted.token = Some(token);
            seat.note_grant(granted, &list);
        }
        settle_events(&mut events, revision);
        seat.saw(revision);
        Ok(Some(Advanced {
            advance: Advance::Granted { token },
            entry,
            events,
        }))
    }
}
