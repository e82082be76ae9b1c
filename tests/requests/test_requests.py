"""What can be asked: fields with help, options made from them, what a run is known by, and what people type."""

import json
import re
from dataclasses import MISSING, dataclass, fields, replace

import pytest
import typer

from negwise import k_for_metric
from negwise.cli import app
from negwise.errors import InputError
from negwise.metrics import evaluate, rank
from negwise.records import decode
from negwise.requests import (
    DataRequest,
    EstimateRequest,
    ExploreRequest,
    ReportRequest,
    ReproduceRequest,
    RunRequest,
    SweepRequest,
    TrainRequest,
    identity_of,
    options_of,
    parse_duration,
)
from negwise.requests.option_fields import option, parse_columns, parse_rates, parse_settings
from negwise.requests.training_requests import (
    LOSSES,
    METRICS,
    SAMPLERS,
    TOP_N_METRICS,
    Spec,
    check_metric,
    parse_loss,
    parse_samplers,
)

VERBS = {
    "estimate": EstimateRequest, "data": DataRequest, "train": TrainRequest, "run": RunRequest, "sweep": SweepRequest,
    "report": ReportRequest, "explore": ExploreRequest, "reproduce theory": ReproduceRequest,
}  # fmt: skip
FIELDS = [(verb, one) for verb, kind in VERBS.items() for one in fields(kind)]


def named(cases):
    return pytest.mark.parametrize(("verb", "one"), cases, ids=[f"{verb} {one.name}" for verb, one in cases])


def command_of(verb):
    found = typer.main.get_command(app)
    for word in verb.split():
        found = found.commands[word]
    return found


def typed(verb, one):
    """The option of the command line for a field."""
    return next((found for found in command_of(verb).params if found.name == one.name), None)


@named(FIELDS)
def test_every_field_has_a_sentence_of_help(verb, one):
    text = options_of(VERBS[verb])[one.name].help
    assert re.fullmatch(r"\S.{5,}[.]", text), text
    assert len(text) < 120


@named(FIELDS)
def test_the_command_line_has_the_fields_that_it_should(verb, one):
    made, found = one.metadata["option"], typed(verb, one)
    assert (found is not None) == made.on_command_line
    if found is None:
        return
    needed = one.default is MISSING and one.default_factory is MISSING
    assert found.required == needed
    assert found.help.startswith(made.help)
    if made.argument:
        assert found.param_type_name == "argument"
        return
    flag = f"--{one.name.replace('_', '-')}"
    usual = [flag, f"--no-{flag[2:]}"] if one.type == "bool" else [flag]
    assert [*found.opts, *found.secondary_opts] == (usual if made.flag is None else made.flag.split("/"))
    assert found.multiple == made.repeatable


@named([(verb, one) for verb, one in FIELDS if one.metadata["option"].on_command_line])
def test_what_is_not_typed_is_the_default_of_the_field(verb, one):
    default, made = typed(verb, one).default, one.metadata["option"]
    if one.default_factory is not MISSING:
        assert not default and one.default_factory() == {}
    elif made.parse is not None and default is not None:
        assert made.parse(default) == one.default
    elif one.default is not MISSING:
        assert default == one.default


def test_nothing_on_the_command_line_is_without_a_field():
    for verb, kind in VERBS.items():
        extra = {found.name for found in command_of(verb).params} - {one.name for one in fields(kind)}
        assert extra == {"as_json"}, verb


@dataclass(frozen=True, kw_only=True)
class Small:
    kept: tuple[str, ...] = option(("a", "b"), help="Kept.")
    more: dict = option(default_factory=dict, help="Kept too.")
    left: int = option(1, help="Left out.", identity=False)


def test_what_a_run_is_known_by_leaves_out_what_may_change():
    assert identity_of(Small(left=5)) == identity_of(Small()) == {"kept": ["a", "b"], "more": {}}
    assert identity_of(Small(kept=("a",))) != identity_of(Small())


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (TrainRequest, {"out", "device", "threads", "tensorboard"}),
        (RunRequest, {"out", "jobs", "plan"}),
        (SweepRequest, {"out", "jobs"}),
    ],
)
def test_where_and_how_fast_a_run_trains_is_not_what_it_is(kind, left):
    request = kind(data="x", out="y")
    assert set(options_of(kind)) - set(identity_of(request)) == left


@pytest.mark.parametrize(
    "request_made",
    [
        TrainRequest(data="x", k="ans:20", columns={"user": "u"}, settings={"hidden": 8, "dropout": 0.1}, correct=True),
        RunRequest(data="x", learning_rate=1e-3, negatives="0.5*uniform+queue:9", lam=0.75),
        SweepRequest(data="x", out="negwise-run", k=("1", "warm:4"), learning_rate=(1e-3, 3e-4)),
    ],
    ids=lambda request: type(request).__name__,
)
def test_what_a_run_is_known_by_comes_back_from_json(request_made):
    identity = identity_of(request_made)
    again = json.loads(json.dumps(identity, allow_nan=False))
    assert again == identity
    kind = type(request_made)
    out = {"out": request_made.out}
    assert decode(kind, again | out, "a file") == request_made
    assert decode(kind, json.loads(json.dumps(identity_of(replace(request_made, split="last")))) | out, "a file") != (
        request_made
    )


GOOD = [
    (parse_samplers, "uniform", (Spec("uniform"),)),
    (parse_samplers, " Queue:4096 ", (Spec("queue", {"capacity": 4096}),)),
    (parse_samplers, "popularity:alpha=0.75", (Spec("popularity", {"alpha": 0.75}),)),
    (
        parse_samplers,
        "0.5 * uniform + 2*popularity:0.75+in-batch",
        (Spec("uniform", {}, 0.5), Spec("popularity", {"alpha": 0.75}, 2.0), Spec("in-batch")),
    ),
    (parse_loss, "info-nce", Spec("info-nce")),
    (parse_loss, "GBCE:t=0.75", Spec("gbce", {"t": 0.75})),
    (parse_loss, "debiased:0.1", Spec("debiased", {"tau_plus": 0.1})),
    (parse_settings, None, {}),
    (parse_settings, ["dropout=0.1", " hidden =1e2"], {"dropout": 0.1, "hidden": 100}),
    (parse_columns, None, {}),
    (parse_columns, ["user=customer", " item = the = thing "], {"user": "customer", "item": "the = thing"}),
    (parse_rates, "3e-4,1e-3", (0.0003, 0.001)),
    (parse_rates, " 1 ,", (1.0,)),
    (parse_rates, "", None),
    (options_of(EstimateRequest)["train_auc"].parse, "0.75", 0.75),
    (options_of(EstimateRequest)["train_auc"].parse, "0.6, 0.7", (0.6, 0.7)),
    (options_of(EstimateRequest)["train_auc"].parse, " ", None),
    (options_of(SweepRequest)["k"].parse, "1, 4,,warm:20 ", ("1", "4", "warm:20")),
]


@pytest.mark.parametrize(("parse", "text", "expected"), GOOD)
def test_what_people_type_means_what_it_says(parse, text, expected):
    assert parse(text) == expected


def test_whole_numbers_of_settings_stay_whole():
    assert [type(value) for value in parse_settings(["hidden=8.0", "dropout=0.5"]).values()] == [int, float]


@pytest.mark.parametrize("metric", ["auc", "auc_query", "mrr", "rr", "ndcg@1", "ndcg@10", "hit@250"])
def test_metrics_that_there_are(metric):
    check_metric(metric)
    assert TrainRequest(data="x", metric=metric).metric == metric


ONE_SAMPLER = f"expected one of {', '.join(SAMPLERS)}."
ONE_LOSS = f"expected one of {', '.join(LOSSES)}."
A_METRIC = "expected one of auc, auc_query, auc_pooled, mrr, rr, ndcg@N, hit@N; as ndcg@10."
A_TIME = "expected a time such as 90s, 10m or 1.5h."
A_SETTING = "expected a name and a number, as dropout=0.1."
A_COLUMN = "expected a role and a column, as user=customer."
RATES = "expected a number or numbers with commas, as 3e-4,1e-3."
BAD = [
    (parse_samplers, "random", f"negatives: got 'random', {ONE_SAMPLER}"),
    (parse_samplers, "", f"negatives: got '', {ONE_SAMPLER}"),
    (parse_samplers, "uniform+", f"negatives: got '', {ONE_SAMPLER}"),
    (parse_samplers, "queue:large", "negatives: got 'large' in 'queue:large', expected a number."),
    (parse_samplers, "queue:nan", "negatives: got 'nan' in 'queue:nan', expected a number."),
    (parse_samplers, "pool:1e999", "negatives: got '1e999' in 'pool:1e999', expected a number."),
    (parse_samplers, "queue:size=4", "negatives: got 'size=4' in 'queue:size=4'; queue takes capacity."),
    (parse_samplers, "uniform:3", "negatives: got '3' in 'uniform:3'; uniform takes no option."),
    (parse_samplers, "half*uniform", "negatives: got 'half' in 'uniform', expected a number."),
    (parse_samplers, "0*uniform+queue", "negatives: got the weight 0 in 'uniform', expected a number above 0."),
    (parse_samplers, "uniform+0.5*uniform", "got 'uniform+0.5*uniform', expected each sampler once in a mix."),
    (parse_loss, "softmax", f"loss: got 'softmax', {ONE_LOSS}"),
    (parse_loss, "gbce:t=much", "loss: got 'much' in 'gbce:t=much', expected a number."),
    (parse_loss, "gbce:t=inf", "loss: got 'inf' in 'gbce:t=inf', expected a number."),
    (parse_loss, "gbce:tau=1", "loss: got 'tau=1' in 'gbce:tau=1'; gbce takes t."),
    (parse_loss, "bce:1", "loss: got '1' in 'bce:1'; bce takes no option."),
    (parse_duration, "soon", f"budget: got 'soon', {A_TIME}"),
    (parse_duration, "10 minutes", f"budget: got '10 minutes', {A_TIME}"),
    (parse_duration, "-5m", f"budget: got '-5m', {A_TIME}"),
    (parse_duration, "0s", "budget: got '0s', expected more than 0 seconds."),
    (parse_settings, ["dropout"], f"--setting: got 'dropout', {A_SETTING}"),
    (parse_settings, ["dropout=low"], f"--setting: got 'dropout=low', {A_SETTING}"),
    (parse_settings, ["=0.1"], f"--setting: got '=0.1', {A_SETTING}"),
    (parse_settings, ["dropout=nan"], f"--setting: got 'dropout=nan', {A_SETTING}"),
    (parse_settings, ["hidden=8", "hidden=9"], "--setting: got hidden=8 and hidden=9, expected each name once."),
    (parse_columns, ["user"], f"--column: got 'user', {A_COLUMN}"),
    (parse_columns, ["=customer"], f"--column: got '=customer', {A_COLUMN}"),
    (parse_columns, ["user= "], f"--column: got 'user= ', {A_COLUMN}"),
    (parse_columns, ["user=a", "user=b"], "--column: got user=a and user=b, expected each role once."),
    (parse_rates, "fast", f"--learning-rate: got 'fast', {RATES}"),
    (parse_rates, "1e-3;1e-4", f"--learning-rate: got '1e-3;1e-4', {RATES}"),
    (parse_rates, "1e-3,x", f"--learning-rate: got '1e-3,x', {RATES}"),
    (check_metric, "accuracy", f"metric: got 'accuracy', {A_METRIC}"),
    (check_metric, "ndcg", f"metric: got 'ndcg', {A_METRIC}"),
    (check_metric, "hit@0", f"metric: got 'hit@0', {A_METRIC}"),
    (check_metric, "hit@5.5", f"metric: got 'hit@5.5', {A_METRIC}"),
    (options_of(EstimateRequest)["val_auc"].parse, "0.6;0.7", "--val-auc: got '0.6;0.7', expected a number or numbers"),
]


@pytest.mark.parametrize(("parse", "text", "said"), BAD)
def test_what_cannot_be_read_is_told_with_what_was_expected(parse, text, said):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RunRequest(lam=0.4), "lam: got 0.4, expected a weight from 0.5 to 1."),
        (lambda: RunRequest(lam=float("nan")), "lam: got nan, expected a weight"),
        (lambda: RunRequest(seeds=0), "seeds: got 0, expected a whole number, 1 or more."),
        (lambda: RunRequest(budget="0"), "budget: got '0', expected more than 0 seconds."),
        (lambda: RunRequest(loss="hinge"), "loss: got 'hinge'"),
        (lambda: RunRequest(negatives="hard"), "negatives: got 'hard'"),
        (lambda: RunRequest(out=""), "out: got an empty name, expected a folder, as runs/a."),
        (lambda: RunRequest(queries=1), "queries: got 1, expected a whole number, 2 or more."),
        (lambda: SweepRequest(out="x", k=()), "k: got nothing, expected one or more rules, as 1,4,20."),
        (lambda: SweepRequest(out="x", learning_rate=(1e-3, 0.001)), "learning_rate: got 0.001, 0.001, expected each"),
        (lambda: SweepRequest(out="x", learning_rate=(0.0,)), "learning_rate: got 0.0, expected a number above 0"),
        (lambda: SweepRequest(out="x", precision="16"), "precision: got '16', expected one of 32-true, bf16-mixed"),
        (lambda: TrainRequest(data="x", seed=-1), "seed: got -1, expected a whole number, 0 or more."),
        (lambda: TrainRequest(data="x", pool=2.5), "pool: got 2.5, expected a whole number"),
        (lambda: TrainRequest(data="x", epochs=True), "epochs: got True, expected a whole number"),
        (lambda: TrainRequest(data="x", device="tpu"), "device: got 'tpu', expected one of auto, cpu, cuda."),
        (lambda: TrainRequest(data="x", metric="best"), "metric: got 'best'"),
    ],
)
def test_a_wrong_request_is_refused_as_it_is_made(make, said):
    with pytest.raises(InputError) as caught:
        make()
    assert said in str(caught.value)


def test_metrics_that_can_be_typed_are_evaluated_and_have_a_k():
    """A name in one table and not in the others would be accepted and then fail."""
    evaluated = evaluate(rank([2.0, 1.0, 3.0], [1, 0, 0], [0, 3]), cutoffs=(2,)).metrics
    assert {*METRICS, *(f"{name}@2" for name in TOP_N_METRICS)} == set(evaluated)
    for name in evaluated:
        check_metric(name)
        assert k_for_metric(name, 1000) >= 1
