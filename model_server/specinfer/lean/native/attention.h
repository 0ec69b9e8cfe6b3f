/* Tree attention over the paged cache: every row along its own path, by position.
 *
 * All rows of a request see its context, so some 24 queries, of neighbouring rows and the heads of
 * one key/value head, go through it together: sixteen keys are turned over once, columns by keys,
 * and a score is a sum over the columns in their order.  The request's own rows are scored in the
 * same way, and a query keeps those of its ancestors, which follow each other by position.  Each
 * query's sums keep the order that they would have alone.
 */

enum {
    QUERIES = 32,           /* at most, together */
    PACKED = 16,            /* of them side by side in memory */
    ROWED = 8, BLOCK = 4,   /* scored together; given values together */
    NEAR = 64,              /* keys whose values stay in the first cache from block to block */
    AHEAD = 4 * LANES,      /* keys between those that are scored and those that are asked for */
};

/* What a query needs to know of its row. */
typedef struct {
    const float *vector;
    const int64_t *ancestors; /* bits: which of the request's rows it sees */
    const int32_t *tail;      /* their slots, by position */
    int64_t hidden, length;   /* positions that it sees: from the one to the other */
    float *scores;            /* [length + LANES] */
    float *out;               /* [D] */
} Query;

/* A request's keys and values of one head. */
typedef struct {
    const Half *keys, *values; /* a slot's begins `size` after the one before */
    const int32_t *slots;       /* [context], by position */
    const int64_t *own;         /* its rows' slots */
    int64_t context, D, size;
} Seen;

/* A thread's own. */
typedef struct {
    float *packed; /* [QUERIES / PACKED, D, PACKED] */
    float *turned; /* [D, LANES] */
    float *found;  /* [ROWED, LANES] */
    float *scores; /* [QUERIES, most] */
} Desk;

static Desk lay_out(float *room, int64_t D)
{
    float *turned = room + QUERIES * D, *found = turned + LANES * D;
    return (Desk){room, turned, found, found + LANES * ROWED};
}

/* List the slots of each context, and of each row's ancestors. */
static void find_paths(const Pass *p, Work *w)
{
    for (int64_t b = 0; b < p->requests; b++) {
        const int64_t context = p->contexts[b], size = p->page_size, first = p->starts[b];
        for (int64_t i = 0; i < context; i++)
            w->slots[b * p->longest + i]
                = p->pages[b * p->columns + i / size] * (int32_t)size + (int32_t)(i % size);
        for (int64_t row = first; row < p->starts[b + 1]; row++) {
            int32_t *tail = w->tails + row * w->tail;
            for (int64_t j = 0; j <= row - first; j++)
                if (p->ancestors[row * p->words + j / 64] >> (j % 64) & 1)
                    *tail++ = (int32_t)p->slots[first + j];
            w->lengths[row] = (int32_t)(context + (tail - (w->tails + row * w->tail)));
            w->keys += w->lengths[row];
        }
    }
}

/* Turn sixteen rows of sixteen numbers over. */
static inline __attribute__((always_inline)) void turn_square(__m512 a[LANES], float *to)
{
    __m512 b[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#define PAIR(half, x, y) \
    _mm512_castpd_ps(_mm512_unpack##half##_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)))
#pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        a[i] = PAIR(lo, b[i], b[i + 2]), a[i + 1] = PAIR(hi, b[i], b[i + 2]);
        a[i + 2] = PAIR(lo, b[i + 1], b[i + 3]), a[i + 3] = PAIR(hi, b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++, to += LANES) {
        const __m512 low = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x44);
        const __m512 high = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xEE);
        const __m512 low2 = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x44);
        const __m512 high2 = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xEE);
        _mm512_storeu_ps(to, _mm512_shuffle_f32x4(low, low2, 0x88));
        _mm512_storeu_ps(to + 4 * LANES, _mm512_shuffle_f32x4(low, low2, 0xDD));
        _mm512_storeu_ps(to + 8 * LANES, _mm512_shuffle_f32x4(high, high2, 0x88));
        _mm512_storeu_ps(to + 12 * LANES, _mm512_shuffle_f32x4(high, high2, 0xDD));
    }
}

/* Turn sixteen keys [LANES][D] into [D][LANES]. */
static void turn_keys(const Half *const key[LANES], int64_t D, float *to)
{
    for (int64_t d = 0; d < D; d += LANES) {
        __m512 rows[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            rows[i] = widen(key[i] + d);
        turn_square(rows, to + d * LANES);
    }
}

/* Lay queries side by side, column by column, the last one again where places are left. */
static void pack(const Query *q, int count, int64_t D, float *packed)
{
    for (int first = 0; first < count; first += PACKED, packed += PACKED * D)
        for (int64_t d = 0; d < D; d += LANES) {
            __m512 rows[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                rows[i] = _mm512_loadu_ps(q[first + i < count ? first + i : count - 1].vector + d);
            turn_square(rows, packed + d * PACKED);
        }
}

/* Score sixteen keys for some packed queries. */
static inline __attribute__((always_inline)) void
score_some(const float *packed, const int count, const Desk *desk, int64_t D)
{
    const __m512 scale = _mm512_set1_ps(1.0f / sqrtf((float)D));
    __m512 sums[ROWED];
#pragma GCC unroll 8
    for (int a = 0; a < count; a++)
        sums[a] = _mm512_setzero_ps();
    for (int64_t d = 0; d < D; d++) {
        const __m512 key = _mm512_loadu_ps(desk->turned + d * LANES);
#pragma GCC unroll 8
        for (int a = 0; a < count; a++)
            sums[a] = _mm512_fmadd_ps(key, _mm512_set1_ps(packed[d * PACKED + a]), sums[a]);
    }
#pragma GCC unroll 8
    for (int a = 0; a < count; a++)
        _mm512_storeu_ps(desk->found + a * LANES, _mm512_mul_ps(sums[a], scale));
}

/* Score the keys for up to ROWED of count queries. */
static void score(const Desk *desk, int first, int count, int64_t D)
{
    const float *packed = desk->packed + first / PACKED * PACKED * D + first % PACKED;
    if (count - first > ROWED / 2)
        score_some(packed, ROWED, desk, D);
    else
        score_some(packed, ROWED / 2, desk, D);
}

/* Ask for the keys at some positions of the context. */
static void ask_for_keys(const Seen *seen, int64_t start)
{
    for (int64_t i = start; i < start + LANES && i < seen->context; i++)
        for (int64_t d = 0; d < seen->D; d += LINE / sizeof(Half))
            ask((const char *)(seen->keys + seen->slots[i] * seen->size + d));
}

/* Score the context from a position on, the last key again where lanes are left. */
static void score_context(const Seen *seen, const Query *q, int count, int64_t from, Desk *desk,
                          Stream *s)
{
    const Half *key[LANES];
    for (int64_t i = from; i < seen->context; i += LANES) {
        for (int64_t j = 0; j < LANES; j++)
            key[j] = seen->keys
                     + seen->slots[i + j < seen->context ? i + j : seen->context - 1] * seen->size;
        ask_for_keys(seen, i + AHEAD);
        turn_keys(key, seen->D, desk->turned);
        for (int first = 0; first < count; first += ROWED) {
            ask_ahead(s, 16);
            score(desk, first, count, seen->D);
            for (int a = first; a < count && a < first + ROWED; a++)
                _mm512_storeu_ps(q[a].scores + i,
                                 _mm512_loadu_ps(desk->found + (a - first) * LANES));
        }
    }
}

/* Score a request's first rows; each query keeps its ancestors' scores, behind the context's. */
static void score_own(const Seen *seen, const Query *q, int count, int64_t rows, Desk *desk,
                      Stream *s)
{
    const Half *key[LANES];
    int64_t length[QUERIES];
    for (int a = 0; a < count; a++)
        length[a] = seen->context;
    for (int64_t i = 0; i < rows; i += LANES) {
        for (int64_t j = 0; j < LANES; j++)
            key[j] = seen->keys + seen->own[i + j < rows ? i + j : rows - 1] * seen->size;
        turn_keys(key, seen->D, desk->turned);
        for (int first = 0; first < count; first += ROWED) {
            ask_ahead(s, 16);
            score(desk, first, count, seen->D);
            for (int a = first; a < count && a < first + ROWED; a++) {
                const __mmask16 kept = (__mmask16)(q[a].ancestors[i / 64] >> (i % 64));
                const __m512 found = _mm512_loadu_ps(desk->found + (a - first) * LANES);
                _mm512_storeu_ps(q[a].scores + length[a], _mm512_maskz_compress_ps(kept, found));
                length[a] += __builtin_popcount(kept);
            }
        }
    }
}

/* Softmax without the division of the scores that a query sees, in place, zeros for what is hidden
 * from a position on; returns what to divide by.  A position has one lane ever. */
static float weigh(const Query *q, int64_t from)
{
    __m512 most = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps();
#define REAL(i) (lanes(q->length - i) & (i < q->hidden ? ~lanes(q->hidden - i) : 0xFFFF))
    for (int64_t i = from; i < q->length; i += LANES)
        most = _mm512_mask_max_ps(most, REAL(i), most, _mm512_loadu_ps(q->scores + i));
    const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int64_t i = from; i < q->length; i += LANES) {
        __m512 v = exp16(_mm512_sub_ps(_mm512_loadu_ps(q->scores + i), largest));
        v = _mm512_maskz_mov_ps(REAL(i), v);
        _mm512_storeu_ps(q->scores + i, v);
        total = _mm512_add_ps(total, v);
    }
    return _mm512_reduce_add_ps(total);
}

/* Add the weighed values of slots, in their order, to what count queries have; the weight of the
 * first is at a position. */
static inline __attribute__((always_inline)) void
add_some(const Query *q, const int count, const int parts, const Half *values, int64_t size,
         int64_t d, const int32_t *slots, int64_t slot_count, int64_t position)
{
    __m512 sums[BLOCK][4];
    const float *weights[BLOCK];
#pragma GCC unroll 4
    for (int a = 0; a < count; a++) {
        weights[a] = q[a].scores + position;
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            sums[a][part] = _mm512_loadu_ps(q[a].out + d + part * LANES);
    }
    for (int64_t i = 0; i < slot_count; i++) {
        const Half *value = values + slots[i] * size + d;
        __m512 v[4];
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            v[part] = widen(value + part * LANES);
#pragma GCC unroll 4
        for (int a = 0; a < count; a++) {
            const __m512 weight = _mm512_set1_ps(weights[a][i]);
#pragma GCC unroll 4
            for (int part = 0; part < parts; part++)
                sums[a][part] = _mm512_fmadd_ps(weight, v[part], sums[a][part]);
        }
    }
#pragma GCC unroll 4
    for (int a = 0; a < count; a++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            _mm512_storeu_ps(q[a].out + d + part * LANES, sums[a][part]);
}

/* The same for all columns and up to BLOCK queries. */
static void add_values(const Query *q, int count, const Seen *seen, const int32_t *slots,
                       int64_t slot_count, int64_t position)
{
#define ADD(COUNT, PARTS) \
    case COUNT: \
        add_some(q, COUNT, PARTS, seen->values, seen->size, d, slots, slot_count, position); \
        break;
    int64_t d = 0;
    for (; d + 4 * LANES <= seen->D; d += 4 * LANES)
        switch (count) { ADD(1, 4) ADD(2, 4) ADD(3, 4) ADD(4, 4) }
    for (; d < seen->D; d += LANES)
        switch (count) { ADD(1, 1) ADD(2, 1) ADD(3, 1) ADD(4, 1) }
}

/* How many of the queries, at most BLOCK, are of the first one's row. */
static int of_one_row(const Query *q, int count)
{
    int same = 1;
    while (same < count && same < BLOCK && q[same].tail == q->tail)
        same++;
    return same;
}

/* At most QUERIES queries of a request and key/value head, by rows; the last one's row is the
 * rows' last. */
static void attend(const Seen *seen, const Query *q, int count, int64_t rows, Desk *desk, Stream *s)
{
    int64_t from = seen->context;
    for (int a = 0; a < count; a++)
        from = q[a].hidden < from ? q[a].hidden : from;
    from = from / LANES * LANES;
    pack(q, count, seen->D, desk->packed);
    score_context(seen, q, count, from, desk, s);
    score_own(seen, q, count, rows, desk, s);
    float total[QUERIES];
    for (int a = 0; a < count; a++) {
        total[a] = weigh(q + a, from);
        memset(q[a].out, 0, (size_t)seen->D * sizeof(float));
    }
    for (int64_t i = from; i < seen->context; i += NEAR)
        for (int a = 0; a < count; a += BLOCK) {
            add_values(q + a, count - a < BLOCK ? count - a : BLOCK, seen, seen->slots + i,
                       seen->context - i < NEAR ? seen->context - i : NEAR, i);
            ask_ahead(s, 16);
        }
    for (int a = 0, same; a < count; a += same) {
        same = of_one_row(q + a, count - a);
        add_values(q + a, same, seen, q[a].tail, q[a].length - seen->context, seen->context);
    }
    for (int a = 0; a < count; a++) {
        const __m512 by = _mm512_set1_ps(1.0f / total[a]);
        for (int64_t d = 0; d < seen->D; d += LANES)
            _mm512_storeu_ps(q[a].out + d, _mm512_mul_ps(_mm512_loadu_ps(q[a].out + d), by));
    }
}
