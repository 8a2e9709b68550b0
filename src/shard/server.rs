//! A shard's server: the listener, its connections, and the service that answers them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::sync::Notify;

use crate::shard::answer::Reply;
use crate::shard::budget::Budget;
use crate::shard::connection::{self, Connection, ConnectionInfo};
use crate::shard::edge::{self, EdgeKind, Listener};
use crate::shard::engine::Engine;
use crate::units::ByteCount;

/// What answers requests. The broker is one; tests have smaller ones.
pub trait Service: 'static {
    /// Whether the request may be handed on while answers before it are still due. `frame` is the
    /// whole frame without its length.
    fn is_pipelined(&self, frame: &[u8]) -> bool;

    /// Takes a request in. A pipelined one has taken effect (its batches are appended) when this
    /// returns, or when a [`Reply::Unsettled`] is over; the answer may come later.
    fn call(self: &Rc<Self>, frame: BytesMut, connection: &ConnectionInfo) -> Reply;

    /// A connection ends because of what its client has sent: says so where an operator looks.
    fn turned_away(&self, peer: SocketAddr, reason: &str) {
        tracing::warn!(%peer, reason, "connection closed");
    }
}

/// Limits of a shard's network side.
#[derive(Clone, Copy, Debug)]
pub struct NetworkOptions {
    /// `socket.request.max.bytes`.
    pub frame_bytes_max: ByteCount,
    /// Bytes of frames that may be held by all connections together.
    pub frames_bytes_max: ByteCount,
    /// Connections at a time; further ones are closed at once.
    pub connections_max: usize,
    /// Answers of one connection that may be under way together; beyond that it isn't read. At
    /// least 1.
    pub pipeline_max: usize,
    /// `connections.max.idle.ms`.
    pub idle_ms: u64,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        NetworkOptions {
            frame_bytes_max: ByteCount(100 << 20),
            frames_bytes_max: ByteCount(128 << 20),
            connections_max: 10_000,
            pipeline_max: 1024,
            idle_ms: 600_000,
        }
    }
}

/// While the budget is spent, a connection whose frame makes no progress for this long is closed,
/// so that it can't keep the others waiting.
const STALLED_FRAME: Duration = Duration::from_secs(10);

/// How long answers that are due may still leave after the order to stop.
const STOP_GRACE: Duration = Duration::from_millis(250);

/// How often idle connections are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Pause after a failed accept: out of descriptors, most likely.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

pub(crate) struct Server<S> {
    pub engine: Engine,
    pub service: Rc<S>,
    pub options: NetworkOptions,
    pub budget: Budget,
    connections: RefCell<HashMap<u64, Rc<Connection>>>,
    next_id: Cell<u64>,
    stopping: Cell<bool>,
}

impl<S: Service> Server<S> {
    /// The connection is over.
    pub fn forget(&self, connection: &Connection) {
        self.connections.borrow_mut().remove(&connection.info.id);
        self.engine.core.stats.connections_closed.add(1);
    }
}

/// Serves `listener` until `stop` is told, then lets due answers leave and closes the rest.
///
/// # Errors
/// When the listener can't be registered with the runtime.
pub async fn serve<S: Service>(
    engine: &Engine,
    (kind, listener): (EdgeKind, std::net::TcpListener),
    service: Rc<S>,
    (options, stop): (NetworkOptions, Rc<Notify>),
) -> io::Result<()> {
    let descriptor = OwnedFd::from(listener.try_clone()?);
    let listener = Listener::from_std(kind, listener)?;
    let server = Rc::new(Server {
        engine: engine.clone(),
        service,
        options,
        budget: Budget::new(options.frames_bytes_max),
        connections: RefCell::default(),
        next_id: Cell::new(0),
        stopping: Cell::new(false),
    });
    edge::spawn(accept(server.clone(), listener));
    edge::spawn(sweep(server.clone()));
    stop.notified().await;
    server.stopping.set(true);
    // An accept is never dropped (tokio-uring would leak its descriptor): it is made to fail.
    let _ = rustix::net::shutdown(&descriptor, rustix::net::Shutdown::Both);
    let deadline = Instant::now() + STOP_GRACE;
    while server.is_working() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for connection in server.all() {
        connection.shut_down();
    }
    Ok(())
}

impl<S> Server<S> {
    fn all(&self) -> Vec<Rc<Connection>> {
        self.connections.borrow().values().cloned().collect()
    }

    fn is_working(&self) -> bool {
        self.connections.borrow().values().any(|it| it.is_working())
    }
}

async fn accept<S: Service>(server: Rc<Server<S>>, listener: Listener) {
    while !server.stopping.get() {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) if server.stopping.get() => return,
            Err(error) => {
                tracing::warn!(%error, "accepting failed");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        if server.options.connections_max <= server.connections.borrow().len() {
            let limit = server.options.connections_max;
            tracing::warn!(%peer, limit, "connection refused: max.connections is reached");
            server.engine.core.stats.connections_refused.add(1);
            socket.shut_down();
            continue;
        }
        let id = server.next_id.get();
        server.next_id.set(id + 1);
        let connection = Rc::new(Connection::new(ConnectionInfo::new(peer, id), socket));
        server.connections.borrow_mut().insert(id, connection.clone());
        server.engine.core.stats.connections_opened.add(1);
        connection::start(server.clone(), connection);
    }
}

/// Closes connections that nothing moves on.
async fn sweep<S: Service>(server: Rc<Server<S>>) {
    let idle = Duration::from_millis(server.options.idle_ms);
    while !server.stopping.get() {
        tokio::time::sleep(LOOK_EVERY).await;
        let spent = server.options.frames_bytes_max <= server.budget.used();
        for connection in server.all() {
            let still = connection.last_progress().elapsed();
            let stalled = spent && connection.is_in_frame() && STALLED_FRAME < still;
            if idle < still || stalled {
                let peer = connection.info.peer;
                tracing::info!(%peer, stalled, "connection closed: nothing moved on it");
                connection.shut_down();
            }
        }
    }
}

/// How a shard's thread is set up.
#[derive(Clone, Debug)]
pub struct ThreadOptions {
    /// Name of the thread, at most 15 bytes.
    pub name: String,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// Its runtime.
    pub edge: EdgeKind,
}

/// Runs `main` on a thread of its own, pinned, with a runtime for a shard's tasks.
///
/// # Errors
/// When the thread can't be started. What the runtime says comes with the thread's result.
pub fn start_thread<T, M, F>(
    options: ThreadOptions,
    main: M,
) -> io::Result<JoinHandle<io::Result<T>>>
where
    T: Send + 'static,
    M: FnOnce() -> F + Send + 'static,
    F: Future<Output = T>,
{
    std::thread::Builder::new().name(options.name).spawn(move || {
        if let Some(core) = options.core {
            crate::ring::affinity::pin_current_thread(core).map_err(io::Error::other)?;
        }
        edge::run(options.edge, async move { main().await })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::answer::{Answer, AnswerPart, AnswerParts};
    use crate::shard::engine::EngineOptions;
    use crate::shard::storage::EngineKind;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    /// Answers every request at once, although it isn't over before the sender has spoken.
    struct Hasty(RefCell<Option<oneshot::Receiver<()>>>);

    impl Service for Hasty {
        fn is_pipelined(&self, _frame: &[u8]) -> bool {
            true
        }

        fn call(self: &Rc<Self>, frame: BytesMut, _connection: &ConnectionInfo) -> Reply {
            let over = self.0.borrow_mut().take().expect("the test sends one request");
            let parts = AnswerParts::from_iter([AnswerPart::Bytes(frame.freeze())]);
            let rest = Box::pin(async move { over.await.expect("the test tells") });
            Reply::Ready(Answer::Early(parts, rest))
        }
    }

    fn server(directory: &std::path::Path, over: oneshot::Receiver<()>) -> Rc<Server<Hasty>> {
        let options = EngineOptions::new(directory, EngineKind::PlainFile);
        Rc::new(Server {
            engine: Engine::start(options).expect("plain files need nothing"),
            service: Rc::new(Hasty(RefCell::new(Some(over)))),
            options: NetworkOptions::default(),
            budget: Budget::new(ByteCount(1_000)),
            connections: RefCell::default(),
            next_id: Cell::new(0),
            stopping: Cell::new(false),
        })
    }

    /// During a stall of the disk, clients that try again after each timeout must not fill the
    /// memory.
    #[test]
    fn what_is_answered_early_stays_charged_until_it_is_over() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let run = edge::run(EdgeKind::Tokio, async move {
            let (tell, over) = oneshot::channel();
            let server = server(directory.path(), over);
            let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = socket.local_addr().expect("bound");
            let listener = Listener::from_std(EdgeKind::Tokio, socket).expect("registered");
            edge::spawn(accept(server.clone(), listener));
            let mut client = tokio::net::TcpStream::connect(address).await.expect("accepted");
            client.write_all(&[0, 0, 0, 4, 1, 2, 3, 4]).await.expect("sent");
            let mut answer = [0; 4];
            client.read_exact(&mut answer).await.expect("answered");
            assert_eq!(answer, [1, 2, 3, 4]);
            while server.is_working() {
                tokio::task::yield_now().await;
            }
            assert_eq!(server.budget.used(), ByteCount(4), "the answer has left, the bytes stay");
            tell.send(()).expect("somebody waits");
            while server.budget.used() != ByteCount(0) {
                tokio::task::yield_now().await;
            }
        });
        run.expect("a runtime");
    }
}
