//! The names of the keys of a lock, all of them below the prefix of the store.
//!
//! ```text
//! PREFIX/locks/floor               what is added to each revision to make a token (`floor`)
//! PREFIX/locks/NAME/header         past holds
//! PREFIX/locks/NAME/ahead          there while a claim holds that went before waiting ones
//! PREFIX/locks/NAME/claims/ID      one claim; its creation revision is the ticket
//! PREFIX/locks/NAME/lives/ID       there for as long as the lease of that claim runs
//! ```
//!
//! A lock's name has no `/`, so no key of one lock begins like the keys of another.

use tenure_core::LockName;

/// What the locks begin with, below the prefix.
const LOCKS: &str = "/locks/";

/// What the claims of a lock begin with, below the lock.
const CLAIMS: &str = "claims/";

/// What the lease keys of a lock begin with, below the lock.
const LEASE_KEYS: &str = "lives/";

/// The names below one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// `prefix` begins with a `/` and does not end with one; empty for the top.
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// What the keys of all locks begin with.
    pub(super) fn locks(&self) -> String {
        [self.prefix.as_str(), LOCKS].concat()
    }

    /// The key of the floor of tokens. Its name is no lock's, whose keys have one part more.
    pub(super) fn floor(&self) -> String {
        [self.prefix.as_str(), LOCKS, "floor"].concat()
    }

    /// A key of one lock. Each request has some of them, so they are joined and not formatted.
    fn key(&self, name: &LockName, what: &str, id: &str) -> String {
        [self.prefix.as_str(), LOCKS, name.as_str(), "/", what, id].concat()
    }

    /// What the keys of one lock begin with.
    pub(super) fn lock(&self, name: &LockName) -> String {
        self.key(name, "", "")
    }

    pub(super) fn header(&self, name: &LockName) -> String {
        self.key(name, "header", "")
    }

    /// The key that stands from the grant of a claim that went before waiting ones, until a change finds
    /// no such claim.
    pub(super) fn ahead(&self, name: &LockName) -> String {
        self.key(name, "ahead", "")
    }

    /// What the claims of a lock begin with.
    pub(super) fn claims(&self, name: &LockName) -> String {
        self.key(name, CLAIMS, "")
    }

    pub(super) fn claim(&self, name: &LockName, id: &str) -> String {
        self.key(name, CLAIMS, id)
    }

    /// What the lease keys of a lock begin with.
    pub(super) fn lease_keys(&self, name: &LockName) -> String {
        self.key(name, LEASE_KEYS, "")
    }

    pub(super) fn lease_key(&self, name: &LockName, id: &str) -> String {
        self.key(name, LEASE_KEYS, id)
    }

    /// The lock that a key shows to be there. A lease key shows none: each one belongs to a claim that has
    /// a key of its own, or is a tombstone, which outlasts its lock (`attempt`).
    pub(super) fn name_of(&self, key: &[u8]) -> Option<LockName> {
        let rest = key.strip_prefix(self.locks().as_bytes())?;
        let mut parts = rest.splitn(2, |byte| *byte == b'/');
        let (name, what) = (parts.next()?, parts.next()?);
        if what.starts_with(LEASE_KEYS.as_bytes()) {
            return None;
        }
        LockName::new(std::str::from_utf8(name).ok()?).ok()
    }
}

/// The end of the range of all keys that begin with `prefix`, which ends with a `/`: the same with
/// the next character in its place.
pub(super) fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    end.pop();
    end.push('0');
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_other_versions_know() {
        let keys = Keys::new("/a/b".to_owned());
        let name = LockName::new("deploy").expect("a name");
        for (key, expected) in [
            (keys.locks(), "/a/b/locks/"),
            (keys.floor(), "/a/b/locks/floor"),
            (keys.lock(&name), "/a/b/locks/deploy/"),
            (keys.header(&name), "/a/b/locks/deploy/header"),
            (keys.ahead(&name), "/a/b/locks/deploy/ahead"),
            (keys.claims(&name), "/a/b/locks/deploy/claims/"),
            (keys.claim(&name, "7-1"), "/a/b/locks/deploy/claims/7-1"),
            (keys.lease_keys(&name), "/a/b/locks/deploy/lives/"),
            (keys.lease_key(&name, "7-1"), "/a/b/locks/deploy/lives/7-1"),
        ] {
            assert_eq!(key, expected);
        }
    }

    #[test]
    fn no_lock_sees_the_keys_of_another() {
        let keys = Keys::new("/a".to_owned());
        let name = |name: &str| LockName::new(name).expect("a name");
        let range = |lock: &LockName| (keys.lock(lock), end_of(&keys.lock(lock)));
        let names = ["deploy", "deploy-eu", "deploy.2", "deploy0", "a", "claims"].map(name);
        for one in &names {
            let (begin, end) = range(one);
            for other in &names {
                for key in [
                    keys.header(other),
                    keys.ahead(other),
                    keys.claim(other, "1-1"),
                    keys.lease_key(other, "1-1"),
                ] {
                    let inside = begin <= key && key < end;
                    assert_eq!(inside, one == other, "{key} for {one}");
                    let shows = (key != keys.lease_key(other, "1-1")).then_some(other);
                    assert_eq!(keys.name_of(key.as_bytes()).as_ref(), shows);
                }
            }
        }
        assert_eq!(keys.name_of(b"/b/locks/x/header"), None);
        assert_eq!(keys.name_of(keys.floor().as_bytes()), None);
    }
}
