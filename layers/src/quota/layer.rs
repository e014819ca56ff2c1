//! Any number of axes, decided in one step.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http::request::Parts;
use tower_layer::Layer;
use tower_quota_core::{ConfigError, Cost, Key, Measure, Meter};

use super::rules::{Charged, Rules};
use super::service::Metered;
use crate::answer::AnyBody;
use crate::limit_fields::{Fields, LimitFields};
use crate::rejection::Rejection;

/// Decides any number of axes of one group in one atomic step: a request that any of them refuses is charged on none.
///
/// Made by combining [`UserQuotaLayer`](crate::UserQuotaLayer) and [`GlobalCapacityLayer`](crate::GlobalCapacityLayer).
/// The axes are judged in the order written: the first that refuses gives the answer, and `Retry-After` is the longest
/// wait of all that refuse.
///
/// ```
/// use tower_quota::{GlobalCapacityLayer, Group, HOUR, MemoryStore, QuotaLayer, UserQuotaLayer, key};
///
/// let items = Group::new("item", MemoryStore::new())?;
/// let account = items.per_key("account", "fixed 30/h").build()?;
/// let capacity = items.shared("capacity", "fixed 3000/h").build()?;
/// let layer: QuotaLayer =
///     UserQuotaLayer::new(&account, key::header("x-account")?).and(GlobalCapacityLayer::new(&capacity))?;
/// # let _ = layer;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
///
/// One layer value is mounted in as many places as its axes are shared by. A clone can be set up differently and still
/// counts on the same axes; here batches are charged by their handlers, and a chat is answered in its own form:
///
/// ```
/// # use tower_quota::{GlobalCapacityLayer, Group, HOUR, MemoryStore, QuotaLayer, UserQuotaLayer, key};
/// use http::Response;
///
/// # let items = Group::new("item", MemoryStore::new())?;
/// # let account = items.per_key("account", "fixed 30/h").build()?;
/// # let layer = UserQuotaLayer::new(&account, key::header("x-account")?);
/// let batches = layer.clone().charged_by_handler();
/// let chat = layer.reject_with(|rejection, _| {
///     let seconds = rejection.retry_after().unwrap_or_default().as_secs();
///     let bubble = format!("data: {{\"bubble\":\"Too many requests, try again in {seconds} s\",\"retry\":true}}\n\n");
///     Response::builder().header("content-type", "text/event-stream").body(bubble).expect("these fields are valid")
/// });
/// # let _ = (batches, chat);
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing before it is applied"]
pub struct QuotaLayer {
    rules: Arc<Rules>,
}

/// A layer of one axis, which [`QuotaLayer::and`] takes: [`UserQuotaLayer`](crate::UserQuotaLayer) or
/// [`GlobalCapacityLayer`](crate::GlobalCapacityLayer).
#[expect(private_bounds, reason = "sealed: how an axis is found on a request is ours")]
pub trait AxisLayer: IntoMeasure {}

pub(crate) trait IntoMeasure {
    fn into_measure(self) -> Measure<Parts>;
}

impl QuotaLayer {
    pub(crate) fn of(axis: impl AxisLayer) -> Self {
        Self { rules: Arc::new(Rules::new(Meter::new(axis.into_measure()))) }
    }

    /// This layer, and one more axis, judged after those before it.
    ///
    /// # Errors
    ///
    /// `group.axis` of the axis, if it stands in this layer already, or belongs to another group.
    pub fn and(self, next: impl AxisLayer) -> Result<Self, ConfigError> {
        let rules = Arc::unwrap_or_clone(self.rules);
        let meter = rules.meter.clone().and(next.into_measure())?;
        Ok(Self { rules: Arc::new(rules.with(|rules| rules.meter = meter)) })
    }

    /// What a request costs, read from its head: 1 by default. A cost of 0 looks and charges nothing; a cost above the
    /// limit of an axis is answered with 422.
    ///
    /// A panic of `cost` is answered with 500, and charges nothing.
    pub fn cost<C: Into<Cost>>(self, cost: impl Fn(&Parts) -> C + Send + Sync + 'static) -> Self {
        self.set(|rules| rules.charged = Charged::ByLayer(Some(Arc::new(move |parts| cost(parts).into()))))
    }

    /// Leaves the charge to the handler, for a cost that stands in the body: it takes a
    /// [`RequestMeter`](crate::RequestMeter) from the request's extensions.
    pub fn charged_by_handler(self) -> Self {
        self.set(|rules| rules.charged = Charged::ByHandler)
    }

    /// Requests for which `when` is true are not counted, and need no key. The last `skip` counts.
    pub fn skip(self, when: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.set(|rules| rules.skip = Some(Arc::new(when)))
    }

    /// Lets a request wait for up to so long until its cost fits, instead of refusing it at once: for outbound clients
    /// and workers above all. See [`Charge::wait_up_to`](crate::Charge::wait_up_to). It waits before the inner service is
    /// called, and holds no more than its request. A handler that charges by itself waits
    /// [by itself](crate::RequestCharge::wait_up_to).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_quota::{Group, MemoryStore, UserQuotaLayer, key};
    ///
    /// let outbound = Group::new("outbound", MemoryStore::new())?;
    /// let host = outbound.per_key("host", "bucket 20 10/s").build()?;
    /// // Around a client: a call that comes too soon goes out later, if that is within five seconds.
    /// let layer = UserQuotaLayer::new(&host, key::header("host")?).wait_up_to(Duration::from_secs(5));
    /// # let _ = layer;
    /// # Ok::<(), tower_quota::ConfigError>(())
    /// ```
    pub fn wait_up_to(self, time: Duration) -> Self {
        self.set(|rules| rules.patience = time)
    }

    /// Calls each request by an id that `id` reads from its head, so that it is never charged twice; `None` is a request
    /// without one. See [`Charge::request_id`](crate::Charge::request_id), above all for whose ids can be trusted. A
    /// handler that charges by itself gives the id [with the charge](crate::RequestCharge::request_id).
    pub fn request_id(self, id: impl Fn(&Parts) -> Option<Key> + Send + Sync + 'static) -> Self {
        self.set(|rules| rules.request_id = Some(Arc::new(id)))
    }

    /// Gives the charge of a request back whose answer is one for which `when` is true: by the head of the response, when it
    /// is there. Every charge stays by default.
    ///
    /// For an outbound client above all, whose upstream turns a call away that has cost it nothing; what was charged in a
    /// window that is over by then, or has been refilled since, stays so ([`Reservation`](crate::Reservation)). The [limit
    /// fields](Self::limit_fields) tell of the limits as they were when it was charged. The charge of a call that fails without an answer, or whose caller
    /// leaves, stays; and so does that of a request with an [id](Self::request_id), which may come again. A handler that
    /// charges by itself [reserves by itself](crate::RequestMeter::reserve).
    ///
    /// ```
    /// use tower::ServiceBuilder;
    /// use tower_quota::{BackoffLayer, Group, MINUTE, MemoryStore, Quota, UserQuotaLayer, key};
    ///
    /// let gmail = Group::new("gmail", MemoryStore::new())?;
    /// let mailbox = gmail.per_key("mailbox", Quota::token_bucket(12_000, 12_000, MINUTE)).build()?;
    /// let pauses = gmail.backoff("pauses").build()?;
    /// // Calls that the provider refuses, or that are not made while it wants to be left alone, cost nothing.
    /// let quota = UserQuotaLayer::new(&mailbox, key::header("x-mailbox")?)
    ///     .refund_when(|answer| answer.status == 429 || answer.status == 503);
    /// let client = ServiceBuilder::new().layer(quota).layer(BackoffLayer::new(&pauses, key::header("x-mailbox")?));
    /// # let _ = client;
    /// # Ok::<(), tower_quota::ConfigError>(())
    /// ```
    pub fn refund_when(self, when: impl Fn(&http::response::Parts) -> bool + Send + Sync + 'static) -> Self {
        self.set(|rules| rules.refund_when = Some(Arc::new(when)))
    }

    /// Tells of the limits in the header of each response, on success and on refusal: not at all by default.
    pub fn limit_fields(self, fields: LimitFields) -> Self {
        self.set(|rules| rules.fields = Some(Arc::new(Fields::new(fields))))
    }

    /// Tells refused calls of gRPC in `grpc-retry-pushback-ms` when to try again, or, where no wait helps, not to: off by
    /// default.
    ///
    /// A client with a retry policy that covers the status then waits for so long, instead of by its own backoff.
    #[cfg(feature = "grpc")]
    pub fn grpc_pushback(self) -> Self {
        self.set(|rules| rules.refusals.grpc_pushback = true)
    }

    /// Answers refused requests with the application's own response, instead of the
    /// [problem document](Rejection::to_response).
    ///
    /// Status, `Retry-After` and caching are the application's: all that is added is the [`Rejection`] in its extensions,
    /// beside it a [`CountedBy`](crate::CountedBy) if it was not the store that counted, and the
    /// [limit fields](Self::limit_fields) if they are told; and in the answer to HEAD the body gives way to its length. It
    /// replaces the answer of a handler that returns the rejection of its own charge, too. A panic of `answer` is answered
    /// with the problem document. A call of gRPC gets a response of it only if that is one of gRPC, too, by its content
    /// type; else the status.
    pub fn reject_with<B: AnyBody>(
        self,
        answer: impl Fn(&Rejection, &Parts) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        self.set(|rules| rules.refusals.replace(answer))
    }

    fn set(self, change: impl FnOnce(&mut Rules)) -> Self {
        Self { rules: Arc::new(Arc::unwrap_or_clone(self.rules).with(change)) }
    }
}

impl<S> Layer<S> for QuotaLayer {
    type Service = Metered<S>;

    fn layer(&self, inner: S) -> Metered<S> {
        Metered::new(inner, Arc::clone(&self.rules))
    }
}

/// What a layer of one axis offers of a [`QuotaLayer`]: to be one, or to become one.
macro_rules! decision_setters {
    ($layer:ident) => {
        impl From<$layer> for $crate::QuotaLayer {
            fn from(layer: $layer) -> Self {
                Self::of(layer)
            }
        }

        impl $layer {
            /// This axis, and one more, decided in one step. See [`QuotaLayer::and`](crate::QuotaLayer::and).
            ///
            /// # Errors
            ///
            /// `group.axis` of the other axis, if it is this one, or belongs to another group.
            pub fn and(
                self,
                next: impl $crate::AxisLayer,
            ) -> Result<$crate::QuotaLayer, tower_quota_core::ConfigError> {
                $crate::QuotaLayer::of(self).and(next)
            }

            /// What a request costs. See [`QuotaLayer::cost`](crate::QuotaLayer::cost).
            pub fn cost<C: Into<tower_quota_core::Cost>>(
                self,
                cost: impl Fn(&http::request::Parts) -> C + Send + Sync + 'static,
            ) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).cost(cost)
            }

            /// Leaves the charge to the handler. See
            /// [`QuotaLayer::charged_by_handler`](crate::QuotaLayer::charged_by_handler).
            pub fn charged_by_handler(self) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).charged_by_handler()
            }

            /// Requests that are not counted. See [`QuotaLayer::skip`](crate::QuotaLayer::skip).
            pub fn skip(
                self,
                when: impl Fn(&http::request::Parts) -> bool + Send + Sync + 'static,
            ) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).skip(when)
            }

            /// Lets a request wait. See [`QuotaLayer::wait_up_to`](crate::QuotaLayer::wait_up_to).
            pub fn wait_up_to(self, time: std::time::Duration) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).wait_up_to(time)
            }

            /// Calls each request by an id. See [`QuotaLayer::request_id`](crate::QuotaLayer::request_id).
            pub fn request_id(
                self,
                id: impl Fn(&http::request::Parts) -> Option<tower_quota_core::Key> + Send + Sync + 'static,
            ) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).request_id(id)
            }

            /// Gives charges back. See [`QuotaLayer::refund_when`](crate::QuotaLayer::refund_when).
            pub fn refund_when(
                self,
                when: impl Fn(&http::response::Parts) -> bool + Send + Sync + 'static,
            ) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).refund_when(when)
            }

            /// Tells of the limits. See [`QuotaLayer::limit_fields`](crate::QuotaLayer::limit_fields).
            pub fn limit_fields(self, fields: $crate::LimitFields) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).limit_fields(fields)
            }

            /// Tells refused calls of gRPC when to try again. See
            /// [`QuotaLayer::grpc_pushback`](crate::QuotaLayer::grpc_pushback).
            #[cfg(feature = "grpc")]
            pub fn grpc_pushback(self) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).grpc_pushback()
            }

            /// Answers refused requests differently. See
            /// [`QuotaLayer::reject_with`](crate::QuotaLayer::reject_with).
            pub fn reject_with<B: $crate::AnyBody>(
                self,
                answer: impl Fn(&$crate::Rejection, &http::request::Parts) -> http::Response<B> + Send + Sync + 'static,
            ) -> $crate::QuotaLayer {
                $crate::QuotaLayer::of(self).reject_with(answer)
            }
        }

        impl<S> tower_layer::Layer<S> for $layer {
            type Service = $crate::Metered<S>;

            fn layer(&self, inner: S) -> $crate::Metered<S> {
                $crate::QuotaLayer::of(self.clone()).layer(inner)
            }
        }
    };
}

pub(crate) use decision_setters;
