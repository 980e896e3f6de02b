//! Ways to run a program: what executes it, and with which passes it was compiled.

use std::fmt;
use std::time::Duration;

use towpath_jit::CodeCache;
use towpath_jit::passes::{Choice, PASSES};
use towpath_xdp::{Exec, LoadOptions, Trust};

use crate::random::Random;

/// One way.
#[derive(Debug, Clone)]
pub struct Way {
    /// What executes the program.
    pub exec: Exec,
    /// Which passes run over it.
    pub passes: Choice,
    /// Whether it is checked as it runs.
    pub trust: Trust,
    /// Whether machine code is masked against speculation.
    pub masked: bool,
}

impl Way {
    /// The specification.
    pub fn interpreter() -> Way {
        Way::of(Exec::Interp)
    }

    /// With all passes.
    pub fn of(exec: Exec) -> Way {
        Way { exec, passes: Choice::default(), trust: Trust::Verified, masked: false }
    }

    /// The way that `--exec NAME` names.
    ///
    /// # Errors
    ///
    /// The names there are.
    pub fn named(name: &str) -> Result<Way, String> {
        let mut ways = EXECS.iter().map(|exec| Way::of(*exec));
        ways.find(|way| way.exec_name() == name).ok_or_else(|| {
            let names: Vec<String> = EXECS.iter().map(|exec| Way::of(*exec).exec_name()).collect();
            format!("{name}: not one of {}", names.join(", "))
        })
    }

    /// As on the command line.
    pub fn exec_name(&self) -> String {
        format!("{:?}", self.exec).to_lowercase()
    }

    /// Leaves out some passes, the same for the same seed.
    pub fn scramble(&mut self, seed: u64) {
        let mut random = Random::new(seed ^ 0x5c4a_3b1e);
        self.passes.without.clear();
        for pass in PASSES {
            if random.one_in(4) {
                self.passes.without.insert(pass.name.to_owned());
            }
        }
    }

    /// For loading a program that is to run so.
    pub fn options(&self) -> LoadOptions {
        let mut options = LoadOptions { exec: self.exec, ..LoadOptions::default() };
        options.jit.passes = self.passes.clone();
        options.jit.trust = self.trust;
        options.jit.mask_speculation = self.masked;
        // What is compiled here is compiled once.
        options.jit.cache = CodeCache::Off;
        options
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.exec_name())?;
        if self.trust == Trust::Guest {
            f.write_str(" with checks")?;
        }
        if self.masked {
            f.write_str(" and masks")?;
        }
        if self.passes.without.is_empty() {
            return Ok(());
        }
        let mut names = PASSES.iter().map(|pass| pass.name);
        if names.all(|name| self.passes.without.contains(name)) {
            return f.write_str(" without any pass");
        }
        let names: Vec<&str> = self.passes.without.iter().map(String::as_str).collect();
        write!(f, " without {}", names.join(", "))
    }
}

/// Everything that executes programs.
const EXECS: &[Exec] = &[Exec::Interp, Exec::Jit, Exec::Llvm];

/// How long tests wait for LLVM.
pub const TIER2_TIMEOUT: Duration = Duration::from_secs(120);
