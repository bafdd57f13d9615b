//! The witness: a file that each command of a test keeps locked with flock(2) while it works. The program
//! knows nothing of it, so it says whether two commands ever worked at the same time.
//!
//! A command takes the witness first ([`enter!`](crate::enter)). It is a high descriptor, which only bash
//! can name: of a process that ends, Linux closes the highest descriptor first, and the witness has to be
//! closed before the copy of the liveness lock is.
//!
//! # Two processes that die at once
//! A command may find the witness locked although no other one works. Two processes of the holder before may
//! die at once on two processors. One closes the liveness lock for the last time, while the other one, which
//! is past its last instruction too, still has the witness open. Two processes without any of our code do the
//! same (2 of 8,609 deaths on a busy machine, for up to 3.4 ms). So the command looks at the group of the
//! process that had the witness before:
//! - a process of that group that is not dying makes it an overlap;
//! - if all of them are dying, the command waits for the witness for one second;
//! - if another process has taken the witness meanwhile, it is an overlap too.

/// The exit code of a command that found another one at work.
pub(crate) const OVERLAP: i32 = 97;

/// Lines of bash that take the witness: `WITNESS [LOG]`. The witness has the PID of each process that took
/// it. A command that finds another one at work appends `overlap` to the log, says `refused` and ends with
/// [`OVERLAP`].
#[macro_export]
macro_rules! enter {
    () => {
        r#"exec 2>/dev/null 200>>"$0"
dying() {
  local stat line pid
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } || continue
    pid=${line%% *}; set -- ${line##*) }
    [ "$3" = "$before" ] || [ "$pid" = "$before" ] || continue
    [ "$1" = Z ] || [ "$1" = X ] || [ $(( $7 & 4 )) != 0 ] || return 1
  done
}
flock -n 200 || {
  before=$(tail -n 1 "$0")
  dying && flock -w 1 200 && [ "$before" = "$(tail -n 1 "$0")" ] || {
    echo overlap >>"${1:-/dev/null}"; echo refused; exit 97
  }
}
echo $$ >&200
"#
    };
}

/// Fails with a sentence if a tool is missing that the witness needs.
pub(crate) fn need() {
    for tool in ["bash", "flock"] {
        super::need(tool);
    }
}
