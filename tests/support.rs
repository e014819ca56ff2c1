//! What the tests share: a group on a fake clock, services to stand behind a layer, a log to read.

mod cluster;
mod counted;
mod example;
mod log;
mod port;
mod probe;
mod proxy;
mod server;
mod slow_store;

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{Service, ServiceExt, service_fn};
use tower_quota::testing::FakeClock;
use tower_quota::{ChargeError, Cost, Group, Key, MemoryStore, Meter, PerKeyAxis, RequestKey, Verdict, key};

pub(crate) use self::cluster::{Cluster, Watched};
pub(crate) use self::counted::Counted;
pub(crate) use self::example::Example;
pub(crate) use self::log::Log;
pub(crate) use self::port::free_port;
pub(crate) use self::probe::Probe;
pub(crate) use self::proxy::{Proxy, Wire};
pub(crate) use self::server::Server;
pub(crate) use self::slow_store::SlowStore;

pub(crate) const MILLI: Duration = Duration::from_millis(1);

/// A group over a memory store of its own, and the clock of both.
pub(crate) fn group() -> (Group, FakeClock) {
    let clock = FakeClock::new();
    let group = Group::new("test", MemoryStore::with_clock(clock.clone())).unwrap();
    (group, clock)
}

/// The account of a [`request`].
pub(crate) fn account() -> RequestKey {
    key::header("x-account").unwrap()
}

/// A meter of one axis per name.
pub(crate) fn by_name(axis: &PerKeyAxis) -> Meter<str> {
    Meter::new(axis.by(|name: &str| Key::from(name)))
}

/// Charges, with a store that answers at once.
pub(crate) fn charge<Q: ?Sized>(meter: &Meter<Q>, who: &Q, cost: impl Into<Cost>) -> Result<Verdict, ChargeError> {
    meter.ask(who, cost).answered().expect("the memory store answers at once")
}

/// Charges, and tells only whether it fitted and how long to wait if not.
pub(crate) fn try_charge<Q: ?Sized>(meter: &Meter<Q>, who: &Q, cost: impl Into<Cost>) -> Result<(), Duration> {
    match charge(meter, who, cost) {
        Ok(_) => Ok(()),
        Err(ChargeError::Refused(verdict)) => Err(verdict.wait()),
        Err(error) => panic!("neither admitted nor refused: {error}"),
    }
}

/// Units used and left on an axis.
pub(crate) fn used<Q: ?Sized>(meter: &Meter<Q>, who: &Q) -> Vec<(u64, u64)> {
    let verdict = charge(meter, who, 0).unwrap();
    verdict.reports().iter().map(|report| (report.used(), report.remaining())).collect()
}

/// A future that is ready at once.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("not ready at once"),
    }
}

pub(crate) type Body = Full<Bytes>;

/// A request of an account, by the header that the tests count under.
pub(crate) fn request(account: &str) -> Request<Body> {
    Request::post("/").header("x-account", account).body(Body::default()).unwrap()
}

/// A service that answers everything with 202.
pub(crate) fn accepting()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + Sync + 'static
{
    service_fn(|_: Request<Body>| async {
        Ok(Response::builder().status(StatusCode::ACCEPTED).body(Body::default()).unwrap())
    })
}

/// A real server, and its address. It stops with the test's runtime.
pub(crate) async fn serve(app: axum::Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    format!("http://{address}")
}

/// The answer of a service.
pub(crate) async fn answer<S, B>(service: &S, request: Request<Body>) -> Response<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
{
    match service.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// The status of a service's answer.
pub(crate) async fn status<S, B>(service: &S, request: Request<Body>) -> u16
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
{
    answer(service, request).await.status().as_u16()
}

/// The body of a response, as text.
pub(crate) async fn text<B>(response: Response<B>) -> String
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// The value of a header, as text.
pub(crate) fn header<'r, B>(response: &'r Response<B>, name: &str) -> Option<&'r str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}
