//! The server's thread: tokio-uring for the sockets, the storage ring beside it, the flusher.

use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::Sender;

use bytes::{Bytes, BytesMut};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio_uring::buf::BoundedBuf;
use tokio_uring::net::TcpStream;

use super::storage::Storage;
use super::{Cell as Compared, Load, WorkerCores};
use crate::experiments::splice::set_nonblocking;
use crate::experiments::{Doing, Failure, measure};
use crate::sys::receive_now;

/// Bytes of one answer: a Produce response of one partition is about so long.
pub const ANSWER_BYTES: usize = 60;
/// A frame starts with the length of its rest, as on Kafka's wire.
const LENGTH_BYTES: usize = size_of::<u32>();
const NETWORK_RING_ENTRIES: u32 = 1024;
/// Workers for everything but regular files; there is nothing for them to do here.
const UNBOUNDED_WORKERS_MAX: u32 = 4;
/// Bytes that one connection may receive by system call before the others have their turn.
const MORE_BYTES_MAX: usize = 1 << 20;

/// What the server is told.
pub struct Setup {
    pub folder: PathBuf,
    pub load: Load,
    pub cell: Compared,
    pub receive_bytes: usize,
    pub receive_more: bool,
    pub sync: bool,
    pub core: usize,
    pub other_core: usize,
}

/// What the server did.
pub struct Served {
    pub batches: u64,
    pub plans: u64,
    pub turns: u64,
}

/// One client connection.
struct Connection {
    number: usize,
    stream: TcpStream,
    /// The same socket, for system calls.
    socket: std::net::TcpStream,
    answers_due: Cell<usize>,
    wake: Notify,
}

impl Connection {
    /// One more batch of this connection is written.
    fn owe_answer(&self) {
        self.answers_due.set(self.answers_due.get() + 1);
        self.wake.notify_one();
    }
}

/// What the tasks of the thread share. No borrow of it is held across a wait.
struct Shared {
    storage: RefCell<Storage>,
    connections: Vec<Rc<Connection>>,
    flush: Notify,
    open: Cell<usize>,
    all_closed: Notify,
}

impl Shared {
    fn owe_answers(&self) {
        let answered = self.storage.borrow_mut().take_answered();
        for number in answered {
            self.connections[number].owe_answer();
        }
    }
}

/// Serves until all clients have closed. Tells its address and thread id once it listens.
pub fn serve(setup: &Setup, ready: &Sender<(SocketAddr, i32)>) -> Result<Served, Failure> {
    measure::pin(setup.core)?;
    let listener = TcpListener::bind("127.0.0.1:0").doing("listen")?;
    let address = listener.local_addr().doing("address")?;
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let told = ready.send((address, thread));
    told.map_err(|_| Failure::Wrong("nobody waits for the server".to_owned()))?;
    let mut sockets = Vec::new();
    for _ in 0..setup.load.connections {
        let (socket, _) = listener.accept().doing("accept")?;
        socket.set_nodelay(true).doing("set TCP_NODELAY")?;
        set_nonblocking(&socket, true)?;
        sockets.push(socket);
    }
    let mut ring = tokio_uring::uring_builder();
    ring.setup_single_issuer().setup_coop_taskrun();
    let mut runtime = tokio_uring::builder();
    runtime.entries(NETWORK_RING_ENTRIES).uring_builder(&ring);
    runtime.start(serve_sockets(setup, sockets))
}

async fn serve_sockets(
    setup: &Setup,
    sockets: Vec<std::net::TcpStream>,
) -> Result<Served, Failure> {
    let variant = setup.cell.variant;
    let storage = Storage::create(&setup.folder, setup.load.partitions, variant, setup.sync)?;
    place_workers(setup, &storage)?;
    let completions = storage.ring().watch().doing("watch a ring")?;
    let open = sockets.len();
    let connections: Result<_, _> = sockets.into_iter().enumerate().map(connection).collect();
    let connections = connections.doing("a second descriptor of a socket")?;
    let shared = Rc::new(Shared {
        storage: RefCell::new(storage),
        open: Cell::new(open),
        connections,
        flush: Notify::new(),
        all_closed: Notify::new(),
    });
    tokio_uring::spawn(flush_turns(Rc::clone(&shared)));
    tokio_uring::spawn(complete_plans(Rc::clone(&shared), completions));
    for connection in &shared.connections {
        tokio_uring::spawn(answer(Rc::clone(connection)));
        let how = (setup.receive_bytes, setup.receive_more);
        let receiving = receive(Rc::clone(&shared), Rc::clone(connection), how);
        tokio_uring::spawn(receiving);
    }
    shared.all_closed.notified().await;
    let storage = shared.storage.borrow();
    assert_eq!(storage.ring().in_flight(), 0);
    let work = &storage.work;
    Ok(Served { batches: work.batches, plans: work.plans, turns: work.turns })
}

fn connection((number, socket): (usize, std::net::TcpStream)) -> std::io::Result<Rc<Connection>> {
    Ok(Rc::new(Connection {
        number,
        stream: TcpStream::from_std(socket.try_clone()?),
        socket,
        answers_due: Cell::new(0),
        wake: Notify::new(),
    }))
}

fn place_workers(setup: &Setup, storage: &Storage) -> Result<(), Failure> {
    let cores = match setup.cell.cores {
        WorkerCores::Unset => Vec::new(),
        WorkerCores::Own => vec![setup.core],
        WorkerCores::Other => vec![setup.other_core],
        WorkerCores::Any => vec![setup.core, setup.other_core],
    };
    if !cores.is_empty() {
        storage.ring().place_workers(&cores).doing("place the kernel's workers")?;
    }
    if let Some(count) = setup.cell.workers_max {
        let bounded = storage.ring().bound_workers(count, UNBOUNDED_WORKERS_MAX);
        bounded.doing("bound the kernel's workers")?;
    }
    Ok(())
}

/// The first append of a turn wakes it; whoever is ready has its turn before the plans are made.
async fn flush_turns(shared: Rc<Shared>) {
    loop {
        shared.flush.notified().await;
        tokio::task::yield_now().await;
        let left = shared.storage.borrow_mut().flush().expect("the storage takes the plans");
        shared.owe_answers();
        if left {
            shared.flush.notify_one();
        }
    }
}

async fn complete_plans(shared: Rc<Shared>, completions: AsyncFd<OwnedFd>) {
    loop {
        let mut ready = completions.readable().await.expect("the runtime lives");
        ready.clear_ready();
        let left = shared.storage.borrow_mut().complete();
        shared.owe_answers();
        if left {
            shared.flush.notify_one();
        }
    }
}

async fn receive(
    shared: Rc<Shared>,
    connection: Rc<Connection>,
    (receive_bytes, receive_more): (usize, bool),
) {
    let mut buffer = BytesMut::with_capacity(receive_bytes);
    loop {
        let mut more_bytes = 0;
        loop {
            append_frames(&shared, connection.number, &mut buffer);
            make_room(&mut buffer, receive_bytes);
            if !receive_more || more_bytes > MORE_BYTES_MAX {
                break;
            }
            // An end or an error shows again in the receive on the ring.
            match receive_now(&connection.socket, &mut buffer) {
                Ok(count) if count > 0 => more_bytes += count,
                Ok(_) | Err(_) => break,
            }
        }
        let filled = buffer.len();
        let (result, slice) = connection.stream.read(buffer.slice(filled..)).await;
        buffer = slice.into_inner();
        if matches!(result, Ok(0) | Err(_)) {
            break;
        }
    }
    shared.open.set(shared.open.get() - 1);
    if shared.open.get() == 0 {
        shared.all_closed.notify_one();
    }
}

fn append_frames(shared: &Shared, number: usize, buffer: &mut BytesMut) {
    while let Some(frame) = next_frame(buffer) {
        if shared.storage.borrow_mut().append(frame, number) {
            shared.flush.notify_one();
        }
    }
}

/// Length of the frame at the start of the buffer, its length field included.
fn frame_bytes(buffer: &[u8]) -> Option<usize> {
    let length = buffer.first_chunk::<LENGTH_BYTES>()?;
    let rest = usize::try_from(u32::from_be_bytes(*length)).expect("usize is 64 bits");
    Some(LENGTH_BYTES + rest)
}

fn next_frame(buffer: &mut BytesMut) -> Option<Bytes> {
    let total = frame_bytes(buffer)?;
    (buffer.len() >= total).then(|| buffer.split_to(total).freeze())
}

/// Leaves room for the rest of a known frame, or for a good part of a receive. What has arrived of
/// a frame moves with it into the new buffer.
fn make_room(buffer: &mut BytesMut, receive_bytes: usize) {
    let rest = frame_bytes(buffer).map_or(0, |total| total - buffer.len());
    if buffer.capacity() - buffer.len() >= rest.max(receive_bytes / 4) {
        return;
    }
    let wanted = receive_bytes.max(buffer.len() + rest);
    let mut roomy = BytesMut::with_capacity(wanted);
    roomy.extend_from_slice(buffer);
    *buffer = roomy;
}

/// Sends all answers that are due in one go.
async fn answer(connection: Rc<Connection>) {
    loop {
        connection.wake.notified().await;
        let count = connection.answers_due.take();
        let answers = vec![0_u8; count * ANSWER_BYTES];
        if connection.stream.write_all(answers).await.0.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_where_their_length_says() {
        let mut buffer = BytesMut::from(&b"\0\0\0\x03abc\0\0\0\x02d"[..]);
        assert_eq!(next_frame(&mut buffer).as_deref(), Some(&b"\0\0\0\x03abc"[..]));
        assert_eq!(next_frame(&mut buffer), None);
        make_room(&mut buffer, 4);
        assert_eq!(&buffer[..], b"\0\0\0\x02d");
        assert!(buffer.capacity() > buffer.len());
        buffer.extend_from_slice(b"e");
        assert_eq!(next_frame(&mut buffer).as_deref(), Some(&b"\0\0\0\x02de"[..]));
        assert_eq!(next_frame(&mut buffer), None);
    }
}
