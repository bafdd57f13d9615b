//! What this process knows of the floor of tokens ([`Floor`]): reads it once, and decides when a grant raises it.

use super::EtcdStore;
use super::api::KeyValue;
use super::connection::{Endpoints, Fault};
use super::floor::{Floor, Stood};
use super::list::number;
use super::read::read_keys;
use crate::StoreError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tenure_core::Now;

/// How far tokens may be behind the wall clock, in microseconds.
const LAG_US: u64 = 10_000_000;

/// What this process knows of the floor.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<Option<Stood>>);

impl Floors {
    fn lock(&self) -> MutexGuard<'_, Option<Stood>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the floor, unless it is known.
    pub(super) async fn read(
        &self,
        endpoints: &Arc<Endpoints>,
        key: &str,
        end: Instant,
    ) -> Result<(), Fault> {
        let epoch = endpoints.cluster().epoch();
        if self.lock().is_some_and(|stood| stood.epoch == epoch) {
            return Ok(());
        }
        let (_, found) = read_keys(endpoints, &[key.to_owned()], end).await?;
        self.take(epoch, key, &found);
        Ok(())
    }

    /// Takes the floor from what was read.
    fn take(&self, epoch: u64, key: &str, found: &[KeyValue]) {
        let pair = found.iter().find(|pair| pair.key == key.as_bytes());
        let text = pair.and_then(|pair| std::str::from_utf8(&pair.value).ok());
        *self.lock() = Some(Stood {
            epoch,
            value: text.and_then(|text| text.parse().ok()).unwrap_or(0),
            modified: pair.map_or(0, |pair| pair.mod_revision),
        });
    }
}

impl EtcdStore {
    /// The floor for a grant now.
    pub(super) fn floor(&self, now: &Now, end: Instant) -> Result<Floor, StoreError> {
        let shared = &self.shared;
        let (key, cluster) = (shared.keys.floor(), shared.connection.endpoints().cluster());
        let known = || {
            let stood = *shared.floors.lock();
            stood.filter(|stood| stood.epoch == cluster.epoch())
        };
        let stood = if let Some(stood) = known() {
            stood
        } else {
            let (all, key) = (Arc::clone(shared), key.clone());
            shared.connection.block("reading the lock", async move {
                let endpoints = Arc::clone(all.connection.endpoints());
                all.floors.read(&endpoints, &key, end).await
            })?;
            known().ok_or_else(|| {
                self.unreachable("reading the lock", "the servers were set back".to_owned())
            })?
        };
        let revision = number(cluster.known().revision);
        let is_low = stood.value.saturating_add(revision).saturating_add(LAG_US) < now.wall_us;
        let value = if is_low {
            now.wall_us.saturating_sub(revision)
        } else {
            stood.value
        };
        Ok(Floor { key, stood, value })
    }

    /// Notes how a grant that counted with this floor ended: at this revision, or with the floor in what it has read
    /// instead; `None` if that is not known.
    pub(super) fn note_floor(&self, floor: &Floor, ended: Option<Result<i64, &[KeyValue]>>) {
        let floors = &self.shared.floors;
        match ended {
            Some(Ok(revision)) if floor.value != floor.stood.value => {
                *floors.lock() = Some(Stood {
                    epoch: floor.stood.epoch,
                    value: floor.value,
                    modified: revision,
                });
            }
            Some(Ok(_)) => {}
            Some(Err(found)) => floors.take(floor.stood.epoch, &floor.key, found),
            None => *floors.lock() = None,
        }
    }
}
