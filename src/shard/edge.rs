//! The network edge: one module, two faces.
//!
//! Where io_uring works, a shard's runtime is tokio-uring's: accept, receive and send are
//! completions of its ring. Where io_uring is refused, tokio-uring cannot start either, and the
//! same calls go to plain tokio. Nothing outside this module names either.
//!
//! tokio-uring 0.5 has no maintainer, which is why it ends here. Two of its traits shape the
//! callers: a dropped receive may swallow bytes, so none is ever raced in a `select`; and a
//! connection is ended by `shutdown(2)`, which completes whatever waits on it.

use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use bytes::Bytes;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio_uring::buf::BoundedBuf;

/// Which face a shard's runtime has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeKind {
    /// tokio-uring.
    Uring,
    /// Plain tokio, for hosts that refuse io_uring.
    Tokio,
}

/// Submission entries of the edge's own ring; completions get eight times as many.
const EDGE_ENTRIES: u32 = 1024;
const EDGE_CQ_ENTRIES: u32 = 8 * EDGE_ENTRIES;

/// Runs `main` to its end on a single-threaded runtime of the given kind.
///
/// # Errors
/// When the runtime can't be made: for tokio-uring whatever `io_uring_setup` says.
pub fn run<F: Future>(kind: EdgeKind, main: F) -> io::Result<F::Output> {
    match kind {
        EdgeKind::Uring => {
            let mut ring = tokio_uring::uring_builder();
            ring.setup_single_issuer().setup_coop_taskrun().setup_cqsize(EDGE_CQ_ENTRIES);
            let mut builder = tokio_uring::builder();
            builder.entries(EDGE_ENTRIES).uring_builder(&ring);
            Ok(tokio_uring::Runtime::new(&builder)?.block_on(main))
        }
        EdgeKind::Tokio => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(tokio::task::LocalSet::new().block_on(&runtime, main))
        }
    }
}

/// Starts a task on the thread's runtime.
pub fn spawn<F: Future<Output = ()> + 'static>(task: F) {
    tokio::task::spawn_local(task);
}

/// A listening socket.
pub enum Listener {
    /// tokio-uring's.
    Uring(tokio_uring::net::TcpListener),
    /// tokio's.
    Tokio(tokio::net::TcpListener),
}

impl Listener {
    /// Takes a bound listener over; must run on a runtime of that kind.
    ///
    /// # Errors
    /// When the socket can't be registered.
    pub fn from_std(kind: EdgeKind, socket: std::net::TcpListener) -> io::Result<Listener> {
        match kind {
            EdgeKind::Uring => {
                socket.set_nonblocking(false)?;
                Ok(Listener::Uring(tokio_uring::net::TcpListener::from_std(socket)))
            }
            EdgeKind::Tokio => {
                socket.set_nonblocking(true)?;
                Ok(Listener::Tokio(tokio::net::TcpListener::from_std(socket)?))
            }
        }
    }

    /// The next connection.
    ///
    /// # Errors
    /// As accept(2); `EMFILE` and the like pass when descriptors come free.
    pub async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        let (stream, peer) = match self {
            Listener::Uring(listener) => {
                let (stream, peer) = listener.accept().await?;
                (Stream::Uring(stream), peer)
            }
            Listener::Tokio(listener) => {
                let (stream, peer) = listener.accept().await?;
                (Stream::Tokio(stream), peer)
            }
        };
        Ok((Socket::new(stream)?, peer))
    }
}

enum Stream {
    Uring(tokio_uring::net::TcpStream),
    Tokio(tokio::net::TcpStream),
}

impl Stream {
    fn raw(&self) -> RawFd {
        match self {
            Stream::Uring(stream) => stream.as_raw_fd(),
            Stream::Tokio(stream) => stream.as_raw_fd(),
        }
    }
}

/// A connection. Receiving and sending may be under way together, each from one task.
#[derive(Clone)]
pub struct Socket {
    stream: Rc<Stream>,
    // A second descriptor of the same socket, for the calls that go past the runtime: splices,
    // the first part of a spliced answer, shutdown. It lives as long as any of them needs it.
    descriptor: Rc<OwnedFd>,
}

impl Socket {
    fn new(stream: Stream) -> io::Result<Socket> {
        let descriptor = duplicate(&stream)?;
        // Non-blocking from here on: a splice to a full socket then says EAGAIN instead of parking
        // a kernel worker. Receives and sends of the edge's ring are poll-armed all the same.
        let flags = fcntl_getfl(&descriptor)?;
        fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        rustix::net::sockopt::set_tcp_nodelay(&descriptor, true)?;
        Ok(Socket { stream: Rc::new(stream), descriptor: Rc::new(descriptor) })
    }

    /// The socket as the storage ring's splices take it.
    pub fn descriptor(&self) -> &Rc<OwnedFd> {
        &self.descriptor
    }

    /// Receives into the spare capacity of `buffer`, which comes back longer by what arrived.
    /// Zero bytes are the end of the stream. The spare capacity must not be empty.
    pub async fn receive(&self, buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        assert!(buffer.len() < buffer.capacity());
        match &*self.stream {
            Stream::Uring(stream) => receive_by_ring(stream, buffer).await,
            Stream::Tokio(stream) => receive_by_tokio(stream, buffer).await,
        }
    }

    /// Takes what has arrived already, without waiting: `None` when that is nothing.
    ///
    /// # Errors
    /// As recv(2).
    pub fn receive_now(&self, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let spare = rustix::buffer::spare_capacity(buffer);
        match rustix::net::recv(&self.descriptor, spare, RecvFlags::DONTWAIT) {
            Ok((received, _)) => Ok(Some(received)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// As send(2); the connection is of no more use then.
    pub async fn send(&self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            let (sent, rest) = match &*self.stream {
                Stream::Uring(stream) => stream.write(bytes).submit().await,
                Stream::Tokio(stream) => send_by_tokio(stream, bytes).await,
            };
            bytes = rest;
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(bytes.split_to(count)),
                Err(error) if is_would_block(&error) => self.writable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands the kernel the first part of an answer whose records follow by splice, so that both
    /// leave in the same segments (`MSG_MORE`).
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub async fn send_before_splice(&self, mut bytes: Bytes) -> io::Result<()> {
        let flags = SendFlags::MORE | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.descriptor, &bytes, flags) {
            Ok(count) => drop(bytes.split_to(count)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.send(bytes).await
    }

    /// Ends the connection in both directions; a receive that waits completes with zero bytes.
    pub fn shut_down(&self) {
        // ENOTCONN is the peer having been faster.
        let _ = match &*self.stream {
            Stream::Uring(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tokio(_) => {
                rustix::net::shutdown(&self.descriptor, rustix::net::Shutdown::Both)
                    .map_err(io::Error::from)
            }
        };
    }

    async fn writable(&self) -> io::Result<()> {
        wait(&self.descriptor, Interest::WRITABLE).await
    }
}

/// Waits by epoll for the rare cases that no ring waits for.
async fn wait(descriptor: &OwnedFd, interest: Interest) -> io::Result<()> {
    let watched = watch(descriptor.try_clone()?)?;
    let mut guard = watched.ready(interest).await?;
    guard.clear_ready_matching(Ready::ALL);
    Ok(())
}

/// Has the runtime's epoll watch a descriptor.
///
/// # Errors
/// As `epoll_ctl(2)`.
#[expect(
    deprecated,
    reason = "its successor is for types that may lend a closed descriptor; OwnedFd never does"
)]
pub fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}

fn duplicate(stream: &Stream) -> io::Result<OwnedFd> {
    match stream {
        Stream::Tokio(stream) => stream.as_fd().try_clone_to_owned(),
        // tokio-uring's stream lends no BorrowedFd, only the number.
        Stream::Uring(_) => crate::ring::duplicate(stream.raw()),
    }
}

fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

async fn receive_by_ring(
    stream: &tokio_uring::net::TcpStream,
    mut buffer: Vec<u8>,
) -> (io::Result<usize>, Vec<u8>) {
    loop {
        let filled = buffer.len();
        let (result, slice) = stream.read(buffer.slice(filled..)).await;
        buffer = slice.into_inner();
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_would_block(&error) => {
                let waited = match crate::ring::duplicate(stream.as_raw_fd()) {
                    Ok(descriptor) => wait(&descriptor, Interest::READABLE).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = waited {
                    return (Err(error), buffer);
                }
            }
            other => return (other, buffer),
        }
    }
}

async fn receive_by_tokio(
    stream: &tokio::net::TcpStream,
    mut buffer: Vec<u8>,
) -> (io::Result<usize>, Vec<u8>) {
    loop {
        if let Err(error) = stream.readable().await {
            return (Err(error), buffer);
        }
        // The spare capacity is exact, so that a frame never takes bytes of the next one.
        let mut limited = bytes::BufMut::limit(&mut buffer, usize::MAX);
        let room = limited.get_ref().capacity() - limited.get_ref().len();
        limited.set_limit(room);
        match stream.try_read_buf(&mut limited) {
            Err(error) if is_would_block(&error) => {}
            other => return (other, buffer),
        }
    }
}

async fn send_by_tokio(stream: &tokio::net::TcpStream, bytes: Bytes) -> (io::Result<usize>, Bytes) {
    if let Err(error) = stream.writable().await {
        return (Err(error), bytes);
    }
    (stream.try_write(&bytes), bytes)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
