"""The recipe for FlagEmbedding: the drop-in in the place of its cross-entropy."""

import pytest
import torch

pytest.importorskip("FlagEmbedding")

from FlagEmbedding.finetune.embedder.encoder_only.base import BiEncoderOnlyEmbedderModel, EncoderOnlyEmbedderTrainer
from tiny_bert import text_pairs
from transformers import AutoModel, AutoTokenizer, TrainingArguments

from negwise.draws import Key, counts
from negwise.integrations import KCrossEntropy
from negwise.integrations.transformers import attach
from negwise.schedule import AnsK

pytestmark = pytest.mark.slow
GROUP, BATCH = 3, 16  # train_group_size: the positive and two given negatives


def make_trainer(bert, out, rule, steps=10):
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    model = BiEncoderOnlyEmbedderModel(
        AutoModel.from_pretrained(bert), tokenizer, temperature=0.05, normalize_embeddings=True
    )
    if rule is not None:
        model.cross_entropy = KCrossEntropy(given=GROUP - 1)

    def collate(rows):
        queries = tokenizer([row["anchor"] for row in rows], padding=True, return_tensors="pt")
        names = ("positive", "negative_1", "negative_2")
        passages = tokenizer([row[name] for row in rows for name in names], padding=True, return_tensors="pt")
        return {"queries": dict(queries), "passages": dict(passages)}

    args = TrainingArguments(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        logging_steps=1,
        learning_rate=1e-3,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    trainer = EncoderOnlyEmbedderTrainer(
        model=model, args=args, train_dataset=text_pairs(400, GROUP - 1), data_collator=collate, tokenizer=tokenizer
    )
    if rule is not None:
        attach(trainer, rule)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_all_negatives_are_its_own_loss(tiny_bert, tmp_path):
    ours, own = make_trainer(tiny_bert, tmp_path, str(BATCH * GROUP - 1)), make_trainer(tiny_bert, tmp_path, None)
    assert [entry["loss"] for entry in ours] == pytest.approx([entry["loss"] for entry in own], rel=1e-4)


def test_k_is_that_of_the_very_step(tiny_bert, tmp_path):
    for step, entry in enumerate(make_trainer(tiny_bert, tmp_path, "ans:9")):
        k = AnsK(9)(step / 9)
        assert entry["k"] == k and entry["k_used"] == counts(k, BATCH, Key(42, step)).mean()


def test_online_keeps_the_given_ones_besides(tiny_bert, tmp_path):
    logs = make_trainer(tiny_bert, tmp_path, "online", steps=12)
    assert logs[0]["k"] == 4.0 and logs[0]["k_used"] == 4.0 + GROUP - 1
    assert logs[-1]["k"] != 4.0
