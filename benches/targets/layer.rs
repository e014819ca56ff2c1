//! P2 and CL: what a layer adds to a ready mock service. Ours decides two axes in one step; the baseline, `tower_governor`,
//! one, or two one after the other. The same 10,000 accounts, by the header `x-account`.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use http::{HeaderValue, Request, Response};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::errors::GovernorError;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;
use tower_quota::{
    ConcurrencyLayer, GlobalCapacityLayer, Group, HOUR, LimitFields, MemoryStore, Quota, UserQuotaLayer, key,
};

use crate::measure::{Row, accounts, nanos_per, time};

const ACCOUNTS: usize = 10_000;
const ROUNDS: usize = 20;

pub(crate) fn run() {
    let accounts: Vec<HeaderValue> =
        accounts(ACCOUNTS).into_iter().map(|name| HeaderValue::try_from(name).expect("a header value")).collect();

    let group = Group::new("bench", MemoryStore::new()).expect("a group");
    let account = group.per_key("account", Quota::fixed_window(1 << 40, HOUR)).build().expect("an account");
    let capacity = group.shared("capacity", Quota::fixed_window(1 << 40, HOUR)).build().expect("a capacity");
    let account = UserQuotaLayer::new(&account, key::header("x-account").expect("a header"));
    let layer = account.and(GlobalCapacityLayer::new(&capacity)).expect("one group");

    let mut of_account = GovernorConfigBuilder::default().per_nanosecond(1).burst_size(1 << 30).key_extractor(Account);
    let mut of_all = GovernorConfigBuilder::default().per_nanosecond(1).burst_size(1 << 30).key_extractor(Everybody);
    let with_headers = GovernorLayer::new(Arc::new(of_account.use_headers().finish().expect("a configuration")));
    let of_account = GovernorLayer::new(Arc::new(of_account.finish().expect("a configuration")));
    let of_all = GovernorLayer::new(Arc::new(of_all.finish().expect("a configuration")));

    let row = Row {
        id: "P2",
        what: "added by a layer of two axes, with RateLimit fields",
        baseline: "tower_governor (one axis), with headers",
        unit: "ns",
        target: 0.6,
    };
    let telling = layer.clone().limit_fields(LimitFields::draft_11());
    compare(&row, &accounts, &mut telling.layer(Mock), &mut with_headers.layer(Mock));

    let row = Row { what: "added by a layer of two axes, without fields", ..row };
    compare(&row, &accounts, &mut layer.layer(Mock), &mut with_headers.layer(Mock));

    // The same work on both sides, held to what P1 asks of a decision.
    let row = Row { baseline: "two layers of tower_governor (not atomic), without headers", target: 1.0, ..row };
    compare(&row, &accounts, &mut layer.layer(Mock), &mut of_account.layer(of_all.layer(Mock)));
}

/// CL: what a concurrency layer adds, which waits in the future and holds until the body's end; beside tower's.
pub(crate) fn run_concurrency() {
    let row = Row {
        id: "CL",
        what: "added by a concurrency layer",
        baseline: "tower's ConcurrencyLimit",
        unit: "ns",
        target: 1.0,
    };
    let accounts = vec![HeaderValue::from_static("account"); ACCOUNTS];
    let (mut ours, mut peer) = (ConcurrencyLayer::new(64).layer(Mock), ConcurrencyLimitLayer::new(64).layer(Mock));
    compare(&row, &accounts, &mut ours, &mut peer);
}

/// Compares what two layers add.
fn compare<O, P, B, C>(row: &Row, accounts: &[HeaderValue], ours: &mut O, peer: &mut P)
where
    O: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    P: Service<Request<Body>, Response = Response<C>, Error = Infallible>,
{
    row.compare(
        || each(accounts, ours) - each(accounts, &mut Mock),
        || each(accounts, peer) - each(accounts, &mut Mock),
    );
}

/// Nanoseconds of each request, made and answered. By itself, so that the mock alone is the same code for both.
#[inline(never)]
fn each<S, B>(accounts: &[HeaderValue], service: &mut S) -> f64
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let spent = time(|| {
        for _ in 0..ROUNDS {
            for account in accounts {
                assert!(matches!(service.poll_ready(&mut context), Poll::Ready(Ok(()))));
                let answer = pin!(service.call(request(account))).poll(&mut context);
                // Looked at where it lies: moving it on is the caller's work.
                assert!(matches!(&answer, Poll::Ready(Ok(response)) if response.status() == 200));
            }
        }
    });
    nanos_per(accounts.len() * ROUNDS, spent)
}

/// Made apart, so that no copy of it is counted as a layer's work.
#[inline(never)]
fn request(account: &HeaderValue) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    request.headers_mut().insert("x-account", account.clone());
    request
}

/// Answers at once.
#[derive(Clone)]
struct Mock;

impl Service<Request<Body>> for Mock {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

/// The baseline's key of the second axis.
#[derive(Clone)]
struct Everybody;

impl KeyExtractor for Everybody {
    type Key = ();

    fn extract<T>(&self, _: &Request<T>) -> Result<(), GovernorError> {
        Ok(())
    }
}

/// The baseline's key: the same header.
#[derive(Clone)]
struct Account;

impl KeyExtractor for Account {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let value = request.headers().get("x-account").ok_or(GovernorError::UnableToExtractKey)?;
        value.to_str().map(str::to_owned).map_err(|_| GovernorError::UnableToExtractKey)
    }
}
