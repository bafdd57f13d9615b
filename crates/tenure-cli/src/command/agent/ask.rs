//! Other programs that are asked something: a host its version, a login shell its `PATH`, our server its place. None of them
//! keeps this one waiting for ever.

use crate::command::child_end::{ChildEnd, child_end};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tenure_os::clock::{instant, since};
use tenure_store::advice;

/// The longest answer that is read.
const ANSWER_MAX: u64 = 1 << 20;

/// How long an answer is waited for that a report needs.
pub(super) const SOON: Duration = Duration::from_secs(3);

/// What a program writes to stdout, if it succeeds. Its errors are not shown.
///
/// # Errors
/// - Why there is no answer, as a sentence.
pub(super) fn answer(
    command: &mut Command,
    input: &str,
    patience: Duration,
) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        // Less than a pipe holds. A program that does not read has its reasons.
        let _ = stdin.write_all(input.as_bytes());
    }
    let (tell, told) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        // What the program leaves behind may keep its stdout open, and then this ends with the process.
        let _ = std::thread::Builder::new().spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.take(ANSWER_MAX).read_to_end(&mut bytes);
            let _ = tell.send(bytes);
        });
    }
    let begun = instant();
    if child_end(&mut child, patience, patience, || true) != ChildEnd::Ended {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("it did not end within {} s", patience.as_secs()));
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(status.to_string());
    }
    let bytes = told.recv_timeout(patience.saturating_sub(since(begun)));
    let bytes = bytes.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The version that a program says it has: the first word with two dots between numbers.
pub(super) fn version(name: &str) -> Option<[u32; 3]> {
    let program = advice::on_path(name)?;
    let said = answer(Command::new(program).arg("--version"), "", SOON).ok()?;
    said.split_whitespace().find_map(numbers)
}

fn numbers(word: &str) -> Option<[u32; 3]> {
    let plain = word.split(['-', '+']).next()?;
    let numbers = plain.split('.').map(|part| part.parse().ok());
    let numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers() {
        for (said, expected) in [
            ("2.1.332 (Claude Code)", Some([2, 1, 332])),
            ("codex-cli 0.171.0", Some([0, 171, 0])),
            ("codex-cli 0.172.0-alpha.3", Some([0, 172, 0])),
            ("tool 1.2", None),
            ("", None),
        ] {
            assert_eq!(
                said.split_whitespace().find_map(numbers),
                expected,
                "{said}"
            );
        }
    }

    #[test]
    fn a_program_that_does_not_end_is_not_waited_for() {
        let mut sleeps = Command::new("sleep");
        let late = answer(sleeps.arg("60"), "", Duration::from_millis(50));
        assert!(late.is_err_and(|why| why.contains("did not end")));
        let mut cat = Command::new("cat");
        assert_eq!(answer(&mut cat, "a\n", SOON), Ok("a\n".to_owned()));
        let mut fails = Command::new("sh");
        assert!(answer(fails.args(["-c", "exit 3"]), "", SOON).is_err());
    }
}
