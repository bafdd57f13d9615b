//! The form in which a command takes its lock: what a hook puts in front of it, and what `status` prints rules for.

use std::num::NonZeroU32;
use tenure_engine::config::CommandRule;

/// What stands in front of a command of this rule. With `closed`, a place that cannot be used refuses it.
pub(in crate::command) fn prefix(
    program: &str,
    rule: &CommandRule,
    closed: bool,
    key: &str,
    wait: &str,
) -> String {
    let slots = match rule.slots.map(NonZeroU32::get) {
        None | Some(1) => String::new(),
        Some(slots) => format!(" --slots {slots}"),
    };
    let open = if closed { "" } else { " --on-error open" };
    format!(
        "{program} run {}{slots} --as {key} --wait {wait} --die-with auto --ticket auto{open} -- ",
        rule.lock
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tenure_engine::config::Config;

    #[test]
    fn a_prefix_names_what_the_rule_says() {
        let text = "[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\nslots = 2\n";
        let config = Config::parse(text, Path::new("/w/tenure.toml")).expect("a configuration");
        let rule = config.agent.commands.first().expect("a rule");
        assert_eq!(
            prefix("tenure", rule, true, "claude/1f3c/a6", "60s"),
            "tenure run b --slots 2 --as claude/1f3c/a6 --wait 60s --die-with auto --ticket auto -- "
        );
        assert!(prefix("tenure", rule, false, "k", "1s").ends_with(" --on-error open -- "));
    }
}
