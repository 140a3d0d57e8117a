"""A small Llama as Hugging Face publishes one, with the logits of its code, for 21_todays_model; it needs transformers.

python -m experiments.published_llama data/published_llama
"""

import json
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = dict(vocab_size=24, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
SIZES |= dict(num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=False)
IDS = [[5, 9, 14, 20, 7, 9, 14, 11]]


def main(folder: str) -> None:
    """Draw the weights, write the folder, and beside it what the model makes of some ids."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    with torch.no_grad():
        logits = [[round(x, 6) for x in row] for row in model(torch.tensor(IDS)).logits[0].tolist()]
    with open(f"{folder}/logits.json", "w", encoding="utf-8") as file:
        json.dump({"ids": IDS, "logits": [logits]}, file)


if __name__ == "__main__":
    main(sys.argv[1])
