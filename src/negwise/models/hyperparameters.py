"""The hyper-parameters that the paper gives, and our choices for those it leaves open. The models' defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperSettings:
    """One column of the paper's table of hyper-parameters; 0 for a dash."""

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
"""The paper's table by the model names of `negwise.models.build`, in the order of its columns."""

# What the paper leaves open. CHOICES has the reasons.
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
class OpenChoice:
    """A hyper-parameter that the paper leaves open: what it is, for which models, our value and why."""

    what: str
    models: tuple[str, ...]
    value: str
    why: str


CHOICES = (
    OpenChoice(
        "width of word embeddings",
        _TEXT,
        f"{EMBEDDING_WIDTH}, or the width of the loaded vectors",
        "the width of the GloVe vectors that the NAML authors' code loads; the NRMS authors' code has 300 too",
    ),
    OpenChoice(
        "initial embeddings of words and categories",
        _TEXT,
        f"normal, std {EMBEDDING_STD}; with loaded vectors, missing words follow the mean and std of each column",
        "a missing word should look like other words and not differ in length",
    ),
    OpenChoice(
        "initial weights",
        _TEXT,
        "Glorot uniform; recurrent weights orthogonal; biases 0, but 1 for the forget gate of the LSTM",
        "the defaults of Keras, which the paper used",
    ),
    OpenChoice(
        "positions of dropout",
        _TEXT,
        "on word vectors, and before additive attention over words or (NRMS) over self-attended news; in the "
        "Transformer also on attention weights and on each sublayer's output",
        "as in the NRMS authors' code; in the Transformer as in BERT",
    ),
    OpenChoice(
        "width inside additive attention",
        _TEXT,
        str(POOLING_WIDTH),
        "as in the NRMS authors' code, in NAML of microsoft/recommenders and in LSTUR of newsreclib",
    ),
    OpenChoice(
        "scores of self-attention",
        ("nrms",),
        "dot products of two projections divided by the square root of the head size, no biases",
        "the NRMS authors' code",
    ),
    OpenChoice(
        "window of the CNN", _CNN, str(CNN_WINDOW), "as in NAML of microsoft/recommenders and in LSTUR of newsreclib"
    ),
    OpenChoice(
        "width of category embeddings",
        ("naml", "lstur"),
        str(CATEGORY_WIDTH),
        "as in NAML of microsoft/recommenders and in LSTUR of newsreclib; in LSTUR they are concatenated with the "
        "title's vector, so that D = 256 + 2 * 100",
    ),
    OpenChoice(
        "variant of LSTUR",
        ("lstur",),
        USER_VARIANT,
        "its paper has both; with this one a user without history is the long-term vector, without a special case",
    ),
    OpenChoice(
        "reset gate of the GRU",
        ("lstur",),
        "applied after the product of weights and state",
        "as in PyTorch and cuDNN, which run a whole history in one call",
    ),
    OpenChoice(
        "masking of the long-term user vector",
        ("lstur",),
        f"with probability {USER_MASK_RATE} in training; initial vectors are 0",
        "newsreclib's rate (other code has 0.1); with initial vectors of 0, as in microsoft/recommenders, a user "
        "unseen in training equals a masked user",
    ),
    OpenChoice(
        "a news item without abstract or category",
        ("naml",),
        "the attention over views masks that view",
        "a zero vector instead would still get attention weight",
    ),
    OpenChoice(
        "an empty history",
        ("nrms", "naml"),
        "the zero vector: all candidates tie",
        "nothing is known about the user; an invented history would look like data",
    ),
    OpenChoice(
        "layers, inner width, order of normalisation",
        ("siamese-transformer",),
        f"words projected to 256, {TEXT_LAYERS} layers, {INNER_RATIO} x 256, ReLU, post-norm",
        "the layer of Vaswani et al. 2017, with the fewest layers at which one uses the output of another",
    ),
    OpenChoice(
        "positions of words",
        ("siamese-transformer",),
        "sinusoids",
        "no weights, so that a checkpoint works for texts of any length",
    ),
    OpenChoice(
        "pooling of a text",
        _SIAMESE,
        "additive attention",
        "as in the news models, so that the three siamese models differ only in the layer over words",
    ),
    OpenChoice(
        "activation of the CNN",
        ("siamese-cnn",),
        "GELU (the news models have ReLU, as in NAML of microsoft/recommenders)",
        "with ReLU a text of one or two words can become the zero vector, which has no gradient",
    ),
    OpenChoice(
        "direction of the LSTM", ("siamese-lstm",), "one", "256 units are D, and padding on the right changes no state"
    ),
    OpenChoice(
        "score of two texts",
        _SIAMESE,
        f"cosine / {TEXT_TEMPERATURE}",
        "bounded, so that long vectors cannot saturate the softmax; temperature=None gives the plain dot product",
    ),
    OpenChoice(
        "layers, inner width, activation, order of normalisation",
        ("bert4rec",),
        f"{BERT4REC_LAYERS} layers, {INNER_RATIO} x 64, GELU, post-norm, and one more layer norm on queries",
        "the BERT4Rec authors' code and its settings for ML-1M",
    ),
    OpenChoice(
        "initial weights",
        ("bert4rec",),
        f"normal, std {BERT4REC_STD}, truncated at two std; biases 0",
        "the BERT4Rec authors' code: TensorFlow's truncated normal",
    ),
    OpenChoice(
        "length of a sequence",
        ("bert4rec",),
        f"{BERT4REC_MAX_LENGTH} items, and one position for the mask of the next item",
        "the BERT4Rec authors' settings for ML-1M, where the mask is one of the 200",
    ),
    OpenChoice(
        "positions of items",
        ("bert4rec",),
        "learned, counted from the end",
        "the next item then always has the same position, and padding on either side changes nothing",
    ),
    OpenChoice(
        "share of items masked", ("bert4rec",), str(BERT4REC_MASK_RATE), "the BERT4Rec authors' settings for ML-1M"
    ),
    OpenChoice(
        "rows with only the last item masked",
        ("bert4rec",),
        "1 in 11",
        "the authors' code masks each sequence ten times at random and once at its last item",
    ),
    OpenChoice(
        "bias of an item",
        ("bert4rec",),
        "none (the authors' code has one)",
        "scores are dot products; the last layer norm adds the same vector b to every query, and e . b acts as the "
        "bias of item e",
    ),
    OpenChoice(
        "words and clicks kept",
        _TEXT,
        f"titles {TITLE_WORDS}, abstracts and bodies {BODY_WORDS}, histories {HISTORY}",
        "titles and histories as in the NRMS authors' code; 100 words kept 99.7% of 1,901 MIND abstracts whole; set "
        "by the data, as the models take any length",
    ),
)
"""What the paper leaves open."""
