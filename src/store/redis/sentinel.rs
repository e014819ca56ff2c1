//! A Redis behind Sentinels, which tell where the primary is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, select_ok};
use redis::{ErrorKind, RedisError, RedisResult, Value};
use tokio::time::timeout;

use super::connection::{Connection, Connector, Single};

/// How long one Sentinel may take.
const TOLD_WITHIN: Duration = Duration::from_millis(500);

/// Connects to whatever the Sentinels call the primary of this name: asked anew for each connection.
pub(super) struct Sentinels {
    asked: Vec<Arc<Single>>,
    name: Arc<str>,
    /// How the primary is spoken to: the credentials and the database are not the Sentinels'.
    primary: Arc<Single>,
}

impl Sentinels {
    pub(super) fn new(sentinels: Vec<Single>, name: &str, primary: Single) -> Self {
        let sentinels = sentinels.into_iter().map(Arc::new).collect();
        Self { asked: sentinels, name: name.into(), primary: Arc::new(primary) }
    }
}

impl Connector for Sentinels {
    fn connect(&self) -> BoxFuture<'static, RedisResult<Arc<dyn Connection>>> {
        let (primary, name) = (Arc::clone(&self.primary), Arc::clone(&self.name));
        let asked: Vec<_> = self
            .asked
            .iter()
            .map(|sentinel| {
                let (sentinel, primary, name) = (Arc::clone(sentinel), Arc::clone(&primary), Arc::clone(&name));
                Box::pin(async move {
                    let told = timeout(TOLD_WITHIN, address_of(&sentinel, &name)).await;
                    let address = told.unwrap_or_else(|_| Err(unknown("a Sentinel did not answer")))?;
                    let connection = primary.at(&address).connect().await?;
                    // A Sentinel that has not heard yet may name one that is demoted.
                    if is_primary(&connection).await? { Ok(connection) } else { Err(unknown("it is a replica by now")) }
                })
            })
            .collect();
        Box::pin(async move {
            if asked.is_empty() {
                return Err(unknown("there are no Sentinels"));
            }
            // The first that names one that is there and is a primary.
            select_ok(asked).await.map(|(connection, _)| connection)
        })
    }
}

async fn address_of(sentinel: &Single, name: &str) -> RedisResult<String> {
    let connection = sentinel.connect().await?;
    let mut ask = redis::cmd("SENTINEL");
    ask.arg("get-master-addr-by-name").arg(name);
    match connection.send(Arc::new(ask)).await? {
        Value::Array(address) => match &address[..] {
            [Value::BulkString(host), Value::BulkString(port)] => {
                Ok(format!("{}:{}", String::from_utf8_lossy(host), String::from_utf8_lossy(port)))
            }
            _ => Err(unknown("a Sentinel told no address")),
        },
        _ => Err(unknown("the Sentinels know no primary of this name")),
    }
}

async fn is_primary(connection: &Arc<dyn Connection>) -> RedisResult<bool> {
    match connection.send(Arc::new(redis::cmd("ROLE"))).await? {
        Value::Array(role) => Ok(matches!(role.first(), Some(Value::BulkString(role)) if role == b"master")),
        _ => Ok(false),
    }
}

fn unknown(reason: &'static str) -> RedisError {
    RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, reason))
}
