/* Tree attention over the paged cache: every row along its own path, by position.
 *
 * Neighbours in a tree, a prompt or the heads of one key/value head see mostly the same keys, so
 * four queries are computed together as far as their paths are one.  Each query's sums keep the
 * order that they would have alone.
 */

enum { BLOCK = 4 };

/* One row and query head. */
typedef struct {
    const float *vector;
    const int32_t *path;
    int64_t count;  /* keys it sees */
    float *scores;  /* [count + LANES] */
    float *out;     /* [D] */
} Query;

/* Keys or values of one head, a slot at a time. */
typedef struct {
    const float *first;
    int64_t size, D; /* floats from slot to slot, and of a slot */
} Side;

/* List the slots that each row sees, in the order of their positions, and how many of the first
 * ones the row before sees as well. */
static void find_paths(const Pass *p, Work *w)
{
    for (int64_t b = 0; b < p->requests; b++) {
        const int64_t context = p->contexts[b];
        for (int64_t row = p->starts[b]; row < p->starts[b + 1]; row++) {
            int32_t *path = w->paths + row * p->longest;
            for (int64_t i = 0; i < context; i++)
                path[i] = p->pages[b * p->columns + i / p->page_size] * (int32_t)p->page_size
                          + (int32_t)(i % p->page_size);
            int64_t length = context;
            for (int64_t j = 0; j <= row - p->starts[b]; j++)
                if (p->ancestors[row * p->words + j / 64] >> (j % 64) & 1)
                    path[length++] = (int32_t)p->slots[p->starts[b] + j];
            w->lengths[row] = (int32_t)length;
            int64_t same = 0;
            if (row > p->starts[b])
                for (same = context; same < length && same < w->lengths[row - 1]; same++)
                    if (path[same] != path[same - p->longest])
                        break;
            w->common[row] = (int32_t)same;
        }
    }
}

/* Score the keys from start to end for count queries, 16 / count keys at a time, the last ones
 * again where they are fewer. */
static inline __attribute__((always_inline)) void score(const Query *q, const int count, Side keys,
                                                        int64_t start, int64_t end, Stream *s)
{
    const __m512 scale = _mm512_set1_ps(1.0f / sqrtf((float)keys.D));
    const int together = LANES / count;
    for (int64_t i = start; i < end; i += together) {
        __m512 sums[LANES];
        const float *key[LANES];
        ask_ahead(s, 8);
#pragma GCC unroll 16
        for (int j = 0; j < together; j++)
            key[j] = keys.first + q->path[i + j < end ? i + j : end - 1] * keys.size;
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++)
            sums[j] = _mm512_setzero_ps();
        for (int64_t d = 0; d < keys.D; d += LANES) {
            __m512 v[BLOCK];
#pragma GCC unroll 4
            for (int a = 0; a < count; a++)
                v[a] = _mm512_loadu_ps(q[a].vector + d);
#pragma GCC unroll 16
            for (int j = 0; j < together; j++) {
                const __m512 k = _mm512_loadu_ps(key[j] + d);
#pragma GCC unroll 4
                for (int a = 0; a < count; a++)
                    sums[a * together + j] = _mm512_fmadd_ps(v[a], k, sums[a * together + j]);
            }
        }
        const __m512 found = _mm512_mul_ps(sum_each(sums), scale);
        if (count == 1) {
            _mm512_storeu_ps(q->scores + i, found);
        } else {
            _mm_storeu_ps(q[0].scores + i, _mm512_extractf32x4_ps(found, 0));
            _mm_storeu_ps(q[1].scores + i, _mm512_extractf32x4_ps(found, 1));
            _mm_storeu_ps(q[2].scores + i, _mm512_extractf32x4_ps(found, 2));
            _mm_storeu_ps(q[3].scores + i, _mm512_extractf32x4_ps(found, 3));
        }
    }
}

/* Softmax of count scores without the division, in place; returns what to divide by. */
static float weigh(float *scores, int64_t count)
{
    __m512 most = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i += LANES)
        most = _mm512_mask_max_ps(most, lanes(count - i), most, _mm512_loadu_ps(scores + i));
    const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 real = lanes(count - i);
        __m512 v = exp16(_mm512_sub_ps(_mm512_loadu_ps(scores + i), largest));
        v = _mm512_maskz_mov_ps(real, v);
        _mm512_storeu_ps(scores + i, v);
        total = _mm512_add_ps(total, v);
    }
    return _mm512_reduce_add_ps(total);
}

/* Add the weighed values from start to end, in their order, to what count queries have. */
static inline __attribute__((always_inline)) void
add_values(const Query *q, const int count, const int parts, Side values, int64_t d, int64_t start,
           int64_t end)
{
    __m512 sums[BLOCK * 4];
#pragma GCC unroll 4
    for (int a = 0; a < count; a++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            sums[a * 4 + part] = _mm512_loadu_ps(q[a].out + d + part * LANES);
    for (int64_t i = start; i < end; i++) {
        const float *value = values.first + q->path[i] * values.size + d;
        __m512 v[4];
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            v[part] = _mm512_loadu_ps(value + part * LANES);
#pragma GCC unroll 4
        for (int a = 0; a < count; a++) {
            const __m512 weight = _mm512_set1_ps(q[a].scores[i]);
#pragma GCC unroll 4
            for (int part = 0; part < parts; part++)
                sums[a * 4 + part] = _mm512_fmadd_ps(weight, v[part], sums[a * 4 + part]);
        }
    }
#pragma GCC unroll 4
    for (int a = 0; a < count; a++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            _mm512_storeu_ps(q[a].out + d + part * LANES, sums[a * 4 + part]);
}

static void read_values(const Query *q, int count, Side values, int64_t start, int64_t end)
{
    int64_t d = 0;
    for (; d + 4 * LANES <= values.D; d += 4 * LANES)
        if (count == 1)
            add_values(q, 1, 4, values, d, start, end);
        else
            add_values(q, BLOCK, 4, values, d, start, end);
    for (; d < values.D; d += LANES)
        if (count == 1)
            add_values(q, 1, 1, values, d, start, end);
        else
            add_values(q, BLOCK, 1, values, d, start, end);
}

/* Some queries of one key/value head, one or a block of them, whose first `common` keys are the
 * same. */
static void attend(const Query *q, int count, int64_t common, Side keys, Side values, Stream *s)
{
    common = count == 1 ? 0 : common / BLOCK * BLOCK;
    if (common)
        score(q, BLOCK, keys, 0, common, s);
    for (int a = 0; a < count; a++) {
        score(q + a, 1, keys, common, q[a].count, s);
        memset(q[a].out, 0, (size_t)keys.D * sizeof(float));
    }
    float total[BLOCK];
    for (int a = 0; a < count; a++)
        total[a] = weigh(q[a].scores, q[a].count);
    if (common)
        read_values(q, count, values, 0, common);
    for (int a = 0; a < count; a++) {
        read_values(q + a, 1, values, common, q[a].count);
        const __m512 by = _mm512_set1_ps(1.0f / total[a]);
        for (int64_t d = 0; d < keys.D; d += LANES)
            _mm512_storeu_ps(q[a].out + d, _mm512_mul_ps(_mm512_loadu_ps(q[a].out + d), by));
    }
}
