//! Receiving frames: a small first read, then straight into a buffer of the frame's full size.
//!
//! The large buffer is not touched before bytes arrive, so a frame that is only announced costs
//! address space, not memory; and a batch is never copied on its way from the socket to the file,
//! except for what came with the first 512 bytes.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::shard::budget::{Budget, Held};
use crate::shard::edge::Socket;
use crate::units::{ByteCount, u64_of};

/// What the first read of a frame asks for: its length, its header and small requests whole.
pub const FIRST_READ_BYTES: usize = 512;

/// How often in a row bytes are taken without waiting before other connections get their turn. The
/// ring's receives complete once a turn; taking frames by them alone gives a plan one batch,
/// whatever a client has under way, and group commit dies (28 us of CPU a batch instead of 12).
const RECEIVES_NOW_MAX: u32 = 64;

const LENGTH_BYTES: usize = size_of::<i32>();

/// Why no further frame can be had from a connection.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The announced length is negative or over the limit.
    #[error("frame length {length} is outside 0..={limit} (socket.request.max.bytes)")]
    Length {
        /// As announced.
        length: i32,
        /// The limit.
        limit: u64,
    },
    /// The peer left in the middle of a frame.
    #[error("the peer closed the connection {missing} bytes before a frame's end")]
    Cut {
        /// Bytes that never came.
        missing: u64,
    },
    /// No memory for a frame of this size.
    #[error("no memory for a frame of {0} bytes")]
    NoMemory(u64),
    /// The socket failed.
    #[error("receiving failed: {0}")]
    Socket(#[from] io::Error),
}

/// One connection's receiving side.
pub struct FrameReader {
    socket: Socket,
    /// Bytes of the next frames that came with an earlier read.
    head: Vec<u8>,
    limit: ByteCount,
    /// How many more receives don't wait.
    receives_now: u32,
}

impl FrameReader {
    /// A reader with nothing received yet; frames over `limit` bytes are refused.
    pub fn new(socket: Socket, limit: ByteCount) -> FrameReader {
        let head = Vec::with_capacity(FIRST_READ_BYTES);
        FrameReader { socket, head, limit, receives_now: 0 }
    }

    /// The next frame without its length, and what it holds of the budget; `None` when the peer
    /// is done. `progress` is called whenever bytes came, and around a wait for the budget: with
    /// `true` when the client owes the rest of a frame.
    ///
    /// # Errors
    /// [`FrameError`]: the connection is of no more use.
    pub async fn next(
        &mut self,
        budget: &Budget,
        progress: impl Fn(bool),
    ) -> Result<Option<(BytesMut, Held)>, FrameError> {
        let Some(length) = self.length(&progress).await? else { return Ok(None) };
        let mut charge = budget.open(length);
        let mut frame = Vec::new();
        frame.try_reserve_exact(length).map_err(|_| FrameError::NoMemory(u64_of(length)))?;
        let present = length.min(self.head.len() - LENGTH_BYTES);
        frame.extend_from_slice(&self.head[LENGTH_BYTES..LENGTH_BYTES + present]);
        self.head.drain(..LENGTH_BYTES + present);
        charge.add(present);
        while frame.len() < length {
            if charge.must_wait() {
                // It is the shard that keeps the client waiting: the frame isn't stalled.
                progress(false);
                charge.admit().await;
                progress(true);
            }
            let (received, buffer) = self.receive(frame).await;
            frame = buffer;
            let received = received?;
            if received == 0 {
                return Err(FrameError::Cut { missing: u64_of(length - frame.len()) });
            }
            progress(frame.len() < length);
            charge.add(received);
        }
        // Neither conversion copies: length and capacity are equal, and nobody else has the bytes.
        Ok(Some((BytesMut::from(Bytes::from(frame)), charge.finish())))
    }

    async fn length(&mut self, progress: &impl Fn(bool)) -> Result<Option<usize>, FrameError> {
        while self.head.len() < LENGTH_BYTES {
            let head = std::mem::take(&mut self.head);
            let (received, buffer) = self.receive(head).await;
            self.head = buffer;
            if received? == 0 {
                if self.head.is_empty() {
                    return Ok(None);
                }
                return Err(FrameError::Cut { missing: u64_of(LENGTH_BYTES - self.head.len()) });
            }
            progress(true);
        }
        let prefix = self.head.first_chunk::<LENGTH_BYTES>().expect("four bytes are there");
        let length = i32::from_be_bytes(*prefix);
        match usize::try_from(length) {
            Ok(bytes) if u64_of(bytes) <= self.limit.0 => Ok(Some(bytes)),
            _ => Err(FrameError::Length { length, limit: self.limit.0 }),
        }
    }

    /// Receives into the spare capacity: without waiting as long as there is something and it is
    /// this connection's turn, by the runtime otherwise.
    async fn receive(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        if self.receives_now != 0 {
            self.receives_now -= 1;
            match self.socket.receive_now(&mut buffer) {
                Ok(Some(received)) => return (Ok(received), buffer),
                Ok(None) => {}
                Err(error) => return (Err(error), buffer),
            }
        }
        let received = self.socket.receive(buffer).await;
        self.receives_now = RECEIVES_NOW_MAX;
        received
    }
}
