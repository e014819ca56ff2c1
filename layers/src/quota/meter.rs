//! What a handler charges with.

use tower_quota_core::{BoundMeter, Cost, Verdict};

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
}

impl RequestMeter {
    pub(super) fn new(meter: BoundMeter, layer: LayerId) -> Self {
        Self { meter, layer }
    }

    /// Charges the request on every axis, or on none.
    ///
    /// # Errors
    ///
    /// The rejection to answer with: a refusal, a store that could not answer.
    pub async fn charge(&self, cost: impl Into<Cost>) -> Result<Verdict, Rejection> {
        self.meter.charge(cost).await.map_err(|error| Rejection::new(error, self.layer))
    }

    /// Where the caller stands on every axis, without charging anything.
    ///
    /// # Errors
    ///
    /// The rejection to answer with: a store that could not answer.
    pub async fn peek(&self) -> Result<Verdict, Rejection> {
        self.meter.peek().await.map_err(|error| Rejection::new(error, self.layer))
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum_core::extract::FromRequestParts<S> for RequestMeter {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut http::request::Parts, _: &S) -> Result<Self, Rejection> {
        parts.extensions.get().cloned().ok_or_else(|| {
            tracing::error!(
                target: "tower_quota::config",
                path = parts.uri.path(),
                "a handler takes a RequestMeter, but no quota layer around it is charged_by_handler"
            );
            Rejection::misconfigured()
        })
    }
}
