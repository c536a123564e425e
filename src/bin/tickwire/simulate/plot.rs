//! The results as a plot: goodput, latency and queues over time.

use plotters::coord::Shift;
use plotters::prelude::*;
use tickwire::simulation::{Bucket, ItemReport, Report, Series};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Points of a line: time in milliseconds, and a value.
type Line = Vec<(f64, f64)>;

const SIZE: (u32, u32) = (1000, 1050);
/// Told apart by people with any kind of colour vision (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// One panel of the plot.
struct Panel<'a> {
    title: &'a str,
    unit: &'a str,
    lines: Vec<(String, Line)>,
}

/// The whole plot, as SVG.
pub fn draw(report: &Report) -> Result<String, String> {
    let mut svg = String::new();
    draw_on(&mut svg, report).map_err(|error| format!("drawing the plot: {error}"))?;
    Ok(svg)
}

fn draw_on(svg: &mut String, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let Report { title, peers, seed, .. } = report;
    let title = format!("{title} ({peers} peers, seed {seed})");
    let root = root.titled(&title, ("sans-serif", 22))?;
    let panels = root.split_evenly((3, 1));
    let goodputs = report.traffic.iter().map(|item| (item.name.clone(), goodput(item)));
    let mean = |bucket: &Bucket| bucket.sum as f64 / bucket.count as f64;
    let latency = |of: &dyn Fn(&Bucket) -> f64| sampled(&report.latency, |it| of(it) / 1000.0);
    let all = [
        Panel {
            title: "Goodput, each message counted when it is whole",
            unit: "MB/s (10^6 bytes a second)",
            lines: goodputs.collect(),
        },
        Panel {
            title: "Latency of messages, by time of arrival",
            unit: "microseconds",
            lines: vec![
                ("mean".to_owned(), latency(&mean)),
                ("max".to_owned(), latency(&|bucket| bucket.max as f64)),
            ],
        },
        Panel {
            title: "Longest queue in front of a receiver's link",
            unit: "datagrams",
            lines: vec![("max".to_owned(), sampled(&report.queue, |it| it.max as f64))],
        },
    ];
    let end_ms = all.iter().flat_map(|panel| &panel.lines);
    let end_ms = end_ms.filter_map(|(_, line)| line.last()).map(|point| point.0);
    let end_ms = end_ms.fold(0.001, f64::max);
    for (area, panel) in panels.iter().zip(&all) {
        draw_panel(area, panel, end_ms)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(
    area: &Area<'_>,
    panel: &Panel<'_>,
    end_ms: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = panel.lines.iter().flat_map(|(_, line)| line);
    let top = points.map(|point| point.1).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.05 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 17))
        .margin(8)
        .x_label_area_size(42)
        .y_label_area_size(86)
        .build_cartesian_2d(0.0..end_ms, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("virtual time in ms")
        .y_desc(panel.unit)
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 13))
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    for ((name, line), colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
        let style = ShapeStyle::from(colour).stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    if panel.lines.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 13))
            .draw()?;
    }
    Ok(())
}

/// Bytes a second in each bucket; none arrive in an empty one.
fn goodput(item: &ItemReport) -> Line {
    let Series { bucket_ns, buckets } = &item.arrivals;
    let points = buckets.iter().enumerate().map(|(place, bucket)| {
        (middle_ms(*bucket_ns, place), bucket.sum as f64 * 1e3 / *bucket_ns as f64)
    });
    points.collect()
}

/// A value of each bucket that has samples.
fn sampled(series: &Series, value: impl Fn(&Bucket) -> f64) -> Line {
    let buckets = series.buckets.iter().enumerate().filter(|(_, bucket)| bucket.count > 0);
    buckets.map(|(place, bucket)| (middle_ms(series.bucket_ns, place), value(bucket))).collect()
}

fn middle_ms(bucket_ns: u64, place: usize) -> f64 {
    (place as f64 + 0.5) * bucket_ns as f64 / 1e6
}
