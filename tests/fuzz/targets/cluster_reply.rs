//! What nodes of a cluster tell of each other: whatever it is, what would be connected to is an address.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use redis::Value;
use tower_quota::addresses_in;

#[derive(Debug, Arbitrary)]
enum Reply {
    /// Bytes of RESP.
    Wire(Vec<u8>),
    /// Ranges of slots, each with the address of a node.
    Slots(Vec<(i64, i64, Option<Vec<u8>>, i64)>),
    /// A redirection: of this kind, to this node.
    Redirection(bool, String),
}

fuzz_target!(|reply: Reply| {
    let wire = match reply {
        Reply::Wire(bytes) => bytes,
        Reply::Slots(ranges) => {
            let range = |(first, last, host, port): (i64, i64, Option<Vec<u8>>, i64)| {
                let node = Value::Array(vec![host.map_or(Value::Nil, Value::BulkString), Value::Int(port)]);
                Value::Array(vec![Value::Int(first), Value::Int(last), node])
            };
            check(Ok(Value::Array(ranges.into_iter().map(range).collect())));
            return;
        }
        Reply::Redirection(asks, node) => {
            let code = if asks { "ASK" } else { "MOVED" };
            format!("-{code} 1 {}\r\n", node.replace(['\r', '\n'], " ")).into_bytes()
        }
    };
    check(redis::parse_redis_value(&wire).and_then(|value| match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }));
});

fn check(reply: Result<Value, redis::RedisError>) {
    for address in addresses_in(reply) {
        let (_, port) = address.rsplit_once(':').unwrap();
        port.parse::<u16>().unwrap();
    }
}
