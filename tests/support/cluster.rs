//! Clusters and Sentinels that a test starts, of servers that stop with it.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::Server;

/// A Redis Cluster of its own: as many primaries, each with as many replicas, as it is told.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    pub(crate) fn start(program: &Path, primaries: usize, replicas: usize) -> Self {
        let nodes: Vec<Server> = (0..primaries * (1 + replicas)).map(|_| node(program)).collect();
        let addresses = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(addresses);
        create.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"]);
        let created = create.output().expect("the package redis-tools is installed");
        assert!(created.status.success(), "{created:?}");
        let cluster = Self { nodes };
        cluster.until(|node| info(node, "cluster_state:ok") && (replicas == 0 || is_in_step(node)));
        cluster
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// Waits until all nodes that run are so.
    pub(crate) fn until(&self, is_so: impl Fn(&Server) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.nodes.iter().filter(|node| node.runs()).all(&is_so) {
            assert!(Instant::now() < deadline, "the cluster does not come together");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The node that has this slot, by its number.
    pub(crate) fn owner(&self, slot: u16) -> usize {
        let running = self.nodes.iter().find(|node| node.runs()).unwrap();
        let ranges: Vec<Vec<redis::Value>> = redis::cmd("CLUSTER").arg("SLOTS").query(&mut running.look()).unwrap();
        let port = ranges.iter().find_map(|range| {
            let [redis::Value::Int(first), redis::Value::Int(last), redis::Value::Array(primary), ..] = &range[..]
            else {
                return None;
            };
            let redis::Value::Int(port) = primary[1] else { return None };
            (*first..=*last).contains(&slot.into()).then_some(port)
        });
        self.nodes.iter().position(|node| Some(i64::from(node.port)) == port).unwrap()
    }

    /// A primary that is not this one, by its number.
    pub(crate) fn another_primary(&self, than: usize) -> usize {
        let others = (1..self.nodes.len()).map(|step| (than + step) % self.nodes.len());
        others.into_iter().find(|other| is_primary(&self.nodes[*other])).unwrap()
    }

    /// The replica of a node, by its number.
    pub(crate) fn replica_of(&self, primary: usize) -> usize {
        let id: String = redis::cmd("CLUSTER").arg("MYID").query(&mut self.nodes[primary].look()).unwrap();
        let replicas: Vec<String> =
            redis::cmd("CLUSTER").arg("REPLICAS").arg(id).query(&mut self.nodes[primary].look()).unwrap();
        self.nodes.iter().position(|node| replicas[0].contains(&format!(":{}@", node.port))).unwrap()
    }
}

fn node(program: &Path) -> Server {
    let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "500"];
    // A node that has its slots serves them whatever happens to the others.
    let alone = ["--cluster-require-full-coverage", "no"];
    let quick = ["--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"];
    Server::of(program, &[&options[..], &alone, &quick].concat())
}

fn info(node: &Server, line: &str) -> bool {
    let told: redis::RedisResult<String> = redis::cmd("CLUSTER").arg("INFO").query(&mut node.look());
    told.is_ok_and(|told| told.contains(line))
}

fn is_primary(node: &Server) -> bool {
    node.tells("replication", "role", |role| role == "master")
}

/// Whether a replica follows its primary, or a primary has one that does.
fn is_in_step(node: &Server) -> bool {
    node.tells("replication", "master_link_status", |status| status == "up")
        || node.tells("replication", "slave0", |replica| replica.contains("state=online"))
}

/// A primary, a replica and three Sentinels that watch them.
pub(crate) struct Watched {
    pub(crate) servers: [Server; 2],
    sentinels: Vec<Server>,
}

impl Watched {
    pub(crate) const NAME: &str = "counters";

    pub(crate) fn start() -> Self {
        let primary = Server::start();
        let replica = Server::with(&["--repl-diskless-sync-delay", "0"]);
        let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(primary.port).query(&mut replica.look()).unwrap();
        let sentinels: Vec<_> = (0..3).map(|_| Server::sentinel(Self::NAME, primary.port)).collect();
        let watched = Self { servers: [primary, replica], sentinels };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !watched.sentinels.iter().all(Watched::knows_all) || !is_in_step(&watched.servers[1]) {
            assert!(Instant::now() < deadline, "the Sentinels do not come together");
            thread::sleep(Duration::from_millis(50));
        }
        watched
    }

    fn knows_all(sentinel: &Server) -> bool {
        sentinel.tells("sentinel", "master0", |line| {
            line.contains("status=ok") && line.contains("slaves=1") && line.contains("sentinels=3")
        })
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// Which of the two servers is the primary now, and whether the other follows it.
    pub(crate) fn primary(&self) -> Option<usize> {
        self.servers.iter().position(is_primary)
    }

    pub(crate) fn is_in_step(&self) -> bool {
        self.primary().is_some_and(|primary| is_in_step(&self.servers[primary]))
            && self.sentinels.iter().all(Watched::knows_all)
    }
}
