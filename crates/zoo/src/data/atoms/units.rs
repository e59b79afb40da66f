//! Units of energies, lengths and forces, and their conversion to eV and Å.

use gradewise_nn::choice::Choice;

/// eV in a hartree (CODATA 2018).
const HARTREE: f64 = 27.211_386_245_988;
/// Å in a bohr (CODATA 2018).
const BOHR: f64 = 0.529_177_210_903;
/// eV in a kJ/mol: 1000 J / (N_A e).
const KILOJOULE: f64 = 0.010_364_269_656_262_175;
/// kJ in a kcal (thermochemical).
const CALORIE: f64 = 4.184;

gradewise_nn::choices! {
    /// The unit of energies in files.
    pub enum EnergyUnit {
        /// eV in extended XYZ, kcal/mol in .npz of the MD17 kind
        Format = "format",
        /// Electronvolts
        ElectronVolt = "eV",
        /// Kilocalories per mole
        KilocaloriePerMole = "kcal/mol",
        /// Kilojoules per mole
        KilojoulePerMole = "kJ/mol",
        /// Hartrees
        Hartree = "hartree",
    }
}

gradewise_nn::choices! {
    /// The unit of positions and lattices in files.
    pub enum LengthUnit {
        /// Ångströms
        Angstrom = "angstrom",
        /// Bohr radii
        Bohr = "bohr",
        /// Nanometres
        Nanometre = "nm",
    }
}

gradewise_nn::choices! {
    /// The unit of forces in files.
    pub enum ForceUnit {
        /// That of energies over that of lengths
        Derived = "energy/length",
        /// Electronvolts per Å
        ElectronVolt = "eV/angstrom",
        /// Kilocalories per mole and Å
        KilocaloriePerMole = "kcal/mol/angstrom",
        /// Kilojoules per mole and Å
        KilojoulePerMole = "kJ/mol/angstrom",
        /// Kilojoules per mole and nm
        KilojoulePerMoleNanometre = "kJ/mol/nm",
        /// Hartrees per bohr, as most programs of quantum chemistry print
        HartreePerBohr = "hartree/bohr",
        /// Hartrees per Å
        Hartree = "hartree/angstrom",
    }
}

impl EnergyUnit {
    /// eV in one of this unit; 1 of [`EnergyUnit::Format`].
    pub fn electron_volts(self) -> f64 {
        match self {
            Self::Format | Self::ElectronVolt => 1.0,
            Self::KilocaloriePerMole => KILOJOULE * CALORIE,
            Self::KilojoulePerMole => KILOJOULE,
            Self::Hartree => HARTREE,
        }
    }

    /// This unit, or `of_format` in place of [`EnergyUnit::Format`].
    #[must_use]
    pub fn or(self, of_format: Self) -> Self {
        if self == Self::Format { of_format } else { self }
    }
}

impl LengthUnit {
    /// Å in one of this unit.
    pub fn angstroms(self) -> f64 {
        match self {
            Self::Angstrom => 1.0,
            Self::Bohr => BOHR,
            Self::Nanometre => 10.0,
        }
    }
}

/// The units of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    /// Of energies, and of virials.
    pub energy: EnergyUnit,
    /// Of positions and lattices.
    pub length: LengthUnit,
    /// Of forces.
    pub force: ForceUnit,
}

impl Units {
    /// Electronvolts and Å.
    pub const EV_ANGSTROM: Self =
        Self { energy: EnergyUnit::ElectronVolt, length: LengthUnit::Angstrom, force: ForceUnit::Derived };

    /// eV/Å in one unit of forces.
    pub fn force(&self) -> f64 {
        match self.force {
            ForceUnit::Derived => self.energy.electron_volts() / self.length.angstroms(),
            ForceUnit::ElectronVolt => 1.0,
            ForceUnit::KilocaloriePerMole => KILOJOULE * CALORIE,
            ForceUnit::KilojoulePerMole => KILOJOULE,
            ForceUnit::KilojoulePerMoleNanometre => KILOJOULE / 10.0,
            ForceUnit::HartreePerBohr => HARTREE / BOHR,
            ForceUnit::Hartree => HARTREE,
        }
    }

    /// eV/Å³ in one unit of stress: energy over length cubed.
    pub fn stress(&self) -> f64 {
        self.energy.electron_volts() / self.length.angstroms().powi(3)
    }

    /// The name of the unit of forces.
    pub fn force_name(&self) -> String {
        match self.force {
            ForceUnit::Derived => format!("{}/{}", self.energy.name(), self.length.name()),
            other => other.name().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `ase.units` 3.29 (CODATA 2014), which differ from ours beyond the seventh digit.
    #[test]
    fn factors_are_those_of_another_library() {
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-7, "{a} {b}");
        close(EnergyUnit::Hartree.electron_volts(), 27.211_386_024_367_243);
        close(EnergyUnit::KilocaloriePerMole.electron_volts(), 0.043_364_102_1);
        close(LengthUnit::Bohr.angstroms(), 0.529_177_210_5);
        let units =
            Units { energy: EnergyUnit::Hartree, length: LengthUnit::Bohr, force: ForceUnit::Derived };
        close(units.force(), 51.422_067_0);
        assert_eq!(units.force(), Units { force: ForceUnit::HartreePerBohr, ..units }.force());
        close(Units { force: ForceUnit::KilojoulePerMoleNanometre, ..units }.force(), 1.036_426_9e-3);
    }
}
