/* Sixteen floats at a time: what norms, softmax and gates are made of. */

enum { LANES = 16 };

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

/* Which of sixteen lanes are left of a count. */
static inline __mmask16 lanes(int64_t left) { return left >= LANES ? 0xFFFF : (1u << left) - 1; }

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

/* RMSNorm with gains; out may be x. */
static void norm(const float *x, const float *gain, int64_t n, double eps, float *out)
{
    const float by = inverse_rms(x, n, eps);
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * by * gain[i];
}

/* SiLU(gate) * up, in the gate's place. */
static void let_pass(float *gate, const float *up, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const __m512 g = _mm512_loadu_ps(gate + i), one = _mm512_set1_ps(1.0f);
        const __m512 e = exp16(_mm512_sub_ps(_mm512_setzero_ps(), g));
        const __m512 s = _mm512_div_ps(g, _mm512_add_ps(one, e));
        _mm512_storeu_ps(gate + i, _mm512_mul_ps(s, _mm512_loadu_ps(up + i)));
    }
}

/* Sum each of sixteen vectors, all in one order; the sums in the vectors' order. */
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
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0x88),
                                  _mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0xDD));
    return _mm512_add_ps(_mm512_shuffle_f32x4(halves[0], halves[1], 0x88),
                         _mm512_shuffle_f32x4(halves[0], halves[1], 0xDD));
}
