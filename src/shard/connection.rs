//! One connection: a task that receives and a task that answers, in order.
//!
//! Pipelined requests (Produce) are handed on as fast as they parse, or group commit would die;
//! their answers are sent in the order of the requests. Every other request is a barrier: it is
//! handed on when all answers before it have left, and the next one when its own has, as Kafka's
//! muted channels do.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::BytesMut;
use tokio::sync::Notify;

use crate::shard::answer::{self, Answer, Reply};
use crate::shard::budget::Held;
use crate::shard::edge::{self, Socket};
use crate::shard::frames::FrameReader;
use crate::shard::server::{Server, Service};

/// Who is connected.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// Unique in the shard's lifetime.
    pub id: u64,
}

/// Bytes of requests of one connection whose answers haven't left; beyond that, too, the shard
/// stops reading. Enough to keep a disk busy while the next plan is received; more would only
/// leave the processor's caches before it is written.
const UNANSWERED_BYTES_MAX: u64 = 8 << 20;

pub(crate) struct Connection {
    pub info: ConnectionInfo,
    socket: Socket,
    queue: RefCell<VecDeque<Pending>>,
    /// Answers that have not left yet, the one being sent included.
    unsent: Cell<usize>,
    /// Bytes of the requests that these belong to.
    unsent_bytes: Cell<u64>,
    /// Told when something is put into the queue, or nothing more will be.
    arrived: Notify,
    /// Told when an answer has left.
    departed: Notify,
    /// No further request will come.
    ended: Cell<bool>,
    /// An answer could not be sent, or the service gave the connection up.
    broken: Cell<bool>,
    last_progress: Cell<Instant>,
    in_frame: Cell<bool>,
}

struct Pending {
    reply: Reply,
    // Given back when the answer has left.
    held: Held,
}

impl Connection {
    pub fn new(info: ConnectionInfo, socket: Socket) -> Connection {
        Connection {
            info,
            socket,
            queue: RefCell::default(),
            unsent: Cell::new(0),
            unsent_bytes: Cell::new(0),
            arrived: Notify::new(),
            departed: Notify::new(),
            ended: Cell::new(false),
            broken: Cell::new(false),
            last_progress: Cell::new(Instant::now()),
            in_frame: Cell::new(false),
        }
    }

    /// Ends the connection: whatever waits on its socket completes.
    pub fn shut_down(&self) {
        self.socket.shut_down();
    }

    /// When bytes last moved in either direction.
    pub fn last_progress(&self) -> Instant {
        self.last_progress.get()
    }

    /// Whether part of a frame has come, and the rest has not.
    pub fn is_in_frame(&self) -> bool {
        self.in_frame.get()
    }

    /// Whether a request is being worked on, as a long poll is.
    pub fn is_working(&self) -> bool {
        self.unsent.get() != 0
    }

    fn give_up(&self) {
        self.broken.set(true);
        self.socket.shut_down();
        self.arrived.notify_one();
        self.departed.notify_one();
    }

    fn push(&self, reply: Reply, held: Held) {
        self.unsent.set(self.unsent.get() + 1);
        self.unsent_bytes.set(self.unsent_bytes.get() + held.bytes());
        self.queue.borrow_mut().push_back(Pending { reply, held });
        self.arrived.notify_one();
    }

    /// Waits until fewer than `limit` answers are unsent; `false` when the connection broke.
    async fn below(&self, limit: usize) -> bool {
        while !self.broken.get()
            && (limit <= self.unsent.get() || UNANSWERED_BYTES_MAX <= self.unsent_bytes.get())
        {
            self.departed.notified().await;
        }
        !self.broken.get()
    }

    fn sent(&self, held: &Held) {
        self.unsent.set(self.unsent.get() - 1);
        self.unsent_bytes.set(self.unsent_bytes.get() - held.bytes());
        self.departed.notify_one();
    }
}

/// Serves one connection to its end.
pub(crate) fn start<S: Service>(server: Rc<Server<S>>, connection: Rc<Connection>) {
    edge::spawn(answers(server.clone(), connection.clone()));
    edge::spawn(requests(server, connection));
}

async fn requests<S: Service>(server: Rc<Server<S>>, connection: Rc<Connection>) {
    let limit = server.options.frame_bytes_max;
    let mut reader = FrameReader::new(connection.socket.clone(), limit);
    let progress = |in_frame| {
        connection.last_progress.set(Instant::now());
        connection.in_frame.set(in_frame);
    };
    loop {
        let frame = match reader.next(&server.budget, progress).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => {
                let peer = connection.info.peer;
                tracing::info!(%peer, %error, "connection closed");
                server.engine.core.stats.connections_refused.add(1);
                connection.give_up();
                break;
            }
        };
        connection.in_frame.set(false);
        if !take(&server, &connection, frame).await {
            break;
        }
    }
    connection.ended.set(true);
    connection.arrived.notify_one();
}

/// Hands one frame to the service; `false` when the connection broke.
async fn take<S: Service>(
    server: &Server<S>,
    connection: &Connection,
    (frame, held): (BytesMut, Held),
) -> bool {
    let stats = &server.engine.core.stats;
    stats.requests.add(1);
    let pipelined = server.service.is_pipelined(&frame);
    if !connection.below(if pipelined { server.options.pipeline_max } else { 1 }).await {
        return false;
    }
    let started = Instant::now();
    let reply = server.service.call(frame, &connection.info);
    if pipelined {
        stats.parse.record(started.elapsed());
    }
    connection.push(reply, held);
    pipelined || connection.below(1).await
}

async fn answers<S: Service>(server: Rc<Server<S>>, connection: Rc<Connection>) {
    while !connection.broken.get() {
        let pending = connection.queue.borrow_mut().pop_front();
        let Some(pending) = pending else {
            if connection.ended.get() {
                break;
            }
            connection.arrived.notified().await;
            continue;
        };
        let answer = match pending.reply {
            Reply::Ready(answer) => answer,
            Reply::Later(answer) => answer.await,
        };
        if !send(&server, &connection, answer).await {
            connection.give_up();
        }
        connection.sent(&pending.held);
    }
    connection.socket.shut_down();
    server.forget(&connection);
}

/// Sends one answer; `false` when the connection is to be closed.
async fn send<S: Service>(server: &Server<S>, connection: &Connection, answer: Answer) -> bool {
    let peer = connection.info.peer;
    let parts = match answer {
        Answer::Parts(parts) => parts,
        Answer::Nothing => return true,
        Answer::Close(reason) => {
            tracing::info!(%peer, reason, "connection closed");
            server.engine.core.stats.connections_refused.add(1);
            return false;
        }
    };
    let due = Instant::now();
    let progress = || connection.last_progress.set(Instant::now());
    match answer::send(&connection.socket, parts, progress).await {
        Ok(()) => {
            server.engine.core.stats.answer.record(due.elapsed());
            true
        }
        Err(error) => {
            tracing::debug!(%peer, %error, "connection closed in the middle of an answer");
            false
        }
    }
}
