"""Train a classifier of handwritten digits: the loop of MLX's tutorial, on the 1,797 images scikit-learn ships.

    python examples/digits.py [--seed 0] [--epochs 30] [--out demo]

A network of two hidden layers is trained on 80 % of the images, now and then shifted by a pixel, and tested on the
other 20 %. The learning curve and the digits it misreads are drawn into ``--out``.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import isthmus
import isthmus.core as mx
import isthmus.nn as nn
import isthmus.optimizers as optim

BATCH = 64
COUNTERS = ("plans", "bindings", "hits", "kernels_compiled")


class MLP(nn.Module):
    """A chain of linear layers with a rectified linear unit between each two."""

    def __init__(self, *dims: int):
        super().__init__()
        self.layers = [nn.Linear(i, o) for i, o in zip(dims, dims[1:], strict=False)]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nn.relu(layer(x))
        return self.layers[-1](x)


@dataclass
class Result:
    """What a training run leaves behind."""

    model: MLP
    accuracy: float
    seconds: float
    losses: list[float] = field(default_factory=list)  # a mean for each epoch
    accuracies: list[float] = field(default_factory=list)  # on the test images, after each epoch
    counters: dict[str, int] = field(default_factory=dict)  # of the training steps alone


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images, (N, 8, 8) in [0, 1], and labels; each digit is split 80 to 20, always in the same way."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    labels = digits.target.astype(np.uint32)
    return train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


def shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by a pixel up or down and left or right, or not: mostly not; zeros come in."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), axis=(1, 2))  # (N, 3, 3, 8, 8)
    n, chances = len(images), (0.15, 0.7, 0.15)
    return windows[np.arange(n), rng.choice(3, n, p=chances), rng.choice(3, n, p=chances)]


def batches(images: np.ndarray, labels: np.ndarray, rng: np.random.Generator):
    """All images once, in random order; the last batch is short."""
    order = rng.permutation(len(images))
    for i in range(0, len(order), BATCH):
        chosen = order[i : i + BATCH]
        x = shifted(images[chosen], rng).reshape(len(chosen), -1)
        yield mx.array(x), mx.array(labels[chosen])


def loss_fn(model, x, y):
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


def predict(model: MLP, images: np.ndarray) -> np.ndarray:
    """The digit that the model sees in each image."""
    return np.array(mx.argmax(model(mx.array(images.reshape(len(images), -1))), axis=1))


def train(seed: int = 0, epochs: int = 30, progress: bool = False) -> Result:
    """Train a model from scratch."""
    x_train, x_test, y_train, y_test = load()
    rng = np.random.default_rng(seed)
    mx.random.seed(seed)

    model = MLP(64, 256, 128, 10)
    mx.eval(model.parameters())
    steps = -(-len(x_train) // BATCH) * epochs
    optimizer = optim.AdamW(learning_rate=optim.cosine_decay(3e-3, steps), weight_decay=0.01)
    loss_and_grad_fn = nn.value_and_grad(model, loss_fn)

    result = Result(model, accuracy=0.0, seconds=0.0)
    with tqdm(total=steps, desc="training", unit="step", disable=not progress) as bar:
        for _ in range(epochs):
            before, start = counters(), time.perf_counter()
            total = 0.0
            for x, y in batches(x_train, y_train, rng):
                loss, grads = loss_and_grad_fn(model, x, y)
                optimizer.update(model, grads)
                mx.eval(model.parameters(), optimizer.state, loss)
                total += loss.item() * len(x)
                bar.update()
            result.seconds += time.perf_counter() - start
            for name, count in counters().items():
                result.counters[name] = result.counters.get(name, 0) + count - before[name]
            result.losses.append(total / len(x_train))
            result.accuracies.append(float(np.mean(predict(model, x_test) == y_test)))
            bar.set_postfix(loss=f"{result.losses[-1]:.3f}", test=f"{result.accuracies[-1]:.1%}")
    result.accuracy = result.accuracies[-1]
    return result


def counters() -> dict[str, int]:
    """What the machine has counted so far."""
    stats = isthmus.stats()
    return {name: stats[name] for name in COUNTERS}


def draw(result: Result, out: Path) -> list[Path]:
    """Write the learning curve and the misread digits as PNG files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    curve, misread = out / "learning_curve.png", out / "misread_digits.png"
    epochs = range(1, len(result.losses) + 1)

    fig, left = plt.subplots(figsize=(7, 4))
    left.semilogy(epochs, result.losses, color="tab:blue")
    left.set_xlabel("epoch")
    left.set_ylabel("training loss", color="tab:blue")
    right = left.twinx()
    right.plot(epochs, [100 * a for a in result.accuracies], color="tab:orange")
    right.set_ylabel("test accuracy, %", color="tab:orange")
    fig.tight_layout()
    fig.savefig(curve, dpi=120)
    plt.close(fig)

    _, x_test, _, y_test = load()
    seen = predict(result.model, x_test)
    wrong = np.flatnonzero(seen != y_test)
    columns = 6
    rows = max(1, -(-len(wrong) // columns))
    fig, axes = plt.subplots(rows, columns, figsize=(1.3 * columns, 1.6 * rows), squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for ax, i in zip(axes.flat, wrong, strict=False):
        ax.imshow(x_test[i], cmap="gray_r")
        ax.set_title(f"a {y_test[i]}, read as {seen[i]}", fontsize=8)
    fig.suptitle(f"{len(wrong)} of {len(y_test)} test digits misread")
    fig.tight_layout()
    fig.savefig(misread, dpi=120)
    plt.close(fig)
    return [curve, misread]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    args = parser.parse_args()

    result = train(args.seed, args.epochs, progress=True)
    for path in draw(result, args.out):
        print(f"wrote {path}")
    print(f"training took {result.seconds:.1f} s")
    print(f"test accuracy: {100 * result.accuracy:.1f} %")
    print("training loop: " + ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in result.counters.items()))


if __name__ == "__main__":
    main()
