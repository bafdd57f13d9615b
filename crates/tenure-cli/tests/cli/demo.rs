//! `demo`: the story is told, and nothing is left of it.

use crate::support::{Scene, Started, answer, eventually};
use rustix::process::Signal;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

/// The processes that work in a folder.
fn working_in(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let within =
        |path: &Path| std::fs::read_link(path.join("cwd")).is_ok_and(|at| at.starts_with(folder));
    let within = all.map(|entry| entry.path()).filter(|path| within(path));
    within
        .map(|path| std::fs::read_to_string(path.join("cmdline")).unwrap_or_default())
        .collect()
}

/// Nothing of it runs, and its folder is gone. The places of its user were not touched.
#[track_caller]
fn nothing_is_left(scene: &Scene, scratch: &Path) {
    eventually("no process", || working_in(scratch).is_empty());
    let left: Vec<_> = std::fs::read_dir(scratch).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!scene.locks().exists(), "the locks of its user");
    assert!(!scene.path(".local").exists(), "the home of its user");
}

fn scratch(scene: &Scene) -> std::path::PathBuf {
    let scratch = scene.path("scratch");
    std::fs::create_dir(&scratch).expect("a folder");
    scratch
}

#[test]
fn a_demo_tells_its_story_and_leaves_nothing() {
    let scene = Scene::new();
    let scratch = scratch(&scene);
    // What its user has set does not change the story.
    scene.write("tenure.toml", "dir = \"elsewhere\"\nwait = \"0\"\n");
    let mut demo = scene.tenure(["demo", "--beat", "40ms"]);
    demo.env("TMPDIR", &scratch)
        .env("TENURE_PROFILE", "fleet")
        .env("TENURE_AUDIT", "incidents")
        .env("TENURE_CONFIG", scene.path("tenure.toml"));
    let told = answer(&mut demo).expect(0, "the whole story");
    let story = told.stdout();
    let mut rest = &*story;
    for line in [
        "   worker-1 works\n",
        "build is held by",
        "1. PID",
        "(exit code 4)",
        "   worker-1 has done it\n   worker-2 works\n",
        "$ kill -9 ",
        "   worker-4 works\n",
        "   version-1 works\n",
        "(exit code 79)",
        "   agent-1 works\n",
        "(exit code 4)",
        "   agent-1 has done it\n   agent-2 works\n",
        "WAITED",
        "acquired",
        "tenure run NAME -- COMMAND",
    ] {
        let at = rest.find(line);
        let at = at.unwrap_or_else(|| panic!("{line:?} in its place: {story}"));
        rest = &rest[at + line.len()..];
    }
    assert!(!story.contains("version-1 has done it"), "{story}");
    assert!(
        told.stderr().contains("agent demo/one"),
        "{}",
        told.stderr()
    );
    nothing_is_left(&scene, &scratch);
}

#[test]
fn a_signal_ends_a_demo_and_leaves_nothing() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let scene = Scene::new();
        let scratch = scratch(&scene);
        let mut demo = scene.tenure(["demo", "--beat", "600ms"]);
        demo.env("TMPDIR", &scratch);
        demo.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut demo = Started::new(&mut demo);
        let mut told = String::new();
        while !told.contains("worker-1 works") {
            let mut bytes = [0; 256];
            let read = demo.stdout().read(&mut bytes).expect("a story");
            assert_ne!(read, 0, "{told}");
            told.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        demo.signal(signal);
        assert_eq!(demo.end().code(), Some(code), "{told}");
        nothing_is_left(&scene, &scratch);
    }
}

#[test]
fn a_story_that_cannot_be_written_is_no_success() {
    let scene = Scene::new();
    let scratch = scratch(&scene);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut demo = scene.tenure(["demo"]);
    demo.env("TMPDIR", &scratch)
        .stdout(full.expect("/dev/full"));
    let status = demo.stderr(Stdio::null()).status().expect("it starts");
    assert_eq!(status.code(), Some(1));
    nothing_is_left(&scene, &scratch);
}

#[test]
fn a_call_that_fails_ends_the_story_at_once() {
    let scene = Scene::new();
    // No variable is expanded in the name of a folder, so no call takes a lock there.
    let scratch = scene.path("of $HOME");
    std::fs::create_dir(&scratch).expect("a folder");
    let mut demo = scene.tenure(["demo", "--beat", "20ms"]);
    let ended = answer(demo.env("TMPDIR", &scratch)).expect(1, "no story");
    assert!(ended.stderr().contains("worker-1 does not begin"));
    nothing_is_left(&scene, &scratch);
}
