/* One pass of a Llama-like decoder with int8 weights, on processors with AVX-512 VNNI.
 *
 * Every row is computed by itself: its own scales, integer sums within a span of columns, and
 * every sum of floats in an order that depends on the row's own position alone.  So a row's logits are the
 * same bits alone, in a token tree, or beside other requests.  Contraction is off when this is
 * compiled, since a compiler may fuse the same expression here and not there.
 *
 * Shapes as in specinfer_kernels: N rows, B requests, H query heads, K key/value heads, D head
 * width, S cache slots.
 */
#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16, GROUP = 32, SPAN = 64 }; /* SPAN: columns of a row with one scale */
enum { PATIENCE = 2000 }; /* pauses, some 50 microseconds, before a waiting thread lets others run */

/* Weights + 128 [out / GROUP, in / 4, GROUP, 4], the last group padded; a scale an output. */
typedef struct {
    const uint8_t *weight;
    const float *scale;
    const float *bias; /* may be null */
    int64_t out, in;
} Linear;

typedef struct {
    const float *before, *between; /* gains of the norms, [hidden] */
    const float *q_norm, *k_norm;  /* [D], or null */
    Linear qkv, o, gate_up, down;
    int64_t window; /* 0: none */
} Layer;

typedef struct {
    const Layer *layers;
    const float *norm;
    Linear head;
    int64_t depth, hidden, heads, kv_heads, width, inner;
    double eps;
} Model;

typedef struct {
    float *x;               /* [N, hidden], the embedded tokens; overwritten */
    float *logits;          /* [R, V] */
    float *kv;              /* [depth, 2, S, K, D] */
    const float *cos, *sin; /* [N, D]; sines of the first half are negated */
    const int64_t *slots;   /* [N] */
    const int64_t *wanted;  /* [R] */
    const int64_t *ancestors; /* [N, words] */
    const int32_t *starts, *contexts, *pages; /* [B + 1], [B], [B, columns] */
    int64_t rows, wanted_rows, requests, words, columns, page_size, kv_slots, longest, threads;
} Pass;

typedef struct {
    int8_t *levels;   /* [N, widest input] */
    float *scales;    /* [N, spans of the widest input] */
    int32_t *offsets; /* the same: -128 * the sum of a span's levels */
    float *y;        /* [N, widest output] */
    float *seen;     /* [N, H * D] */
    int32_t *paths;  /* [N, longest]: slots a row sees, by position */
    int32_t *lengths; /* [N] */
    float *scores;   /* [threads, longest + LANES] */
    _Alignas(64) int arrived;
    _Alignas(64) int meetings;
} Work;

/* Wait until all threads have come.  Where another program holds a core, OpenMP's own barrier spins
 * for milliseconds on the core that the missing thread needs, 240 times a pass. */
static void meet(Work *w, int threads)
{
    const int meeting = __atomic_load_n(&w->meetings, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&w->arrived, 1, __ATOMIC_ACQ_REL) == threads) {
        __atomic_store_n(&w->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&w->meetings, meeting + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int waits = 0; __atomic_load_n(&w->meetings, __ATOMIC_ACQUIRE) == meeting; waits++)
        if (waits < PATIENCE)
            _mm_pause();
        else
            sched_yield();
}

static __m512 exp16(__m512 x)
{
    const __m512 least = _mm512_set1_ps(-87.0f), most = _mm512_set1_ps(88.0f);
    x = _mm512_min_ps(_mm512_max_ps(x, least), most);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* 1 / sqrt(mean of squares + eps). */
static float inverse_rms(const float *x, int64_t n, double eps)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += LANES) {
        __m512 v = _mm512_loadu_ps(x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    return 1.0f / sqrtf(_mm512_reduce_add_ps(sum) / (float)n + (float)eps);
}

static int64_t spans(int64_t n) { return (n + SPAN - 1) / SPAN; }

/* Quantize a row by spans of columns: an outlier makes its own span coarse, not the row. */
static void quantize(const float *x, int64_t n, int64_t row, Work *w)
{
    int8_t *levels = w->levels + row * n;
    for (int64_t span = 0; span < spans(n); span++) {
        const int64_t end = (span + 1) * SPAN < n ? (span + 1) * SPAN : n;
        __m512 most = _mm512_set1_ps(1e-20f);
        for (int64_t i = span * SPAN; i < end; i += LANES)
            most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
        const float largest = _mm512_reduce_max_ps(most);
        const __m512 by = _mm512_set1_ps(127.0f / largest);
        __m512i sum = _mm512_setzero_si512();
        for (int64_t i = span * SPAN; i < end; i += LANES) {
            const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), by));
            _mm_storeu_si128((__m128i *)(levels + i), _mm512_cvtepi32_epi8(v));
            sum = _mm512_add_epi32(sum, v);
        }
        w->scales[row * spans(n) + span] = largest / 127.0f;
        w->offsets[row * spans(n) + span] = -128 * _mm512_reduce_add_epi32(sum);
    }
}

static void norm_and_quantize(const float *x, const float *gain, int64_t n, double eps,
                              float *normed, int64_t row, Work *w)
{
    const float by = inverse_rms(x, n, eps);
    for (int64_t i = 0; i < n; i++)
        normed[i] = x[i] * by * gain[i];
    quantize(normed, n, row, w);
}

/* Sixteen outputs of one row: scale, add bias, store or add to what is there. */
static inline void store(const Linear *l, int64_t o, __m512 v, float *y, int add)
{
    if (o >= l->out)
        return;
    const __mmask16 real = l->out - o >= LANES ? 0xFFFF : (1u << (l->out - o)) - 1;
    v = _mm512_mul_ps(v, _mm512_loadu_ps(l->scale + o));
    if (l->bias)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(real, l->bias + o));
    if (add)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(real, y + o));
    _mm512_mask_storeu_ps(y + o, real, v);
}

static inline __m512i four_levels(const int8_t *levels)
{
    int32_t four;
    memcpy(&four, levels, 4);
    return _mm512_set1_epi32(four);
}

static inline __m512 fold(__m512i sums, float scale, __m512 total)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(scale), total);
}

/* y [R, out] = or += levels [R, in] through one group of outputs.  The sums are variables with
 * names and the product is assembly, since GCC 12 moves sums in an array, or around the
 * intrinsic, through memory: eight rows then cost twice as much. */
#define PRODUCTS(sum, u, s) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s))
#define DECLARE(r) __m512 x##r = _mm512_setzero_ps(), y##r = x##r;
#define START(r) __m512i a##r = _mm512_set1_epi32(offsets[r * count + span]), b##r = a##r;
#define MULTIPLY(r) \
    { \
        const __m512i four = four_levels(levels + r * in + k); \
        PRODUCTS(a##r, left, four); \
        PRODUCTS(b##r, right, four); \
    }
#define FOLD(r) \
    x##r = fold(a##r, scales[r * count + span], x##r); \
    y##r = fold(b##r, scales[r * count + span], y##r);
#define STORE(r) \
    store(l, first, x##r, y + r * stride, add); \
    store(l, first + LANES, y##r, y + r * stride, add);
#define TILE(R, EACH) \
    static void tile##R(const Linear *l, int64_t group, const Work *work, int64_t row, float *y, \
                        int64_t stride, int add) \
    { \
        const int64_t in = l->in, first = group * GROUP, count = spans(in); \
        const int8_t *levels = work->levels + row * in; \
        const float *scales = work->scales + row * count; \
        const int32_t *offsets = work->offsets + row * count; \
        const uint8_t *w = l->weight + first * in; \
        y += row * stride; \
        EACH(DECLARE) \
        for (int64_t span = 0, k = 0; span < count; span++) { \
            const int64_t end = k + SPAN < in ? k + SPAN : in; \
            EACH(START) \
            for (; k < end; k += 4, w += 4 * GROUP) { \
                const __m512i left = _mm512_loadu_si512(w), right = _mm512_loadu_si512(w + 64); \
                EACH(MULTIPLY) \
            } \
            EACH(FOLD) \
        } \
        EACH(STORE) \
    }
#define EACH1(DO) DO(0)
#define EACH2(DO) EACH1(DO) DO(1)
#define EACH4(DO) EACH2(DO) DO(2) DO(3)
#define EACH8(DO) EACH4(DO) DO(4) DO(5) DO(6) DO(7)
TILE(1, EACH1)
TILE(2, EACH2)
TILE(4, EACH4)
TILE(8, EACH8)

/* This thread's share of y [rows, out] = or += the linear of quantized rows. */
static void apply(const Linear *l, const Work *work, int64_t rows, float *y, int64_t stride,
                  int add, int thread, int threads)
{
    const int64_t groups = (l->out + GROUP - 1) / GROUP;
    const int64_t first = groups * thread / threads, end = groups * (thread + 1) / threads;
    for (int64_t g = first; g < end; g++) {
        int64_t r = 0;
#define WHILE_LEFT(R) \
    for (; r + R <= rows; r += R) \
        tile##R(l, g, work, r, y, stride, add);
        WHILE_LEFT(8)
        WHILE_LEFT(4)
        WHILE_LEFT(2)
        WHILE_LEFT(1)
    }
}

static void turn(float *x, const float *cos, const float *sin, int64_t width)
{
    const int64_t half = width / 2;
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] + b * sin[i];
        x[i + half] = b * cos[i + half] + a * sin[i + half];
    }
}

/* Norm, turn and store one row's keys and values; its queries stay in qkv. */
static void place(const Model *m, const Layer *l, const Pass *p, int64_t row, float *qkv,
                  float *keys, float *values)
{
    const int64_t D = m->width, turned = m->heads + m->kv_heads;
    for (int64_t h = 0; h < turned; h++) {
        const float *gain = h < m->heads ? l->q_norm : l->k_norm;
        float *x = qkv + h * D;
        if (gain) {
            const float by = inverse_rms(x, D, m->eps);
            for (int64_t i = 0; i < D; i++)
                x[i] = x[i] * by * gain[i];
        }
        turn(x, p->cos + row * D, p->sin + row * D, D);
    }
    const int64_t size = m->kv_heads * D, slot = p->slots[row];
    memcpy(keys + slot * size, qkv + m->heads * D, size * sizeof(float));
    memcpy(values + slot * size, qkv + turned * D, size * sizeof(float));
}

/* Sum each of sixteen vectors; the sums in their order. */
static inline __m512 sum_each(const __m512 v[LANES])
{
    __m512 pairs[8], fours[4], halves[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        pairs[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                                 _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512d a = _mm512_castps_pd(pairs[2 * i]), b = _mm512_castps_pd(pairs[2 * i + 1]);
        fours[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                                 _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    for (int i = 0; i < 2; i++)
        halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0x88),
                                  _mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0xDD));
    return _mm512_add_ps(_mm512_shuffle_f32x4(halves[0], halves[1], 0x88),
                         _mm512_shuffle_f32x4(halves[0], halves[1], 0xDD));
}

/* Score the keys of a path, sixteen at a time, the last ones again where they are fewer; return
 * the largest score. */
static float score(const float *query, const float *keys, int64_t size, int64_t D,
                   const int32_t *path, int64_t count, float *scores)
{
    const __m512 scale = _mm512_set1_ps(1.0f / sqrtf((float)D));
    __m512 most = _mm512_set1_ps(-INFINITY);
    for (int64_t i = 0; i < count; i += LANES) {
        __m512 sums[LANES];
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++) {
            const float *key = keys + path[i + j < count ? i + j : count - 1] * size;
            __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(query), _mm512_loadu_ps(key));
            for (int64_t d = LANES; d < D; d += LANES)
                sum = _mm512_fmadd_ps(_mm512_loadu_ps(query + d), _mm512_loadu_ps(key + d), sum);
            sums[j] = sum;
        }
        const __m512 found = _mm512_mul_ps(sum_each(sums), scale);
        most = _mm512_max_ps(most, found);
        _mm512_storeu_ps(scores + i, found);
    }
    return _mm512_reduce_max_ps(most);
}

/* Softmax of count scores without the division, in place; returns what to divide by. */
static float weigh(float *scores, int64_t count, float largest)
{
    __m512 total = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i += LANES) {
        const __mmask16 real = count - i >= LANES ? 0xFFFF : (1u << (count - i)) - 1;
        __m512 v = _mm512_maskz_loadu_ps(real, scores + i);
        v = exp16(_mm512_sub_ps(v, _mm512_set1_ps(largest)));
        v = _mm512_maskz_mov_ps(real, v);
        _mm512_storeu_ps(scores + i, v);
        total = _mm512_add_ps(total, v);
    }
    return _mm512_reduce_add_ps(total);
}

/* One row and query head: out [D] from the cache along the row's path. */
static void attend(const Model *m, const Layer *l, const float *query, const float *keys,
                   const float *values, int64_t kv_head, const int32_t *path, int64_t length,
                   float *scores, float *out)
{
    const int64_t D = m->width, size = m->kv_heads * D;
    const int64_t first = l->window && length > l->window ? length - l->window : 0;
    const int64_t count = length - first;
    path += first;
    const float largest = score(query, keys + kv_head * D, size, D, path, count, scores);
    const float by = 1.0f / weigh(scores, count, largest);
    for (int64_t d = 0; d < D; d += 4 * LANES) {
        const int64_t parts = (D - d) / LANES < 4 ? (D - d) / LANES : 4;
        __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                         _mm512_setzero_ps()};
        for (int64_t i = 0; i < count; i++) {
            const float *v = values + path[i] * size + kv_head * D + d;
            const __m512 weight = _mm512_set1_ps(scores[i]);
            if (parts == 4) {
                for (int part = 0; part < 4; part++)
                    sum[part] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(v + part * LANES), sum[part]);
            } else {
                for (int64_t part = 0; part < parts; part++)
                    sum[part] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(v + part * LANES), sum[part]);
            }
        }
        for (int64_t part = 0; part < parts; part++)
            _mm512_storeu_ps(out + d + part * LANES,
                             _mm512_mul_ps(sum[part], _mm512_set1_ps(by)));
    }
}

/* List the slots that each row sees, in the order of their positions. */
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
        }
    }
}

static void gate(float *y, int64_t inner)
{
    for (int64_t i = 0; i < inner; i += LANES) {
        const __m512 g = _mm512_loadu_ps(y + i), one = _mm512_set1_ps(1.0f);
        const __m512 e = exp16(_mm512_sub_ps(_mm512_setzero_ps(), g));
        const __m512 s = _mm512_div_ps(g, _mm512_add_ps(one, e));
        _mm512_storeu_ps(y + i, _mm512_mul_ps(s, _mm512_loadu_ps(y + inner + i)));
    }
}

static void run_layer(const Model *m, const Layer *l, const Pass *p, Work *w, float *keys,
                      int64_t wide, int thread, int threads)
{
    const int64_t hidden = m->hidden, N = p->rows, D = m->width, seen = m->heads * D;
    float *values = keys + p->kv_slots * m->kv_heads * D;
    for (int64_t r = thread; r < N; r += threads)
        norm_and_quantize(p->x + r * hidden, l->before, hidden, m->eps, w->y + r * wide, r, w);
    meet(w, threads);
    apply(&l->qkv, w, N, w->y, wide, 0, thread, threads);
    meet(w, threads);
    for (int64_t r = thread; r < N; r += threads)
        place(m, l, p, r, w->y + r * wide, keys, values);
    meet(w, threads);
    for (int64_t task = thread; task < N * m->heads; task += threads) {
        const int64_t r = task / m->heads, h = task % m->heads;
        attend(m, l, w->y + r * wide + h * D, keys, values, h / (m->heads / m->kv_heads),
               w->paths + r * p->longest, w->lengths[r],
               w->scores + thread * (p->longest + LANES), w->seen + r * seen + h * D);
    }
    meet(w, threads);
    for (int64_t r = thread; r < N; r += threads)
        quantize(w->seen + r * seen, seen, r, w);
    meet(w, threads);
    apply(&l->o, w, N, p->x, hidden, 1, thread, threads);
    meet(w, threads);
    for (int64_t r = thread; r < N; r += threads)
        norm_and_quantize(p->x + r * hidden, l->between, hidden, m->eps, w->y + r * wide, r, w);
    meet(w, threads);
    apply(&l->gate_up, w, N, w->y, wide, 0, thread, threads);
    meet(w, threads);
    for (int64_t r = thread; r < N; r += threads) {
        gate(w->y + r * wide, m->inner);
        quantize(w->y + r * wide, m->inner, r, w);
    }
    meet(w, threads);
    apply(&l->down, w, N, p->x, hidden, 1, thread, threads);
    meet(w, threads);
}

static void run_head(const Model *m, const Pass *p, Work *w, int64_t wide, int thread, int threads)
{
    for (int64_t r = thread; r < p->wanted_rows; r += threads)
        norm_and_quantize(p->x + p->wanted[r] * m->hidden, m->norm, m->hidden, m->eps,
                          w->y + r * wide, r, w);
    meet(w, threads);
    apply(&m->head, w, p->wanted_rows, p->logits, m->head.out, 0, thread, threads);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void *room(int64_t bytes) { return aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64); }

/* Return 0, or 1 where memory ran out. */
int specinfer_decode(const Model *m, const Pass *p)
{
    const int64_t N = p->rows, seen = m->heads * m->width;
    const int64_t deep = larger(larger(m->hidden, m->inner), seen);
    const int64_t wide = larger(larger(m->hidden, 2 * m->inner),
                                (m->heads + 2 * m->kv_heads) * m->width);
    const int64_t layer_size = 2 * p->kv_slots * m->kv_heads * m->width;
    Work w = {
        .levels = room(N * deep),
        .scales = room(N * spans(deep) * 4),
        .offsets = room(N * spans(deep) * 4),
        .y = room(N * wide * 4),
        .seen = room(N * seen * 4),
        .paths = room(N * p->longest * 4),
        .lengths = room(N * 4),
        .scores = room(p->threads * (p->longest + LANES) * 4),
    };
    const int whole = w.levels && w.scales && w.offsets && w.y && w.seen && w.paths && w.lengths && w.scores;
    if (whole) {
        find_paths(p, &w);
#pragma omp parallel num_threads(p->threads)
        {
            const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
            for (int64_t i = 0; i < m->depth; i++)
                run_layer(m, &m->layers[i], p, &w, p->kv + i * layer_size, wide, thread, threads);
            run_head(m, p, &w, wide, thread, threads);
        }
    }
    free(w.levels), free(w.scales), free(w.offsets), free(w.y), free(w.seen);
    free(w.paths), free(w.lengths), free(w.scores);
    return !whole;
}
