//! `help`, `-h` and `--help`, and the version: text for people, and a document where one was asked for.

use crate::exit::Exit;
use crate::render::{Output, Reporter, colour, report};
use crate::request::{Format, Surroundings};
use crate::speech;
use crate::verb::help::{Size, page};
use crate::verb::{HelpArgs, version};
use serde_json::{Value, json};

#[cold]
#[inline(never)]
pub(super) fn help(args: &HelpArgs) -> Exit {
    let output = args.common.output.or_else(Output::from_environment);
    let output = output.unwrap_or(Output::Text);
    let profile = match Format::of(&args.common, &Surroundings::of(&args.common)) {
        Ok(format) => format,
        Err(failure) => return report(&failure.for_command("help").with_output(output)),
    };
    let verb = args.of.as_deref();
    let page = page(verb, args.size, profile.map(Format::name));
    let page = page.trim_end();
    let text = || colour::page(page, &std::io::stdout());
    answer("help", output, text, json!({ "verb": verb, "page": page }))
}

/// Shows a caller that typed nothing what can be typed.
#[cold]
#[inline(never)]
pub(super) fn bare() -> Exit {
    let page = page(None, Size::Brief, None);
    speech::say_plainly(&colour::page(page.trim_end(), &std::io::stderr()));
    Exit::BadArguments
}

#[cold]
#[inline(never)]
pub(super) fn show_version(output: Output) -> Exit {
    let data = json!({ "version": env!("CARGO_PKG_VERSION") });
    answer("version", output, version, data)
}

fn answer(command: &str, output: Output, text: impl FnOnce() -> String, data: Value) -> Exit {
    let reporter = Reporter::new(output, false, false, command.to_owned());
    let text = if output == Output::Text {
        text()
    } else {
        String::new()
    };
    reporter.succeed(&text, data)
}
