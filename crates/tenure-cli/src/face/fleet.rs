//! How the fleet profile speaks.

use super::Face;

pub(super) struct Fleet;

impl Face for Fleet {}
