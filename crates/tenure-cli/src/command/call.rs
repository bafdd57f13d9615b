//! A call of one verb: from its flags to its answer.

use super::session::dialect_of;
use crate::args::value::Typed;
use crate::args::{Calling, Common, OfLock, OfPath};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::{Output, Reporter};
use crate::request::{Format, Surroundings};
use tenure_core::LockName;

/// A call of one verb, and where its answer goes.
pub(crate) struct Call {
    pub(crate) around: Surroundings,
    pub(crate) reporter: Reporter,
}

impl Call {
    pub(crate) fn of(verb: &'static str, common: &Common) -> Self {
        Self::within(verb, common, Surroundings::of(common))
    }

    /// A call of a verb that an agent may call, or that names its lock by a path.
    pub(crate) fn calling(
        verb: &'static str,
        common: &Common,
        calling: &Calling,
        path: &OfPath,
    ) -> Self {
        Self::within(
            verb,
            common,
            Surroundings::of_calling(common, calling, path),
        )
    }

    /// Call of a verb about one lock, which may be that of a group.
    pub(super) fn about_one(
        verb: &'static str,
        common: &Common,
        calling: &Calling,
        (name, of): (Option<&Typed<LockName>>, &OfLock),
    ) -> Self {
        let around = Surroundings::of_calling(common, calling, &of.path).of_group(of);
        Self::within(verb, common, around).about(name.or(of.group.as_ref()))
    }

    pub(super) fn within(verb: &'static str, common: &Common, around: Surroundings) -> Self {
        // All of them are about what is held already.
        if matches!(verb, "release" | "heartbeat" | "check" | "fence") {
            around.tends();
        }
        Self {
            reporter: reporter(common, &around, verb),
            around,
        }
    }

    /// Says which lock the call is about.
    pub(super) fn about(mut self, name: Option<&Typed<LockName>>) -> Self {
        self.reporter = self.reporter.about(name.map(|name| &*name.text));
        self
    }

    /// Says with which code the call exits where the lock is held.
    pub(crate) fn held_exit(mut self, code: Option<u8>) -> Self {
        self.reporter = self.reporter.held_exit(code);
        self
    }

    /// Has messages printed without tenure's name.
    #[cfg(unix)]
    pub(super) fn plainly(mut self) -> Self {
        self.reporter = self.reporter.plain(true);
        self
    }

    /// Answers in the flow of a sprint if the call's profile is one, otherwise in the usual flow.
    #[cold]
    #[inline(never)]
    pub(super) fn of_format(
        self,
        common: &Common,
        sprint: impl FnOnce(Self) -> Exit,
        usual: impl FnOnce(Self) -> Exit,
    ) -> Exit {
        match Format::of(common, &self.around) {
            Ok(Some(Format::Sprint)) => sprint(self),
            Ok(_) => usual(self),
            // The profile was not found, so the message is tenure's own.
            Err(failure) => self.reporter.plain(false).fail(&failure),
        }
    }

    /// Makes the request, carries it out and shows its answer or its failure.
    #[cold]
    #[inline(never)]
    pub(crate) fn answer<M>(
        self,
        meant: impl FnOnce(&Surroundings) -> Result<M, Failure>,
        carry_out: impl FnOnce(M, &mut Reporter) -> Result<(String, serde_json::Value), Failure>,
    ) -> Exit {
        let Self { around, reporter } = self;
        finish(reporter, |reporter| {
            let meant = meant(&around)?;
            warn_of(&around, reporter);
            carry_out(meant, reporter)
        })
    }
}

/// Warns of what its configuration says in vain.
pub(super) fn warn_of(around: &Surroundings, reporter: &mut Reporter) {
    if let Some(warning) = around.warning() {
        reporter.warn(warning);
    }
}

/// How answers are printed.
pub(super) fn reporter(common: &Common, around: &Surroundings, command: &'static str) -> Reporter {
    let output = common
        .output
        .or_else(Output::from_environment)
        .unwrap_or(Output::Text);
    // The messages of other systems are sentences that their users know, so they are printed without tenure's
    // name.
    let format = Format::of(common, around).ok().flatten();
    let format = format.filter(|format| *format != Format::Native);
    Reporter::new(output, common.quiet, common.verbose, command.to_owned())
        .plain(format.is_some())
        .documenting(format.and_then(|format| dialect_of(format).document(command)))
}

/// Runs the body of a verb and shows its answer or its failure.
pub(crate) fn finish(
    mut reporter: Reporter,
    body: impl FnOnce(&mut Reporter) -> Result<(String, serde_json::Value), Failure>,
) -> Exit {
    match body(&mut reporter) {
        Ok((text, data)) => reporter.succeed(&text, data),
        Err(failure) => reporter.fail(&failure),
    }
}

/// The reporter of a verb whose answer is a file for another program. Such a file has one form, so a caller
/// that asks for another output is refused.
pub(super) fn one_form(output: Option<Output>, verb: &str, what: &str) -> Result<Reporter, Exit> {
    let output = output.unwrap_or(Output::Text);
    let reporter = Reporter::new(output, false, false, verb.to_owned());
    if output == Output::Text {
        return Ok(reporter);
    }
    Err(reporter.fail(&Failure::bad_arguments(format!(
        "{verb} prints {what}, which have no other format; leave --output out"
    ))))
}
