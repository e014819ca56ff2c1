//! The quickstart behind a real reverse proxy, which adds to what its clients say of themselves.

use std::net::{IpAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::support::{Example, free_port};

/// A proxy in front of a service.
struct Nginx {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Nginx {
    fn before(service: &Example) -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("tower-quota-nginx-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = include_str!("nginx.conf").replace("NGINX_PORT", &port.to_string());
        let config = config.replace("SERVICE", service.base.strip_prefix("http://").unwrap());
        std::fs::write(folder.join("nginx.conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command.args(["-e", "stderr", "-c", "nginx.conf", "-p"]).arg(&folder).stdout(Stdio::null());
        let process = command.spawn().unwrap_or_else(|error| {
            panic!("nginx cannot be started ({error}): install the package nginx-light, or use `tests/run`")
        });
        let nginx = Self { process, folder, port };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "nginx does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        nginx
    }

    /// A client at an address of this machine.
    fn client(&self, from: [u8; 4]) -> ProxyClient {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(IpAddr::from(from)));
        let url = format!("http://127.0.0.1:{}/wishlists", self.port);
        ProxyClient { client: Client::builder(TokioExecutor::new()).build(connector), url }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct ProxyClient {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl ProxyClient {
    async fn post(&self, forged: &[(&str, &[u8])]) -> u16 {
        let mut request = Request::post(&self.url).body(Full::default()).unwrap();
        for (name, value) in forged {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
        }
        self.client.request(request).await.unwrap().status().as_u16()
    }
}

/// What somebody would send who wants to be counted as somebody else.
fn forgeries() -> Vec<Vec<u8>> {
    let mut forgeries: Vec<Vec<u8>> = (0..100).map(|number| format!("198.51.100.{number}").into_bytes()).collect();
    forgeries.extend((0..100).map(|number| format!("for=198.51.100.{number}").into_bytes()));
    forgeries.extend((1..=60).map(|count| vec![b"127.0.0.1".as_slice(); count].join(&b", "[..])));
    for odd in [
        &b""[..],
        b",",
        b", , ,",
        b"evil",
        b"unknown",
        b"127.0.0.1:",
        b"203.0.113.7:99999",
        b"[2001:db8::1",
        b"fe80::1%eth0.100",
        b"::ffff:127.0.0.1",
        b"010.0.0.1",
        b"\xff\xfe\xfd",
        b"for=\"",
        b"for=\"198.51.100.1",
        b"for=\"198.51.100.1\\\"",
        b"for=unknown, for=_hidden",
        b"for: 198.51.100.2;proto: https",
    ] {
        forgeries.push(odd.to_vec());
    }
    forgeries.extend([b'x', b','].map(|letter| vec![letter; 32 << 10]));
    forgeries.push(vec![&b"203.0.113.7"[..]; 5_000].join(&b","[..]));
    forgeries
}

#[tokio::test]
async fn nobody_is_counted_as_somebody_else_whatever_they_send() {
    for header in ["x-forwarded-for", "forwarded"] {
        let service = Example::start(
            "quickstart",
            &[
                ("KEY", "client_ip"),
                ("TRUSTED_PROXIES", "127.0.0.1, 10.0.0.0/8"),
                ("FORWARDED", header),
                ("ACCOUNT_PER_HOUR", "5"),
            ],
        );
        let nginx = Nginx::before(&service);
        let (forger, honest) = (nginx.client([127, 0, 0, 2]), nginx.client([127, 0, 0, 3]));
        let mut admitted = 0;
        for forged in forgeries() {
            let both: [(&str, &[u8]); 2] = [("x-forwarded-for", &forged), ("forwarded", &forged)];
            for lines in [&both[..1], &both[1..], &both, &[both[0], both[0]]] {
                match forger.post(lines).await {
                    202 => admitted += 1,
                    429 => {}
                    other => panic!("{header}: {other}: {}", String::from_utf8_lossy(&forged)),
                }
            }
        }
        assert_eq!(admitted, 5, "{header}");
        for expected in [202, 202, 202, 202, 202, 429] {
            assert_eq!(honest.post(&[]).await, expected, "{header}");
        }
    }
}
