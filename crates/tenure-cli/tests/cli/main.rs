//! The binary as its callers meet it: every verb, flag and exit code, driven as a process.
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

#[path = "../support/mod.rs"]
mod support;

mod advice;
mod agent_day;
mod agent_install;
mod agents;
mod arguments;
mod around;
mod audit;
mod calls;
mod ci_jobs;
mod completions;
mod configuration;
mod consent;
mod contract;
mod control_group;
mod defaults;
mod demo;
mod detached;
mod doctor;
mod environment;
mod exec;
mod fence;
mod fleet;
mod flock;
#[cfg(target_os = "linux")]
mod follow;
mod force;
mod frozen;
mod github_action;
mod github_example;
mod github_job;
mod group_name;
mod groups;
mod guides;
mod help;
mod hostile;
mod inside;
mod man;
mod many;
#[cfg(target_os = "linux")]
mod member;
mod metrics;
mod moved;
mod orphans;
mod passing_on;
mod places;
mod profiles;
mod program;
mod push;
mod queueing;
mod reading;
mod readme;
mod resume;
mod services;
mod session;
mod several;
mod signals;
mod situations;
mod slow_readers;
mod sprint;
mod streams;
mod supervision;
mod timeline;
mod top;
mod transcripts;
mod users;
mod waiting;
mod whose;
mod within;
