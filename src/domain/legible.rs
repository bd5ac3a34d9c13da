//! Texts that look alike are alike: what a new subject may not contain.
//!
//! Two subjects with the same look are two accounts, so one person would get two quotas. A text is
//! refused if a person cannot see all of it, or if the same look can be written in another way.

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::CodePointSetData;
use icu_properties::props::{BidiControl, DefaultIgnorableCodePoint, WhiteSpace};

/// Why a text is refused. Each one says what to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Illegible {
    #[error("the subject begins or ends with a blank; remove the blank")]
    Edge,
    #[error(
        "the subject has the blank or line separator U+{:04X}, which looks like another one; write \
         a plain space, or send an id instead of a name", *.0 as u32
    )]
    Blank(char),
    #[error(
        "the subject has the character U+{:04X}, which nobody can see; remove it, or send an id \
         instead of a name", *.0 as u32
    )]
    Hidden(char),
    #[error(
        "the subject is not in Unicode's normalization form C (NFC), so it has a double that looks \
         the same; normalize it, or send an id instead of a name"
    )]
    NotComposed,
}

/// Checks a text that is not empty and has no control characters. ASCII, which nearly all subjects
/// are, has no hidden characters and only one form.
pub fn check(text: &str) -> Result<(), Illegible> {
    if text.is_ascii() {
        return if text.starts_with(' ') || text.ends_with(' ') {
            Err(Illegible::Edge)
        } else {
            Ok(())
        };
    }
    let blanks = CodePointSetData::new::<WhiteSpace>();
    if text.starts_with(|it| blanks.contains(it)) || text.ends_with(|it| blanks.contains(it)) {
        return Err(Illegible::Edge);
    }
    let ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>();
    let turning = CodePointSetData::new::<BidiControl>();
    for character in text.chars() {
        if ignorable.contains(character) || turning.contains(character) {
            return Err(Illegible::Hidden(character));
        }
        if character != ' ' && blanks.contains(character) {
            return Err(Illegible::Blank(character));
        }
    }
    if ComposingNormalizerBorrowed::new_nfc().is_normalized(text) {
        Ok(())
    } else {
        Err(Illegible::NotComposed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_all_scripts_are_legible() {
        for text in [
            "member-42",
            "+86 138 0013 8000",
            "Zoë Müller",
            "张伟",
            "홍길동",
            "محمد",
            "नमस्ते",
            "Ἀθηνᾶ",
            "😀",
            "a/b?c#d%e",
            "% _\"'\\;--",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_nobody_sees_is_refused() {
        // Marks and isolates of direction, zero-width characters, a soft hyphen, fillers, variation
        // selectors, tags, a byte order mark, and the joiner of emoji.
        for hidden in [
            '\u{61C}',
            '\u{200E}',
            '\u{200F}',
            '\u{202A}',
            '\u{202E}',
            '\u{2066}',
            '\u{2069}',
            '\u{200B}',
            '\u{200C}',
            '\u{200D}',
            '\u{AD}',
            '\u{34F}',
            '\u{115F}',
            '\u{3164}',
            '\u{FE0F}',
            '\u{E0001}',
            '\u{E0061}',
            '\u{E0100}',
            '\u{FEFF}',
            '\u{2060}',
            '\u{180E}',
        ] {
            for text in [
                format!("ann{hidden}"),
                format!("{hidden}ann"),
                format!("a{hidden}nn"),
            ] {
                assert_eq!(check(&text), Err(Illegible::Hidden(hidden)), "{text:?}");
            }
        }
    }

    #[test]
    fn blanks_are_plain_spaces_within_the_text() {
        for text in [
            " ann",
            "ann ",
            " ",
            "\u{A0}ann",
            "ann\u{3000}",
            "张伟 ",
            "ann\u{2028}",
        ] {
            assert_eq!(check(text), Err(Illegible::Edge), "{text:?}");
        }
        for blank in [
            '\u{A0}', '\u{2009}', '\u{2028}', '\u{2029}', '\u{202F}', '\u{3000}',
        ] {
            let text = format!("ann{blank}lee");
            assert_eq!(check(&text), Err(Illegible::Blank(blank)), "{text:?}");
        }
    }

    #[test]
    fn a_look_has_one_form() {
        // A letter and its accent, a singleton (the Kelvin sign), two Jamo of a syllable, accents
        // in another order, and a compatibility ideograph.
        for text in [
            "Zoe\u{308}",
            "\u{212A}elvin",
            "\u{1112}\u{1161}",
            "a\u{301}\u{323}",
            "\u{F900}",
        ] {
            assert_eq!(check(text), Err(Illegible::NotComposed), "{text:?}");
        }
    }
}
