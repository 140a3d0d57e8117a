"""Draw the figure in RESULTS.md from a trained run: python tools/draw_readme.py runs/de-en docs/drawings/de-en.png"""

import json
import sys
from pathlib import Path

import matplotlib
import torch

from annotated.config import BOS, EOS
from annotated.decoding import beam_search
from annotated.multi_head import record_attention
from annotated_course.plotting import plot_attention, plot_lines, token_labels
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import pad
from annotated_workbench.vocabulary import load_tokenizer

SENTENCE = "Ein Mann, der einen roten Hut trägt, spielt auf der Straße Gitarre."


def main(run: Path, picture: Path) -> None:
    """Draw the validation curve beside one sentence's cross-attention."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model, info = load_checkpoint(run)
    tokenizer = load_tokenizer(run)
    src = [*tokenizer.encode(SENTENCE, info["src"]), EOS]
    tgt = [BOS, *beam_search(model, pad([src]))[0].ids]
    with record_attention(model) as recorded, torch.inference_mode():
        model(pad([src]), pad([tgt]))
    weights = recorded[f"decoder.layers.{model.config.layers - 1}.cross_attention"][0][0].mean(dim=0)
    # The row at which a token is read predicts the next one, so the rows are named by what they write.
    written = [*tgt[1:], EOS]

    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained", width_ratios=(1, 1.4))
    plot_lines(
        [line["epoch"] for line in metrics],
        {"greedy, last weights": [line["val_bleu"] for line in metrics]},
        x_label="epochs of training",
        y_label="validation BLEU",
        ax=left,
    )
    plot_attention(weights, token_labels(tokenizer, written), token_labels(tokenizer, src), annotate=False, ax=right)
    right.set(xlabel="German token, looked at", ylabel="English token, being written")
    picture.parent.mkdir(exist_ok=True)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
