//! Which locks a run takes, in which order, under which terms and within which wait.

use super::exec;
use super::group::{self, Wanted};
use super::taking::Target;
use crate::args::RunArgs;
use crate::command::{Session, already_held, ticket, why};
use crate::exit::Exit;
use crate::failure::{Failure, object};
use crate::request;
use serde_json::json;
use std::ffi::OsStr;
use std::time::Duration;
use tenure::engine::{Keep, Wait};
use tenure::profile::known_as;
use tenure::store::Store;
use tenure_core::{Claim, Holder, Kind, LockName, Mode, Patience, Request, RequestId, Terms};

/// What a run is going to take.
pub(super) struct Plan<'a> {
    /// In the order in which they are taken; without those that the run around this one has.
    pub(super) targets: Vec<Target<'a>>,
    pub(super) wait: Wait,
    pub(super) keep: Option<Keep>,
    pub(super) group: Option<LockName>,
    /// The lock that gives its name.
    pub(super) main: LockName,
    /// The main lock, where the run around this one holds it.
    pub(super) outer: Option<Outer<'a>>,
    /// All locks that the run around this one holds, and under which this one goes on.
    pub(super) around: Vec<Outer<'a>>,
    /// The id by which the run is known.
    pub(super) id: String,
}

/// A hold of the run around this one.
#[derive(Clone)]
pub(crate) struct Outer<'a> {
    pub(super) name: LockName,
    pub(super) token: u64,
    pub(super) ttl: Duration,
    /// Where it is.
    pub(super) session: &'a Session,
}

/// What a plan is made from.
pub(super) struct Planning<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) session: &'a Session,
    /// Where the group's lock is.
    pub(super) group_session: &'a Session,
    pub(super) request_id: RequestId,
}

impl<'a> Planning<'a> {
    /// Makes the plan. Nothing is touched but looked at.
    pub(super) fn plan(&self, wanted: Wanted, names: &[LockName]) -> Result<Plan<'a>, Failure> {
        let (args, session) = (self.args, self.session);
        let claiming = &args.claiming;
        let Wanted {
            group,
            terms,
            at_once,
        } = wanted;
        let names = names
            .iter()
            .map(|name| session.name(Some(name.as_str())))
            .collect::<Result<Vec<_>, _>>()?;
        let main = match (&args.name, names.first(), &group) {
            (Some(name), ..) => session.name(Some(name))?,
            (None, Some(first), _) => first.clone(),
            (None, None, Some(group)) => group.clone(),
            (None, None, None) => session.name(None)?,
        };
        let ticket = ticket::of(claiming.ticket.as_deref())?;
        let mode = group::mode(claiming.shared, claiming.slots, session.store.profile())?;
        if names.is_empty() && mode != Mode::Exclusive {
            return Err(Failure::bad_arguments(
                "--shared and --slots are about a lock, and a group runs one at a time; name a lock",
            ));
        }
        // In a group, its claim waits as the group wants, and whoever has its turn takes the rest.
        let of_locks = match &group {
            Some(_) => Terms {
                grace_ms: terms.grace_ms,
                ..Terms::default()
            },
            None => terms,
        };
        if let Some(group) = &group
            && names.contains(group)
            && self.group_session.place.folder == session.place.folder
            && session.store.profile().record().is_none()
        {
            return Err(Failure::bad_arguments(format!(
                "the group {group} is kept as a lock of this very name; leave NAME out, the group \
                 holds it"
            )));
        }
        let mut plan = Plan {
            targets: Vec::with_capacity(1 + names.len()),
            wait: if at_once {
                Wait::No
            } else {
                self.wait(&main, group.is_some())?
            },
            keep: ticket.keep,
            group,
            main,
            outer: None,
            around: Vec::new(),
            id: self.request_id.as_str().to_owned(),
        };
        if let Some(group) = plan.group.clone() {
            self.add(&mut plan, self.group_session, &group, terms)?;
        }
        for name in &names {
            self.add(&mut plan, session, name, Terms { mode, ..of_locks })?;
        }
        if ticket.keep.is_some() {
            ticket::refuse_unless_waiting(plan.wait)?;
        }
        if ticket.keep.is_some() && plan.targets.len() > 1 {
            return Err(Failure::bad_arguments(
                "--ticket keeps a place in one queue, and this run waits in several",
            ));
        }
        for target in &mut plan.targets {
            target.request.terms.kept = ticket.kept;
        }
        if let Some(target) = plan.targets.last() {
            known_as(&target.request.holder).clone_into(&mut plan.id);
        }
        Ok(plan)
    }

    fn wait(&self, main: &LockName, in_group: bool) -> Result<Wait, Failure> {
        let session = self.session;
        let defaults = session.place.defaults(main);
        let patience = &self.args.claiming.patience;
        if in_group {
            return request::wait_or(patience, &defaults, Wait::Forever);
        }
        request::wait(patience, &defaults, session.store.policy())
    }

    /// Adds one lock, unless the run around this one has it and shares it.
    fn add(
        &self,
        plan: &mut Plan<'a>,
        session: &'a Session,
        name: &LockName,
        terms: Terms,
    ) -> Result<(), Failure> {
        match session.outer_hold(name)? {
            // What was begun under a hold that is gone must not go on under another one.
            None if self.args.reentrant && !session.inherited(name).is_empty() => {
                return Err(outer_lost(name));
            }
            None => plan.targets.push(Target {
                session,
                name: name.clone(),
                request: self.request(session, name, terms)?,
            }),
            Some(claim) if !self.args.reentrant => return Err(already_held(name, &claim)),
            Some(claim) if !group::covers(claim.mode, terms.mode) => {
                return Err(held_otherwise(name, &claim));
            }
            Some(claim) => {
                let outer = Outer {
                    name: name.clone(),
                    token: claim.token.unwrap_or_default(),
                    ttl: Duration::from_millis(claim.lease.ttl_ms),
                    session,
                };
                if *name == plan.main {
                    plan.outer = Some(outer.clone());
                }
                plan.around.push(outer);
            }
        }
        Ok(())
    }

    /// The id of a claim. A group beside a lock of another profile has no record of that format, so
    /// it goes by the id that people know the run by.
    fn id_in(&self, session: &Session) -> Result<RequestId, Failure> {
        if std::ptr::eq(session, self.session) {
            return Ok(self.request_id.clone());
        }
        match self.session.shown(self.args.claiming.request_id.clone()) {
            Some(id) => request::request_id(&id),
            None => Ok(self.request_id.clone()),
        }
    }

    fn request(
        &self,
        session: &Session,
        name: &LockName,
        terms: Terms,
    ) -> Result<Request, Failure> {
        let (args, claiming) = (self.args, &self.args.claiming);
        let ttl_ms = session.ttl(claiming, &session.place.defaults(name))?;
        let mut request = Request {
            holder: Holder {
                facts: Vec::new(),
                request_id: self.id_in(session)?,
                actor: session.actor(claiming.actor.as_deref()),
                process: Some(session.identity.process),
                command: None,
                host: session.identity.host.clone(),
                why: why(claiming.why.as_deref(), || command_line(args)),
            },
            kind: Kind::Kernel,
            ttl_ms: ttl_ms.unwrap_or(session.store.policy().supervised_ttl_ms),
            force: session.force(claiming, name)?,
            patience: Patience::Default,
            terms,
        };
        session
            .face
            .complete(&args.common, claiming, &mut request.holder)?;
        if args.exec {
            exec::mark(&mut request.holder);
        }
        Ok(request)
    }
}

#[cold]
#[inline(never)]
fn held_otherwise(name: &LockName, claim: &Claim) -> Failure {
    let mut failure = already_held(name, claim);
    failure.message = format!(
        "{name} is held by this run itself in another mode, and --reentrant goes on only under the \
         same; waiting for it would never end"
    );
    failure
}

#[cold]
#[inline(never)]
pub(super) fn outer_lost(name: &LockName) -> Failure {
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!(
            "{name} was held by the run around this one and is not any more; --reentrant goes on \
             only under a live hold"
        ),
    )
    .with_context(object(json!({ "name": name.as_str(), "lost": true })))
}

/// The command line, for whoever asks what the lock is held for.
fn command_line(args: &RunArgs) -> String {
    let words: Vec<_> = args
        .command
        .iter()
        .map(|word| OsStr::to_string_lossy(word))
        .collect();
    words.join(" ")
}
