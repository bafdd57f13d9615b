//! Who is calling: the process that makes a call, the job that it works for, and whose life a hold follows that outlives
//! the call.
//!
//! `owner` chooses the process that a hold follows, `job` knows the programs that live as long as one job of work. What
//! each system shows of its processes is in [`tenure_os::process`]; which run a call is a part of, in [`crate::inherited`].

mod job;
mod owner;

pub use job::{is_caller, is_job, job_of_caller, process_of_job};
pub use owner::{Chosen, OwnerError, caller, choose_owner};
