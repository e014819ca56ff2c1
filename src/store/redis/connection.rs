//! One way to a server, and what makes one: all that changes with the kind of server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, Value,
};

use super::eviction::warn_of_eviction;
use crate::config_error::ConfigError;

/// One way to a server, used by many decisions at once.
pub(super) trait Connection: Send + Sync {
    fn send(&self, command: Arc<Cmd>) -> BoxFuture<'static, RedisResult<Value>>;

    /// False once it is known that nothing sent on it would arrive.
    fn is_open(&self) -> bool;
}

/// Makes connections.
pub(super) trait Connector: Send + Sync {
    fn connect(&self) -> BoxFuture<'static, RedisResult<Arc<dyn Connection>>>;
}

/// Connections to the server of one address.
pub(super) struct Single {
    client: Client,
    /// Whether the server has been looked at for what an operator should know.
    looked_at: Arc<AtomicBool>,
}

impl Single {
    pub(super) fn new(url: &str) -> Result<Self, ConfigError> {
        let client = |url: &str| {
            let info = url.into_connection_info()?;
            let asks_for_protocol = url.split_once('?').is_some_and(|(_, query)| query.contains("protocol="));
            let settings = info.redis_settings().clone();
            // By the newer protocol we hear of it when an idle connection ends.
            let settings = if asks_for_protocol { settings } else { settings.set_protocol(ProtocolVersion::RESP3) };
            Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp_settings()))
        };
        client(url).map(|client| Self { client, looked_at: Arc::default() }).map_err(|error| {
            let hint = if url.starts_with("rediss:") && !cfg!(feature = "redis-tls") {
                "this address needs the feature `redis-tls`"
            } else {
                "use redis://[user[:password]@]host[:port][/database]"
            };
            ConfigError::new("redis.url", format!("cannot be used ({error}): {hint}"))
        })
    }
}

/// A connection whose host has vanished is noticed within seconds, in use and idle.
fn tcp_settings() -> TcpSettings {
    let keepalive =
        socket2::TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}

impl Connector for Single {
    fn connect(&self) -> BoxFuture<'static, RedisResult<Arc<dyn Connection>>> {
        let (client, looked_at) = (self.client.clone(), Arc::clone(&self.looked_at));
        Box::pin(async move {
            let open = Arc::new(AtomicBool::new(true));
            // Deadlines are ours, around connecting and around a decision.
            let mut config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None)
                .set_pipeline_buffer_size(1_024);
            if client.get_connection_info().redis_settings().protocol() != ProtocolVersion::RESP2 {
                config = config.set_push_sender(Ending(Arc::clone(&open)));
            }
            let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            if !looked_at.swap(true, Ordering::Relaxed) {
                tokio::spawn(warn_of_eviction(connection.clone()));
            }
            Ok(Arc::new(Multiplexed { connection, open }) as Arc<dyn Connection>)
        })
    }
}

struct Multiplexed {
    connection: MultiplexedConnection,
    open: Arc<AtomicBool>,
}

/// Takes down that a connection has ended.
struct Ending(Arc<AtomicBool>);

impl redis::aio::AsyncPushSender for Ending {
    fn send(&self, push: PushInfo) -> Result<(), redis::aio::SendError> {
        if push.kind == PushKind::Disconnection {
            self.0.store(false, Ordering::Release);
        }
        Ok(())
    }
}

impl Connection for Multiplexed {
    fn send(&self, command: Arc<Cmd>) -> BoxFuture<'static, RedisResult<Value>> {
        send_on(self.connection.clone(), command)
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

/// A connection that the application made, and that it looks after.
pub(super) struct Given<C>(pub(super) C);

impl<C> Connector for Given<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn connect(&self) -> BoxFuture<'static, RedisResult<Arc<dyn Connection>>> {
        let connection: Arc<dyn Connection> = Arc::new(Given(self.0.clone()));
        Box::pin(async { Ok(connection) })
    }
}

impl<C> Connection for Given<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn send(&self, command: Arc<Cmd>) -> BoxFuture<'static, RedisResult<Value>> {
        send_on(self.0.clone(), command)
    }

    fn is_open(&self) -> bool {
        true
    }
}

fn send_on<C>(mut connection: C, command: Arc<Cmd>) -> BoxFuture<'static, RedisResult<Value>>
where
    C: ConnectionLike + Send + 'static,
{
    Box::pin(async move { connection.req_packed_command(&command).await.and_then(as_answer) })
}

/// An error that the server answered with is an error here.
fn as_answer(value: Value) -> RedisResult<Value> {
    match value {
        Value::ServerError(error) => Err(RedisError::from(error)),
        value => Ok(value),
    }
}
