//! Whether a folder holds nothing but files of tenure. A name alone proves nothing: a lock file is known by how it
//! begins, and the folder of an audit by what is in it.

use super::{agents, pages};
use crate::audit;
use crate::os::{self, AsDescriptor, Descriptor, Errno, Open};
use crate::profile::SUFFIX;
use crate::repository::IGNORE_FILE;

/// What we write into a file of that name.
const IGNORES_ALL: &[u8] = b"*\n";

/// The hexadecimal digits in a private name.
const PRIVATE_DIGITS: usize = 16;

/// What is in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Nothing.
    Nothing,
    /// Files of tenure, and no other ones.
    Tenures,
    /// Something else as well.
    Other,
}

/// Looks at all that is in a folder.
pub(super) fn kept_in(folder: &Descriptor) -> Result<Kept, Errno> {
    let mut kept = Kept::Nothing;
    os::each_entry(folder, &mut |name| {
        if matches!(name, Some("." | "..")) || kept == Kept::Other {
            return;
        }
        kept = match name {
            Some(name) if is_tenures(folder, name) => Kept::Tenures,
            // tenure gives no names that are not UTF-8.
            _ => Kept::Other,
        };
    })?;
    Ok(kept)
}

fn is_tenures(folder: &Descriptor, name: &str) -> bool {
    if name == audit::FOLDER {
        return is_audit(folder);
    }
    let private = name
        .strip_prefix('.')
        .and_then(|rest| rest.strip_suffix(".new"))
        .and_then(|rest| rest.rsplit_once('.'));
    if let Some((_, digits)) = private {
        let is_ours =
            digits.len() == PRIVATE_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        return is_ours && begin_of(folder, name).is_some_and(|(_, size)| size == 0);
    }
    if name == IGNORE_FILE {
        return begin_of(folder, name).is_some_and(|(bytes, _)| bytes == IGNORES_ALL);
    }
    name.ends_with(SUFFIX)
        && begin_of(folder, name).is_some_and(|(bytes, _)| {
            bytes.is_empty()
                || pages::looks_like_ours(&bytes)
                || agents::looks_like_ours(name, &bytes)
        })
}

/// Whether the folder of the audit holds nothing but an audit.
fn is_audit(folder: &Descriptor) -> bool {
    let Ok(folder) = os::open_folder_in(folder, audit::FOLDER) else {
        return false;
    };
    let mut is_whole = true;
    let seen = os::each_entry(&folder, &mut |name| {
        is_whole &= name.is_some_and(|name| {
            matches!(name, "." | ".." | IGNORE_FILE) || audit::is_name_of_file(name)
        });
    });
    seen.is_ok() && is_whole
}

/// How a regular file begins, and its size. It is not opened through a link, and never waited for.
fn begin_of(folder: impl AsDescriptor, name: &str) -> Option<(Vec<u8>, u64)> {
    let file = os::open_file(folder, name, Open::Read).ok()?;
    let facts = os::facts(&file).ok().filter(os::Facts::is_regular)?;
    let mut bytes = [0; 64];
    let read = os::uninterrupted(|| os::read_at(&file, &mut bytes, 0)).ok()?;
    Some((bytes.get(..read)?.to_vec(), facts.size()))
}
