//! Bytes that lie about their lengths.

use bytes::BytesMut;
use proptest::prelude::*;
use uringlog::wire::control;
use uringlog::wire::error::WireError;
use uringlog::wire::fetch::FetchRequest;
use uringlog::wire::frame::{self, RequestHeader};
use uringlog::wire::produce::ProduceFrame;
use uringlog::wire::versions::api;

use crate::allocations::{Cost, measure};
use crate::samples::requests;

/// The largest element of a decoded message against the fewest bytes that it takes on the wire.
const COST_PER_BYTE_MAX: usize = 64;
const COST_FIXED_MAX: usize = 4_096;

fn decode(api_key: i16, version: i16, body: BytesMut) -> Result<(), WireError> {
    let header = RequestHeader { api_key, version, correlation_id: 1, client_id: None };
    match api_key {
        api::PRODUCE => ProduceFrame::walk(body, version).map(drop),
        api::FETCH => FetchRequest::decode(body, version).map(drop),
        _ => control::decode(&header, body).map(drop),
    }
}

fn assert_cheap(cost: Cost, bytes: usize, what: &str) {
    let limit = COST_FIXED_MAX + COST_PER_BYTE_MAX * bytes;
    let peak = usize::try_from(cost.peak).expect("not negative");
    assert!(peak <= limit, "{what}: {peak} bytes of memory for {bytes} bytes of request");
}

#[test]
fn a_body_cut_anywhere_is_refused() {
    for (sample, _) in requests() {
        let what = format!("API {} version {}", sample.api_key, sample.version);
        decode(sample.api_key, sample.version, BytesMut::from(&sample.body[..])).expect(&what);
        for cut in 0..sample.body.len() {
            let body = BytesMut::from(&sample.body[..cut]);
            let (result, cost) = measure(|| decode(sample.api_key, sample.version, body));
            result.expect_err(&what);
            assert_cheap(cost, cut, &what);
        }
    }
}

#[test]
fn lengths_beyond_the_frame_and_below_zero_cost_nothing() {
    let lies: [&[u8]; 8] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x80, 0, 0, 0],
        &[0x00, 0x01, 0x00, 0x00],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x7f, 0xff],
        &[0x80, 0x00],
    ];
    for (sample, _) in requests() {
        let what = format!("API {} version {}", sample.api_key, sample.version);
        for lie in lies {
            for at in 0..sample.body.len() {
                let mut body = BytesMut::from(&sample.body[..]);
                let end = body.len().min(at + lie.len());
                body[at..end].copy_from_slice(&lie[..end - at]);
                let size = body.len();
                let (_, cost) = measure(|| decode(sample.api_key, sample.version, body));
                assert_cheap(cost, size, &what);
            }
        }
    }
}

/// The request that aborts a process that decodes it without a guard.
#[test]
fn a_metadata_body_of_five_bytes_claims_two_billion_topics() {
    let body = BytesMut::from(&[0x7f, 0xff, 0xff, 0xff, 1][..]);
    let (result, cost) = measure(|| decode(api::METADATA, 4, body));
    assert!(matches!(result, Err(WireError::Truncated { what: "topics", .. })));
    assert_cheap(cost, 5, "Metadata");
}

/// A frame full of the smallest elements: more memory than bytes, within the limits by name.
#[test]
fn a_frame_full_of_small_elements_stays_within_the_limits() {
    let mut body = BytesMut::zeroed(1 << 20);
    // A flexible Metadata request of 2^20 - 1 topics of which each takes 18 bytes: too few follow.
    body[..3].copy_from_slice(&[0x80, 0x80, 0x40]);
    decode(api::METADATA, 12, body.clone()).expect_err("more topics than the limit");
    // A Produce request of 100,001 partitions of six zero bytes each.
    let mut body = BytesMut::zeroed(1 << 20);
    body[..12].copy_from_slice(&[0, 0, 1, 0, 0, 0, 0, 2, 2, b't', 0xa2, 0x8d]);
    body[12] = 0x06;
    let refused = decode(api::PRODUCE, 9, body).expect_err("more partitions than the limit");
    assert!(matches!(refused, WireError::TooMany { count: 100_002, .. }), "{refused}");
}

proptest! {
    #[test]
    fn noise_never_panics(
        key in prop::sample::select(&[0_i16, 1, 2, 3, 10, 18, 19, 20, 22, 23, 32, 60][..]),
        version in 0_i16..19,
        noise in prop::collection::vec(prop_oneof![Just(0_u8), 1_u8..8, any::<u8>()], 0..200),
    ) {
        let size = noise.len();
        let body = BytesMut::from(&noise[..]);
        let (_, cost) = measure(|| decode(key, version, body));
        assert_cheap(cost, size, "noise");
        let _ = frame::split(BytesMut::from(&noise[..]));
    }
}
