"""A classifier's forward pass with fewer and larger operations, on the weights of the plain one."""

from jaxtyping import Float, Int
from torch import Tensor

from annotated.config import PAD
from annotated.fast.attention import prepare
from annotated.fast.transformer import FastBlocks
from annotated.masking import padding_mask
from annotated.models.classifier import hide_tokens, mean_of_tokens


class FastClassifier(FastBlocks):
    """The same function of the same weights as a `Classifier`, sooner."""

    def states(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch d_model"]:
        """Turn each text into one vector."""
        self.require_unchanged()
        ids = hide_tokens(ids, self.config.word_dropout if self.model.training else 0.0)
        x, mask = self.embed(self.model.embedding, ids), prepare(padding_mask(ids))
        for layer in self.model.encoder.layers:
            x = self.encoder_layer(layer, x, mask)
        x = self.last_norm(self.model.encoder.norm, x)
        return mean_of_tokens(x.to(self.model.output.weight.dtype), ids != PAD)
