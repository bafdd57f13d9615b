//! What the `tenure.toml` of a clone may ask for: servers, and variables and commands for calls that nobody typed.

use crate::support::{Scene, answer};
use std::net::TcpListener;

/// A clone below a home, and a second one; `calls` and `says` show how a call ends.
const STAGE: &str = r#"
    unset TENURE_DIR XDG_CONFIG_HOME
    export TENURE_ETCD_USER=me:secret
    mkdir clone other
    git init -q clone
    git init -q other
    cd clone
    mine=$HOME/.config/tenure/tenure.toml
    asks() { printf '%s\n' "$@" >tenure.toml; }
    # Whether a call goes on to the servers. None of them answers, and that takes longer than a refusal.
    reaches() { rc=0; timeout 0.7 tenure check x "$@" >../out 2>&1 </dev/null || rc=$?; [ $rc = 7 ] && echo no || echo yes; }
    calls() { rc=0; timeout 9 "$@" >../out 2>&1 </dev/null || rc=$?; echo $rc; }
    says() { rc=0; timeout 9 "$@" >../out 2>&1 </dev/null || rc=$?; echo "$rc $(tr '\n' ' ' <../out)"; }
    hook() {
        printf '{"hook_event_name":"PreToolUse","session_id":"s","cwd":"%s","tool_name":"%s","tool_input":%s,"tool_use_id":"%s"}' \
            "$PWD" "$1" "$2" "$(date +%N)" | timeout 9 tenure hook claude 2>&1 | tr -d '\n'
        echo
    }
    writes() { hook Write "{\"file_path\":\"$PWD/a.txt\",\"content\":\"\"}"; }
    runs() { hook Bash "{\"command\":\"$1\"}"; }
"#;

/// What a script says, in a home of its own.
#[track_caller]
fn played(scene: &Scene, script: &str) -> String {
    let mut command = scene.program("sh");
    command.current_dir(scene.root());
    command.args(["-ec", &format!("{STAGE}\n{script}")]);
    answer(&mut command).expect(0, "the script").stdout()
}

#[track_caller]
fn line<'s>(said: &'s str, word: &str) -> &'s str {
    let mut lines = said.lines();
    let found = lines.find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{word}: {said}"))
}

/// Servers of nobody, which notice every call.
struct Servers(TcpListener);

impl Servers {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        Self(listener)
    }

    fn url(&self) -> String {
        format!("etcd://{}", self.0.local_addr().expect("an address"))
    }

    fn was_called(&self) -> bool {
        self.0.accept().is_ok()
    }
}

#[test]
fn no_call_reaches_the_servers_of_a_clone_that_nobody_allowed() {
    let (scene, servers) = (Scene::new(), Servers::new());
    let url = servers.url();
    let script = format!(
        r#"
        asks 'store = "{url}/ci"' '[[agent.command]]' 'match = ["make"]' 'lock = "b"' \
            '[[agent.path]]' 'match = ["**"]'
        for call in "run x -- true" "run x -n -- true" "run --group g -- true" "run x --as claude/s -- true" \
            "acquire x --owner none" "release x --request-id r" "cancel x" "cancel x --orphan" "wait x" "check x" \
            "check" "list" "clean" "audit" "force-release x --yes" "heartbeat x --request-id r"; do
            echo "call $(says tenure $call)"
        done
        printf '%s\n' '{{"jsonrpc":"2.0","id":1,"method":"hello","params":{{"protocol":1,"client":"mine 0.1"}}}}' >../asked
        printf '{{"jsonrpc":"2.0","id":1,"method":"acquire","params":{{"locks":[{{"name":"x"}}]}}}}\n' >>../asked
        echo "serve $(timeout 9 tenure serve <../asked 2>&1 | tr '\n' ' ')"
        echo "doctor $(says tenure doctor)"
        echo "edit $(writes)"
        echo "command $(runs 'make all')"
        "#
    );
    let said = played(&scene, &script);
    let calls: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("call "))
        .collect();
    assert_eq!(calls.len(), 16, "{said}");
    let consent = format!("`tenure allow {url}/ci` allows that");
    for call in calls {
        assert!(call.starts_with("call 7 "), "{call}");
        assert!(call.contains(&consent), "{call}");
    }
    assert!(line(&said, "serve").contains("tenure allow"), "{said}");
    assert!(line(&said, "doctor").contains(&consent), "{said}");
    // A rule for paths is closed, and one for commands open, if they say nothing.
    let edit = line(&said, "edit");
    assert!(edit.contains("deny") && edit.contains(&consent), "{edit}");
    let command = line(&said, "command");
    assert!(command.contains("goes on without its lock"), "{command}");
    assert!(command.contains(&consent), "{command}");
    assert!(!servers.was_called(), "a server was asked: {said}");
}

/// Each caller's own word is consent, for each clone and work tree.
#[test]
fn a_person_names_the_servers_or_allows_them_once() {
    let (scene, servers) = (Scene::new(), Servers::new());
    let url = servers.url();
    let port = servers.0.local_addr().expect("an address").port();
    drop(servers);
    let script = format!(
        r#"
        asks 'store = "{url}/ci"'
        cp tenure.toml ../other
        echo found $(reaches)
        echo flag $(reaches --store {url}/ci)
        echo variable $(TENURE_STORE={url}/ci reaches)
        echo config $(reaches --config tenure.toml)
        echo named $(TENURE_CONFIG=$PWD/tenure.toml reaches)
        echo gives $(says tenure allow {url}/ci)
        echo file $(cat $mine)
        echo allowed $(reaches)
        echo other $(cd ../other; reaches)
        echo shows $(says tenure allow)
        echo again $(says tenure allow {url}/ci)
        asks 'store = "{url}/ci2"'
        echo sibling $(reaches)
        asks 'store = "etcd://127.0.0.1:{port},127.0.0.2:{port}/ci"'
        echo more $(reaches)
        asks 'store = "{url}/ci/team"'
        echo below $(reaches)
        echo back $(says tenure allow --revoke {url}/ci)
        echo refused $(reaches)
        printf '# mine\nallow = ["{url}"]\n' >$mine
        echo server $(reaches)
        echo keeps $(says tenure allow etcd://another.example)
        echo file2 $(cat $mine)
        asks 'allow = ["{url}"]'
        echo claims $(says tenure check x)
        echo wrong $(says tenure allow http://x) 
        echo hash $(says tenure allow sha256:12)
        "#
    );
    let said = played(&scene, &script);
    for (word, expected) in [
        ("found", "no"),
        ("flag", "yes"),
        ("variable", "yes"),
        ("config", "yes"),
        ("named", "yes"),
        ("allowed", "yes"),
        ("other", "yes"),
        ("sibling", "no"),
        ("more", "no"),
        ("below", "yes"),
        ("refused", "no"),
        ("server", "yes"),
    ] {
        assert_eq!(line(&said, word), expected, "{word}: {said}");
    }
    assert!(line(&said, "gives").contains("from now on"), "{said}");
    assert_eq!(line(&said, "file"), format!("allow = [\"{url}/ci\"]"));
    assert!(line(&said, "shows").contains("allowed: "), "{said}");
    assert!(line(&said, "again").contains("already"), "{said}");
    assert!(line(&said, "back").contains("no longer"), "{said}");
    let file = format!("# mine allow = [\"{url}\", \"etcd://another.example\"]");
    assert_eq!(line(&said, "file2"), file);
    assert!(line(&said, "claims").starts_with("2 "), "{said}");
    assert!(line(&said, "wrong").starts_with("2 "), "{said}");
    assert!(line(&said, "hash").starts_with("2 "), "{said}");
}

/// With a hook nobody types the run, so what a clone says about its surroundings is somebody else's code.
#[test]
fn a_run_that_nobody_typed_obeys_a_clone_only_with_consent_to_just_that() {
    let scene = Scene::new();
    let script = r#"
        task() { says tenure run b --as claude/s -- sh -c 'echo ran $MARK'; }
        for key in 'env = { MARK = "1" }' 'rollback = "true"' 'on_supersede = "true"' 'on_superseded = "true"'; do
            asks '[lock."*"]' "$key" '[[agent.command]]' 'match = ["make"]' 'lock = "b"'
            echo "unasked $(task)"
            echo "hook $(runs 'make all')"
            echo "typed $(calls tenure run b -- true)"
            calls tenure allow . >/dev/null
            echo "asked $(task)"
            echo "rewrites $(runs 'make all')"
        done
        asks '[lock.b]' 'env = { MARK = "2" }'
        echo "changed $(task)"
        asks '[lock.c]' 'env = { MARK = "2" }'
        echo "elsewhere $(task)"
        asks '[lock.b]' 'members = ["m"]' 'env = { MARK = "{member}" }'
        calls tenure allow tenure.toml >/dev/null
        echo "member $(task)"
        asks '[lock.b]' 'members = ["n"]' 'env = { MARK = "{member}" }'
        echo "another $(task)"
        asks '[lock.b]' 'wait = "1s"'
        echo "plain $(task)"
        asks ''
        printf '[lock.b]\nenv = { MARK = "mine" }\n' >>$mine
        echo "own $(task)"
    "#;
    let said = played(&scene, script);
    let all = |word: &str| {
        let lines: Vec<_> = said
            .lines()
            .filter_map(|line| line.strip_prefix(word))
            .collect();
        assert_eq!(lines.len(), 4, "{word}: {said}");
        lines
    };
    for refused in all("unasked ") {
        assert!(refused.starts_with("7 "), "{refused}");
        assert!(refused.contains("`tenure allow "), "{refused}");
    }
    for passes in all("hook ") {
        assert!(passes.contains("goes on without its lock"), "{passes}");
    }
    assert_eq!(all("typed "), ["0"; 4]);
    assert!(
        all("asked ").iter().all(|it| it.starts_with("0 ran")),
        "{said}"
    );
    assert!(
        all("rewrites ").iter().all(|it| it.contains("run b --as")),
        "{said}"
    );
    for (word, code) in [
        ("changed", "7"),
        ("elsewhere", "0 ran"),
        ("member", "0 ran m"),
        ("another", "7"),
        ("plain", "0 ran"),
        ("own", "0 ran mine"),
    ] {
        assert!(line(&said, word).starts_with(code), "{word}: {said}");
    }
}

/// A clone's file opens no rule that the person's own closes, and a stranger's file no rule at all.
#[test]
fn the_strictest_of_several_files_says_what_a_fault_does() {
    let scene = Scene::new();
    let script = r#"
        rule() { printf '[[agent.%s]]\nmatch = ["%s"]\n%s\non_error = "%s"\n' "$@"; }
        mkdir -p $HOME/.config/tenure
        for own in open closed; do
            for clones in open closed; do
                { rule command make 'lock = "b"' $own; rule path '**' '' $own; } >$mine
                { echo 'store = "etcd://127.0.0.1:9/ci"'; rule command make 'lock = "b"' $clones; rule path '**' '' $clones; } >tenure.toml
                echo "$own-$clones-edit $(writes)"
                echo "$own-$clones-command $(runs 'make all')"
            done
        done
        # Of one file the rule that fits best counts.
        : >$mine
        { echo 'store = "etcd://127.0.0.1:9/ci"'; rule command make 'lock = "b"' closed; rule command 'make all' 'lock = "b"' open; } >tenure.toml
        echo "one-file $(runs 'make all')"
    "#;
    let said = played(&scene, script);
    for both in ["open-open", "open-closed", "closed-open", "closed-closed"] {
        for what in ["edit", "command"] {
            let told = line(&said, &format!("{both}-{what}"));
            let is_denied = told.contains("\"deny\"");
            assert_eq!(is_denied, both.contains("closed"), "{both} {what}: {told}");
        }
    }
    assert!(!line(&said, "one-file").contains("\"deny\""), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_strangers_file_in_a_teams_folder_leaves_the_hook_to_the_persons_own_rules() {
    if !crate::support::is_root() {
        return;
    }
    let scene = Scene::new();
    let script = r#"
        rule() { printf '[[agent.%s]]\nmatch = ["%s"]\n%s\non_error = "%s"\n' "$@"; }
        mkdir -p $HOME/.config/tenure
        : >tenure.toml
        chown 12345 tenure.toml
        echo "typed $(says tenure check x)"
        for own in none open closed; do
            : >$mine
            [ $own = none ] || { rule command make 'lock = "b"' $own; rule path '*.txt' '' $own; } >$mine
            echo "$own-edit $(writes)"
            echo "$own-command $(runs 'make all')"
            echo "$own-other $(runs ls)"
        done
    "#;
    let said = played(&scene, script);
    assert!(line(&said, "typed").starts_with("7 "), "{said}");
    for own in ["none", "open", "closed"] {
        for what in ["edit", "command", "other"] {
            let told = line(&said, &format!("{own}-{what}"));
            let is_denied = told.contains("\"deny\"");
            let expected = own == "closed" && what != "other";
            assert_eq!(is_denied, expected, "{own} {what}: {told}");
        }
    }
}
