# Short names for the scripts; nothing is decided here.

# The list of recipes.
default:
    @just --list

# All tests, after getting what they need.
test *args:
    scripts/test {{args}}

# `tenure run` beside flock(1) and its peers.
bench *args:
    scripts/bench {{args}}

# Everything at once, at random, under a witness: `just torture --long`, `just torture --seed 7`.
torture *args:
    cargo test -p tenure-cli --features testing-clock --locked --test torture -- {{args}}

# The decoders, with whatever comes to mind: `just fuzz 600 slots`.
fuzz *args:
    scripts/fuzz {{args}}

# Lines of code by crate and room, lines of tests, words of documents: `just count`, `just count v1.0.0`.
count *args:
    scripts/count {{args}}

# The book of docs/, with a page for each verb.
book:
    scripts/book

# Format and lints.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo clippy -p tenure --all-features --all-targets --locked -- -D warnings

# Everything that has to hold before a change is merged.
ci:
    CI=true bash .ci/run
