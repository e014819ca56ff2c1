//! What every layer that refuses can be told about its answers.

/// Gives a layer that has `set` for its rules the setters of their `refusals`.
macro_rules! refusal_setters {
    () => {
        /// Tells refused calls of gRPC when to try again, in `grpc-retry-pushback-ms`. As
        /// [`QuotaLayer::grpc_pushback`](crate::QuotaLayer::grpc_pushback).
        #[cfg(feature = "grpc")]
        pub fn grpc_pushback(self) -> Self {
            self.set(|rules| rules.refusals.grpc_pushback = true)
        }

        /// Answers refused requests with the application's own response, instead of the
        /// [problem document](crate::Rejection::to_response). As
        /// [`QuotaLayer::reject_with`](crate::QuotaLayer::reject_with).
        pub fn reject_with<B: $crate::AnyBody>(
            self,
            answer: impl Fn(&$crate::Rejection, &http::request::Parts) -> http::Response<B> + Send + Sync + 'static,
        ) -> Self {
            self.set(|rules| rules.refusals.replace(answer))
        }
    };
}
pub(crate) use refusal_setters;
