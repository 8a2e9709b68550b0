//! From a frame to the API that answers it.
//!
//! A request that can't be understood ends its connection with a named reason, as in Kafka: there
//! is no telling where the next one would begin. ApiVersions alone is answered in any version.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;

use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use crate::broker::api;
use crate::broker::node::Node;
use crate::shard::{Answer, ConnectionInfo, Reply, Service};
use crate::units::u64_of;
use crate::wire::control::{self, Request, TransactionRequest};
use crate::wire::error::WireError;
use crate::wire::fetch::FetchRequest;
use crate::wire::frame::{self, CONTROL_BYTES_AT_ONCE, RequestHeader};
use crate::wire::guard::REQUEST_ELEMENTS_MAX;
use crate::wire::versions::{self, api as key};

impl Service for Node {
    fn is_pipelined(&self, frame: &[u8]) -> bool {
        matches!(frame::peek(frame), Some((key::PRODUCE, _)))
    }

    fn call(self: &Rc<Self>, frame: BytesMut, connection: &ConnectionInfo) -> Reply {
        let bytes = u64_of(frame.len());
        let (header, body) = match frame::split(frame) {
            Ok(split) => split,
            Err(error) => return close(None, &error),
        };
        if let Err(error) = versions::check(header.api_key, header.version) {
            return unsupported(&header, &error);
        }
        match header.api_key {
            key::PRODUCE => {
                let throttle_ms = self.produced(&header, bytes, connection);
                api::produce::answer(self, (header, throttle_ms), body)
            }
            key::FETCH => match FetchRequest::decode(body, header.version) {
                Ok(request) => {
                    let node = self.clone();
                    let connection = connection.clone();
                    Reply::Later(Box::pin(api::fetch::answer(node, (header, connection), request)))
                }
                Err(error) => close(Some(&header), &error),
            },
            _ if body.len() > CONTROL_BYTES_AT_ONCE => {
                let (node, peer) = (self.clone(), connection.peer.ip());
                Reply::Later(Box::pin(answer_large(node, (header, peer), body)))
            }
            _ => match control::decode(&header, body) {
                Ok(request) => {
                    let node = self.clone();
                    let peer = connection.peer.ip();
                    Reply::Later(Box::pin(answer(node, (header, peer), request)))
                }
                Err(error) => close(Some(&header), &error),
            },
        }
    }

    fn turned_away(&self, peer: SocketAddr, reason: &str) {
        self.complain(|| format!("{peer}: connection closed: {reason}"));
    }
}

/// Ends the connection of a client that can't be answered.
fn close(header: Option<&RequestHeader>, error: &WireError) -> Reply {
    Reply::Ready(closing(header, error))
}

fn closing(header: Option<&RequestHeader>, error: &WireError) -> Answer {
    let request = header.map_or_else(String::new, |it| {
        format!("request of API {} version {}: ", it.api_key, it.version)
    });
    Answer::Close(format!("{request}{error}"))
}

fn unsupported(header: &RequestHeader, error: &WireError) -> Reply {
    if header.api_key == key::API_VERSIONS {
        return Reply::Ready(sent(control::api_versions_unsupported(header.correlation_id)));
    }
    close(None, error)
}

fn sent(frame: Result<Bytes, WireError>) -> Answer {
    match frame {
        Ok(frame) => Answer::bytes(frame),
        Err(error) => Answer::Close(error.to_string()),
    }
}

/// Large requests come one after the other: one is decoded at a time, and one is served that has
/// more array elements than others may have. What is decoded and not answered is bounded by that;
/// the frames themselves are by the shard's budget.
async fn answer_large(
    node: Rc<Node>,
    (header, peer): (RequestHeader, IpAddr),
    body: BytesMut,
) -> Answer {
    let turn = node.large_requests.acquire().await.expect("the semaphore is never closed");
    let (header, decoded) = decode_aside(header, body).await;
    let (request, elements) = match decoded {
        Ok(decoded) => decoded,
        Err(error) => return closing(Some(&header), &error),
    };
    let kept = (elements > REQUEST_ELEMENTS_MAX).then_some(turn);
    let answer = answer(node.clone(), (header, peer), request).await;
    drop(kept);
    answer
}

type Decoded = (RequestHeader, Result<(Request, u64), WireError>);

/// Decodes on a thread of its own, so that the shard serves others meanwhile.
async fn decode_aside(header: RequestHeader, body: BytesMut) -> Decoded {
    let (give, given) = mpsc::channel::<(RequestHeader, BytesMut)>();
    let (tell, told) = oneshot::channel();
    let work = move || {
        let Ok((header, body)) = given.recv() else { return };
        let decoded = control::decode_counted(&header, body);
        // Nobody listens when the server has stopped.
        let _ = tell.send((header, decoded));
    };
    let thread = std::thread::Builder::new().name("decode".to_owned()).spawn(work);
    match thread {
        Ok(_) => {
            give.send((header, body)).expect("the thread waits for it");
            told.await.expect("the thread answers")
        }
        Err(error) => {
            tracing::warn!(%error, "no thread for a large request: its shard decodes it");
            let decoded = control::decode_counted(&header, body);
            (header, decoded)
        }
    }
}

async fn answer(
    node: Rc<Node>,
    (header, peer): (RequestHeader, IpAddr),
    request: Request,
) -> Answer {
    let version = header.version;
    let node = &node;
    sent(match request {
        Request::ApiVersions(request) => {
            let image = node.image();
            control::encode(&header, api::api_versions::answer(&image, &request, version))
        }
        Request::Metadata(request) => {
            control::encode(&header, api::metadata::answer(node, request, version).await)
        }
        Request::ListOffsets(request) => {
            control::encode(&header, api::list_offsets::answer(node, request, version).await)
        }
        Request::OffsetForLeaderEpoch(request) => {
            control::encode(&header, api::offset_for_leader_epoch::answer(node, request).await)
        }
        Request::CreateTopics(request) => {
            control::encode(&header, api::create_topics::answer(node, request).await)
        }
        Request::DeleteTopics(request) => {
            control::encode(&header, api::delete_topics::answer(node, request, version).await)
        }
        Request::DescribeConfigs(request) => {
            let answer = api::describe_configs::answer(node, request).await;
            answer.and_then(|answer| control::encode(&header, answer))
        }
        Request::DescribeCluster(request) => {
            control::encode(&header, api::describe_cluster::answer(&node.shared, &request))
        }
        Request::FindCoordinator(request) => {
            control::encode(&header, api::find_coordinator::answer(node, request, version).await)
        }
        Request::InitProducerId(request) => {
            control::encode(&header, api::init_producer_id::answer(node, request, version).await)
        }
        Request::Admin(request) => api::admin::answer(node, &header, request).await,
        Request::Transactions(request) => transactions(node, &header, request).await,
        request => answer_group(node, (&header, peer), request).await,
    })
}

async fn transactions(
    node: &Rc<Node>,
    header: &RequestHeader,
    request: TransactionRequest,
) -> Result<Bytes, WireError> {
    let version = header.version;
    match request {
        TransactionRequest::AddPartitions(request) => {
            let answer = api::add_partitions_to_txn::answer(node, request, version).await;
            control::encode(header, answer)
        }
        TransactionRequest::AddOffsets(request) => {
            let answer = api::add_offsets_to_txn::answer(node, request, version).await;
            control::encode(header, answer)
        }
        TransactionRequest::End(request) => {
            control::encode(header, api::end_txn::answer(node, request, version).await)
        }
        TransactionRequest::OffsetCommit(request) => {
            let answer = api::txn_offset_commit::answer(node, request, version).await;
            control::encode(header, answer)
        }
        TransactionRequest::WriteMarkers(request) => {
            control::encode(header, api::write_txn_markers::answer(node, request).await)
        }
        TransactionRequest::Describe(request) => {
            control::encode(header, api::describe_transactions::answer(node, request).await)
        }
        TransactionRequest::List(request) => {
            control::encode(header, api::list_transactions::answer(node, request).await)
        }
        TransactionRequest::DescribeProducers(request) => {
            control::encode(header, api::describe_producers::answer(node, &request).await)
        }
    }
}

/// The APIs of groups.
async fn answer_group(
    node: &Node,
    (header, peer): (&RequestHeader, IpAddr),
    request: Request,
) -> Result<Bytes, WireError> {
    let version = header.version;
    match request {
        Request::OffsetCommit(request) => {
            control::encode(header, api::offset_commit::answer(node, request, version).await)
        }
        Request::OffsetFetch(request) => {
            control::encode(header, api::offset_fetch::answer(node, request, version).await)
        }
        Request::JoinGroup(request) => {
            let client = api::client(header.client_id.as_ref(), peer);
            let answer = api::join_group::answer(node, request, (version, client)).await;
            control::encode(header, answer)
        }
        Request::Heartbeat(request) => {
            control::encode(header, api::heartbeat::answer(node, request).await)
        }
        Request::LeaveGroup(request) => {
            control::encode(header, api::leave_group::answer(node, request, version).await)
        }
        Request::SyncGroup(request) => {
            control::encode(header, api::sync_group::answer(node, request, version).await)
        }
        Request::DescribeGroups(request) => {
            control::encode(header, api::describe_groups::answer(node, request, version).await)
        }
        Request::ListGroups(request) => {
            control::encode(header, api::list_groups::answer(node, request).await)
        }
        Request::DeleteGroups(request) => {
            control::encode(header, api::delete_groups::answer(node, request).await)
        }
        Request::OffsetDelete(request) => {
            control::encode(header, api::offset_delete::answer(node, request).await)
        }
        Request::ConsumerGroupHeartbeat(request) => {
            let client = api::client(header.client_id.as_ref(), peer);
            let context = (version, client);
            let answer = api::consumer_group_heartbeat::answer(node, request, context).await;
            control::encode(header, answer)
        }
        Request::ConsumerGroupDescribe(request) => {
            control::encode(header, api::consumer_group_describe::answer(node, request).await)
        }
        _ => unreachable!("the other requests are answered above"),
    }
}
