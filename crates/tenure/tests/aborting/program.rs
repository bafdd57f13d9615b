//! A program that is built with `panic = "abort"`: it holds a lock until its input ends, and panics.
//! `guard.rs` builds and runs it.

use std::io::{Read, Write};
use tenure::guard::LockManager;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("no folder")?;
    let _guard = LockManager::new(folder)?.acquire("a")?;
    println!("held");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_string(&mut String::new())?;
    panic!("the drop of the guard does not run");
}
