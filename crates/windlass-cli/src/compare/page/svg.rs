//! The plots, as SVG: scales, bars, ranges and curves.
//!
//! Colours are the style sheet's: shapes have classes only, so that a plot is right in light, in dark
//! and on paper. Each plot is 360 units wide: about as wide as it is shown, so that its text is
//! readable on a telephone too.

use super::escape::escape;
use crate::compare::stats::Spread;

/// The width of a plot.
const WIDTH: f64 = 360.0;
/// Where the names end and the bars begin.
const LEFT: f64 = 140.0;
/// Where the bars end and their figures begin.
const RIGHT: f64 = 300.0;
/// The height of a row.
const ROW: f64 = 22.0;
/// Above and below the rows.
const TOP: f64 = 6.0;
const BOTTOM: f64 = 22.0;

/// What a plot is of, for those who do not see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caption<'a> {
    /// Unique on the page.
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    pub(super) description: &'a str,
}

/// One row of a plot of bars.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: &'static str,
    pub(super) is_baseline: bool,
    /// What is drawn; none is a row with the reason in `label`.
    pub(super) spread: Option<Spread>,
    /// The part of the bar from its begin that is of another shade.
    pub(super) part: Option<f64>,
    pub(super) label: String,
}

/// One row of a plot of ranges: percentiles in seconds.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) name: &'static str,
    pub(super) is_baseline: bool,
    /// p50, p99 and p99.9.
    pub(super) at: Option<[f64; 3]>,
    pub(super) label: String,
}

/// Maps values evenly to positions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Linear {
    max: f64,
    from: f64,
    to: f64,
}

impl Linear {
    fn at(self, value: f64) -> f64 {
        self.from + (value / self.max).clamp(0.0, 1.0) * (self.to - self.from)
    }
}

/// Maps values to positions, each factor of ten as far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Logarithmic {
    /// Powers of ten.
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Logarithmic {
    /// A scale of whole powers of ten around all positive `values`.
    fn around(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let positive = values.filter(|value| *value > 0.0);
        let low = positive.clone().fold(f64::INFINITY, f64::min);
        let high = positive.fold(0.0, f64::max);
        let (low, high) = match low.is_finite() {
            true => (low.log10().floor(), high.log10().ceil()),
            false => (-6.0, -3.0),
        };
        // Powers of ten of times: small numbers.
        let (low, high) = (low as i32, high as i32);
        Self {
            low,
            high: high.max(low + 1),
            from,
            to,
        }
    }

    fn at(self, value: f64) -> f64 {
        let low = f64::from(self.low);
        let span = f64::from(self.high - self.low);
        let part = (value.max(f64::MIN_POSITIVE).log10() - low) / span;
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10_f64.powi(power))
    }
}

/// The round number of the form 1, 2 or 5 times a power of ten that is not less than `value`.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round >= value * 0.999_999)
        .unwrap_or(10.0 * power)
}

/// Horizontal bars from zero, with the spread of the rounds.
pub(super) fn bars(caption: Caption<'_>, bars: &[Bar], tick: fn(f64) -> String) -> String {
    let largest = bars.iter().filter_map(|bar| bar.spread);
    let largest = largest.map(|spread| spread.max).fold(0.0, f64::max);
    let step = round_up(largest / 4.0);
    let scale = Linear {
        max: step * (largest / step).ceil().max(1.0),
        from: LEFT,
        to: RIGHT,
    };
    let ticks = std::iter::successors(Some(0.0), |at| Some(at + step));
    let ticks = ticks.take_while(|at| *at <= scale.max * 1.000_001);
    let ticks: Vec<_> = ticks.map(|at| (scale.at(at), tick(at))).collect();
    let mut out = open(caption, bars.len(), &ticks);
    for (row, bar) in bars.iter().enumerate() {
        out.push_str(&row_name(row, bar.name, bar.is_baseline));
        let y = TOP + row as f64 * ROW;
        let mut label_at = LEFT + 4.0;
        if let Some(spread) = bar.spread {
            let end = scale.at(spread.median);
            let class = if bar.is_baseline { "bar base" } else { "bar" };
            out.push_str(&rect(class, LEFT, y + 4.0, end - LEFT, ROW - 8.0));
            if let Some(part) = bar.part {
                let part = scale.at(part) - LEFT;
                out.push_str(&rect("part", LEFT, y + 4.0, part, ROW - 8.0));
            }
            out.push_str(&whisker(
                y + ROW / 2.0,
                scale.at(spread.min),
                scale.at(spread.max),
            ));
            label_at = scale.at(spread.max).max(end) + 5.0;
        }
        out.push_str(&label(label_at, y, &bar.label, bar.spread.is_none()));
    }
    out.push_str("</svg>\n");
    out
}

/// Ranges of latencies on a logarithmic scale: a line from p50 to p99.9, marks at p50 and p99.
pub(super) fn ranges(caption: Caption<'_>, rows: &[Range], tick: fn(f64) -> String) -> String {
    let values = rows.iter().filter_map(|row| row.at).flatten();
    let scale = Logarithmic::around(values, LEFT + 4.0, RIGHT + 4.0);
    // There is room for the labels of five.
    let every = usize::from(scale.ticks().count() > 5) + 1;
    let labels = scale.ticks().enumerate().map(|(at, value)| {
        let label = at.is_multiple_of(every).then(|| tick(value));
        (scale.at(value), label.unwrap_or_default())
    });
    let mut out = open(caption, rows.len(), &labels.collect::<Vec<_>>());
    for (row, range) in rows.iter().enumerate() {
        out.push_str(&row_name(row, range.name, range.is_baseline));
        let y = TOP + (row as f64 + 0.5) * ROW;
        let mut label_at = LEFT + 4.0;
        if let Some(at) = range.at {
            let [p50, p99, p999] = at.map(|value| scale.at(value));
            let class = if range.is_baseline {
                "range base"
            } else {
                "range"
            };
            out.push_str(&format!(
                "<g class=\"{class}\"><line x1=\"{p50:.1}\" y1=\"{y:.1}\" x2=\"{p999:.1}\" \
                 y2=\"{y:.1}\"/><circle class=\"hollow\" cx=\"{p50:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>\
                 <circle cx=\"{p99:.1}\" cy=\"{y:.1}\" r=\"3.5\"/></g>"
            ));
            label_at = p999 + 6.0;
        }
        let top = y - ROW / 2.0;
        out.push_str(&label(label_at, top, &range.label, range.at.is_none()));
    }
    out.push_str("</svg>\n");
    out
}

/// Opens a plot of rows: grid and axis.
fn open(caption: Caption<'_>, rows: usize, ticks: &[(f64, String)]) -> String {
    let bottom = TOP + rows as f64 * ROW;
    let height = bottom + BOTTOM;
    let mut out = svg(caption, WIDTH, height);
    for (x, text) in ticks {
        let text = escape(text);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            bottom + 15.0
        ));
    }
    out
}

fn svg(caption: Caption<'_>, width: f64, height: f64) -> String {
    let id = escape(caption.id);
    let (title, description) = (escape(caption.title), escape(caption.description));
    format!(
        "<svg role=\"img\" viewBox=\"0 0 {width} {height}\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{description}</desc>"
    )
}

fn row_name(row: usize, name: &str, is_baseline: bool) -> String {
    let y = TOP + row as f64 * ROW + ROW / 2.0 + 4.0;
    let class = if is_baseline { "name base" } else { "name" };
    let x = LEFT - 8.0;
    format!(
        "<text class=\"{class}\" x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
        escape(name)
    )
}

fn rect(class: &str, x: f64, y: f64, width: f64, height: f64) -> String {
    let width = width.max(0.0);
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
    )
}

/// From the least to the most of the rounds; nothing if they are as good as the same.
fn whisker(y: f64, from: f64, to: f64) -> String {
    if to - from < 1.0 {
        return String::new();
    }
    let (top, bottom) = (y - 3.0, y + 3.0);
    format!(
        "<path class=\"whisker\" d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {top:.1}V{bottom:.1}\
         M{to:.1} {top:.1}V{bottom:.1}\"/>"
    )
}

fn label(x: f64, row_top: f64, text: &str, is_missing: bool) -> String {
    let y = row_top + ROW / 2.0 + 4.0;
    let class = if is_missing { "value missing" } else { "value" };
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
        escape(text)
    )
}

/// Curves of latency over quantile: each a path for a small plot, all with the same scale.
#[derive(Clone, Debug)]
pub(super) struct Curves {
    scale: Logarithmic,
    /// How many factors of ten the quantiles come closer to 1.
    decades: f64,
}

/// The size of a small plot, and where the curves are in it.
const SMALL: (f64, f64) = (200.0, 132.0);
const PLOT: (f64, f64, f64, f64) = (44.0, 8.0, 192.0, 108.0);

impl Curves {
    pub(super) fn new<'a>(all: impl Iterator<Item = &'a [(f64, f64)]> + Clone) -> Self {
        let points = all.flatten();
        let decades = points.clone().map(|(quantile, _)| nines(*quantile));
        Self {
            scale: Logarithmic::around(points.map(|(_, seconds)| *seconds), PLOT.3, PLOT.1),
            // A little less, so that rounding does not add one.
            decades: (decades.fold(1.0, f64::max) - 1e-6).ceil(),
        }
    }

    fn x(&self, quantile: f64) -> f64 {
        let scale = Linear {
            max: self.decades,
            from: PLOT.0,
            to: PLOT.2,
        };
        scale.at(nines(quantile))
    }

    /// The data of a path.
    pub(super) fn path(&self, points: &[(f64, f64)]) -> String {
        let mut data = String::new();
        for (at, (quantile, seconds)) in points.iter().enumerate() {
            let command = if at == 0 { 'M' } else { 'L' };
            let (x, y) = (self.x(*quantile), self.scale.at(*seconds));
            data.push_str(&format!("{command}{x:.1} {y:.1}"));
        }
        data
    }

    /// A small plot: the curve `own` before all others, which are in the group `others`.
    pub(super) fn plot(
        &self,
        caption: Caption<'_>,
        own: Option<&str>,
        others: &str,
        tick: fn(f64) -> String,
    ) -> String {
        let mut out = svg(caption, SMALL.0, SMALL.1);
        for value in self.scale.ticks() {
            let y = self.scale.at(value);
            let text = escape(&tick(value));
            out.push_str(&format!(
                "<line class=\"grid\" x1=\"{}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                PLOT.0,
                PLOT.2,
                PLOT.0 - 5.0,
                y + 3.5
            ));
        }
        for (decade, text) in ["0", "90", "99", "99.9", "99.99"].iter().enumerate() {
            if decade as f64 <= self.decades {
                let x = self.x(1.0 - 10_f64.powi(-i32::try_from(decade).unwrap_or(0)));
                let y = PLOT.3 + 15.0;
                // The last one would reach beyond the edge.
                let anchor = if decade == 4 { "end" } else { "middle" };
                let x = if decade == 4 { x + 8.0 } else { x };
                out.push_str(&format!(
                    "<text class=\"tick\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
                ));
            }
        }
        out.push_str(&format!(
            "<use class=\"others\" href=\"#{}\"/>",
            escape(others)
        ));
        if let Some(own) = own {
            out.push_str(&format!("<use class=\"own\" href=\"#{}\"/>", escape(own)));
        }
        out.push_str("</svg>\n");
        out
    }
}

/// How many nines a quantile has: 0.9 one, 0.99 two.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).max(1e-9).log10()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::units;

    #[test]
    fn a_linear_scale_begins_at_zero_and_ends_at_its_maximum() {
        let scale = Linear {
            max: 50.0,
            from: 100.0,
            to: 200.0,
        };
        assert_eq!(
            [0.0, 25.0, 50.0, 99.0].map(|at| scale.at(at)),
            [100.0, 150.0, 200.0, 200.0]
        );
    }

    #[test]
    fn a_logarithmic_scale_has_whole_powers_of_ten() {
        let scale = Logarithmic::around([3e-4, 0.0, 2e-2].into_iter(), 0.0, 300.0);
        assert_eq!((scale.low, scale.high), (-4, -1));
        assert_eq!(scale.at(1e-4), 0.0);
        assert!((scale.at(1e-3) - 100.0).abs() < 1e-9);
        assert_eq!([0.0, 1.0].map(|at| scale.at(at)), [0.0, 300.0]);
        assert_eq!(scale.ticks().count(), 4);
        // Nothing, or one value, is a scale too.
        let none = Logarithmic::around(std::iter::empty(), 0.0, 1.0);
        let one = Logarithmic::around(std::iter::once(1e-3), 0.0, 1.0);
        assert!(none.low < none.high && one.low < one.high);
    }

    #[test]
    fn axes_end_at_round_numbers() {
        let all = [0.0, 0.3, 1.0, 1.1, 4.9, 5.1, 23_000.0].map(round_up);
        assert_eq!(all, [1.0, 0.5, 1.0, 2.0, 5.0, 10.0, 50_000.0]);
    }

    #[test]
    fn quantiles_are_as_far_apart_as_their_nines() {
        assert!((nines(0.0)).abs() < 1e-9);
        assert!((nines(0.9) - 1.0).abs() < 1e-9);
        assert!((nines(0.999) - 3.0).abs() < 1e-9);
        assert!(nines(1.0).is_finite());
    }

    #[test]
    fn what_is_drawn_is_within_the_plot_and_escaped() {
        let spread = Spread {
            median: 5.0,
            min: 4.0,
            max: 7.0,
        };
        let bar = |spread, label: &str| Bar {
            name: "a<b",
            is_baseline: false,
            spread,
            part: None,
            label: label.to_owned(),
        };
        let caption = Caption {
            id: "x",
            title: "a & b",
            description: "\"quoted\"",
        };
        let rows = [bar(Some(spread), "5"), bar(None, "<missing>")];
        let svg = bars(caption, &rows, units::number);
        assert!(svg.contains("a&lt;b") && svg.contains("a &amp; b"));
        assert!(svg.contains("&lt;missing&gt;") && !svg.contains("NaN"));
        let numbers = svg.split("x=\"").skip(1);
        let numbers = numbers.filter_map(|text| text.split('"').next()?.parse::<f64>().ok());
        assert!(numbers.clone().count() > 4);
        assert!(numbers.clone().all(|x| (0.0..=WIDTH).contains(&x)));
    }
}
