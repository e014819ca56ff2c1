//! What every service around another one has in common.

/// Gives a service `new`, and access to the one that it is around.
macro_rules! around_inner {
    ($service:ident) => {
        impl<S> $service<S> {
            pub(super) fn new(inner: S, rules: Arc<Rules>) -> Self {
                Self { inner, rules }
            }

            /// The inner service.
            pub fn get_ref(&self) -> &S {
                &self.inner
            }

            /// The inner service.
            pub fn get_mut(&mut self) -> &mut S {
                &mut self.inner
            }

            /// The inner service alone.
            pub fn into_inner(self) -> S {
                self.inner
            }
        }
    };
}
pub(crate) use around_inner;
