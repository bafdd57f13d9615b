//! Where locks are kept: what a store has to do ([`Store`]), what callers do with one ([`Verbs`]), and
//! the stores that there are.
//!
//! A store of your own implements [`Store`] and runs the [`conformance`] suite; then
//! [`LockManager::with_store`](crate::guard::LockManager::with_store) takes it.
//!
//! # Examples
//! ```
//! use tenure::store::{conformance, memory::MemoryStore};
//! use tenure::tenure_core::{Death, Host, Liveness, LockName, Policy, Process};
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! struct Memory(MemoryStore, AtomicU32);
//!
//! impl conformance::Harness for Memory {
//!     type Store = MemoryStore;
//!     fn store(&self) -> MemoryStore {
//!         self.0.clone()
//!     }
//!     fn name(&self) -> LockName {
//!         let number = self.1.fetch_add(1, Ordering::Relaxed);
//!         LockName::new(format!("lock-{number}")).expect("an accepted name")
//!     }
//!     fn host(&self) -> Host {
//!         Host::default()
//!     }
//!     fn start_process(&self) -> Process {
//!         let pid = self.1.fetch_add(1, Ordering::Relaxed);
//!         self.0.set_process(pid, Liveness::Alive);
//!         Process { pid, started: None }
//!     }
//!     fn end_process(&self, process: Process) {
//!         self.0.set_process(process.pid, Liveness::Dead(Death::Gone));
//!     }
//!     fn stranger(&self) -> (Host, Process) {
//!         let pid = self.1.fetch_add(1, Ordering::Relaxed);
//!         (Host::default(), Process { pid, started: None })
//!     }
//! }
//!
//! let memory = Memory(MemoryStore::new(Policy::NATIVE), AtomicU32::new(1));
//! for (name, promise) in conformance::promises() {
//!     if name == "a_release_wants_ownership" {
//!         promise(&memory)?;
//!     }
//! }
//! # Ok::<(), conformance::Broken>(())
//! ```

#[cfg(all(feature = "etcd", unix))]
pub use tenure_engine::store::etcd;
pub use tenure_engine::store::{
    Cleaned, Content, ForcedRelease, Handle, Reading, RenewedOwned, Store, StoreError, Verbs, Wake,
    conformance, contract, file, memory, verbs,
};
