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
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::shard::answer::{self, Answer, AnswerParts, Reply, Rest};
use crate::shard::budget::Held;
use crate::shard::edge::{self, Socket};
use crate::shard::frames::{FrameError, FrameReader};
use crate::shard::server::{Server, Service};

/// Who is connected.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// Unique in the shard's lifetime.
    pub id: u64,
    muted_until: Rc<Cell<Option<Instant>>>,
}

impl ConnectionInfo {
    pub(crate) fn new(peer: SocketAddr, id: u64) -> ConnectionInfo {
        ConnectionInfo { peer, id, muted_until: Rc::default() }
    }

    /// No further request is read from this connection before then (KIP-219): its client has used
    /// up its share.
    pub fn mute_until(&self, then: Instant) {
        let later = self.muted_until.get().map_or(then, |before| before.max(then));
        self.muted_until.set(Some(later));
    }

    /// Waits until it may be read.
    async fn unmuted(&self) {
        while let Some(until) = self.muted_until.take() {
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

/// Bytes of requests of one connection whose answers haven't left, or that left early; beyond
/// that, too, the shard stops reading. Enough to keep a disk busy while the next plan is received;
/// more would only leave the processor's caches before it is written.
const UNANSWERED_BYTES_MAX: u64 = 8 << 20;

/// Requests of one connection that were answered before everything was done, as Produce is after
/// its timeout; beyond that the shard stops reading.
const EARLY_MAX: usize = 1024;

pub(crate) struct Connection {
    pub info: ConnectionInfo,
    socket: Socket,
    queue: RefCell<VecDeque<Pending>>,
    /// Answers that have not left yet, the one being sent included.
    unsent: Cell<usize>,
    /// Bytes of the requests that these belong to.
    unsent_bytes: Cell<u64>,
    /// Requests whose answers left early; their bytes are in `unsent_bytes`.
    early: Cell<usize>,
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

/// Answers that leave with the one before them, at most.
const JOINED_MAX: usize = 255;

/// What the requests of joined answers hold.
type Joined = SmallVec<[Held; 16]>;

struct Pending {
    reply: Reply,
    // Given back when the answer has left, and the rest is over.
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
            early: Cell::new(0),
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

    /// Adds the answers that follow and are due by now, as long as they are bytes alone: one plan
    /// makes many answers due at once, and they leave in one send.
    fn join_due(&self, parts: &mut AnswerParts) -> Joined {
        let mut joined = Joined::new();
        while joined.len() < JOINED_MAX {
            let Some(Pending { reply, held }) = self.queue.borrow_mut().pop_front() else { break };
            match reply.by_now() {
                Reply::Ready(Answer::Parts(more)) if answer::is_bytes(&more) => {
                    parts.extend(more);
                    joined.push(held);
                }
                reply => {
                    self.queue.borrow_mut().push_front(Pending { reply, held });
                    break;
                }
            }
        }
        joined
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
        while !self.broken.get() && self.is_full(limit) {
            self.departed.notified().await;
        }
        !self.broken.get()
    }

    fn is_full(&self, limit: usize) -> bool {
        limit <= self.unsent.get()
            || UNANSWERED_BYTES_MAX <= self.unsent_bytes.get()
            || EARLY_MAX <= self.early.get()
    }

    fn sent(&self) {
        self.unsent.set(self.unsent.get() - 1);
        self.departed.notify_one();
    }

    fn release(&self, held: Held) {
        self.unsent_bytes.set(self.unsent_bytes.get() - held.bytes());
        drop(held);
        self.departed.notify_one();
    }

    /// The answer has left; the request's bytes are given back when the rest is over, too.
    fn release_after(self: &Rc<Self>, rest: Rest, held: Held) {
        self.early.set(self.early.get() + 1);
        let connection = self.clone();
        edge::spawn(async move {
            rest.await;
            connection.early.set(connection.early.get() - 1);
            connection.release(held);
        });
    }
}

/// Serves one connection to its end.
pub(crate) fn start<S: Service>(server: Rc<Server<S>>, connection: Rc<Connection>) {
    edge::spawn(answers(server.clone(), connection.clone()));
    edge::spawn(requests(server, connection));
}

/// Only what the client has done wrong is worth a line that everyone sees.
fn turn_away<S: Service>(server: &Server<S>, connection: &Connection, error: &FrameError) {
    let peer = connection.info.peer;
    match error {
        FrameError::Length { .. } | FrameError::NoMemory(_) => {
            server.service.turned_away(peer, &error.to_string());
        }
        FrameError::Cut { .. } | FrameError::Socket(_) => {
            tracing::info!(%peer, %error, "connection closed");
        }
    }
}

async fn requests<S: Service>(server: Rc<Server<S>>, connection: Rc<Connection>) {
    let limit = server.options.frame_bytes_max;
    let mut reader = FrameReader::new(connection.socket.clone(), limit);
    let progress = |in_frame| {
        connection.last_progress.set(Instant::now());
        connection.in_frame.set(in_frame);
    };
    loop {
        connection.info.unmuted().await;
        let frame = match reader.next(&server.budget, progress).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => {
                turn_away(&server, &connection, &error);
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
    connection.push(reply.settled().await, held);
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
        let Pending { reply, held } = pending;
        let mut joined = Joined::new();
        let (sent, rest) = match reply.answer().await {
            Answer::Parts(mut parts) => {
                if answer::is_bytes(&parts) {
                    joined = connection.join_due(&mut parts);
                }
                (send(&server, &connection, parts).await, None)
            }
            Answer::Early(parts, rest) => (send(&server, &connection, parts).await, Some(rest)),
            Answer::Nothing => (true, None),
            Answer::Close(reason) => {
                server.service.turned_away(connection.info.peer, &reason);
                server.engine.core.stats.connections_refused.add(1);
                (false, None)
            }
        };
        if !sent {
            connection.give_up();
        }
        match rest {
            Some(rest) => connection.release_after(rest, held),
            None => connection.release(held),
        }
        connection.sent();
        for held in joined {
            connection.release(held);
            connection.sent();
        }
    }
    connection.socket.shut_down();
    server.forget(&connection);
    let queue = std::mem::take(&mut *connection.queue.borrow_mut());
    unheard(queue).await;
}

/// Nobody hears the answers of a broken connection, but what its requests asked for is under way
/// and counts until it is over.
async fn unheard(queue: VecDeque<Pending>) {
    for Pending { reply, held } in queue {
        if let Answer::Early(_, rest) = reply.answer().await {
            rest.await;
        }
        drop(held);
    }
}

/// Sends one answer; `false` when the connection is to be closed.
async fn send<S: Service>(server: &Server<S>, connection: &Connection, parts: AnswerParts) -> bool {
    let peer = connection.info.peer;
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
