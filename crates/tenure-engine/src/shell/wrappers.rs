//! Programs that run a command, or a text of shell, that stands in their arguments: the one list of them.
//!
//! Of each program the list has the options that take the next word, so that the command behind them is found. A
//! program that is not in the list runs nothing as far as is known here.

use super::plain::assigned;
use super::program;

/// A program that runs a command.
#[derive(Debug, Clone, Copy)]
struct Wrapper {
    /// Name of the program, with a verb if only that runs a command.
    name: &'static str,
    how: How,
    /// How many words that are no options stand before the command.
    operands: usize,
    /// Options whose value is the next word.
    valued: &'static str,
    /// Options whose value is a text of shell; of [`How::Behind`] those behind which the command begins.
    texts: &'static str,
}

/// How a program runs its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// As it stands, once, and ends with it. Another program may stand in front of both.
    Around,
    /// In a way of its own: for another user, with other input, in place of the shell.
    Apart,
    /// In a way of its own, often or for long.
    Often,
    /// The words of the command, joined, as a text of shell.
    Joined,
    /// The command behind each of some options.
    Behind,
    /// As a lock's holder: the command stands behind `--`.
    Lock,
}

const fn row(
    name: &'static str,
    how: How,
    operands: usize,
    valued: &'static str,
    texts: &'static str,
) -> Wrapper {
    Wrapper {
        name,
        how,
        operands,
        valued,
        texts,
    }
}

#[rustfmt::skip]
const WRAPPERS: [Wrapper; 85] = {
    use How::{Apart, Around, Behind, Joined, Lock, Often};
    [
        row("tenure run", Lock, 0, "", ""),
        row("env", Around, 0, "-u --unset -C --chdir -a --argv0", "-S --split-string"),
        row("nice", Around, 0, "-n --adjustment", ""),
        row("ionice", Around, 0, "-c -n --class --classdata", ""),
        row("nohup", Around, 0, "", ""),
        row("timeout", Around, 1, "-s --signal -k --kill-after", ""),
        row("gtimeout", Around, 1, "-s --signal -k --kill-after", ""),
        row("stdbuf", Around, 0, "-i -o -e --input --output --error", ""),
        row("chrt", Around, 1, "-T -P -D --sched-runtime --sched-period --sched-deadline", ""),
        row("taskset", Around, 1, "", ""),
        row("prlimit", Around, 0, "", ""),
        row("caffeinate", Around, 0, "-t -w", ""),
        row("time", Around, 0, "-f --format -o --output", ""),
        row("flock", Around, 1, "-w --wait --timeout -E --conflict-exit-code", "-c --command"),
        row("tenure flock", Around, 1, "-w --wait --timeout -E --conflict-exit-code", "-c --command"),
        row("strace", Around, 0, "-a -b -e -E -I -o -O -p -P -s -S -u -X", ""),
        row("systemd-inhibit", Around, 0, "", ""),
        row("dbus-run-session", Around, 0, "--config-file --dbus-daemon", ""),
        row("rustup run", Around, 1, "", ""),
        row("uv run", Around, 0, "-p --python --with --extra --group --package --project --directory --env-file", ""),
        row("poetry run", Around, 0, "-C --directory -P --project", ""),
        row("bundle exec", Around, 0, "--gemfile", ""),
        row("pipenv run", Around, 0, "", ""),
        row("pdm run", Around, 0, "-p --project", ""),
        row("hatch run", Around, 0, "", ""),
        row("pixi run", Around, 0, "-e --environment --manifest-path", ""),
        row("conda run", Around, 0, "-n --name -p --prefix --cwd", ""),
        row("mamba run", Around, 0, "-n --name -p --prefix --cwd", ""),
        row("micromamba run", Around, 0, "-n --name -p --prefix --cwd", ""),
        row("direnv exec", Around, 1, "", ""),
        row("asdf exec", Around, 0, "", ""),
        row("pnpm exec", Around, 0, "", ""),
        row("yarn exec", Around, 0, "", ""),
        row("chronic", Around, 0, "", ""),
        row("xvfb-run", Around, 0, "-n --server-num -e --error-file -f --auth-file -p --xauth-protocol -s --server-args -w --wait", ""),
        row("valgrind", Around, 0, "", ""),
        row("ltrace", Around, 0, "-a -A -D -e -F -l -n -o -p -s -u -w -x", ""),
        row("perf stat", Around, 0, "-e --event -o --output -r --repeat -C --cpu -I", ""),
        row("perf record", Around, 0, "-e --event -o --output -F --freq -c --count -C --cpu --call-graph", ""),
        row("setsid", Apart, 0, "", ""),
        row("setpriv", Apart, 0, "--reuid --regid --groups --bounding-set --inh-caps --ambient-caps --securebits", ""),
        row("sudo", Apart, 0, "-u -g -h -p -C -T -r -t -U -D -R --user --group --host --prompt --chdir --chroot", ""),
        row("doas", Apart, 0, "-u -C", ""),
        row("su", Apart, 1, "-s -g -G -w --shell --group --supp-group", "-c --command"),
        row("runuser", Apart, 0, "-u -s -g -G -w --user --shell --group --supp-group", "-c --command"),
        row("chroot", Apart, 1, "", ""),
        row("unshare", Apart, 0, "-S -G -R -w --setuid --setgid --root --wd", ""),
        row("nsenter", Apart, 0, "-t -S -G --target --setuid --setgid", ""),
        row("systemd-run", Apart, 0, "-u -p -E -M -H --unit --property --setenv --machine --host", ""),
        row("script", Apart, 1, "-E -I -O -B -T -m -o --echo --log-in --log-out --log-io --log-timing", "-c --command"),
        row("xargs", Apart, 0, "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-procs --max-chars", ""),
        row("exec", Apart, 0, "-a", ""),
        row("command", Apart, 0, "", ""),
        row("builtin", Apart, 0, "", ""),
        row("noglob", Apart, 0, "", ""),
        row("nocorrect", Apart, 0, "", ""),
        row("find", Behind, 0, "", "-exec -execdir -ok -okdir"),
        row("fd", Behind, 0, "", "-x -X --exec --exec-batch"),
        row("fdfind", Behind, 0, "", "-x -X --exec --exec-batch"),
        row("nix develop", Behind, 0, "", "-c --command"),
        row("nix shell", Behind, 0, "", "-c --command"),
        row("mise exec", Behind, 0, "", "-- -c --command"),
        row("mise x", Behind, 0, "", "-- -c --command"),
        row("npm exec", Behind, 0, "", "-- -c --call"),
        row("dotenvx run", Behind, 0, "", "--"),
        row("op run", Behind, 0, "", "--"),
        row("doppler run", Behind, 0, "", "--"),
        row("aws-vault exec", Behind, 0, "", "--"),
        row("rr record", Apart, 0, "-o --output-trace-dir", ""),
        row("screen", Apart, 0, "-c -e -h -p -s -S -t -T", ""),
        row("nix-shell", Apart, 1, "-p --packages -I --arg --argstr -A --attr", "--run --command"),
        row("nodemon", Apart, 1, "-w --watch -e --ext -i --ignore -d --delay", "-x --exec"),
        row("cargo watch", Apart, 0, "-w --watch -i --ignore -d --delay -C --workdir -x --exec", "-s --shell"),
        row("watchexec", Often, 0, "-w --watch -e --exts -i --ignore -f --filter -d --debounce --shell", ""),
        row("entr", Often, 0, "", "-s"),
        row("eval", Joined, 0, "", ""),
        row("trap", Joined, 0, "", ""),
        row("watch", Joined, 0, "-n --interval -q --equexit -s --shotsdir", ""),
        row("hyperfine", Joined, 0, "-w --warmup -m --min-runs -M --max-runs -r --runs -p --prepare -c --cleanup -s --setup -S --shell -n --command-name", ""),
        row("concurrently", Joined, 0, "-n --names -c --prefix-colors -p --prefix -m --max-processes", ""),
        row("tmux new", Joined, 0, "-c -e -f -F -n -s -t -x -y", ""),
        row("tmux new-session", Joined, 0, "-c -e -f -F -n -s -t -x -y", ""),
        row("tmux new-window", Joined, 0, "-c -e -F -n -t", ""),
        row("tmux split-window", Joined, 0, "-c -e -F -l -t", ""),
        row("parallel", Joined, 0, "-j --jobs -a --arg-file -n --max-args -N -L -I -S --sshlogin --tmpdir --joblog --results --retries --timeout", ""),
    ]
};

/// Shells, whose arguments or input are a text.
const SHELLS: [&str; 10] = [
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "busybox", "yash",
];

/// How many words may stand in front of the command that a program runs.
const FRONT_MAX: usize = 64;

/// Whether a program of this name is a shell.
pub fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

/// Whether a program of this name runs one command and ends with it.
pub fn ends_with_its_command(name: &str) -> bool {
    let mut all = WRAPPERS.iter();
    all.any(|one| one.name == name && matches!(one.how, How::Around | How::Apart))
}

/// What a command runs beside itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Inside<'a> {
    /// The words at which a command of its arguments may begin.
    pub(super) starts: Vec<usize>,
    /// Texts of shell.
    pub(super) texts: Vec<String>,
    /// A shell: its text is what it reads.
    pub(super) reads: bool,
    /// Another program may stand in front of it in place of its command.
    pub(super) is_around: bool,
    /// The words that say which lock a `tenure run` takes.
    pub(super) locks: Vec<&'a str>,
}

/// What stands in the arguments of a command.
pub(super) fn inside<'a>(words: &[&'a str]) -> Inside<'a> {
    let mut inside = Inside::default();
    let Some((first, rest)) = words.split_first() else {
        return inside;
    };
    let name = program(first);
    if is_shell(name) {
        of_shell(rest, &mut inside);
        return inside;
    }
    let mut all = WRAPPERS.iter();
    let found = all.find_map(|wrapper| match wrapper.name.split_once(' ') {
        None => (wrapper.name == name).then_some((wrapper, 1)),
        Some((of, verb)) if of == name => {
            let front = rest.iter().take(FRONT_MAX);
            let at = front
                .take_while(|word| **word != "--")
                .position(|word| *word == verb)?;
            Some((wrapper, at + 2))
        }
        Some(_) => None,
    });
    let Some((wrapper, from)) = found else {
        return inside;
    };
    inside.is_around = matches!(wrapper.how, How::Around | How::Lock);
    match wrapper.how {
        How::Behind => {
            let is_one = |word: &str| wrapper.texts.split(' ').any(|one| one == word);
            let front = words.iter().enumerate().take(FRONT_MAX);
            let starts = front.filter(|(at, word)| *at >= from && is_one(word));
            let starts: Vec<_> = starts.map(|(at, _)| at + 1).collect();
            let values = starts.iter().filter_map(|at| words.get(*at..=*at));
            inside.texts.extend(values.flat_map(texts));
            inside.starts.extend(starts);
        }
        How::Lock => {
            let front = words.iter().take(FRONT_MAX);
            if let Some(end) = front.into_iter().position(|word| *word == "--") {
                inside.locks = words.get(from..end).unwrap_or_default().to_vec();
                inside.starts.push(end + 1);
                if inside.locks.contains(&"--shell") {
                    let line = words.get(end + 1..).unwrap_or_default();
                    inside.texts.push(line.join(" "));
                }
            }
        }
        How::Around | How::Apart | How::Often | How::Joined => {
            behind(wrapper, words, from, &mut inside);
        }
    }
    inside
}

/// Passes the options and operands of a program.
fn behind(wrapper: &Wrapper, words: &[&str], from: usize, inside: &mut Inside<'_>) {
    let is_one_of = |word: &str, list: &str| list.split(' ').any(|one| one == word);
    let (mut at, mut operands, mut are_options) = (from, wrapper.operands, true);
    let mut is_found = false;
    while let Some(word) = words.get(at).filter(|_| at < FRONT_MAX) {
        if are_options && word.starts_with('-') {
            are_options = *word != "--";
            // Several letters in one word: the last one may take the next word.
            let last = word.chars().last().map(|letter| format!("-{letter}"));
            let last = last.filter(|_| !word.starts_with("--") && word.len() > 2);
            let takes = |list| {
                is_one_of(word, list) || last.as_ref().is_some_and(|last| is_one_of(last, list))
            };
            if takes(wrapper.texts) {
                let text = words.get(at + 1);
                inside.texts.extend(text.map(|text| (*text).to_owned()));
            }
            at += usize::from(takes(wrapper.valued) || takes(wrapper.texts));
        } else if word.starts_with('$') && !is_found {
            // The word may be options, an operand, or the command.
            inside.starts.push(at);
            operands = operands.saturating_sub(1);
        } else if operands > 0 {
            operands -= 1;
        } else if !is_found && assigned(word).is_none() {
            inside.starts.push(at);
            is_found = true;
        }
        if is_found && wrapper.texts.is_empty() {
            break;
        }
        at += 1;
    }
    if wrapper.how == How::Joined {
        let starts = std::mem::take(&mut inside.starts);
        let first = starts.first().and_then(|at| words.get(*at..));
        inside.texts.extend(first.map(|words| words.join(" ")));
        inside.texts.extend(first.into_iter().flat_map(texts));
    }
}

/// The words that may be a text of shell each.
fn texts(words: &[&str]) -> impl Iterator<Item = String> {
    let texts = words
        .iter()
        .filter(|word| word.contains(char::is_whitespace));
    texts.map(|word| (*word).to_owned())
}

/// The text of a shell: behind `-c`, or what it reads if it has no script.
fn of_shell(words: &[&str], inside: &mut Inside<'_>) {
    let is_option = |word: &str| word.len() > 1 && word.starts_with(['-', '+']);
    let is_c = |word: &&str| !word.starts_with("--") && word.starts_with('-') && word.contains('c');
    let words = words.get(..words.len().min(FRONT_MAX)).unwrap_or_default();
    let options = words.iter().take_while(|word| is_option(word)).count();
    match words.iter().position(is_c) {
        // `-o` takes the next word.
        Some(at) if at <= options + 1 => {
            let mut behind = words.iter().skip(at + 1);
            inside.texts.extend(
                behind
                    .find(|word| !is_option(word))
                    .map(|word| (*word).to_owned()),
            );
        }
        _ => {
            let script = words.get(options);
            let is_input = |word: &&str| matches!(*word, "-" | "<" | "/dev/stdin");
            let is_told = words.iter().take(options).any(|word| *word == "-s");
            inside.reads = is_told || script.is_none_or(is_input);
        }
    }
}
