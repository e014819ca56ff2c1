//! The client's address as a key.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use tower_quota_core::{KeyRead, Throttle};

use super::request_key::RequestKey;
use super::trusted_proxies::TrustedProxies;
use crate::counts;

/// The address of the peer, for servers that tell it otherwise than axum and tonic do: put it into the request's extensions, for a
/// Unix socket the address that its connections stand for.
///
/// It goes before axum's `ConnectInfo<SocketAddr>` (feature `axum`) and tonic's `TcpConnectInfo` (feature `grpc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub IpAddr);

/// The client's address: IPv4 whole, IPv6 by its prefix, one key for one host however its address is written.
///
/// The peer is told by axum's `ConnectInfo<SocketAddr>` (feature `axum`; serve with
/// `into_make_service_with_connect_info::<SocketAddr>()`), by tonic's server (feature `grpc`), or by a [`PeerAddr`] in the
/// request's extensions. Without any, a request has no key, which is logged once with the cure. Where a trusted proxy names
/// something that is no address, the request counts as the peer's, which is logged too, at most once a second.
///
/// ```
/// use tower_quota::key::{self, TrustedProxies};
///
/// // The load balancer has an address in here, and says who its client is in X-Forwarded-For.
/// let client = key::client_ip(TrustedProxies::networks(["10.0.0.0/8"])?);
/// # let _ = client;
/// # Ok::<(), tower_quota::ConfigError>(())
/// ```
pub fn client_ip(trusted: TrustedProxies) -> RequestKey {
    let source = "the address of the peer (a PeerAddr in the request's extensions, or axum's ConnectInfo: serve with \
                  into_make_service_with_connect_info)";
    let untold = Throttle::new();
    RequestKey::new(source, move |parts| match peer(parts) {
        Some(peer) => {
            let client = trusted.client(peer, parts);
            KeyRead::Found(trusted.key(client.unwrap_or_else(|| {
                counts::unreadable_address();
                untold.at_most_each_second(warn);
                peer
            })))
        }
        None => KeyRead::Missing,
    })
}

fn warn(held_back: u64) {
    tracing::warn!(
        target: "tower_quota::config",
        held_back,
        "a trusted proxy names something that is no address: its request counts as the peer's"
    );
}

fn peer(parts: &Parts) -> Option<IpAddr> {
    if let Some(PeerAddr(peer)) = parts.extensions.get() {
        return Some(*peer);
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(peer)) = parts.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(peer.ip());
    }
    #[cfg(feature = "grpc")]
    if let Some(peer) = parts.extensions.get().and_then(tonic::transport::server::TcpConnectInfo::remote_addr) {
        return Some(peer.ip());
    }
    parts.extensions.get::<SocketAddr>().map(SocketAddr::ip)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tower_quota_core::Key;

    use super::*;

    #[test]
    fn t21_without_a_peer_there_is_no_key() {
        let key = client_ip(TrustedProxies::networks(["10.0.0.0/8"]).unwrap());
        assert_eq!(key.read(&Request::new(()).into_parts().0), KeyRead::Missing);
        let mut request = Request::new(());
        request.extensions_mut().insert("192.0.2.1:80".parse::<SocketAddr>().unwrap());
        assert_eq!(key.read(&request.into_parts().0), KeyRead::Found(Key::new([192, 0, 2, 1])));
    }
}
