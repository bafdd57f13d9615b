//! How the sprint profile speaks.

use super::Face;

pub(super) struct Sprint;

impl Face for Sprint {}
