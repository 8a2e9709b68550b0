//! ApiVersions (18), versions 0 to 4. Any other version is answered with version 0 and error 35,
//! from which the client takes its next try (KIP-511); 4.4 clients begin with 5.
//!
//! - A client that names its software wrongly (version 3 on) gets error 42.
//! - The features are those that this broker knows of Kafka's. `transaction.version` 2 makes Java
//!   clients speak KIP-890's protocol (Produce 12, EndTxn 5), `group.version` 1 lets clients use
//!   the consumer protocol.

use kafka_protocol::messages::api_versions_request::ApiVersionsRequest;
use kafka_protocol::messages::api_versions_response::{
    ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};

use crate::broker::api::text;
use crate::broker::controller::{
    GROUP_VERSION, GROUP_VERSION_LEVEL, METADATA_VERSION, METADATA_VERSION_LEVEL,
    TRANSACTION_VERSION, TRANSACTION_VERSION_LEVEL,
};
use crate::broker::image::Image;
use crate::wire::control;
use crate::wire::error::ErrorCode;

/// First version in which the client names its software.
const SOFTWARE_FROM: i16 = 3;

/// Lowest `metadata.version` that a Kafka 4 broker names.
const METADATA_VERSION_MIN: i16 = 7;

/// Features with their lowest and highest level.
const SUPPORTED: [(&str, i16, i16); 3] = [
    (METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LEVEL),
    (TRANSACTION_VERSION, 0, TRANSACTION_VERSION_LEVEL),
    (GROUP_VERSION, 0, GROUP_VERSION_LEVEL),
];

/// Answers a request.
pub fn answer(image: &Image, request: &ApiVersionsRequest, version: i16) -> ApiVersionsResponse {
    let software = [&request.client_software_name, &request.client_software_version];
    let is_named = software.iter().all(|name| control::is_software_name(name.as_str()));
    if version >= SOFTWARE_FROM && !is_named {
        let error = ErrorCode::InvalidRequest.to_wire();
        return ApiVersionsResponse::default().with_error_code(error);
    }
    let supported = SUPPORTED.map(|(name, min, max)| {
        SupportedFeatureKey::default()
            .with_name(text(name))
            .with_min_version(min)
            .with_max_version(max)
    });
    let level = |(name, _, _)| Some((name, image.feature(name).filter(|level| *level > 0)?));
    let finalized = SUPPORTED.into_iter().filter_map(level).map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(text(name))
            .with_min_version_level(level)
            .with_max_version_level(level)
    });
    control::api_versions()
        .with_supported_features(supported.to_vec())
        .with_finalized_features_epoch(i64::try_from(image.version).unwrap_or(i64::MAX))
        .with_finalized_features(finalized.collect())
}

/// Features with the levels that this broker understands.
pub fn supported() -> Vec<(&'static str, i16, i16)> {
    SUPPORTED.to_vec()
}
