//! Reads what was logged.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

thread_local! {
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// The log of the current thread, while it is held.
pub(crate) struct Log(());

/// Writes to the log of the thread that logs, if it is held.
struct Writer;

impl Log {
    pub(crate) fn start() -> Self {
        // One subscriber for the whole process: those that come and go hide events from each other.
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(|| Writer).init();
        });
        LOGGED.set(Some(Vec::new()));
        Self(())
    }

    /// The lines that contain `part`.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        let Self(()) = self;
        let bytes = LOGGED.with_borrow(Clone::clone).unwrap_or_default();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        LOGGED.set(None);
    }
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.as_mut().map(|logged| logged.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
