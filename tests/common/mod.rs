//! Shared by the integration tests.

#![allow(dead_code)] // Each test uses some of it.

/// Says loudly that a test cannot run here, and why. Where CI could have installed what is
/// missing, that is a failure.
pub fn skip(what: &str, why: &str) {
    say(what, why);
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{what} must not be skipped on CI: {why}"
    );
}

/// As [`skip`], for what CI could not install either.
pub fn note(what: &str, why: &str) {
    say(what, &format!("{why} (not installable)"));
}

fn say(what: &str, why: &str) {
    eprintln!("SKIPPED: {what}: {why}");
    if let Some(log) = std::env::var_os("TICKWIRE_SKIP_LOG") {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
        let written = file.and_then(|mut file| writeln!(file, "{what}: {why}"));
        written.expect("the skip log can be written");
    }
}
