//! Everything that steers the flow of requests, mounted for trying by hand.
//!
//! ```text
//! cargo run --example flow
//! ```
//!
//! | route | what is around it |
//! |---|---|
//! | `GET /slow?ms=`, `GET /stream?chunks=&ms=`, `GET /ws` | one `ConcurrencyLayer`; a body of so many chunks, so far apart; a WebSocket that echoes |
//! | `GET /inflight` | nothing: what is in flight under that layer, and what waits, as JSON |
//! | `GET /seats`, `POST /seats` | a `ReadWriteSplitLayer`: read 20 a second in all and 8 for a user, write 2 and 1; the user is the header `x-user` |
//! | `POST /push` with `{"recipients": n}` | a cooldown of the school in the header `x-school`; a call sends to at most 200, and takes `"ms"` if that is given |
//! | `POST /login?password=` | a `CooldownLayer`: after three wrong passwords, which is all but `right`, the account in the header `x-account` is locked for `REST_S` |
//! | `POST /mail` | a quota of two a second for the account in `x-account` that is waited for, up to five seconds |
//! | `GET /fanout?calls=&ms=` | up to 10,000 calls that take so long, by a client under a `ConcurrencyLayer` of its own, `CONCURRENCY` at once: their results in order, as JSON |
//! | `GET /upstream?status=&retry_after=` | a `BackoffLayer` around an upstream that answers so |
//!
//! | environment | meaning | default |
//! |---|---|---|
//! | `ADDR` | where to listen | `127.0.0.1:3000` |
//! | `REDIS_URL`, `REDIS_SENTINEL`, `ON_STORE_ERROR` | as in the example `quickstart` | |
//! | `CONCURRENCY`, `QUEUE`, `WAIT_MS` | requests at once, requests that wait, and for how long | 8, 0, 0 |
//! | `ATTEMPTS`, `REST_S` | messages of a school, and the rest after them | 5000, 180 |

mod environment;
mod server;

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use tower::{Layer, ServiceExt, service_fn};
use tower_quota::{
    BackoffLayer, ConcurrencyLayer, ConfigError, Cooldown, CooldownAxis, CooldownLayer, GlobalCapacityLayer, Group,
    HOUR, KeyRead, Permit, QuotaLayer, ReadWriteSplitLayer, Rejection, RequestKey, UserQuotaLayer, key,
};

use self::environment::{group, of_variable, variable};
use self::server::{run, serve};

#[tokio::main]
async fn main() -> ExitCode {
    run(flow()).await
}

async fn flow() -> Result<(), Box<dyn Error>> {
    let addr: SocketAddr = variable("ADDR", SocketAddr::from(([127, 0, 0, 1], 3000)))?;
    let at_once = variable("CONCURRENCY", 8)?;
    let outbound = ConcurrencyLayer::new(at_once).max_queue(usize::MAX).max_wait(HOUR);
    let concurrency = ConcurrencyLayer::new(at_once)
        .max_queue(variable("QUEUE", 0)?)
        .max_wait(Duration::from_millis(variable("WAIT_MS", 0)?));
    let rest = Duration::from_secs(variable("REST_S", 180)?);
    let group = group("flow")?;
    let push = group.cooldown("school", Cooldown::after_attempts(variable("ATTEMPTS", 5_000)?).rest(rest));
    let push = push.build().map_err(of_variable("ATTEMPTS, REST_S"))?;

    let app = Router::new()
        .merge(slow(&concurrency))
        .route("/inflight", get(in_flight).with_state(concurrency))
        .route("/seats", get(accepted).post(accepted).route_layer(seats(&group)?))
        .route("/push", post(send).with_state((push, key::header("x-school")?)))
        .route("/login", post(log_in).route_layer(login_guard(&group, rest)?))
        .route("/mail", post(accepted).route_layer(mail(&group)?))
        .route("/fanout", get(fan_out).with_state(outbound))
        .route("/upstream", upstream(&group)?);

    serve(addr, app, |at| {
        format!(
            "  curl 'http://{at}/slow?ms=5000' & curl http://{at}/inflight\n  \
             curl -i -H 'x-school: north' --json '{{\"recipients\": 200}}' http://{at}/push"
        )
    })
    .await
}

/// Requests that take their time, so many at once.
fn slow(concurrency: &ConcurrencyLayer) -> Router {
    let limited = |handler: MethodRouter| handler.route_layer(concurrency.clone());
    Router::new()
        .route("/slow", limited(get(answer_slowly)))
        .route("/stream", limited(get(stream_slowly)))
        .route("/ws", limited(get(web_socket)))
}

#[derive(Deserialize)]
struct Pace {
    #[serde(default)]
    chunks: usize,
    #[serde(default)]
    ms: u64,
}

async fn answer_slowly(Query(pace): Query<Pace>) -> &'static str {
    tokio::time::sleep(Duration::from_millis(pace.ms)).await;
    "done\n"
}

async fn stream_slowly(Query(pace): Query<Pace>) -> Body {
    Body::from_stream(chunks(pace))
}

fn chunks(Pace { chunks, ms }: Pace) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::iter(0..chunks).then(move |_| async move {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(Bytes::from_static(b"chunk\n"))
    })
}

/// The permit goes with the connection: it is in flight until the socket is closed.
async fn web_socket(upgrade: WebSocketUpgrade, Extension(permit): Extension<Permit>) -> axum::response::Response {
    upgrade.on_upgrade(|socket| echo(socket, permit))
}

async fn echo(mut socket: WebSocket, _permit: Permit) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

#[derive(Serialize)]
struct InFlight {
    in_flight: usize,
    queued: usize,
}

async fn in_flight(State(layer): State<ConcurrencyLayer>) -> Json<InFlight> {
    Json(InFlight { in_flight: layer.in_flight(), queued: layer.queued() })
}

/// Reads and writes on budgets of their own, the user's judged before that of all.
fn seats(group: &Group) -> Result<ReadWriteSplitLayer<QuotaLayer>, ConfigError> {
    let side = |name: &str, of_user: &str, of_all: &str| {
        let user = group.per_key(&format!("user-{name}"), of_user).build()?;
        let all = group.shared(name, of_all).build()?;
        UserQuotaLayer::new(&user, key::header("x-user")?).and(GlobalCapacityLayer::new(&all))
    };
    Ok(ReadWriteSplitLayer::new(side("reads", "fixed 8/s", "fixed 20/s")?, side("writes", "fixed 1/s", "fixed 2/s")?))
}

async fn accepted() -> StatusCode {
    StatusCode::ACCEPTED
}

#[derive(Deserialize)]
struct Push {
    recipients: u64,
    #[serde(default)]
    ms: u64,
}

#[derive(Serialize)]
struct Pushed {
    sent: u64,
    left: u64,
}

/// Sends to as many as a call may, and as fit before the school rests.
async fn send(
    State((push, school)): State<(CooldownAxis, RequestKey)>,
    parts: Parts,
    Json(Push { recipients, ms }): Json<Push>,
) -> Result<impl IntoResponse, axum::response::Response> {
    const MOST: u64 = 200;
    let KeyRead::Found(school) = school.read(&parts) else { return Err(StatusCode::BAD_REQUEST.into_response()) };
    let begun = push.begin(&school, recipients.min(MOST)).await;
    let attempts = begun.map_err(|error| Rejection::from(error).into_response())?;
    let sent = attempts.granted();
    // Here the messages would go out; whatever comes of it, they stay counted. If the store does not hear of the end, the
    // lease ends them.
    tokio::time::sleep(Duration::from_millis(ms)).await;
    let _ = attempts.end().await;
    Ok((StatusCode::ACCEPTED, Json(Pushed { sent, left: recipients - sent })))
}

/// Three wrong passwords lock an account.
fn login_guard(group: &Group, rest: Duration) -> Result<CooldownLayer, ConfigError> {
    let account = group.cooldown("login", Cooldown::after_failures(3).rest(rest)).build()?;
    Ok(CooldownLayer::new(&account, key::header("x-account")?))
}

#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    password: String,
}

async fn log_in(Query(Login { password }): Query<Login>) -> StatusCode {
    if password == "right" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
}

/// What comes too soon waits for its turn.
fn mail(group: &Group) -> Result<QuotaLayer, ConfigError> {
    let account = group.per_key("mail", "bucket 2 2/s").build()?;
    Ok(UserQuotaLayer::new(&account, key::header("x-account")?).wait_up_to(Duration::from_secs(5)))
}

#[derive(Deserialize)]
struct FanOut {
    calls: usize,
    #[serde(default)]
    ms: u64,
}

/// Makes many calls through a client that makes so many at once, and tells what they came to in the order of the calls.
async fn fan_out(
    State(limit): State<ConcurrencyLayer>,
    Query(FanOut { calls, ms }): Query<FanOut>,
) -> Result<Json<Vec<String>>, StatusCode> {
    /// How many calls are begun before the first has ended.
    const AHEAD: usize = 500;
    if calls > 10_000 {
        return Err(StatusCode::BAD_REQUEST);
    }
    let client = limit.layer(service_fn(move |call: Request<Body>| async move {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok::<_, Infallible>(Response::new(call.into_body()))
    }));
    let call = |number: usize| {
        let client = client.clone();
        async move {
            let Ok(response) = client.oneshot(Request::new(Body::from(number.to_string()))).await;
            let body = axum::body::to_bytes(Body::new(response.into_body()), usize::MAX).await;
            body.map_or_else(|error| error.to_string(), |body| String::from_utf8_lossy(&body).into_owned())
        }
    };
    Ok(Json(stream::iter(0..calls).map(call).buffered(AHEAD).collect().await))
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    retry_after: Option<String>,
}

/// Calls an upstream, unless that has asked for a pause.
fn upstream(group: &Group) -> Result<MethodRouter, ConfigError> {
    let backoff = group.backoff("upstream").build()?;
    let client = BackoffLayer::new(&backoff, key::constant("upstream")).layer(service_fn(answer_as_asked));
    Ok(get(|request: Request<Body>| async move {
        let Ok(response) = client.oneshot(request).await;
        response.map(Body::new)
    }))
}

async fn answer_as_asked(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let asked = Query::<Asked>::try_from_uri(request.uri());
    let Ok(Query(Asked { status, retry_after })) = asked else {
        return Ok(answered(StatusCode::BAD_REQUEST));
    };
    let Ok(status) = status.map_or(Ok(StatusCode::OK), StatusCode::from_u16) else {
        return Ok(answered(StatusCode::BAD_REQUEST));
    };
    let mut response = answered(status);
    if let Some(retry_after) = retry_after.and_then(|text| text.parse().ok()) {
        response.headers_mut().insert("retry-after", retry_after);
    }
    Ok(response)
}

fn answered(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
