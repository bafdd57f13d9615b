//! The formats in which a call may answer.

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Lines for people
    Text,
    /// A JSON document
    Json,
    /// A YAML document
    Yaml,
}

impl Output {
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            "yaml" => Some(Self::Yaml),
            _ => None,
        }
    }

    /// The format that `TENURE_OUTPUT` asks for.
    pub(crate) fn from_environment() -> Option<Self> {
        Self::from_word(&std::env::var("TENURE_OUTPUT").ok()?)
    }
}
