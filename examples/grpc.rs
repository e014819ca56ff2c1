//! Calls of gRPC and requests of HTTP on one port, on one budget.
//!
//! ```text
//! cargo run --example grpc --features grpc
//! cargo run --example grpc --features grpc -- --client
//! ```
//!
//! It serves `echo.v1.Echo` of `proto/echo.proto`, and `POST /echo`. A call is counted when it opens, however many
//! messages go over it. With `--client`, it calls a server that runs at `ADDR` in each of these ways, as the account
//! `alice`, and prints what it gets.
//!
//! | environment | meaning | default |
//! |---|---|---|
//! | `ADDR` | where to listen, or what to call | `127.0.0.1:50051` |
//! | `ACCOUNT_PER_HOUR` | calls an hour for one account, by the metadata (or header) `x-account` | 30 |
//! | `CAPACITY_PER_HOUR` | calls an hour for the whole service | 3000 |
//! | `REDIS_URL`, `REDIS_SENTINEL`, `ON_STORE_ERROR` | as in the example `quickstart` | |

mod environment;
mod server;

/// What `proto/echo.proto` gives. It is under version control, so that nobody needs a compiler for it.
#[allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub, rust_2018_idioms, reason = "generated")]
mod echo {
    include!("proto/echo.v1.rs");
}

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use axum::Router;
use axum::routing::post;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::service::{LayerExt, Routes};
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};
use tower_quota::{ConfigError, GlobalCapacityLayer, Group, HOUR, Quota, QuotaLayer, UserQuotaLayer, key};

use self::echo::Message;
use self::echo::echo_client::EchoClient;
use self::echo::echo_server::{Echo, EchoServer};
use self::environment::{group, of_variable, variable};
use self::server::{run, say, serve};

#[tokio::main]
async fn main() -> ExitCode {
    run(async {
        match std::env::args().nth(1).as_deref() {
            None => answer().await,
            Some("--client") => call().await,
            Some(other) => Err(format!("{other:?} is no argument: it is --client, or none for the server").into()),
        }
    })
    .await
}

fn addr() -> Result<SocketAddr, String> {
    variable("ADDR", SocketAddr::from(([127, 0, 0, 1], 50_051)))
}

async fn answer() -> Result<(), Box<dyn Error>> {
    let calls = calls(&group("call")?, variable("ACCOUNT_PER_HOUR", 30)?, variable("CAPACITY_PER_HOUR", 3_000)?)?;
    serve(addr()?, app(&calls), |at| {
        format!(
            "  ADDR={at} cargo run --example grpc --features grpc -- --client\n  \
             curl -i -H 'x-account: alice' -d hello http://{at}/echo"
        )
    })
    .await
}

/// The same layer for both, and so the same budget.
fn calls(group: &Group, per_account: u64, in_all: u64) -> Result<QuotaLayer, ConfigError> {
    let quota = Quota::fixed_window(per_account, HOUR).map_err(of_variable("ACCOUNT_PER_HOUR"))?;
    let account = group.per_key("account", quota).build()?;
    let quota = Quota::fixed_window(in_all, HOUR).map_err(of_variable("CAPACITY_PER_HOUR"))?;
    let capacity = group.shared("capacity", quota).build()?;
    UserQuotaLayer::new(&account, key::header("x-account")?).and(GlobalCapacityLayer::new(&capacity))
}

fn app(calls: &QuotaLayer) -> Router {
    let http = Router::new().route("/echo", post(async |body: String| body).route_layer(calls.clone()));
    let grpc = Routes::new(calls.named_layer(EchoServer::new(Echoes)));
    // What is at no path is 404, which clients of gRPC take for a call that is not implemented.
    http.merge(grpc.into_axum_router().reset_fallback())
}

/// Answers with what it was told.
struct Echoes;

#[tonic::async_trait]
impl Echo for Echoes {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type ServerStreamStream = BoxStream<'static, Result<Message, Status>>;

    async fn server_stream(&self, request: Request<Message>) -> Result<Response<Self::ServerStreamStream>, Status> {
        let message = request.into_inner();
        let times = message.repeat.max(1);
        Ok(Response::new(stream::iter((0..times).map(move |_| Ok(message.clone()))).boxed()))
    }

    async fn client_stream(&self, request: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        let mut messages = request.into_inner();
        let mut last = Message::default();
        let mut count: u32 = 0;
        while let Some(message) = messages.message().await? {
            last = message;
            count = count.saturating_add(1);
        }
        Ok(Response::new(Message { repeat: count, ..last }))
    }

    type BidiStream = Streaming<Message>;

    async fn bidi(&self, request: Request<Streaming<Message>>) -> Result<Response<Self::BidiStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

/// Calls in each way, and prints what it gets.
async fn call() -> Result<(), Box<dyn Error>> {
    let addr = addr()?;
    let channel = Endpoint::from_shared(format!("http://{addr}"))?.connect().await;
    let channel = channel.map_err(|error| format!("ADDR: nothing answers at {addr}: {error}"))?;
    let mut client = EchoClient::with_interceptor(channel, |mut request: Request<()>| {
        request.metadata_mut().insert("x-account", MetadataValue::from_static("alice"));
        Ok(request)
    });
    let message = || Message { text: "hello".to_owned(), repeat: 3 };

    tell("Unary", client.unary(message()).await);
    match client.server_stream(message()).await {
        Ok(response) => tell_all("ServerStream", response.into_inner()).await,
        Err(status) => tell("ServerStream", Err(status)),
    }
    tell("ClientStream", client.client_stream(stream::iter([message(), message()])).await);
    match client.bidi(stream::iter([message(), message()])).await {
        Ok(response) => tell_all("Bidi", response.into_inner()).await,
        Err(status) => tell("Bidi", Err(status)),
    }
    Ok(())
}

fn tell(method: &str, answer: Result<Response<Message>, Status>) {
    match answer {
        Ok(response) => say(&format!("{method}: {:?}", response.into_inner())),
        Err(status) => say(&format!("{method}: {status}")),
    }
}

async fn tell_all(method: &str, mut messages: impl Stream<Item = Result<Message, Status>> + Unpin) {
    while let Some(message) = messages.next().await {
        tell(method, message.map(Response::new));
    }
}
