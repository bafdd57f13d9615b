//! `help`, `-h` and `--help`, and the version. They are always printed as text.

use crate::args::help::page;
use crate::args::{HelpArgs, version};
use crate::exit::Exit;
use crate::render::{Output, Reporter, colour, report};
use crate::request::{Format, Surroundings};
use serde_json::Value;

#[cold]
#[inline(never)]
pub(super) fn help(args: &HelpArgs) -> Exit {
    let profile = match Format::of(&args.common, &Surroundings::of(&args.common)) {
        Ok(format) => format,
        Err(failure) => {
            let output = args.common.output.or_else(Output::from_environment);
            return report(&failure.with_output(output.unwrap_or(Output::Text)));
        }
    };
    let page = page(args.of.as_deref(), args.size, profile.map(Format::name));
    answer(&colour::page(page.trim_end(), &std::io::stdout()))
}

#[cold]
#[inline(never)]
pub(super) fn show_version() -> Exit {
    answer(version().trim_end())
}

fn answer(text: &str) -> Exit {
    let reporter = Reporter::new(Output::Text, false, false, "help".to_owned());
    reporter.succeed(text, Value::Null)
}
