//! What stands in the key of a claim, and in the header: lines of JSON, as in a coordination file.
//!
//! A claim's ticket and the token of its grant are revisions, which etcd assigns only when it writes. So
//! the ticket is never written: it is the creation revision of the key. A grant is written as *granted
//! here*, which stands for the revision of that very write. The next write of the claim puts the number
//! in its place.

use crate::codec::{self, Marks};
use crate::printed::short;
use serde::{Deserialize, Serialize};
use tenure_core::{Claim, Entry, History, Stamp};

/// The first line of a claim's value.
#[derive(Serialize, Deserialize)]
struct Frame {
    tenure: u32,
    /// The name of its lease key. The format calls it `life`.
    #[serde(rename = "life")]
    lease_key: String,
    /// The token is the revision of this write.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    granted_here: bool,
    /// What is added to that revision (`floor`).
    #[serde(default, skip_serializing_if = "is_zero")]
    floor: u64,
    /// The place was reserved once, and other claims may have been granted meanwhile.
    #[serde(
        rename = "was_away",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    was_reserved: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands it a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What every version writes: its number.
#[derive(Deserialize)]
struct Version {
    tenure: u32,
}

/// Why a value is no claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    /// A later version wrote it.
    #[error("it is of version {version}, which this program does not know")]
    Newer {
        /// Version of the value.
        version: u32,
    },
    /// The value is no claim.
    #[error("{0}")]
    Junk(String),
}

impl From<String> for DecodeError {
    fn from(why: String) -> Self {
        Self::Junk(why)
    }
}

/// A claim as its key keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) claim: Claim,
    pub(super) lease_key: String,
    pub(super) was_reserved: bool,
}

/// The version of the format.
const VERSION: u32 = 1;

/// Writes a claim. If it is granted here, its token is the revision of this write above that floor.
pub(super) fn encode(
    mut written: Written,
    granted_here: Option<u64>,
) -> Result<Vec<u8>, codec::CodecError> {
    let mut value = serde_json::to_vec(&Frame {
        tenure: VERSION,
        lease_key: std::mem::take(&mut written.lease_key),
        granted_here: granted_here.is_some(),
        floor: granted_here.unwrap_or(0),
        was_reserved: written.was_reserved,
    })
    .map_err(|error| error.to_string())?;
    value.push(b'\n');
    // The revision of the key is the ticket.
    written.claim.ticket = 0;
    if granted_here.is_some() {
        written.claim.token = None;
    }
    let hosts = [&*written.claim.holder.host];
    codec::write_head(&mut value, &Entry::default(), &hosts, Marks::default())?;
    codec::write_claim(&mut value, &written.claim, &hosts);
    Ok(value)
}

/// Reads a claim that was created and last written at these revisions.
pub(super) fn decode(value: &[u8], created: u64, modified: u64) -> Result<Written, DecodeError> {
    let mut lines = value.split(|byte| *byte == b'\n');
    let mut line = || lines.next().ok_or("it ends too early".to_owned());
    let first = line()?;
    let version: Version = serde_json::from_slice(first)
        .map_err(|error| format!("its first line: {}", short(&error)))?;
    if version.tenure > VERSION {
        return Err(DecodeError::Newer {
            version: version.tenure,
        });
    }
    let frame: Frame = serde_json::from_slice(first)
        .map_err(|error| format!("its first line: {}", short(&error)))?;
    let hosts = codec::read_head(line()?)?.hosts;
    let mut claim = codec::read_claim(line()?, &hosts)?;
    claim.ticket = created;
    if frame.granted_here {
        claim.token = Some(frame.floor.saturating_add(modified));
    }
    Ok(Written {
        claim,
        lease_key: frame.lease_key,
        was_reserved: frame.was_reserved,
    })
}

/// Writes the history of past holds.
pub(super) fn encode_header(history: History) -> Result<Vec<u8>, codec::CodecError> {
    let mut value = Vec::new();
    let entry = Entry {
        history,
        ..Entry::default()
    };
    codec::write_head(&mut value, &entry, &[], Marks::default())?;
    Ok(value)
}

/// Reads the history of past holds.
pub(super) fn decode_header(value: &[u8]) -> Result<History, String> {
    codec::read_head(value).map(|head| head.entry.history)
}

/// The instant `age_ms` before `now_ms`, as another machine would write it: with a wall clock only.
pub(super) fn stamp_before(now_ms: u64, age_ms: u64) -> Stamp {
    Stamp {
        wall_ms: now_ms.saturating_sub(age_ms),
        boot_ms: Stamp::OTHER_BOOT,
    }
}
