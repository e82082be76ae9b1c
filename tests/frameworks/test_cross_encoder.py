"""`attach` for a CrossEncoderTrainer, with the real framework."""

import pytest
import torch
from cross_world import all_negatives, evals_of, make_trainer, steps_of
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, MultipleNegativesRankingLoss
from tiny_bert import text_pairs
from transformers import TrainerCallback

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.integrations.cross_encoder import attach
from negwise.losses import info_nce_scores
from negwise.schedule import AnsK


@pytest.mark.parametrize("negatives", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_with_all_negatives_it_is_the_frameworks_own_loss(tiny_bert, tmp_path, negatives):
    data = text_pairs(96, negatives)
    options = {"train": data, "make_loss": all_negatives, "max_steps": 3}
    own = make_trainer(tiny_bert, tmp_path, None, **options)
    ours = make_trainer(tiny_bert, tmp_path, str(15 + 16 * negatives), **options)
    for trainer in (own, ours):
        trainer.train()
    assert [e["loss"] for e in steps_of(ours)] == pytest.approx([e["loss"] for e in steps_of(own)], rel=1e-4)


@pytest.mark.parametrize("workers", [0, 2])
def test_only_the_kept_pairs_are_scored(tiny_bert, tmp_path, workers):
    trainer = make_trainer(tiny_bert, tmp_path, "ans:5", dataloader_num_workers=workers)
    scored, own = [], trainer.loss.call_model_with_pairs
    trainer.loss.call_model_with_pairs = lambda pairs, **options: (scored.append(len(pairs)), own(pairs, **options))[1]
    trainer.train()
    expected = [counts(AnsK(5)(step / 5), 16, Key(42, step)) for step in range(6)]
    assert [e["k_used"] for e in steps_of(trainer)] == [one.mean() for one in expected]
    assert sum(scored) == sum(16 + one.sum() for one in expected)


def test_loss_is_info_nce_over_the_scored_pairs(tiny_bert, tmp_path):
    trainer = make_trainer(tiny_bert, tmp_path, "2.5", train=text_pairs(16, 1), max_steps=1)
    seen, own = [], trainer.loss.call_model_with_pairs

    def watch(pairs, **options):
        scores = own(pairs, **options)
        seen.extend(zip(pairs, trainer.loss.scale * trainer.loss.activation_fn(scores.detach()), strict=True))
        return scores

    trainer.loss.call_model_with_pairs = watch
    trainer.train()
    losses = []
    for query, _ in (pair for pair, _ in seen[:16]):
        of_row = torch.stack([score for pair, score in seen if pair[0] == query])  # the positive comes first
        losses.append(info_nce_scores(of_row[:1], of_row[None, 1:]).loss)
    assert steps_of(trainer)[0]["loss"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-4)


class GradNorm(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        del args, state, control
        self.norm = float(sum(p.grad.pow(2).sum() for p in model.parameters() if p.grad is not None)) ** 0.5


def test_accumulated_gradients_are_a_mean(tiny_bert, tmp_path):
    data, found = text_pairs(8), []
    for rows, accumulation in ((data, 1), (data.select([*range(8), *range(8)]), 2)):
        trainer = make_trainer(
            tiny_bert, tmp_path, "7", max_steps=1, train=rows, gradient_accumulation_steps=accumulation
        )
        trainer.get_train_dataloader = lambda trainer=trainer, rows=rows: torch.utils.data.DataLoader(
            rows, batch_size=8, collate_fn=trainer.data_collator
        )
        trainer.add_callback(norm := GradNorm())
        trainer.train()
        found.append((steps_of(trainer)[0]["loss"], norm.norm))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_more_than_there_is_is_said(tiny_bert, tmp_path):
    with pytest.warns(UserWarning, match=r"a row has 15 negatives to draw from.*For more use a larger batch$"):
        make_trainer(tiny_bert, tmp_path, "20", max_steps=1).train()


def test_given_first_missing_and_equal_texts(tiny_bert, tmp_path):
    data = text_pairs(16, 1, ragged=True)
    given = sum(map(bool, data["negative_1"]))
    trainer = make_trainer(tiny_bert, tmp_path, "1", train=data, max_steps=1)
    seen, own = [], trainer.loss.call_model_with_pairs
    trainer.loss.call_model_with_pairs = lambda pairs, **options: (seen.extend(pairs), own(pairs, **options))[1]
    trainer.train()
    own_negative = dict(zip(data["anchor"], data["negative_1"], strict=True))
    chosen = seen[16:]
    assert len(chosen) == 16 and "" not in [text for _, text in chosen]
    assert sum(own_negative[query] == text for query, text in chosen) == given
    positives = list(data["positive"])
    positives[5] = positives[3]
    data = text_pairs(16).remove_columns("positive").add_column("positive", positives)
    trainer = make_trainer(tiny_bert, tmp_path, "15", train=data, max_steps=1)
    trainer.train()
    assert steps_of(trainer)[0]["k_used"] == (14 * 15 + 2 * 14) / 16


def test_online_k_auc_resume_and_page(tiny_bert, tmp_path):
    options = {"evaluate": text_pairs(64, seed=1), "max_steps": 12, "save_strategy": "steps", "save_steps": 6}
    trainer = make_trainer(tiny_bert, tmp_path / "out", "online", run=tmp_path / "run", learning_rate=3e-3, **options)
    trainer.train()
    evals = evals_of(trainer)
    assert [entry["step"] for entry in evals] == [0, 6, 12]
    assert {entry["eval_auc_pairs"] for entry in evals} == {64 * 4} and evals[0]["eval_auc_queries"] == 64
    from negwise.report.write_report import write_report

    assert "online" in write_report([tmp_path / "run"]).read_text()
    again = make_trainer(tiny_bert, tmp_path / "out", "online", learning_rate=3e-3, **options)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-6"))
    assert [e["k"] for e in steps_of(again)] == [e["k"] for e in steps_of(trainer)]
    other = make_trainer(tiny_bert, tmp_path / "out", "4", **options)
    with pytest.raises(InputError, match="Use the same rule to resume"):
        other.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-6"))


def test_accumulation_is_one_step(tiny_bert, tmp_path):
    trainer = make_trainer(
        tiny_bert, tmp_path, "2.5", max_steps=2, per_device_train_batch_size=8, gradient_accumulation_steps=2
    )
    trainer.train()
    for step, entry in enumerate(steps_of(trainer)):
        assert entry["k_used"] == counts(2.5, 16, Key(42, step)).mean()


@pytest.mark.slow
def test_a_model_that_improves(tiny_bert, tmp_path):
    def with_questions(rows, seed):
        """Given negatives are questions, not answers: a random BERT learns to tell them apart in a few steps."""
        data = text_pairs(rows, seed=seed)
        return data.add_column("negative", [data["anchor"][(row + 7) % rows] for row in range(rows)])

    trainer = make_trainer(
        tiny_bert,
        tmp_path,
        "online",
        train=with_questions(400, 0),
        evaluate=with_questions(96, 1),
        make_loss=lambda model: MultipleNegativesRankingLoss(model, num_negatives=1),
        max_steps=60,
        eval_steps=30,
        learning_rate=3e-3,
    )
    trainer.train()
    evals = evals_of(trainer)
    assert evals[0]["eval_auc"] < 0.6 and evals[-1]["eval_auc"] > evals[0]["eval_auc"] + 0.1


def test_what_has_no_k_is_refused(tiny_bert, tmp_path):
    with pytest.raises(InputError, match="loss is BinaryCrossEntropyLoss, and K is that of"):
        make_trainer(tiny_bert, tmp_path, "4", make_loss=BinaryCrossEntropyLoss)
    with pytest.raises(InputError, match="attach got a int, expected a CrossEncoderTrainer"):
        attach(4)
