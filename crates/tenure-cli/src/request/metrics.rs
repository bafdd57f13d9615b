//! `metrics`: its flags, and what they mean.

use super::{Place, Surroundings};
use crate::args::Common;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};
use tenure_engine::config;
use tenure_engine::envelope::clean_path;
use tenure_engine::place::path_typed;
use tenure_store::printed::hash;

/// How many locks have a label of their own, unless said otherwise.
const LOCKS_MAX: u32 = 100;

/// The ending of the files that the collector reads.
const ENDING: &str = "prom";

/// The folder of the counts, beside that of the user's locks.
const FOLDER: &str = "metrics";

/// `metrics`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure metrics                    show them
  tenure metrics --textfile /var/lib/prometheus/node-exporter/tenure.prom
                                    write them for the node exporter

Counts come from the audit; present holds and waiters come from the locks. Each call adds what was recorded \
since the call before, so no count falls when the audit is rotated or one of its files is removed.")]
pub(crate) struct MetricsArgs {
    /// Write the metrics to this file (NAME.prom), in one step, for the node exporter's textfile collector
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) textfile: Option<PathBuf>,
    /// Number of locks with their own label; the others are counted together as (other) [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) max_locks: Option<u32>,
    /// File with the counts so far [default: a file in ~/.local/state/tenure/metrics]
    #[arg(long, value_name = "FILE", hide_short_help = true, value_hint = ValueHint::FilePath)]
    pub(crate) state: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Counts what happened to locks.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) place: Place,
    /// The file for the collector; stdout without one.
    pub(crate) textfile: Option<FileName>,
    pub(crate) state: FileName,
    /// The folder of the counts is made if it is not there.
    pub(crate) makes_folder: bool,
    /// How many locks have a label of their own.
    pub(crate) locks_max: usize,
}

/// A file to be replaced: its folder, absolute, and its name in there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileName {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
}

impl FileName {
    /// The file that a flag names.
    fn typed(flag: &str, written: &Path, around: &Surroundings) -> Result<Self, Failure> {
        let path = around.absolute(&path_typed(flag, written)?)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(folder), Some(name)) = (path.parent(), name) else {
            return Err(Failure::bad_arguments(format!(
                "{flag}: {} is no name of a file",
                clean_path(written)
            )));
        };
        if !folder.is_dir() {
            return Err(Failure::bad_arguments(format!(
                "{flag}: there is no folder {}",
                clean_path(folder)
            )));
        }
        if path.symlink_metadata().is_ok_and(|facts| !facts.is_file()) {
            return Err(Failure::bad_arguments(format!(
                "{flag}: {} is not a regular file",
                clean_path(written)
            )));
        }
        Ok(Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Whether both are one file, perhaps by two names of its folder.
    fn is(&self, other: &Self) -> bool {
        let folder = |file: &Self| file.folder.canonicalize().ok();
        self == other || (self.name == other.name && folder(self) == folder(other))
    }

    /// The whole path.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

impl Metrics {
    pub(crate) fn of(typed: &MetricsArgs, around: &Surroundings) -> Result<Self, Failure> {
        if !matches!(typed.common.output, None | Some(Output::Text)) {
            return Err(Failure::bad_arguments(
                "metrics prints Prometheus' text, which has no other format; leave --output out",
            ));
        }
        let place = Place::of(&typed.common, around)?;
        let textfile = typed.textfile.as_deref();
        let textfile = textfile.map(|file| FileName::typed("--textfile", file, around));
        let textfile = textfile.transpose()?;
        if let Some(file) = &textfile
            && Path::new(&file.name).extension() != Some(ENDING.as_ref())
        {
            return Err(Failure::bad_arguments(format!(
                "--textfile: the node exporter reads only names that end with .{ENDING}, as {}.{ENDING}",
                file.name
            )));
        }
        let state = match &typed.state {
            Some(file) => FileName::typed("--state", file, around)?,
            None => usual_state(&place)?,
        };
        if textfile.as_ref().is_some_and(|file| file.is(&state)) {
            return Err(Failure::bad_arguments(
                "--textfile and --state name one file; each needs its own",
            ));
        }
        Ok(Self {
            place,
            textfile,
            state,
            makes_folder: typed.state.is_none(),
            locks_max: usize::try_from(typed.max_locks.unwrap_or(LOCKS_MAX)).unwrap_or(usize::MAX),
        })
    }
}

/// The counts of these locks and of their audit.
fn usual_state(place: &Place) -> Result<FileName, Failure> {
    let locks = config::default_folder().map_err(|_| {
        Failure::bad_arguments(
            "no folder is known for the counts, because there is no home; name a file with --state",
        )
    })?;
    let (audit, _) = place.audit_folder(place.profile())?;
    let of = format!("{}\n{}", audit.dir().display(), place.folder.display());
    Ok(FileName {
        folder: locks.parent().unwrap_or(&locks).join(FOLDER),
        name: format!("{}.json", hash(&of)),
    })
}
