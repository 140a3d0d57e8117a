// The decoder alone, as it is usual today: a Llama (Touvron et al., 2023). It has what `annotated/models/llama.py` has,
// and takes from transformer.js what has stayed as it was in 2017.
"use strict";

/** Give each row the root mean square 1, and scale it: γ x / √(mean(x²) + ε) (Zhang & Sennrich, 2019). */
function rmsNorm(x, gain, eps) {
  return x.map(row => {
    const size = Math.sqrt(row.reduce((sum, one) => sum + one * one, 0) / row.length + eps);
    return row.map((one, i) => gain[i] * one / size);
  });
}

/**
 * Turn the pairs of numbers of each head by angles that grow with the row's position (rotary; Su et al., 2021):
 * (a, b) becomes (a cos φ − b sin φ, a sin φ + b cos φ) with φ = position / base^(2i/d) for the pair i.
 *
 * @param x queries or keys, those of all heads in a row; `start` is the position of the first row
 */
function rotate(x, start, heads, base) {
  return x.map((row, place) => {
    const turned = new Float32Array(row.length), width = row.length / heads;
    for (let i = 0; i < row.length; i += 2) {
      const angle = (start + place) / base ** (i % width / width), cos = Math.cos(angle), sin = Math.sin(angle);
      turned[i] = row[i] * cos - row[i + 1] * sin;
      turned[i + 1] = row[i] * sin + row[i + 1] * cos;
    }
    return turned;
  });
}

/** SwiGLU: (silu(x W_gate) ⊙ x W₁) W₂ with silu(z) = z / (1 + e^−z) (Shazeer, 2020). */
function gatedFeedForward(x, { W_gate, W_1, W_2 }) {
  const gates = linear(x, W_gate).map(row => row.map(one => one / (1 + Math.exp(-one))));
  return linear(linear(x, W_1).map((row, r) => row.map((one, i) => one * gates[r][i])), W_2);
}

const add = (x, y) => x.map((row, r) => row.map((one, i) => one + y[r][i]));

/** A Llama whose heads have keys and values of their own; one embedding, for what is read and what is written. */
class Llama {
  /**
   * @param config heads, layers, rotary_base, eps
   * @param tensors as for `Transformer`
   */
  constructor(config, tensors) {
    const named = (name, weights) => Object.fromEntries(weights.map(one => [one, tensors[`${name}.${one}.weight`]]));
    this.config = config;
    this.embedding = tensors["embedding.weight"];
    this.gain = tensors["norm.gain"];
    this.layers = Array.from({ length: config.layers }, (_, i) => ({
      attention: named(`layers.${i}.self_attention`, ["W_q", "W_k", "W_v", "W_o"]),
      feedForward: named(`layers.${i}.feed_forward`, ["W_gate", "W_1", "W_2"]),
      gains: [0, 1].map(one => tensors[`layers.${i}.residuals.${one}.norm.gain`]),
    }));
  }

  newCache() {
    return this.layers.map(() => ({ keys: [], values: [] }));
  }

  /** Turn ids that the cache hasn't seen into states, one for each; the cache grows by their keys and values. */
  states(ids, cache) {
    const { heads, rotary_base, eps } = this.config, start = cache[0].keys.length, { columns, values } = this.embedding;
    const turn = rows => rotate(rows, start, heads, rotary_base);
    let x = ids.map(id => values.slice(id * columns, (id + 1) * columns));
    this.layers.forEach(({ attention, feedForward, gains }, i) => {
      const normed = rmsNorm(x, gains[0], eps), fresh = project(normed, attention);
      cache[i].keys.push(...turn(fresh.keys));
      cache[i].values.push(...fresh.values);
      x = add(x, attend(normed, cache[i], attention, heads, (q, k) => k <= start + q, () => false, turn).rows);
      x = add(x, gatedFeedForward(rmsNorm(x, gains[1], eps), feedForward));
    });
    return rmsNorm(x, this.gain, eps);
  }

  /** Compare each state with every token's embedding. */
  logits(states) {
    return linear(states, this.embedding);
  }
}

/**
 * Go on after a prompt with the likeliest token each time, up to <eos>.
 *
 * @param limit tokens at most
 * @yields null for each token that is read; then each that is written, { token, part }, with its probability
 */
function* answer(model, prompt, limit) {
  const cache = model.newCache(), read = id => softmax(model.logits(model.states([id], cache))[0]);
  let parts;
  for (const id of prompt) {
    parts = read(id);
    yield null;
  }
  for (let i = 0; i < limit; i++) {
    const [token] = largest(parts, 1);
    yield { token, part: parts[token] };
    if (token === EOS) return;
    parts = read(token);
  }
}
