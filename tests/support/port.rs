//! Ports for the programs that a test starts.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that the system gives to clients: one of them could get the port of a server that is stopped for a while.
/// Those 10,000 above are left for what the nodes of a cluster tell each other.
const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;

/// A port that nobody listens on, and that no test is given twice.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Another run beside this one starts somewhere else.
    let first = std::process::id().wrapping_mul(200) % u32::from(COUNT);
    loop {
        let given = u32::from(GIVEN.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from((first + given) % u32::from(COUNT)).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
