//! What the slots of a lock stand for: callers that would share one have to know the same pool.

use super::session::Session;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::clean;
use crate::request::Pool;
use tenure_core::{Claim, Holder, LockName, Mode};
use tenure_os::clock::Clock;
use tenure_store::Reading;
use tenure_store::profile::known_as;

impl Session {
    /// Has a claim say what the slots stand for, and refuses one of another pool.
    pub(crate) fn agree_on_members(
        &self,
        name: &LockName,
        mode: Mode,
        pool: &Pool,
        holder: &mut Holder,
    ) -> Result<(), Failure> {
        let own = pool.members();
        if let Some(members) = own {
            holder.set_members(members);
        }
        if mode == Mode::Exclusive {
            return Ok(());
        }
        let reading = self.reading(name)?;
        self.another_pool((name, &reading), own.unwrap_or_default())
            .map_or(Ok(()), Err)
    }

    /// Refuses a question about a mode whose claim would be of another pool, as its caller finds the file now.
    pub(crate) fn refuse_another_pool(
        &self,
        read: (&LockName, &Reading),
        mode: Mode,
    ) -> Result<(), Failure> {
        if mode == Mode::Exclusive {
            return Ok(());
        }
        let own = self.place.members_now(read.0).unwrap_or_default();
        self.another_pool(read, &own).map_or(Ok(()), Err)
    }

    /// The refusal of a claim that would hold beside slots, and whose caller does not know what these stand for where
    /// another caller does, or knows none of the members that another caller knows: these are two pools. A list that was
    /// edited, or has another order, is the same pool, for each hold records its own member.
    pub(super) fn another_pool(
        &self,
        (name, reading): (&LockName, &Reading),
        own: &[String],
    ) -> Option<Failure> {
        let (entry, now) = (reading.entry()?, self.clock.now());
        let differs = |claim: &&Claim| {
            let mut theirs = claim.holder.members();
            let is_known = |member: &str| own.iter().any(|own| own == member);
            let differs = theirs.next().is_some_and(|first| !is_known(first));
            differs && !theirs.any(is_known) && self.is_held(reading, claim, &now)
        };
        let other = entry.granted().find(differs)?;
        let whose = other.holder.process.map_or_else(
            || format!("request {}", clean(known_as(&other.holder))),
            |process| format!("PID {}", process.pid),
        );
        let theirs: Vec<&str> = other.holder.members().collect();
        let theirs = theirs.join(", ");
        let members = clean(&theirs);
        let knows = match own {
            [] => "names none".to_owned(),
            own => format!("names others: {}", clean(&own.join(", "))),
        };
        Some(Failure::new(
            Exit::BadArguments,
            "BAD_CONFIGURATION",
            format!(
                "a holder of {name} ({whose}) has a slot that stands for one of {members}; the configuration of this call \
                 {knows}. Name the file with --config"
            ),
        ))
    }
}
