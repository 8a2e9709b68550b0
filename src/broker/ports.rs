//! The ports that clients come to: one for each shard.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use crate::broker::node::Brokers;
use crate::broker::server::{ServerOptions, StartError};

/// How long a port that is in use is waited for: the kernel closes the sockets of a killed server's
/// rings some time after the process is gone, and whoever starts it again would fail.
const WAIT_TURNS_MAX: u32 = 50;
const WAIT_TURN: Duration = Duration::from_millis(100);

/// The listeners of all shards, and what clients are told about them.
pub(super) struct Ports {
    /// One for each shard.
    pub listeners: Vec<TcpListener>,
    /// As clients see them.
    pub brokers: Brokers,
}

impl Ports {
    /// Takes the ports. Nobody is accepted yet.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub fn listen(options: &ServerOptions) -> Result<Ports, StartError> {
        let listeners = listeners(options)?;
        let brokers = brokers(options, &addresses(&listeners, options.listen)?);
        Ok(Ports { listeners, brokers })
    }
}

fn addresses(listeners: &[TcpListener], wanted: SocketAddr) -> Result<Vec<SocketAddr>, StartError> {
    let address = |listener: &TcpListener| {
        listener.local_addr().map_err(|error| StartError::Listen { address: wanted, error })
    };
    listeners.iter().map(address).collect()
}

/// Shard i listens on port + i; port 0 lets the system choose one for each.
fn listeners(options: &ServerOptions) -> Result<Vec<TcpListener>, StartError> {
    let mut listeners = Vec::with_capacity(options.shards);
    for shard in 0..options.shards {
        let mut address = options.listen;
        if address.port() != 0 {
            let step = u16::try_from(shard).expect("shards are at most SHARDS_MAX");
            address.set_port(address.port() + step);
        }
        let listener = bind(address, |turn| {
            if turn == 0 {
                tracing::info!("{address} is in use; a server that was killed may give it up yet");
            }
            thread::sleep(WAIT_TURN);
        });
        listeners.push(listener.map_err(|error| StartError::Listen { address, error })?);
    }
    Ok(listeners)
}

fn bind(address: SocketAddr, mut wait: impl FnMut(u32)) -> io::Result<TcpListener> {
    for turn in 0..WAIT_TURNS_MAX {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => wait(turn),
            bound => return bound,
        }
    }
    TcpListener::bind(address)
}

fn brokers(options: &ServerOptions, addresses: &[SocketAddr]) -> Brokers {
    let node = options.config.node_id;
    match &options.advertise {
        Some((host, port)) => {
            let steps = 0..u16::try_from(addresses.len()).expect("shards are at most SHARDS_MAX");
            let ports = steps.map(|step| port + step).collect();
            Brokers { node, host: host.clone(), ports }
        }
        None => {
            let ports = addresses.iter().map(SocketAddr::port).collect();
            Brokers { node, host: own_host(options.listen), ports }
        }
    }
}

/// What clients are told when nothing is advertised: the address that we listen on, or the host's
/// name when that is every address.
fn own_host(listen: SocketAddr) -> String {
    if listen.ip().is_unspecified() {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        tracing::info!("clients are told to connect to {name}; --advertise names another host");
        return name;
    }
    listen.ip().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_comes_free_while_it_is_waited_for_is_taken() {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = other.local_addr().expect("bound");
        let (mut other, mut turns) = (Some(other), 0);
        let bound = bind(address, |turn| {
            turns = turn + 1;
            if turn == 2 {
                other = None;
            }
        });
        assert_eq!(bound.and_then(|it| it.local_addr()).expect("free by then"), address);
        assert_eq!(turns, 3);
    }

    #[test]
    fn a_port_that_stays_in_use_is_given_up() {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut turns = 0;
        let refused = bind(other.local_addr().expect("bound"), |_| turns += 1);
        assert_eq!(refused.expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        assert_eq!(turns, WAIT_TURNS_MAX);
    }
}
