//! A command-line tool with two commands, one of which needs a lock.
//!
//! ```text
//! deploy deploy --env prod [--step-ms N] [--deaf] [--panic] [--wait DURATION]
//! deploy status
//! ```
//!
//! `deploy` holds the lock `deploy-ENV` while it works, so two of them never meet in one
//! environment; `status` holds nothing. All that says so is [`Tool::lock`] below. The waiting, the
//! JSON document, the exit codes, the signals and the release are the framework's.
//!
//! The work is three steps of nothing. `--deaf` and `--panic` make it misbehave, to show what becomes
//! of such a command.

use clap::Parser;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tenure::framework::{self, Context, Error, Exit, Failure, Lock, Tool};

/// Brings environments up to date
#[derive(Parser)]
#[command(name = "deploy", version)]
enum Deploy {
    /// Brings one environment up to date
    Deploy {
        /// The environment
        #[arg(long)]
        env: String,
        /// How long each of the three steps takes
        #[arg(long, default_value_t = 10)]
        step_ms: u64,
        /// Never looks whether it should stop
        #[arg(long)]
        deaf: bool,
        /// Panics in the middle
        #[arg(long)]
        panic: bool,
    },
    /// Shows what runs where
    Status,
}

/// What a call answers.
#[derive(Serialize)]
struct Deployed {
    env: Option<String>,
    steps: u32,
    token: Option<u64>,
}

/// The environments that there are.
const KNOWN: [&str; 3] = ["prod", "staging", "test"];

impl Tool for Deploy {
    type Answer = Deployed;

    fn lock(&self) -> Lock {
        match self {
            Self::Deploy { env, .. } => {
                Lock::named(format!("deploy-{env}")).grace(Duration::from_secs(1))
            }
            Self::Status => Lock::none(),
        }
    }

    fn run(self, context: &Context) -> Result<Deployed, Error> {
        let Self::Deploy {
            env,
            step_ms,
            deaf,
            panic,
        } = self
        else {
            return Ok(Deployed {
                env: None,
                steps: 0,
                token: context.token(),
            });
        };
        if !KNOWN.contains(&env.as_str()) {
            let message = format!("There is no environment {env:?}");
            return Err(Failure::new(Exit::NotFound, "NO_SUCH_ENVIRONMENT", message).into());
        }
        for step in 1..=3 {
            // Whether the stream has a reader makes no difference to the work.
            let _ = writeln!(std::io::stderr(), "step {step} of 3");
            let time = Duration::from_millis(step_ms);
            if deaf {
                std::thread::sleep(time);
            } else {
                context.sleep(time)?;
            }
            assert!(!panic, "as --panic wants it");
        }
        Ok(Deployed {
            env: Some(env),
            steps: 3,
            token: context.token(),
        })
    }
}

fn main() -> ExitCode {
    framework::main::<Deploy>()
}
