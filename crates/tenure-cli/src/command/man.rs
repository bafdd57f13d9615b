//! `man`: writes the manual, one page for tenure and one for each verb, from the parsers that `--help`
//! is made of. It looks at no lock.

use super::call::one_form;
use crate::args::flock;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::request::ManArgs;
use crate::verb::Tree;
use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::Path;

/// The section of commands.
const SECTION: &str = "1";

/// A page: the name of its file, and what is in it.
struct Page {
    file: String,
    text: Vec<u8>,
}

#[cold]
#[inline(never)]
pub(super) fn man(args: &ManArgs) -> Exit {
    let reporter = match one_form(args.output, "man", "pages of the manual") {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    match written(args) {
        Ok(text) => reporter.succeed(text.trim_end(), Value::Null),
        Err(failure) => reporter.fail(&failure),
    }
}

/// Writes the pages that were asked for; answers with the text that is left to print.
fn written(args: &ManArgs) -> Result<String, Failure> {
    let mut pages = pages().map_err(|error| {
        Failure::new(
            Exit::General,
            "NO_MANUAL",
            format!("the manual cannot be made: {error}"),
        )
    })?;
    // The page of tenure itself comes first.
    match &args.verb {
        Some(verb) => {
            let file = format!("tenure-{verb}.{SECTION}");
            pages.retain(|page| page.file == file);
            if pages.is_empty() {
                return Err(Failure::bad_arguments(format!(
                    "there is no verb {verb:?}; `tenure --help` shows them all"
                )));
            }
        }
        None if args.to.is_none() => pages.truncate(1),
        None => {}
    }
    let Some(folder) = &args.to else {
        let text = pages.pop().map(|page| page.text).unwrap_or_default();
        return Ok(String::from_utf8_lossy(&text).into_owned());
    };
    if folder.as_os_str().is_empty() {
        return Err(Failure::bad_arguments("--to: the folder's name is empty"));
    }
    write_all(folder, &pages)?;
    let noun = if pages.len() == 1 { "page" } else { "pages" };
    Ok(format!("{} {noun} in {}", pages.len(), folder.display()))
}

fn write_all(folder: &Path, pages: &[Page]) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| {
        let (exit, code) = match error.kind() {
            io::ErrorKind::PermissionDenied => (Exit::Permission, "PERMISSION_DENIED"),
            _ => (Exit::General, "NOT_WRITTEN"),
        };
        let why = tenure_engine::audit::error_text(&error);
        Failure::new(
            exit,
            code,
            format!("{} cannot be written: {why}", path.display()),
        )
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for page in pages {
        let path = folder.join(&page.file);
        fs::write(&path, &page.text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// All pages, tenure's own first.
fn pages() -> io::Result<Vec<Page>> {
    let mut tree = Tree::command()
        .disable_help_subcommand(true)
        .subcommand_help_heading("VERBS")
        .mut_subcommand("flock", |verb| of_flock(&verb));
    tree.build();
    let mut pages = vec![page(tree.clone(), &[])?];
    for verb in tree.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let also: &[&str] = match verb.get_name() {
            "flock" => &["tenure", "flock"],
            _ => &["tenure"],
        };
        pages.push(page(verb.clone(), also)?);
    }
    Ok(pages)
}

/// `flock` reads its words itself; here they are described as the others' are.
fn of_flock(verb: &Command) -> Command {
    let about = verb.get_about().cloned().unwrap_or_default();
    let options = flock::OPTIONS.iter().map(|option| {
        let id = option.words.last().copied().unwrap_or_default();
        let mut arg = Arg::new(id).help(option.about);
        for word in option.words {
            let long = word.strip_prefix("--");
            let letter = word.chars().nth(1).filter(|_| long.is_none());
            arg = match (long, letter) {
                (Some(long), _) if arg.get_long().is_none() => arg.long(long),
                (Some(long), _) => arg.visible_alias(long),
                (None, Some(letter)) if arg.get_short().is_none() => arg.short(letter),
                (None, Some(letter)) => arg.visible_short_alias(letter),
                (None, None) => arg,
            };
        }
        if option.value.is_empty() {
            arg.action(clap::ArgAction::SetTrue)
        } else {
            arg.value_name(option.value)
        }
    });
    Command::new("flock")
        .about(about)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .override_usage(
            flock::USAGES
                .map(|usage| format!("tenure flock {usage}"))
                .join("\n"),
        )
        .args(options)
        .after_help(flock::NOTES.join("\n\n"))
}

fn page(command: Command, also: &[&str]) -> io::Result<Page> {
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let mut command = command.mut_args(described);
    if command.get_overridden_usage().is_none() {
        let usage = command.render_usage().to_string();
        command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    }
    let man = Man::new(command)
        .title(name.to_uppercase())
        .section(SECTION)
        .date("")
        .source(concat!("tenure ", env!("CARGO_PKG_VERSION")))
        .manual("tenure");
    let (mut title, mut text) = (Vec::new(), Vec::new());
    man.render_title(&mut title)?;
    man.render(&mut text)?;
    // Names and flags are neither stretched nor cut.
    text.splice(title.len()..title.len(), *b".ad l\n.nh\n");
    if !also.is_empty() {
        let also: Vec<String> = also
            .iter()
            .map(|page| format!("{page}({SECTION})"))
            .collect();
        text.extend_from_slice(format!(".SH SEE ALSO\n{}\n", also.join(", ")).as_bytes());
    }
    Ok(Page {
        file: format!("{name}.{SECTION}"),
        text,
    })
}

/// Adds to a flag what `clap_mangen` leaves out: its other names. The manual also has the flags that the brief
/// help hides.
fn described(arg: Arg) -> Arg {
    let arg = arg.hide_short_help(false);
    let letters = arg.get_visible_short_aliases().unwrap_or_default();
    let letters = letters.iter().map(|letter| format!("-{letter}"));
    let words = arg.get_visible_aliases().unwrap_or_default();
    let words = words.iter().map(|word| format!("--{word}"));
    let others: Vec<String> = letters.chain(words).collect();
    if others.is_empty() {
        return arg;
    }
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    arg.long_help(format!("{help} [also: {}]", others.join(", ")))
}
