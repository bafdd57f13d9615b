//! All targets in one binary, so that running each for a little while takes one link and not
//! nineteen: the variable `TENURE_FUZZ` names the one.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<tenure_fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("TENURE_FUZZ").unwrap_or_default();
    let known = || tenure_fuzz::TARGETS.map(|(name, _)| name).join(", ");
    tenure_fuzz::target(&name)
        .unwrap_or_else(|| panic!("TENURE_FUZZ={name:?} is no target; there are {}", known()))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (*TARGET)(data));
