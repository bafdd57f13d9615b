//! `release`: gives back a hold that `acquire` took; only for its owner.

use super::{Session, finish, shown};
use crate::args::ReleaseArgs;
use crate::exit::Exit;
use crate::failure::{Failure, object};
use crate::render::Surface;
use crate::render::lock::age;
use crate::request;
use serde_json::{Value, json};
use tenure::clock::Clock;
use tenure::core::{Kind, LockName, Ownership, Released};
use tenure::store::Store;

pub(super) fn release(args: &ReleaseArgs) -> Exit {
    let surface = request::surface(&args.common, "release", None);
    finish(surface, |surface| {
        let name = request::name(&args.name)?;
        let id = shown(args.request_id.as_deref())?;
        surface.set_request_id(id.as_deref().unwrap_or_default());
        let session = Session::open(&args.common)?;
        // A supervised run is released by its own supervisor, after its work has ended. Taking
        // the lock away from under it would let the next one in while it still works.
        let released = session.store.release_owned(
            &name,
            &|claim| {
                if claim.kind == Kind::Detached && session.is_mine(claim, id.as_deref(), &[]) {
                    Ownership::Shown
                } else {
                    Ownership::Missing
                }
            },
            &session.clock.now(),
        )?;
        match released {
            Released::Done { claim, held_ms, .. } => {
                let request_id = claim.holder.request_id.as_str();
                surface.set_request_id(request_id);
                Ok((
                    format!("released {name} after {}", age(held_ms)),
                    json!({
                        "name": name.as_str(),
                        "status": "released",
                        "request_id": request_id,
                        "token": claim.token,
                        "held_ms": held_ms,
                    }),
                ))
            }
            Released::Absent => Ok(absent(surface, &name)),
            Released::Unreadable => {
                surface.warn(format!("{name}: what stood there could not be read; it was removed"));
                Ok((
                    format!("released {name}"),
                    json!({ "name": name.as_str(), "status": "released", "held_ms": null }),
                ))
            }
            Released::NotOwner { claim } | Released::Ignored { claim } => {
                let view = session.view(&name, id.as_deref())?;
                // What a dead holder left behind is held by nobody.
                if view.available {
                    return Ok(absent(surface, &name));
                }
                let next = if claim.kind == Kind::Kernel {
                    format!(
                        "it is released when its command ends; `tenure run --force {name}` asks it \
                         to stop"
                    )
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

fn absent(surface: &mut Surface, name: &LockName) -> (String, Value) {
    surface.warn(format!("{name} is not held; nothing to release"));
    (
        String::new(),
        json!({ "name": name.as_str(), "status": "released", "held_ms": null }),
    )
}
