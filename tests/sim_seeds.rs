//! Simulation: each seed draws faults and traffic; safety at every tick, liveness after.

use tickwire::simulation::run_seed;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn seeds_hold_safety_and_liveness() {
    let first = from_env("TICKWIRE_SEED", 0);
    let count = from_env("TICKWIRE_SEEDS", 500);
    let verbose = std::env::var_os("TICKWIRE_VERBOSE").is_some();
    let mut delivered = 0;
    for seed in first..first + count {
        if verbose {
            eprintln!("seed {seed}");
        }
        delivered += std::panic::catch_unwind(|| run_seed(seed))
            .unwrap_or_else(|_| Err("panicked".into()))
            .unwrap_or_else(|failure| {
                panic!(
                    "seed {seed}: {failure}\nreplay: TICKWIRE_SEED={seed} TICKWIRE_SEEDS=1 \
                     cargo test --test sim_seeds"
                )
            });
    }
    assert!(delivered > count, "only {delivered} messages in {count} seeds");
}
