//! Guards over a store of one's own: `cargo run --example store -- FOLDER NAME` holds a lock of the folder
//! for a second, behind whoever holds it already. Start it twice at once.

#![allow(clippy::print_stdout, reason = "it is a program")]

mod folder;

use folder::FolderStore;
use std::error::Error;
use std::time::Duration;
use tenure::guard::{LockManager, Options, Wait};
use tenure::model::Host;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, name] = &arguments[..] else {
        return Err("say FOLDER NAME".into());
    };
    let store = FolderStore::open(place.as_ref(), Host::default())?;
    let guard =
        LockManager::with_store(store).acquire_with(name, &Options::new().wait(Wait::Forever))?;
    println!("it holds {name}; the fencing token is {}", guard.token());
    std::thread::sleep(Duration::from_secs(1));
    guard.release()?;
    Ok(())
}
