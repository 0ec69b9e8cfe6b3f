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

typedef uint16_t Half; /* a float of 16 bits, 11 of them significant */

static inline __m512 widen(const Half *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

/* Round, the largest to what 16 bits can hold. */
static void narrow(const float *x, int64_t n, Half *to)
{
    const __m512 most = _mm512_set1_ps(65504.0f), least = _mm512_set1_ps(-65504.0f);
    for (int64_t i = 0; i < n; i += LANES) {
        const __m512 v = _mm512_min_ps(_mm512_max_ps(_mm512_loadu_ps(x + i), least), most);
        _mm256_storeu_si256((__m256i *)(to + i), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}
