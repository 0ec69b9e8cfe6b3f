/* One pass of a Llama-like decoder on processors with AVX-512, its weights in int8 or bfloat16.
 *
 * Every row is computed by itself, and every sum of floats runs in an order that depends on the
 * row's own position alone.  So a row's logits are the same bits alone, in a token tree, or beside
 * other requests.  Contraction is off when this is compiled, since a compiler may fuse the same
 * expression here and not there.  PRODUCTS_OF names the header of the kind of weights.
 *
 * Shapes as in specinfer_kernels: N rows, B requests, H query heads, K key/value heads, D head
 * width, S cache slots.
 */
#include "linear.h"
#include "vectors.h"

typedef struct {
    const float *before, *between; /* gains of the norms, [hidden] */
    const float *q_norm, *k_norm;  /* [D], or null */
    Linear qkv, o, gate, up, down;
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
    float *normed;          /* [R, hidden], what the head reads; may be null */
    Half *kv;               /* [depth, 2, S, K, D], in memory by the strides below */
    const float *cos, *sin; /* [N, D]; sines of the first half are negated */
    const int64_t *slots;   /* [N] */
    const int64_t *wanted;  /* [R] */
    const int64_t *ancestors; /* [N, words] */
    const int32_t *starts, *contexts, *pages; /* [B + 1], [B], [B, columns] */
    int64_t rows, wanted_rows, requests, words, columns, page_size, longest, threads;
    int64_t kv_side, kv_slot, kv_head; /* floats from one to the next */
} Pass;

#include "stream.h"
#include PRODUCTS_OF
#include "tiles.h"
#include "team.h"

typedef struct {
    Rows narrow, deep; /* prepared: normed rows; what attention has seen or the gates let pass */
    float *y;         /* [N, widest output] */
    float *seen;      /* [N, H * D] */
    int32_t *slots;   /* [B, longest], of each context by position */
    int32_t *tails;   /* [N, tail]: slots of the rows a row sees */
    int32_t *lengths; /* [N], what a row sees */
    float *desks;     /* [threads, desk] */
    Range *ranges;    /* [threads, 5 * depth + 1]: weights in the order a thread reads them */
    int64_t wide, most, tail; /* widest output; a scores' length; rows of the longest request */
    int64_t desk, keys;       /* floats of a thread; keys that all rows see */
    Team team;
} Work;

#include "attention.h"

/* One thread of a pass. */
typedef struct {
    const Model *m;
    const Pass *p;
    Work *w;
    Stream stream;
    Desk desk;
    int thread, threads;
} Worker;

static void meet(Worker *own) { join(&own->w->team, own->threads, &own->stream); }

/* Norm and prepare this thread's share of some rows of x. */
static void norm_rows(Worker *own, const float *gain, const int64_t *which, int64_t count)
{
    const int64_t n = own->m->hidden;
    for (int64_t r = own->thread; r < count; r += own->threads) {
        const float *x = own->p->x + (which ? which[r] : r) * n;
        float *normed = own->w->y + r * own->w->wide;
        norm(x, gain, n, own->m->eps, normed);
        prepare(normed, 0, n, n, r, &own->w->narrow);
        ask_ahead(&own->stream, 32);
    }
    meet(own);
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

/* Norm and turn one head of a row, a key's and a value's into the cache. */
static void place(const Worker *own, const Layer *l, int64_t row, int64_t head, Half *keys,
                  Half *values)
{
    const Model *m = own->m;
    const int64_t D = m->width, size = own->p->kv_head, at = own->p->slots[row] * own->p->kv_slot;
    float *x = own->w->y + row * own->w->wide + head * D;
    const int64_t key = head - m->heads, value = key - m->kv_heads;
    if (value >= 0) {
        narrow(x, D, values + at + value * size);
        return;
    }
    const float *gain = key < 0 ? l->q_norm : l->k_norm;
    if (gain)
        norm(x, gain, D, m->eps, x);
    turn(x, own->p->cos + row * D, own->p->sin + row * D, D);
    if (key >= 0)
        narrow(x, D, keys + at + key * size);
}

/* Groups of outputs that hold whole heads. */
static int64_t head_unit(int64_t D)
{
    int64_t columns = D;
    while (columns % GROUP)
        columns += D;
    return columns / GROUP;
}

/* Queries, keys and values of all rows, for whole heads. */
static void project(Worker *own, const Layer *l, Half *keys, Half *values)
{
    const Model *m = own->m;
    const int64_t N = own->p->rows, D = m->width, heads = m->heads + 2 * m->kv_heads;
    const Share part = share(l->qkv.out, head_unit(D), own->thread, own->threads);
    apply(&l->qkv, part, &own->w->narrow, N, own->w->y, own->w->wide, 0, &own->stream);
    for (int64_t h = part.first * GROUP / D; h < heads && h * D < part.end * GROUP; h++)
        for (int64_t r = 0; r < N; r++)
            place(own, l, r, h, keys, values);
    meet(own);
}

/* Attend for some queries of a request and key/value head, counted over rows and then heads. */
static void attend_some(Worker *own, const Layer *l, int64_t request, int64_t kv_head,
                        int64_t first, int count, const Seen *keys_and_values)
{
    const Model *m = own->m;
    Work *w = own->w;
    const int64_t D = m->width, group = m->heads / m->kv_heads, seen = m->heads * D;
    const int64_t start = own->p->starts[request];
    Query q[QUERIES];
    for (int a = 0; a < count; a++) {
        const int64_t row = start + (first + a) / group, length = w->lengths[row];
        const int64_t head = kv_head * group + (first + a) % group;
        q[a] = (Query){
            .vector = w->y + row * w->wide + head * D,
            .ancestors = own->p->ancestors + row * own->p->words,
            .tail = w->tails + row * w->tail,
            .hidden = l->window && length > l->window ? length - l->window : 0,
            .length = length,
            .scores = own->desk.scores + a * w->most,
            .out = w->seen + row * seen + head * D,
        };
    }
    attend(keys_and_values, q, count, (first + count - 1) / group + 1, &own->desk, &own->stream);
    if (D % SPAN == 0)
        for (int a = 0; a < count; a++) {
            const int64_t row = start + (first + a) / group;
            const int64_t at = (kv_head * group + (first + a) % group) * D;
            prepare(w->seen + row * seen, at, at + D, seen, row, &w->deep);
        }
}

/* Attention of all rows and heads.  Queries in their order of requests, key/value heads, rows and
 * heads are shared out by the keys they see, so that a thread reads few keys that others read. */
static void see(Worker *own, const Layer *l, const Half *keys, const Half *values)
{
    const Model *m = own->m;
    const Pass *p = own->p;
    Work *w = own->w;
    const int64_t group = m->heads / m->kv_heads, seen = m->heads * m->width;
    const int64_t all = w->keys * m->heads;
    const int64_t begin = all * own->thread / own->threads;
    const int64_t finish = all * (own->thread + 1) / own->threads;
    int64_t at = 0;
    for (int64_t b = 0; b < p->requests; b++)
        for (int64_t h = 0; h < m->kv_heads; h++) {
            const int64_t queries = (p->starts[b + 1] - p->starts[b]) * group;
            const Seen both = {
                .keys = keys + h * p->kv_head,
                .values = values + h * p->kv_head,
                .slots = w->slots + b * p->longest,
                .own = p->slots + p->starts[b],
                .context = p->contexts[b],
                .D = m->width,
                .size = p->kv_slot,
            };
            int64_t first = 0, end = 0;
            for (int64_t q = 0; q < queries; q++) {
                first += at < begin;
                end += at < finish;
                at += w->lengths[p->starts[b] + q / group];
            }
            for (int64_t q = first; q < end; q += QUERIES)
                attend_some(own, l, b, h, q, (int)(end - q < QUERIES ? end - q : QUERIES), &both);
        }
    meet(own);
    if (m->width % SPAN == 0)
        return;
    for (int64_t r = own->thread; r < own->p->rows; r += own->threads)
        prepare(own->w->seen + r * seen, 0, seen, seen, r, &own->w->deep);
    meet(own);
}

static Share gates(const Model *m, int thread, int threads)
{
    return share(m->inner, SPAN / GROUP, thread, threads);
}

/* Gated rows, ready for the linear back to the stream; whole spans of columns a thread. */
static void gate(Worker *own, const Layer *l)
{
    Work *w = own->w;
    const int64_t N = own->p->rows, inner = own->m->inner;
    const Share part = gates(own->m, own->thread, own->threads);
    apply(&l->gate, part, &w->narrow, N, w->y, w->wide, 0, &own->stream);
    apply(&l->up, part, &w->narrow, N, w->y + inner, w->wide, 0, &own->stream);
    const int64_t first = part.first * GROUP;
    const int64_t end = part.end * GROUP < inner ? part.end * GROUP : inner;
    for (int64_t r = 0; r < N && first < end; r++) {
        float *y = w->y + r * w->wide;
        let_pass(y + first, y + inner + first, end - first);
        prepare(y, first, end, inner, r, &w->deep);
        ask_ahead(&own->stream, 32);
    }
    meet(own);
}

/* Add a linear of the deep rows to the stream. */
static void add_back(Worker *own, const Linear *l)
{
    apply(l, share(l->out, 1, own->thread, own->threads), &own->w->deep, own->p->rows, own->p->x,
          own->m->hidden, 1, &own->stream);
    meet(own);
}

static void run_layer(Worker *own, int64_t number)
{
    const Layer *l = own->m->layers + number;
    Half *keys = own->p->kv + 2 * number * own->p->kv_side, *values = keys + own->p->kv_side;
    norm_rows(own, l->before, NULL, own->p->rows);
    project(own, l, keys, values);
    see(own, l, keys, values);
    add_back(own, &l->o);
    norm_rows(own, l->between, NULL, own->p->rows);
    gate(own, l);
    add_back(own, &l->down);
}

static void run_head(Worker *own)
{
    const Linear *head = &own->m->head;
    const int64_t rows = own->p->wanted_rows, n = own->m->hidden;
    norm_rows(own, own->m->norm, own->p->wanted, rows);
    for (int64_t r = own->thread; own->p->normed && r < rows; r += own->threads)
        memcpy(own->p->normed + r * n, own->w->y + r * own->w->wide, n * sizeof(float));
    if (rows)
        apply(head, share(head->out, 1, own->thread, own->threads), &own->w->narrow, rows,
              own->p->logits, head->out, 0, &own->stream);
}

/* The weights of a thread in the order of a pass; returns how many ranges there are. */
static int64_t list_ranges(const Model *m, Range *ranges, int thread, int threads)
{
    Range *next = ranges;
    for (const Layer *l = m->layers; l < m->layers + m->depth; l++) {
        *next++ = range(&l->qkv, share(l->qkv.out, head_unit(m->width), thread, threads));
        *next++ = range(&l->o, share(l->o.out, 1, thread, threads));
        *next++ = range(&l->gate, gates(m, thread, threads));
        *next++ = range(&l->up, gates(m, thread, threads));
        *next++ = range(&l->down, share(l->down.out, 1, thread, threads));
    }
    *next++ = range(&m->head, share(m->head.out, 1, thread, threads));
    return next - ranges;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int take(const Model *m, const Pass *p, Work *w)
{
    const int64_t N = p->rows, seen = m->heads * m->width, ranges = 5 * m->depth + 1;
    w->wide = larger(larger(m->hidden, 2 * m->inner), (m->heads + 2 * m->kv_heads) * m->width);
    w->most = (p->longest + 2 * LANES) / LANES * LANES;
    for (int64_t b = 0; b < p->requests; b++)
        w->tail = larger(w->tail, p->starts[b + 1] - p->starts[b]);
    w->desk = (ROWED + m->width) * LANES + QUERIES * (m->width + w->most);
    w->y = room(N * w->wide * 4);
    w->seen = room(N * seen * 4);
    w->slots = room(p->requests * p->longest * 4);
    w->tails = room(N * w->tail * 4);
    w->lengths = room(N * 4);
    w->desks = room(p->threads * w->desk * 4);
    w->ranges = room(p->threads * ranges * (int64_t)sizeof(Range));
    return take_rows(&w->narrow, N, m->hidden) & take_rows(&w->deep, N, larger(m->inner, seen))
           && w->y && w->seen && w->slots && w->tails && w->lengths && w->desks && w->ranges;
}

static void give_back(Work *w)
{
    free_rows(&w->narrow), free_rows(&w->deep);
    free(w->y), free(w->seen), free(w->slots), free(w->tails), free(w->lengths);
    free(w->desks), free(w->ranges);
}

/* Bytes of a weight: tells the kind this was compiled for. */
int specinfer_item(void) { return ITEM; }

/* Return 0, or 1 where memory ran out. */
int specinfer_decode(const Model *m, const Pass *p)
{
    Work w = {0};
    const int whole = take(m, p, &w);
    if (whole) {
        find_paths(p, &w);
#pragma omp parallel num_threads(p->threads)
        {
            Worker own = {.m = m, .p = p, .w = &w};
            own.thread = omp_get_thread_num(), own.threads = omp_get_num_threads();
            Range *ranges = w.ranges + own.thread * (5 * m->depth + 1);
            own.stream = start_stream(ranges, list_ranges(m, ranges, own.thread, own.threads));
            own.desk = lay_out(w.desks + own.thread * w.desk, m->width);
            for (int64_t i = 0; i < m->depth; i++)
                run_layer(&own, i);
            run_head(&own);
        }
    }
    give_back(&w);
    return !whole;
}
