//! `mcp`: holds locks for an agent, which asks for them as tools of the Model Context Protocol.
//!
//! **The holds belong to the program that starts this**, the agent's host. They are detached holds (`acquire`) with
//! that program for an owner, so all of their state is in the folder. The end of this process frees none of them; the
//! next server of the same program finds them there. They end when the agent releases them, or when its program
//! ends.
//!
//! **A hold of which no agent was told is given back**: that of a cancelled call, and that of an answer which could not
//! be written (`grants`). What was told is never given back by this process.
//!
//! A single thread turns the runtime of the protocol, and does nothing that may block. Each call of a tool has a
//! thread of its own (`server`). What the tools do stands in plain functions (`tools`) that know nothing of the
//! protocol.
//!
//! What an agent reads of the tools stands in `catalog`; what a call means, in `request/mcp`.

mod catalog;
mod client;
mod grants;
mod line;
mod message;
mod renewal;
mod server;
mod tools;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::say;
use crate::request::McpArgs;
use crate::request::{Format, Place, Surroundings};
use crate::signals::Signals;
use client::{Client, Watch};
use grants::Grants;
use line::Line;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use server::Server;
use std::sync::Arc;
use std::time::Duration;
use tools::Tools;

/// How long the end of this process may take.
const END_MAX: Duration = Duration::from_secs(10);

/// Carries it out.
pub(super) fn mcp(args: &McpArgs) -> Exit {
    match serve(args) {
        Ok(()) => Exit::Success,
        Err(failure) => {
            say(&failure.message);
            failure.exit
        }
    }
}

fn serve(args: &McpArgs) -> Result<(), Failure> {
    refuse_what_never_works(args)?;
    let client = Client::find()?;
    let signals = super::session::collect_signals()?;
    let tools = Arc::new(Tools::new(args.common.clone(), client.chosen.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Two threads at most: a reader and a writer, where the two are no pipes.
        .max_blocking_threads(4)
        .build()
        .map_err(|error| {
            let message = format!("the runtime of the protocol cannot start: {error}");
            Failure::new(Exit::General, "NO_RUNTIME", message)
        })?;
    let grants = Grants::default();
    let ended = runtime.block_on(converse(&tools, &grants, client, signals));
    // What blocks on stdin or stdout is left to the end of the process.
    runtime.shutdown_background();
    grants.finish(END_MAX);
    ended
}

/// Speaks with the client until its end.
async fn converse(
    tools: &Arc<Tools>,
    grants: &Grants,
    client: Client,
    signals: Signals,
) -> Result<(), Failure> {
    let watch = Watch::start(client, signals)?;
    let server = Server::new(Arc::clone(tools), grants.clone(), &watch);
    let line = Line::new(grants.clone(), watch.ending());
    let renewal = tokio::spawn(renewal::renew(Arc::clone(tools)));
    let served = server.serve_with_ct(line, watch.stopping()).await;
    let ended = match served {
        Ok(running) => {
            // How it ended changes nothing: the client has gone, or has asked for it.
            let _ = running.waiting().await;
            Ok(())
        }
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => Err(Failure::bad_arguments(
            "mcp: the first message is no request of the Model Context Protocol",
        )),
        Err(error) => Err(Failure::new(
            Exit::General,
            "NO_SESSION",
            format!("mcp: the conversation could not begin: {error}"),
        )),
    };
    renewal.abort();
    ended
}

/// Refuses what no later call could make good. A configuration that is wrong now is told to each call instead: a
/// server that is not there tells its agent nothing.
fn refuse_what_never_works(args: &McpArgs) -> Result<(), Failure> {
    let around = Surroundings::of(&args.common);
    let format = Format::of(&args.common, &around);
    if matches!(format, Ok(Some(Format::Sprint))) {
        return Err(Failure::bad_arguments(
            "mcp: a sprint has its own calls (`tenure acquire --profile sprint`)",
        ));
    }
    let place = format.and_then(|_| Place::of(&args.common, &around));
    match place {
        Err(failure) if failure.code == "BAD_ARGUMENTS" => Err(failure),
        Ok(_) | Err(_) => {
            if let Some(warning) = around.warning() {
                say(warning);
            }
            Ok(())
        }
    }
}
