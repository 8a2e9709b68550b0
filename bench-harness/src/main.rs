//! Experiments on a partition log, with latency histograms, engine against engine.

fn main() {}
