//! Links the debug binary without position independence.
//!
//! The tests start it tens of thousands of times, and a fifth of what a start costs is relocating
//! 70,000 addresses of unoptimised code. What is released is not position independent either
//! (docs/decisions/0003). Another system or linker does without.
#![allow(
    clippy::print_stdout,
    reason = "this is how a build script talks to cargo"
)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let is_gnu_linux = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is("PROFILE", "debug") && is_gnu_linux {
        println!("cargo::rustc-link-arg-bin=tenure=-no-pie");
    }
}
