//! The HTTP port: `/metrics`, `/livez`, `/readyz`, on a control thread with a runtime of its own,
//! so that a scrape costs the shards one message each.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::oneshot;

use crate::broker::metrics;
use crate::broker::server::Monitor;
use crate::shard::ShardStats;

/// A shard that doesn't answer a scrape for this long isn't alive.
const SHARD_WAIT: Duration = Duration::from_secs(5);

/// What the port tells from.
#[derive(Clone)]
pub struct Sources {
    /// Asks the shards.
    pub monitor: Monitor,
    /// Whether clients are served.
    pub ready: Arc<AtomicBool>,
}

/// Serves until `stop` is told. Blocks: it is a thread's whole work.
///
/// # Errors
/// When the runtime can't be made, or the listener fails.
pub fn serve(
    listener: TcpListener,
    sources: Sources,
    stop: oneshot::Receiver<()>,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let server = axum::serve(listener, router(sources));
        tokio::select! {
            served = server => served,
            // A sender that is gone means stop as well.
            _ = stop => Ok(()),
        }
    })
}

fn router(sources: Sources) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .with_state(sources)
}

async fn scrape(State(sources): State<Sources>) -> Response {
    let Some(stats) = stats(&sources).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "a shard does not answer\n").into_response();
    };
    match metrics::render(stats) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn alive(State(sources): State<Sources>) -> Response {
    match stats(&sources).await {
        Some(_) => "alive\n".into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "a shard does not answer\n").into_response(),
    }
}

async fn ready(State(sources): State<Sources>) -> Response {
    if sources.ready.load(Ordering::Acquire) {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "opening partitions\n").into_response()
    }
}

async fn stats(sources: &Sources) -> Option<Vec<ShardStats>> {
    tokio::time::timeout(SHARD_WAIT, sources.monitor.stats()).await.ok()?
}
