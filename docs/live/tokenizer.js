// Text to token ids and back: byte-pair encoding (§5.1; Sennrich et al., 2016), on bytes, so that it takes any text.
"use strict";

const SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]; // which stand first in the vocabulary

/** Bytes as visible characters, as the `tokenizers` library writes them: a space is Ġ. */
const BYTES = (() => {
  const isPrinted = byte => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let others = 256; // what cannot be printed gets the characters from here on
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrinted(byte) ? byte : others++));
})();

/** Where no token reaches across: before spaces, between letters, digits and signs (Radford et al., 2019). */
const PIECES = new RegExp(
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+" +
  "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");
const OUTER_SPACE = /^\p{White_Space}+|\p{White_Space}+$/gu;

class Tokenizer {
  /** @param merges pairs of tokens that become one, as "a b", the first merge first; tokens have their numbers so, too */
  constructor({ merges }) {
    this.tokens = [...SPECIALS, ...[...BYTES].sort(), ...merges.map(pair => pair.replace(" ", ""))];
    this.ids = new Map(this.tokens.map((token, id) => [token, id]));
    this.ranks = new Map(merges.map((pair, rank) => [pair, rank]));
  }

  /** Turn a text into ids, without <bos> and <eos>. */
  encode(text) {
    const normal = text.normalize("NFC").replace(OUTER_SPACE, "");
    return normal ? ` ${normal}`.match(PIECES).flatMap(piece => this.merge(piece)).map(one => this.ids.get(one)) : [];
  }

  /** Join a piece's bytes, the pair that was merged first in training first. */
  merge(piece) {
    let parts = Array.from(new TextEncoder().encode(piece), byte => BYTES[byte]);
    while (parts.length > 1) {
      const ranks = parts.slice(1).map((part, i) => this.ranks.get(`${parts[i]} ${part}`) ?? Infinity);
      const first = ranks.reduce((least, rank) => Math.min(least, rank));
      if (first === Infinity) break;
      const joined = [];
      for (let i = 0; i < parts.length; i++) joined.push(ranks[i] === first ? parts[i] + parts[++i] : parts[i]);
      parts = joined;
    }
    return parts;
  }

  /** Join ids into text, without specials and outer spaces. */
  decode(ids) {
    const written = ids.filter(id => id >= SPECIALS.length).map(id => this.tokens[id]).join("");
    const bytes = Uint8Array.from(written, character => BYTES.indexOf(character));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes).replace(OUTER_SPACE, "");
  }
}
