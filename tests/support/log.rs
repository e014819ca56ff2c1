//! Reads what was logged.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Once;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::OptionalWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

thread_local! {
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    static MOST: Cell<Level> = const { Cell::new(Level::INFO) };
}

/// The log of the current thread, while it is held.
pub(crate) struct Log(());

/// Writes to the log of the thread that logs, if it is held.
struct Writer;

struct Writers;

impl MakeWriter<'_> for Writers {
    type Writer = OptionalWriter<Writer>;

    fn make_writer(&self) -> Self::Writer {
        OptionalWriter::some(Writer)
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> Self::Writer {
        if *event.level() <= MOST.get() { self.make_writer() } else { OptionalWriter::none() }
    }
}

impl Log {
    pub(crate) fn start() -> Self {
        // One subscriber for the whole process: those that come and go hide events from each other.
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            let ours = Targets::new().with_default(LevelFilter::INFO).with_target("tower_quota", LevelFilter::DEBUG);
            let lines = tracing_subscriber::fmt::layer().with_ansi(false).without_time().with_writer(Writers);
            tracing_subscriber::registry().with(lines.with_filter(ours)).init();
        });
        LOGGED.set(Some(Vec::new()));
        Self(())
    }

    /// With what we log for those who look closely, too.
    pub(crate) fn start_with_debug() -> Self {
        let log = Self::start();
        MOST.set(Level::DEBUG);
        log
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
        MOST.set(Level::INFO);
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
