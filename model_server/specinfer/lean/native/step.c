/* One step of a recurrent SSM: the states of some nodes and the logits of their children.
 *
 * What lean/recurrent.py computes, with all rows in one call.  The weights of one fit a processor's
 * last cache, so that between the levels of a tree they stay there.  As in decoder.c every row is
 * computed by itself, in an order that depends on nothing else.
 *
 * N rows, D tokens of the draft vocabulary.
 */
#include "linear.h"

typedef struct {
    const float *norm; /* gains, [hidden] */
    Linear gate, up, down;
} Gated;

typedef struct {
    const Gated *blocks;
    const float *state_norm, *token_norm, *norm;
    Linear inward, head;
    int64_t depth, hidden, inner;
    double eps;
} Model;

typedef struct {
    const float *parents, *tokens; /* [N, hidden]: states, and embedded tokens */
    float *states;                 /* [N, hidden], the nodes' own */
    float *logits;                 /* [N, D] */
    int64_t rows, threads;
} Step;

#include "vectors.h"
#include "stream.h"
#include PRODUCTS_OF
#include "tiles.h"
#include "team.h"

typedef struct {
    Rows both, narrow, deep; /* prepared: parents beside tokens; normed states; gated rows */
    float *y;                /* [N, wide] */
    Range *ranges;           /* [threads, 3 * depth + 2] */
    int64_t wide;
    Team team;
} Work;

typedef struct {
    const Model *m;
    const Step *p;
    Work *w;
    Stream stream;
    int thread, threads;
} Worker;

static void meet(Worker *own) { join(&own->w->team, own->threads, &own->stream); }

/* A linear's outputs of all rows, this thread's share. */
static void multiply(Worker *own, const Linear *l, const Rows *rows, float *y, int64_t stride,
                     int add)
{
    apply(l, share(l->out, 1, own->thread, own->threads), rows, own->p->rows, y, stride, add,
          &own->stream);
}

/* Take the tokens in. */
static void enter(Worker *own)
{
    const Model *m = own->m;
    const int64_t n = m->hidden;
    for (int64_t r = own->thread; r < own->p->rows; r += own->threads) {
        float *y = own->w->y + r * own->w->wide;
        norm(own->p->parents + r * n, m->state_norm, n, m->eps, y);
        norm(own->p->tokens + r * n, m->token_norm, n, m->eps, y + n);
        prepare(y, 0, 2 * n, 2 * n, r, &own->w->both);
        memcpy(own->p->states + r * n, own->p->parents + r * n, n * sizeof(float));
    }
    meet(own);
    multiply(own, &m->inward, &own->w->both, own->p->states, n, 1);
    meet(own);
}

static void norm_rows(Worker *own, const float *gain)
{
    const int64_t n = own->m->hidden;
    for (int64_t r = own->thread; r < own->p->rows; r += own->threads) {
        float *y = own->w->y + r * own->w->wide;
        norm(own->p->states + r * n, gain, n, own->m->eps, y);
        prepare(y, 0, n, n, r, &own->w->narrow);
    }
    meet(own);
}

static Share gates(const Model *m, int thread, int threads)
{
    return share(m->inner, SPAN / GROUP, thread, threads);
}

static void run_block(Worker *own, const Gated *block)
{
    Work *w = own->w;
    const int64_t N = own->p->rows, inner = own->m->inner;
    norm_rows(own, block->norm);
    const Share part = gates(own->m, own->thread, own->threads);
    apply(&block->gate, part, &w->narrow, N, w->y, w->wide, 0, &own->stream);
    apply(&block->up, part, &w->narrow, N, w->y + inner, w->wide, 0, &own->stream);
    const int64_t first = part.first * GROUP;
    const int64_t end = part.end * GROUP < inner ? part.end * GROUP : inner;
    for (int64_t r = 0; r < N && first < end; r++) {
        float *y = w->y + r * w->wide;
        let_pass(y + first, y + inner + first, end - first);
        prepare(y, first, end, inner, r, &w->deep);
    }
    meet(own);
    multiply(own, &block->down, &w->deep, own->p->states, own->m->hidden, 1);
    meet(own);
}

/* The weights of a thread in the order of a step; returns how many ranges there are. */
static int64_t list_ranges(const Model *m, Range *ranges, int thread, int threads)
{
    Range *next = ranges;
    *next++ = range(&m->inward, share(m->inward.out, 1, thread, threads));
    for (const Gated *b = m->blocks; b < m->blocks + m->depth; b++) {
        *next++ = range(&b->gate, gates(m, thread, threads));
        *next++ = range(&b->up, gates(m, thread, threads));
        *next++ = range(&b->down, share(b->down.out, 1, thread, threads));
    }
    *next++ = range(&m->head, share(m->head.out, 1, thread, threads));
    return next - ranges;
}

static int take(const Model *m, const Step *p, Work *w)
{
    w->wide = 2 * (m->inner > m->hidden ? m->inner : m->hidden);
    w->y = room(p->rows * w->wide * 4);
    w->ranges = room(p->threads * (3 * m->depth + 2) * (int64_t)sizeof(Range));
    return take_rows(&w->both, p->rows, 2 * m->hidden) & take_rows(&w->narrow, p->rows, m->hidden)
           & take_rows(&w->deep, p->rows, m->inner) && w->y && w->ranges;
}

static void give_back(Work *w)
{
    free_rows(&w->both), free_rows(&w->narrow), free_rows(&w->deep);
    free(w->y), free(w->ranges);
}

/* Return 0, or 1 where memory ran out. */
int specinfer_step(const Model *m, const Step *p)
{
    Work w = {0};
    const int whole = take(m, p, &w);
    if (whole) {
#pragma omp parallel num_threads(p->threads)
        {
            Worker own = {.m = m, .p = p, .w = &w};
            own.thread = omp_get_thread_num(), own.threads = omp_get_num_threads();
            Range *ranges = w.ranges + own.thread * (3 * m->depth + 2);
            own.stream = start_stream(ranges, list_ranges(m, ranges, own.thread, own.threads));
            enter(&own);
            for (int64_t i = 0; i < m->depth; i++)
                run_block(&own, m->blocks + i);
            norm_rows(&own, m->norm);
            multiply(&own, &m->head, &w.narrow, p->logits, m->head.out, 0);
        }
    }
    give_back(&w);
    return !whole;
}
