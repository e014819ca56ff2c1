//! What a server answers to a decision: whatever it is, there is a verdict or a failure of the store, and no panic.

#![no_main]

use std::cell::LazyCell;
use std::time::Duration;

use futures_util::FutureExt;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisError, RedisFuture, Value};
use tower_quota::{ChargeError, Group, HOUR, Key, Meter, OnStoreFailure, Quota, RedisStore, Watermark};

/// A server that answers everything so.
#[derive(Clone, Debug, Arbitrary)]
enum Server {
    /// Bytes of RESP.
    Wire(Vec<u8>),
    /// Bytes that follow the right serial number.
    Reply(Vec<u8>),
    /// An error of this text.
    Error(String),
}

impl Server {
    fn answer(&self, command: &Cmd) -> Result<Value, RedisError> {
        let wire = match self {
            Self::Wire(bytes) => bytes.clone(),
            Self::Reply(bytes) => {
                let arguments: Vec<_> = command.args_iter().collect();
                // The digest, the number of keys, the keys, and then what starts with the serial number.
                let serial = match &arguments[..] {
                    [_, _, Arg::Simple(keys), rest @ ..] => {
                        let keys: usize = std::str::from_utf8(keys).unwrap().parse().unwrap();
                        match rest.get(keys) {
                            Some(Arg::Simple(circumstances)) => circumstances[..8].to_vec(),
                            _ => Vec::new(),
                        }
                    }
                    _ => Vec::new(),
                };
                return Ok(Value::BulkString([serial, bytes.clone()].concat()));
            }
            Self::Error(text) => format!("-{}\r\n", text.replace(['\r', '\n'], " ")).into_bytes(),
        };
        match redis::parse_redis_value(&wire)? {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
    }
}

impl ConnectionLike for Server {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        std::future::ready(self.answer(command)).boxed()
    }

    fn req_packed_commands<'a>(&'a mut self, _: &'a Pipeline, _: usize, _: usize) -> RedisFuture<'a, Vec<Value>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn get_db(&self) -> i64 {
        0
    }
}

thread_local! {
    static RUNTIME: LazyCell<tokio::runtime::Runtime> =
        LazyCell::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());
}

fuzz_target!(|server: Server| {
    let store = RedisStore::over(server).deadline(Duration::from_secs(5)).build().unwrap();
    let group = Group::builder("fuzz").on_store_failure(OnStoreFailure::Closed).build(store).unwrap();
    let account = group.per_key("account", Quota::fixed_window(3, HOUR)).build().unwrap();
    let capacity =
        group.shared("capacity", Quota::token_bucket(10, 1, HOUR)).watermark(Watermark::percent(66).notify(|_| ()));
    let meter = Meter::new(account.by(|name: &str| Key::from(name))).and(&capacity.build().unwrap()).unwrap();
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            match meter.reserve("alice", 1).await {
                Ok(reserved) => {
                    let verdict = reserved.verdict();
                    assert!(verdict.is_admitted() && verdict.reports().len() == 2);
                    // It is answered alike.
                    match reserved.settle(0).await {
                        Ok(verdict) => assert_eq!(verdict.reports().len(), 2),
                        Err(error) => assert!(matches!(error, ChargeError::Store(_)), "{error}"),
                    }
                }
                Err(ChargeError::Refused(verdict)) => assert!(!verdict.is_admitted() && verdict.reports().len() == 2),
                Err(ChargeError::Store(error)) => assert!(!error.to_string().is_empty()),
                Err(other) => panic!("{other}"),
            }
            // The news of a mark is claimed beside that.
            tokio::task::yield_now().await;
        });
    });
});
