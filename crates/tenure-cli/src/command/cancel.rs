//! `cancel`: asks whoever holds a lock to stop.

use super::run::group;
use super::{Session, finish};
use crate::args::CancelArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::request;
use serde_json::json;
use tenure::clock::Clock;
use tenure::core::{Claim, Kind};
use tenure::profile::known_as;
use tenure::store::Store;

#[cold]
#[inline(never)]
pub(crate) fn cancel(args: &CancelArgs) -> Exit {
    let surface = request::surface(&args.common, "cancel", None);
    finish(surface, |surface| {
        let common = match &args.group {
            Some(_) => group::common(&args.common),
            None => args.common.clone(),
        };
        let group = args.group.as_deref().map(group::group).transpose()?;
        let session = Session::open(&common)?;
        let name = match group {
            Some(group) => group,
            None => session.name(args.name.as_deref())?,
        };
        let by = session.face.request_id(args.request_id.as_deref())?;
        surface.set_request_id(by.as_str());
        let now = session.clock.now();
        let asked = session
            .store
            .cancel(&name, by.as_str(), &now)
            .map_err(|error| session.store_failed(&name, error))?;
        if asked.is_empty() {
            return Err(Failure::new(
                Exit::NotFound,
                "NO_HOLDER",
                format!("nobody holds {name}, so there is nobody to ask"),
            ));
        }
        let lines: Vec<String> = asked.iter().map(line).collect();
        let text = format!("asked the holder of {name} to stop: {}", lines.join("; "));
        let holders: Vec<_> = asked
            .iter()
            .map(|claim| {
                json!({
                    "request_id": known_as(&claim.holder),
                    "pid": claim.holder.process.map(|process| process.pid),
                    "token": claim.token,
                    "supervised": claim.kind == Kind::Kernel,
                    "asked_by": claim.cancel.as_ref().map(|cancel| cancel.by.clone()),
                })
            })
            .collect();
        Ok((text, json!({ "name": name.as_str(), "asked": holders })))
    })
}

fn line(claim: &Claim) -> String {
    let who = match claim.holder.process {
        Some(process) => format!("PID {}", process.pid),
        None => format!("request {}", known_as(&claim.holder)),
    };
    match claim.kind {
        Kind::Kernel => format!("{who} ends its command"),
        Kind::Detached | Kind::Foreign | Kind::Sealed => {
            format!("{who} has no supervisor; `check` and `heartbeat` tell it")
        }
    }
}
