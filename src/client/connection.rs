//! One connection: requests out in order, answers back in order.
//!
//! Two tasks serve it. One writes what comes through a bounded channel and notes what awaits an
//! answer; the other reads answers and hands each to whoever awaits it. A broker answers a
//! connection's requests in their order, so an answer with another correlation id ends it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::protocol::{Decodable, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::apis;
use super::error::ClientError;
use crate::units::ByteCount;
use crate::wire::StrBytes;
use crate::wire::control::{self, Answer, Ask};
use crate::wire::error::WireError;
use crate::wire::frame::{FRAME_BYTES_MAX, RequestHeader, SIZE_BYTES, frame_size};
use crate::wire::guard;
use crate::wire::read::Reader;
use crate::wire::versions::api;

/// Highest version of Produce and Fetch that this client sends: the newer ones name topics by id.
const BY_NAME_MAX: i16 = 12;

/// How a connection is made.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// As the client calls itself in every request.
    pub client_id: String,
    /// Requests that may be under way at once; more wait in [`Connection::send`].
    pub in_flight_max: usize,
    /// How long the connection and its first request may take.
    pub connect_timeout: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        ConnectionOptions {
            client_id: "uringlog".to_owned(),
            in_flight_max: 64,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// A request's frame, ready to be sent.
#[derive(Debug)]
pub struct Encoded {
    /// The header that stands in it.
    pub header: RequestHeader,
    /// The frame, size prefix included, in up to three pieces.
    pub parts: [Bytes; 3],
    /// Whether the broker will answer; it doesn't with acks=0.
    pub is_answered: bool,
}

impl Encoded {
    /// A frame in one piece that will be answered.
    pub fn whole(header: RequestHeader, frame: Bytes) -> Encoded {
        Encoded { header, parts: [frame, Bytes::new(), Bytes::new()], is_answered: true }
    }
}

/// A connection to one broker. Cheap to clone; closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: String,
    client_id: StrBytes,
    outgoing: mpsc::Sender<Outgoing>,
    permits: Arc<Semaphore>,
    next_id: AtomicI32,
    /// Highest common version of each API.
    versions: HashMap<i16, i16>,
    /// What the broker said: API, lowest and highest version.
    theirs: Vec<(i16, i16, i16)>,
    ending: Ending,
}

/// Why the connection ended, once it has.
type Ending = Arc<OnceLock<String>>;

#[derive(Debug)]
struct Outgoing {
    parts: [Bytes; 3],
    waiting: Option<Waiting>,
}

/// A request that has been sent and not answered.
#[derive(Debug)]
struct Waiting {
    correlation_id: i32,
    reply: oneshot::Sender<BytesMut>,
    _permit: OwnedSemaphorePermit,
}

/// An answer that is still to come.
#[derive(Debug)]
pub struct Answering {
    connection: Connection,
    reply: Option<oneshot::Receiver<BytesMut>>,
    has_tags: bool,
}

impl Connection {
    /// Connects to `address` (host:port) and asks which versions the broker speaks. Has to be
    /// called on a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::Timeout`], [`ClientError::Lost`],
    /// [`ClientError::Wire`].
    pub async fn open(
        address: &str,
        options: &ConnectionOptions,
    ) -> Result<Connection, ClientError> {
        let limit = options.connect_timeout;
        match tokio::time::timeout(limit, Connection::open_unlimited(address, options)).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::Timeout {
                what: format!("connecting to {address}"),
                after: limit,
                last: String::new(),
            }),
        }
    }

    async fn open_unlimited(
        address: &str,
        options: &ConnectionOptions,
    ) -> Result<Connection, ClientError> {
        let failed = |source| ClientError::Connect { address: address.to_owned(), source };
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut inner = Inner::start(stream, address, options);
        // Version 0 is answered by every broker, without tagged fields to be wary of.
        inner.versions = HashMap::from([(api::API_VERSIONS, 0)]);
        let first = Connection { inner: Arc::new(inner) };
        let answer = first.call(&ApiVersionsRequest::default()).await?;
        ClientError::check(answer.error_code, || format!("asking {address} for its versions"))?;
        let ranges = answer.api_keys.iter();
        let theirs = ranges.map(|one| (one.api_key, one.min_version, one.max_version));
        let mut inner = Arc::into_inner(first.inner).expect("the call above has ended");
        inner.theirs = theirs.collect();
        inner.versions = common_versions(inner.theirs.iter().copied());
        Ok(Connection { inner: Arc::new(inner) })
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.inner.address
    }

    /// The APIs that the broker speaks, as it says: number, lowest and highest version.
    pub fn spoken(&self) -> &[(i16, i16, i16)] {
        &self.inner.theirs
    }

    /// Whether client and broker have a version of the API in common.
    pub fn speaks(&self, api_key: i16) -> bool {
        self.inner.versions.contains_key(&api_key)
    }

    /// Whether it has ended; what is sent from now on fails.
    pub fn is_closed(&self) -> bool {
        self.inner.ending.get().is_some() || self.inner.outgoing.is_closed()
    }

    /// A header with a new correlation id, in the highest version that both sides know.
    ///
    /// # Errors
    /// [`ClientError::Unsupported`].
    pub fn header(&self, api_key: i16) -> Result<RequestHeader, ClientError> {
        let Some(&version) = self.inner.versions.get(&api_key) else {
            let theirs = self.inner.theirs.iter().find(|one| one.0 == api_key);
            let theirs = theirs.map(|(_, min, max)| (*min, *max));
            return Err(apis::unsupported(&self.inner.address, api_key, theirs));
        };
        let correlation_id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let client_id = Some(self.inner.client_id.clone());
        Ok(RequestHeader { api_key, version, correlation_id, client_id })
    }

    /// Sends a frame once fewer than the allowed number of requests are under way, without waiting
    /// for its answer. Frames leave in the order of these calls.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub async fn send(&self, request: Encoded) -> Result<Answering, ClientError> {
        let permits = Arc::clone(&self.inner.permits);
        let permit = permits.acquire_owned().await.map_err(|_| self.lost())?;
        let (reply, receiver) = oneshot::channel();
        let correlation_id = request.header.correlation_id;
        let waiting = Waiting { correlation_id, reply, _permit: permit };
        let waiting = request.is_answered.then_some(waiting);
        let outgoing = Outgoing { parts: request.parts, waiting };
        self.inner.outgoing.send(outgoing).await.map_err(|_| self.lost())?;
        let range = apis::range(request.header.api_key);
        Ok(Answering {
            connection: self.clone(),
            reply: request.is_answered.then_some(receiver),
            has_tags: range.is_some_and(|api| api.answer_header_has_tags(request.header.version)),
        })
    }

    /// Sends a control request and waits for its answer.
    ///
    /// # Errors
    /// [`ClientError::Unsupported`], [`ClientError::Encode`], [`ClientError::Lost`],
    /// [`ClientError::Wire`].
    pub async fn call<Q: Ask>(&self, request: &Q) -> Result<Q::Answer, ClientError> {
        let header = self.header(Q::Answer::API)?;
        self.call_with(header, request).await
    }

    pub(super) async fn call_with<Q: Ask>(
        &self,
        header: RequestHeader,
        request: &Q,
    ) -> Result<Q::Answer, ClientError> {
        let version = header.version;
        let frame = control::encode_request(&header, request).map_err(ClientError::Encode)?;
        let body = self.send(Encoded::whole(header, frame)).await?.body().await?;
        control::decode_answer(version, body).map_err(|source| self.wrong(source))
    }

    /// Like [`Connection::call`] for the APIs that the client has a table of its own for: those
    /// of groups, and of administration.
    ///
    /// # Errors
    /// As [`Connection::call`].
    ///
    /// # Panics
    /// For an API that isn't in that table.
    pub async fn ask<Q: Request>(&self, request: &Q) -> Result<Q::Response, ClientError> {
        let header = self.header(Q::KEY)?;
        self.ask_with(header, request).await
    }

    pub(super) async fn ask_with<Q: Request>(
        &self,
        header: RequestHeader,
        request: &Q,
    ) -> Result<Q::Response, ClientError> {
        let (api_key, version) = (header.api_key, header.version);
        let called = apis::find(api_key).expect("the client asks for what is in its table");
        let malformed = |text| WireError::Malformed { api_key, version, text };
        let encoding = |text| ClientError::Encode(malformed(text));
        let size = request.compute_size(version).map_err(|why| encoding(why.to_string()))?;
        let range = apis::range(api_key).expect("what is called is advertised");
        let mut writer = header.start(&range, size);
        writer.message(request, version).map_err(encoding)?;
        let frame = writer.finish(ByteCount(0)).map_err(ClientError::Encode)?.freeze();
        let body = self.send(Encoded::whole(header, frame)).await?.body().await?;
        let shape = (version, range.is_flexible(version));
        guard::check_fields(called.answer, shape, &body).map_err(|why| self.wrong(why))?;
        let decoded = Q::Response::decode(&mut body.freeze(), version);
        decoded.map_err(|why| self.wrong(malformed(why.to_string())))
    }

    pub(super) fn wrong(&self, source: WireError) -> ClientError {
        ClientError::Wire { address: self.inner.address.clone(), source }
    }

    fn lost(&self) -> ClientError {
        let why = self.inner.ending.get().map_or("it was closed", String::as_str).to_owned();
        ClientError::Lost { address: self.inner.address.clone(), why }
    }
}

impl Answering {
    /// Waits for the answer's body; empty at once when the request has none.
    ///
    /// # Errors
    /// [`ClientError::Lost`], [`ClientError::Wire`].
    pub async fn body(self) -> Result<BytesMut, ClientError> {
        let Some(reply) = self.reply else { return Ok(BytesMut::new()) };
        let frame = reply.await.map_err(|_| self.connection.lost())?;
        let mut reader = Reader::new(frame, self.has_tags);
        reader.skip_tags("header tags").map_err(|source| self.connection.wrong(source))?;
        Ok(reader.into_rest())
    }

    /// The connection that it will come on.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Inner {
    fn start(stream: TcpStream, address: &str, options: &ConnectionOptions) -> Inner {
        let (read, write) = stream.into_split();
        let (outgoing, requests) = mpsc::channel(options.in_flight_max.max(1));
        // What awaits an answer is bounded by the permits that it holds.
        let (sent, waiting) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(options.in_flight_max.max(1)));
        let ending = Ending::default();
        tokio::spawn(write_requests(write, requests, (sent, Arc::clone(&ending))));
        let closing = (Arc::clone(&permits), Arc::clone(&ending));
        tokio::spawn(read_answers(read, waiting, closing));
        Inner {
            address: address.to_owned(),
            client_id: StrBytes::from_string(options.client_id.clone()),
            outgoing,
            permits,
            next_id: AtomicI32::new(1),
            versions: HashMap::new(),
            theirs: Vec::new(),
            ending,
        }
    }
}

/// Highest version of each API that both sides know.
fn common_versions(theirs: impl Iterator<Item = (i16, i16, i16)>) -> HashMap<i16, i16> {
    let mut common = HashMap::new();
    for (key, min, max) in theirs {
        let Some(ours) = apis::range(key) else { continue };
        let by_name = [api::PRODUCE, api::FETCH].contains(&key);
        let ours_max = if by_name { ours.max.min(BY_NAME_MAX) } else { ours.max };
        let version = ours_max.min(max);
        if version >= ours.served_min.max(min) {
            common.insert(key, version);
        }
    }
    common
}

async fn write_requests(
    mut stream: OwnedWriteHalf,
    mut requests: mpsc::Receiver<Outgoing>,
    (sent, ending): (mpsc::UnboundedSender<Waiting>, Ending),
) {
    while let Some(Outgoing { parts: [head, middle, tail], waiting }) = requests.recv().await {
        if waiting.is_some_and(|waiting| sent.send(waiting).is_err()) {
            return;
        }
        let mut frame = head.chain(middle).chain(tail);
        if let Err(error) = stream.write_all_buf(&mut frame).await {
            // The first reason stands.
            let _ = ending.set(error.to_string());
            return;
        }
    }
}

async fn read_answers(
    mut stream: OwnedReadHalf,
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
    (permits, ending): (Arc<Semaphore>, Ending),
) {
    let why = loop {
        let step = match next_event(&mut stream, &mut waiting).await {
            Event::Waiting(one) => read_answer(&mut stream, one).await,
            Event::Dropped => Err("it was closed".to_owned()),
            Event::Idle(Ok(0)) => Err("the broker closed it".to_owned()),
            // What is awaited is noted before it is sent.
            Event::Idle(Ok(_)) if waiting.is_empty() => {
                Err("an answer came that nobody asked for".to_owned())
            }
            Event::Idle(Ok(_)) => Ok(()),
            Event::Idle(Err(error)) => Err(error.to_string()),
        };
        if let Err(why) = step {
            break why;
        }
    };
    let _ = ending.set(why);
    permits.close();
}

/// What the reading task acts upon.
enum Event {
    /// An answer is due.
    Waiting(Waiting),
    /// The last clone of the connection is gone.
    Dropped,
    /// Nothing is due, and the stream has so many bytes (none at its end).
    Idle(std::io::Result<usize>),
}

/// Waits for an answer to be due, or, as long as none is, for the broker to close the connection:
/// that should be known before the next request is sent.
async fn next_event(
    stream: &mut OwnedReadHalf,
    waiting: &mut mpsc::UnboundedReceiver<Waiting>,
) -> Event {
    let mut byte = [0];
    let is_idle = waiting.is_empty();
    tokio::select! {
        biased;
        one = waiting.recv() => one.map_or(Event::Dropped, Event::Waiting),
        peeked = stream.peek(&mut byte), if is_idle => Event::Idle(peeked),
    }
}

async fn read_answer(
    stream: &mut (impl AsyncRead + Unpin),
    waiting: Waiting,
) -> Result<(), String> {
    let mut frame = read_frame(stream).await?;
    let correlation_id = frame.get_i32();
    if correlation_id != waiting.correlation_id {
        let expected = waiting.correlation_id;
        return Err(format!("an answer to request {correlation_id} came, not to {expected}"));
    }
    // Whoever no longer waits has given up.
    let _ = waiting.reply.send(frame);
    Ok(())
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Result<BytesMut, String> {
    let mut prefix = [0; SIZE_BYTES];
    let ended = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the broker closed it".to_owned(),
        _ => error.to_string(),
    };
    stream.read_exact(&mut prefix).await.map_err(ended)?;
    let size = frame_size(prefix, FRAME_BYTES_MAX).map_err(|error| error.to_string())?;
    let mut frame = BytesMut::with_capacity(size);
    while frame.len() < size {
        let left = size - frame.len();
        let read = stream.read_buf(&mut (&mut frame).limit(left)).await.map_err(ended)?;
        if read == 0 {
            return Err("the broker closed it in the middle of an answer".to_owned());
        }
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_taken() {
        let theirs = [(0, 0, 13), (1, 4, 11), (3, 14, 20), (2, 1, 99), (999, 0, 1)];
        let common = common_versions(theirs.into_iter());
        assert_eq!(common, HashMap::from([(0, 12), (1, 11), (2, 11)]));
    }

    #[test]
    fn answers_have_a_limit() {
        let read = |bytes: &'static [u8]| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("plain");
            runtime.block_on(async { read_frame(&mut &bytes[..]).await })
        };
        assert_eq!(read(&[0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]).expect("whole").len(), 8);
        assert!(read(&[0x7f, 0xff, 0xff, 0xff]).expect_err("too large").contains("allowed"));
        assert!(read(&[0xff, 0xff, 0xff, 0xff]).expect_err("negative").contains("-1 bytes"));
        assert!(read(&[0, 0, 0, 8, 1]).expect_err("cut").contains("middle"));
    }
}
