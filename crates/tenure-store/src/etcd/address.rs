//! Where an etcd is, and how a client proves its identity: what a store's URL says, and what the
//! environment adds that has no place in a URL.
//!
//! ```text
//! etcd://HOST:PORT[,HOST:PORT...][/PREFIX]     in the clear
//! etcds://HOST:PORT[,HOST:PORT...][/PREFIX]    over TLS
//! ```
//!
//! Secrets are never part of a URL, because process lists, environments and records show URLs.

use std::fmt;
use std::path::PathBuf;

/// The port that etcd serves its clients on.
const PORT: u16 = 2379;

/// The prefix of all keys where the URL names none.
const PREFIX: &str = "/tenure";

/// The longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 512;

/// The variables that name files.
const AUTHORITY: &str = "TENURE_ETCD_CACERT";
const CERTIFICATE: &str = "TENURE_ETCD_CERT";
const KEY: &str = "TENURE_ETCD_KEY";

/// The servers of an etcd, and the prefix of the locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    endpoints: Vec<String>,
    prefix: String,
    tls: bool,
}

/// Why a URL names no etcd.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The URL begins with something else.
    #[error("it begins neither with etcd:// nor with etcds://")]
    Scheme,
    /// The URL has no host, or one of several is empty.
    #[error("no host is named; write etcd://HOST:PORT[,HOST:PORT]/PREFIX")]
    NoHost,
    /// A host has characters that no host has.
    #[error("{host:?} is no HOST:PORT")]
    Host {
        /// What stands there.
        host: String,
    },
    /// The URL has a user or a password in it.
    #[error(
        "a user or password in it would be seen by everybody; set TENURE_ETCD_USER to NAME:PASSWORD"
    )]
    Secret,
    /// The prefix is too long, or has characters that cannot be printed.
    #[error(
        "the prefix has to be up to {PREFIX_BYTES_MAX} printable ASCII characters without `?` and `#`, no part of it empty"
    )]
    Prefix,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// - [`AddressError`] says what is wrong with it.
    ///
    /// # Examples
    /// ```
    /// # mod tenure { pub use tenure_store as store; }
    /// use tenure::store::etcd::Address;
    /// let address: Address = Address::parse("etcd://10.0.0.1,10.0.0.2:4001/ci")?;
    /// assert_eq!(address.to_string(), "etcd://10.0.0.1:2379,10.0.0.2:4001/ci");
    /// assert!(Address::parse("etcd://me:secret@10.0.0.1/ci").is_err());
    /// # Ok::<(), tenure::store::etcd::AddressError>(())
    /// ```
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let (tls, rest) = match (url.strip_prefix("etcd://"), url.strip_prefix("etcds://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(AddressError::Scheme),
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.contains('@') {
            return Err(AddressError::Secret);
        }
        let endpoints = hosts.split(',').map(endpoint);
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let prefix = prefix.trim_end_matches('/');
        let is_printable =
            |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b';');
        let has_empty_part = !prefix.is_empty() && prefix.split('/').any(str::is_empty);
        if prefix.len() > PREFIX_BYTES_MAX || has_empty_part || !prefix.bytes().all(is_printable) {
            return Err(AddressError::Prefix);
        }
        Ok(Self {
            endpoints,
            prefix: if prefix.is_empty() {
                PREFIX.to_owned()
            } else {
                format!("/{prefix}")
            },
            tls,
        })
    }

    /// The beginning of all keys: it begins with a `/` and does not end with one.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// Whether consent to one address, as it is written, is consent to this one: to the scheme, to each server with its
    /// port, and to the path. A path counts by whole parts; consent without a path is for each of them.
    pub fn is_allowed_by(&self, consent: &str) -> bool {
        let Ok(named) = Self::parse(consent) else {
            return false;
        };
        let written = consent.split_once("://").map_or(consent, |(_, rest)| rest);
        let names_path = written.trim_end_matches('/').contains('/');
        let is_named = |host: &String| {
            let mut hosts = named.endpoints.iter();
            hosts.any(|other| other.eq_ignore_ascii_case(host))
        };
        let is_below = || match self.prefix.strip_prefix(&named.prefix) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        self.tls == named.tls && self.endpoints.iter().all(is_named) && (!names_path || is_below())
    }

    /// The servers, as `HOST:PORT`.
    pub fn servers(&self) -> Vec<String> {
        self.endpoints.clone()
    }

    pub(super) fn urls(&self) -> Vec<String> {
        let scheme = if self.tls { "https" } else { "http" };
        let endpoints = self.endpoints.iter();
        endpoints.map(|host| format!("{scheme}://{host}")).collect()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}{}", self.endpoints.join(","), self.prefix)
    }
}

/// Reads a `HOST[:PORT]`, and adds the port.
fn endpoint(text: &str) -> Result<String, AddressError> {
    if text.is_empty() {
        return Err(AddressError::NoHost);
    }
    let wrong = || AddressError::Host {
        host: text.to_owned(),
    };
    let (host, port) = match text.rsplit_once(':') {
        // Without brackets, a colon begins the port; an IPv6 address has to stand in brackets.
        Some((host, port)) if !port.ends_with(']') => {
            let port: u16 = port.parse().map_err(|_| wrong())?;
            (host, port)
        }
        _ => (text, PORT),
    };
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_host = inner.map_or_else(
        || !host.is_empty() && host.bytes().all(is_part),
        |address| address.parse::<std::net::Ipv6Addr>().is_ok(),
    );
    if !is_host || port == 0 {
        return Err(wrong());
    }
    Ok(format!("{host}:{port}"))
}

/// How a client proves its identity, and which authority it trusts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user and the password.
    pub user: Option<(String, String)>,
    /// The certificate authority that has to vouch for the servers, as PEM. Without one, an encrypted
    /// connection is refused, because it would prove nothing.
    pub authority: Option<Vec<u8>>,
    /// The client's own certificate and its key, as PEM, where the servers want one.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The files that these were read from. They are read again for each connection.
    pub files: CredentialFiles,
}

/// The files of [`Credentials`]; `None` for what is in no file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// Certificate of the authority.
    pub authority: Option<PathBuf>,
    /// The client's certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("authority", &self.authority.is_some())
            .field("certificate", &self.certificate.is_some())
            .field("files", &self.files)
            .finish()
    }
}

/// Why credentials could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file that a variable names cannot be read.
    #[error("{variable}: {}: {source}", path.display())]
    File {
        /// The variable.
        variable: &'static str,
        /// The file.
        path: PathBuf,
        /// How it failed.
        r#source: std::io::Error,
    },
    /// The user has no password, or the certificate no key.
    #[error("{0}")]
    Half(&'static str),
}

impl Credentials {
    /// Reads `TENURE_ETCD_USER` (`NAME:PASSWORD`), and the files that `TENURE_ETCD_CACERT`,
    /// `TENURE_ETCD_CERT` and `TENURE_ETCD_KEY` name.
    ///
    /// # Errors
    /// - [`CredentialsError::File`] if a file cannot be read.
    /// - [`CredentialsError::Half`] if one half of a pair is given without the other.
    pub fn from_environment() -> Result<Self, CredentialsError> {
        let told = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = |variable| told(variable).map(PathBuf::from);
        let user = match told("TENURE_ETCD_USER") {
            None => None,
            Some(user) => Some(
                (user.to_str())
                    .and_then(|user| user.split_once(':'))
                    .filter(|(name, _)| !name.is_empty())
                    .map(|(name, password)| (name.to_owned(), password.to_owned()))
                    .ok_or(CredentialsError::Half(
                        "TENURE_ETCD_USER: write NAME:PASSWORD",
                    ))?,
            ),
        };
        let certificate = match (file(CERTIFICATE), file(KEY)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return Err(CredentialsError::Half(
                    "TENURE_ETCD_CERT and TENURE_ETCD_KEY belong together; only one of them is set",
                ));
            }
        };
        let files = CredentialFiles {
            authority: file(AUTHORITY),
            certificate,
        };
        Self {
            user,
            files,
            ..Self::default()
        }
        .again()
    }

    /// Reads the files again: these credentials with what the files contain now.
    ///
    /// # Errors
    /// - [`CredentialsError::File`] if a file cannot be read.
    pub(super) fn again(&self) -> Result<Self, CredentialsError> {
        let read = |variable, path: &PathBuf| {
            std::fs::read(path).map_err(|source| CredentialsError::File {
                variable,
                path: path.clone(),
                source,
            })
        };
        let mut new = self.clone();
        if let Some(path) = &self.files.authority {
            new.authority = Some(read(AUTHORITY, path)?);
        }
        if let Some((certificate, key)) = &self.files.certificate {
            new.certificate = Some((read(CERTIFICATE, certificate)?, read(KEY, key)?));
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_as_it_was_meant() {
        for (url, meant) in [
            ("etcd://a", "etcd://a:2379/tenure"),
            ("etcd://a:1,b:2/", "etcd://a:1,b:2/tenure"),
            ("etcds://[::1]:5/x/y/", "etcds://[::1]:5/x/y"),
            ("etcd://[::1]/x", "etcd://[::1]:2379/x"),
        ] {
            let address = Address::parse(url).expect("an address");
            assert_eq!(address.to_string(), meant, "{url}");
            assert_eq!(Address::parse(meant).expect("the same"), address);
        }
    }

    #[test]
    fn consent_is_for_scheme_servers_and_whole_parts_of_the_path() {
        for (consent, wanted, is_allowed) in [
            ("etcd://good", "etcd://good", true),
            ("etcd://good", "etcd://good:2379/ci", true),
            ("etcd://good/", "etcd://good/ci", true),
            ("etcd://good", "etcd://GOOD/ci", true),
            ("etcd://good", "etcd://good:2380", false),
            ("etcd://good", "etcds://good", false),
            ("etcds://good", "etcd://good", false),
            ("etcd://good", "etcd://good.evil.example", false),
            ("etcd://good", "etcd://evil/good", false),
            ("etcd://good", "etcd://good,evil", false),
            ("etcd://good,other", "etcd://good", true),
            ("etcd://good,other", "etcd://other,good", true),
            ("etcd://good/ci", "etcd://good/ci", true),
            ("etcd://good/ci/", "etcd://good/ci/team", true),
            ("etcd://good/ci", "etcd://good/ci2", false),
            ("etcd://good/ci", "etcd://good", false),
            ("etcd://good/tenure", "etcd://good", true),
            ("etcd://[::1]", "etcd://[::1]/x", true),
            ("etcd://u:p@good", "etcd://good", false),
            ("good", "etcd://good", false),
            ("", "etcd://good", false),
        ] {
            let address = Address::parse(wanted).expect("an address");
            assert_eq!(
                address.is_allowed_by(consent),
                is_allowed,
                "{consent:?} for {wanted}"
            );
        }
    }

    #[test]
    fn what_is_no_address_is_told_apart() {
        let host = |host: &str| AddressError::Host {
            host: host.to_owned(),
        };
        for (url, why) in [
            ("http://a", AddressError::Scheme),
            ("etcd:a", AddressError::Scheme),
            ("etcd://", AddressError::NoHost),
            ("etcd://a,,b/x", AddressError::NoHost),
            ("etcd://a:b", host("a:b")),
            ("etcd://a:0", host("a:0")),
            ("etcd://::1", host("::1")),
            ("etcd://a b", host("a b")),
            ("etcd://u:p@a", AddressError::Secret),
            ("etcd://a//x", AddressError::Prefix),
            ("etcd://a/x\u{1b}[0m", AddressError::Prefix),
            ("etcd://a/x?y", AddressError::Prefix),
        ] {
            assert_eq!(Address::parse(url), Err(why), "{url}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let credentials = Credentials {
            user: Some(("me".to_owned(), "secret".to_owned())),
            ..Credentials::default()
        };
        let shown = format!("{credentials:?}");
        assert!(shown.contains("me") && !shown.contains("secret"), "{shown}");
    }
}
