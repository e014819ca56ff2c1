//! When a request is over: with its body.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt, service_fn};
use tower_quota::{ConcurrencyLayer, PermitBody};

use crate::support::{Body, request};

/// A body of so many frames, with trailers, that tells of its length and its end as it is told to.
pub(super) struct Frames {
    left: VecDeque<Result<Frame<Bytes>, String>>,
    ends_early: bool,
    length: Option<u64>,
}

impl Frames {
    pub(super) fn of(data: &[&'static str]) -> Self {
        let left = data.iter().map(|data| Ok(Frame::data(Bytes::from_static(data.as_bytes())))).collect();
        Self { left, ends_early: false, length: None }
    }
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        Poll::Ready(self.left.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.ends_early && self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The response of a service that answers with what `respond` makes.
async fn respond(
    layer: &ConcurrencyLayer,
    respond: impl Fn() -> Response<Frames> + Clone + Send + Sync + 'static,
) -> Response<PermitBody<Frames>> {
    let service = layer.layer(service_fn(move |_: Request<Body>| {
        let response = respond();
        async move { Ok::<_, Infallible>(response) }
    }));
    service.oneshot(request("a")).await.unwrap()
}

#[tokio::test]
async fn t32_a_request_is_in_flight_until_its_body_ends_fails_or_is_dropped() {
    let layer = ConcurrencyLayer::new(1);
    // To its end.
    let mut body = respond(&layer, || Response::new(Frames::of(&["a", "b"]))).await.into_body();
    for _ in 0..2 {
        body.frame().await.unwrap().unwrap();
        assert_eq!(layer.in_flight(), 1);
    }
    assert!(body.frame().await.is_none());
    assert_eq!(layer.in_flight(), 0);
    assert!(body.frame().await.is_none(), "asked again, it is over again");
    assert_eq!(layer.in_flight(), 0);
    // To the last byte of its length, after which a server does not ask again.
    let exact = || {
        let mut frames = Frames::of(&["12345"]);
        (frames.ends_early, frames.length) = (true, Some(5));
        Response::new(frames)
    };
    let mut body = respond(&layer, exact).await.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(5), false));
    body.frame().await.unwrap().unwrap();
    assert!(body.is_end_stream());
    assert_eq!(layer.in_flight(), 0);
    // An error, a drop in the middle, a drop before the first poll.
    let fails = || {
        let mut frames = Frames::of(&["a"]);
        frames.left.push_back(Err("broken".into()));
        Response::new(frames)
    };
    let mut body = respond(&layer, fails).await.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(layer.in_flight(), 0);
    let mut body = respond(&layer, || Response::new(Frames::of(&["a", "b"]))).await.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(layer.in_flight(), 0);
    drop(respond(&layer, || Response::new(Frames::of(&["a"]))).await);
    assert_eq!(layer.in_flight(), 0);
    // Nothing follows the head.
    for status in [204, 304] {
        let response = respond(&layer, move || Response::builder().status(status).body(Frames::of(&["a"])).unwrap());
        let response = response.await;
        assert_eq!(layer.in_flight(), 0, "{status}");
        drop(response);
    }
    let service = layer.layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Frames::of(&["of which only the length is told"])))
    }));
    let mut head = request("a");
    *head.method_mut() = http::Method::HEAD;
    let response = service.oneshot(head).await.unwrap();
    assert_eq!(layer.in_flight(), 0, "HEAD");
    drop(response);
    let empty = || {
        let mut frames = Frames::of(&[]);
        frames.ends_early = true;
        Response::new(frames)
    };
    let response = respond(&layer, empty).await;
    assert_eq!(layer.in_flight(), 0);
    drop(response);
}

#[tokio::test]
async fn t29_every_frame_is_passed_on_trailers_and_length_too() {
    let layer = ConcurrencyLayer::new(1);
    let with_trailers = || {
        let mut frames = Frames::of(&["a", "b"]);
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        frames.left.push_back(Ok(Frame::trailers(trailers)));
        frames.length = Some(2);
        Response::new(frames)
    };
    let body = respond(&layer, with_trailers).await.into_body();
    assert_eq!(body.size_hint().exact(), Some(2));
    let collected = body.collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), "ab");
    assert_eq!(layer.in_flight(), 0);
}

#[tokio::test]
async fn a_request_may_be_over_when_its_head_is_ready() {
    let layer = ConcurrencyLayer::new(1).release_at_head();
    let responses = [(); 3].map(|()| respond(&layer, || Response::new(Frames::of(&["a"]))));
    for response in join_all(responses).await {
        assert_eq!(response.status(), 200);
    }
    assert_eq!(layer.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn t32_a_response_that_nobody_reads_holds_its_place_for_as_long_as_it_may() {
    let forever = ConcurrencyLayer::new(1);
    let at_most = ConcurrencyLayer::new(1).max_hold(Duration::from_secs(30));
    for (layer, after_30) in [(&forever, 1), (&at_most, 0)] {
        let unread = respond(layer, || Response::new(Frames::of(&["a", "b"]))).await;
        tokio::time::sleep(Duration::from_millis(29_900)).await;
        assert_eq!(layer.in_flight(), 1);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(layer.in_flight(), after_30);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(layer.in_flight(), after_30);
        // It can still be read, and gives nothing back a second time.
        let next = (after_30 == 0).then(|| respond(layer, || Response::new(Frames::of(&["a", "b"]))));
        let next = futures_util::future::OptionFuture::from(next).await;
        assert_eq!(unread.into_body().collect().await.unwrap().to_bytes(), "ab");
        assert_eq!(layer.in_flight(), usize::from(next.is_some()));
        drop(next);
        assert_eq!(layer.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_in_time_is_not_waited_for() {
    let layer = ConcurrencyLayer::new(2).max_hold(Duration::from_secs(30)).max_wait(Duration::from_secs(60));
    let body = respond(&layer, || Response::new(Frames::of(&["a"]))).await.into_body();
    assert_eq!(layer.in_flight(), 1);
    body.collect().await.unwrap();
    assert_eq!(layer.in_flight(), 0);
    // Whoever waits goes on when a hold ends; one that was aborted ends nobody else's.
    let kept = [(), ()].map(|()| respond(&layer, || Response::new(Frames::of(&["a"]))));
    let kept = join_all(kept).await;
    let started = tokio::time::Instant::now();
    let next = respond(&layer, || Response::new(Frames::of(&["a"]))).await;
    assert_eq!(started.elapsed().as_secs(), 30);
    assert_eq!(layer.in_flight(), 1);
    drop((kept, next));
    assert_eq!((layer.in_flight(), layer.queued()), (0, 0));
}
