//! What macOS says a process was started with: how many arguments as a native `int`, the path of the
//! program, zeroes up to a multiple of a word, and the arguments with a zero behind each.

/// The arguments in such a block; `None` if it is not one.
pub(super) fn arguments_in(block: &[u8]) -> Option<Vec<String>> {
    let (count, rest) = block.split_first_chunk()?;
    let count = usize::try_from(i32::from_ne_bytes(*count)).ok()?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let rest = rest.get(end..)?;
    let begin = rest.iter().position(|byte| *byte != 0)?;
    let arguments = rest.get(begin..)?.split(|byte| *byte == 0).take(count);
    let text = |argument: &[u8]| String::from_utf8_lossy(argument).into_owned();
    Some(arguments.map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_behind_the_program_and_the_environment_is_none_of_them() {
        let block = |count: i32, rest: &[u8]| [&count.to_ne_bytes(), rest].concat();
        let rest = b"/bin/sh\0\0\0\0\0sh\0-c\0\0echo a\0HOME=/Users/a\0";
        assert_eq!(
            arguments_in(&block(4, rest)),
            Some(["sh", "-c", "", "echo a"].map(str::to_owned).to_vec())
        );
        for cut in [
            &block(2, b"/bin/sh")[..],
            &block(1, b"/bin/sh\0\0"),
            b"\x01",
            b"",
        ] {
            assert_eq!(arguments_in(cut), None, "{cut:?}");
        }
        assert_eq!(
            arguments_in(&block(-1, rest)),
            None,
            "no number of arguments"
        );
    }
}
