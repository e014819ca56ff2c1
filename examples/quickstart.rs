//! The wish-list service: a worker pool parses items, and requests are counted by the parsing jobs that they queue.
//!
//! An account has a quota, which is its own fault to use up (429); the service has a capacity, which is not (503). Both
//! are decided in one step, so a request that is refused has cost nothing.
//!
//! ```text
//! cargo run --example quickstart
//! ```
//!
//! | environment | meaning | default |
//! |---|---|---|
//! | `ADDR` | where to listen | `127.0.0.1:3000` |
//! | `ACCOUNT_PER_HOUR` | jobs an hour for one account, by the header `x-account` | 30 |
//! | `CAPACITY_PER_HOUR` | jobs an hour for the whole service | 3000 |
//! | `REDIS_URL` | where instances that share the limits count (with `--features redis`); several addresses with commas between them are nodes of a cluster (`redis-cluster`), or Sentinels (`redis-sentinel`) | in this process |
//! | `REDIS_SENTINEL` | what the Sentinels call the primary | they are nodes of a cluster |
//! | `ON_STORE_ERROR` | what happens while that does not answer: `open`, `closed`, or `local`, half of each limit | `open` |

use std::env;
use std::error::Error;
use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower_quota::{
    ConfigError, GlobalCapacityLayer, Group, HOUR, MemoryStore, OnStoreFailure, Quota, QuotaLayer, Rejection,
    RequestMeter, UserQuotaLayer, Watermark, key,
};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let addr: SocketAddr = variable("ADDR", SocketAddr::from(([127, 0, 0, 1], 3000)))?;
    let per_account = variable("ACCOUNT_PER_HOUR", 30)?;
    let in_all = variable("CAPACITY_PER_HOUR", 3_000)?;
    let app = app(&parsing(&items()?, per_account, in_all)?);
    // Heard from before anybody is told that the service is there.
    let interrupted = ctrl_c()?;

    let listener = TcpListener::bind(addr).await.map_err(|error| format!("ADDR: cannot listen on {addr}: {error}"))?;
    let at = listener.local_addr()?;
    say(&format!(
        "Listening on http://{at}\n\
         {per_account} jobs an hour for an account, {in_all} for the service. Try:\n  \
         curl -i -X POST -H 'x-account: alice' http://{at}/wishlists\n  \
         curl -i -H 'x-account: alice' --json '{{\"images\": [\"a.jpg\", \"b.jpg\"]}}' http://{at}/wishlists/images"
    ));
    serve(listener, app, interrupted).await
}

/// Where items are counted: in Redis, if there is an address of one, else in this process.
fn items() -> Result<Group, Box<dyn Error>> {
    let group = Group::builder("item").on_store_failure(match &*variable("ON_STORE_ERROR", "open".to_owned())? {
        "open" => OnStoreFailure::Open,
        "closed" => OnStoreFailure::Closed,
        "local" => OnStoreFailure::Local { percent: 50 },
        other => return Err(format!("ON_STORE_ERROR: {other:?} cannot be used: it is open, closed or local").into()),
    });
    let url: String = variable("REDIS_URL", String::new())?;
    if url.is_empty() {
        return Ok(group.build(MemoryStore::new())?);
    }
    #[cfg(feature = "redis")]
    return Ok(group.build(redis(&url)?)?);
    #[cfg(not(feature = "redis"))]
    return Err("REDIS_URL cannot be used: run this example with --features redis".into());
}

/// A Redis, a cluster of them, or one behind Sentinels.
#[cfg(feature = "redis")]
fn redis(url: &str) -> Result<tower_quota::RedisStore, Box<dyn Error>> {
    use tower_quota::RedisStore;
    let urls = || url.split(',').map(str::trim);
    let primary: String = variable("REDIS_SENTINEL", String::new())?;
    let builder = match (primary.is_empty(), urls().count()) {
        (true, 1) => RedisStore::builder(url),
        #[cfg(feature = "redis-cluster")]
        (true, _) => RedisStore::cluster(urls()),
        #[cfg(feature = "redis-sentinel")]
        (false, _) => RedisStore::sentinel(urls(), &primary),
        #[cfg(not(all(feature = "redis-cluster", feature = "redis-sentinel")))]
        _ => return Err("REDIS_URL: a cluster needs --features redis-cluster, Sentinels redis-sentinel".into()),
    };
    Ok(builder.build().map_err(of_variable("REDIS_URL"))?)
}

/// Both axes, in the order in which they are judged.
fn parsing(items: &Group, per_account: u64, in_all: u64) -> Result<QuotaLayer, ConfigError> {
    let quota = Quota::fixed_window(per_account, HOUR).map_err(of_variable("ACCOUNT_PER_HOUR"))?;
    let account = items.per_key("account", quota).build()?;
    let quota = Quota::fixed_window(in_all, HOUR).map_err(of_variable("CAPACITY_PER_HOUR"))?;
    let capacity = items.shared("capacity", quota).watermark(Watermark::percent(66).cleared_at(50)).build()?;

    UserQuotaLayer::new(&account, key::header("x-account")?).and(GlobalCapacityLayer::new(&capacity))
}

fn app(parsing: &QuotaLayer) -> Router {
    // The layer goes around the method's handler, so that another method, which is answered with 405, costs nothing.
    // One job each …
    let item = || post(accepted).route_layer(parsing.clone());
    // … or as many as images, which only the body tells.
    let batch = || post(images).route_layer(parsing.clone().charged_by_handler());

    Router::new()
        .route("/wishlists", item().get(|| async { Json(["a wish"]) }))
        .route("/wishlists/{id}/refresh", item())
        .route("/tournaments/{id}/items/link", item())
        .route("/wishlists/images", batch())
        .route("/wishlists/images/presigned", batch())
        .route("/tournaments/{id}/items/images", batch())
        .route("/tournaments/{id}/items/images/presigned", batch())
        // Nothing is parsed for these.
        .route("/wishlists/images/confirm", post(accepted))
        .route("/tournaments/{id}/items/wish", post(accepted))
        .route("/health", get(|| async { "ok" }))
}

async fn accepted() -> StatusCode {
    StatusCode::ACCEPTED
}

#[derive(Deserialize)]
struct Batch {
    images: Vec<String>,
}

async fn images(meter: RequestMeter, Json(batch): Json<Batch>) -> Result<StatusCode, Rejection> {
    if batch.images.is_empty() {
        return Ok(StatusCode::BAD_REQUEST);
    }
    meter.charge(batch.images.len()).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Prints, whether or not anybody reads it.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The value of an environment variable, if it is set to one.
fn variable<T: FromStr<Err: Display>>(name: &str, default: T) -> Result<T, String> {
    match env::var(name) {
        Ok(value) => value.parse().map_err(|error| format!("{name}: {value:?} cannot be used: {error}")),
        Err(env::VarError::NotPresent) => Ok(default),
        Err(error @ env::VarError::NotUnicode(_)) => Err(format!("{name} cannot be used: {error}")),
    }
}

/// A quota's error, told of the variable that it came from.
fn of_variable(name: &str) -> impl Fn(ConfigError) -> ConfigError {
    move |error| ConfigError::new(name, error.reason())
}

#[cfg(unix)]
type CtrlC = tokio::signal::unix::Signal;
#[cfg(windows)]
type CtrlC = tokio::signal::windows::CtrlC;

fn ctrl_c() -> std::io::Result<CtrlC> {
    #[cfg(unix)]
    return tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
    #[cfg(windows)]
    return tokio::signal::windows::ctrl_c();
}

/// Serves until Ctrl-C, and then until the requests under way are answered, but for at most five seconds.
async fn serve(listener: TcpListener, app: Router, mut interrupted: CtrlC) -> Result<(), Box<dyn Error>> {
    let (stop, mut stopped) = watch::channel(());
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        let _ = stopped.changed().await;
    });
    let server = tokio::spawn(server.into_future());
    interrupted.recv().await;
    say("Stopping");
    drop(stop);
    match tokio::time::timeout(Duration::from_secs(5), server).await {
        Ok(ended) => Ok(ended??),
        Err(_) => Ok(()),
    }
}
