//! Decides which users' files and folders are believed when a call merely finds them.
//!
//! A place that the caller names (by a flag, a variable, or in a program of the caller's) is the caller's
//! own decision. Another user may have planted a place that was found (a configuration on the way up, a
//! folder that it names, a folder below the home folder). So it has to belong to the caller or to root, who
//! can do everything anyhow; see decision 0023.
//!
//! What was opened is judged, by its descriptor, and never a name before it is opened.
//!
//! On Windows owners are not looked at, as with lock files.

use crate::os::{self, Descriptor, Errno, Facts, Sharing};
use std::path::Path;

/// Whether the caller said where something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Named {
    /// The caller did, which is consent to whatever is there.
    #[default]
    ByCaller,
    /// No caller did: a search or a default led there.
    ByNobody,
}

/// The owner of a configuration that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The caller, or root.
    Ours,
    /// The user who became root by sudo.
    SudoUser,
    /// Another user.
    Stranger,
}

/// The owner of an opened file.
pub(crate) fn whose(facts: &Facts) -> Whose {
    if facts.is_ours() || facts.is_roots() {
        return Whose::Ours;
    }
    let sudo_user = || std::env::var("SUDO_UID").ok()?.parse::<u32>().ok();
    if os::is_root() && sudo_user().is_some_and(|user| facts.is_of(user)) {
        Whose::SudoUser
    } else {
        Whose::Stranger
    }
}

/// Why a folder that no caller named is not used, if it is not: it belongs to another user, and is not made
/// for several. Its owner could exchange files that the caller made there, and could not use them.
pub(crate) fn refusal(facts: &Facts) -> Option<String> {
    let is_good = facts.is_ours() || facts.is_roots() || facts.is_made_for_several();
    (!is_good).then(|| {
        format!(
            "it belongs to {}, and no caller named it",
            facts.owner_text()
        )
    })
}

/// Opens a folder that no caller named. A link to it counts as its owner's word.
///
/// # Errors
/// - `Ok(Err(why))` if the link is another user's.
pub(crate) fn open_folder(path: &Path) -> Result<Result<Descriptor, String>, Errno> {
    match os::open_folder_itself(path) {
        Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => match os::link_at(path)? {
            None => Err(errno),
            Some(link) => match refusal(&link) {
                None => os::open_folder(path).map(Ok),
                Some(why) => Ok(Err(why.replacen("it belongs", "the link belongs", 1))),
            },
        },
        other => other.map(Ok),
    }
}

/// Why nothing is made at a path that no caller named, if nothing is: the nearest folder above it that is
/// there belongs to another user.
pub(crate) fn refusal_above(path: &Path) -> Option<(String, String)> {
    let above = path
        .ancestors()
        .skip(1)
        .find(|above| !above.as_os_str().is_empty() && above.is_dir())?;
    // What cannot be opened cannot be written in either.
    let facts = os::open_folder(above).and_then(|fd| os::facts(&fd)).ok()?;
    Some((above.display().to_string(), refusal(&facts)?))
}

/// Whether the members of a group may make files in a folder, and none may remove another one's.
pub(crate) fn is_open_to_members(folder: &Facts) -> bool {
    folder.sharing() == Sharing::Group && folder.is_sticky()
}

/// What makes a folder weaker than the sticky folder of a group around it. Its owner may replace what others
/// make in it in any case; without the sticky bit every member may.
pub(crate) fn weakness(folder: &Facts) -> Option<&'static str> {
    let is_good = folder.is_ours() || folder.is_roots() || folder.is_sticky();
    (!is_good).then_some(
        "it belongs to another user and lacks the sticky bit of the folder around it, so every \
         member of the group could replace a file in it; `chmod +t` it",
    )
}
