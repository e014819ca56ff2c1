//! What a store was asked, and is heard out even when whoever asked does not wait any more.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

use crate::store::{PendingAnswer, StoreError};

/// An answer on its way. Dropped before it is there, it is awaited on the tokio runtime that it is dropped on, and given to
/// `abandoned`.
pub(super) struct ToItsEnd<T: 'static, F>
where
    F: FnOnce(Result<T, StoreError>) + Send + 'static,
{
    left: Option<(PendingAnswer<T>, F)>,
}

impl<T, F> ToItsEnd<T, F>
where
    F: FnOnce(Result<T, StoreError>) + Send + 'static,
{
    pub(super) fn new(answer: PendingAnswer<T>, abandoned: F) -> Self {
        Self { left: Some((answer, abandoned)) }
    }
}

impl<T, F> Future for ToItsEnd<T, F>
where
    F: FnOnce(Result<T, StoreError>) + Send + Unpin + 'static,
{
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (answer, _) = self.left.as_mut().expect("a future is not polled after it is ready");
        let answer = ready!(answer.as_mut().poll(cx));
        self.left = None;
        Poll::Ready(answer)
    }
}

impl<T, F> Drop for ToItsEnd<T, F>
where
    F: FnOnce(Result<T, StoreError>) + Send + 'static,
{
    fn drop(&mut self) {
        if let Some((answer, abandoned)) = self.left.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { abandoned(answer.await) });
        }
    }
}
