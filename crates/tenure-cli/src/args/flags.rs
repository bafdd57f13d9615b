//! How a flag is declared, once for all who read it.
//!
//! [`flags`] makes clap's struct of rows. Behind a row's type may stand how its value is `read`, by which words a `plain`
//! call of `run` may say it, and which `key` of `tenure.toml` says the same. So the parser, the quick path and
//! the configuration read one declaration.
//!
//! What completes a value, its type says (`verb/expected`), and for a path clap's `value_hint`.

use super::value::{self, Typed};
use crate::failure::Failure;
use crate::output::Output;
use clap::ValueEnum;
use std::path::PathBuf;
use tenure_engine::config::LockDefaults;

/// Flags that [`flags`] has declared.
pub(crate) trait Flags {
    /// Reads a word of a plain call. `Some(false)` is the answer to another struct's flag, and `None` leaves the call to
    /// the parser.
    fn read_plain<'w>(
        &mut self,
        word: &str,
        value: &mut impl FnMut() -> Option<&'w str>,
    ) -> Option<bool>;

    /// Reads the keys of a table. `source` names a key in messages.
    fn read_keys(
        &mut self,
        said: &LockDefaults,
        source: &impl Fn(&str) -> String,
    ) -> Result<(), Failure>;
}

/// A flag whose type alone says how it is read in a plain call.
pub(crate) trait Plain {
    /// Takes the flag; `None` if it stands there twice or its value needs the parser.
    fn take<'w>(&mut self, value: impl FnOnce() -> Option<&'w str>) -> Option<()>;
}

impl Plain for bool {
    fn take<'w>(&mut self, _: impl FnOnce() -> Option<&'w str>) -> Option<()> {
        (!std::mem::replace(self, true)).then_some(())
    }
}

impl Plain for Option<PathBuf> {
    fn take<'w>(&mut self, value: impl FnOnce() -> Option<&'w str>) -> Option<()> {
        fill(self, value()?.into())
    }
}

impl Plain for Option<Output> {
    fn take<'w>(&mut self, value: impl FnOnce() -> Option<&'w str>) -> Option<()> {
        fill(self, Output::from_word(value()?)?)
    }
}

/// Gives a flag its value; `None` if it has one already.
pub(crate) fn fill<T>(flag: &mut Option<T>, value: T) -> Option<()> {
    flag.replace(value).is_none().then_some(())
}

/// A flag whose type alone says how a key of `tenure.toml` is read.
pub(crate) trait Keyed {
    /// The key's own type.
    type Key;

    /// Takes what the key says.
    fn say(&mut self, key: &Self::Key, source: impl FnOnce() -> String) -> Result<(), Failure>;
}

impl Keyed for bool {
    type Key = Option<bool>;

    fn say(&mut self, key: &Self::Key, _: impl FnOnce() -> String) -> Result<(), Failure> {
        *self = *key == Some(true);
        Ok(())
    }
}

impl Keyed for Option<String> {
    type Key = Self;

    fn say(&mut self, key: &Self::Key, _: impl FnOnce() -> String) -> Result<(), Failure> {
        self.clone_from(key);
        Ok(())
    }
}

/// Keys whose values are words of a list.
macro_rules! keyed_by_words {
    ($($words:ty),*) => {$(
        impl Keyed for Option<$words> {
            type Key = Option<String>;

            fn say(&mut self, key: &Self::Key, source: impl FnOnce() -> String) -> Result<(), Failure> {
                if let Some(text) = key {
                    *self = value::read(&source(), Some(text), one_of)?;
                }
                Ok(())
            }
        }
    )*};
}
keyed_by_words!(value::Queue, crate::supervise::OnLost);

/// Reads a word of a list.
fn one_of<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let words = T::value_variants().iter().filter_map(T::to_possible_value);
        let mut words: Vec<_> = words.map(|word| word.get_name().to_owned()).collect();
        let last = words.pop().unwrap_or_default();
        format!("{text:?}: write {} or {last}", words.join(", "))
    })
}

/// Takes what a key says in the form of a flag that was typed.
pub(crate) fn say_typed<T: Clone>(
    flag: &mut Option<Typed<T>>,
    key: Option<&str>,
    read: value::Reader<T>,
    source: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if let Some(text) = key {
        let typed = Typed::of(text, read);
        typed.value(&source())?;
        *flag = Some(typed);
    }
    Ok(())
}

/// Declares flags: a struct for clap whose rows may say how their value is read, in which words a plain call says
/// them, and which key of `tenure.toml` does.
macro_rules! flags {
    (
        $(#[$($of:tt)+])*
        pub(crate) struct $name:ident {$(
            $(#[$($about:tt)+])*
            $flag:ident: $kind:ty
            $(, read $read:path)?
            $(, plain $($word:literal)|+)?
            $(, key $key:ident)?;
        )*}
    ) => {
        #[derive(Debug, Clone, Default, clap::Args)]
        $(#[$($of)+])*
        pub(crate) struct $name {$(
            $(#[$($about)+])*
            $(#[arg(value_parser = $crate::args::value::typed($read))])?
            pub(crate) $flag: $kind,
        )*}

        impl $crate::args::flags::Flags for $name {
            #[inline]
            fn read_plain<'w>(
                &mut self,
                word: &str,
                value: &mut impl FnMut() -> Option<&'w str>,
            ) -> Option<bool> {
                let _ = (word, &value);
                $($crate::args::flags::flags!(
                    @plain [self, word, value, $flag] [$($read)?] [$($($word)|+)?]
                );)*
                Some(false)
            }

            fn read_keys(
                &mut self,
                said: &tenure_engine::config::LockDefaults,
                source: &impl Fn(&str) -> String,
            ) -> Result<(), $crate::failure::Failure> {
                let _ = (said, source);
                $($crate::args::flags::flags!(
                    @key [self, said, source, $flag] [$($read)?] [$($key)?]
                );)*
                Ok(())
            }
        }
    };
    (@plain [$this:ident, $given:ident, $value:ident, $flag:ident] [$($read:path)?] []) => {};
    (@plain [$this:ident, $given:ident, $value:ident, $flag:ident] [] [$($word:literal)|+]) => {
        if matches!($given, $($word)|+) {
            $crate::args::flags::Plain::take(&mut $this.$flag, &mut *$value)?;
            return Some(true);
        }
    };
    (@plain [$this:ident, $given:ident, $value:ident, $flag:ident] [$read:path] [$($word:literal)|+]) => {
        if matches!($given, $($word)|+) {
            let typed = $crate::args::value::Typed::of($value()?, $read);
            $crate::args::flags::fill(&mut $this.$flag, typed)?;
            return Some(true);
        }
    };
    (@key [$this:ident, $said:ident, $source:ident, $flag:ident] [$($read:path)?] []) => {};
    (@key [$this:ident, $said:ident, $source:ident, $flag:ident] [] [$key:ident]) => {
        $crate::args::flags::Keyed::say(&mut $this.$flag, &$said.$key, || {
            $source(stringify!($key))
        })?;
    };
    (@key [$this:ident, $said:ident, $source:ident, $flag:ident] [$read:path] [$key:ident]) => {
        $crate::args::flags::say_typed(&mut $this.$flag, $said.$key.as_deref(), $read, || {
            $source(stringify!($key))
        })?;
    };
}
pub(crate) use flags;
