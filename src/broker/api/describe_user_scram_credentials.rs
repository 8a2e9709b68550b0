//! DescribeUserScramCredentials (50), version 0: which users have which mechanisms, never their
//! keys. Null or no names ask for all users.

use std::collections::BTreeMap;

use kafka_protocol::messages::DescribeUserScramCredentialsRequest;
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResponse, DescribeUserScramCredentialsResult,
};

use crate::broker::api::text;
use crate::broker::node::Node;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    node.served().await;
    let image = node.image();
    let credentials = image.settings().credentials();
    // How often each user is named.
    let mut users: BTreeMap<String, u32> = BTreeMap::new();
    for user in request.users.iter().flatten() {
        *users.entry(user.name.to_string()).or_default() += 1;
    }
    if users.is_empty() {
        users.extend(credentials.keys().map(|(user, _)| (user.clone(), 1)));
    }
    let results = users.into_iter().map(|(user, times)| {
        let result = DescribeUserScramCredentialsResult::default().with_user(text(&user));
        if 1 < times {
            let message = format!(
                "Cannot describe SCRAM credentials for the same user twice in a single request: \
                 {user}"
            );
            let error = ErrorCode::DuplicateResource.to_wire();
            return result.with_error_code(error).with_error_message(Some(text(&message)));
        }
        let own = credentials.iter().filter(|((name, _), _)| *name == user);
        let infos = own.map(|((_, mechanism), credential)| {
            CredentialInfo::default()
                .with_mechanism(*mechanism)
                .with_iterations(credential.iterations)
        });
        let infos: Vec<CredentialInfo> = infos.collect();
        if infos.is_empty() {
            let message =
                format!("Attempt to describe a user credential that does not exist: {user}");
            let error = ErrorCode::ResourceNotFound.to_wire();
            return result.with_error_code(error).with_error_message(Some(text(&message)));
        }
        result.with_error_message(None).with_credential_infos(infos)
    });
    DescribeUserScramCredentialsResponse::default()
        .with_error_message(Some(text("")))
        .with_results(results.collect())
}
