//! Links the binary without position independence, and that of a debug build statically.
//!
//! A run stands in front of another program, and the tests start it tens of thousands of times. What is not position
//! independent has no address to relocate at its start, and a program without a loader maps no shared library and looks
//! up no symbol. What is released is static and not position independent either (docs/internals/decisions/0003).
//!
//! A static link takes the C library as an archive, and not every system has that one. So the compiler is asked
//! where its archives are. Where it has none, or for another system, the binary is linked as usual. A release takes the
//! shared C library, which finds users and hosts by what the system is set to, and only the unwinder as an archive.
#![allow(
    clippy::print_stdout,
    reason = "this is how a build script talks to cargo"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// What Rust's standard library wants of the system when it is linked with shared libraries, and the archive that
/// stands in for each.
const SHARED: [(&str, &str); 7] = [
    ("libc.so", "libc.a"),
    ("libdl.so", "libdl.a"),
    UNWINDER[0],
    ("libm.so", "libm.a"),
    ("libpthread.so", "libpthread.a"),
    ("librt.so", "librt.a"),
    ("libutil.so", "libutil.a"),
];

/// The one of these that every system with a compiler has. Without it, a start loads one library less.
const UNWINDER: [(&str, &str); 1] = [("libgcc_s.so", "libgcc_eh.a")];

/// The order of the code in the released binary.
const STARTUP_ORDER: &str = "../../packaging/startup.ld";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo does not see that the linker reads it. A packaged crate has none.
    if Path::new(STARTUP_ORDER).is_file() {
        println!("cargo::rerun-if-changed={STARTUP_ORDER}");
    }
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_gnu_linux = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    // A build whose flags want all of it static has that already.
    let is_static = features.split(',').any(|feature| feature == "crt-static");
    if !is_gnu_linux || is_static {
        return;
    }
    println!("cargo::rustc-link-arg-bin=tenure=-no-pie");
    let is_debug = is("PROFILE", "debug");
    let archives = archives(if is_debug { &SHARED } else { &UNWINDER });
    if let Some(folder) = archives {
        if is_debug {
            println!("cargo::rustc-link-arg-bin=tenure=-static");
        }
        println!("cargo::rustc-link-arg-bin=tenure=-L{}", folder.display());
    }
}

/// A folder with what the linker takes for shared libraries, and which names archives. `None` if this system lacks
/// one of them.
///
/// Rust says itself that these libraries are shared ones, and says so after all arguments from here; only for a
/// whole build can it be told otherwise. But it lets the linker find them.
fn archives(libraries: &[(&str, &str)]) -> Option<PathBuf> {
    let folder = PathBuf::from(env::var_os("OUT_DIR")?).join("archives");
    fs::create_dir_all(&folder).ok()?;
    for (shared, archive) in libraries {
        let archive = path_of(archive)?;
        write(&folder.join(shared), &archive).ok()?;
    }
    Some(folder)
}

/// A script for the linker, in place of a library.
fn write(file: &Path, archive: &Path) -> io::Result<()> {
    fs::write(file, format!("GROUP ( {} )\n", archive.display()))
}

/// Where the compiler that links has an archive.
fn path_of(archive: &str) -> Option<PathBuf> {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let mut asked = Command::new(linker);
    let answer = asked
        .arg(format!("-print-file-name={archive}"))
        .output()
        .ok()?;
    // A name that it does not find comes back as it was asked for.
    let path = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim_end());
    (path.is_absolute() && path.is_file()).then_some(path)
}
