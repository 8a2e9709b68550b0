//! The ports that clients come to: one for each shard.

use std::net::{SocketAddr, TcpListener};

use crate::broker::node::Brokers;
use crate::broker::server::{ServerOptions, StartError};

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
        let listener = TcpListener::bind(address);
        listeners.push(listener.map_err(|error| StartError::Listen { address, error })?);
    }
    Ok(listeners)
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
