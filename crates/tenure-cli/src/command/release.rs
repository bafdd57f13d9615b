//! `release`: gives back a hold that `acquire` took; only for its owner.

use super::result::RunResult;
use super::{Session, finish, shown};
use crate::args::ReleaseArgs;
use crate::exit::Exit;
use crate::failure::{Failure, object};
use crate::render::Surface;
use crate::render::lock::age;
use crate::request;
use crate::trail::{self, occasion};
use serde_json::{Value, json};
use tenure::clock::Clock;
use tenure::core::{AbsentRelease, ForceOnHeld, Kind, LockName, Ownership, Released};
use tenure::store::Store;

pub(crate) fn release(args: &ReleaseArgs) -> Exit {
    let surface = request::surface(&args.common, "release", None);
    finish(surface, |surface| {
        let name = request::name(args.name.as_deref())?;
        let id = shown(args.request_id.as_deref())?;
        surface.set_request_id(id.as_deref().unwrap_or_default());
        let mut session = Session::open(&args.common)?;
        session.trail.everything();
        let name = session.name(Some(name.as_str()))?;
        // A supervised run is released by its own supervisor, after its work has ended. Taking
        // the lock away from under it would let the next one in while it still works.
        let released = session.store.release_owned(
            &name,
            &|claim| {
                if claim.kind.is_detached() && session.is_mine(claim, id.as_deref(), &[]) {
                    Ownership::Shown
                } else {
                    Ownership::Missing
                }
            },
            &session.clock.now(),
        );
        let released = match released {
            Ok(released) => released,
            Err(error) => {
                let acting = trail::acting(id.as_deref())?;
                session.trail.release_failed(
                    surface,
                    occasion(&name, &acting, &session.clock.now()),
                    &session.store.place(&name),
                    &error,
                );
                return Err(session.store_failed(&name, error));
            }
        };
        match released {
            Released::Done {
                claim,
                held_ms,
                by_other,
            } => {
                if by_other {
                    surface.warn(format!(
                        "{name} was held by request {}, not by the caller; released all the same",
                        claim.holder.request_id
                    ));
                }
                let acting = trail::acting(id.as_deref())?;
                let id = if by_other {
                    &acting
                } else {
                    &claim.holder.request_id
                };
                session.trail.released(
                    surface,
                    occasion(&name, id, &session.clock.now()),
                    held_ms,
                    RunResult::of_release(args).ending(),
                    by_other,
                );
                session.face.on_released(surface, &name);
                let request_id = claim.holder.request_id.as_str();
                surface.set_request_id(request_id);
                let text = format!("released {name} after {}", age(held_ms));
                let mut data = json!({
                    "name": name.as_str(),
                    "status": "released",
                    "request_id": request_id,
                    "token": claim.token.filter(|token| *token > 0),
                    "held_ms": held_ms,
                });
                if args.result.is_some() || session.face.tells_results() {
                    data.as_object_mut()
                        .into_iter()
                        .for_each(|data| RunResult::of_release(args).add_to(data));
                }
                Ok((session.face.released_text(&name, text, &data), data))
            }
            Released::Absent => Ok(absent(surface, &session, &name)),
            Released::Unreadable { record } => {
                let acting = trail::acting(id.as_deref())?;
                let now = session.clock.now();
                session
                    .trail
                    .removed_unreadable(surface, occasion(&name, &acting, &now), &record);
                surface.warn(format!(
                    "{name}: what stood there could not be read; it was removed"
                ));
                Ok((
                    format!("released {name}"),
                    json!({ "name": name.as_str(), "status": "released", "held_ms": null }),
                ))
            }
            Released::Ignored { claim } => {
                let text = session.face.ignored_text(&name, &claim);
                surface.inform(&text);
                Ok((
                    String::new(),
                    json!({ "name": name.as_str(), "status": "ignored", "held_ms": null }),
                ))
            }
            Released::NotOwner { claim } => {
                let view = session.view(&name, id.as_deref())?;
                // What a dead holder left behind is held by nobody.
                if view.available {
                    return Ok(absent(surface, &session, &name));
                }
                let next = if session.store.policy().force_on_held == ForceOnHeld::Never {
                    "show its owner token with --request-id".to_owned()
                } else if claim.kind == Kind::Kernel {
                    format!(
                        "it is released when its command ends; `tenure run --force {name}` asks it \
                         to stop"
                    )
                } else if session.store.policy().force_on_held == ForceOnHeld::Never {
                    "show its owner token with --request-id".to_owned()
                } else {
                    format!(
                        "show its owner token with --request-id, or take it with \
                         `tenure acquire --force --yes {name}`"
                    )
                };
                let message = format!("{}; {next}", view.text());
                let context = object(view.json());
                Err(Failure::new(
                    Exit::Conflict,
                    "NOT_OWNER",
                    format!("{name} is held by somebody else and was not released"),
                )
                .with_text(message)
                .with_context(context))
            }
        }
    })
}

fn absent(surface: &mut Surface, session: &Session, name: &LockName) -> (String, Value) {
    if session.store.policy().absent_release == AbsentRelease::SuccessWithWarning {
        surface.warn(format!("{name} is not held; nothing to release"));
    }
    (
        session.face.absent_text(name),
        json!({ "name": name.as_str(), "status": "released", "held_ms": null }),
    )
}
