//! ListPartitionReassignments (46), version 0: nothing is ever moving.

use kafka_protocol::messages::ListPartitionReassignmentsResponse;

/// Answers a request, whatever it asks for.
pub fn answer() -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse::default().with_error_message(None)
}
