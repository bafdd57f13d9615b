//! The wall clock is set back and forth under a hold, on the real file store with each profile.
//!
//! The test hands the store its instants, as a clock shows them that was set; nothing else on this
//! machine is affected. Our record shows its age by the boot clock, which no setting moves. A published
//! record has room for the wall clock alone; for our own holds the list beside it keeps the boot clock.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test says what it expects by failing, and its folders are its own"
)]

use std::path::Path;
use tenure_core::{
    Entering, Force, Holder, Kind, LockName, Now, Patience, Policy, Renewal, Request, RequestId,
    StaleReason, Standing, Terms,
};
use tenure_engine::formats::{self, Settings};
use tenure_os::clock::{Clock, SystemClock};
use tenure_os::process::Identity;
use tenure_store::Handle;
use tenure_store::Verbs;
use tenure_store::file::{FileStore, ThreadSleeper};
use tenure_store::verbs::Entered;
use tenure_store::{Content, Store, StoreError};

const HOUR_US: u64 = 3_600_000_000;

/// A claim of a caller in this process.
type ClaimHandle = Box<dyn Handle>;

struct Scene {
    _folder: tempfile::TempDir,
    store: FileStore,
    name: LockName,
    policy: Policy,
    identity: Identity,
    start: Now,
}

impl Scene {
    fn new(profile: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Identity::current();
        let made = formats::by_name(profile, &Settings::default());
        let made = made.expect("a profile");
        let policy = made.policy();
        let name = match profile {
            "sprint" => "sprint",
            "session" => "42",
            _ => "a",
        };
        let place = made.folder(folder.path());
        make(&place);
        let mut here = identity.host.clone();
        here.machine_id = Some("a machine".to_owned());
        let store = FileStore::with_profile(made, folder.path(), here, Box::new(ThreadSleeper));
        let start = SystemClock::new(identity.host.boot_id.as_deref()).now();
        Self {
            _folder: folder,
            store,
            name: LockName::new(name).expect("a name"),
            policy,
            identity,
            start,
        }
    }

    /// The instant after this much time, with the wall clock set by `stepped_us`.
    fn at(&self, passed_ms: u64, stepped_us: i64) -> Now {
        Now {
            wall_us: (self.start.wall_us + passed_ms * 1_000).saturating_add_signed(stepped_us),
            boot_ms: self.start.boot_ms + passed_ms,
            boot_id: self.start.boot_id.clone(),
        }
    }

    fn enter(&self, id: &str, now: &Now) -> (Option<ClaimHandle>, Entering) {
        let entered = self.try_enter(id, now).expect("an answer");
        (entered.handle, entered.entering)
    }

    fn try_enter(&self, id: &str, now: &Now) -> Result<Entered, StoreError> {
        self.store.enter(&self.name, self.request(id), now)
    }

    fn request(&self, id: &str) -> Request {
        Request {
            holder: Holder {
                request_id: RequestId::new(id).expect("an id"),
                actor: "clock".to_owned(),
                process: Some(self.identity.process),
                command: None,
                host: self.identity.host.clone().into(),
                why: String::new(),
                facts: ["intent", "intent_version"]
                    .map(|key| (key.to_owned(), "1".to_owned()))
                    .to_vec(),
            },
            kind: Kind::Detached,
            ttl_ms: self.policy.detached_ttl_ms,
            force: Force::No,
            patience: Patience::AtOnce,
            terms: Terms::default(),
        }
    }

    /// Takes the lock by its ttl alone, on a boot that has ended since.
    fn hold_before_restart(&self) {
        let mut request = self.request("first-1");
        request.holder.process = None;
        request.holder.set_ttl_chosen();
        let mut host = self.identity.host.clone();
        host.machine_id = Some("a machine".to_owned());
        host.boot_id = Some("an ended boot".to_owned());
        request.holder.host = host.into();
        let entered = self
            .store
            .enter(&self.name, request, &self.start)
            .expect("an answer");
        assert!(
            matches!(entered.entering, Entering::Granted { .. }),
            "{}",
            self.policy.name
        );
    }

    fn hold(&self, id: &str, now: &Now) -> (ClaimHandle, u64) {
        match self.enter(id, now) {
            (Some(handle), Entering::Granted { token, .. }) => (handle, token),
            (_, other) => panic!("{}: {id} is not granted: {other:?}", self.policy.name),
        }
    }

    fn standing(&self, now: &Now) -> Standing {
        let reading = self.store.read(&self.name, None).expect("a reading");
        let Content::Whole { entry, .. } = &reading.content else {
            panic!("{}: not readable", self.policy.name);
        };
        let claim = entry.granted().next().expect("a holder");
        reading.standing_of(&self.policy, claim, now)
    }
}

fn make(folder: &Path) {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).expect("a folder");
}

const PROFILES: [&str; 5] = ["native", "sprint", "resume", "session", "fleet"];

fn hours(count: i64) -> i64 {
    count * i64::try_from(HOUR_US).expect("an hour")
}

#[test]
fn a_clock_that_is_set_back_takes_nobody_s_lock_and_brings_no_token_back() {
    for profile in PROFILES {
        let scene = Scene::new(profile);
        let (first, before) = scene.hold("first-1", &scene.at(0, 0));
        // Not beyond a fleet's ttl, which has a rule of its own, below.
        let back = if profile == "fleet" {
            scene.at(1_000, hours(-1) / 12)
        } else {
            scene.at(1_000, hours(-30))
        };
        assert!(
            matches!(scene.standing(&back), Standing::Held(_)),
            "{profile}: {:?}",
            scene.standing(&back)
        );
        let (_, refused) = scene.enter("second-1", &back);
        assert!(
            matches!(refused, Entering::Refused(_)),
            "{profile}: {refused:?}"
        );
        let renewed = scene.store.renew(&*first, &back).expect("a renewal");
        assert!(
            matches!(renewed, Renewal::Renewed { .. }),
            "{profile}: {renewed:?}"
        );
        assert!(
            matches!(scene.standing(&back), Standing::Held(_)),
            "{profile}: renewed"
        );
        scene.store.release(&*first, &back).expect("a release");
        let (second, after) = scene.hold("second-1", &back);
        assert!(after > before, "{profile}: {after} is not above {before}");
        scene.store.release(&*second, &back).expect("a release");
    }
}

/// The formats of session and fleet have only the wall clock's time. For our own hold, the list beside
/// the record has the boot clock's.
#[test]
fn a_clock_that_is_set_forward_makes_no_hold_of_ours_older() {
    for profile in PROFILES {
        let scene = Scene::new(profile);
        let (first, before) = scene.hold("first-1", &scene.at(0, 0));
        for hours_ahead in [1, 30, 24 * 365] {
            let ahead = scene.at(1_000, hours(hours_ahead));
            let standing = scene.standing(&ahead);
            assert!(
                matches!(standing, Standing::Held(_)),
                "{profile}, {hours_ahead} h ahead: {standing:?}"
            );
            let (_, refused) = scene.enter("second-1", &ahead);
            assert!(
                matches!(refused, Entering::Refused(_)),
                "{profile}, {hours_ahead} h ahead: {refused:?}"
            );
        }
        let ahead = scene.at(2_000, hours(30));
        scene.store.release(&*first, &ahead).expect("a release");
        let (second, after) = scene.hold("second-1", &ahead);
        assert!(after > before, "{profile}: {after} is not above {before}");
        scene.store.release(&*second, &ahead).expect("a release");
        // And back to where it was: numbers that a fast clock has given out are not given out again.
        let (third, last) = scene.hold("third-1", &scene.at(3_000, 0));
        assert!(last > after, "{profile}: {last} is not above {after}");
        scene
            .store
            .release(&*third, &scene.at(3_000, 0))
            .expect("a release");
    }
}

/// Where only its age ends a hold, a clock that was set back must not make the hold younger.
#[test]
fn a_clock_that_is_set_back_keeps_no_hold_of_ours_for_longer() {
    let minute_ms = 60_000;
    for (profile, limit_ms, back_us) in [
        ("sprint", 24 * 60 * minute_ms, hours(-30)),
        ("session", 10 * minute_ms, hours(-30)),
        // Beyond its ttl, the rule below applies to that format.
        ("fleet", 15 * minute_ms, hours(-1) / 12),
    ] {
        let scene = Scene::new(profile);
        let (first, before) = scene.hold("first-1", &scene.at(0, 0));
        let renewed_ms = if profile == "sprint" {
            0
        } else {
            let at = scene.at(minute_ms, back_us / 2);
            scene.store.renew(&*first, &at).expect("a renewal");
            minute_ms
        };
        let young = scene.at(renewed_ms + limit_ms - 2_000, back_us);
        assert!(
            matches!(scene.standing(&young), Standing::Held(_)),
            "{profile}: {:?}",
            scene.standing(&young)
        );
        let old = scene.at(renewed_ms + limit_ms + 2_000, back_us);
        assert_eq!(
            scene.standing(&old),
            Standing::Stale(StaleReason::Aged),
            "{profile}"
        );
        if profile == "session" {
            let (_, after) = scene.hold("second-1", &old);
            assert!(after > before, "{profile}: {after} is not above {before}");
        }
    }
}

/// The record of a session has room for one time; the list keeps when the hold began.
#[test]
fn a_renewal_by_a_clock_that_was_set_back_moves_no_beginning() {
    for profile in PROFILES {
        let scene = Scene::new(profile);
        let (first, _) = scene.hold("first-1", &scene.at(0, 0));
        let back = scene.at(1_000, hours(-1) / 12);
        scene.store.renew(&*first, &back).expect("a renewal");
        let reading = scene.store.read(&scene.name, None).expect("a reading");
        let Content::Whole { entry, .. } = &reading.content else {
            panic!("{profile}: not readable");
        };
        let claim = entry.granted().next().expect("a holder");
        let boot = claim.holder.host.boot_id.as_deref();
        let age = claim
            .since
            .map(|since| since.age_ms(boot, &scene.at(2_000, hours(-1) / 12)));
        assert_eq!(age, Some(2_000), "{profile}");
        assert_eq!(claim.holder.fact("future"), None, "{profile}");
    }
}

/// A fleet's record whose heartbeat lies further ahead than its ttl is corrupt by that format's rule. How old our own one is
/// the boot clock knows, so its holder renews and releases it whatever was done to the wall clock.
#[test]
fn a_fleet_s_holder_keeps_its_lock_after_the_clock_was_set_back() {
    let scene = Scene::new("fleet");
    let (first, _) = scene.hold("first-1", &scene.at(0, 0));
    let back = scene.at(1_000, hours(-30));
    let (_, refused) = scene.enter("second-1", &back);
    assert!(matches!(refused, Entering::Refused(_)), "{refused:?}");
    let renewed = scene.store.renew(&*first, &back).expect("a renewal");
    assert!(matches!(renewed, Renewal::Renewed { .. }), "{renewed:?}");
    let further = scene.at(2_000, hours(-60));
    scene.store.release(&*first, &further).expect("a release");
    let (second, _) = scene.hold("second-1", &further);
    scene
        .store
        .release(&*second, &further)
        .expect("its own release");
}

/// After a power cut the clock of a machine without a battery starts in 1970, or somewhere behind. A time that lies in the
/// future of another boot of this machine is no time: a hold by ttl is as old as the boot that is running.
#[test]
fn a_hold_by_ttl_ends_after_a_restart_with_a_clock_that_is_behind() {
    // The locks of the two others live by a process, and that one ended with its boot.
    for profile in ["native", "session", "fleet"] {
        for wall_us in [1, HOUR_US, hours_before(1)] {
            let scene = Scene::new(profile);
            scene.hold_before_restart();
            let since_boot = |boot_ms| Now {
                wall_us: wall_us + boot_ms * 1_000,
                boot_ms,
                boot_id: scene.start.boot_id.clone(),
            };
            let limit_ms = scene.policy.detached_ttl_ms;
            let young = since_boot(limit_ms - 2_000);
            let standing = scene.standing(&young);
            assert!(
                matches!(standing, Standing::Held(_)),
                "{profile}, {wall_us}: {standing:?}"
            );
            let old = since_boot(limit_ms + 2_000);
            let standing = scene.standing(&old);
            assert!(
                matches!(standing, Standing::Stale(_)),
                "{profile}, {wall_us}: {standing:?}"
            );
            let request = Request {
                force: Force::Asked,
                ..scene.request("second-1")
            };
            let entered = scene.store.enter(&scene.name, request, &old);
            let entering = entered.map(|entered| entered.entering);
            assert!(
                matches!(entering, Ok(Entering::Granted { .. })),
                "{profile}, {wall_us}: {entering:?}"
            );
        }
    }
}

fn hours_before(count: u64) -> u64 {
    let now = SystemClock::new(None).now();
    now.wall_us - count * HOUR_US
}
