"""Translation by CTranslate2, an engine in C++."""

import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from annotated.decoding import ALPHA, BEAM, MAX_EXTRA, length_penalty
from annotated_workbench.export import check_exportable, write
from annotated_workbench.extras import load
from annotated_workbench.translation import Scored, encode_sources
from annotated_workbench.vocabulary import Tokenizer

COMPUTE_TYPES = {"auto": "float32", "fp32": "float32", "bf16": "bfloat16", "int8": "int8"}  # by --precision


class CTranslate2:
    """A trained `Transformer` copied into CTranslate2, with a precision of `COMPUTE_TYPES`; device as in "cuda:1".

    A ValueError says that the engine has no form for this model or tokenizer, or cannot use the device or precision.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, precision: str = "auto", device: str = "auto"):
        check_exportable(model, tokenizer, "ctranslate2")
        self.tokenizer, self.longest = tokenizer, model.config.max_length
        kind, _, index = device.partition(":")
        engine = load("ctranslate2")
        with tempfile.TemporaryDirectory() as folder:
            self.library = write(model, tokenizer, "ctranslate2", Path(folder))
            try:
                self.translator = engine.Translator(
                    folder,
                    device=kind,
                    device_index=int(index or 0),
                    compute_type=COMPUTE_TYPES[precision],
                    intra_threads=torch.get_num_threads(),
                )
            except ValueError as error:
                raise ValueError(f"CTranslate2 cannot translate so: {error}") from error

    def n_best(
        self,
        texts: Sequence[str],
        language: str,
        *,
        nbest: int = 1,
        beam: int = BEAM,
        alpha: float = ALPHA,
        max_extra: int = MAX_EXTRA,
    ) -> list[list[Scored]]:
        """Translate texts; arguments and errors as for `annotated_workbench.translation.n_best`.

        Greedy search in float32 writes the same tokens. Beam search ends when the engine has finished `beam`
        hypotheses, while ours goes on until none can win; among the finished ones our length penalty chooses.
        """
        rows = encode_sources(self.tokenizer, texts, language, self.longest)
        order = sorted((i for i, row in enumerate(rows) if len(row) > 1), key=lambda i: len(rows[i]))
        found = [[Scored("", 0.0)] for _ in rows]
        for length, same in groupby(order, key=lambda i: len(rows[i])):  # a limit of the engine is that of a batch
            batch = list(same)
            results = self.translator.translate_batch(
                [[self.library.id_to_token(token) for token in rows[i]] for i in batch],
                beam_size=max(beam, 1),
                num_hypotheses=max(beam, 1),
                length_penalty=0,
                return_scores=True,
                max_decoding_length=min(length + max_extra, self.longest),
                max_batch_size=64,
            )
            for i, result in zip(batch, results, strict=True):
                scored = [
                    (log_prob / length_penalty(len(tokens) + 1, alpha if beam else 0.0), tokens)
                    for tokens, log_prob in zip(result.hypotheses, result.scores, strict=True)
                ]
                best = sorted(scored, key=lambda pair: -pair[0])[:nbest]
                id_of = self.library.token_to_id
                found[i] = [Scored(self.tokenizer.decode(map(id_of, tokens)), score) for score, tokens in best]
        return found
