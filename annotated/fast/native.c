/* Attention of few queries over stored keys and values: what a step of a search does, as one pass over each head.

   PyTorch has a call for each product and for the softmax between them, and products this small are mostly calls. */

#include <math.h>
#include <stddef.h>

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
        for (long j = 0; j < keys; j++)
            sum += weights[j] = largest == -INFINITY ? 0 : expf(weights[j] - largest);

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
