/* Two parts of a search's step: attention of few queries over stored keys and values, as one pass over each head, and
   the choice of the next tokens.

   PyTorch has a call for each product and for the softmax between them, and products this small are mostly calls. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { BLOCK = 64 };

/* e^x for x ≤ 0, to within 2·10⁻⁷: 2ⁿ eʳ, with a polynomial for |r| ≤ ln 2 / 2. Unlike expf it works on whole vectors. */
static inline float exponential(float x)
{
    const float shift = 12582912; /* 1.5 · 2²³: floats of this size count by ones, so the sum's last bits hold n */
    union { float number; uint32_t bits; } power = {x * 1.44269504f + shift};
    const float n = power.number - shift, r = x - n * 0.693145752f - n * 1.42860677e-6f;
    power.bits = (power.bits + 127) << 23;
    const float series = 1 + r * (1 + r * (1.f / 2 + r * (1.f / 6 + r * (1.f / 24 + r * (1.f / 120 + r / 720)))));
    return x < -87 ? 0 : power.number * series;
}

/* Strides count floats, from one sentence, head or position to the next; a mask's count bytes, 0 where it repeats.
   `mask` is NULL, or 1 where a query may look; a query that may look nowhere gets zeros.
   `mixed` is (sentence, query, head, d_v) without gaps. */
void attend(const float *query, const float *key, const float *value, const unsigned char *mask, float *mixed,
            long sentences, long heads, long queries, long keys, long d_k, long d_v,
            long query_sentence, long query_head, long query_position,
            long key_sentence, long key_head, long key_position,
            long value_sentence, long value_head, long value_position,
            long mask_sentence, long mask_head, long mask_query, long mask_key)
{
    float weights[keys];
    const float scale = 1 / sqrtf(d_k);
    for (long s = 0; s < sentences; s++)
    for (long h = 0; h < heads; h++)
    for (long i = 0; i < queries; i++) {
        const float *q = query + s * query_sentence + h * query_head + i * query_position;
        const float *k = key + s * key_sentence + h * key_head;
        const float *v = value + s * value_sentence + h * value_head;
        const unsigned char *seen = mask ? mask + s * mask_sentence + h * mask_head + i * mask_query : NULL;
        float *out = mixed + ((s * queries + i) * heads + h) * d_v;

        float largest = -INFINITY, sum = 0;
        for (long j = 0; j < keys; j++, k += key_position) {
            float product = 0;
            #pragma omp simd reduction(+ : product)
            for (long d = 0; d < d_k; d++)
                product += q[d] * k[d];
            weights[j] = !seen || seen[j * mask_key] ? product * scale : -INFINITY;
            largest = largest > weights[j] ? largest : weights[j];
        }
        #pragma omp simd reduction(+ : sum)
        for (long j = 0; j < keys; j++)
            sum += weights[j] = largest == -INFINITY ? 0 : exponential(weights[j] - largest);

        for (long d = 0; d < d_v; d++)
            out[d] = 0;
        for (long j = 0; j < keys; j++, v += value_position) {
            const float weight = sum ? weights[j] / sum : 0;
            #pragma omp simd
            for (long d = 0; d < d_v; d++)
                out[d] += weight * v[d];
        }
    }
}

static float highest(const float *x, long count)
{
    float found = -INFINITY;
    #pragma omp simd reduction(max : found)
    for (long j = 0; j < count; j++)
        found = found > x[j] ? found : x[j];
    return found;
}

static long where(const float *x, long count, float wanted)
{
    long j = 0;
    while (j < count - 1 && x[j] != wanted)
        j++;
    return j;
}

/* A row is looked at in blocks, the last of which may be shorter. */
static long width(long block, long vocab)
{
    return (block + 1) * BLOCK <= vocab ? BLOCK : vocab - block * BLOCK;
}

static float highest_of(const float *row, long block, long vocab)
{
    return highest(row + block * BLOCK, width(block, vocab));
}

/* Cover a number of a row, and look again for the largest one of its block. */
static float hide(float *row, long place, float *best, long vocab)
{
    const float hidden = row[place];
    row[place] = -INFINITY;
    best[place / BLOCK] = highest_of(row, place / BLOCK, vocab);
    return hidden;
}

/* Of each row of logits the `count` most probable tokens, the best first: their log-probabilities, and which they are.
   Tokens that are `never` chosen have their share of the probability all the same. */
void best_tokens(float *logits, const int64_t *never, float *log_probs, int64_t *tokens,
                 long rows, long vocab, long nevers, long count)
{
    const long blocks = (vocab + BLOCK - 1) / BLOCK;
    float best[blocks], hidden[nevers], taken[count];
    for (; rows; rows--, logits += vocab, log_probs += count, tokens += count) {
        for (long b = 0; b < blocks; b++)
            best[b] = highest_of(logits, b, vocab);
        const float largest = highest(best, blocks);
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (long j = 0; j < vocab; j++)
            sum += exponential(logits[j] - largest);
        const float log_sum = logf(sum);

        for (long n = 0; n < nevers; n++)
            hidden[n] = hide(logits, never[n], best, vocab);
        for (long c = 0; c < count; c++) {
            const long b = where(best, blocks, highest(best, blocks));
            tokens[c] = b * BLOCK + where(logits + b * BLOCK, width(b, vocab), best[b]);
            taken[c] = hide(logits, tokens[c], best, vocab);
            log_probs[c] = taken[c] - largest - log_sum;
        }
        for (long c = count - 1; c >= 0; c--)
            logits[tokens[c]] = taken[c];
        for (long n = nevers - 1; n >= 0; n--)
            logits[never[n]] = hidden[n];
    }
}
