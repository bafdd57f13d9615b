//! The product's own way.

use super::Face;

pub(super) struct Native;

impl Face for Native {}
