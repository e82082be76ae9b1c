"""What the paper says about its models, and what it leaves out, both as data. The models' defaults come from here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperSettings:
    """One column of the paper's table of hyper-parameters; 0 where it has a dash."""

    heads: int
    head_dim: int
    hidden: int
    dropout: float
    optimizer: str
    learning_rate: float
    batch_size: int
    epochs: int


NRMS = PaperSettings(16, 16, 256, 0.2, "Adam", 1e-4, 32, 2)
LSTUR = PaperSettings(0, 0, 256, 0.2, "Adam", 1e-4, 32, 3)
NAML = PaperSettings(0, 0, 256, 0.2, "Adam", 1e-4, 32, 2)
SIAMESE_TRANSFORMER = PaperSettings(16, 16, 256, 0.2, "Adam", 1e-4, 32, 5)
SIAMESE_CNN = PaperSettings(0, 0, 256, 0.2, "Adam", 1e-4, 32, 6)
SIAMESE_LSTM = PaperSettings(0, 0, 256, 0.2, "Adam", 1e-4, 32, 6)
BERT4REC = PaperSettings(2, 32, 64, 0.2, "Adam", 1e-4, 128, 50)

PAPER = {
    "nrms": NRMS,
    "lstur": LSTUR,
    "naml": NAML,
    "siamese-transformer": SIAMESE_TRANSFORMER,
    "siamese-cnn": SIAMESE_CNN,
    "siamese-lstm": SIAMESE_LSTM,
    "bert4rec": BERT4REC,
}
"""The paper's table, by the names that `negwise.models.build` takes, in the order of its columns."""

# What the paper leaves out; CHOICES has the reasons.
EMBEDDING_WIDTH = 300
EMBEDDING_STD = 0.1
POOLING_WIDTH = 200
CNN_WINDOW = 3
CATEGORY_WIDTH = 100
USER_VARIANT = "ini"
USER_MASK_RATE = 0.5
TEXT_LAYERS = 2
INNER_RATIO = 4
TEXT_TEMPERATURE = 0.1
BERT4REC_LAYERS = 2
BERT4REC_STD = 0.02
BERT4REC_MAX_LENGTH = 200
BERT4REC_MASK_RATE = 0.2
BERT4REC_LAST_RATE = 1 / 11
TITLE_WORDS = 30
BODY_WORDS = 100
HISTORY = 50

_NEWS = ("nrms", "naml", "lstur")
_SIAMESE = ("siamese-transformer", "siamese-cnn", "siamese-lstm")
_TEXT = _NEWS + _SIAMESE
_CNN = ("naml", "lstur", "siamese-cnn")


@dataclass(frozen=True)
class Choice:
    """Something the paper leaves out: what it is, for which models, our value and why."""

    what: str
    models: tuple[str, ...]
    value: str
    why: str


CHOICES = (
    Choice(
        "width of word embeddings",
        _TEXT,
        f"{EMBEDDING_WIDTH}, or that of the vectors loaded",
        "that of the 300d GloVe vectors that the NAML authors' code loads; the NRMS authors' code has 300 too",
    ),
    Choice(
        "embeddings of words and categories at the start",
        _TEXT,
        f"normal, std {EMBEDDING_STD}; with vectors, words not found follow the found ones' mean and std per column",
        "a missing word should look like a word, not stand out by its length",
    ),
    Choice(
        "weights at the start",
        _TEXT,
        "Glorot uniform, recurrent ones orthogonal, biases 0, but 1 for the forget gate of the LSTM",
        "the defaults of Keras, which the paper used",
    ),
    Choice(
        "places of dropout",
        _TEXT,
        "on the words' vectors, and before additive attention over words or (NRMS) over self-attended news; in "
        "the Transformer also on the attention's weights and on what each part adds",
        "where the NRMS authors' code has it; in the Transformer, where BERT has it",
    ),
    Choice(
        "width inside additive attention",
        _TEXT,
        str(POOLING_WIDTH),
        "that of the NRMS authors' code, of NAML in microsoft/recommenders and of LSTUR in newsreclib",
    ),
    Choice(
        "scores of self-attention",
        ("nrms",),
        "products of two projections over the square root of the head size, no biases",
        "the NRMS authors' code",
    ),
    Choice(
        "window of the CNN", _CNN, str(CNN_WINDOW), "that of NAML in microsoft/recommenders and of LSTUR in newsreclib"
    ),
    Choice(
        "width of category embeddings",
        ("naml", "lstur"),
        str(CATEGORY_WIDTH),
        "that of NAML in microsoft/recommenders and of LSTUR in newsreclib; in LSTUR they join the title's vector, "
        "so that D = 256 + 2 * 100",
    ),
    Choice(
        "variant of LSTUR",
        ("lstur",),
        USER_VARIANT,
        "its paper has both; a reader without history then is the long-term vector itself, with no special case",
    ),
    Choice(
        "reset gate of the GRU",
        ("lstur",),
        "applied after the product with the state's weights",
        "the GRU of PyTorch and cuDNN, which runs a whole history in one call",
    ),
    Choice(
        "masking of the long-term user vector",
        ("lstur",),
        f"with probability {USER_MASK_RATE} in training; vectors start at 0",
        "newsreclib's rate (other code has 0.1); starting at 0, as in microsoft/recommenders, a user never trained "
        "on is a masked one",
    ),
    Choice(
        "a news item without abstract or category",
        ("naml",),
        "that view takes no part in the attention over views",
        "a zero vector in its place would still take its share of the weight",
    ),
    Choice(
        "an empty history",
        ("nrms", "naml"),
        "the zero vector: all candidates tie",
        "nothing is known of the reader; a made-up history would look like knowledge",
    ),
    Choice(
        "layers, inner width, order of normalisation",
        ("siamese-transformer",),
        f"words projected to 256, {TEXT_LAYERS} layers, {INNER_RATIO} x 256, ReLU, normalised after each part",
        "the layer of Vaswani et al. 2017, with the fewest layers in which one reads what another wrote",
    ),
    Choice(
        "positions of words",
        ("siamese-transformer",),
        "sinusoids",
        "no weights, so that a checkpoint serves texts of any length",
    ),
    Choice(
        "pooling of a text",
        _SIAMESE,
        "additive attention",
        "that of the news models, so that the three differ in the layer that reads the words and in nothing else",
    ),
    Choice(
        "activation of the CNN",
        ("siamese-cnn",),
        "GELU (the news models have ReLU, as NAML in microsoft/recommenders)",
        "with ReLU a text of a word or two can become the zero vector, which has no gradient back",
    ),
    Choice(
        "direction of the LSTM", ("siamese-lstm",), "one", "256 units are D, and padding on the right cannot be seen"
    ),
    Choice(
        "score of two texts",
        _SIAMESE,
        f"cosine / {TEXT_TEMPERATURE}",
        "bounded, so that long vectors cannot saturate the softmax; None gives the plain dot product",
    ),
    Choice(
        "layers, inner width, activation, order of normalisation",
        ("bert4rec",),
        f"{BERT4REC_LAYERS} layers, {INNER_RATIO} x 64, GELU, normalised after each part, and queries once more",
        "the BERT4Rec authors' code and its settings for ML-1M",
    ),
    Choice(
        "weights at the start",
        ("bert4rec",),
        f"normal, std {BERT4REC_STD}, cut at two std; biases 0",
        "the BERT4Rec authors' code: TensorFlow's truncated normal",
    ),
    Choice(
        "length of a sequence",
        ("bert4rec",),
        f"{BERT4REC_MAX_LENGTH} items, and a place for the mask of the next one",
        "the BERT4Rec authors' settings for ML-1M, where the mask is one of the 200",
    ),
    Choice(
        "positions of items",
        ("bert4rec",),
        "learned, counted from the end",
        "the next item then always has the same position, and padding on either side cannot be seen",
    ),
    Choice("share of items masked", ("bert4rec",), str(BERT4REC_MASK_RATE), "the BERT4Rec authors' settings for ML-1M"),
    Choice(
        "rows with only the last item masked",
        ("bert4rec",),
        "1 in 11",
        "its authors' code makes ten random maskings of a sequence and one of its last item",
    ),
    Choice(
        "bias of an item",
        ("bert4rec",),
        "none of its own, which the authors' code has",
        "scores are dot products; the last normalisation adds the same vector b to every query, and e . b is a bias "
        "of item e",
    ),
    Choice(
        "words and clicks kept",
        _TEXT,
        f"titles {TITLE_WORDS}, abstracts and bodies {BODY_WORDS}, histories {HISTORY}",
        "titles and histories as in the NRMS authors' code; 100 words held 99.7% of 1,901 of MIND's abstracts whole; "
        "the data decides, the models take any length",
    ),
)
"""What the paper leaves out."""
