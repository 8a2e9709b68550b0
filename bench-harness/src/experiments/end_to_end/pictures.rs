//! What the report draws.

use super::programme::{self, figure_name, name};
use super::record::{CPU, MEMORY};
use crate::experiments::load::Kind as Load;
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder};
use crate::run::Context;

/// Declares all pictures. First of all, so that a run that breaks off has them, too.
pub fn declare(context: &Context, recorder: &mut Recorder) {
    let percents = context.parameters.numbers("percents");
    let middle = programme::nearest(&percents, 50).unwrap_or(50);
    let most = programme::nearest(&percents, 100).unwrap_or(100);
    for load in [Load::Produce, Load::Fetch, Load::EndToEnd] {
        of_load(recorder, load, (middle, most));
    }
    of_factors(recorder);
    of_both_sides(recorder);
}

fn of_load(recorder: &mut Recorder, load: Load, (middle, most): (u64, u64)) {
    let (name, figure) = (name(load), figure_name(load));
    let base = |picture: Picture| picture.only("load", name).only("varied", "nothing");
    let latency = format!("{figure}_latency");
    let [p50, p99, late] =
        ["p50", "p99", "p99_of_a_late_generator"].map(|it| format!("{latency}_{it}"));
    recorder.picture(base(Picture::new(
        &format!("{name}-latency-by-share"),
        &format!("Latency of {name} against the share of the maximum that is offered"),
        "Each engine is offered shares of its own maximum. The curve is flat while the server \
         keeps up, and turns up where requests begin to wait for each other; the nearer to 100 % \
         that is, the more of its maximum an engine can really be used for. Points that stand \
         under 'late generator', too, say more of the load generator than of the server.",
        Kind::Scaling { figures: names(&[&p50, &p99, &late]), against: "percent".to_owned() },
    )));
    recorder.picture(base(Picture::new(
        &format!("{name}-latency-by-rate"),
        &format!("99th percentile of {name} against the rate"),
        "The same points against requests per second: at the same rate, the lower curve is the \
         faster engine, and the one that reaches further right serves more.",
        Kind::Scaling {
            figures: vec![format!("{latency}_p99_at_rate")],
            against: "rate".to_owned(),
        },
    )));
    for percent in [middle, most] {
        recorder.picture(
            base(Picture::new(
                &format!("{name}-percentiles-{percent}"),
                &format!("Latency of {name} by percentile at {percent} % of the maximum"),
                "Counted from the time that the schedule names, so that a stall of the server is \
                 seen by every request that was due in it. A step to the right of 99 % is what a \
                 few requests in a hundred or a thousand wait for: syncs, rolls, collections of \
                 garbage.",
                Kind::Percentiles { latencies: vec![latency.clone()] },
            ))
            .only("percent", percent),
        );
    }
    recorder.picture(
        base(Picture::new(
            &format!("{name}-over-time"),
            &format!("Latency of {name} over time at {most} % of the maximum"),
            "A level band means that the server keeps up with what is offered; one that climbs \
             from left to right is a queue that grows; stripes are stalls.",
            Kind::HeatMap { latency: latency.clone() },
        ))
        .only("percent", most),
    );
    recorder.picture(base(Picture::new(
        &format!("{name}-server-cpu"),
        &format!("CPU of the server for {name}, for each GB of records"),
        "The less, the better. It falls with the load where work for many requests is done at \
         once, and rises where they get into each other's way.",
        Kind::Bars {
            figures: vec!["server_cpu_per_gb".to_owned()],
            by: Some("percent".to_owned()),
        },
    )));
}

fn of_factors(recorder: &mut Recorder) {
    let numeric = [("batch_records", "records in a batch"), ("partitions", "partitions")];
    for load in [Load::Produce, Load::Fetch, Load::EndToEnd] {
        for (factor, what) in numeric {
            recorder.picture(
                Picture::new(
                    &format!("{}-by-{}", name(load), factor.replace('_', "-")),
                    &format!("Greatest throughput of {} against {what}", name(load)),
                    "One factor varied, all others as they were. Where the line flattens, a \
                     request's fixed price no longer counts; where it falls, more of them only \
                     cost.",
                    Kind::Scaling {
                        figures: vec![format!("throughput_by_{factor}")],
                        against: factor.to_owned(),
                    },
                )
                .only("load", name(load)),
            );
        }
        recorder.picture(
            Picture::new(
                &format!("{}-by-acks", name(load)),
                &format!("Greatest throughput of {} by acks", name(load)),
                "With one replica, acks=all and acks=1 promise the same; acks=0 shows what the \
                 answers cost.",
                Kind::Bars {
                    figures: vec!["throughput_by_acks".to_owned()],
                    by: Some("acks".to_owned()),
                },
            )
            .only("load", name(load)),
        );
    }
}

fn of_both_sides(recorder: &mut Recorder) {
    recorder.picture(
        Picture::new(
            "generator-busy",
            "How busy the load generator itself was",
            "The share of its core that it needed, time spent waiting for due times left out. \
             Near 1 it is itself the bottleneck, and what it measured is no longer the server.",
            Kind::Scaling {
                figures: vec!["generator_busy".to_owned()],
                against: "percent".to_owned(),
            },
        )
        .only("varied", "nothing"),
    );
    let events = || names(&["load"]);
    recorder.picture(Picture::new(
        "server-memory",
        "Memory of the server over all loads",
        "Resident memory, page cache left out; loads begin at the marks. Level lines are what one \
         wants: memory that follows the load up comes down again, or is at least not taken twice.",
        Kind::Timeline { series: names(&[MEMORY]), events: events() },
    ));
    recorder.picture(Picture::new(
        "server-cpu-over-time",
        "Cores that the server kept busy over all loads",
        "Steps as the offered share rises; the height at the same share is what the engine costs.",
        Kind::Timeline { series: names(&[CPU]), events: events() },
    ));
}
