"""A random BERT of two layers with its tokenizer, and pairs of texts that it can learn to match."""

import random

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from datasets import Dataset

TOPICS = 40
WORDS = [f"{side}{topic}" for side in ("ask", "say") for topic in range(TOPICS)] + [f"word{i}" for i in range(60)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def save_tiny_bert(folder):
    """A folder that transformers and sentence-transformers load."""
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **names)
    fast.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    import torch

    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return str(folder)


def text_pairs(rows, negatives=0, seed=0, ragged=False):
    """Texts about one of 40 topics, and answers about the same topic; further columns are about another one."""
    rng = random.Random(seed)

    def text(side, topic):
        words = [f"{side}{topic}", *rng.choices(WORDS[-60:], k=rng.randint(3, 6))]
        rng.shuffle(words)
        return " ".join(words)

    topics = [rng.randrange(TOPICS) for _ in range(rows)]
    data = {"anchor": [text("ask", topic) for topic in topics], "positive": [text("say", topic) for topic in topics]}
    for number in range(negatives):
        others = [(topic + rng.randrange(1, TOPICS)) % TOPICS for topic in topics]
        data[f"negative_{number + 1}"] = [
            "" if ragged and rng.random() < 0.4 else text("say", topic) for topic in others
        ]
    return Dataset.from_dict(data)
