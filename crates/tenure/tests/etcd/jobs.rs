//! `examples/jobs`: several runners do each job once, and go on where one was killed.

use crate::server::Server;
use std::path::Path;
use std::process::{Child, Command};

fn runner(server: &Server, folder: &Path) -> Child {
    let test = std::env::current_exe().expect("this program");
    let build = test.parent().and_then(Path::parent);
    let program = build.expect("the build's folder").join("examples/jobs");
    let mut command = Command::new(program);
    let url = format!("etcd://{}/jobs", server.endpoint());
    command.arg(url).arg(folder);
    command.spawn().expect("the example")
}

#[test]
fn each_job_is_done_once_by_one_of_several_runners() {
    let server = Server::start();
    let scratch = tempfile::tempdir().expect("a folder");
    let done = scratch.path().join("done");
    for number in 0..12 {
        let line = format!(
            "sleep 0.05; echo {number} $TENURE_TOKEN >>'{}'\n",
            done.display()
        );
        std::fs::write(scratch.path().join(format!("job-{number}.job")), line).expect("a job");
    }
    let mut runners: Vec<_> = (0..3).map(|_| runner(&server, scratch.path())).collect();
    for runner in &mut runners {
        assert!(runner.wait().expect("its end").success());
    }
    // A runner passes over what another one has, and ends; a last one finds nothing left.
    let mut last = runner(&server, scratch.path());
    assert!(last.wait().expect("its end").success());
    let text = std::fs::read_to_string(&done).expect("what was done");
    let mut numbers: Vec<u32> = (text.lines())
        .filter_map(|line| line.split_once(' ')?.0.parse().ok())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..12).collect::<Vec<_>>(), "{text}");
}
