"""Matryoshka losses that take some of their widths at random."""

import pytest
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from sentence_world import make_trainer, steps_of
from tiny_bert import text_pairs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*use_reentrant.*")]


def cached(model):
    return CachedMultipleNegativesRankingLoss(model, mini_batch_size=8)


@pytest.mark.parametrize("inner", [MultipleNegativesRankingLoss, cached])
def test_matryoshka_that_samples_its_widths_counts_at_the_full_one(tiny_bert, tmp_path, inner):
    def sampled(model):
        return MatryoshkaLoss(model, inner(model), [32, 16, 8], n_dims_per_step=1)

    found = []
    for make_loss in (inner, sampled, sampled, sampled):
        trainer = make_trainer(tiny_bert, tmp_path, "5.5", make_loss=make_loss, max_steps=1)
        trainer.train()
        found.append(steps_of(trainer)[0])
    assert len({entry["win_rate"] for entry in found}) == 1 and len({entry["k_used"] for entry in found}) == 1
    evals = [
        make_trainer(tiny_bert, tmp_path, "4", make_loss=one, evaluate=text_pairs(32, seed=1)).evaluate()
        for one in (inner, sampled, sampled, sampled)
    ]
    assert len({round(entry["eval_auc"], 6) for entry in evals}) == 1
    assert {entry["eval_auc_queries"] for entry in evals} == {32}
