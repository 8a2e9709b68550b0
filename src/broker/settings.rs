//! What the metadata log says besides topics: configs of everything else, quotas, credentials.

use std::collections::BTreeMap;

use crate::broker::image::Overrides;
use crate::format::kraft::{ConfigResource, MetadataRecord};
use crate::format::kraft_users::{QuotaEntity, QuotaRecord, ScramRecord};
use crate::units::BrokerId;

/// Most brokers, groups and subscriptions that have configs of their own.
pub const RESOURCES_MAX: usize = 10_000;

/// Most entities that have quotas.
pub const QUOTAS_MAX: usize = 10_000;

/// Most credentials of users.
pub const CREDENTIALS_MAX: usize = 10_000;

/// Quotas of one entity, by Kafka's name.
pub type Quotas = BTreeMap<String, f64>;

/// A part of the image that changes rarely; the image's copies share it.
#[derive(Clone, Default, Debug)]
pub struct Settings {
    configs: BTreeMap<ConfigResource, Overrides>,
    quotas: BTreeMap<QuotaEntity, Quotas>,
    credentials: BTreeMap<(String, i8), ScramRecord>,
}

impl Settings {
    /// Configs of a broker, a group or a subscription.
    pub fn configs(&self, resource: &ConfigResource) -> Option<&Overrides> {
        self.configs.get(resource)
    }

    /// Everything but topics that has configs.
    pub fn resources(&self) -> impl Iterator<Item = &ConfigResource> {
        self.configs.keys()
    }

    /// What was set for all brokers, and for this one.
    pub fn of_brokers(&self, node: BrokerId) -> (Overrides, Overrides) {
        let of = |name: String| self.configs.get(&ConfigResource::Broker(name));
        let copy = |name| of(name).cloned().unwrap_or_default();
        (copy(String::new()), copy(node.0.to_string()))
    }

    /// All quotas, by entity.
    pub fn quotas(&self) -> &BTreeMap<QuotaEntity, Quotas> {
        &self.quotas
    }

    /// All credentials, by user and mechanism.
    pub fn credentials(&self) -> &BTreeMap<(String, i8), ScramRecord> {
        &self.credentials
    }

    /// Takes a record of the metadata log, if it is about any of this.
    pub fn apply(&mut self, record: &MetadataRecord) {
        match record {
            MetadataRecord::Config { resource, name, value } => {
                self.set_config(resource, name, value.as_deref());
            }
            MetadataRecord::ClientQuota(quota) => self.set_quota(quota),
            MetadataRecord::UserScramCredential(scram) => {
                self.credentials.insert((scram.user.clone(), scram.mechanism), scram.clone());
            }
            MetadataRecord::RemoveUserScramCredential { user, mechanism } => {
                self.credentials.remove(&(user.clone(), *mechanism));
            }
            MetadataRecord::Topic { .. }
            | MetadataRecord::Partition(_)
            | MetadataRecord::RemoveTopic { .. }
            | MetadataRecord::FeatureLevel { .. }
            | MetadataRecord::ProducerIds { .. }
            | MetadataRecord::PartitionChange(_)
            | MetadataRecord::OfBrokers { .. }
            | MetadataRecord::Begin
            | MetadataRecord::End
            | MetadataRecord::Abort
            | MetadataRecord::NoOp => {}
        }
    }

    fn set_config(&mut self, resource: &ConfigResource, name: &str, value: Option<&str>) {
        match value {
            Some(value) => {
                let configs = self.configs.entry(resource.clone()).or_default();
                configs.insert(name.to_owned(), value.to_owned());
            }
            None => {
                let Some(configs) = self.configs.get_mut(resource) else { return };
                configs.remove(name);
                if configs.is_empty() {
                    self.configs.remove(resource);
                }
            }
        }
    }

    fn set_quota(&mut self, record: &QuotaRecord) {
        match record.value {
            Some(value) => {
                let quotas = self.quotas.entry(record.entity.clone()).or_default();
                quotas.insert(record.key.clone(), value.0);
            }
            None => {
                let Some(quotas) = self.quotas.get_mut(&record.entity) else { return };
                quotas.remove(&record.key);
                if quotas.is_empty() {
                    self.quotas.remove(&record.entity);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::kraft_users::QuotaValue;

    fn config(value: Option<&str>) -> MetadataRecord {
        MetadataRecord::Config {
            resource: ConfigResource::Group("g".to_owned()),
            name: "consumer.session.timeout.ms".to_owned(),
            value: value.map(str::to_owned),
        }
    }

    fn quota(value: Option<f64>) -> MetadataRecord {
        let entity = QuotaEntity::from([("client-id".to_owned(), None)]);
        let value = value.map(QuotaValue);
        MetadataRecord::ClientQuota(QuotaRecord { entity, key: "x".to_owned(), value })
    }

    #[test]
    fn what_is_removed_leaves_nothing_behind() {
        let mut settings = Settings::default();
        settings.apply(&config(Some("50000")));
        settings.apply(&quota(Some(5.0)));
        assert_eq!(settings.resources().count(), 1);
        assert_eq!(settings.quotas().values().next().map(|it| it["x"]), Some(5.0));
        settings.apply(&config(None));
        settings.apply(&config(None));
        settings.apply(&quota(None));
        settings.apply(&quota(None));
        assert_eq!(settings.resources().count(), 0);
        assert!(settings.quotas().is_empty());
    }
}
