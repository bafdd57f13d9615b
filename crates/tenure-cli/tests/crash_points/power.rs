//! The power is cut in the middle of a story: some calls of the real binary on one lock, one after the other. The machine
//! starts again, and the next caller looks at what the disk may hold then ([`Disk`]), in another boot.
//!
//! For each image of the disk:
//! - the record is one that stood there, or damaged and known to be so; nobody is named as the holder who never was;
//! - a look, a list and a cleaning come to an end;
//! - the next caller gets the lock without help, or is refused as the format's rule says, and then it gets the lock when
//!   that rule lets it, by time or by force. While it has the lock, no other caller gets in;
//! - its token is higher than every token before the cut.
//!
//! `TENURE_POWER_CUTS=long` cuts everywhere and draws up to a hundred images for each cut.

use crate::disk::{CALLS, Disk, Image, Random};
use crate::driver::Injection;
use crate::support_crash::{Fault, Process, Site, need, try_each, word};
use crate::support_published::Format;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use tenure_core::{
    Claim, Entering, Force, Holder, Host, Kind, LockName, Now, Ownership, Patience, Policy,
    Process as Owner, Reason, Released, Request, RequestId, Standing,
};
use tenure_engine::formats::{Settings, by_name};
use tenure_os::clock::{Clock, SystemClock};
use tenure_os::process::{Identity, start_time};
use tenure_store::contract::Which;
use tenure_store::file::{FileStore, ThreadSleeper};
use tenure_store::profile::known_as;
use tenure_store::{Content, Store, StoreError, Verbs};

/// How many images are drawn for each cut.
const DRAWN: usize = 4;
const DRAWN_LONG: usize = 100;

/// Longer than any hold of these stories lasts by its ttl.
const LATER: Duration = Duration::from_secs(17 * 60);

/// What is cut: calls on one lock, by a format's rules.
struct Story {
    title: &'static str,
    /// `None` for a native lock.
    format: Option<Format>,
    /// The calls, without profile and place: verb, then flags.
    calls: Vec<String>,
    /// Holds that do not end with the machine, but with their ttl.
    outlives: bool,
    /// A grant that was answered is on the disk.
    is_durable: bool,
}

/// What the next caller found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// The next caller got the lock at once.
    Free,
    /// The next caller got the lock when the hold before had run out.
    Held,
    /// The next caller got the lock by force, as a dead holder's.
    Forced,
    /// The next caller got the lock by force: the list of the lock cannot be read.
    Unreadable,
    /// The next caller got the lock by force: the record is damaged, and nothing says whose it was.
    Damaged,
}

impl Story {
    fn new(title: &'static str, format: Option<Format>, calls: &[&str]) -> Self {
        Self {
            title,
            format,
            calls: calls.iter().map(|&call| call.to_owned()).collect(),
            outlives: matches!(format, Some(Format::Session | Format::Fleet)),
            is_durable: false,
        }
    }

    fn name(&self) -> LockName {
        let name = self.format.map_or("prize", Format::lock);
        LockName::new(name).expect("a name")
    }

    fn policy(&self) -> Policy {
        let profile = self.format.map_or("native", Format::profile);
        let mut all = Policy::ALL.into_iter();
        all.find(|policy| policy.name == profile).expect("a policy")
    }

    fn place(&self, site: &Site) -> PathBuf {
        self.format
            .map_or_else(|| site.locks(), |format| format.place(site))
    }

    /// The record below the site.
    fn record(&self, site: &Site) -> Option<String> {
        let record = self.format?.record(site);
        let below = record
            .strip_prefix(site.path(""))
            .expect("a record of the site");
        Some(word(below).to_owned())
    }

    fn store(&self, site: &Site, here: &Host) -> FileStore {
        let profile = by_name(self.policy().name, &Settings::default()).expect("a profile");
        FileStore::with_profile(
            profile,
            &self.place(site),
            here.clone(),
            Box::new(ThreadSleeper),
        )
    }

    /// Makes the calls. Answers with the changes, and how many there were when each call had answered.
    fn record_calls(&self) -> Result<(Disk, Vec<usize>), Fault> {
        let site = Site::new();
        let root = site.path("");
        let mut disk = Disk::new(std::path::Path::new(word(&root).trim_end_matches('/')));
        let mut answered = Vec::new();
        if let Some(format) = self.format {
            format.prepare(&site);
            disk.has_folder(&format.folder(&site));
        }
        for call in &self.calls {
            let mut words = call.split(' ');
            let verb = words.next().expect("a verb");
            let owner = std::process::id().to_string();
            let more: Vec<&str> = words
                .map(|word| if word == "US" { &owner } else { word })
                .collect();
            let words = match self.format {
                Some(format) => format.words(&site, verb, &more),
                None => [&[verb, "prize"][..], &more]
                    .concat()
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            };
            let file = site.path("trace");
            let mut strace = Injection::Trace(file.clone()).strace();
            strace.args(["-x", "-s", "8388608", "-e", CALLS]);
            let words = words.iter().map(String::as_str);
            let answer = Process::start(site.tenure_under(strace, words)).answer()?;
            crate::ensure!(answer.is(0), "{call}: {answer}");
            disk.take(&std::fs::read_to_string(&file).map_err(|error| error.to_string())?);
            answered.push(disk.len());
        }
        Ok((disk, answered))
    }
}

/// What there was before the cut.
struct Past {
    /// All records that ever stood there.
    records: BTreeSet<Vec<u8>>,
    token: u64,
    ids: BTreeSet<String>,
}

/// The machine after its next start.
struct NextBoot<'a> {
    story: &'a Story,
    past: &'a Past,
    here: Host,
}

impl NextBoot<'_> {
    fn now(&self, later: Duration) -> Now {
        let mut now = SystemClock::new(self.here.boot_id.as_deref()).now();
        now.wall_us += u64::try_from(later.as_micros()).expect("a short time");
        // The machine has just started again.
        now.boot_ms = 5_000 + u64::try_from(later.as_millis()).expect("a short time");
        now
    }

    fn request(&self, id: &str, force: Force) -> Request {
        let pid = std::process::id();
        let facts = [
            ("intent", "x"),
            ("intent_version", "1"),
            ("epic_spec", "epic5"),
        ];
        Request {
            holder: Holder {
                request_id: RequestId::new(id).expect("an id"),
                actor: "test".to_owned(),
                process: Some(Owner {
                    pid,
                    started: start_time(pid),
                }),
                command: None,
                host: self.here.clone().into(),
                why: "testing".to_owned(),
                facts: facts
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .to_vec(),
            },
            kind: Kind::Detached,
            ttl_ms: self.story.policy().detached_ttl_ms,
            force,
            patience: Patience::AtOnce,
            terms: tenure_core::Terms::default(),
        }
    }

    /// The token that a caller gets, or why it gets none.
    fn enter(
        &self,
        store: &FileStore,
        id: &str,
        force: Force,
        later: Duration,
    ) -> Result<Result<u64, Reason>, Fault> {
        let request = self.request(id, force);
        match store.enter(&self.story.name(), request, &self.now(later)) {
            Ok(entered) => match entered.entering {
                Entering::Granted { token, .. } => Ok(Ok(token)),
                Entering::Refused(refusal) => Ok(Err(refusal.reason)),
                other => Err(format!("{id} was answered {other:?}")),
            },
            Err(StoreError::Unreadable { .. }) => Ok(Err(Reason::Unreadable)),
            Err(error) => Err(format!("{id}: {error}")),
        }
    }

    /// Whether the list beside a record cannot be read, as that of a native lock it would be before its machine ended.
    fn is_list_torn(&self, site: &Site) -> Result<bool, Fault> {
        let Some(format) = self.story.format else {
            return Ok(false);
        };
        let record = format.record(site);
        let name = record.file_name().and_then(|name| name.to_str());
        let Ok(name) = LockName::new(name.unwrap_or_default()) else {
            return Ok(false);
        };
        let folder = format.folder(site).join(".tenure");
        let then = Identity::current().host;
        let lists = FileStore::new(folder, then, Box::new(ThreadSleeper));
        let reading = lists.read(&name, None).map_err(|error| error.to_string())?;
        Ok(matches!(reading.content, Content::Unreadable { .. }))
    }

    /// Looks at an image, and takes the lock.
    fn look(&self, image: &Image, cleans: bool) -> Result<Found, Fault> {
        let site = Site::new();
        if let Some(format) = self.story.format {
            format.prepare(&site);
        }
        image.lay_out(&site.path(""));
        let store = self.story.store(&site, &self.here);
        let (name, policy) = (self.story.name(), self.story.policy());
        let reading = store
            .read(&name, None)
            .map_err(|error| format!("check: {error}"))?;
        let now = self.now(Duration::ZERO);
        let (standing, holder) = reading.standing(&policy, &now);
        if let Some(holder) = holder {
            let id = known_as(&holder.holder);
            crate::ensure!(self.past.ids.contains(id), "{id} never was a holder");
        }
        store
            .names(Which::Locks, &mut |_| {})
            .map_err(|error| format!("list: {error}"))?;
        match store.clean(&name, &now, !cleans) {
            Ok(_) | Err(StoreError::Unreadable { .. }) => {}
            Err(error) => return Err(format!("clean: {error}")),
        }
        let record = self
            .story
            .record(&site)
            .and_then(|record| image.files.get(&record));
        let is_whole = record.is_none_or(|record| self.past.records.contains(record));
        // Beside a torn list an empty record is damaged as any other is.
        let is_empty = record.is_some_and(|record| record.iter().all(|byte| *byte == 0));
        let is_empty = is_empty && !self.is_list_torn(&site)?;
        let is_list_read = !matches!(&reading.content, Content::Unreadable { .. } if is_whole);
        let at_once = Duration::ZERO;
        let plain = self.enter(&store, "next-1", Force::No, at_once)?;
        let (token, later, found) = match plain {
            Ok(token) => {
                // Who was alive by the rule of the format is not taken over.
                crate::ensure!(
                    !matches!(standing, Standing::Held(_) | Standing::Unknown) || cleans,
                    "it was {standing:?}, and the next caller got it"
                );
                crate::ensure!(
                    is_whole || is_empty || holder.is_some() || policy.name == "session",
                    "the record was damaged, nothing said whose it was, and the next caller got it"
                );
                (token, at_once, Found::Free)
            }
            Err(Reason::Unreadable) if !is_list_read => {
                let forced = self.enter(&store, "next-1", Force::Confirmed, at_once)?;
                let token =
                    forced.map_err(|reason| format!("a torn list, and force: {reason:?}"))?;
                (token, at_once, Found::Unreadable)
            }
            Err(reason) => self.insist(&store, reason, is_whole, is_empty)?,
        };
        crate::ensure!(
            token > self.past.token,
            "token {token} is not above {}",
            self.past.token
        );
        self.alone(&store, later)?;
        Ok(found)
    }

    /// Gets the lock after a refusal: when the format's rule lets a caller have it.
    fn insist(
        &self,
        store: &FileStore,
        reason: Reason,
        is_whole: bool,
        is_empty: bool,
    ) -> Result<(u64, Duration, Found), Fault> {
        let at_once = Duration::ZERO;
        let get = |force, later| self.enter(store, "next-1", force, later);
        let wedged = |what: &str, again: Reason| format!("{reason:?}, and {what}: {again:?}");
        let (later, force, found) = match self.story.format {
            None if self.story.outlives => (LATER, Force::No, Found::Held),
            None => return Err(format!("refused after the end of its machine: {reason:?}")),
            Some(Format::Sprint) => (at_once, Force::Asked, Found::Forced),
            Some(Format::Resume) if is_whole || is_empty => {
                return Err(format!("its owner ended with the machine: {reason:?}"));
            }
            Some(Format::Resume) => (at_once, Force::Asked, Found::Damaged),
            Some(Format::Session) if is_whole => (LATER, Force::No, Found::Held),
            Some(Format::Session) => return Err(format!("a damaged record: {reason:?}")),
            Some(Format::Fleet) if is_empty => (at_once, Force::Asked, Found::Damaged),
            Some(Format::Fleet) if is_whole => {
                let forced = get(Force::Asked, at_once)?;
                crate::ensure!(forced.is_err(), "an active lock was forced");
                let unforced = get(Force::No, LATER)?;
                crate::ensure!(unforced.is_err(), "a stale lock went without force");
                (LATER, Force::Asked, Found::Held)
            }
            Some(Format::Fleet) => match get(Force::Asked, at_once)? {
                Ok(token) => return Ok((token, at_once, Found::Damaged)),
                Err(_) => (LATER, Force::Asked, Found::Damaged),
            },
        };
        let token = get(force, later)?.map_err(|again| wedged("then", again))?;
        Ok((token, later, found))
    }

    /// Holds it alone, and gives it back.
    fn alone(&self, store: &FileStore, later: Duration) -> Result<(), Fault> {
        let second = self.enter(store, "next-2", Force::No, later)?;
        crate::ensure!(second.is_err(), "two callers got it");
        let name = self.story.name();
        let now = self.now(later);
        if later == Duration::ZERO {
            let reading = store.read(&name, None).map_err(|error| error.to_string())?;
            let (standing, holder) = reading.standing(&self.story.policy(), &now);
            let holder = holder.map(|claim| claim.holder.request_id.as_str().to_owned());
            crate::ensure!(
                holder.as_deref() == Some("next-1") && matches!(standing, Standing::Held(_)),
                "{holder:?} has it then: {standing:?}"
            );
        }
        let owns = |claim: &Claim| {
            let is_own = claim.holder.request_id.as_str() == "next-1";
            if is_own {
                Ownership::Shown
            } else {
                Ownership::Missing
            }
        };
        let released = store.release_owned(&name, &owns, &now);
        let released = released.map_err(|error| error.to_string())?;
        crate::ensure!(
            matches!(released, Released::Done { .. }),
            "it is released: {released:?}"
        );
        let again = self.enter(store, "next-2", Force::No, later)?;
        crate::ensure!(again.is_ok(), "free, and the next one gets {again:?}");
        Ok(())
    }
}

fn is_long() -> bool {
    std::env::var_os("TENURE_POWER_CUTS").is_some_and(|value| value == "long")
}

/// Cuts the power in a story, and has the next boot look at what is left. Answers with how often each was found.
fn cut(story: &Story) -> BTreeMap<Found, usize> {
    need("strace");
    let (disk, answered) = story.record_calls().expect("a story without a cut");
    let site = Site::new();
    let record = story.record(&site);
    let written: Vec<String> = disk
        .written()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .collect();
    let tokens = written
        .iter()
        .flat_map(|text| text.split("\"token\":").skip(1));
    let digits = tokens.filter_map(|text| {
        text.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    });
    let ids = story
        .calls
        .iter()
        .filter_map(|call| call.split("--request-id ").nth(1)?.split(' ').next());
    let past = Past {
        records: record.map_or_else(BTreeSet::new, |record| disk.versions(&record)),
        token: digits.max().expect("a token"),
        ids: ids.map(str::to_owned).collect(),
    };
    let past = Past {
        records: past
            .records
            .into_iter()
            .filter(|record| record.ends_with(b"\n") || record.ends_with(b"}"))
            .collect(),
        ..past
    };
    let mut here = Identity::current().host;
    here.boot_id = Some("00000000-0000-4000-8000-000000000000".to_owned());
    let next = NextBoot {
        story,
        past: &past,
        here,
    };
    // An image is looked at once. A durable hold has to be in each that may be there after its answer.
    let mut images = BTreeMap::new();
    // Of a long story fewer, for each cut of it.
    let drawn = if is_long() {
        DRAWN_LONG.min(6_000 / disk.len())
    } else {
        DRAWN
    };
    for upto in 0..=disk.len() {
        for seed in 0..drawn {
            let mut random = Random::new((upto * DRAWN_LONG + seed + 1) as u64);
            let settled = random.below(2) * random.below(upto + 1);
            let image = disk.image(upto, settled, &mut random);
            let is_held = story.is_durable && answered.first().is_some_and(|first| upto >= *first);
            images.entry(image).or_insert((upto, seed, is_held));
        }
    }
    let images: Vec<_> = images.into_iter().collect();
    let (found, faults) = try_each(&images, |(image, (upto, seed, is_held))| {
        let looked = next.look(image, seed % 3 == 0).and_then(|found| {
            let is_lost = *is_held && found != Found::Held;
            crate::ensure!(!is_lost, "a hold that was answered is {found:?}");
            Ok(found)
        });
        looked.map_err(|fault| {
            format!(
                "behind change {upto}, seed {seed}: {fault}\n{}",
                shown(image)
            )
        })
    });
    let mut counts = BTreeMap::new();
    for (_, found) in found {
        *counts.entry(found).or_insert(0) += 1;
    }
    println!(
        "{}: {} changes, {} images: {counts:?}",
        story.title,
        disk.len(),
        images.len()
    );
    let few: Vec<String> = faults.iter().take(4).cloned().collect();
    assert!(
        faults.is_empty(),
        "{}: {} of {} images:\n- {}",
        story.title,
        faults.len(),
        images.len(),
        few.join("\n- ")
    );
    counts
}

/// The files of an image, for a person.
fn shown(image: &Image) -> String {
    let mut told = String::new();
    for (path, bytes) in &image.files {
        let text = String::from_utf8_lossy(bytes)
            .replace('\0', "·")
            .replace("··", "");
        let _ = writeln!(
            told,
            "    {path} ({}): {}",
            bytes.len(),
            text.replace('\n', "⏎")
        );
    }
    told
}

/// A hold, its renewal, its end, a run, and two more holds.
fn holds(format: Option<Format>, owner: &str) -> Vec<String> {
    let insists = format.map_or("", |format| match format {
        Format::Sprint => " --force",
        Format::Fleet => " --force-lock",
        Format::Resume | Format::Session => "",
    });
    [
        format!("acquire --owner {owner} --request-id first-1"),
        "heartbeat --request-id first-1".to_owned(),
        "release --request-id first-1".to_owned(),
        "run --request-id second-1 -- true".to_owned(),
        format!("acquire --owner {owner} --request-id third-1"),
        "heartbeat --request-id third-1".to_owned(),
    ]
    .map(|call| {
        if call.starts_with("acquire") {
            call + insists
        } else {
            call
        }
    })
    .to_vec()
}

mod power_cuts {
    use super::*;

    fn published(title: &'static str, format: Format) {
        let owner = match format {
            Format::Sprint | Format::Resume => "US",
            Format::Session | Format::Fleet => "none",
        };
        let calls = holds(Some(format), owner);
        let story = Story {
            calls,
            ..Story::new(title, Some(format), &[])
        };
        let found = cut(&story);
        assert!(!found.contains_key(&Found::Unreadable), "{found:?}");
    }

    #[test]
    fn sprint() {
        published("sprint", Format::Sprint);
    }

    #[test]
    fn resume() {
        published("resume", Format::Resume);
    }

    #[test]
    fn session() {
        published("session", Format::Session);
    }

    #[test]
    fn fleet() {
        published("fleet", Format::Fleet);
    }

    #[test]
    fn native() {
        let calls = holds(None, "US");
        cut(&Story {
            calls,
            ..Story::new("native", None, &[])
        });
    }

    #[test]
    fn native_holds_without_an_owner() {
        let calls = holds(None, "none");
        cut(&Story {
            calls,
            outlives: true,
            ..Story::new("native, --owner none", None, &[])
        });
    }

    /// A grant that was answered is there after each cut, and stays there while others change the lock.
    #[test]
    fn durable_holds() {
        let all = [
            (None, "native, --durable"),
            (Some(Format::Session), "session, --durable"),
            (Some(Format::Fleet), "fleet, --durable"),
        ];
        for (format, title) in all {
            let mut calls = vec![
                "acquire --durable --owner none --request-id first-1".to_owned(),
                "heartbeat --request-id first-1".to_owned(),
            ];
            if format.is_none() {
                // Others come in and go, and none of them asks for anything that lasts.
                calls[0] += " --shared";
                for at in 0..4 {
                    calls.push(format!(
                        "acquire --shared --owner US --request-id beside-{at}"
                    ));
                    calls.push(format!("release --request-id beside-{at}"));
                }
            }
            let found = cut(&Story {
                calls,
                outlives: true,
                is_durable: true,
                ..Story::new(title, format, &[])
            });
            assert!(found.contains_key(&Found::Held), "{title}: {found:?}");
        }
    }

    fn beside(title: &'static str, flags: &str) {
        let count = if is_long() { 90 } else { 12 };
        let mut calls: Vec<String> = (0..count)
            .map(|at| format!("acquire {flags} --owner US --request-id beside-{at}"))
            .collect();
        calls.extend((0..count / 2).map(|at| format!("release --request-id beside-{}", at * 2)));
        cut(&Story {
            calls,
            ..Story::new(title, None, &[])
        });
    }

    #[test]
    fn native_shared() {
        beside("native, shared", "--shared");
    }

    #[test]
    fn native_slots() {
        beside("native, slots", "--slots 100");
    }
}
