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
//! | `ACCOUNT_PER_HOUR` | jobs an hour for one account | 30 |
//! | `CAPACITY_PER_HOUR` | jobs an hour for the whole service | 3000 |
//! | `KEY` | what an account is: `account`, the header `x-account`, or `client_ip`, the address of the client | `account` |
//! | `TRUSTED_PROXIES` | networks whose word on a client's address is taken, with commas between them | none |
//! | `FORWARDED` | the header in which they give it: `x-forwarded-for` or `forwarded` | `x-forwarded-for` |
//! | `REDIS_URL` | where instances that share the limits count (with `--features redis`); several addresses with commas between them are nodes of a cluster (`redis-cluster`), or Sentinels (`redis-sentinel`) | in this process |
//! | `REDIS_SENTINEL` | what the Sentinels call the primary | they are nodes of a cluster |
//! | `ON_STORE_ERROR` | what happens while that does not answer: `open`, `closed`, or `local`, half of each limit | `open` |

mod environment;
mod server;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use tower_quota::key::{self, TrustedProxies};
use tower_quota::{
    ConfigError, GlobalCapacityLayer, Group, HOUR, LimitFields, Quota, QuotaLayer, Rejection, RequestKey, RequestMeter,
    UserQuotaLayer, Watermark,
};

use self::environment::{group, of_variable, variable};
use self::server::{run, serve};

#[tokio::main]
async fn main() -> ExitCode {
    run(wish_lists()).await
}

async fn wish_lists() -> Result<(), Box<dyn Error>> {
    let addr: SocketAddr = variable("ADDR", SocketAddr::from(([127, 0, 0, 1], 3000)))?;
    let per_account = variable("ACCOUNT_PER_HOUR", 30)?;
    let in_all = variable("CAPACITY_PER_HOUR", 3_000)?;
    let app = app(&parsing(&group("item")?, who_asks()?, per_account, in_all)?);
    serve(addr, app, |at| {
        format!(
            "{per_account} jobs an hour for an account, {in_all} for the service. Try:\n  \
             curl -i -X POST -H 'x-account: alice' http://{at}/wishlists\n  \
             curl -i -H 'x-account: alice' --json '{{\"images\": [\"a.jpg\", \"b.jpg\"]}}' http://{at}/wishlists/images"
        )
    })
    .await
}

/// What tells accounts apart.
fn who_asks() -> Result<RequestKey, Box<dyn Error>> {
    let trusted = trusted_proxies()?;
    match &*variable("KEY", "account".to_owned())? {
        "account" => Ok(key::header("x-account")?),
        "client_ip" => Ok(key::client_ip(trusted)),
        other => Err(format!("KEY: {other:?} cannot be used: it is account or client_ip").into()),
    }
}

fn trusted_proxies() -> Result<TrustedProxies, Box<dyn Error>> {
    let networks: String = variable("TRUSTED_PROXIES", String::new())?;
    let networks = networks.split(',').map(str::trim).filter(|network| !network.is_empty());
    let trusted = TrustedProxies::networks(networks).map_err(of_variable("TRUSTED_PROXIES"))?;
    match &*variable("FORWARDED", "x-forwarded-for".to_owned())? {
        "x-forwarded-for" => Ok(trusted),
        "forwarded" => Ok(trusted.forwarded()),
        other => Err(format!("FORWARDED: {other:?} cannot be used: it is x-forwarded-for or forwarded").into()),
    }
}

/// Both axes, in the order in which they are judged.
fn parsing(items: &Group, account_of: RequestKey, per_account: u64, in_all: u64) -> Result<QuotaLayer, ConfigError> {
    let quota = Quota::fixed_window(per_account, HOUR).map_err(of_variable("ACCOUNT_PER_HOUR"))?;
    let account = items.per_key("account", quota).build()?;
    let quota = Quota::fixed_window(in_all, HOUR).map_err(of_variable("CAPACITY_PER_HOUR"))?;
    let capacity = items.shared("capacity", quota).watermark(Watermark::percent(66).cleared_at(50)).build()?;

    let parsing = UserQuotaLayer::new(&account, account_of).and(GlobalCapacityLayer::new(&capacity))?;
    Ok(parsing.limit_fields(LimitFields::draft_11()))
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
