//! See the module list of `ports`.
