//! Trouble that people really had with limiters, each under the number it was collected by.

mod arithmetic;
mod atomicity;
mod keys;
mod limits_that_change;
mod shared_state;
mod waits;
