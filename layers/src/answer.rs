//! What requests are answered that do not reach the inner service, and the body of every answer.

mod body;
mod refusals;
mod setters;

use http::Response;
use tower_quota_core::CountedBy;

pub(crate) use self::body::Refusal;
pub use self::body::{AnswerBody, AnyBody};
pub(crate) use self::refusals::{Refusals, log_panic};
pub(crate) use self::setters::refusal_setters;

/// Says in a response's extensions who counted its request, unless it was the store, as it should.
pub(crate) fn tell_who_counted<B>(response: &mut Response<B>, by: CountedBy) {
    if by != CountedBy::Store {
        response.extensions_mut().insert(by);
    }
}
