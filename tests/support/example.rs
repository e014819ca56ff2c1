//! An example, run as a user runs it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// A service, running; it is stopped when dropped.
pub(crate) struct Example {
    process: Child,
    pub(crate) base: String,
    pub(crate) client: Client<HttpConnector, Full<Bytes>>,
}

impl Example {
    /// The example's program, which `cargo test` builds beside this one.
    pub(crate) fn program(name: &str) -> Command {
        let tests = std::env::current_exe().unwrap();
        let target: PathBuf = tests.ancestors().nth(2).unwrap().into();
        let program = target.join("examples").join(name);
        assert!(program.exists(), "{} is missing: run `cargo build --examples` first", program.display());
        let mut command = Command::new(program);
        command.env_clear().env("ADDR", "127.0.0.1:0").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(name: &str, environment: &[(&str, &str)]) -> Self {
        let mut process = Self::program(name).envs(environment.iter().copied()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next().expect("it says where it listens").unwrap();
        let base = first.strip_prefix("Listening on ").unwrap().to_owned();
        let at = base.strip_prefix("http://").unwrap();
        let to_try = lines.by_ref().map(Result::unwrap).skip_while(|line| !line.contains(at)).take(2);
        assert!(to_try.filter(|line| line.contains(at)).count() == 2, "it prints two lines to try");
        // Whatever it prints later is read, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, base, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<String> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("content-type", "application/json").body(Full::from(body.to_owned())).unwrap();
        let (parts, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Response::from_parts(parts, String::from_utf8(body).unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Stops it, and gives what it has logged.
    pub(crate) fn into_log(mut self) -> String {
        self.process.kill().unwrap();
        let mut log = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }

    /// Ctrl-C, and how the process ended.
    pub(crate) fn interrupt(&mut self) -> ExitStatus {
        self.signal("-INT");
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
