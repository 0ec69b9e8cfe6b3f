/* Products of int8 weights and activations quantized by spans of columns (AVX-512 VNNI).
 *
 * Weights + 128 [out / GROUP, in / 4, GROUP, 4], a scale an output.  Sums within a span are
 * integers, so their order does not matter.  A span's own scale makes an outlier's span coarse,
 * not its row.
 */

enum { ITEM = 1, SPAN = 64 }; /* bytes a column; columns with one scale */

typedef struct {
    char *items;      /* [N, columns] levels */
    float *scales;    /* [N, spans] */
    int32_t *offsets; /* the same: -128 * the sum of a span's levels */
} Rows;

static int64_t spans(int64_t n) { return (n + SPAN - 1) / SPAN; }

static int take_rows(Rows *rows, int64_t N, int64_t columns)
{
    rows->items = room(N * columns);
    rows->scales = room(N * spans(columns) * 4);
    rows->offsets = room(N * spans(columns) * 4);
    return rows->items && rows->scales && rows->offsets;
}

static void free_rows(Rows *rows) { free(rows->items), free(rows->scales), free(rows->offsets); }

/* Quantize the columns from start to end of a row of n; start is a span's. */
static void prepare(const float *x, int64_t start, int64_t end, int64_t n, int64_t row, Rows *rows)
{
    int8_t *levels = (int8_t *)rows->items + row * n;
    for (; start < end; start += SPAN) {
        const int64_t stop = start + SPAN < end ? start + SPAN : end;
        const int64_t own = row * spans(n) + start / SPAN;
        __m512 most = _mm512_set1_ps(1e-20f);
        for (int64_t i = start; i < stop; i += LANES)
            most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
        const float largest = _mm512_reduce_max_ps(most);
        const __m512 by = _mm512_set1_ps(127.0f / largest);
        __m512i sum = _mm512_setzero_si512();
        for (int64_t i = start; i < stop; i += LANES) {
            const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), by));
            _mm_storeu_si128((__m128i *)(levels + i), _mm512_cvtepi32_epi8(v));
            sum = _mm512_add_epi32(sum, v);
        }
        rows->scales[own] = largest / 127.0f;
        rows->offsets[own] = -128 * _mm512_reduce_add_epi32(sum);
    }
}

static inline __m512 scaled(const Linear *l, int64_t o, __m512 v)
{
    return _mm512_mul_ps(v, _mm512_loadu_ps(l->scale + o));
}

static inline __m512 fold(__m512i sums, float scale, __m512 total)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(scale), total);
}

#define OPEN \
    const float *scales = rows->scales + row * count; \
    const int32_t *offsets = rows->offsets + row * count;
#define DECLARE(r) __m512 x##r = _mm512_setzero_ps(), y##r = x##r;
#define START(r) __m512i a##r = _mm512_set1_epi32(offsets[r * count + span]), b##r = a##r;
#define LEFT(r) a##r
#define RIGHT(r) b##r
#define PRODUCTS(sum, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))
#define FOLD(r) \
    x##r = fold(a##r, scales[r * count + span], x##r); \
    y##r = fold(b##r, scales[r * count + span], y##r);
