//! The table of every profile, verb and situation: what is in it, how each is made, and readers who
//! know no more than a contract.

pub(crate) mod naive;
pub(crate) mod stage;
pub(crate) mod table;

/// Why a code that a schema lists is not made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmade {
    /// Another file beside the test makes it, by one verb at least, and judges what comes of it.
    Elsewhere(&'static str),
    /// Nothing that a test does brings it about.
    Never(&'static str),
}

/// Where else a code is made, if it is not made here.
pub(crate) fn unmade(verb: &str, code: &str) -> Option<Unmade> {
    use Unmade::{Elsewhere, Never};
    let kernel = Never("the kernel has to refuse what it always grants");
    Some(match (verb, code) {
        ("push", "MERGE_BY_HAND" | "REBASE_CONFLICT" | "REBASE_IN_PROGRESS") => {
            Elsewhere("cli/push.rs")
        }
        ("push", "PUSH_EXHAUSTED" | "PUSH_FAILED" | "NO_UPSTREAM" | "NO_DEFAULT_BRANCH")
        | ("fence", "FENCED" | "GUARD_UNAVAILABLE" | "GUARD_UNREADABLE")
        | ("cancel", "NOT_ORPHANED")
        | ("acquire", "NOT_FOUND")
        | (_, "DEADLOCK") => Elsewhere("envelope.rs"),
        ("push", "GIT_NOT_RUN" | "NO_LOCK_NAME" | "REBASE_NOT_ABORTED" | "WORK_TREE_CHANGED") => {
            Never("git has to fail in between, or another program has to change the work tree")
        }
        (
            "push",
            "ALREADY_HELD"
            | "CANCELLED"
            | "COMMAND_NOT_FOUND"
            | "COMMAND_NOT_RUNNABLE"
            | "LOCK_HELD"
            | "LOCK_LOST"
            | "LOCK_UNREADABLE"
            | "STORE_UNAVAILABLE"
            | "SUPERSEDED"
            | "UNSAFE_PLACE",
        ) => Never("its own lock is a native one, and these are the answers of `run` about it"),
        ("agent", "BAD_ARGUMENTS" | "IO_ERROR" | "NOT_ARRIVED" | "PARTIAL" | "SOMETHING_WRONG") => {
            Elsewhere("cli/agent_install.rs")
        }
        ("agent", "BUSY") => Never("another installation has to stand still for 20 s"),
        ("agent", "NO_PROGRAM") => Never("the system always says where the program of a test is"),
        ("cancel", "ORPHAN_REMAINS" | "ORPHAN_UNPROVEN") => Elsewhere("cli/orphans.rs"),
        ("cancel", "CONFIRMATION_REQUIRED") => Elsewhere("terminal.rs"),
        ("acquire", "SUPERSEDED") => {
            Never("it has no --queue, so it is asked to stop only while it is stopped itself")
        }
        ("run", "NO_OWNER") => Never("it owns its lock itself"),
        ("list", "UNSAFE_PLACE") => Never("one lock that cannot be looked at does not end it"),
        ("help" | "version", "BAD_ARGUMENTS") => Elsewhere("cli/help.rs"),
        ("help" | "version", "BAD_CONFIGURATION") => Elsewhere("cli/profiles.rs"),
        (_, "QUEUE_FULL") => Elsewhere("cli/groups.rs"),
        (_, "STORE_UNREACHABLE" | "PERMISSION_DENIED") => Elsewhere("etcd.rs"),
        (_, "FILE_SYSTEM_UNSUITABLE") => Never("it needs a network file system"),
        (_, "AUDIT_UNAVAILABLE") | ("doctor", "STORE_UNAVAILABLE") => {
            Never("it needs a broken disk")
        }
        (_, "STORE_STUCK" | "ACQUIRE_FAILED") => Never("it takes a fault of tenure's own"),
        (_, "NO_CURRENT_FOLDER") => Never("every call here names its folder"),
        (_, "NO_RANDOMNESS" | "NO_SIGNALS" | "NO_SEAT" | "CANNOT_SUPERVISE") => kernel,
        _ => return None,
    })
}
