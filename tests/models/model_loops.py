"""The seven models once more, in NumPy: one row at a time, padding cut off rather than masked, layers as loops."""

import math

import numpy as np


def softmax(scores):
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def additive(x, w, at):
    """Weighted mean of the rows of x, weights softmax(q . tanh(W x + b)); nothing gives 0."""
    if len(x) == 0:
        return np.zeros(x.shape[1])
    scores = [float(w[f"{at}.query.weight"][0] @ np.tanh(affine(row, w, f"{at}.inner"))) for row in x]
    return sum(weight * row for weight, row in zip(softmax(scores), x, strict=True))


def affine(row, w, at):
    return w[f"{at}.weight"] @ row + w.get(f"{at}.bias", 0)


def self_attention(x, w, at, heads):
    """Heads and places one by one; weights stacked as all queries, all keys, all values."""
    stacked = [affine(row, w, f"{at}.projections") for row in x]
    width = len(stacked[0]) // 3 if stacked else 0
    head = width // heads
    out = np.zeros((len(x), width))
    for h in range(heads):
        part = [[row[kind * width + h * head : kind * width + (h + 1) * head] for row in stacked] for kind in range(3)]
        for i, query in enumerate(part[0]):
            weights = softmax([float(query @ key) / math.sqrt(head) for key in part[1]])
            out[i, h * head : (h + 1) * head] = sum(
                weight * value for weight, value in zip(weights, part[2], strict=True)
            )
    return out


def normalise(row, w, at):
    centred = row - row.mean()
    return centred / math.sqrt((centred**2).mean() + 1e-5) * w[f"{at}.weight"] + w[f"{at}.bias"]


def gelu(row):
    return np.array([value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in row])


def transformer(x, w, at, heads, layers, activation):
    x = [normalise(row, w, f"{at}.norm") for row in x]
    for number in range(layers):
        layer = f"{at}.layers.{number}"
        read = self_attention(x, w, f"{layer}.attention", heads)
        x = [
            normalise(row + affine(other, w, f"{layer}.output"), w, f"{layer}.attention_norm")
            for row, other in zip(x, read, strict=True)
        ]
        inner = [affine(activation(affine(row, w, f"{layer}.widen")), w, f"{layer}.narrow") for row in x]
        x = [normalise(row + other, w, f"{layer}.inner_norm") for row, other in zip(x, inner, strict=True)]
    return np.array(x)


def convolution(x, w, at, activation=lambda row: np.maximum(row, 0)):
    kernel, bias = w[f"{at}.convolution.weight"], w[f"{at}.convolution.bias"]
    reach = kernel.shape[2] // 2
    out = np.tile(bias, (len(x), 1))
    for i in range(len(x)):
        for step in range(-reach, reach + 1):
            if 0 <= i + step < len(x):
                out[i] += kernel[:, :, step + reach] @ x[i + step]
    return np.array([activation(row) for row in out]).reshape(out.shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, w, at):
    hidden = w[f"{at}.lstm.weight_hh_l0"].shape[1]
    state, cell, out = np.zeros(hidden), np.zeros(hidden), []
    for row in x:
        gates = (
            w[f"{at}.lstm.weight_ih_l0"] @ row
            + w[f"{at}.lstm.bias_ih_l0"]
            + w[f"{at}.lstm.weight_hh_l0"] @ state
            + w[f"{at}.lstm.bias_hh_l0"]
        )
        into, forget, new, outof = np.split(gates, 4)
        cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(new)
        state = sigmoid(outof) * np.tanh(cell)
        out.append(state)
    return np.array(out).reshape(-1, hidden)


def gru(x, w, at, state):
    for row in x:
        reset_x, keep_x, new_x = np.split(w[f"{at}.gru.weight_ih_l0"] @ row + w[f"{at}.gru.bias_ih_l0"], 3)
        reset_h, keep_h, new_h = np.split(w[f"{at}.gru.weight_hh_l0"] @ state + w[f"{at}.gru.bias_hh_l0"], 3)
        keep = sigmoid(keep_x + keep_h)
        state = (1 - keep) * np.tanh(new_x + sigmoid(reset_x + reset_h) * new_h) + keep * state
    return state


def words(tokens, w):
    """The vectors of a text's words; its padding is gone."""
    return w["words.embedding.weight"][tokens[tokens != 0]]


def positions(places, width):
    table = np.zeros((places, width))
    for place in range(places):
        for i in range(width // 2):
            angle = place / 10_000 ** (2 * i / width)
            table[place, i], table[place, width // 2 + i] = math.sin(angle), math.cos(angle)
    return table


def text(case, tokens, w, temperature):
    x = words(tokens, w)
    if case == "siamese-transformer":
        if len(x):
            projected = np.array([affine(row, w, "encoder.context.project") for row in x])
            width = projected.shape[1]
            projected = math.sqrt(width) * projected + positions(len(x), width)
            x = transformer(projected, w, "encoder.context.transformer", 2, 2, lambda row: np.maximum(row, 0))
        else:
            x = np.zeros((0, w["encoder.pooling.inner.weight"].shape[1]))
    elif case == "siamese-lstm":
        x = lstm(x, w, "encoder.context")
    else:
        x = convolution(x, w, "encoder.context", gelu)
    vector = additive(x, w, "encoder.pooling")
    length = math.sqrt(float(vector @ vector))
    return vector if temperature is None or length == 0 else vector / length


def candidate(case, item, data, w, temperature=0.1):
    if case == "nrms":
        if not data["title"][item].any():
            return np.zeros(w["reader.pooling.inner.weight"].shape[1])
        return additive(self_attention(words(data["title"][item], w), w, "news.context", 2), w, "news.pooling")
    if case == "naml":
        views = []
        for name in ("title", "abstract"):
            if data[name][item].any():
                x = convolution(words(data[name][item], w), w, f"{name}_view.context")
                views.append(additive(x, w, f"{name}_view.pooling"))
        for name in ("category", "subcategory"):
            if data[name][item]:
                row = w[f"{name}_view.embedding.weight"][data[name][item]]
                views.append(np.maximum(affine(row, w, f"{name}_view.project"), 0))
        return additive(np.array(views).reshape(-1, len(w["title_view.context.convolution.bias"])), w, "views")
    if case.startswith("lstur"):
        x = convolution(words(data["title"][item], w), w, "title_view.context")
        parts = [additive(x, w, "title_view.pooling")]
        parts += [w[f"{name}_view.weight"][data[name][item]] for name in ("category", "subcategory")]
        return np.concatenate(parts)
    if case == "bert4rec":
        return w["items.weight"][item]
    return text(case, data["right"][item], w, temperature)


def query(case, items, user, data, w, temperature=0.1):
    """The query of one row, ``items`` without its padding. For BERT4Rec, of the gap after them."""
    if case.startswith("siamese"):
        tokens = data["left"][items[0]] if len(items) else np.zeros(1, int)
        return text(case, tokens, w, temperature) / (1 if temperature is None else temperature)
    if case == "bert4rec":
        return gaps([*items, data["n_items"]], [len(items)], w)[0]
    rows = [candidate(case, item, data, w) for item in items]
    width = len(candidate(case, 0, data, w))
    news = np.array(rows).reshape(-1, width)
    if case == "nrms":
        return additive(self_attention(news, w, "reader.context", 2) if len(news) else news, w, "reader.pooling")
    if case == "naml":
        return additive(news, w, "reader")
    if case == "lstur":
        return gru(news, w, "recent", w["users.weight"][user])
    recent = gru(news, w, "recent", np.zeros(w["recent.gru.weight_hh_l0"].shape[1]))
    return np.concatenate([recent, w["users.weight"][user]])


def gaps(items, places, w):
    """BERT4Rec: what is read at ``places`` of one row of items."""
    last = len(items) - 1
    x = [
        w["items.weight"][item] + w["positions.weight"][min(last - place, len(w["positions.weight"]) - 1)]
        for place, item in enumerate(items)
    ]
    hidden = transformer(x, w, "transformer", 2, 2, gelu)
    return [normalise(gelu(affine(hidden[place], w, "output")), w, "output_norm") for place in places]
