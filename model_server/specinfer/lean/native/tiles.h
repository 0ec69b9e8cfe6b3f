/* A linear of prepared rows, one group of outputs after the other: the loop that both kinds of
 * weights share.  A step is 4 bytes of a row (4 levels of int8, or 2 columns of bfloat16) by 128
 * bytes of weights, a span 16 steps.
 */

enum { GROUP = 32, STEP = 4, WEIGHTS = STEP * GROUP }; /* outputs; bytes of a row, of weights */

/* Groups of a linear, by number. */
typedef struct {
    int64_t first, end;
} Share;

/* This thread's share, in whole units of groups. */
static Share share(int64_t out, int64_t unit, int thread, int threads)
{
    const int64_t groups = (out + GROUP - 1) / GROUP, units = (groups + unit - 1) / unit;
    const int64_t first = units * thread / threads * unit, end = units * (thread + 1) / threads * unit;
    return (Share){first, end < groups ? end : groups};
}

/* The weights of a share. */
static Range range(const Linear *l, Share own)
{
    const int64_t size = l->in * ITEM * GROUP;
    return (Range){l->weight + own.first * size, l->weight + own.end * size};
}

/* Sixteen outputs of one row: scale, add bias, store or add to what is there. */
static inline void store(const Linear *l, int64_t o, __m512 v, float *y, int add)
{
    if (o >= l->out)
        return;
    const __mmask16 real = lanes(l->out - o);
    v = scaled(l, o, v);
    if (l->bias)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(real, l->bias + o));
    if (add)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(real, y + o));
    _mm512_mask_storeu_ps(y + o, real, v);
}

static inline __m512i broadcast(const char *items)
{
    int32_t four;
    memcpy(&four, items, STEP);
    return _mm512_set1_epi32(four);
}

/* y [R, out] = or += rows [R, in] through one group of outputs.  The sums are variables with
 * names and the product is assembly, since GCC 12 moves sums in an array, or around the
 * intrinsic, through memory: eight rows then cost twice as much.  Each step asks the stream for
 * `pace` bytes. */
#define MULTIPLY(r) \
    { \
        const __m512i four = broadcast(items + r * width + k); \
        PRODUCTS(LEFT(r), left, four); \
        PRODUCTS(RIGHT(r), right, four); \
    }
#define STORE(r) \
    store(l, first, x##r, y + r * stride, add); \
    store(l, first + LANES, y##r, y + r * stride, add);
#define TILE(R, EACH) \
    static void tile##R(const Linear *l, int64_t group, const Rows *rows, int64_t row, float *y, \
                        int64_t stride, int add, Stream *s, int64_t pace) \
    { \
        const int64_t width = l->in * ITEM, first = group * GROUP, count = spans(l->in); \
        const char *items = rows->items + row * width, *w = l->weight + first * width; \
        y += row * stride; \
        OPEN \
        EACH(DECLARE) \
        for (int64_t span = 0, k = 0; span < count; span++) { \
            const int64_t end = k + SPAN * ITEM < width ? k + SPAN * ITEM : width; \
            const char *at = s->at; \
            EACH(START) \
            for (; k < end; k += STEP, w += WEIGHTS, at += pace) { \
                const __m512i left = _mm512_loadu_si512(w), right = _mm512_loadu_si512(w + 64); \
                ask(at); \
                ask(at + LINE); \
                EACH(MULTIPLY) \
            } \
            EACH(FOLD) \
            move_to(s, at); \
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

/* A share of y [N, out] = or += the linear of prepared rows. */
static void apply(const Linear *l, Share own, const Rows *rows, int64_t N, float *y,
                  int64_t stride, int add, Stream *s)
{
    const int64_t tiles = N / 8 + (N >> 2 & 1) + (N >> 1 & 1) + (N & 1);
    for (int64_t g = own.first; g < own.end; g++) {
        const int64_t pace = (WEIGHTS / (s->lead > LOW ? 2 : 1) + tiles - 1) / tiles;
        s->lead += (pace * tiles - WEIGHTS) * (l->in * ITEM / STEP);
        int64_t r = 0;
#define WHILE_LEFT(R) \
    for (; r + R <= N; r += R) \
        tile##R(l, g, rows, r, y, stride, add, s, pace);
        WHILE_LEFT(8)
        WHILE_LEFT(4)
        WHILE_LEFT(2)
        WHILE_LEFT(1)
    }
}
