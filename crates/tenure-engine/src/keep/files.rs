//! Files that the kernel watches for the thread of a keeper, each under a number of its own.

#[cfg(target_os = "linux")]
pub(super) use linux::Files;
#[cfg(not(target_os = "linux"))]
pub(super) use unwatched::Files;

#[cfg(target_os = "linux")]
mod linux {
    use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
    use std::collections::HashMap;
    use std::mem::MaybeUninit;
    use tenure_os::os::{BorrowedDescriptor, Descriptor, Watch, borrow};

    /// A single watch for all holds.
    pub(in crate::keep) struct Files {
        watch: Descriptor,
        /// A file may be the lock of several holds.
        holds: HashMap<i32, Vec<u64>>,
    }

    impl Files {
        /// `None` where the system gives no more instances.
        pub(in crate::keep) fn new() -> Option<Self> {
            // A few instances are left to other programs of this user.
            let watch = Watch::new().ok()?;
            Some(Self {
                watch: watch.into_descriptor(),
                holds: HashMap::new(),
            })
        }

        pub(in crate::keep) fn descriptor(&self) -> BorrowedDescriptor<'_> {
            borrow(&self.watch)
        }

        /// `None` where the system gives no more watches.
        pub(in crate::keep) fn watch(&mut self, file: &str, hold: u64) -> Option<i32> {
            let what = WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF;
            let number = inotify::add_watch(&self.watch, file, what).ok()?;
            self.holds.entry(number).or_default().push(hold);
            Some(number)
        }

        pub(in crate::keep) fn forget(&mut self, number: i32, hold: u64) {
            if let Some(holds) = self.holds.get_mut(&number) {
                holds.retain(|other| *other != hold);
                if holds.is_empty() {
                    self.holds.remove(&number);
                    // A file that is gone has taken its watch with it.
                    let _ = inotify::remove_watch(&self.watch, number);
                }
            }
        }

        /// The holds whose files another process touched, as far as that can be seen. A heartbeat is
        /// one write, which the kernel reports once. It also reports equal events in a row once. So a
        /// change between two heartbeats of ours to one file cannot be told from them: then all holds
        /// of that file are returned.
        pub(in crate::keep) fn touched(&mut self, renewed: &[u64]) -> Vec<u64> {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.watch, &mut buffer);
            let mut once: HashMap<i32, bool> = HashMap::new();
            let mut touched = Vec::new();
            while let Ok(event) = reader.next() {
                if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                    touched.extend(self.holds.values().flatten());
                }
                let is_write = event.events() == ReadFlags::MODIFY;
                once.entry(event.wd())
                    .and_modify(|once| *once = false)
                    .or_insert(is_write);
            }
            for (number, once) in once {
                let holds = self.holds.get(&number).map_or(&[][..], Vec::as_slice);
                let is_ours = |hold: &&u64| renewed.contains(hold);
                let ours_alone = once && holds.iter().filter(is_ours).count() == 1;
                touched.extend(holds.iter().filter(|hold| !(ours_alone && is_ours(hold))));
            }
            touched.sort_unstable();
            touched.dedup();
            touched
        }
    }
}

/// No kernel reports on files here: the thread looks at every hold from time to time.
#[cfg(not(target_os = "linux"))]
mod unwatched {
    use std::convert::Infallible;
    use tenure_os::os::BorrowedDescriptor;

    /// No value exists: this system reports no changes of files.
    pub(in crate::keep) struct Files(Infallible);

    impl Files {
        pub(in crate::keep) fn new() -> Option<Self> {
            None
        }

        pub(in crate::keep) fn descriptor(&self) -> BorrowedDescriptor<'_> {
            match self.0 {}
        }

        pub(in crate::keep) fn watch(&mut self, _: &str, _: u64) -> Option<i32> {
            match self.0 {}
        }

        pub(in crate::keep) fn forget(&mut self, _: i32, _: u64) {
            match self.0 {}
        }

        pub(in crate::keep) fn touched(&mut self, _: &[u64]) -> Vec<u64> {
            match self.0 {}
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::Files;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Two watched files, of which the second is the lock of two holds.
    fn watched(folder: &tempfile::TempDir) -> (Files, [File; 2]) {
        let mut files = Files::new().expect("an inotify instance");
        let opened = ["a", "b"].map(|name| {
            let path = folder.path().join(name);
            let file = File::create(&path).expect("a file");
            let path = path.to_str().expect("a plain name");
            let holds: &[u64] = if name == "a" { &[1] } else { &[2, 3] };
            for hold in holds {
                assert!(files.watch(path, *hold).is_some(), "watched");
            }
            file
        });
        (files, opened)
    }

    fn write(file: &File) {
        file.write_all_at(b"x", 0).expect("a write");
    }

    #[test]
    fn a_heartbeats_own_write_is_told_from_what_others_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut files, [a, b]) = watched(&folder);
        write(&a);
        assert!(files.touched(&[1]).is_empty(), "our own");
        write(&a);
        assert_eq!(files.touched(&[]), [1], "another process's");
        write(&a);
        write(&b);
        assert_eq!(files.touched(&[1, 2]), [3], "the other hold of that file");
        write(&a);
        write(&b);
        write(&a);
        let all = files.touched(&[1, 2, 3]);
        assert_eq!(all, [1, 2, 3], "one of the two is not ours");
        for _ in 0..3 {
            write(&b);
        }
        let both = files.touched(&[2, 3]);
        assert_eq!(
            both,
            [2, 3],
            "another process may have come between two of ours"
        );
        write(&a);
        tenure_os::os::touch(&a).expect("its own file");
        assert_eq!(files.touched(&[1]), [1], "asked to stop beside a heartbeat");
        write(&a);
        std::fs::rename(folder.path().join("a"), folder.path().join("c")).expect("a file");
        assert_eq!(files.touched(&[1]), [1], "and gone beside one");
        assert!(files.touched(&[]).is_empty(), "told once");
    }
}
