"""`attach` for a SentenceTransformerTrainer, with the real framework."""

import json
import weakref

import pytest
import torch
from boards import read_board
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    CoSENTLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import dot_score, pairwise_cos_sim
from sentence_world import evals_of, make_trainer, steps_of
from tiny_bert import text_pairs
from transformers import TrainerCallback

import negwise.curves
from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.host_copy import HostCopy
from negwise.integrations.sentence_transformers import attach
from negwise.integrations.step_control import StepControl
from negwise.integrations.transformers import attach as attach_scores
from negwise.schedule import AnsK

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*use_reentrant.*"),
]
SEED = 42  # TrainingArguments' own


def cached(model):
    return CachedMultipleNegativesRankingLoss(model, mini_batch_size=8)


def losses(trainer):
    trainer.train()
    return [entry["loss"] for entry in steps_of(trainer)]


def expected_k(rule, step, total, rows=32):
    """The mean of what the rows of a step keep."""
    return counts(rule(step / (total - 1)), rows, Key(SEED, step)).mean()


@pytest.mark.parametrize("make_loss", [MultipleNegativesRankingLoss, cached])
@pytest.mark.parametrize("negatives", [0, 2])
def test_with_all_negatives_it_is_the_frameworks_own_loss(tiny_bert, tmp_path, make_loss, negatives):
    data = text_pairs(400, negatives)
    options = {"make_loss": make_loss, "train": data, "evaluate": data.select(range(64)), "max_steps": 6}
    own = make_trainer(tiny_bert, tmp_path, None, **options)
    ours = make_trainer(tiny_bert, tmp_path, str(31 + 32 * negatives), **options)
    assert losses(ours) == pytest.approx(losses(own), rel=1e-4)
    assert [e["eval_loss"] for e in evals_of(ours)][1:] == pytest.approx(
        [e["eval_loss"] for e in evals_of(own, "eval_loss")], rel=1e-4
    )
    assert {entry["k_used"] for entry in steps_of(ours)} == {31.0 + 32 * negatives}


@pytest.mark.parametrize("workers", [0, 2])
def test_k_is_that_of_the_very_step_and_its_mean_is_exact(tiny_bert, tmp_path, workers):
    trainer = make_trainer(tiny_bert, tmp_path, "ans:12", dataloader_num_workers=workers)
    trainer.train()
    for step, entry in enumerate(steps_of(trainer)):
        assert entry["k"] == AnsK(12)(step / 23)
        assert entry["k_used"] == expected_k(AnsK(12), step, 24)


def test_loss_is_info_nce_over_the_kept_negatives(tiny_bert, tmp_path):
    from negwise.integrations.column_choice import keep_mask
    from negwise.losses import info_nce

    trainer = make_trainer(tiny_bert, tmp_path, "2.5", max_steps=1, train=text_pairs(32, 1))
    vectors = []
    loss = trainer.loss
    replaced = loss.compute_loss_from_embeddings
    loss.compute_loss_from_embeddings = lambda embeddings, labels: (
        vectors.extend(embeddings),
        replaced(embeddings, labels),
    )[1]
    found = losses(trainer)[0]
    control = StepControl("2.5", 1, SEED)
    control.begin(0)
    rows, order = control.draws(32, 62, torch.device("cpu"))
    mask = keep_mask(order, rows, 0, 2, 32, torch.ones(32, 1, dtype=torch.bool)).flatten(1)
    query, positive, negative = (torch.nn.functional.normalize(one, dim=1) for one in vectors)
    expected = info_nce(query, positive, torch.cat([positive, negative]), mask=mask, temperature=0.05).loss
    assert found == pytest.approx(float(expected.detach()), rel=1e-5)


def test_online_follows_a_model_that_improves_and_the_page_is_made(tiny_bert, tmp_path):
    with pytest.warns(UserWarning, match="a row has 31 negatives to draw from"):
        trainer = make_trainer(
            tiny_bert,
            tmp_path / "out",
            "online",
            evaluate=text_pairs(200, seed=1),
            run=tmp_path / "run",
            max_steps=150,
            eval_steps=50,
            save_strategy="steps",
            save_steps=50,
            metric_for_best_model="eval_auc",
            load_best_model_at_end=True,
            report_to="tensorboard",
        )
        trainer.train()
    steps, evals = steps_of(trainer), evals_of(trainer)
    assert [entry["step"] for entry in evals] == [0, 50, 100, 150]  # step 0 by itself
    assert evals[0]["eval_auc"] < 0.7 and evals[-1]["eval_auc"] > 0.9
    assert evals[-1]["eval_auc_queries"] == 200 and evals[-1]["eval_auc_pairs"] == 6 * 32 * 31 + 8 * 7
    assert 0 < evals[-1]["eval_auc_se"] < 0.05
    assert steps[0]["k"] == 4.0 and steps[-1]["k"] > 12
    assert trainer.state.best_metric == max(entry["eval_auc"] for entry in evals[1:])
    in_board = read_board(tmp_path / "out")
    assert [value for _, value in in_board["train/k"]] == pytest.approx([entry["k"] for entry in steps])
    assert [value for _, value in in_board["eval/auc"]] == pytest.approx([entry["eval_auc"] for entry in evals])
    assert {"train/k_used", "train/win_rate", "eval/auc_se"} <= set(in_board)
    from negwise.report.write_report import write_report

    page = write_report([tmp_path / "run"])
    assert "online" in page.read_text() and (tmp_path / "run" / "result.json").exists()


def test_log_history_is_a_log_of_auc_curves(tiny_bert, tmp_path):
    train = text_pairs(800)
    trainer = make_trainer(
        tiny_bert,
        tmp_path,
        "1",
        train=train,
        evaluate={"train": train.select(range(128)), "val": text_pairs(128, seed=1)},
        max_steps=60,
        eval_steps=10,
        save_strategy="steps",
        save_steps=60,
    )
    trainer.train()
    curves = negwise.curves.read(tmp_path / "checkpoint-60" / "trainer_state.json")
    assert curves.val_steps.tolist() == curves.train_steps.tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert curves.val_auc.tolist() == [entry["eval_val_auc"] for entry in evals_of(trainer, "eval_val_auc")]
    assert curves.train_auc.tolist() == [entry["eval_train_auc"] for entry in evals_of(trainer, "eval_train_auc")]
    assert curves.val_queries.tolist() == [128] * 7 and curves.trained_k == (1, 1)
    estimate = negwise.curves.read(trainer.state.log_history).estimate()
    assert estimate.k == curves.estimate().k > 1 and estimate.interval is not None
    assert not any("trained with K" in reason for reason in estimate.reasons)


class GradNorm(TrainerCallback):
    """The gradient as the optimizer gets it."""

    def __init__(self):
        self.norms = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        del args, state, control
        self.norms.append(float(sum(p.grad.pow(2).sum() for p in model.parameters() if p.grad is not None)) ** 0.5)


def test_accumulation_is_one_step(tiny_bert, tmp_path):
    trainer = make_trainer(
        tiny_bert, tmp_path, "ans:9", max_steps=8, per_device_train_batch_size=16, gradient_accumulation_steps=2
    )
    norms = GradNorm()
    trainer.add_callback(norms)
    trainer.train()
    for step, entry in enumerate(steps_of(trainer)):
        assert entry["k"] == AnsK(9)(step / 7)
        assert entry["k_used"] == expected_k(AnsK(9), step, 8)
    # The same micro-batch twice is the same as once, in loss and gradient: both are means over micro-batches.
    data = text_pairs(16)
    twice = text_pairs(16).select([*range(16), *range(16)])
    found = []
    for rows, accumulation in ((data, 1), (twice, 2)):
        one = GradNorm()
        trainer = make_trainer(
            tiny_bert,
            tmp_path,
            "15",
            train=rows,
            max_steps=1,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=accumulation,
        )
        trainer.get_train_dataloader = lambda trainer=trainer, rows=rows: torch.utils.data.DataLoader(
            rows, batch_size=16, collate_fn=trainer.data_collator
        )
        trainer.add_callback(one)
        found.append((losses(trainer)[0], one.norms[0]))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_resume_is_exact_and_another_rule_is_refused(tiny_bert, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 14, "evaluate": text_pairs(64, seed=1), "max_steps": 30}
    whole = make_trainer(tiny_bert, tmp_path / "a", "online:0.3", **options)
    whole.train()
    again = make_trainer(tiny_bert, tmp_path / "a", "online:0.3", **options)
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-14"))
    assert [entry["k"] for entry in steps_of(again)] == [entry["k"] for entry in steps_of(whole)]
    assert [entry["loss"] for entry in steps_of(again)] == pytest.approx([e["loss"] for e in steps_of(whole)], rel=1e-4)
    assert [entry["step"] for entry in evals_of(again)] == [0, 12, 24, 30]  # not again at step 14
    state = json.loads((tmp_path / "a" / "checkpoint-14" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["negwise"]["rule"].startswith("OnlineK(reliability=0.3")
    other = make_trainer(tiny_bert, tmp_path / "a", "online:0.2", **options)
    with pytest.raises(InputError, match=r"made with rule OnlineK\(reliability=0.3.*Use the same rule to resume"):
        other.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-14"))


def test_callbacks_rebuilt_from_json_keep_the_rule(tiny_bert, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 12, "restore_callback_states_from_checkpoint": True}
    whole = make_trainer(tiny_bert, tmp_path, "online", **options)
    whole.train()
    again = make_trainer(tiny_bert, tmp_path, "online", **options)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    ks = [entry["k"] for entry in steps_of(again)]
    assert ks == [entry["k"] for entry in steps_of(whole)] and len(ks) == 24 and ks[-1] != ks[0]


def matryoshka(inner):
    return lambda model: MatryoshkaLoss(model, inner(model), [32, 16, 8])


@pytest.mark.parametrize("inner", [MultipleNegativesRankingLoss, cached])
def test_matryoshka_has_one_draw_a_batch(tiny_bert, tmp_path, inner):
    trainer = make_trainer(
        tiny_bert,
        tmp_path,
        "ans:9",
        make_loss=matryoshka(inner),
        max_steps=8,
        evaluate=text_pairs(64, seed=1),
        eval_steps=8,
    )
    trainer.train()
    for step, entry in enumerate(steps_of(trainer)):
        assert entry["k_used"] == expected_k(AnsK(9), step, 8)
    assert {entry["eval_auc_queries"] for entry in evals_of(trainer)} == {64}
    own = make_trainer(tiny_bert, tmp_path, None, make_loss=matryoshka(inner), max_steps=4)
    ours = make_trainer(tiny_bert, tmp_path, "31", make_loss=matryoshka(inner), max_steps=4)
    assert losses(ours) == pytest.approx(losses(own), rel=1e-4)


def test_plain_and_cached_keep_the_same_negatives(tiny_bert, tmp_path):
    plain, kept = (
        make_trainer(tiny_bert, tmp_path, "ans:9", make_loss=one, train=text_pairs(400, 1), max_steps=8)
        for one in (MultipleNegativesRankingLoss, cached)
    )
    assert losses(plain) == pytest.approx(losses(kept), rel=1e-3)


def test_an_empty_text_is_a_negative_that_is_not_there(tiny_bert, tmp_path):
    data = text_pairs(32, 2, ragged=True)
    given = sum(bool(text) for name in ("negative_1", "negative_2") for text in data[name])
    trainer = make_trainer(tiny_bert, tmp_path, "2", train=data, max_steps=1)
    trainer.train()
    assert steps_of(trainer)[0]["k_used"] == 2.0  # drawn ones take the places of missing ones
    with pytest.warns(UserWarning, match="K is 200 at step 0, and a row has 95 negatives.*the cached loss"):
        trainer = make_trainer(tiny_bert, tmp_path, "200", train=data, max_steps=1)
        trainer.train()
    assert steps_of(trainer)[0]["k_used"] == 31 + given
    with_prompt = make_trainer(
        tiny_bert,
        tmp_path,
        "94",
        train=data,
        max_steps=1,
        prompts={"negative_1": "word1 ", "negative_2": "word2 word3 "},
    )
    with_prompt.train()
    assert steps_of(with_prompt)[0]["k_used"] == pytest.approx(31 + given)


def test_equal_texts_are_no_negatives(tiny_bert, tmp_path):
    data = text_pairs(32)
    positives = list(data["positive"])
    positives[5] = positives[9] = positives[3]
    data = data.remove_columns("positive").add_column("positive", positives)
    trainer = make_trainer(tiny_bert, tmp_path, "31", train=data, max_steps=1)
    trainer.train()
    assert steps_of(trainer)[0]["k_used"] == 31 - 3 * 2 / 32


def test_several_data_sets(tiny_bert, tmp_path):
    data = {"pairs": text_pairs(320), "triplets": text_pairs(320, 1, seed=3)}
    trainer = make_trainer(
        tiny_bert,
        tmp_path,
        "ans:9",
        make_loss={"pairs": MultipleNegativesRankingLoss, "triplets": cached},
        train=data,
        evaluate={name: one.select(range(64)) for name, one in data.items()},
        max_steps=12,
    )
    trainer.train()
    for step, entry in enumerate(steps_of(trainer)):
        assert entry["k_used"] == expected_k(AnsK(9), step, 12)
    last = trainer.state.log_history
    assert {"eval_pairs_auc", "eval_triplets_auc"} <= {name for entry in last for name in entry}
    assert [e["eval_triplets_auc_pairs"] for e in last if "eval_triplets_auc_pairs" in e] == [64 * 63, 64 * 63]


def test_small_last_batches_count_by_row(tiny_bert, tmp_path):
    trainer = make_trainer(tiny_bert, tmp_path, "ans:9", train=text_pairs(40), max_steps=-1, num_train_epochs=2)
    trainer.train()
    steps = steps_of(trainer)
    assert len(steps) == 4
    for step, rows in enumerate((32, 8, 32, 8)):
        wanted = counts(AnsK(9)(step / 3), rows, Key(SEED, step)).clip(max=rows - 1)
        assert steps[step]["k_used"] == wanted.mean()


def test_what_has_no_k_is_refused(tiny_bert, tmp_path):
    with pytest.raises(InputError, match="loss is CoSENTLoss, and K is that of MultipleNegativesRankingLoss"):
        make_trainer(tiny_bert, tmp_path, "4", make_loss=CoSENTLoss)
    symmetric = lambda model: MultipleNegativesRankingLoss(  # noqa: E731
        model, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    )
    with pytest.raises(InputError, match=r"directions=\('query_to_doc', 'doc_to_query'\).*expected directions"):
        make_trainer(tiny_bert, tmp_path, "4", make_loss=symmetric)
    with pytest.raises(InputError, match=r"similarity_fct=.*expected cos_sim or dot_score"):
        make_trainer(
            tiny_bert,
            tmp_path,
            "4",
            make_loss=lambda m: MultipleNegativesRankingLoss(m, similarity_fct=pairwise_cos_sim),
        )
    trainer = make_trainer(
        tiny_bert, tmp_path, "4", make_loss=lambda m: MultipleNegativesRankingLoss(m, 1.0, similarity_fct=dot_score)
    )
    with pytest.raises(InputError, match="attach was called twice"):
        attach(trainer, "4")
    with pytest.raises(InputError, match="attach got a int, expected a SentenceTransformerTrainer"):
        attach(4)
    with pytest.raises(InputError, match="cannot read K from 'onlin'"):
        make_trainer(tiny_bert, tmp_path, "onlin")


def test_a_loss_that_would_not_be_told_k_is_refused(tiny_bert, tmp_path):
    trainer = make_trainer(tiny_bert, tmp_path, max_steps=2)
    attach_scores(trainer, "4")
    with pytest.raises(InputError, match=r"did not use the one that attach .*integrations.sentence_transformers"):
        trainer.train()
    with pytest.raises(InputError, match="the data has one column of texts; expected two or more"):
        make_trainer(tiny_bert, tmp_path, "4", train=text_pairs(64).select_columns("anchor"), max_steps=1).train()


def test_what_is_found_in_texts_is_read_after_the_encoder_ran(tiny_bert, tmp_path, monkeypatch):
    trainer, order = make_trainer(tiny_bert, tmp_path, "4", max_steps=1), []
    own = HostCopy.values.fget
    monkeypatch.setattr(HostCopy, "values", property(lambda copy: (order.append("read"), own(copy))[1]))
    trainer.model.register_forward_hook(lambda *_: order.append("encoded"))
    trainer.train()
    assert order == ["encoded", "encoded", "read"]


@pytest.mark.parametrize("make_loss", [MultipleNegativesRankingLoss, cached, matryoshka(MultipleNegativesRankingLoss)])
def test_outputs_of_a_batch_are_not_kept_into_the_next(tiny_bert, tmp_path, make_loss):
    trainer = make_trainer(
        tiny_bert, tmp_path, "online", make_loss=make_loss, evaluate=text_pairs(64), max_steps=4, eval_steps=4
    )
    outputs, alive = [], []

    class Looks(TrainerCallback):
        def on_step_end(self, *_, **__):
            alive.append(sum(one() is not None for one in outputs))

        on_prediction_step = on_step_end

    trainer.add_callback(Looks())
    trainer.model.register_forward_hook(lambda *told: outputs.append(weakref.ref(told[-1]["sentence_embedding"])))
    trainer.train()
    assert len(outputs) >= 2 * len(alive) == 2 * (4 + 2 * 2) and not any(alive)


def test_a_loss_of_the_last_steps_that_is_not_finite_is_told_at_the_end(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr("negwise.integrations.batch_loss.check_finite", lambda *_: None)  # as on a GPU
    trainer = make_trainer(tiny_bert, tmp_path, "31", max_steps=2, logging_steps=100)
    torch.nn.init.constant_(next(trainer.model.parameters()), torch.nan)
    with pytest.raises(InputError, match="is not finite: a vector is not finite"):
        trainer.train()


def test_a_loss_alone_and_in_matryoshka_counts_a_batch_once(tiny_bert, tmp_path):
    class Both:
        """Makes the loss once, for one data set, and puts it into Matryoshka for the other."""

        def alone(self, model):
            self.loss = MultipleNegativesRankingLoss(model)
            return self.loss

        def inside(self, model):
            return MatryoshkaLoss(model, self.loss, [32, 16, 8])

    both, data = Both(), {"a": text_pairs(64), "b": text_pairs(64, seed=1)}
    options = {"evaluate": data, "max_steps": 2, "eval_steps": 2, "train": data}
    trainer = make_trainer(tiny_bert, tmp_path, "4", make_loss={"a": both.alone, "b": both.inside}, **options)
    trainer.train()
    for name in data:
        assert {entry[f"eval_{name}_auc_queries"] for entry in evals_of(trainer, f"eval_{name}_auc")} == {64}


def test_a_run_folder_is_not_written_over(tiny_bert, tmp_path):
    make_trainer(tiny_bert, tmp_path, "4", run=tmp_path / "run", max_steps=2).train()
    with pytest.raises(InputError, match=r"holds the run.jsonl of a run, and this one is new"):
        make_trainer(tiny_bert, tmp_path, "4", run=tmp_path / "run", max_steps=2).train()
