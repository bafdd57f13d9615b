//! A table for each kind of spelling: what each of the formats of other programs makes of what shells, Python,
//! JavaScript, Go and YAML tools write. A spelling that a format does not know is never a free lock by itself: `x`
//! blocks in resume and in fleet, is cleaned in session and asks in sprint, as their contracts say. Nor does it hold
//! for ever: each `x` can be forced or runs out, and `d` is judged by its process.

use super::fixture::{AT_MS, here, name, now, pid_of, since_ms};
use super::{Fleet, Record, Resume, Session, Sprint, document::UNDATED};
use tenure_core::{Claim, Kind};

/// The formats, in the order of each row's marks.
const FORMATS: [&str; 4] = ["sprint", "session", "resume", "fleet"];

/// What stands in each record for its date, in quotes but in YAML's.
const DATE: &str = "2026-02-07T10:00:00Z";

/// A record of the format's original program, of the process 999.
fn record(format: &str) -> String {
    let text = match format {
        "sprint" => "pid: 999\nsession_id: s\nstarted_at: DATE\nepic_spec: e\nlock_version: 1\n",
        "session" => r#"{"issueNumber": 42, "runId": "r", "acquiredAt": "DATE", "pid": 999}"#,
        "resume" => {
            r#"{"job_id": "j", "process_id": 999, "hostname": "build-7", "acquired_at": "DATE"}"#
        }
        _ => {
            r#"{"lock_version": "v1", "lock_name": "app", "request_id": "r", "actor": "a", "intent": "i", "intent_version": "1",
                "host_id": "h", "pid": 999, "created_at": "DATE", "last_heartbeat_at": "DATE", "ttl_seconds": 900}"#
        }
    };
    text.replace("DATE", DATE)
}

fn read(format: &str, text: &str) -> Result<Claim, String> {
    let (record, lock): (&dyn Record, _) = match format {
        "sprint" => (&Sprint::default(), "sprint"),
        "session" => (&Session::default(), "42"),
        "resume" => (&Resume, "j"),
        _ => (&Fleet, "app"),
    };
    record.decode(&name(lock), text.as_bytes(), &now(), &here())
}

/// What a format makes of a record:
/// - `h`: a lock of process 999, from the instant that was meant;
/// - `d`: a lock of process 999, whose date is not known, so its process alone counts;
/// - `p`: a lock from that instant, whose process is not known;
/// - `s`: a lock that nobody can judge, so only an explicit yes overrides it;
/// - `x`: unreadable;
/// - `?`: anything else, which no row expects.
fn made_of(format: &str, text: &str) -> char {
    let Ok(claim) = read(format, text) else {
        return 'x';
    };
    match (pid_of(&claim), since_ms(&claim)) {
        _ if claim.kind == Kind::Sealed => 's',
        (Some(999), _) if claim.holder.fact(UNDATED).is_some() => 'd',
        (Some(999), Some(AT_MS)) => 'h',
        (None, Some(AT_MS)) => 'p',
        _ => '?',
    }
}

/// Compares all rows, so that one run shows everything that differs.
fn assert_made(rows: &[(&str, &str)], spelt: impl Fn(&str, &str) -> String) {
    let mut differ = Vec::new();
    for (spelling, expected) in rows {
        let made: String = FORMATS
            .iter()
            .map(|format| made_of(format, &spelt(format, spelling)))
            .collect();
        if made != *expected {
            differ.push(format!("{spelling:?}: {made} and not {expected}"));
        }
    }
    assert!(
        differ.is_empty(),
        "sprint, session, resume, fleet: {differ:#?}"
    );
}

#[test]
fn dates_in_every_spelling() {
    let rows = [
        // Shells: `date -Is`, `--rfc-3339=seconds`, `-R`, plain, and `+%s`, `+%s%N`.
        ("2026-02-07T10:00:00Z", "hhhh"),
        ("2026-02-07T10:00:00+00:00", "hhhh"),
        ("2026-02-07T11:00:00+01:00", "hhhh"),
        ("2026-02-07 10:00:00+00:00", "hhhh"),
        ("2026-02-07 11:00:00 +0100", "hhxx"),
        ("Sat, 07 Feb 2026 10:00:00 +0000", "hhxx"),
        ("Sat Feb  7 10:00:00 UTC 2026", "hhxx"),
        ("Sat Feb  7 10:00:00 AM UTC 2026", "hhxx"),
        ("1770458400", "hhxx"),
        ("1770458400000000000", "hhxx"),
        ("2026/02/07 10:00:00", "hhxx"),
        // A zone that is a word may be any of several.
        ("Sat Feb  7 11:00:00 CET 2026", "dxxx"),
        // Python: isoformat, str, time.time, time.ctime, strftime.
        ("2026-02-07T10:00:00", "hhxx"),
        ("2026-02-07T10:00:00.000000", "hhxx"),
        ("2026-02-07T10:00:00.000000+00:00", "hhhh"),
        ("2026-02-07 10:00:00.000000", "hhxx"),
        ("1770458400.0001", "hhxx"),
        ("Sat Feb  7 10:00:00 2026", "hhxx"),
        ("02/07/2026 10:00:00", "hhxx"),
        // JavaScript: toISOString, Date.now, toString, toUTCString, toLocaleString.
        ("2026-02-07T10:00:00.000Z", "hhhh"),
        ("1770458400000", "hhxx"),
        (
            "Sat Feb 07 2026 10:00:00 GMT+0000 (Coordinated Universal Time)",
            "hhxx",
        ),
        ("Sat, 07 Feb 2026 10:00:00 GMT", "hhxx"),
        ("2/7/2026, 10:00:00 AM", "hhxx"),
        // Go: String, RFC 1123, RFC 850, ANSI C; Ruby: to_s.
        ("2026-02-07 10:00:00 +0000 UTC", "hhxx"),
        (
            "2026-02-07 10:00:00.000000001 +0000 UTC m=+0.000000001",
            "hhxx",
        ),
        ("Sat, 07 Feb 2026 10:00:00 UTC", "hhxx"),
        ("Saturday, 07-Feb-26 10:00:00 UTC", "hhxx"),
        ("2026-02-07 10:00:00 UTC", "hhxx"),
        // YAML's own.
        ("2026-02-07t10:00:00z", "hhhh"),
        ("2026-02-07 10:00:00 Z", "hhxx"),
        ("2026-02-07T10:00:00.00-00:00", "hhhh"),
        // No dates.
        ("yesterday", "dxxx"),
        ("1770458", "dxxx"),
        ("20260207", "dxxx"),
        ("", "dxxx"),
    ];
    assert_made(&rows, |format, spelling| match format {
        "sprint" => record(format).replace(DATE, &format!("'{spelling}'")),
        _ => record(format).replace(DATE, spelling),
    });
    // Without quotes: YAML's plain scalars, and numbers of JSON.
    let plain = rows.iter().filter(|(spelling, _)| !spelling.is_empty());
    for (spelling, expected) in plain {
        let text = record("sprint").replace(DATE, spelling);
        let made = made_of("sprint", &text);
        assert!(expected.starts_with(made), "{text}: {made}");
    }
    for number in ["1770458400", "1770458400000", "1770458400.0001"] {
        let quoted = format!("\"{DATE}\"");
        let text = record("session").replace(&quoted, number);
        assert_eq!(made_of("session", &text), 'h', "{text}");
    }
}

#[test]
fn dates_with_a_tag_of_yaml() {
    for tagged in [
        "!!timestamp 2026-02-07T10:00:00Z",
        "!!timestamp '2026-02-07T10:00:00Z'",
        "!<tag:yaml.org,2002:timestamp> 2026-02-07T10:00:00Z",
        "!!str 2026-02-07T10:00:00Z",
        "!ruby/object:Time 2026-02-07T10:00:00Z",
    ] {
        let text = record("sprint").replace(DATE, tagged);
        assert_eq!(made_of("sprint", &text), 'h', "{text}");
    }
    let text = record("sprint").replace("999", "!!int 999");
    assert_eq!(made_of("sprint", &text), 'h', "{text}");
    let text = format!("--- !lock\n{}", record("sprint"));
    assert_eq!(made_of("sprint", &text), 'h', "{text}");
    let flow = "{pid: 999, session_id: s, started_at: !!timestamp 2026-02-07T10:00:00Z}";
    assert_eq!(made_of("sprint", flow), 'h', "{flow}");
}

#[test]
fn process_ids_in_every_spelling() {
    let rows = [
        ("999", "hhhh"),
        ("\"999\"", "hhxx"),
        ("\" 999 \"", "hhxx"),
        ("999.0", "hpxx"),
        ("9.99e2", "hpxx"),
        ("999.5", "spxx"),
        ("null", "spxx"),
        ("0x3e7", "hxxx"),
        ("0o1747", "hxxx"),
        ("\"0x3e7\"", "spxx"),
        ("true", "spxx"),
        ("[999]", "spxx"),
        ("\"\"", "spxx"),
        ("\"nine\"", "spxx"),
        ("-999", "spxx"),
        ("18446744073709551616", "spxx"),
    ];
    assert_made(&rows, |format, spelling| {
        record(format).replace("999", spelling)
    });
    // No process at all.
    let text = record("sprint").replace("pid: 999\n", "");
    assert_eq!(made_of("sprint", &text), 's', "{text}");
    let text = record("session").replace(", \"pid\": 999", "");
    assert_eq!(made_of("session", &text), 'p', "{text}");
}

#[test]
fn texts_in_every_shape() {
    let rows = [
        ("\u{feff}RECORD", "hhhh"),
        ("RECORD\r\n", "hhhh"),
        ("RECORD\n\n \n", "hhhh"),
        ("\n\nRECORD", "hhhh"),
        ("# by hand\nRECORD", "hxxx"),
        ("// by hand\nRECORD", "xxxx"),
        ("RECORD\0", "xxxx"),
        ("RECORD\nx", "xxxx"),
        ("RECORD}", "xxxx"),
        ("RECORD\n...\n", "hxxx"),
        ("---\nRECORD", "hxxx"),
        ("RECORD\n---\nRECORD", "xxxx"),
        ("", "xxxx"),
        ("\0\0\0\0", "xxxx"),
    ];
    assert_made(&rows, |format, shape| {
        shape.replace("RECORD", &record(format))
    });
    // Lines that end as on Windows; half a record.
    for format in FORMATS {
        let text = record(format).replace('\n', "\r\n");
        assert_eq!(made_of(format, &text), 'h', "{text}");
        let half = record(format);
        let half = &half[..half.len() / 3];
        assert_eq!(made_of(format, half), 'x', "{half}");
    }
}

/// Of a key that stands twice JSON takes the last, and YAML allows none.
#[test]
fn keys_that_stand_twice_and_keys_with_capitals() {
    let rows = [
        ("twice", "shhh"),
        ("differing", "spxx"),
        ("PID", "hpxx"),
        ("Pid", "hpxx"),
    ];
    assert_made(&rows, |format, what| {
        let text = record(format);
        let (key, quoted) = match format {
            "sprint" => ("pid: 999\n", "pid"),
            "resume" => ("\"process_id\": 999, ", "\"process_id\""),
            "session" => (", \"pid\": 999", "\"pid\""),
            _ => ("\"pid\": 999, ", "\"pid\""),
        };
        match what {
            "twice" => text.replace(key, &key.repeat(2)),
            "differing" => text.replace(key, &format!("{key}{}", key.replace("999", "null"))),
            capitals if format == "sprint" => text.replace(quoted, capitals),
            capitals => text.replace(quoted, &format!("\"{capitals}\"")),
        }
    });
}
