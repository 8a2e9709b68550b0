//! `uringlog dump`'s arguments: those of `kafka-dump-log`.

use std::path::PathBuf;

use clap::Args;

use super::{Decoder, DumpOptions, TextDecoder, java};

const MAX_MESSAGE_DEFAULT: i32 = 5 << 20;

/// `uringlog dump`.
#[derive(Clone, PartialEq, Debug, Args)]
#[command(version, args_override_self = true)]
pub struct Dump {
    /// Files of a Kafka log directory: .log, .checkpoint, .index, .timeindex, .snapshot, .txnindex.
    #[arg(value_name = "FILE", required_unless_present = "files")]
    pub paths: Vec<PathBuf>,
    /// The same, as kafka-dump-log takes them.
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    pub files: Vec<PathBuf>,
    /// Print the records of batches, too; what they hold as well.
    #[arg(long)]
    pub print_data_log: bool,
    /// Print the records of batches, too.
    #[arg(long)]
    pub deep_iteration: bool,
    /// Check entries of indexes without printing them.
    #[arg(long)]
    pub verify_index_only: bool,
    /// Only check what decides whether an index is rebuilt at a start.
    #[arg(long)]
    pub index_sanity_check: bool,
    /// Largest batch that an index may point to.
    #[arg(long, value_name = "BYTES", default_value_t = MAX_MESSAGE_DEFAULT,
          allow_negative_numbers = true)]
    pub max_message_size: i32,
    /// Read so much of each log at most.
    #[arg(long, value_name = "BYTES", default_value_t = i32::MAX, allow_negative_numbers = true)]
    pub max_bytes: i32,
    /// Kafka's class that reads keys: StringDecoder, IntegerDecoder or LongDecoder.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = STRING,
          value_parser = parse_decoder)]
    pub key_decoder_class: Option<TextDecoder>,
    /// Kafka's class that reads values.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = STRING,
          value_parser = parse_decoder)]
    pub value_decoder_class: Option<TextDecoder>,
    /// Read records as those of __consumer_offsets.
    #[arg(long)]
    pub offsets_decoder: bool,
    /// Read records as those of __transaction_state.
    #[arg(long)]
    pub transaction_log_decoder: bool,
    /// Read records as those of __cluster_metadata.
    #[arg(long)]
    pub cluster_metadata_decoder: bool,
    /// Read records as those of __remote_log_metadata.
    #[arg(long)]
    pub remote_log_metadata_decoder: bool,
    /// Read records as those of __share_group_state.
    #[arg(long)]
    pub share_group_state_decoder: bool,
    /// Print of records only what they hold.
    #[arg(long)]
    pub skip_record_metadata: bool,
    /// One JSON object a line instead of Kafka's text.
    #[arg(long)]
    pub json: bool,
}

const STRING: &str = "StringDecoder";

fn parse_decoder(class: &str) -> Result<TextDecoder, String> {
    match class.trim_start_matches("org.apache.kafka.tools.api.") {
        STRING => Ok(TextDecoder::Text),
        "IntegerDecoder" => Ok(TextDecoder::Integer),
        "LongDecoder" => Ok(TextDecoder::Long),
        "DefaultDecoder" => Err("DefaultDecoder prints where Java keeps the bytes, not what they \
                                 are; take StringDecoder, IntegerDecoder or LongDecoder"
            .to_owned()),
        _ => Err("Java classes don't run here: known are StringDecoder, IntegerDecoder and \
                  LongDecoder"
            .to_owned()),
    }
}

impl Dump {
    /// What is to be done.
    pub fn options(&self) -> DumpOptions {
        let contents = self.contents();
        DumpOptions {
            files: self.paths.iter().chain(&self.files).map(|it| java::file(it)).collect(),
            is_deep: self.deep_iteration || contents.is_some(),
            contents,
            skips_metadata: self.skip_record_metadata,
            verifies_only: self.verify_index_only,
            checks_sanity: self.index_sanity_check,
            max_message_bytes: self.max_message_size.into(),
            max_bytes: (self.max_bytes != i32::MAX).then(|| self.max_bytes.into()),
            json: self.json,
        }
    }

    fn contents(&self) -> Option<Decoder> {
        // The order in which Kafka's tool asks.
        let chosen = [
            (self.offsets_decoder, Decoder::Offsets),
            (self.transaction_log_decoder, Decoder::Transactions),
            (self.cluster_metadata_decoder, Decoder::ClusterMetadata),
            (self.remote_log_metadata_decoder, Decoder::RemoteLog),
            (self.share_group_state_decoder, Decoder::ShareState),
        ];
        let special = chosen.into_iter().find(|it| it.0).map(|it| it.1);
        let (key, value) = (self.key_decoder_class, self.value_decoder_class);
        let is_plain = self.print_data_log || key.is_some() || value.is_some();
        let plain =
            Decoder::Plain { key: key.unwrap_or_default(), value: value.unwrap_or_default() };
        special.or(is_plain.then_some(plain))
    }
}
