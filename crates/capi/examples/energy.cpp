// The energy, forces and virial of a water molecule and of a crystal, by a potential of gradewise.
//
//   energy CHECKPOINT
//
// Prints a line for each number: its name and its value with all digits.

#include "gradewise.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void require(int code) {
    if (code != GRADEWISE_OK) {
        throw std::runtime_error(gradewise_last_error());
    }
}

struct Close {
    void operator()(gradewise_potential *potential) const { gradewise_potential_close(potential); }
};
using Potential = std::unique_ptr<gradewise_potential, Close>;

Potential open(const std::string &checkpoint) {
    const char *paths[] = {checkpoint.c_str()};
    gradewise_potential *potential = nullptr;
    require(gradewise_potential_open(paths, 1, "cpu", GRADEWISE_F64, &potential));
    return Potential(potential);
}

void show(const std::string &name, const Potential &potential, const std::vector<std::int32_t> &numbers,
          const std::vector<double> &positions, const double *cell) {
    double energy = 0.0;
    std::vector<double> forces(positions.size());
    std::array<double, 9> virial{};
    require(gradewise_potential_evaluate(potential.get(), numbers.size(), numbers.data(), positions.data(),
                                         cell, nullptr, &energy, forces.data(), virial.data()));
    std::printf("%s energy %.17g\n", name.c_str(), energy);
    for (double force : forces) {
        std::printf("%s force %.17g\n", name.c_str(), force);
    }
    for (double entry : virial) {
        std::printf("%s virial %.17g\n", name.c_str(), entry);
    }
}

}  // namespace

int main(int count, char **arguments) {
    if (count != 2) {
        std::fprintf(stderr, "usage: %s CHECKPOINT\n", arguments[0]);
        return 2;
    }
    try {
        const Potential potential = open(arguments[1]);
        std::printf("potential cutoff %.17g\n", gradewise_potential_cutoff(potential.get()));
        const std::vector<double> water = {0.0, 0.0, 0.0, 0.96, 0.0, 0.0, -0.24, 0.93, 0.0};
        show("water", potential, {8, 1, 1}, water, nullptr);
        // Smaller than the cutoff: images count.
        const double cell[] = {3.1, 0.0, 0.0, 0.4, 3.3, 0.0, -0.5, 0.6, 2.9};
        show("crystal", potential, {8, 1, 1}, water, cell);
        // Errors have a text, and the potential is used on.
        double energy = 0.0;
        const std::int32_t twice[] = {1, 1};
        const double same[] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
        const int code = gradewise_potential_evaluate(potential.get(), 2, twice, same, nullptr, nullptr, &energy,
                                                      nullptr, nullptr);
        std::printf("coincident code %d\n", code);
        std::fprintf(stderr, "%s\n", gradewise_last_error());
        show("again", potential, {8, 1, 1}, water, nullptr);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
    return 0;
}
