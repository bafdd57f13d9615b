//! Reads a lock: all of it, the claims up to one, or one claim.

use super::EtcdStore;
use super::api::{KeyValue, RangeRequest, RequestOp, TxnRequest};
use super::connection::{Endpoints, Fault, read_by, revision_of};
use super::keys::{Keys, end_of};
use super::list::List;
use crate::StoreError;
use std::sync::Arc;
use std::time::Instant;
use tenure_core::LockName;
use tenure_os::clock::Clock;

/// How many keys are read at once. A claim takes less than a kilobyte, so an answer stays below two
/// megabytes.
const PAGE: i64 = 2_000;

/// How much of a lock is read.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    /// The whole lock.
    All,
    /// The claims up to this one, the header, and whether a claim went before waiting ones.
    Upto(u64),
    /// A single claim, and the header.
    One {
        /// Id of the claim.
        id: String,
        /// The id of its lease key.
        lease_key: String,
    },
}

impl EtcdStore {
    /// Reads a lock, or the part of it that `scope` names.
    pub(super) fn load(
        &self,
        name: &LockName,
        scope: &Scope,
        end: Instant,
    ) -> Result<List, StoreError> {
        let keys = self.shared.keys.clone();
        let endpoints = Arc::clone(self.shared.connection.endpoints());
        let (scope, name_owned) = (scope.clone(), name.clone());
        let read = async move {
            match scope {
                Scope::All => read_all(&endpoints, &keys, &name_owned, end).await,
                Scope::Upto(ticket) => read_upto(&endpoints, &keys, &name_owned, ticket, end).await,
                Scope::One { id, lease_key } => {
                    let wanted = [
                        keys.header(&name_owned),
                        keys.claim(&name_owned, &id),
                        keys.lease_key(&name_owned, &lease_key),
                    ];
                    read_keys(&endpoints, &wanted, end)
                        .await
                        .map(|(revision, found)| List::of(&keys, &name_owned, revision, &found))
                }
            }
        };
        let mut list = self.shared.connection.block("reading the lock", read)?;
        list.trust_leases(&self.shared.clock.now());
        Ok(list)
    }
}

pub(super) async fn read_all(
    endpoints: &Arc<Endpoints>,
    keys: &Keys,
    name: &LockName,
    end: Instant,
) -> Result<List, Fault> {
    let lock = keys.lock(name);
    let (revision, found) = read_range(endpoints, &lock, RangeRequest::default(), end).await?;
    Ok(List::of(keys, name, revision, &found))
}

/// Reads a range page by page, all pages at one revision.
pub(super) async fn read_range(
    endpoints: &Arc<Endpoints>,
    prefix: &str,
    options: RangeRequest,
    end: Instant,
) -> Result<(i64, Vec<KeyValue>), Fault> {
    let mut found: Vec<KeyValue> = Vec::new();
    let mut revision = 0;
    loop {
        // The next key after one is the same with a zero byte behind it.
        let begin = match found.last() {
            Some(last) => [&last.key[..], &[0]].concat(),
            None => prefix.as_bytes().to_vec(),
        };
        let page = RangeRequest {
            key: begin,
            range_end: end_of(prefix).into(),
            limit: PAGE,
            revision,
            ..options.clone()
        };
        let answer = endpoints.until(end, |client| {
            let page = page.clone();
            async move { client.get(page).await }
        });
        let answer = match answer.await {
            Err(Fault::Refused(why)) if why.contains("compacted") && revision != 0 => {
                // The revision of the first page was compacted away before the next page.
                found.clear();
                revision = 0;
                continue;
            }
            answer => answer?,
        };
        if revision == 0 {
            revision = revision_of(answer.header);
        }
        found.extend(answer.kvs);
        if !answer.more {
            return Ok((revision, found));
        }
    }
}

/// Reads some keys at once.
pub(super) async fn read_keys(
    endpoints: &Arc<Endpoints>,
    keys: &[String],
    end: Instant,
) -> Result<(i64, Vec<KeyValue>), Fault> {
    let gets: Vec<RequestOp> = keys
        .iter()
        .map(|key| RequestOp::get(RangeRequest::of(key.clone())))
        .collect();
    let answer = endpoints
        .until(end, |client| {
            let txn = TxnRequest::default().and_then(gets.clone());
            async move { client.txn(txn).await }
        })
        .await?;
    Ok((revision_of(answer.header), read_by(&answer).0))
}

/// How many lease keys are read one by one.
const LEASE_KEYS_MAX: usize = 16;

/// Reads the claims up to a ticket, and then their lease keys.
///
/// The lease keys are read a moment later. If one is attached again in between, its claim is written
/// too, so a change that takes it for dead is overtaken. If one has run out in between, it has run out.
pub(super) async fn read_upto(
    endpoints: &Arc<Endpoints>,
    keys: &Keys,
    name: &LockName,
    ticket: u64,
    end: Instant,
) -> Result<List, Fault> {
    let claims = keys.claims(name);
    let upto = i64::try_from(ticket).unwrap_or(i64::MAX);
    let options = RangeRequest {
        max_create_revision: upto,
        ..RangeRequest::default()
    };
    let (revision, found) = read_range(endpoints, &claims, options, end).await?;
    let mut list = List::of(keys, name, revision, &found);
    let lease_keys = list.rows.iter();
    let mut wanted: Vec<String> = lease_keys
        .map(|row| keys.lease_key(name, &row.written.lease_key))
        .collect();
    if wanted.len() > LEASE_KEYS_MAX {
        let lease_keys = keys.lease_keys(name);
        let (_, found) = read_range(endpoints, &lease_keys, RangeRequest::default(), end).await?;
        list.add(keys, name, &found);
        wanted.clear();
    }
    wanted.extend([keys.header(name), keys.ahead(name)]);
    let (_, found) = read_keys(endpoints, &wanted, end).await?;
    list.add(keys, name, &found);
    Ok(list)
}
