//! The program for which this server holds locks, and how its end is noticed.
//!
//! The client is the parent of this process. A one-shot shell between the two (`sh -c 'tenure mcp'`) ends together
//! with this process, so the holds belong to the program behind it, as with `acquire`.
//!
//! What tells of its end stands in `command/starter`.

use crate::command::starter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use tenure_engine::caller::{self, Chosen};
use tenure_os::process;
use tokio_util::sync::CancellationToken;

pub(super) struct Client {
    pub(super) chosen: Chosen,
    /// What becomes readable at its end, where the system tells of that.
    handle: Option<OwnedFd>,
    /// The parent of this process at the start.
    parent: Option<u32>,
}

impl Client {
    pub(super) fn find() -> Result<Self, Failure> {
        let parent = process::parent();
        // In a container the host may be the first process, which `choose_owner` passes over.
        let chosen = caller::choose_owner(None)
            .or_else(|error| parent.map_or(Err(error), |pid| caller::choose_owner(Some(pid))))
            .map_err(|error| starter::unknown("mcp", &error.to_string()))?;
        if chosen.process.started.is_none() {
            return Err(starter::unknown("mcp", "its start time cannot be seen"));
        }
        let handle = starter::handle(chosen.process.pid);
        // What was opened is its own only if it has not ended since.
        if process::start_time(chosen.process.pid) != chosen.process.started {
            return Err(starter::unknown("mcp", "it has ended"));
        }
        Ok(Self {
            chosen,
            handle,
            parent,
        })
    }
}

/// Tells of what ends this server from outside: a request to end (SIGTERM), or the end of the client. Ctrl-C and the
/// end of a terminal are for the client to decide; if it ends, so does this.
pub(super) struct Watch {
    stopping: CancellationToken,
    ending: CancellationToken,
}

impl Watch {
    pub(super) fn start(client: Client, signals: Signals) -> Result<Self, Failure> {
        let stopping = CancellationToken::new();
        let watch = Self {
            ending: stopping.child_token(),
            stopping: stopping.clone(),
        };
        let look = move || {
            watch_until_the_end(&client, signals);
            stopping.cancel();
        };
        let thread = std::thread::Builder::new().name("watch".to_owned());
        thread.spawn(look).map_err(|error| {
            let message = format!("no thread could be started: {error}");
            Failure::new(Exit::General, "NO_THREAD", message)
        })?;
        Ok(watch)
    }

    /// Ends the conversation.
    pub(super) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Ends the waits: at the end of the conversation, and at the end of stdin before it.
    pub(super) fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }
}

fn watch_until_the_end(client: &Client, signals: Signals) {
    // Without a handle the parent is looked at.
    let nap = Timespec {
        tv_sec: i64::from(client.handle.is_none()),
        tv_nsec: 0,
    };
    loop {
        let heard = signals.descriptor();
        let mut fds = vec![PollFd::new(&heard, PollFlags::IN)];
        let handle = client.handle.as_ref().map(AsFd::as_fd);
        fds.extend(
            handle
                .as_ref()
                .map(|handle| PollFd::new(handle, PollFlags::IN)),
        );
        // A failure is a signal, or a lack of memory for a moment.
        let _ = poll(&mut fds, handle.is_none().then_some(&nap));
        if fds.get(1).is_some_and(|end| !end.revents().is_empty()) {
            return;
        }
        if handle.is_none() && process::parent() != client.parent {
            return;
        }
        while let Some(signal) = signals.next() {
            if signal.number == libc::SIGTERM {
                return;
            }
        }
    }
}
