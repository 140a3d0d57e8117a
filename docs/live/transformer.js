// The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), as the page runs it: the model, greedy search
// and beam search, in plain JavaScript. Each part names its section of the paper, and bears its name in the course.
// A sequence is an array of rows, one Float32Array of d_model numbers for each position.
"use strict";

const PAD = 0, BOS = 1, EOS = 2; // padding, beginning and end of a sentence
const MAX_EXTRA = 50; // tokens by which a translation may be longer than its source (§6.1)

// What an experiment may change in a trained model. Without any, it is the paper's.
const UNCHANGED = {
  hidden: new Set(), // source positions that nobody may look at
  positions: true, // whether the model is told where each token stands (§3.5)
  causal: true, // whether a target position is kept from looking at later ones (§3.2.3)
  heads: new Set(), // heads that hand over nothing, as "decoder.2.cross.0"
};

// --- The parts ------------------------------------------------------------------------------------------------------

/** Multiply each row by a matrix that has a row for each output: x Wᵀ + b. */
function linear(x, { rows, columns, values }, bias) {
  return x.map(input => {
    const output = new Float32Array(rows);
    for (let r = 0; r < rows; r++) {
      const start = r * columns;
      let a = 0, b = 0, c = 0, d = 0; // four sums, so that no addition waits for the one before
      for (let i = 0; i < columns; i += 4) {
        a += input[i] * values[start + i];
        b += input[i + 1] * values[start + i + 1];
        c += input[i + 2] * values[start + i + 2];
        d += input[i + 3] * values[start + i + 3];
      }
      output[r] = a + b + c + d + (bias ? bias[r] : 0);
    }
    return output;
  });
}

/** Turn scores into weights that sum to 1; a score of -Infinity gets 0, and if all are, all do (§3.2.1). */
function softmax(scores) {
  const largest = Math.max(...scores);
  if (largest === -Infinity) return scores.map(() => 0);
  const exponentials = scores.map(score => Math.exp(score - largest));
  const sum = exponentials.reduce((total, one) => total + one, 0);
  return exponentials.map(one => one / sum);
}

/**
 * Multi-head attention (§3.2.2): each head compares its slice of the query with its slice of each key,
 * softmax(q Kᵀ / √d_k), and mixes its slices of the values by these weights (§3.2.1, Eq. 1).
 *
 * @param x the rows that ask; `keys` and `values` are projected already (`project`)
 * @param weights the layer's W_q and W_o
 * @param mayAttend (query, key) => boolean, numbers of rows
 * @param silent head => boolean: a head that hands over nothing
 * @param turn what else becomes of the queries; in the paper, nothing
 * @returns the new rows, the values, and for each head and query the scores and the weights of all keys
 */
function attend(x, { keys, values }, weights, heads, mayAttend, silent, turn = queries => queries) {
  const width = keys[0].length / heads; // d_k, and d_v too
  const [scored, looks] = [0, 1].map(() => Array.from({ length: heads }, () => []));
  const mixed = turn(linear(x, weights.W_q)).map((query, q) => {
    const concatenated = new Float32Array(query.length);
    for (let h = 0; h < heads; h++) {
      const from = h * width, to = from + width;
      const scores = keys.map((key, k) => {
        if (!mayAttend(q, k)) return -Infinity;
        let product = 0;
        for (let i = from; i < to; i++) product += query[i] * key[i];
        return product / Math.sqrt(width);
      });
      const look = softmax(scores);
      scored[h].push(scores);
      looks[h].push(look);
      if (silent(h)) continue;
      values.forEach((value, k) => {
        for (let i = from; i < to; i++) concatenated[i] += look[k] * value[i];
      });
    }
    return concatenated;
  });
  return { rows: linear(mixed, weights.W_o), scores: scored, looks, values };
}

/** Make the keys and values that all heads look at. */
function project(x, weights) {
  return { keys: linear(x, weights.W_k), values: linear(x, weights.W_v) };
}

/** The same two-layer network at every position: max(0, x W₁ + b₁) W₂ + b₂ (§3.3, Eq. 2); and what's hidden between. */
function feedForward(x, { W_1, b_1, W_2, b_2 }) {
  const hidden = linear(x, W_1, b_1);
  for (const row of hidden) row.forEach((one, i) => { row[i] = Math.max(0, one); });
  return { rows: linear(hidden, W_2, b_2), hidden };
}

/** Add what a sub-layer computed to what went into it, then normalise: LayerNorm(x + Sublayer(x)) (§3.1). */
function addAndNorm(before, sublayer, { gain, bias }, tell) {
  const after = before.map((row, position) => {
    const sum = row.map((one, i) => one + sublayer.rows[position][i]);
    const mean = sum.reduce((total, one) => total + one, 0) / sum.length;
    const variance = sum.reduce((total, one) => total + (one - mean) ** 2, 0) / sum.length;
    return sum.map((one, i) => gain[i] * (one - mean) / Math.sqrt(variance + 1e-5) + bias[i]);
  });
  tell({ ...sublayer, before, after });
  return after;
}

/** Write a position as sines and cosines: PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), 2i + 1: cos (§3.5). */
function sinusoid(position, width) {
  return Float32Array.from({ length: width }, (_, i) => {
    const angle = position / 10000 ** ((i - (i % 2)) / width);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// --- The model ------------------------------------------------------------------------------------------------------

/** The encoder-decoder Transformer (§3, Figure 1): post-norm, no dropout, one embedding used three times (§3.4). */
class Transformer {
  /**
   * @param config d_model, heads, layers, max_length
   * @param tensors name => values: a matrix as { rows, columns, values }, a vector as a Float32Array
   */
  constructor(config, tensors) {
    const attention = name =>
      Object.fromEntries(["W_q", "W_k", "W_v", "W_o"].map(one => [one, tensors[`${name}_attention.${one}.weight`]]));
    const rest = name => ({
      feedForward: {
        W_1: tensors[`${name}.feed_forward.W_1.weight`], b_1: tensors[`${name}.feed_forward.W_1.bias`],
        W_2: tensors[`${name}.feed_forward.W_2.weight`], b_2: tensors[`${name}.feed_forward.W_2.bias`],
      },
      norms: [0, 1, 2].map(i => ({
        gain: tensors[`${name}.residuals.${i}.norm.gain`], bias: tensors[`${name}.residuals.${i}.norm.bias`],
      })),
    });
    const layers = [...Array(config.layers).keys()];
    this.config = config;
    this.embedding = tensors["src_embedding.weight"];
    this.encoder = layers.map(i => ({ self: attention(`encoder.layers.${i}.self`), ...rest(`encoder.layers.${i}`) }));
    this.decoder = layers.map(i => ({
      self: attention(`decoder.layers.${i}.self`), cross: attention(`decoder.layers.${i}.cross`),
      ...rest(`decoder.layers.${i}`),
    }));
  }

  /** Look up each token's row, times √d_model, and add where it stands (§3.4, §3.5); `watch(told)` as in `encode`. */
  embed(ids, start, changes, watch) {
    const width = this.config.d_model;
    const { values } = this.embedding, scale = Math.sqrt(width);
    const before = ids.map(id => values.slice(id * width, (id + 1) * width).map(one => scale * one));
    const rows = ids.map((_, i) => sinusoid(start + i, width));
    const after = before.map((row, i) => row.map((one, j) => one + (changes.positions ? rows[i][j] : 0)));
    watch({ before, rows, after });
    return after;
  }

  /**
   * Read the source: self-attention, then feed-forward, in each layer (§3.1).
   *
   * @param watch told of each block, as ("encoder.0.self", { before, rows, after }): what goes in, what is added to
   *   it, and what comes out, normalised; attention also tells its scores, weights (`looks`) and values
   * @returns the memory, a row for each source token
   */
  encode(ids, changes = UNCHANGED, watch = () => {}) {
    let x = this.embed(ids, 0, changes, told => watch("encoder.embed", told));
    this.encoder.forEach((layer, i) => {
      const name = `encoder.${i}.self`;
      const found = attend(x, project(x, layer.self), layer.self, this.config.heads,
        (_, k) => !changes.hidden.has(k), h => changes.heads.has(`${name}.${h}`));
      x = addAndNorm(x, found, layer.norms[0], told => watch(name, told));
      x = addAndNorm(x, feedForward(x, layer.feedForward), layer.norms[1], told => watch(`encoder.${i}.feed`, told));
    });
    return x;
  }

  /** Begin a target: for each layer the memory's keys and values, which stay, and the target's, none so far. */
  newCache(memory) {
    return this.decoder.map(layer => ({ keys: [], values: [], memory: project(memory, layer.cross) }));
  }

  /**
   * Read target tokens, all at once as in training, or one by one as in writing; the cache keeps the keys and values.
   *
   * @param ids the tokens that the cache has not seen; it grows by them
   * @param watch as in `encode`; told of "decoder.0.cross" too
   * @returns a state for each of these tokens; `logits` of it predicts the next one
   */
  decode(ids, cache, changes = UNCHANGED, watch = () => {}) {
    const start = cache[0].keys.length, { heads } = this.config;
    let x = this.embed(ids, start, changes, told => watch("decoder.embed", told));
    this.decoder.forEach((layer, i) => {
      const kept = cache[i], silent = kind => h => changes.heads.has(`decoder.${i}.${kind}.${h}`);
      const tell = kind => told => watch(`decoder.${i}.${kind}`, told);
      const { keys, values } = project(x, layer.self);
      kept.keys.push(...keys);
      kept.values.push(...values);
      const own = attend(x, kept, layer.self, heads, (q, k) => !changes.causal || k <= start + q, silent("self"));
      x = addAndNorm(x, own, layer.norms[0], tell("self"));
      const cross = attend(x, kept.memory, layer.cross, heads, (_, k) => !changes.hidden.has(k), silent("cross"));
      x = addAndNorm(x, cross, layer.norms[1], tell("cross"));
      x = addAndNorm(x, feedForward(x, layer.feedForward), layer.norms[2], tell("feed"));
    });
    return x;
  }

  /** Compare a state with every token's embedding (§3.4). */
  logits(state) {
    return linear([state], this.embedding)[0];
  }

  /** Give log P of each next token; <pad> and <bos> are never next. */
  logProbs(state) {
    const logits = this.logits(state);
    const largest = logits.reduce((most, one) => Math.max(most, one));
    const sum = logits.reduce((total, one) => total + Math.exp(one - largest), 0);
    const logProbs = logits.map(one => one - largest - Math.log(sum));
    logProbs[PAD] = logProbs[BOS] = -Infinity;
    return logProbs;
  }

  /** Tell how many tokens a translation of this source may have (§6.1). */
  longest(source) {
    return Math.min(source.length + MAX_EXTRA, this.config.max_length);
  }
}

/** Put the weights of new queries behind those of earlier ones. */
function record(looks, name, found) {
  looks[name] ??= found.map(() => []);
  found.forEach((rows, head) => looks[name][head].push(...rows));
}

// --- Searching for a translation ------------------------------------------------------------------------------------

/**
 * Translate by taking the most probable token at each step.
 *
 * Without the causal mask, a new token changes what the earlier ones compute. So no cache helps: all is read again.
 *
 * @param source ids, <eos> last
 * @param begun what it has to begin with
 * @yields after each step { ids, logProbs, token }: what was read, log P of each next token, the one that is taken
 */
function* greedyDecode(model, source, changes = UNCHANGED, begun = []) {
  const memory = model.encode(source, changes), ids = [BOS];
  let cache = model.newCache(memory);
  while (ids.length <= model.longest(source)) {
    if (!changes.causal) cache = model.newCache(memory);
    const logProbs = model.logProbs(model.decode(changes.causal ? ids.slice(-1) : ids, cache, changes).at(-1));
    const token = begun[ids.length - 1] ?? logProbs.indexOf(Math.max(...logProbs));
    yield { ids: ids.slice(), logProbs, token };
    if (token === EOS) return;
    ids.push(token);
  }
}

/**
 * Translate by beam search (beam.js).
 *
 * @param source ids, <eos> last
 * @yields what `search` yields, without the continuations that no beam can hold
 * @returns the best: { ids, logProb, score }, ids without <bos> and <eos>
 */
function* beamSearch(model, source, beam = 4, alpha = 0.6, changes = UNCHANGED) {
  const memory = model.encode(source, changes);
  const continuations = node => {
    const { parent, token } = node;
    node.ids = parent ? [...parent.ids, token] : [BOS];
    node.cache = parent && changes.causal
      ? parent.cache.map(one => ({ ...one, keys: one.keys.slice(), values: one.values.slice() }))
      : model.newCache(memory);
    const fresh = changes.causal ? [token] : node.ids;
    const logProbs = model.logProbs(model.decode(fresh, node.cache, changes).at(-1));
    // Twice the beam: each beginning has one <eos>, and enough must go on.
    return largest(logProbs, 2 * beam).map(token => ({ token, logProb: logProbs[token] }));
  };
  const limits = { start: BOS, end: EOS, limit: model.longest(source) };
  const { parent, token, logProb, score } = yield* search(continuations, limits, beam, alpha);
  return { ids: token === EOS ? parent.ids.slice(1) : [...parent.ids.slice(1), token], logProb, score };
}

/** Find the places of the `count` largest numbers, the largest first. */
function largest(values, count) {
  const places = [];
  values.forEach((value, i) => {
    if (places.length === count && value <= values[places.at(-1)]) return;
    let place = places.length;
    while (place > 0 && value > values[places[place - 1]]) place--;
    places.splice(place, 0, i);
    places.length = Math.min(places.length, count);
  });
  return places;
}

// --- The weights ----------------------------------------------------------------------------------------------------

const WEIGHTS = []; // as the files hold them
const DIGITS = 0x10000 - 0x800 - 0x100; // as many units of UTF-16 are written with

/**
 * Unpack whole numbers that `python -m tools.live` has packed, by asymmetric numeral systems (Duda, 2009): the state's
 * lower half lies in a range that tells the number, as wide as the number is frequent.
 *
 * @param output filled
 * @param frequencies of each number; their sum is 65,536
 */
function unpack(text, output, frequencies) {
  const numbers = new Uint16Array(65536), starts = [];
  frequencies.reduce((start, frequency, number) => {
    starts.push(start);
    numbers.fill(number, start, start + frequency);
    return start + frequency;
  }, 0);
  let state = 0, place = 0;
  const readDigit = () => {
    const unit = text.charCodeAt(place++);
    state = state * DIGITS + unit - (unit < 0xd800 ? 0x100 : 0x900);
  };
  for (let i = 0; i < 3; i++) readDigit();
  for (let i = 0; i < output.length; i++) {
    const low = state & 65535, number = numbers[low];
    output[i] = number;
    state = frequencies[number] * (state >>> 16) + low - starts[number];
    while (state < 65536) readDigit();
  }
}

/**
 * Make a function that takes the weights part by part, in any order: a number and a text. The last one gives the model.
 * Part 0 holds each vector, and a scale for each row of a matrix; the others hold steps, of which 255 are 0.
 *
 * @param shapes [[name, shape], …]
 */
function unpacker({ config, shapes, frequencies, parts }, Model = Transformer) {
  const bytes = new Uint8Array(4 * shapes.reduce((sum, [, [rows]]) => sum + rows, 0));
  const steps = new Float32Array(shapes.reduce((sum, [, [rows, columns = 0]]) => sum + rows * columns, 0));
  const size = steps.length / (parts - 1);
  let missing = parts;
  return (part, text) => {
    if (part) unpack(text, steps.subarray((part - 1) * size, part * size), frequencies);
    else unpack(text, bytes, Array(256).fill(256));
    if (--missing) return null;
    const floats = new Float32Array(bytes.buffer), tensors = {};
    let place = 0, start = 0;
    for (const [name, [rows, columns]] of shapes) {
      const numbers = tensors[name] = floats.subarray(place, place += rows);
      if (!columns) continue;
      const values = steps.subarray(start, start += rows * columns);
      for (let i = 0; i < values.length; i++) values[i] = (values[i] - 255) * numbers[Math.floor(i / columns)];
      tensors[name] = { rows, columns, values };
    }
    return new Model(config, tensors);
  };
}
