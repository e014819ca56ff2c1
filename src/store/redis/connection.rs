//! One way to a server, and what makes one: all that changes with the kind of server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::ConnectionAddr;
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

    /// Sends a command to a node that does not own its slot yet (`ASKING`).
    fn send_asking(&self, command: Arc<Cmd>) -> BoxFuture<'static, RedisResult<Value>>;

    /// The host it leads to.
    fn host(&self) -> &str;

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

/// What a cluster and Sentinels need of the kind of server.
#[cfg_attr(
    not(all(feature = "redis-cluster", feature = "redis-sentinel")),
    allow(dead_code, reason = "clusters and Sentinels are features")
)]
impl Single {
    /// The same kind of server, with the same credentials, at another address: `host:port`.
    pub(super) fn at(&self, address: &str) -> Self {
        let info = self.client.get_connection_info();
        // A host may be an IPv6 address, with colons of its own.
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "6379"));
        let (host, port) = (host.trim_matches(['[', ']']).to_owned(), port.parse().unwrap_or(6_379));
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let client = Client::open(info.clone().set_addr(addr)).unwrap_or_else(|_| self.client.clone());
        Self { client, looked_at: Arc::clone(&self.looked_at) }
    }

    /// A node of a cluster, which has one database, and is known to the others by host and port.
    pub(super) fn of_cluster(url: &str) -> Result<Self, ConfigError> {
        let single = Self::new(url)?;
        let info = single.client.get_connection_info();
        let reason = match info.addr() {
            ConnectionAddr::Unix(_) => "is a socket of this machine: a cluster is reached by host and port",
            _ if info.redis_settings().db() != 0 => "names a database: a cluster has one, leave it out",
            _ => return Ok(single),
        };
        Err(ConfigError::new("redis.url", reason))
    }

    /// A Sentinel at this address, which has no databases.
    pub(super) fn of_sentinel(url: &str) -> Result<Self, ConfigError> {
        let single = Self::new(url)?;
        let info = single.client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_db(0);
        let client = Client::open(info.set_redis_settings(settings)).unwrap_or(single.client);
        // Whether it evicts does not matter.
        Ok(Self { client, looked_at: Arc::new(AtomicBool::new(true)) })
    }

    /// The address, as `host:port`.
    pub(super) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
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
            let host = match client.get_connection_info().addr() {
                ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
                _ => String::new(),
            };
            Ok(Arc::new(Multiplexed { connection, open, host }) as Arc<dyn Connection>)
        })
    }
}

struct Multiplexed {
    connection: MultiplexedConnection,
    open: Arc<AtomicBool>,
    host: String,
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

    fn send_asking(&self, command: Arc<Cmd>) -> BoxFuture<'static, RedisResult<Value>> {
        send_asking_on(self.connection.clone(), command)
    }

    fn host(&self) -> &str {
        &self.host
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

    fn send_asking(&self, command: Arc<Cmd>) -> BoxFuture<'static, RedisResult<Value>> {
        send_asking_on(self.0.clone(), command)
    }

    fn host(&self) -> &'static str {
        ""
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

/// Both commands in one go, so that no other comes between them.
fn send_asking_on<C>(mut connection: C, command: Arc<Cmd>) -> BoxFuture<'static, RedisResult<Value>>
where
    C: ConnectionLike + Send + 'static,
{
    Box::pin(async move {
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command((*command).clone());
        let replies = connection.req_packed_commands(&both, 1, 1).await?;
        replies.into_iter().next().map_or(Ok(Value::Nil), as_answer)
    })
}

/// An error that the server answered with is an error here.
fn as_answer(value: Value) -> RedisResult<Value> {
    match value {
        Value::ServerError(error) => Err(RedisError::from(error)),
        value => Ok(value),
    }
}
