/* Products of bfloat16 weights and activations rounded to bfloat16 (AVX-512 BF16).
 *
 * Weights [out / GROUP, in / 2, GROUP, 2].  An output is one float32 sum over pairs of columns in
 * their order.
 */

enum { ITEM = 2, SPAN = 32 }; /* bytes a column; columns between two looks at the stream */

typedef struct {
    char *items; /* [N, columns] bfloat16 */
} Rows;

static int64_t spans(int64_t n) { return (n + SPAN - 1) / SPAN; }

static int take_rows(Rows *rows, int64_t N, int64_t columns)
{
    rows->items = room(N * columns * ITEM);
    return rows->items != NULL;
}

static void free_rows(Rows *rows) { free(rows->items); }

/* Round the columns from start to end of a row of n. */
static void prepare(const float *x, int64_t start, int64_t end, int64_t n, int64_t row, Rows *rows)
{
    char *items = rows->items + row * n * ITEM;
    for (int64_t i = start; i < end; i += LANES)
        _mm256_storeu_si256((__m256i *)(items + i * ITEM),
                            (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
}

static inline __m512 scaled(const Linear *l, int64_t o, __m512 v) { return (void)l, (void)o, v; }

#define OPEN
#define DECLARE(r) __m512 x##r = _mm512_setzero_ps(), y##r = x##r;
#define START(r)
#define LEFT(r) x##r
#define RIGHT(r) y##r
#define PRODUCTS(sum, w, x) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))
#define FOLD(r)
