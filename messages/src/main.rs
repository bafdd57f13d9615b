//! `etcd-messages PROTO FOLDER` writes the Rust of a file of messages to `FOLDER/messages.rs`.
//!
//! Compiling the definitions takes no `protoc`. What the file is compared with is `scripts/etcd-messages`'s.

use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut told = env::args_os().skip(1).map(PathBuf::from);
    let (Some(proto), Some(folder)) = (told.next(), told.next()) else {
        return Err("usage: etcd-messages PROTO FOLDER".into());
    };
    let beside = proto.parent().unwrap_or(&folder);
    let messages = protox::compile([&proto], [beside])?;
    prost_build::Config::new()
        .out_dir(&folder)
        .default_package_filename("messages")
        .compile_fds(messages)?;
    Ok(())
}
