//! A tonic server to call.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tokio::sync::Semaphore;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tower::{Layer, Service};
use tower_quota::RequestMeter;

use super::echo::Message;
use super::echo::echo_client::EchoClient;
use super::echo::echo_server::{Echo, EchoServer};

type Error = Box<dyn std::error::Error + Send + Sync>;

pub(super) type Client = EchoClient<Channel>;

/// A client of a server that has a layer around all of it, and ends with the test.
pub(super) async fn behind<L, S, B>(layer: L, echoes: Echoes) -> Client
where
    L: Layer<Routes, Service = S>,
    S: Service<http::Request<tonic::body::Body>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Error> + Send,
    B: http_body::Body<Data = Bytes, Error: Into<Error>> + Send + 'static,
{
    EchoClient::new(Endpoint::from_shared(serve(layer, echoes)).unwrap().connect().await.unwrap())
}

/// The address of such a server.
pub(crate) fn serve<L, S, B>(layer: L, echoes: Echoes) -> String
where
    L: Layer<Routes, Service = S>,
    S: Service<http::Request<tonic::body::Body>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Error> + Send,
    B: http_body::Body<Data = Bytes, Error: Into<Error>> + Send + 'static,
{
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let at = format!("http://{}", incoming.local_addr().unwrap());
    let service = layer.layer(Routes::new(EchoServer::new(echoes)));
    tokio::spawn(Server::builder().serve_with_incoming(service, incoming));
    at
}

/// A call as an account.
pub(super) fn by<T>(account: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-account", account.parse().unwrap());
    request
}

/// What a message says that fails the call after it.
pub(super) const FAILING: &str = "fail";

/// Answers with what it was told, once it may.
pub(crate) struct Echoes {
    may_end: Arc<Semaphore>,
}

impl Echoes {
    pub(crate) fn at_once() -> Self {
        Self::when(&Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)))
    }

    /// Each answer ends when it finds a permit.
    pub(super) fn when(may_end: &Arc<Semaphore>) -> Self {
        Self { may_end: Arc::clone(may_end) }
    }

    /// The end of a call, which is bad if the last message says so.
    fn outcome(last: &Message) -> Result<(), Status> {
        if last.text != FAILING {
            return Ok(());
        }
        let mut failure = Status::aborted("half way: \u{e4}");
        failure.metadata_mut().insert("x-detail", "42".parse().unwrap());
        Err(failure)
    }

    async fn end(may_end: Arc<Semaphore>) {
        may_end.acquire().await.unwrap().forget();
    }
}

#[tonic::async_trait]
impl Echo for Echoes {
    /// Charges as much as it says, if that is left to it.
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        let meter = request.extensions().get::<RequestMeter>().cloned();
        let message = request.into_inner();
        if let Some(meter) = meter {
            meter.charge(u64::from(message.repeat)).await?;
        }
        Self::end(Arc::clone(&self.may_end)).await;
        Self::outcome(&message)?;
        let mut response = Response::new(message);
        response.metadata_mut().insert("x-kind", "unary".parse().unwrap());
        Ok(response)
    }

    type ServerStreamStream = BoxStream<'static, Result<Message, Status>>;

    async fn server_stream(&self, request: Request<Message>) -> Result<Response<Self::ServerStreamStream>, Status> {
        let message = request.into_inner();
        let may_end = Arc::clone(&self.may_end);
        let outcome = Self::outcome(&message);
        let messages = stream::iter((0..message.repeat).map(move |_| Ok(message.clone())));
        let end =
            stream::once(Self::end(may_end)).filter_map(move |()| std::future::ready(outcome.clone().err().map(Err)));
        Ok(Response::new(messages.chain(end).boxed()))
    }

    async fn client_stream(&self, request: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        let mut messages = request.into_inner();
        let mut answer = Message::default();
        while let Some(message) = messages.message().await? {
            answer = Message { repeat: answer.repeat + 1, ..message };
        }
        Self::end(Arc::clone(&self.may_end)).await;
        Self::outcome(&answer)?;
        Ok(Response::new(answer))
    }

    type BidiStream = BoxStream<'static, Result<Message, Status>>;

    async fn bidi(&self, request: Request<Streaming<Message>>) -> Result<Response<Self::BidiStream>, Status> {
        let end = stream::once(Self::end(Arc::clone(&self.may_end))).filter_map(|()| async { None });
        let messages = request.into_inner().and_then(async |message| Self::outcome(&message).map(|()| message));
        Ok(Response::new(messages.chain(end).boxed()))
    }
}
