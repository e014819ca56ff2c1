//! The npm package `ratelimit-header-parser`. It knows `X-RateLimit-*`, and of the draft the forms up to 7.

use axum::Router;
use axum::routing::get;
use tower_quota::{Group, HOUR, LimitFields, MemoryStore, Quota, ResetFormat, UserQuotaLayer, key};

use super::script;
use crate::support::serve;

#[tokio::test]
async fn the_limit_what_is_left_and_the_reset_are_read_as_they_are() {
    for (format, name) in [(ResetFormat::SecondsLeft, "seconds"), (ResetFormat::UnixTime, "unix")] {
        let group = Group::new("test", MemoryStore::new()).unwrap();
        let account = group.per_key("account", Quota::fixed_window(2, HOUR)).build().unwrap();
        let layer = UserQuotaLayer::new(&account, key::header("x-account").unwrap());
        let layer = layer.limit_fields(LimitFields::x_rate_limit(format));
        let url = serve(Router::new().route("/", get(async || "ok").route_layer(layer))).await;
        for expected in ["200 2 1 1", "200 2 2 0", "429 2 2 0"] {
            let lines = script("ratelimit_header_parser.cjs", &[&url, name]).await;
            let (told, reset) = lines[0].rsplit_once(' ').unwrap();
            assert_eq!(told, expected, "{name}");
            assert!((3_580..=3_601).contains(&reset.parse().unwrap()), "{name}: {reset}");
        }
    }
}
