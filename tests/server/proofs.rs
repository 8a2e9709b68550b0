//! In the device tier nothing shows a record before its sync: the fault hook holds the sync back.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use kafka_protocol::messages::ProduceRequest;
use uringlog::disk::faults::FaultHook;

use crate::support::batch::{self, of};
use crate::support::client::{Client, PRODUCE, only, produce_request};
use crate::support::wait;

/// How long something that must not come is waited for.
const LONG_ENOUGH: Duration = Duration::from_millis(300);
