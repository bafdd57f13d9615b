//! Why a call failed, for programs: stable codes, exit codes, and the document's `error`.
//!
//! The shape is that of `schemas/envelope.schema.json`; `docs/answers.md` has the table of codes.

#[cfg(feature = "framework")]
pub(crate) use tenure_engine::envelope::LockView;
#[cfg(feature = "framework")]
pub(crate) use tenure_engine::envelope::{Envelope, Meta};
pub use tenure_engine::envelope::{Exit, Failure, Retry, StopSignal};
