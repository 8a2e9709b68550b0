//! The client's thread: keeps a number of frames under way on each connection.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::Load;
use super::server::ANSWER_BYTES;
use crate::experiments::measure::{self, u64_of, usize_of};
use crate::experiments::{Doing, Failure};

/// What the client is told.
pub struct Plan {
    pub address: SocketAddr,
    pub load: Load,
    pub core: usize,
    pub run: Duration,
    pub bytes_max: u64,
}

/// What the client did; `cpu` is that of its own thread.
pub struct Sent {
    pub batches: u64,
    pub cpu: Duration,
    pub wall: Duration,
}

/// Connects, tells so, waits for the word, and sends until time or bytes are used up.
pub fn drive(
    plan: &Plan,
    connected: &Sender<()>,
    when_told: &Receiver<()>,
) -> Result<Sent, Failure> {
    measure::pin(plan.core)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.doing("runtime")?, async {
        let mut streams = Vec::new();
        for _ in 0..plan.load.connections {
            let stream = TcpStream::connect(plan.address).await.doing("connect")?;
            stream.set_nodelay(true).doing("set TCP_NODELAY")?;
            streams.push(stream);
        }
        let left = |_| Failure::Wrong("the other side left".to_owned());
        connected.send(()).map_err(left)?;
        let told = when_told.recv();
        told.map_err(|_| Failure::Wrong("nobody gave the word".to_owned()))?;
        send_all(plan, streams).await
    })
}

async fn send_all(plan: &Plan, streams: Vec<TcpStream>) -> Result<Sent, Failure> {
    let cpu = measure::thread_cpu();
    let start = Instant::now();
    let until = start + plan.run;
    let load = plan.load;
    let share = plan.bytes_max / u64_of(load.frame_bytes * load.connections);
    let frames = Rc::new(frames(load));
    let each = |stream| {
        let frames = Rc::clone(&frames);
        tokio::task::spawn_local(keep_sending(stream, frames, load, (until, share.max(1))))
    };
    let tasks: Vec<_> = streams.into_iter().map(each).collect();
    let mut batches = 0;
    let mut open = Vec::new();
    for task in tasks {
        let outcome = task.await.map_err(|_| Failure::Wrong("a sender panicked".to_owned()))?;
        let (stream, count) = outcome.doing("send frames and receive answers")?;
        batches += count;
        open.push(stream);
    }
    let wall = start.elapsed();
    // Closing is the server's sign to stop, so nobody closes before the last answer.
    drop(open);
    Ok(Sent { batches, cpu: measure::thread_cpu() - cpu, wall })
}

/// As many frames as may be under way, one after the other.
fn frames(load: Load) -> Vec<u8> {
    let rest = u32::try_from(load.frame_bytes - size_of::<u32>()).expect("frames are below 4 GiB");
    let mut frame = rest.to_be_bytes().to_vec();
    frame.resize(load.frame_bytes, 0x5a);
    frame.repeat(load.in_flight)
}

async fn keep_sending(
    mut stream: TcpStream,
    frames: Rc<Vec<u8>>,
    load: Load,
    (until, share): (Instant, u64),
) -> std::io::Result<(TcpStream, u64)> {
    let (mut sent, mut answered) = (0, 0);
    let mut due = load.in_flight;
    let mut answers = vec![0; ANSWER_BYTES * load.in_flight];
    let mut answer_bytes = 0;
    loop {
        let may = if Instant::now() < until { usize_of(share - sent).min(due) } else { 0 };
        if may > 0 {
            stream.write_all(&frames[..may * load.frame_bytes]).await?;
            sent += u64_of(may);
        }
        if answered == sent {
            return Ok((stream, answered));
        }
        let count = stream.read(&mut answers).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answer_bytes += count;
        due = answer_bytes / ANSWER_BYTES;
        answer_bytes %= ANSWER_BYTES;
        answered += u64_of(due);
    }
}
