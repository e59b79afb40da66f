"""Molecules and crystals in motion, drawn from a seed, for ``gradewise train potential``.

::

    pip install --only-binary :all: 'gradewise[molecules]'
    python -m gradewise.data.molecules ethanol.xyz --system ethanol --frames 1300 --seed 1
    gradewise train potential --data ethanol.xyz data.train=800 data.valid=80 data.test=100

Energies and forces of ethanol, aspirin, alanine dipeptide and a water cluster are those of GFN2-xTB (Bannwarth et al. 2019,
doi:10.1021/acs.jctc.8b01176; the package tblite), those of a copper crystal are of ase's effective medium theory. A system is relaxed, gets
velocities of its temperature, and moves under a Langevin thermostat; a frame is kept every so many steps.

**Seeds.** A card, the versions of ase and tblite, and one thread give the same bits again.
"""

from gradewise.data.molecules._need import need

need("numpy", "everything")

from gradewise.data.molecules._draw import Card, Frames, draw  # noqa: E402
from gradewise.data.molecules._file import write  # noqa: E402

__all__ = ["Card", "Frames", "draw", "write"]
