/* Weights on their way from memory: each thread asks for what it will multiply next, also while it
 * computes something else or waits, so that memory never rests.
 *
 * The weights a thread reads in a pass are a ring of ranges.  It asks ahead of what it multiplies;
 * `lead` is by how much.  Attention, norms and waiting let the lead grow, products use it up.
 */

/* Bytes.  A share of a core's second cache (1 MB on Zen 4); below LOW a lead is not used up. */
enum { LINE = 64, LOW = 32 << 10, HIGH = 384 << 10 };

typedef struct {
    const char *start, *end;
} Range;

typedef struct {
    const Range *range, *first, *last;
    const char *at; /* the next line to ask for */
    int64_t lead;
} Stream;

static Stream start_stream(const Range *ranges, int64_t count)
{
    return (Stream){ranges, ranges, ranges + count - 1, ranges->start, 0};
}

static inline void ask(const char *at) { _mm_prefetch(at, _MM_HINT_T1); }

/* What was asked for ends at `at`; go on in the next range where this one is over. */
static inline void move_to(Stream *s, const char *at)
{
    s->at = at;
    if (at >= s->range->end) {
        s->range = s->range == s->last ? s->first : s->range + 1;
        s->at = s->range->start;
    }
}

/* Ask for some lines more, unless the lead is large enough. */
static inline void ask_ahead(Stream *s, int64_t count)
{
    if (s->lead >= HIGH)
        return;
    s->lead += count * LINE;
    for (int64_t i = 0; i < count; i++) {
        ask(s->at);
        move_to(s, s->at + LINE);
    }
}
