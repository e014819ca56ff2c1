//! How the examples serve.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Runs an example to its end, and says why if that is a failure.
pub(crate) async fn run(example: impl Future<Output = Result<(), Box<dyn Error>>>) -> ExitCode {
    // Nobody may read what is logged.
    tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false).init();
    match example.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until Ctrl-C, and then until the requests under way are answered, but for at most five seconds.
pub(crate) async fn serve(
    addr: SocketAddr,
    app: Router,
    to_try: impl FnOnce(SocketAddr) -> String,
) -> Result<(), Box<dyn Error>> {
    // Heard from before anybody is told that the service is there.
    let mut interrupted = ctrl_c()?;
    let listener = TcpListener::bind(addr).await.map_err(|error| format!("ADDR: cannot listen on {addr}: {error}"))?;
    let at = listener.local_addr()?;
    say(&format!("Listening on http://{at}\n{}", to_try(at)));

    let (stop, mut stopped) = watch::channel(());
    // Told of each connection, so that clients can be known by their addresses.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        let _ = stopped.changed().await;
    });
    let server = tokio::spawn(server.into_future());
    interrupted.recv().await;
    say("Stopping");
    drop(stop);
    match tokio::time::timeout(Duration::from_secs(5), server).await {
        Ok(ended) => Ok(ended??),
        Err(_) => Ok(()),
    }
}

/// Prints, whether or not anybody reads it.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(unix)]
type CtrlC = tokio::signal::unix::Signal;
#[cfg(windows)]
type CtrlC = tokio::signal::windows::CtrlC;

fn ctrl_c() -> std::io::Result<CtrlC> {
    #[cfg(unix)]
    return tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
    #[cfg(windows)]
    return tokio::signal::windows::ctrl_c();
}
