//! How the callers of one process wait: in lines in front of the store (`turns`), on a few threads (`pool`), and for what is
//! due (`due`). Guards of the library and requests of serve wait so.
//!
//! Only the caller at the head of a line stands in the store's queue. A caller without a thread leaves an errand, which a
//! thread of the pool does; while its wait sleeps, the errand needs no thread.
//!
//! Who stands in which line, and what an errand is for, is decided by those who have the lines (`guard`, `serve`).

mod due;
mod pool;
mod turns;

pub use due::{Deadline, Deadlines, Duty, Parking, Timed};
pub use pool::{Asleep, Pool, Room, asleep};
pub use turns::{Errand, Joined, Lines, Standing, Turn};

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tenure_os::brief::may_sleep;

/// An errand that a pool does.
pub trait Work<N: Clone + Ord + Send + 'static>: Errand<N> + Send + 'static {
    /// The pool that does the errand.
    fn pool(&self) -> &Pool;

    /// Does the errand.
    fn work(self) -> impl Future<Output = ()> + Send;

    /// Ends the errand, for which the system gives no thread.
    fn fail(self, why: io::Error);
}

/// Has a pool do an errand, and those that come next in its line. A caller that works briefly begins the errand itself.
pub fn begin<N: Clone + Ord + Send + Sync + 'static, E: Work<N>>(
    turn: Option<Turn<N, E>>,
    errand: E,
) {
    let mut next = Some((turn, errand));
    while let Some((turn, errand)) = next {
        next = match errand.pool().reserve() {
            Ok(room) => {
                let work = work(turn, errand);
                if may_sleep() {
                    room.spawn(work);
                } else {
                    room.begin_here(work);
                }
                None
            }
            Err(why) => {
                errand.fail(why);
                after(turn)
            }
        };
    }
}

async fn work<N: Clone + Ord + Send + Sync + 'static, E: Work<N>>(
    turn: Option<Turn<N, E>>,
    errand: E,
) {
    let mut next = Some((turn, errand));
    while let Some((turn, errand)) = next {
        errand.work().await;
        next = after(turn);
        if next.is_some() {
            others_first().await;
        }
    }
}

/// The errand that has the turn next.
fn after<N: Clone + Ord, E: Errand<N>>(
    turn: Option<Turn<N, E>>,
) -> Option<(Option<Turn<N, E>>, E)> {
    let (turn, errand) = turn?.next()?;
    Some((Some(turn), errand))
}

/// Lets the other tasks of the pool run before this one goes on.
async fn others_first() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
