/* The threads of a pass, which wait for one another between its parts. */

enum { PATIENCE = 2000 }; /* pauses, some 50 microseconds, before a waiting thread lets others run */

typedef struct {
    _Alignas(64) int arrived;
    _Alignas(64) int meetings;
} Team;

/* Wait until all threads have come.  Where another program holds a core, OpenMP's own barrier spins
 * for milliseconds on the core that the missing thread needs, 200 times a pass. */
static void join(Team *team, int threads, Stream *stream)
{
    const int meeting = __atomic_load_n(&team->meetings, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) == threads) {
        __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&team->meetings, meeting + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int waits = 0; __atomic_load_n(&team->meetings, __ATOMIC_ACQUIRE) == meeting; waits++)
        if (waits < PATIENCE) {
            ask_ahead(stream, 1);
            _mm_pause();
        } else {
            sched_yield();
        }
}
