/* The time of one prediction of a tagger that `gradewise export --to c --name tagger` wrote, on one core: processor time, the median over blocks
 * of jets.
 *
 *   gradewise export runs/lorentz-1 --to c --out tagger.c --name tagger
 *   cc -O3 -march=native -fno-math-errno -DTAGGER='"tagger.c"' -I. benches/time_tagger.c -o time_tagger -lm && ./time_tagger
 */
#define _POSIX_C_SOURCE 199309L
#include TAGGER
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifndef PARTICLES
#define PARTICLES 16
#endif
enum { JETS = 1000, BLOCKS = 51 };

static float momenta[JETS][4 * PARTICLES];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Massless particles near the x axis, of falling energies. */
static void draw(void)
{
    unsigned state = 1;
    for (int jet = 0; jet < JETS; ++jet) {
        for (int i = 0; i < PARTICLES; ++i) {
            float *p = &momenta[jet][4 * i], angle[2];
            const float energy = 200.0f / (float)(1 + i);
            for (int axis = 0; axis < 2; ++axis) {
                state = state * 1664525u + 1013904223u;
                angle[axis] = (float)(state >> 8) / 16777216.0f - 0.5f;
            }
            p[2] = energy * angle[0];
            p[3] = energy * angle[1];
            p[1] = sqrtf(energy * energy - p[2] * p[2] - p[3] * p[3]);
            p[0] = energy;
        }
    }
}

int main(void)
{
    double times[BLOCKS], sum = 0.0;
    draw();
    for (int block = 0; block < BLOCKS; ++block) {
        const double start = now();
        for (int jet = 0; jet < JETS; ++jet) {
            float probability;
            tagger_predict(momenta[jet], PARTICLES, &probability);
            sum += probability;
        }
        times[block] = (now() - start) / JETS;
    }
    qsort(times, BLOCKS, sizeof *times, ascending);
    printf("%.2f us a jet, fastest block %.2f, mean probability %.4f\n", 1e6 * times[BLOCKS / 2], 1e6 * times[0],
           sum / ((double)JETS * BLOCKS));
    return 0;
}
