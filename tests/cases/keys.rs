//! Who is asking, when nobody says so.

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower_quota::{HOUR, MissingKey, Quota, UserQuotaLayer, key};

use crate::support::{Log, group};

/// Through a real listener: a header that is missing, empty, doubled, very long or not ASCII has a stated result, and a
/// missing one never shares a bucket in silence.
#[tokio::test]
async fn t21_each_kind_of_bad_key_has_a_stated_result() {
    let log = Log::start();
    let (group, _clock) = group();
    let axis = group.per_key("account", Quota::fixed_window(3, HOUR)).build().unwrap();
    let user = || UserQuotaLayer::new(&axis, key::header("x-api-key").unwrap());
    let anonymous = MissingKey::Anonymous(Quota::fixed_window(2, HOUR).unwrap());
    let app = Router::new()
        .route("/refuse", get(|| async {}).route_layer(user()))
        .route("/anonymous", get(|| async {}).route_layer(user().missing_key(anonymous)))
        .route("/uncounted", get(|| async {}).route_layer(user().missing_key(MissingKey::Uncounted)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();

    let endless = [b'k'; 5_000];
    let keys: [&[&[u8]]; 6] = [&[], &[b""], &[b"a", b"b"], &[&endless], &[b"\xffkey\x80"], &[b"key"]];
    let mut statuses = Vec::new();
    for path in ["refuse", "anonymous", "uncounted"] {
        let mut row = Vec::new();
        for values in keys {
            let mut request = Request::get(format!("{base}/{path}")).body(Full::default()).unwrap();
            for value in values {
                request.headers_mut().append("x-api-key", http::HeaderValue::from_bytes(value).unwrap());
            }
            row.push(client.request(request).await.unwrap().status().as_u16());
        }
        statuses.push(row);
    }
    assert_eq!(
        statuses,
        [[400, 400, 400, 400, 200, 200], [200, 200, 400, 400, 200, 200], [200, 200, 400, 400, 200, 200],]
    );
    let nobody = Request::get(format!("{base}/anonymous")).body(Full::default()).unwrap();
    assert_eq!(client.request(nobody).await.unwrap().status(), 429, "the third without a key");
    assert_eq!(log.lines("a request has no key").len(), 3, "told once for each layer");
}
