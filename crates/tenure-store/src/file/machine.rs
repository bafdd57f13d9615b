//! Whether the administrator of the machine makes a folder: no call makes such a one, also if its caller does not know whose it
//! is. This reads no configuration. A caller that does hands its answer in ([`FileStore::asking`](super::FileStore::asking)).

use std::path::Path;

/// The machine's configuration. Its `dir` is the folder of the scope `machine`.
pub const MACHINE_FILE: &str = "/etc/tenure.toml";

/// Whether the machine's configuration names this folder. It is taken for named if its path stands anywhere in that file.
pub(super) fn names(folder: &Path) -> bool {
    let text = std::fs::read_to_string(MACHINE_FILE).unwrap_or_default();
    cfg!(unix) && folder.to_str().is_some_and(|folder| text.contains(folder))
}
