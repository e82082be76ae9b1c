"""The model beside what needs no training: scores with their error over queries, and differences paired by query."""

from __future__ import annotations

from dataclasses import dataclass

from negwise.records import Baseline, GainShare, QueryDifference, Scores
from negwise.report.formatting import format_count, format_signed, metric_name
from negwise.report.k_in_words import format_k
from negwise.report.report_data import ReportData, SeedRun
from negwise.report.stat_tile import Stat

_PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
POPULAR = "most popular"
BETWEEN = '"About" marks a K that was not timed. Its time is read off a line between those of two K that were.'


@dataclass(frozen=True)
class ScoreTable:
    """``columns`` and ``rows`` as text, the model first; ``note`` says on how many queries and among how many."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True)
class ShareTable:
    """K, the share of the gain, its error and milliseconds of a step, as text; ``note`` says what they are."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def score_table(report: ReportData, run: SeedRun) -> ScoreTable | None:
    """Test scores of the model and of its baselines; None for a run without a test."""
    if run.test is None:
        return None
    first = report.metrics[0]
    columns = ["", *(f"test {metric_name(metric)}" for metric in report.metrics)]
    if report.corpus is not None:
        columns.append(f"{metric_name(first)} among all {format_count(report.corpus.candidates)} texts")
    if report.baselines:
        columns.append(f"lead in {metric_name(first)}")
    own = [_cell(run.test, metric) for metric in report.metrics]
    own += [] if report.corpus is None else [_cell(report.corpus.scores, first)]
    rows = [("the model", *own, *([""] if report.baselines else []))]
    for baseline in report.baselines:
        cells = [_cell(baseline.scores, metric) for metric in report.metrics]
        if report.corpus is not None:
            cells.append("" if baseline.corpus is None else _cell(baseline.corpus, first))
        gap = difference_in(baseline, first)
        rows.append((baseline.name, *cells, "" if gap is None else _gap_text(gap)))
    note = f"{_PLUS_MINUS} is the standard error over queries. {sample_text(report, run.test)}."
    if report.baselines:
        note += " The lead is that of the model, paired by query, with its 95% interval."
    return ScoreTable(tuple(columns), tuple(rows), note)


def share_table(shares: tuple[GainShare, ...]) -> ShareTable | None:
    """What each K brings and costs; without shares where none is known, None if no time is known either."""
    if not any(row.share is not None or row.seconds is not None for row in shares):
        return None
    ks = [f"{format_k(row.k)}{_mark(row)}" for row in shares]
    times = [_time_text(row) for row in shares]
    name = metric_name(shares[0].metric)
    note = "" if not any(row.interpolated for row in shares) else f" {BETWEEN}"
    if all(row.share is None for row in shares):
        return ShareTable(("K", "time of a step"), tuple(zip(ks, times, strict=True)), note.strip())
    known = [("not known" if row.share is None else f"{100 * row.share:.0f}%", _error_text(row)) for row in shares]
    rows = tuple((k, *share, time) for k, share, time in zip(ks, known, times, strict=True))
    note = f"The gain is what the best K adds to K = 1 in {name}.{note}"
    return ShareTable(("K", "share of the gain", "error of the forecast", "time of a step"), rows, note)


def _mark(row: GainShare) -> str:
    marks = ["the model"] * row.own + ["all"] * row.all
    return f" ({', '.join(marks)})" if marks else ""


def _error_text(row: GainShare) -> str:
    if row.low is None or row.high is None or row.low == row.high:
        return ""
    return f"{100 * row.low:.0f} to {100 * row.high:.0f}%"


def _time_text(row: GainShare) -> str:
    if row.seconds is None:
        return "not measured"
    milliseconds = float(f"{1e3 * row.seconds:.3g}")
    return f"{'about ' if row.interpolated else ''}{milliseconds:,g} ms"


def sample_text(report: ReportData, scores: Scores) -> str:
    """500 test queries, each among 3,416 candidates."""
    found = "number of queries not known" if scores.queries is None else f"{format_count(scores.queries)} test queries"
    if report.candidates is None:
        return found
    return f"{found}, each among {format_count(round(report.candidates))} candidates"


def difference_in(baseline: Baseline, metric: str) -> QueryDifference | None:
    return next((gap for gap in baseline.differences if gap.metric == metric), None)


def strongest(report: ReportData) -> tuple[Baseline, QueryDifference] | None:
    """The baseline without training that the model is least ahead of, and by how much."""
    metric = report.metrics[0]
    untrained = [baseline for baseline in report.baselines if not baseline.trained]
    found = [(baseline, gap) for baseline in untrained if (gap := difference_in(baseline, metric)) is not None]
    return min(found, key=lambda pair: pair[1].mean) if found else None


def lead_over(gap: QueryDifference) -> str:
    """ "ahead", "behind", or "level" if the 95% interval has 0 in it or there is none."""
    if gap.low is None or gap.high is None:
        return "level"
    return "ahead" if gap.low > 0 else "behind" if gap.high < 0 else "level"


def baseline_notice(report: ReportData, test: Scores | None) -> str | None:
    """That the model does not beat a baseline, with the figures; None if it beats all of them."""
    found = strongest(report)
    if found is None or test is None or lead_over(found[1]) == "ahead":
        return None
    baseline, gap = found
    metric = report.metrics[0]
    mine, theirs = test.value(metric), baseline.scores.value(metric)
    name = metric_name(metric)
    figures = "" if mine is None or theirs is None else f"{name} is {mine:.4f} against {theirs:.4f}. "
    interval = "" if gap.low is None else f"{_interval(gap).strip(' ()')}, "
    figures += f"The difference is {format_signed(gap.mean)} ({interval}{_queries(gap.queries)})"
    better = [other.metric for other in baseline.differences if lead_over(other) == "ahead"]
    ahead = [
        f"{metric_name(name)} ({test.value(name):.4f} against {baseline.scores.value(name):.4f})" for name in better
    ]
    found_ahead = f" The model is ahead in {' and '.join(ahead)}." if ahead else ""
    known = _the(baseline.name)
    needs = f"{known[0].upper()}{known[1:]} {'need' if baseline.name == POPULAR else 'needs'} no training."
    return f"{baseline_verdict(baseline, gap)}: {figures}. {needs}{found_ahead}"


def baseline_verdict(baseline: Baseline, gap: QueryDifference) -> str:
    """That the model does not beat ``baseline``, or is level with it."""
    how = "does not beat" if lead_over(gap) == "behind" else "is level with"
    return f"The model {how} {_the(baseline.name)}"


def comparison_notice(report: ReportData) -> str | None:
    """That another K, trained for the same time, came out better; None if none did."""
    metric = report.metrics[0]
    gaps = [(one, difference_in(one, metric)) for one in report.baselines if one.trained]
    better = [(gap.mean, one, gap) for one, gap in gaps if gap is not None and lead_over(gap) == "behind"]
    if not better:
        return None
    _, other, gap = min(better, key=lambda found: found[0])
    rule = other.name.partition(",")[0].removeprefix("K = ")
    interval = f"{format_signed(-(gap.high or 0.0))} to {format_signed(-(gap.low or 0.0))}"
    return (
        f"K = {rule}, trained for the same time, is better: {metric_name(metric)} {format_signed(-gap.mean)} (95% "
        f"interval {interval}, {_queries(gap.queries)}). To train with it, type --k {rule}, and judge it on "
        "newer data, because these test queries chose it."
    )


def baseline_stat(report: ReportData) -> Stat | None:
    """How far the model is ahead of the strongest baseline."""
    found = strongest(report)
    if found is None:
        return None
    baseline, gap = found
    tone = {"ahead": "up", "behind": "down", "level": ""}[lead_over(gap)]
    note = _interval(gap).strip(" ()") + ("" if gap.se in (None, 0) else ", paired by query")
    label = f"{metric_name(gap.metric)} above {_the(baseline.name)}"
    return Stat(label, format_signed(gap.mean), note=note, tone=tone)


def score_stat(report: ReportData, scores: Scores, metric: str) -> Stat:
    """A test score with its error over queries, their number, and among how many candidates."""
    value, error = scores.value(metric), scores.error(metric)
    if value is None:
        return Stat(f"test {metric_name(metric)}", "none", note="not evaluated")
    note = sample_text(report, scores)
    if report.corpus is not None and (whole := report.corpus.scores.value(metric)) is not None:
        note += f"; {whole:.4f} among all {format_count(report.corpus.candidates)} texts"
    bar = "" if error is None else f"{_PLUS_MINUS} {error:.4f}"
    return Stat(f"test {metric_name(metric)}", f"{value:.4f}", bar, note)


def _cell(scores: Scores, metric: str) -> str:
    value, error = scores.value(metric), scores.error(metric)
    if value is None:
        return ""
    return f"{value:.4f}" + ("" if error is None else f" {_PLUS_MINUS} {error:.4f}")


def _gap_text(gap: QueryDifference) -> str:
    return f"{format_signed(gap.mean)}{_interval(gap, words='')}"


def _interval(gap: QueryDifference, words: str = "95% interval ") -> str:
    if gap.low is None or gap.high is None:
        return ""
    if gap.se == 0:
        return " (the same on every query)"
    return f" ({words}{format_signed(gap.low)} to {format_signed(gap.high)})"


def _queries(n: int) -> str:
    return "1 query" if n == 1 else f"{format_count(n)} queries"


def _the(name: str) -> str:
    return "the most popular items" if name == POPULAR else name
