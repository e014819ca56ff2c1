//! What requests are answered that do not reach the inner service, and the body of every answer.

mod body;
mod refusals;
mod setters;

pub(crate) use self::body::Refusal;
pub use self::body::{AnswerBody, AnyBody};
pub(crate) use self::refusals::{Refusals, log_panic};
pub(crate) use self::setters::refusal_setters;
