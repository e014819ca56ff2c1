//! The example `grpc`, run as a user runs it.

use std::process::Command;

use tonic::Code;
use tonic::transport::Endpoint;

use super::echo::Message;
use super::echo::echo_client::EchoClient;
use super::service::by;
use crate::support::{Example, Server};

fn message() -> Message {
    Message { text: "hello".to_owned(), repeat: 2 }
}

#[tokio::test]
async fn calls_and_requests_share_one_budget() {
    let server = Server::start();
    for url in ["", &*server.url()] {
        let environment = [("REDIS_URL", url), ("ACCOUNT_PER_HOUR", "3"), ("CAPACITY_PER_HOUR", "5")];
        let mut service = Example::start("grpc", &environment);
        let mut client = EchoClient::new(Endpoint::from_shared(service.base.clone()).unwrap().connect().await.unwrap());
        let post = async |account| service.send("POST", "/echo", &[("x-account", account)], "hello").await;
        for nowhere in ["/echo/", "/nothing"] {
            assert_eq!(service.send("POST", nowhere, &[("x-account", "alice")], "hello").await.status(), 404);
        }

        assert_eq!(client.unary(by("alice", message())).await.unwrap().into_inner(), message());
        let echoed = post("alice").await;
        assert_eq!((echoed.status().as_u16(), echoed.body().as_str()), (200, "hello"));
        assert_eq!(client.unary(by("alice", message())).await.unwrap().into_inner(), message());
        assert_eq!(post("alice").await.status(), 429);
        let refused = client.unary(by("alice", message())).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);

        assert_eq!(post("bob").await.status(), 200);
        assert_eq!(post("bob").await.status(), 200);
        assert_eq!(post("bob").await.status(), 503);
        assert_eq!(client.unary(by("bob", message())).await.unwrap_err().code(), Code::Unavailable);
        drop(client);
        assert!(service.interrupt().success());
    }
}

#[test]
fn the_client_prints_what_it_gets() {
    let service = Example::start("grpc", &[("ACCOUNT_PER_HOUR", "4")]);
    let addr = service.base.strip_prefix("http://").unwrap();
    let call = || {
        let mut client: Command = Example::program("grpc");
        let output = client.arg("--client").env("ADDR", addr).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let mistyped = Example::program("grpc").arg("--clinet").output().unwrap();
    let told = String::from_utf8_lossy(&mistyped.stderr).into_owned();
    assert!(!mistyped.status.success() && told.contains("--client"), "{told}");
    let answered = call();
    for (kind, times) in [("Unary", 1), ("ServerStream", 3), ("ClientStream", 1), ("Bidi", 2)] {
        let lines = answered.lines().filter(|line| line.starts_with(kind) && line.contains(r#"text: "hello""#)).count();
        assert_eq!(lines, times, "{answered}");
    }
    let refused = call();
    assert_eq!(refused.lines().filter(|line| line.contains("The quota is used up")).count(), 4, "{refused}");
}
