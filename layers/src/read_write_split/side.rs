//! Which budget a request belongs to.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use tower_quota_core::Throttle;

use crate::answer::log_panic;
use crate::content_type::is_grpc;

/// The side of a split that a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Through the layer for reads.
    Read,
    /// Through the layer for writes: whatever is not known to be a read.
    Write,
    /// Through neither, straight to the inner service.
    Neither,
}

type Classify = Arc<dyn Fn(&Parts) -> Side + Send + Sync>;

/// How the side of a request is found.
#[derive(Clone, Default)]
pub(super) struct Classifier {
    pub(super) classify: Option<Classify>,
    /// Paths of gRPC methods that read. `None`: gRPC is told apart like anything else.
    pub(super) grpc_reads: Option<Arc<HashSet<&'static str>>>,
    mistakes: Arc<Throttle>,
}

impl Classifier {
    pub(super) fn side(&self, parts: &Parts) -> Side {
        if let Some(reads) = self.grpc_reads.as_ref().filter(|_| is_grpc(&parts.headers)) {
            return if reads.contains(parts.uri.path()) { Side::Read } else { Side::Write };
        }
        let Some(classify) = &self.classify else { return by_method(&parts.method) };
        catch_unwind(AssertUnwindSafe(|| classify(parts))).unwrap_or_else(|panic| {
            log_panic(&self.mistakes, &*panic);
            Side::Write
        })
    }
}

/// The method alone decides: what a caller says in a header, such as `X-HTTP-Method-Override`, chooses nothing.
fn by_method(method: &Method) -> Side {
    match *method {
        Method::GET | Method::HEAD | Method::TRACE => Side::Read,
        Method::OPTIONS => Side::Neither,
        _ => Side::Write,
    }
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { classify, grpc_reads, mistakes: _ } = self;
        f.debug_struct("Classifier")
            .field("is_by_method", &classify.is_none())
            .field("grpc_reads", grpc_reads)
            .finish_non_exhaustive()
    }
}
