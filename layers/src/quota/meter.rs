//! What a handler charges with.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tower_quota_core::{
    BoundMeter, Charge, ChargeError, ChargeFuture, Cost, Reservation, Reserve, ReserveFuture, Verdict,
};

use crate::rejection::{LayerId, Rejection};

/// The axes of a layer, bound to one request, for a handler that [charges by
/// itself](crate::QuotaLayer::charged_by_handler). The layer puts it into the request's extensions; with feature `axum` it
/// is an extractor.
///
/// ```
/// # #[cfg(feature = "axum")]
/// # mod example {
/// use axum::Json;
/// use axum::http::StatusCode;
/// use tower_quota::{Rejection, RequestMeter};
///
/// async fn images(meter: RequestMeter, Json(images): Json<Vec<String>>) -> Result<StatusCode, Rejection> {
///     meter.charge(images.len()).await?; // charged whole, or refused whole
///     Ok(StatusCode::ACCEPTED)
/// }
/// # }
/// ```
///
/// Nothing is charged for a request whose handler charges nothing. A request without a key is refused before the handler
/// sees it, if that is the policy. For a request that the layer [skips](crate::QuotaLayer::skip), every charge is admitted
/// and counts nothing. Of two such layers around one handler the inner one's meter is there, and the outer one charges
/// nothing: combine their axes in one layer instead.
#[derive(Clone, Debug)]
pub struct RequestMeter {
    meter: BoundMeter,
    layer: LayerId,
    charged: Charged,
}

/// What the last charge of a handler came to; shared with the layer, which tells of it in the response.
pub(super) type Charged = Arc<Mutex<Option<Verdict>>>;

impl RequestMeter {
    pub(super) fn new(meter: BoundMeter, layer: LayerId, charged: Charged) -> Self {
        Self { meter, layer, charged }
    }

    /// Charges the request on every axis, or on none, once this is awaited.
    pub fn charge(&self, cost: impl Into<Cost>) -> RequestCharge<'_> {
        RequestCharge { charge: self.meter.charge(cost), meter: self }
    }

    /// Charges the request on every axis, or on none, so that the charge can be corrected once it is known what it was
    /// worth. See [`Reservation`].
    ///
    /// ```
    /// # async fn example(meter: tower_quota::RequestMeter) -> Result<(), Box<dyn std::error::Error>> {
    /// let estimate = meter.reserve(2_000).await?;
    /// // The answer took fewer tokens.
    /// estimate.settle(850).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve(&self, cost: impl Into<Cost>) -> RequestReserve<'_> {
        RequestReserve { reserve: self.meter.reserve(cost), meter: self }
    }

    /// Where the caller stands on every axis, without charging anything.
    ///
    /// # Errors
    ///
    /// The rejection to answer with: a store that could not answer.
    pub async fn peek(&self) -> Result<Verdict, Rejection> {
        self.meter.peek().await.map_err(|error| Rejection::new(error, self.layer))
    }

    fn outcome<T>(&self, outcome: Result<T, ChargeError>, verdict_of: impl Fn(&T) -> &Verdict) -> Result<T, Rejection> {
        let outcome = outcome.map_err(|error| Rejection::new(error, self.layer));
        let verdict = outcome.as_ref().map_or_else(Rejection::verdict, |made| Some(verdict_of(made)));
        if let Some(verdict) = verdict {
            *self.charged.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict.clone());
        }
        outcome
    }
}

/// A charge of a [`RequestMeter`], made when it is awaited.
///
/// Awaited, it gives the verdict of an admitted charge, or the [`Rejection`] to answer with: a refusal, a store that could
/// not answer.
#[must_use = "nothing is charged before a charge is awaited"]
#[derive(Debug)]
pub struct RequestCharge<'m> {
    charge: Charge<'m>,
    meter: &'m RequestMeter,
}

impl RequestCharge<'_> {
    /// Calls the charge by an id, so that it is never made twice. See [`Charge::request_id`].
    pub fn request_id(self, id: impl AsRef<[u8]>) -> Self {
        Self { charge: self.charge.request_id(id), ..self }
    }

    /// Waits for up to so long until the charge fits. See [`Charge::wait_up_to`].
    pub fn wait_up_to(self, time: Duration) -> Self {
        Self { charge: self.charge.wait_up_to(time), ..self }
    }
}

impl<'m> IntoFuture for RequestCharge<'m> {
    type Output = Result<Verdict, Rejection>;
    type IntoFuture = RequestChargeFuture<'m>;

    fn into_future(self) -> RequestChargeFuture<'m> {
        RequestChargeFuture { charge: self.charge.into_future(), meter: self.meter }
    }
}

/// What awaiting a [`RequestCharge`] does.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct RequestChargeFuture<'m> {
    charge: ChargeFuture<'m>,
    meter: &'m RequestMeter,
}

impl Future for RequestChargeFuture<'_> {
    type Output = Result<Verdict, Rejection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.charge).poll(cx));
        Poll::Ready(self.meter.outcome(outcome, |verdict| verdict))
    }
}

/// A charge of a [`RequestMeter`] that can be corrected, made when it is awaited.
///
/// Awaited, it gives the [`Reservation`], or the [`Rejection`] to answer with.
#[must_use = "nothing is charged before a charge is awaited"]
#[derive(Debug)]
pub struct RequestReserve<'m> {
    reserve: Reserve<'m>,
    meter: &'m RequestMeter,
}

impl RequestReserve<'_> {
    /// Waits for up to so long until the charge fits. See [`Charge::wait_up_to`].
    pub fn wait_up_to(self, time: Duration) -> Self {
        Self { reserve: self.reserve.wait_up_to(time), ..self }
    }
}

impl<'m> IntoFuture for RequestReserve<'m> {
    type Output = Result<Reservation, Rejection>;
    type IntoFuture = RequestReserveFuture<'m>;

    fn into_future(self) -> RequestReserveFuture<'m> {
        RequestReserveFuture { reserve: self.reserve.into_future(), meter: self.meter }
    }
}

/// What awaiting a [`RequestReserve`] does.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct RequestReserveFuture<'m> {
    reserve: ReserveFuture<'m>,
    meter: &'m RequestMeter,
}

impl Future for RequestReserveFuture<'_> {
    type Output = Result<Reservation, Rejection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.reserve).poll(cx));
        Poll::Ready(self.meter.outcome(outcome, Reservation::verdict))
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum_core::extract::FromRequestParts<S> for RequestMeter {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut http::request::Parts, _: &S) -> Result<Self, Rejection> {
        parts.extensions.get().cloned().ok_or_else(|| {
            // One for all handlers, since no layer is there that would have its own.
            static MISTAKES: std::sync::LazyLock<tower_quota_core::Throttle> =
                std::sync::LazyLock::new(Default::default);
            MISTAKES.at_most_each_second(|held_back| {
                tracing::error!(
                    target: "tower_quota::config",
                    held_back,
                    "a handler takes a RequestMeter, but no quota layer around it is charged_by_handler"
                );
            });
            Rejection::misconfigured()
        })
    }
}
