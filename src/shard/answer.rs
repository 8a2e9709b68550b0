//! Answers, and how they leave: bytes are sent, large slices of files are spliced, small ones are
//! read and sent with what stands around them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::ring::SendError;
use crate::shard::edge::Socket;
use crate::shard::partition::ReadSlice;
use crate::shard::reader::ReadError;
use crate::shard::storage::EngineKind;
use crate::units::{byte_count, u64_of, usize_of};

/// At most this much of an answer is gathered in memory at a time; a slow reader of small slices
/// holds no more than that.
const GATHERED_BYTES_MAX: usize = 256 << 10;

/// A piece of an answer's frame.
pub enum AnswerPart {
    /// Bytes as they are.
    Bytes(Bytes),
    /// Records, straight from a file.
    Slice(ReadSlice),
}

impl AnswerPart {
    fn length(&self) -> usize {
        match self {
            AnswerPart::Bytes(bytes) => bytes.len(),
            AnswerPart::Slice(slice) => usize_of(slice.length.0),
        }
    }
}

/// Whether an answer is bytes alone, so that others may be sent with it.
pub(crate) fn is_bytes(parts: &AnswerParts) -> bool {
    parts.iter().all(|part| matches!(part, AnswerPart::Bytes(_)))
}

/// The pieces of one answer, in order.
pub type AnswerParts = SmallVec<[AnswerPart; 4]>;

/// What is still under way of a request that was answered.
pub type Rest = Pin<Box<dyn Future<Output = ()>>>;

/// What becomes of a request.
pub enum Answer {
    /// This frame, size prefix included. Its length is fixed: a failure while it is being sent
    /// ends the connection.
    Parts(AnswerParts),
    /// This frame, before all of what the request asked for is done: its bytes stay charged until
    /// the rest is over.
    Early(AnswerParts, Rest),
    /// Nothing is sent (Produce with acks=0).
    Nothing,
    /// The connection is closed, for this reason.
    Close(String),
}

impl Answer {
    /// An answer of bytes alone.
    pub fn bytes(frame: Bytes) -> Answer {
        let mut parts = AnswerParts::new();
        parts.push(AnswerPart::Bytes(frame));
        Answer::Parts(parts)
    }
}

/// An answer that is there, or one that comes.
#[expect(
    clippy::large_enum_variant,
    reason = "an answer that is ready leaves at once; a box would be one allocation for each"
)]
pub enum Reply {
    /// There.
    Ready(Answer),
    /// Comes; later requests of the connection are answered after it.
    Later(Pin<Box<dyn Future<Output = Answer>>>),
    /// The request has not taken effect: its connection hands nothing more on until it has, and
    /// this has become another reply.
    Unsettled(Pin<Box<dyn Future<Output = Reply>>>),
}

impl Reply {
    /// The same reply, as an answer if that is due by now.
    pub(crate) fn by_now(self) -> Reply {
        match self {
            Reply::Ready(_) | Reply::Unsettled(_) => self,
            Reply::Later(mut answer) => {
                // Whoever waits for it later registers itself.
                let mut context = Context::from_waker(Waker::noop());
                match answer.as_mut().poll(&mut context) {
                    Poll::Ready(answer) => Reply::Ready(answer),
                    Poll::Pending => Reply::Later(answer),
                }
            }
        }
    }

    /// The reply of a request that has taken effect.
    pub(crate) async fn settled(mut self) -> Reply {
        while let Reply::Unsettled(reply) = self {
            self = reply.await;
        }
        self
    }

    /// The answer, as soon as it is there.
    pub(crate) async fn answer(self) -> Answer {
        match self.settled().await {
            Reply::Ready(answer) => answer,
            Reply::Later(answer) => answer.await,
            Reply::Unsettled(_) => unreachable!("it was settled"),
        }
    }
}

/// Why an answer could not be sent whole.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The socket failed, or the peer went away.
    #[error("sending failed: {0}")]
    Socket(#[from] io::Error),
    /// A splice failed.
    #[error("sending from the file failed: {0}")]
    Splice(#[from] SendError),
    /// The file could not be read.
    #[error("reading for the answer failed: {0}")]
    Read(#[from] ReadError),
}

/// Sends an answer; `progress` is called whenever bytes went.
///
/// # Errors
/// [`AnswerError`]: the frame is cut, the connection has to be closed.
pub async fn send(
    socket: &Socket,
    parts: AnswerParts,
    progress: impl Fn(),
) -> Result<(), AnswerError> {
    let mut gathered = AnswerParts::new();
    let mut bytes = 0;
    for part in parts {
        let part = match part {
            AnswerPart::Slice(slice) if is_spliced(&slice) => {
                send_gathered(socket, std::mem::take(&mut gathered), true).await?;
                bytes = 0;
                splice(socket, &slice).await?;
                progress();
                continue;
            }
            AnswerPart::Slice(mut slice) => {
                // A slice that isn't spliced goes in pieces, whatever its size.
                while GATHERED_BYTES_MAX < usize_of(slice.length.0) {
                    let piece = slice.split_to(byte_count(GATHERED_BYTES_MAX));
                    gathered.push(AnswerPart::Slice(piece));
                    send_gathered(socket, std::mem::take(&mut gathered), false).await?;
                    progress();
                    bytes = 0;
                }
                AnswerPart::Slice(slice)
            }
            AnswerPart::Bytes(bytes) => AnswerPart::Bytes(bytes),
        };
        bytes += part.length();
        gathered.push(part);
        if GATHERED_BYTES_MAX <= bytes {
            send_gathered(socket, std::mem::take(&mut gathered), false).await?;
            progress();
            bytes = 0;
        }
    }
    send_gathered(socket, gathered, false).await?;
    progress();
    Ok(())
}

fn is_spliced(slice: &ReadSlice) -> bool {
    let options = &slice.core.options;
    options.kind == EngineKind::Ring && options.splice_bytes_min <= slice.length
}

async fn splice(socket: &Socket, slice: &ReadSlice) -> Result<(), AnswerError> {
    let sent = slice.core.send_slice(slice, socket.descriptor());
    sent.await.expect("the engine answers every splice")?;
    slice.core.stats.slices_spliced.add(1);
    slice.core.stats.bytes_out.add(slice.length.0);
    Ok(())
}

async fn send_gathered(
    socket: &Socket,
    parts: AnswerParts,
    splice_follows: bool,
) -> Result<(), AnswerError> {
    let Some(bytes) = gather(parts).await? else { return Ok(()) };
    if splice_follows {
        socket.send_before_splice(bytes).await?;
    } else {
        socket.send(bytes).await?;
    }
    Ok(())
}

/// Parts as one run of bytes; a single part of bytes is not copied.
async fn gather(mut parts: AnswerParts) -> Result<Option<Bytes>, AnswerError> {
    if parts.len() <= 1 {
        return match parts.pop() {
            None => Ok(None),
            Some(AnswerPart::Bytes(bytes)) => Ok(Some(bytes)),
            Some(AnswerPart::Slice(slice)) => Ok(Some(read(&slice, None).await?.freeze())),
        };
    }
    let total = parts.iter().map(AnswerPart::length).sum();
    let mut rest = BytesMut::zeroed(total);
    let mut done = rest.split_to(0);
    for part in parts {
        let mut region = rest.split_to(part.length());
        match part {
            AnswerPart::Bytes(bytes) => region.copy_from_slice(&bytes),
            AnswerPart::Slice(slice) => region = read(&slice, Some(region)).await?,
        }
        // The regions are neighbours, so joining them again copies nothing.
        done.unsplit(region);
    }
    Ok(Some(done.freeze()))
}

async fn read(slice: &ReadSlice, buffer: Option<BytesMut>) -> Result<BytesMut, AnswerError> {
    let buffer = buffer.unwrap_or_else(|| BytesMut::zeroed(usize_of(slice.length.0)));
    let bytes = slice.read_into(buffer).await?;
    slice.core.stats.slices_copied.add(1);
    slice.core.stats.bytes_out.add(u64_of(bytes.len()));
    Ok(bytes)
}
