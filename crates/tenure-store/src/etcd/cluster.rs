//! The cluster behind an address: what the head of every answer says of it, and what follows from that.
//!
//! Servers may be restored, split, replaced or listed by mistake, and their address stays the same. Each answer
//! carries the id of its cluster and the revision of its store. They are looked at here, before the answer is used:
//!
//! | an answer says | what follows |
//! |---|---|
//! | the known cluster, no lower revision | it counts |
//! | another cluster than one of the list was met or remembered as | it is refused, and so is each later one of either, until the user accepts one of them (`tenure allow`) |
//! | a lower revision, agreed on by the cluster | the servers were set back; the request begins anew |
//! | a lower revision of one member | that member may lag: a read that the cluster agrees on decides |
//!
//! A second cluster and a set-back begin a new **epoch**. What was granted in an earlier epoch is lost: the servers may
//! know nothing of it, and may have granted it again. So holders are notified, their renewals find a loss, and
//! sessions begin anew.
//!
//! Each machine remembers the cluster of each server, for each prefix ([`Memory`]): a second cluster in a list shows only
//! while both answer. So one that answered first, or that answers alone, is no proof that the others are of it.
//!
//! # Crash safety
//! What is remembered of a server is one file, which is replaced whole. A process first writes what it has seen, and
//! then reads what is known of the other servers. So of two that met different clusters, one finds out.

use super::address::Address;
use super::api::{Known, ResponseHeader};
use crate::advice;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenure_os::private;
use tokio::sync::watch;
use tonic::Status;

/// What this process knows of the cluster.
pub(super) struct Cluster {
    state: Mutex<State>,
    epochs: watch::Sender<u64>,
    address: Address,
    memory: Option<Memory>,
}

#[derive(Default)]
struct State {
    /// The cluster whose answers count.
    id: Option<u64>,
    /// The highest revision that it has shown.
    revision: i64,
    /// What each server that has answered belongs to, by its place in the list.
    met: BTreeMap<usize, u64>,
    /// An answer was of another cluster, and the user has said nothing since.
    is_divided: bool,
}

/// An answer of another cluster than the known one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Stranger(pub(super) String);

impl Cluster {
    pub(super) fn new(address: Address) -> Self {
        Self {
            state: Mutex::default(),
            epochs: watch::Sender::new(0),
            address,
            memory: None,
        }
    }

    /// Remembers the cluster of each server in a folder.
    pub(super) fn remember(&mut self, folder: PathBuf) {
        self.memory = Some(Memory(folder));
    }

    /// The servers of the list.
    pub(super) fn servers(&self) -> Vec<String> {
        self.address.servers()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the present epoch.
    pub(super) fn epoch(&self) -> u64 {
        *self.epochs.borrow()
    }

    /// The epochs from now on.
    pub(super) fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    /// Whether a server has answered.
    pub(super) fn is_known(&self) -> bool {
        self.lock().id.is_some()
    }

    fn remembered(&self, server: &str) -> Option<u64> {
        self.memory.as_ref()?.of(server, self.address.prefix())
    }

    /// What is known before a request is sent.
    pub(super) fn known(&self) -> Known {
        // The epoch first: a revision of a later one is then ignored together with the answer.
        let epoch = self.epoch();
        let revision = self.lock().revision;
        Known { epoch, revision }
    }

    /// Looks at the head of an answer of a server. `since` is what was known when its request began. `agreed`: the
    /// cluster has agreed on its revision after that. Answers whether the member lags, or the cluster was set back; a
    /// read that the cluster agrees on has to decide.
    pub(super) fn look(
        &self,
        server: usize,
        head: ResponseHeader,
        since: Known,
        agreed: bool,
    ) -> Result<bool, Status> {
        if head.cluster_id == 0 {
            // No etcd leaves it out; its answer proves nothing.
            return Ok(false);
        }
        let mut state = self.lock();
        if state.is_divided || state.met.get(&server) != Some(&head.cluster_id) {
            self.meet(&mut state, server, head.cluster_id)?;
        }
        if self.epoch() != since.epoch {
            return Err(set_back());
        }
        if agreed && head.revision < since.revision {
            state.revision = head.revision;
            self.begin_epoch();
            return Err(set_back());
        }
        let is_behind = head.revision < state.revision;
        state.revision = state.revision.max(head.revision);
        Ok(is_behind)
    }

    /// The first answer of a server, or any while the list is divided. All servers of the list have to be of one cluster:
    /// by their answers to this process, and by what this machine remembers.
    fn meet(&self, state: &mut State, server: usize, id: u64) -> Result<(), Status> {
        let servers = self.address.servers();
        let name = servers.get(server).map_or("", String::as_str);
        if let Some(memory) = &self.memory
            && memory.of(name, self.address.prefix()).is_none()
        {
            memory.note(name, self.address.prefix(), id);
        }
        state.met.insert(server, id);
        let remembered: Vec<_> = servers.iter().map(|name| self.remembered(name)).collect();
        // A memory of one cluster for all servers is the user's word, or what this machine has always known.
        let is_accepted = remembered.iter().all(|other| *other == Some(id));
        if is_accepted {
            state.met.retain(|_, other| *other == id);
        }
        let known = state.id.filter(|_| !is_accepted);
        let met = state.met.values().copied();
        let mut others = known
            .into_iter()
            .chain(met)
            .chain(remembered.into_iter().flatten());
        if let Some(other) = others.find(|other| *other != id) {
            // What a process holds in one of two clusters may be held in the other one as well.
            if state.id.is_some() && !state.is_divided {
                self.begin_epoch();
            }
            state.is_divided = true;
            let stranger = Box::new(Stranger(self.refusal(name, id, other)));
            return Err(Status::from_error(stranger));
        }
        if state.id.is_some_and(|known| known != id) {
            state.revision = 0;
            self.begin_epoch();
        }
        state.is_divided = false;
        state.id = Some(id);
        Ok(())
    }

    /// Whether this process has met a server as one of the known cluster.
    pub(super) fn has_met(&self, server: usize) -> bool {
        let state = self.lock();
        state.id.is_some() && state.met.get(&server) == state.id.as_ref()
    }

    /// Whether this machine has a memory that does not know this server.
    pub(super) fn is_new(&self, server: usize) -> bool {
        let servers = self.address.servers();
        let name = servers.get(server);
        self.memory.is_some() && name.is_some_and(|name| self.remembered(name).is_none())
    }

    fn begin_epoch(&self) {
        self.epochs.send_modify(|epoch| *epoch += 1);
    }

    fn refusal(&self, server: &str, id: u64, other: u64) -> String {
        let line = format!("{}#{id:x}", self.address);
        format!(
            "{server} is of etcd cluster {id:x}, and {other:x} is the cluster of another server of the list, or the one from \
             before. A list names the servers of one cluster. If the cluster was restored or replaced and no holder from \
             before is left, or if a server was repaired, say which one it is: tenure allow {}",
            advice::word(&line)
        )
    }
}

fn set_back() -> Status {
    Status::unavailable("the servers were set back to an earlier state")
}

/// The folder in which this machine remembers the cluster of each server, for each prefix.
pub(super) struct Memory(PathBuf);

impl Memory {
    /// The cluster of a server. What cannot be read is not known.
    fn of(&self, server: &str, prefix: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.file(server, prefix)).ok()?;
        u64::from_str_radix(text.trim(), 16).ok()
    }

    /// Remembers it. A folder that cannot be written to remembers nothing, and keeps nobody from the locks.
    fn note(&self, server: &str, prefix: &str, id: u64) {
        let _ = self.write(server, prefix, id);
    }

    fn write(&self, server: &str, prefix: &str, id: u64) -> std::io::Result<()> {
        private::make_folder(&self.0).map_err(|(_, errno)| std::io::Error::from(errno))?;
        let file = self.file(server, prefix);
        let mut new = file.clone().into_os_string();
        new.push(format!(".new-{}", std::process::id()));
        std::fs::write(&new, format!("{id:x}\n"))?;
        std::fs::rename(&new, &file)
    }

    /// The server and the parts of the prefix; of a long prefix the beginning, and a number for all of it.
    fn file(&self, server: &str, prefix: &str) -> PathBuf {
        let server = server.to_ascii_lowercase();
        let mut parts = prefix.trim_matches('/').replace('/', "+");
        if parts.len() > PREFIX_SHOWN {
            let all = parts.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            let shown = parts.char_indices().map(|(at, _)| at);
            let shown = shown.take_while(|at| *at <= PREFIX_SHOWN).last();
            parts.truncate(shown.unwrap_or_default());
            parts = format!("{parts}-{all:x}");
        }
        self.0.join(format!("{server}+{parts}"))
    }
}

/// Makes this machine remember that the servers of an address are of this cluster, whatever it remembered before.
///
/// # Errors
/// - The folder cannot be written to.
pub fn accept_cluster(folder: &Path, address: &Address, id: u64) -> std::io::Result<()> {
    let memory = Memory(folder.to_owned());
    let servers = address.servers();
    servers
        .iter()
        .try_for_each(|server| memory.write(server, address.prefix(), id))
}

/// Makes this machine forget the cluster of the servers of an address.
///
/// # Errors
/// - The folder cannot be written to.
pub fn forget_cluster(folder: &Path, address: &Address) -> std::io::Result<()> {
    let memory = Memory(folder.to_owned());
    let known = address.servers().into_iter();
    known
        .filter(|server| memory.of(server, address.prefix()).is_some())
        // A file without a number says nothing.
        .try_for_each(|server| std::fs::write(memory.file(&server, address.prefix()), ""))
}

/// How much of a prefix the name of such a file shows.
const PREFIX_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(cluster_id: u64, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id,
            revision,
        }
    }

    #[test]
    fn a_member_that_lags_is_no_set_back_and_an_agreed_answer_is() {
        let address = Address::parse("etcd://one,two").expect("an address");
        let cluster = Cluster::new(address);
        let before = cluster.known();
        // Columns: the server that answers, the revision, whether the cluster agreed on it, what is said, and
        // how many epochs began.
        for (server, revision, agreed, said, epochs) in [
            (0, 10, true, Some(false), 0),
            (1, 5, false, Some(true), 0),
            (0, 10, false, Some(false), 0),
            (1, 11, true, Some(false), 0),
            (0, 4, true, None, 1),
            (0, 4, true, Some(false), 1),
            (1, 3, false, Some(true), 1),
        ] {
            let since = cluster.known();
            let looked = cluster.look(server, head(7, revision), since, agreed);
            assert_eq!(looked.ok(), said, "{revision} of {server}");
            assert_eq!(cluster.epoch(), epochs, "{revision} of {server}");
        }
        // A request that was sent before the set-back says nothing of the servers as they are.
        assert!(cluster.look(0, head(7, 20), before, true).is_err());
        assert_eq!((cluster.epoch(), cluster.known().revision), (1, 4));
    }

    /// Without a memory, only the answers to this process count.
    #[test]
    fn another_cluster_behind_an_address_is_refused_without_a_memory() {
        for (list, table) in [
            (
                "etcd://one",
                vec![(0, 7, true), (0, 8, false), (0, 8, false), (0, 7, true)],
            ),
            (
                "etcd://one,two",
                vec![
                    (0, 7, true),
                    (1, 7, true),
                    (0, 8, false),
                    (1, 8, false),
                    (0, 8, false),
                ],
            ),
            (
                "etcd://one,two",
                vec![
                    (0, 7, true),
                    (1, 8, false),
                    (0, 7, false),
                    (1, 7, true),
                    (0, 7, true),
                ],
            ),
        ] {
            let cluster = Cluster::new(Address::parse(list).expect("an address"));
            for (server, id, counts) in table {
                let looked = cluster.look(server, head(id, 1), cluster.known(), true);
                assert_eq!(looked.is_ok(), counts, "{id} of {server} in {list}");
            }
        }
    }

    #[test]
    fn a_divided_list_is_refused_until_the_user_accepts_one_cluster() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = Address::parse("etcd://one,two").expect("an address");
        let remembering = || {
            let mut cluster = Cluster::new(address.clone());
            cluster.remember(folder.path().to_owned());
            cluster
        };
        let cluster = remembering();
        // Columns: the server that answers, its cluster, whether the answer counts, and how many epochs began.
        let look = |cluster: &Cluster, table: &[(usize, u64, bool, u64)]| {
            for &(server, id, counts, epochs) in table {
                let looked = cluster.look(server, head(id, 1), cluster.known(), true);
                let found = (looked.is_ok(), cluster.epoch());
                assert_eq!(found, (counts, epochs), "{id} of {server}");
            }
        };
        look(
            &cluster,
            &[
                (0, 7, true, 0),
                (1, 8, false, 1),
                (0, 7, false, 1),
                (1, 8, false, 1),
            ],
        );
        // Whichever answers first to the next process, and alone.
        look(&remembering(), &[(0, 7, false, 0), (0, 7, false, 0)]);
        look(&remembering(), &[(1, 8, false, 0), (0, 7, false, 0)]);
        accept_cluster(folder.path(), &address, 8).expect("a folder");
        let known = cluster.known();
        assert!(
            cluster.look(1, head(8, 1), known, true).is_err(),
            "it began before"
        );
        look(
            &cluster,
            &[(1, 8, true, 2), (0, 8, true, 2), (0, 7, false, 3)],
        );
        look(&remembering(), &[(0, 8, true, 0)]);
    }
}
