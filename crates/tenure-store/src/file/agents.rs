//! The signs of life of agents: one small file for each agent, in the folder of the locks.
//!
//! A hook runs before and after each tool that an agent uses, so a sign has to be cheap: it writes a line into one file,
//! whichever locks the agent holds. Each look at a lock reads the files of the agents that hold it, and takes a sign for a
//! renewal ([`refresh`]). So a waiter that looks when an agent has been silent for too long finds that out by itself;
//! nothing has to tell it.
//!
//! **An instant and not the file's time.** The line has both clocks and the boot, as a claim has. The file's time is by
//! the wall clock alone: if that was set an hour ahead, all agents would have been silent for an hour. Where the line
//! cannot be understood, the file's time is all there is.
//!
//! A call that is under way is a file of its own. Hooks of one agent run side by side, and none of them may undo what
//! another one has just noted. These files are looked for only where an agent is silent. A call is noted also where its
//! agent has nothing yet: it may take its first lock in that call or beside it, and the call would be forgotten then. A call whose end is told by no
//! hook (a person refused or interrupted it) ends with the agent's turn.
//!
//! # Crash safety
//! The file is made before the claim that it belongs to is written: no claim is without one from its first instant. It is
//! written once more behind the grant: meanwhile the end of the agent may have removed it (`Agent::free`). A
//! line is written at once, has always the same length, and ends in a sum over it: a reader that meets a write reads
//! again. A sign that cannot be read is no silence (unknown is never dead): then only the age ends a hold. What a dead
//! host leaves here says nothing after a day, as no hold of an agent is older (`AGENT_AGE_MAX_MS`), and `clean` removes
//! it.
//!
//! `standing` (in the core) says what silence means. Published records are judged by their contracts alone, so there are
//! no such files beside them.

use super::folder::{Access, Folder, fault};
use super::{FileStore, fd};
use crate::StoreError;
use crate::contract::{AgentSign, Agents};
use crate::printed;
use crate::profile::SUFFIX;
use std::hash::Hasher;
use tenure_core::{AGENT_AGE_MAX_MS, AgentKey, Claim, Entry, Kind, Now, Stamp};
use tenure_os::os::{self, Errno};
use twox_hash::XxHash64;

/// What the line begins with.
const MAGIC: &str = "tenure-agent 1 ";

/// What the names of these files begin with. No lock has such a name.
const BEGIN: &str = ".agent-";

/// How often a line is read that does not fit its sum.
const LOOKS: u32 = 5;

/// A line is shorter.
const BYTES_MAX: usize = 256;

/// An instant, and the boot in which it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sign {
    at: Stamp,
    boot: String,
}

impl Sign {
    fn line(now: &Now) -> String {
        let Stamp { wall_ms, boot_ms } = now.stamp();
        let boot = if now.boot_id.is_empty() {
            "-"
        } else {
            &now.boot_id
        };
        let text = format!("{MAGIC}{boot_ms:020} {wall_ms:020} {boot} ");
        format!("{text}{:016x}\n", sum(&text))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let line = text.split_once('\n')?.0;
        let (said, sum_of) = line.split_at_checked(line.len().checked_sub(16)?)?;
        if u64::from_str_radix(sum_of, 16).ok()? != sum(said) {
            return None;
        }
        let mut words = said.strip_prefix(MAGIC)?.split(' ');
        Some(Self {
            at: Stamp {
                boot_ms: words.next()?.parse().ok()?,
                wall_ms: words.next()?.parse().ok()?,
            },
            boot: words.next()?.to_owned(),
        })
    }

    /// The instant, for a record of another boot or of this one.
    fn stamp_for(&self, recorded_boot: Option<&str>) -> Stamp {
        if recorded_boot == Some(self.boot.as_str()) {
            return self.at;
        }
        Stamp {
            boot_ms: Stamp::OTHER_BOOT,
            ..self.at
        }
    }

    fn age_ms(&self, now: &Now) -> u64 {
        self.at.age_ms(Some(self.boot.as_str()), now)
    }
}

fn sum(text: &str) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// What the files of all agents of a session begin with. Where every user may make files, each user has their own, as
/// no user opens another one's there.
fn begin_of_session(folder: &Folder, key: &AgentKey) -> String {
    // A key may be longer than a file's name, and some file systems take `A` for `a`.
    let session = printed::hash(&format!("{}/{}", key.host(), key.session()));
    if folder.shared {
        format!("{BEGIN}{}-{session}-", os::user_number())
    } else {
        format!("{BEGIN}{session}-")
    }
}

/// What the files of this very agent begin with.
fn begin_of(folder: &Folder, key: &AgentKey) -> String {
    let agent = printed::hash(key.agent().unwrap_or_default());
    format!("{}{agent}", begin_of_session(folder, key))
}

fn file_of(folder: &Folder, key: &AgentKey) -> String {
    format!("{}{SUFFIX}", begin_of(folder, key))
}

fn begin_of_calls(folder: &Folder, key: &AgentKey) -> String {
    format!("{}-", begin_of(folder, key))
}

/// Writes a sign into a file. False if there is no such file and none is to be made.
fn write(folder: &Folder, file: &str, access: Access, now: &Now) -> Result<bool, StoreError> {
    let Some(opened) = folder.open_file(file, access)? else {
        return Ok(false);
    };
    let failed = |errno| {
        fault(
            &folder.path_of(file),
            "noting that an agent is at work",
            errno,
        )
    };
    let line = Sign::line(now);
    let written = os::uninterrupted(|| os::write_at(fd(&opened), line.as_bytes(), 0));
    if written.map_err(failed)? < line.len() {
        return Err(failed(Errno::NOSPC));
    }
    Ok(true)
}

/// Reads a sign. `None` if there is none.
fn read(folder: &Folder, file: &str) -> Result<Option<Sign>, StoreError> {
    let Some(opened) = folder.open_file(file, Access::Read)? else {
        return Ok(None);
    };
    let failed = |errno| {
        fault(
            &folder.path_of(file),
            "reading when an agent was at work",
            errno,
        )
    };
    let mut bytes = [0; BYTES_MAX];
    for _ in 0..LOOKS {
        let length = os::uninterrupted(|| os::read_at(fd(&opened), &mut bytes, 0));
        let read = bytes.get(..length.map_err(failed)?).unwrap_or_default();
        if let Some(sign) = Sign::read(read) {
            return Ok(Some(sign));
        }
    }
    let (_, wall_ms) = os::facts_and_time(fd(&opened)).map_err(failed)?;
    Ok(Some(Sign {
        at: Stamp {
            wall_ms,
            boot_ms: Stamp::OTHER_BOOT,
        },
        boot: String::new(),
    }))
}

/// Notes that an agent is about to make a claim, or has just been granted one.
pub(super) fn begin(folder: &Folder, key: &AgentKey, now: &Now) -> Result<(), StoreError> {
    write(folder, &file_of(folder, key), Access::Create, now).map(|_| ())
}

/// Takes the last sign of its agent for a renewal of each claim that lives by such signs.
pub(super) fn refresh(folder: &Folder, entry: &mut Entry, now: &Now) {
    for claim in entry
        .claims
        .iter_mut()
        .filter(|claim| lives_by_signs(claim))
    {
        let Some(key) = claim.holder.agent() else {
            continue;
        };
        let boot = claim.boot();
        let mut lease = claim.lease;
        match read(folder, &file_of(folder, &key)) {
            Ok(None) => continue,
            Ok(Some(sign)) => {
                let at = sign.stamp_for(boot.id);
                if at.age_ms(boot, now) < lease.silent_ms(boot, now) {
                    lease.renewed = at;
                }
            }
            // Unknown is never dead.
            Err(_) => lease.renewed = now.stamp_for(boot),
        }
        if lease.is_silent(boot, now) && is_calling(folder, &key, now) {
            lease.renewed = now.stamp_for(boot);
        }
        claim.lease = lease;
    }
}

/// Whether the signs of an agent are signs of this claim.
pub(super) fn lives_by_signs(claim: &Claim) -> bool {
    claim.kind == Kind::Detached && claim.token.is_some() && !claim.holder.facts.is_empty()
}

/// Whether a call of the agent is under way.
fn is_calling(folder: &Folder, key: &AgentKey, now: &Now) -> bool {
    let begin = begin_of_calls(folder, key);
    let files = files_from(folder, &begin);
    // A folder that cannot be listed does not say that no call is under way.
    files.map_or(true, |files| {
        let mut signs = files.iter().map(|file| read(folder, file));
        signs.any(|sign| match sign {
            Ok(Some(sign)) => sign.age_ms(now) <= AGENT_AGE_MAX_MS,
            Ok(None) => false,
            Err(_) => true,
        })
    })
}

/// The files of the folder whose names begin so.
fn files_from(folder: &Folder, begin: &str) -> Result<Vec<String>, StoreError> {
    let mut files = Vec::new();
    let seen = os::each_file(folder.fd(), &mut |file| {
        if file.starts_with(begin) && file.ends_with(SUFFIX) {
            files.push(file.to_owned());
        }
    });
    seen.map_err(|errno| fault(folder.path(), "listing the lock folder", errno))?;
    Ok(files)
}

fn remove(folder: &Folder, file: &str) -> Result<(), StoreError> {
    match os::remove(folder.fd(), file) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(fault(
            &folder.path_of(file),
            "forgetting when an agent was at work",
            errno,
        )),
    }
}

impl Agents for FileStore {
    fn note(&self, agent: &AgentKey, sign: AgentSign<'_>, now: &Now) -> Result<(), StoreError> {
        // The end of a call and a mere sign say nothing about a folder that nobody has made yet.
        let Some(folder) = self.folder(matches!(sign, AgentSign::Began(_)))? else {
            return Ok(());
        };
        let access = match sign {
            AgentSign::Holds => Access::Create,
            AgentSign::Seen | AgentSign::Began(_) | AgentSign::Ended(_) | AgentSign::Rests => {
                Access::Write
            }
        };
        // A sign that cannot be written does not keep a call from its beginning or its end.
        let seen = write(folder, &file_of(folder, agent), access, now);
        let call = |call| {
            format!(
                "{}{}{SUFFIX}",
                begin_of_calls(folder, agent),
                printed::hash(call)
            )
        };
        let noted = match sign {
            AgentSign::Seen | AgentSign::Holds => Ok(()),
            AgentSign::Began(name) => write(folder, &call(name), Access::Create, now).map(|_| ()),
            AgentSign::Ended(name) => remove(folder, &call(name)),
            // The names of these files have the agent's part, so none of a sibling is among them.
            AgentSign::Rests => files_from(folder, &begin_of_calls(folder, agent))
                .and_then(|files| files.iter().try_for_each(|file| remove(folder, file))),
        };
        seen.and(noted)
    }

    fn may_hold(&self, key: &AgentKey) -> Result<bool, StoreError> {
        let Some(folder) = self.folder(false)? else {
            return Ok(false);
        };
        if key.agent().is_none() {
            return Ok(!files_from(folder, &begin_of_session(folder, key))?.is_empty());
        }
        let file = file_of(folder, key);
        match os::facts_at(folder.fd(), &file) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(fault(&folder.path_of(&file), "looking for an agent", errno)),
        }
    }

    fn forget(&self, key: &AgentKey) -> Result<bool, StoreError> {
        let Some(folder) = self.folder(false)? else {
            return Ok(false);
        };
        let begin = match key.agent() {
            Some(_) => begin_of(folder, key),
            None => begin_of_session(folder, key),
        };
        let files = files_from(folder, &begin)?;
        files.iter().try_for_each(|file| remove(folder, file))?;
        Ok(!files.is_empty())
    }

    fn forget_old(&self, now: &Now, dry_run: bool) -> Result<usize, StoreError> {
        let Some(folder) = self.folder(false)? else {
            return Ok(0);
        };
        let mut old = 0;
        for file in files_from(folder, BEGIN)? {
            // Another user's file, or what is no file of ours, stays.
            let Ok(Some(sign)) = read(folder, &file) else {
                continue;
            };
            if sign.age_ms(now) > AGENT_AGE_MAX_MS {
                old += 1;
                if !dry_run {
                    remove(folder, &file)?;
                }
            }
        }
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(wall_ms: u64, boot_ms: u64) -> Now {
        Now {
            wall_us: wall_ms * 1_000,
            boot_ms,
            boot_id: "boot-a".into(),
        }
    }

    #[test]
    fn a_sign_comes_back_as_it_was_written_and_half_of_one_does_not() {
        let at = now(1_795_000_000_000, 77_000);
        let line = Sign::line(&at);
        assert!(line.len() < BYTES_MAX);
        let sign = Sign::read(line.as_bytes()).expect("a sign");
        assert_eq!((sign.at, sign.boot.as_str()), (at.stamp(), "boot-a"));
        for end in 0..line.len() {
            assert_eq!(Sign::read(&line.as_bytes()[..end]), None, "{end}");
        }
        let other = Sign::line(&now(1_795_000_999_999, 99_999));
        assert_eq!(
            other.len(),
            line.len(),
            "no line leaves an end of another one"
        );
        for cut in MAGIC.len()..line.len() - 1 {
            let (new, old) = (&other.as_bytes()[..cut], &line.as_bytes()[cut..]);
            let mixed = [new, old].concat();
            if mixed != line.as_bytes() && mixed != other.as_bytes() {
                assert_eq!(Sign::read(&mixed), None, "{cut}");
            }
        }
    }

    #[test]
    fn a_wall_clock_that_was_set_ahead_makes_no_agent_silent() {
        let sign = Sign::read(Sign::line(&now(1_000_000, 50_000)).as_bytes()).expect("a sign");
        let an_hour_ahead = now(1_000_000 + 3_600_000 + 2_000, 52_000);
        assert_eq!(
            sign.stamp_for(Some("boot-a"))
                .age_ms(Some("boot-a"), &an_hour_ahead),
            2_000
        );
    }
}
