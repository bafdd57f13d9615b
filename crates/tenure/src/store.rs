//! Where locks are kept: what a store has to do ([`Store`]), what callers do with one ([`Verbs`]), and
//! the stores that there are.
//!
//! A store of your own implements [`Store`] and runs the [`conformance`] suite; [`codec`] makes bytes of a list.
//! `examples/store` is one in under 300 lines: a folder of files. Then
//! [`LockManager::with_store`](crate::guard::LockManager::with_store) takes it.

#[cfg(feature = "full")]
pub use tenure_conformance as conformance;
#[cfg(all(feature = "etcd", unix))]
pub use tenure_store::etcd;
pub use tenure_store::{
    Cleaned, Content, ForcedRelease, Handle, Reading, RenewedOwned, Store, StoreError, Verbs, Wake,
    codec, contract, file, memory, verbs,
};
