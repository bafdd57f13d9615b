//! The keys of a terminal, as bytes that it sends.

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Backspace,
    Escape,
}

/// The keys of these bytes. Of a key whose bytes are not all there yet, they are left in the buffer; what is no key is dropped.
pub(super) fn taken(bytes: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest: &[u8] = bytes;
    while let Some((key, length)) = first(rest) {
        keys.extend(key);
        rest = rest.get(length..).unwrap_or_default();
    }
    let left = rest.len();
    bytes.drain(..bytes.len() - left);
    keys
}

/// The first key, if it is one of ours, and how many bytes it has. `None` if more bytes have to come.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (first, rest) = bytes.split_first()?;
    let key = match first {
        b'\x1b' => return escaped(rest),
        b'\r' | b'\n' => Key::Enter,
        0x7f | 0x08 => Key::Backspace,
        // Emacs' way down and up.
        0x0e => Key::Down,
        0x10 => Key::Up,
        0..0x20 => return Some((None, 1)),
        _ => return character(bytes),
    };
    Some((Some(key), 1))
}

/// A key that begins with an escape.
fn escaped(rest: &[u8]) -> Option<(Option<Key>, usize)> {
    match rest.first()? {
        b'[' => {
            let ends = |byte: &u8| matches!(byte, 0x40..=0x7e);
            let body = rest.get(1..)?;
            let length = body.iter().position(ends)?;
            let key = match body.get(..=length)? {
                b"A" => Some(Key::Up),
                b"B" => Some(Key::Down),
                b"H" | b"1~" | b"7~" => Some(Key::Home),
                b"F" | b"4~" | b"8~" => Some(Key::End),
                b"5~" => Some(Key::PageUp),
                b"6~" => Some(Key::PageDown),
                _ => None,
            };
            Some((key, length + 3))
        }
        b'O' => {
            let key = match rest.get(1)? {
                b'A' => Some(Key::Up),
                b'B' => Some(Key::Down),
                b'H' => Some(Key::Home),
                b'F' => Some(Key::End),
                b'M' => Some(Key::Enter),
                _ => None,
            };
            Some((key, 3))
        }
        _ => Some((Some(Key::Escape), 1)),
    }
}

fn character(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let length = match bytes.first()? {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => 1,
    };
    let bytes = bytes.get(..length)?;
    let text = std::str::from_utf8(bytes).ok();
    let key = text.and_then(|text| text.chars().next());
    // A byte that begins no character hides none behind it.
    let length = if key.is_some() { length } else { 1 };
    Some((key.map(Key::Char), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_keys_and_half_a_key_is_left() {
        let all = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            (taken(&mut bytes), bytes)
        };
        for (bytes, keys, left) in [
            (&b"jk"[..], &[Key::Char('j'), Key::Char('k')][..], &b""[..]),
            (b"\x1b[A\x1bOB\r", &[Key::Up, Key::Down, Key::Enter], b""),
            (b"\x1b[5~\x1b[1;5Cx", &[Key::PageUp, Key::Char('x')], b""),
            (b"x\x1b", &[Key::Char('x')], b"\x1b"),
            (b"\x1b[", &[], b"\x1b["),
            (b"\x1b\x1b[B", &[Key::Escape, Key::Down], b""),
            (b"\x01\x7f", &[Key::Backspace], b""),
            ("ä€".as_bytes(), &[Key::Char('ä'), Key::Char('€')], b""),
            (b"\xe2\x82", &[], b"\xe2\x82"),
        ] {
            let (found, rest) = all(bytes);
            assert_eq!((found.as_slice(), &*rest), (keys, left), "{bytes:?}");
        }
    }
}
