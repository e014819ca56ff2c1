//! The shared store, over a `redis-server` that the bench starts.
//!
//! P6: whether a decision over ten axes takes longer than one over one, with 64 decisions under way. P8: what a server that
//! hangs costs, at 1,000 requests a second: until the breaker opens, and afterwards.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tower_quota::{Group, HOUR, Key, Meter, Quota, RedisStore};

use crate::measure::{Row, median};

const AT_ONCE: usize = 64;

pub(crate) fn run_axes() {
    let (server, runtime) = (Server::start(), runtime());
    let (ten, one) = (meter(&server, 10), meter(&server, 1));
    let row = Row {
        id: "P6",
        what: "a decision over ten axes in Redis, 64 at once",
        baseline: "over one",
        unit: "µs",
        target: 1.25,
    };
    row.compare(|| runtime.block_on(latency(&ten)), || runtime.block_on(latency(&one)));
}

pub(crate) fn run_hanging() {
    const DEADLINE: f64 = 50.0;
    let (server, runtime) = (Server::start(), runtime());
    let meter = meter(&server, 2);
    let (before, after) = runtime.block_on(async {
        meter.charge(&7, 1).await.expect("the server works");
        server.signal("-STOP");
        let before = at_1000_a_second(&meter, 200).await;
        let after = at_1000_a_second(&meter, 5_000).await;
        (before, after)
    });
    let row = |what, target, baseline| Row { id: "P8", what, baseline, unit: "ms", target };
    let until_open = percentile_99(before);
    row("p99 while a server hangs, until the breaker opens", 1.2, "the deadline").print(
        until_open,
        DEADLINE,
        until_open / DEADLINE,
    );
    let open = percentile_99(after);
    row("p99 while a server hangs, the breaker open", 1.0, "a millisecond").print(open, 1.0, open);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A meter of so many axes, one per key and the rest shared.
fn meter(server: &Server, axes: usize) -> Meter<u64> {
    let store = RedisStore::connect(&format!("redis://127.0.0.1:{}/", server.port)).expect("a store");
    let group = Group::new("bench", store).expect("a group");
    let quota = Quota::fixed_window(1 << 40, HOUR);
    let account = group.per_key("account", quota.clone()).build().expect("an axis");
    let first = Meter::new(account.by(|key: &u64| Key::from(*key)));
    (1..axes).fold(first, |meter, index| {
        let axis = group.shared(&format!("axis-{index}"), quota.clone()).build().expect("an axis");
        meter.and(&axis).expect("one group")
    })
}

/// The median time of a decision in microseconds, of so many under way at once.
async fn latency(meter: &Meter<u64>) -> f64 {
    const EACH: u64 = 200;
    let lanes = (0..AT_ONCE as u64).map(|lane| async move {
        let mut times = Vec::new();
        for round in 0..EACH {
            let started = Instant::now();
            let verdict = meter.charge(&(lane * EACH + round), 1).await.expect("it fits");
            assert!(verdict.was_counted());
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
        times
    });
    median(join_all(lanes).await.into_iter().flatten().collect())
}

/// The times in milliseconds of so many decisions, of which one starts in each millisecond.
async fn at_1000_a_second(meter: &Meter<u64>, decisions: u64) -> Vec<f64> {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let mut under_way = Vec::new();
    for key in 0..decisions {
        ticks.tick().await;
        let meter = meter.clone();
        under_way.push(tokio::spawn(async move {
            let started = Instant::now();
            let verdict = meter.charge(&key, 1).await.expect("it is let through");
            assert!(!verdict.was_counted());
            started.elapsed().as_secs_f64() * 1e3
        }));
    }
    join_all(under_way).await.into_iter().map(|time| time.expect("no task panics")).collect()
}

fn percentile_99(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// A server on a free port, without anything on disk; it ends with this.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).expect("a free port").port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = Self { process: started.expect("the package redis-server is installed"), port };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill is there").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal("-CONT");
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
