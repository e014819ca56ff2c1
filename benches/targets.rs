//! What tower-quota costs, beside a named baseline measured in the same run.
//!
//! ```text
//! cargo bench -p tower-quota-benches --bench targets            # all rows
//! cargo bench -p tower-quota-benches --bench targets -- P1 P7   # some
//! cargo bench -p tower-quota-benches --bench targets --features redis -- P6 P8
//! ```
//!
//! One line a target: its id and what it is, ours, the baseline, their ratio, the target, and whether it is met. Run it
//! with nothing beside it.

#![allow(clippy::cast_precision_loss, reason = "measurements are not that precise")]

#[path = "targets/decision.rs"]
mod decision;
#[path = "targets/growth.rs"]
mod growth;
#[path = "targets/layer.rs"]
mod layer;
#[path = "targets/measure.rs"]
mod measure;
#[path = "targets/memory.rs"]
mod memory;
#[cfg(feature = "redis")]
#[path = "targets/redis.rs"]
mod redis;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    // A process of its own measures memory.
    if let [first, what] = &arguments[..]
        && first == memory::RESIDENT
    {
        return memory::print_resident(what);
    }
    let rows: &[(&str, fn())] = &[
        ("P1", decision::run),
        ("P2", layer::run),
        #[cfg(feature = "redis")]
        ("P6", redis::run_axes),
        ("P7", memory::run),
        #[cfg(feature = "redis")]
        ("P8", redis::run_hanging),
        ("P11", growth::run),
        ("CL", layer::run_concurrency),
    ];
    for (id, run) in rows {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == id) {
            run();
        }
    }
}
