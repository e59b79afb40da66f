"""Jets for top tagging and for quarks against gluons, drawn from a seed by Pythia and found by FastJet.

::

    pip install --only-binary :all: 'gradewise[jets]'
    python -m gradewise.data.jets make top-jets --train 10000 --valid 2000 --test 2000
    python -m gradewise.data.jets check top-jets/test.h5 --figure test.svg
    gradewise train lorentz data.source=top-jets data.train=10000 data.valid=2000 data.test=2000

**Jets.** Protons collide at 14 TeV (Pythia, its default tune). Signal: pairs of tops whose W bosons decay into quarks. Background: two hard
quarks or gluons. Visible particles with |η| < 5 are clustered with the anti-kT algorithm, R = 0.8. Of the two hardest jets of a collision
those with 550 ≤ pT ≤ 650 GeV and |η| ≤ 2 are taken; of tops, those with the top and, unless ``contained`` is False, its three quarks within
ΔR < 0.8 of the axis. Up to 200 constituents are stored, by falling pT. So far that is the selection of the published top-tagging reference
data (Zenodo 2603256; Butter et al., arXiv:1707.08966). Three things differ: there is **no detector** (that set has particle-flow objects of
Delphes), the second jet of a collision counts, too, and the version of Pythia is another. Results on one set are not results on the other.

``Card.quark_gluon()`` has quarks (u, d, s) against gluons beside a Z that decays into neutrinos, R = 0.4, 500 ≤ pT ≤ 550 GeV, |η| ≤ 1.7, with
multiple interactions: the selection of Komiske, Metodiev and Thaler (Zenodo 3164691), who cut in rapidity.

Collisions are drawn with at least ``pt_hat`` = 400 GeV of transverse momentum in the hard process. A jet of 550 GeV can come from a softer
one that radiates before: about one in ten does. ``pt_hat=300`` has most of them, at a third of the speed.

**Seeds.** A split is drawn in blocks of 1,000 jets, half of each class, each class of a block by a generator of its own with a seed
that belongs to (seed, split, class, block) alone. So the bytes of a file depend neither on the number of processes nor on interruptions;
the first jets of a larger set are those of a smaller one; and train, valid and test never share a collision. They do depend on the versions
of Pythia, FastJet and this package, which the file names; and on HDF5's deflate for the bytes of the file, but not for the jets.

**Files.** The published layout: ``table/table`` as pandas writes it, with ``E_0 PX_0 PY_0 PZ_0 … PZ_199``, ``truthE`` … ``truthPZ`` (the top before
its decay), ``ttv`` (0 train, 1 test, 2 validation) and ``is_signal_new``; single precision, GeV. ``pandas.read_hdf(FILE, key="table")`` reads
it, as do the readers of published taggers. The attribute ``gradewise`` of the root is JSON: card, settings of Pythia, versions, split, how
many candidates were passed over and why, and the SHA-256 of the first thousand jets. About 1.2 kB a jet.

**Energies** are rounded up to single precision where the nearest number would be less than the momentum, so that no constituent is
spacelike.

**Going on.** Blocks wait in ``FOLDER/blocks``, written beside their place and renamed, until the file of a split can be written, in the same way.
After a kill the same call goes on from there. Blocks of other settings or versions are refused, not mixed; a damaged one is drawn again.
"""

from gradewise.data.jets._need import need

need("numpy", "everything")

from gradewise.data.jets._card import Card  # noqa: E402
from gradewise.data.jets._check import Report, Row, check  # noqa: E402
from gradewise.data.jets._file import File, Jets  # noqa: E402
from gradewise.data.jets._make import make  # noqa: E402
from gradewise.data.jets._select import Candidate, Generator  # noqa: E402

__all__ = ["Candidate", "Card", "File", "Generator", "Jets", "Report", "Row", "check", "make"]
