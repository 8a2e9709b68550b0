//! ApiVersions (18), versions 0 to 4. Any other version is answered with version 0 and error 35,
//! from which the client takes its next try (KIP-511); 4.4 clients begin with 5.
//!
//! - A client that names its software wrongly (version 3 on) gets error 42.
//! - `transaction.version` is not among the features, which keeps Java clients on the older
//!   transaction protocol.

use kafka_protocol::messages::api_versions_request::ApiVersionsRequest;
use kafka_protocol::messages::api_versions_response::{
    ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};

use crate::broker::api::text;
use crate::broker::controller::{METADATA_VERSION, METADATA_VERSION_LEVEL};
use crate::broker::image::Image;
use crate::wire::control;
use crate::wire::error::ErrorCode;

/// First version in which the client names its software.
const SOFTWARE_FROM: i16 = 3;

/// Lowest `metadata.version` that a Kafka 4 broker names.
const METADATA_VERSION_MIN: i16 = 7;

/// Answers a request.
pub fn answer(image: &Image, request: &ApiVersionsRequest, version: i16) -> ApiVersionsResponse {
    let software = [&request.client_software_name, &request.client_software_version];
    let is_named = software.iter().all(|name| control::is_software_name(name.as_str()));
    if version >= SOFTWARE_FROM && !is_named {
        let error = ErrorCode::InvalidRequest.to_wire();
        return ApiVersionsResponse::default().with_error_code(error);
    }
    let supported = supported().into_iter().map(|(name, least, most)| {
        SupportedFeatureKey::default()
            .with_name(text(name))
            .with_min_version(least)
            .with_max_version(most)
    });
    let finalized = image.feature(METADATA_VERSION).filter(|level| *level > 0).map(|level| {
        FinalizedFeatureKey::default()
            .with_name(text(METADATA_VERSION))
            .with_min_version_level(level)
            .with_max_version_level(level)
    });
    control::api_versions()
        .with_supported_features(supported.collect())
        .with_finalized_features_epoch(i64::try_from(image.version).unwrap_or(i64::MAX))
        .with_finalized_features(finalized.into_iter().collect())
}

/// Features with the levels that this broker understands.
pub fn supported() -> Vec<(&'static str, i16, i16)> {
    vec![(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LEVEL)]
}
