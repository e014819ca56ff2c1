//! The shared store, over real servers.

mod conformance;
