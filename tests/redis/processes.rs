//! Several processes on one truth.

use std::process::{Command, Stdio};

use crate::support::Server;

#[test]
fn four_processes_of_64_tasks_admit_the_tightest_limit_exactly() {
    const ROUNDS: usize = 100;
    let server = Server::start();
    let start = || {
        let mut charger = Command::new(env!("CARGO_BIN_EXE_charger"));
        charger.args([&*server.url(), &ROUNDS.to_string(), "64"]).stdout(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<_> = (0..4).map(|_| start()).collect();
    let mut admitted = [0; ROUNDS];
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success());
        let counts: Vec<u32> =
            String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(counts.len(), ROUNDS);
        for (all, count) in admitted.iter_mut().zip(counts) {
            *all += count;
        }
    }
    assert_eq!(admitted, [70; ROUNDS]);
}
