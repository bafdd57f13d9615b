//! Opens files that another program may have put there. A pipe, a device, a socket or a folder of that name is refused,
//! and nothing is waited for.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Opens a regular file as these options say.
///
/// # Errors
/// - `InvalidInput` if something else stands there.
/// - Whatever the system answers.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let is_none = || io::Error::new(ErrorKind::InvalidInput, "it is no regular file");
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        options.custom_flags(flags.cast_signed());
    }
    let opened = match options.open(path) {
        // A socket, or a pipe that nobody reads.
        #[cfg(unix)]
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            return Err(is_none());
        }
        other => other?,
    };
    if opened.metadata()?.is_file() {
        Ok(opened)
    } else {
        Err(is_none())
    }
}

/// The bytes of a regular file of at most so many bytes.
///
/// # Errors
/// - `InvalidInput` if something else stands there.
/// - `FileTooLarge` if it has more.
/// - Whatever the system answers.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it is larger than {most} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// The text of a regular file of at most so many bytes.
///
/// # Errors
/// - `InvalidData` if it is not UTF-8.
/// - As [`bytes`].
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    let read = String::from_utf8(bytes(path, most)?);
    read.map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}
