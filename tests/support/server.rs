//! Redis servers that a test starts, and stops when it ends.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::free_port;

/// A server of its own on a free port of this machine, without anything on disk.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    folder: PathBuf,
    program: PathBuf,
    options: Vec<String>,
    /// The folder of a configuration that it writes.
    config: Option<PathBuf>,
}

impl Server {
    /// Debian's.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Self {
        Self::of(Path::new("redis-server"), options)
    }

    /// One of the others, by the name of its folder: `tests/run` puts them there.
    pub(crate) fn other(name: &str) -> Self {
        Self::of(&Self::program_of(name), &[])
    }

    /// The program of one of the others.
    pub(crate) fn program_of(name: &str) -> PathBuf {
        let tests = std::env::current_exe().unwrap();
        let target = tests.ancestors().nth(3).unwrap();
        let program = target.join("servers").join(name);
        assert!(program.exists(), "{} is missing: `tests/run` fetches it", program.display());
        program
    }

    pub(crate) fn of(program: &Path, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        // Another program may take the port between the look and the start.
        for _ in 0..5 {
            let port = free_port();
            if let Some((process, folder)) = launch(program, port, &options) {
                return Self { process, port, folder, program: program.into(), options, config: None };
            }
        }
        panic!("{} does not start", program.display());
    }

    /// A Sentinel that watches the primary of this name.
    pub(crate) fn sentinel(name: &str, primary: u16) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tower-quota-sentinel-{}-{}", std::process::id(), next_number()));
        std::fs::create_dir_all(&folder).unwrap();
        let watch = format!(
            "bind 127.0.0.1\nsentinel monitor {name} 127.0.0.1 {primary} 2\nsentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 3000\n"
        );
        let config = folder.join("sentinel.conf");
        std::fs::write(&config, watch).unwrap();
        let config = config.to_str().unwrap().to_owned();
        let mut sentinel = Self::of(Path::new("redis-server"), &[&config, "--sentinel"]);
        sentinel.config = Some(folder);
        sentinel
    }

    /// Whether it has not been stopped.
    pub(crate) fn runs(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Stops the server for good, with all that it knew.
    pub(crate) fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again, on the same port and knowing nothing, after it was stopped.
    pub(crate) fn start_again(&mut self) {
        let (process, folder) = launch(&self.program, self.port, &self.options).expect("the port is its own");
        let _ = std::fs::remove_dir_all(&self.folder);
        (self.process, self.folder) = (process, folder);
    }

    /// Lets it hang, with its connections open.
    pub(crate) fn pause(&self) {
        assert!(self.signal("-STOP"));
    }

    pub(crate) fn go_on(&self) {
        assert!(self.signal("-CONT"));
    }

    fn signal(&self, signal: &str) -> bool {
        let pid = self.process.id().to_string();
        Command::new("kill").args([signal, &pid]).stderr(Stdio::null()).status().unwrap().success()
    }

    /// A connection for looking at what stands in the server.
    pub(crate) fn look(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// What INFO tells under this name.
    pub(crate) fn info(&self, section: &str, name: &str) -> Option<String> {
        self.ask(section, name).unwrap()
    }

    /// Whether INFO tells so now. A server that is on its way does not: one that a Sentinel makes a replica ends its
    /// connections.
    pub(crate) fn tells(&self, section: &str, name: &str, is_so: impl FnOnce(&str) -> bool) -> bool {
        self.ask(section, name).is_ok_and(|told| told.is_some_and(|told| is_so(&told)))
    }

    fn ask(&self, section: &str, name: &str) -> redis::RedisResult<Option<String>> {
        let mut look = redis::Client::open(self.url())?.get_connection()?;
        let info: String = redis::cmd("INFO").arg(section).query(&mut look)?;
        Ok(info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned)))
    }

    /// How many times a command was called.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let line = self.info("commandstats", &format!("cmdstat_{command}"));
        line.map_or(0, |line| line.strip_prefix("calls=").unwrap().split(',').next().unwrap().parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may hang, or be gone.
        self.signal("-CONT");
        self.stop();
        for folder in [Some(&self.folder), self.config.as_ref()].into_iter().flatten() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn next_number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn launch(program: &Path, port: u16, options: &[String]) -> Option<(Child, PathBuf)> {
    let folder = std::env::temp_dir().join(format!("tower-quota-{}-{}", std::process::id(), next_number()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(program);
    command.args(options).args(["--port", &port.to_string()]);
    // A Sentinel has a configuration that it writes by itself, and nothing else on disk.
    if !options.iter().any(|option| option == "--sentinel") {
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]).arg("--dir").arg(&folder);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap_or_else(|error| {
        panic!(
            "{} cannot be started ({error}): install the package redis-server, or use `tests/run`",
            program.display()
        )
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        if answers(port) {
            return Some((process, folder));
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = process.kill();
    let _ = process.wait();
    panic!("{} does not answer", program.display());
}

/// Whether a server answers, be it that it wants a password.
fn answers(port: u16) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut reply = [0; 5];
    stream.write_all(b"PING\r\n").is_ok() && stream.read(&mut reply).is_ok() && matches!(reply[0], b'+' | b'-')
}
