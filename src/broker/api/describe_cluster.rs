//! DescribeCluster (60), versions 0 to 2: the shards as brokers, the first one as controller.
//!
//! Version 1 asks for brokers or controllers; the listener for controllers is not this one.

use kafka_protocol::messages::describe_cluster_request::DescribeClusterRequest;
use kafka_protocol::messages::describe_cluster_response::{
    DescribeClusterBroker, DescribeClusterResponse,
};

use crate::broker::api::{
    AUTHORIZED_OPERATIONS_NONE, CLUSTER_OPERATIONS, broker_id, operations, text,
};
use crate::broker::node::Shared;
use crate::wire::error::ErrorCode;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// Answers a request.
pub fn answer(shared: &Shared, request: &DescribeClusterRequest) -> DescribeClusterResponse {
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            let message = "brokers listen here, controllers have no listener: endpoint type 1";
            return refuse(ErrorCode::MismatchedEndpointType, message);
        }
        _ => {
            let message = "an endpoint is a broker's (1) or a controller's (2)";
            return refuse(ErrorCode::UnsupportedEndpointType, message);
        }
    }
    let brokers = shared.brokers.iter().map(|(id, host, port)| {
        DescribeClusterBroker::default()
            .with_broker_id(broker_id(id))
            .with_host(text(host))
            .with_port(i32::from(port))
    });
    DescribeClusterResponse::default()
        .with_endpoint_type(BROKERS)
        .with_cluster_id(text(&shared.cluster_id))
        .with_controller_id(broker_id(shared.node))
        .with_brokers(brokers.collect())
        .with_cluster_authorized_operations(operations(
            request.include_cluster_authorized_operations,
            CLUSTER_OPERATIONS,
        ))
}

fn refuse(error: ErrorCode, message: &str) -> DescribeClusterResponse {
    DescribeClusterResponse::default()
        .with_error_code(error.to_wire())
        .with_error_message(Some(text(message)))
        .with_cluster_authorized_operations(AUTHORIZED_OPERATIONS_NONE)
}
