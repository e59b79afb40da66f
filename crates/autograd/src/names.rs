//! What is said by the name of an operation: choices of backends and of precision, checked against the registry.

use crate::{
    Error, Pass, Policy, Result, Rule,
    backend::{Backend, Backends},
    registry,
};
use std::{fmt, str::FromStr};

/// Refuses a name that no operation has.
fn require_known(operation: &'static str, name: &str) -> Result<()> {
    if registry::names().contains(&name) { Ok(()) } else { Err(registry::unknown(operation, name)) }
}

impl Backends {
    /// Chooses the backend of an operation, for one pass or both; `all` stands for every operation. A later choice wins.
    ///
    /// # Errors
    /// An unknown operation; lists the valid ones.
    pub fn choose(&mut self, operation: &str, pass: Option<Pass>, backend: Backend) -> Result<()> {
        if operation != "all" {
            require_known("backend", operation)?;
        }
        self.push(operation, pass, backend);
        Ok(())
    }
}

impl FromStr for Backends {
    type Err = Error;

    /// Reads `OPERATION=BACKEND` or `OPERATION.forward=BACKEND` or `OPERATION.backward=BACKEND`, separated by commas; a backend is
    /// `reference`, or `cuda` or `device` for the device's own kernels.
    fn from_str(text: &str) -> Result<Self> {
        let mut backends = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let refuse = |message: String| Err(Error::Argument { operation: "backend", message });
            let Some((target, backend)) = part.split_once('=') else {
                return refuse(format!("`{part}` is no choice; write OPERATION=reference or OPERATION=cuda"));
            };
            // `device` is another name of the device's own kernels.
            let name = if backend.trim() == "device" { Backend::Device.name() } else { backend.trim() };
            let Some(backend) = Backend::ALL.into_iter().find(|backend| backend.name() == name) else {
                return refuse(format!("there is no backend `{name}`; there are reference and cuda"));
            };
            let (operation, pass) = match target.trim().rsplit_once('.') {
                Some((operation, "forward")) => (operation, Some(Pass::Forward)),
                Some((operation, "backward")) => (operation, Some(Pass::Backward)),
                Some((_, other)) => {
                    return refuse(format!("`{other}` is no pass; write .forward or .backward, or neither"));
                }
                None => (target.trim(), None),
            };
            backends.choose(operation, pass, backend)?;
        }
        Ok(backends)
    }
}

impl Policy {
    /// Another rule for an operation.
    ///
    /// # Errors
    /// An unknown operation; lists the valid ones.
    pub fn with(mut self, operation: &str, rule: Rule) -> Result<Self> {
        require_known("autocast", operation)?;
        self.set(operation, rule);
        Ok(self)
    }

    /// The rules of a list such as `mv_linear=f32,softmax=16-bit`, in addition.
    ///
    /// # Errors
    /// As [`with`](Self::with); an unknown rule.
    pub fn with_all(self, text: &str) -> Result<Self> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).try_fold(self, |policy, part| {
            let Some((operation, rule)) = part.split_once('=') else {
                let rules = Rule::names();
                let message = format!("`{part}` is no rule; write OPERATION=RULE, with a rule of {rules}");
                return Err(Error::Argument { operation: "autocast", message });
            };
            policy.with(operation.trim(), rule.trim().parse()?)
        })
    }

    /// The rule of an operation.
    pub fn rule(&self, operation: &str) -> Rule {
        self.rule_of(operation, registry::find(operation).map_or(Rule::Full, |entry| entry.rule()))
    }
}

impl fmt::Display for Policy {
    /// A table: a line for each rule with its operations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in Rule::ALL {
            let name = if rule == Rule::Short { self.dtype().to_string() } else { rule.to_string() };
            let operations: Vec<&str> =
                registry::names().into_iter().filter(|operation| self.rule(operation) == rule).collect();
            writeln!(f, "{name:<8}{}", operations.join(" "))?;
        }
        Ok(())
    }
}
