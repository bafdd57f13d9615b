//! What people write: configuration, YAML, intents and their templates, names, durations, and the
//! mark of a fence.

use super::draw::Draw;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tempfile::TempDir;
use tenure_core::{LockName, RequestId};
use tenure_engine::config::Config;
use tenure_engine::duration;
use tenure_engine::fence::{self, Admission, Guard, GuardError};
use tenure_engine::formats::{Fleet, Resume, Session, Settings, Sprint};
use tenure_engine::intent::{Intent, Mode};
use tenure_engine::shell::{Line, Simple, each_in, fits, read};
use tenure_engine::yaml as reader;
use tenure_store::profile::{Native, Profile};

/// A line of shell: where it is understood, a prefix in front of a command changes nothing else of it.
pub fn shell(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let words = ["cargo", "test"].map(str::to_owned);
    each_in(text, &mut |seen| {
        let _ = fits(seen.words, &words);
    });
    let Line::Plain(commands) = read(text) else {
        return;
    };
    let with_words = |commands: &[Simple]| {
        let commands = commands.iter().filter(|command| !command.words.is_empty());
        commands.cloned().collect::<Vec<_>>()
    };
    let commands = with_words(&commands);
    let (mut new, mut from) = (String::new(), 0);
    for command in &commands {
        let at = command.words[0].at;
        new.push_str(&text[from..at]);
        new.push_str("tenure run x -- ");
        from = at;
    }
    new.push_str(&text[from..]);
    let Line::Plain(again) = read(&new) else {
        panic!("{text:?} is understood, and {new:?} is not");
    };
    let again = with_words(&again);
    assert_eq!(commands.len(), again.len(), "{text:?} and {new:?}");
    for (one, other) in commands.iter().zip(&again) {
        let texts = |command: &Simple| {
            let words = command.words.iter();
            words
                .map(|word| (word.text.clone(), word.is_quoted))
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(one), texts(other)[4..], "{text:?} and {new:?}");
        assert_eq!(
            (&one.assigned, one.is_piped, one.redirects_first),
            (&other.assigned, other.is_piped, other.redirects_first),
            "{text:?} and {new:?}"
        );
    }
}

/// `tenure.toml`: read or refused, and a pattern that fits everything does.
pub fn config(data: &[u8]) {
    in_folder(|folder| {
        let path = folder.path().join("tenure.toml");
        std::fs::write(&path, data).expect("a file");
        let Ok(config) = Config::read(&path) else {
            return;
        };
        assert!(std::str::from_utf8(data).is_ok(), "it was text");
        for dir in [&config.dir, &config.audit_dir].into_iter().flatten() {
            assert!(dir.is_absolute(), "{} begins at the file", dir.display());
        }
        let long = "a".repeat(128);
        for name in ["deploy-prod", &long] {
            let found = config.defaults(name);
            if let Some(all) = config.locks.get("*")
                && config.locks.len() == 1
            {
                assert_eq!(&found, all, "a star fits {name}");
            }
            if let Some(own) = config.locks.get(name) {
                let longer = config
                    .locks
                    .keys()
                    .any(|key| key.len() >= name.len() && key != name);
                assert!(longer || found == *own, "its own name fits");
            }
        }
        for section in config.own_profiles() {
            assert!(!section.to_string().contains(char::is_control), "one line");
        }
    });
}

/// YAML of others is read or refused in one line; text of ours comes back from it.
pub fn yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(why) = reader::read::<Value>(text) {
        super::is_a_line(&why);
    }
    let quoted = reader::quoted(text);
    assert!(!quoted.contains(char::is_control), "on one line: {quoted}");
    assert_eq!(
        reader::read::<String>(&quoted).as_deref(),
        Ok(text),
        "quoted as {quoted}"
    );
    let document = format!("key: {quoted}\nnext: 1\n");
    let read = reader::read::<BTreeMap<String, Value>>(&document).expect("two keys");
    assert_eq!(read.get("key").and_then(Value::as_str), Some(text));
}

/// An intent: a name and a version that are read say something, and its lock's name is one or an error.
pub fn intent(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(intent) = Intent::parse(text) else {
        return;
    };
    let said = [&intent.name, &intent.version];
    assert!(
        said.into_iter()
            .flatten()
            .all(|text| !text.trim().is_empty())
    );
    if let Some(ttl) = intent.lock_ttl {
        assert!(ttl >= Duration::from_secs(1) && ttl.subsec_nanos() == 0);
    }
    let params =
        [("env", "prod"), ("app", "shop")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    if let Ok(name) = intent.lock_name(&params.into()) {
        assert_eq!(name.is_some(), intent.lock.is_some());
        name.iter().for_each(fleet_name);
    }
}

/// A template and its parameters: a name of a fleet's lock, or an error.
pub fn template(data: &[u8]) {
    let mut draw = Draw(data);
    let params: BTreeMap<String, String> = (0..draw.below(4))
        .map(|_| (draw.text(), draw.text()))
        .collect();
    let intent = Intent {
        name: None,
        version: None,
        mode: Mode::Mutate,
        lock: Some(String::from_utf8_lossy(draw.0).into_owned()),
        lock_ttl: None,
    };
    if let Ok(Some(name)) = intent.lock_name(&params) {
        fleet_name(&name);
        if let Some(lock) = intent.lock.filter(|lock| !lock.contains("${")) {
            assert_eq!(name.as_str(), lock, "nothing was to be replaced");
        }
    }
}

fn fleet_name(name: &LockName) {
    assert_eq!(Fleet.check_name(name), Ok(()), "{name}");
}

/// Names and request ids: whatever is accepted is one file name that leads back to it.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    let is_harmless = |text: &str| {
        assert!(!text.is_empty() && text.len() <= 128, "{text:?}");
        assert!(text.is_ascii() && !text.contains(char::is_control));
        assert!(!text.contains(['/', '\\', ' ']) && !text.starts_with(['.', '-']));
    };
    if let Ok(id) = RequestId::new(text.as_str()) {
        is_harmless(id.as_str());
        assert_eq!(RequestId::as_recorded(&text), id);
    }
    assert!(RequestId::as_recorded(&text).as_str().chars().count() <= 128);
    let profiles: [&dyn Profile; 5] = [
        &Native,
        &Resume,
        &Session::default(),
        &Fleet,
        &Sprint::default(),
    ];
    match LockName::new(text.as_str()) {
        Ok(name) => {
            is_harmless(name.as_str());
            assert!(!name.as_str().starts_with('.'), "it leads out of no folder");
            for profile in profiles {
                if profile.check_name(&name).is_ok() {
                    let file = profile.file_name(&name);
                    assert!(file.len() <= 255 && !file.contains('/'));
                    assert_eq!(profile.name_of(&file), Some(name.clone()), "{file}");
                }
            }
        }
        Err(why) => super::is_a_line(&why.to_string()),
    }
    // A file of another name stands for no lock, or for one whose file it is.
    for profile in profiles {
        if let Some(name) = profile.name_of(&text) {
            assert_eq!(profile.file_name(&name), text);
        }
    }
    if let Ok(sprint) = Sprint::new(text.as_str()) {
        let name = LockName::new("sprint").expect("a name");
        assert_eq!(sprint.file_name(&name), text);
        assert!(!text.contains(['/', '\0']) && text != "..");
    }
    let settings = Settings::default();
    if let Ok(profile) = tenure_engine::formats::by_name(&text, &settings) {
        assert_eq!(profile.policy().name, text);
    }
}

/// Durations: never beyond a year, and the same again when they are written in milliseconds.
pub fn duration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(read) = duration::parse(text) else {
        return;
    };
    assert!(read <= duration::MAX, "{text:?}");
    let millis = read.as_millis();
    let written = Duration::from_millis(u64::try_from(millis).expect("a year at most"));
    assert_eq!(duration::parse(&format!("{millis}ms")), Ok(written));
    assert_eq!(duration::parse(&format!(" {text} ")), Ok(read), "{text:?}");
}

/// The mark of a fence: what is no mark is never taken for a low one, and a mark only rises.
pub fn fence(data: &[u8]) {
    let mut draw = Draw(data);
    let token = 1 + draw.number() % fence::TOKEN_MAX;
    assert_eq!(fence::token(&token.to_string()), Some(token));
    let content = draw.0;
    if let Some(read) = std::str::from_utf8(content).ok().and_then(fence::token) {
        assert_eq!(read.to_string().as_bytes(), content, "written in one way");
    }
    in_folder(|folder| {
        let path = folder.path().join("guard");
        std::fs::write(&path, content).expect("a file");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("its mode");
        let guard = Guard::open(&path, true).expect("a guard");
        let answer = guard.admit(token);
        let after = std::fs::read(&path).expect("a mark");
        match answer {
            Ok(Admission::Recorded { before }) => {
                assert!(before.is_some_and(|before| before < token), "it rises");
                assert_eq!(after, format!("{token}\n").into_bytes());
            }
            Ok(Admission::Known) => assert_eq!(after, content),
            Ok(Admission::Refused { mark }) => {
                assert!(mark > token, "{mark} does not refuse {token}");
                assert_eq!(after, content, "nothing was changed");
            }
            Ok(other) => panic!("{other:?}"),
            Err(GuardError::Unreadable { .. }) => {
                assert_eq!(after, content, "nothing was changed");
                let text = std::str::from_utf8(content).ok();
                let mark = text.map(|text| text.strip_suffix('\n').unwrap_or(text));
                assert_eq!(mark.and_then(fence::token), None, "it is one");
            }
            Err(other) => panic!("{other}"),
        }
        assert!(!folder.path().join("guard.next").exists(), "it lies about");
    });
}

/// A single folder for all inputs of a thread, in memory where there is such a place.
pub(super) fn in_folder(body: impl FnOnce(&TempDir)) {
    thread_local! {
        static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
    }
    let kept = FOLDER.with_borrow_mut(Option::take);
    let folder = kept.unwrap_or_else(|| {
        TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .expect("a folder")
    });
    body(&folder);
    FOLDER.with_borrow_mut(|kept| *kept = Some(folder));
}
