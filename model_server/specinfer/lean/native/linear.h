/* What the passes written in C begin with: a linear, and memory. */
#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Weights as the header of their kind tells, the last group of outputs padded. */
typedef struct {
    const char *weight;
    const float *scale; /* of each output, where the kind has them */
    const float *bias;  /* may be null */
    int64_t out, in;
} Linear;

static void *room(int64_t bytes) { return aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64); }
