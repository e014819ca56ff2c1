//! What a response tells of the limits: header fields for clients that pace themselves.

mod field;
mod kind;
mod told;

pub use self::kind::{LimitFields, ResetFormat};
pub(crate) use self::told::{Fields, Told};
