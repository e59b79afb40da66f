/* Potentials of gradewise for C and C++.
 *
 * Lengths are in angstrom, energies in eV, forces in eV/angstrom. Arrays of vectors hold x, y, z of one atom after another.
 *
 * Threads: a potential may be used from several threads; calls with the same one wait for each other. Potentials do not share state.
 * gradewise_last_error belongs to the thread that calls it.
 *
 * Functions that return int return GRADEWISE_OK, or another code after which gradewise_last_error says what is wrong and what to do. Results
 * are then not written. No function throws or ends the program. */
#ifndef GRADEWISE_H
#define GRADEWISE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GRADEWISE_OK = 0,
    /* An argument that cannot be right: a null pointer, no atoms, atoms that coincide, species that no training frame had. */
    GRADEWISE_INPUT = 1,
    /* Anything else: from files, memory or the device. */
    GRADEWISE_FAILED = 2,
    /* A fault of the library itself. The potential can no longer be used. */
    GRADEWISE_FAULT = 3
};

enum { GRADEWISE_F32 = 0, GRADEWISE_F64 = 1 };

typedef struct gradewise_potential gradewise_potential;

/* Opens the checkpoints of one or several potentials, of which the mean is evaluated.
 * checkpoints: `count` paths in UTF-8. device: "cpu", "cuda" or "cuda:N". dtype: GRADEWISE_F32 or GRADEWISE_F64, in which is computed.
 * potential: receives the potential, to be given to gradewise_potential_close. */
int gradewise_potential_open(const char *const *checkpoints, size_t count, const char *device, int dtype,
                             gradewise_potential **potential);

/* The distance beyond which atoms do not interact directly; 0 for a null pointer. Forces reach as far as the rounds of messages do, so a host
 * that divides space gives all atoms of a connected system at once. */
double gradewise_potential_cutoff(const gradewise_potential *potential);

/* Evaluates `atoms` atoms.
 * numbers: the atomic number of each. positions: 3 * atoms.
 * cell: the three vectors of the cell as rows, 9 numbers, or null for no cell; it may be smaller than the cutoff.
 * periodic: whether the system repeats along each vector, 3 numbers; null with a cell means along all.
 * energy: receives the energy.
 * forces: receives 3 * atoms numbers; may be null.
 * virial: receives 9 numbers, minus the derivative of the energy by the strain, row by row, symmetric (eV); may be null. The stress, positive
 * under tension, is minus the virial over the volume. */
int gradewise_potential_evaluate(gradewise_potential *potential, size_t atoms, const int32_t *numbers,
                                 const double *positions, const double *cell, const int32_t *periodic,
                                 double *energy, double *forces, double *virial);

/* Frees a potential. A null pointer is allowed. No other call with it may be under way. */
void gradewise_potential_close(gradewise_potential *potential);

/* What the last failed call of this thread says, in UTF-8; "" if none failed. It stays valid until this thread's next failed call. */
const char *gradewise_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
