//! Whether rewrites arrive. Some builds of a host drop them, silently.
//!
//! **A dropped rewrite is concluded only where nothing else explains what was seen.** A call proves that its rewrite was
//! dropped if all of these hold:
//! - Its text has a rewritten command at its front and nothing but `&&` behind that (`commands`). So where the call
//!   succeeds, this command has run: no refusal by tenure, no file that could not be opened and no program that was not
//!   found ends like that.
//! - The host says that the call succeeded. It was not interrupted, and does not go on in the background.
//! - The host says that it ran the text as it was before, to the letter. Another text is a person's, or another hook's.
//! - No `tenure run` in the name of the agent that was asked for has left a mark behind the answer. The order of the
//!   lines counts, and no clock.
//! - No caller has made a claim on the lock since the answer: a command in a sandbox may be able to lock, and not to
//!   leave a mark in the user's state folder.
//!
//! What is left is a command that sees other folders than the hook does. The message says so.
//!
//! What the session is told from then on, `hook` decides; the lines themselves are `memory`'s.

use super::answer::Answer;
use super::event::Call;
use super::memory::{Memory, Proof};
use super::{leases, now_ms};
use crate::host::Tool;
use tenure_core::{AgentKey, LockName};

/// Judges a call that has succeeded.
pub(super) fn judge(call: &Call, memory: &Memory) -> Answer {
    if call.tool != Tool::Shell {
        return Answer::default();
    }
    let Some(proof) = memory.answered(&call.id).and_then(|before| before.proves) else {
        return Answer::default();
    };
    let ran = call.input.get("command").and_then(|text| text.as_str());
    if ran != Some(proof.asked.as_str())
        || proof.is_marked
        || memory.is_unheeded()
        || may_be_locked(&proof)
    {
        return Answer::default();
    }
    memory.unheeded();
    Answer::message(
        "a command ran without its lock: its host did not take the prefix that was put in front of it, or runs commands \
         where tenure has other folders. From now on such commands are refused in this session, and the refusal has \
         the form that passes"
            .to_owned(),
    )
}

fn may_be_locked(proof: &Proof) -> bool {
    LockName::new(&proof.under)
        .is_ok_and(|lock| leases::may_have_moved(&proof.by, &lock, &proof.folder, proof.at_ms))
}

/// Notes that a command began under `tenure run` in an agent's name.
pub(in crate::command) fn ran(key: &AgentKey) {
    if let Some(memory) = Memory::of(key, now_ms()) {
        memory.ran(key);
    }
}
