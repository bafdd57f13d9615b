//! The names of system errors, as an audit tells them.

use std::io;

/// The names of the errors that calls of this library may have.
macro_rules! names {
    ($($name:ident)*) => {
        fn name_of(number: i32) -> Option<&'static str> {
            match number {
                $(libc::$name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

names! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBUSY ECANCELED ECHILD ECONNABORTED ECONNREFUSED
    ECONNRESET EDEADLK EDESTADDRREQ EDOM EDQUOT EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EIDRM EILSEQ EINPROGRESS EINTR EINVAL
    EIO EISCONN EISDIR ELOOP EMFILE EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENETDOWN ENETRESET ENETUNREACH ENFILE ENOBUFS ENODATA
    ENODEV ENOENT ENOEXEC ENOLCK ENOLINK ENOMEM ENOPROTOOPT ENOSPC ENOSYS ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTRECOVERABLE
    ENOTSOCK ENOTTY ENXIO EOPNOTSUPP EOVERFLOW EOWNERDEAD EPERM EPIPE EPROTO ERANGE EROFS ESHUTDOWN ESPIPE ESRCH ESTALE ETIMEDOUT
    ETXTBSY EUSERS EXDEV
}

/// A system error by its name, and in the system's words: `EACCES: permission denied`.
pub fn error_text(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else {
        return error.to_string();
    };
    let said = error.to_string();
    let words = said.strip_suffix(&format!(" (os error {number})"));
    let (name, words) = (name_of(number), words.unwrap_or(&said));
    let name = name.map_or_else(|| format!("error {number}"), str::to_owned);
    let mut rest = words.chars();
    match rest.next() {
        // `I/O error` stays as it is.
        Some(first) if rest.clone().next().is_some_and(char::is_lowercase) => {
            format!("{name}: {}{}", first.to_ascii_lowercase(), rest.as_str())
        }
        _ => format!("{name}: {words}"),
    }
}
