//! JSON numbers that cannot be kept exactly. perdiem keeps whole numbers of 64 bits, and binary64
//! numbers as the shortest decimal that reads as them. A number that would come back as another one is
//! refused: two orders with such numbers would become one claim.

/// The first number of a JSON text that is not kept exactly. The text is valid JSON.
pub fn inexact_number(json: &str) -> Option<&str> {
    let mut rest = json;
    while let Some(start) = rest.find(|it: char| it == '"' || it == '-' || it.is_ascii_digit()) {
        rest = &rest[start..];
        let length = match rest.strip_prefix('"') {
            Some(text) => 1 + length_of_text(text),
            None => {
                let is_of_number = |it: char| it.is_ascii_digit() || "+-.eE".contains(it);
                let end = rest.find(|it| !is_of_number(it)).unwrap_or(rest.len());
                if !is_kept(&rest[..end]) {
                    return Some(&rest[..end]);
                }
                end
            }
        };
        rest = &rest[length..];
    }
    None
}

/// The length of a JSON text up to its closing quotation mark, which is included.
fn length_of_text(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 1)
}

fn is_kept(number: &str) -> bool {
    let is_whole = number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    let read: f64 = number.parse().unwrap_or(f64::INFINITY);
    is_whole || read.is_finite() && decimal(number) == decimal(&format!("{read:e}"))
}

/// The digits of a number without zeros at the ends, and the power of ten of the last one. Zero has no
/// digits.
fn decimal(number: &str) -> (String, i64) {
    let number = number.trim_start_matches('-');
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let zeros = digits.len() - significant.len();
    let significant = significant.trim_start_matches('0');
    // An exponent that is too long belongs to no number that is kept, or to zero.
    let exponent: i64 = exponent.parse().unwrap_or(i64::MAX / 2);
    match significant {
        "" => (String::new(), 0),
        digits => (
            digits.to_owned(),
            exponent + zeros as i64 - fraction.len() as i64,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_come_back_the_same_are_kept() {
        for kept in [
            "0",
            "-0",
            "-0.0",
            "1",
            "1.0",
            "1e2",
            "1E+2",
            "100",
            "0.1",
            "0.10",
            "1.5e-7",
            "2.5",
            "0e999999999999999999999",
            "9007199254740993",
            "18446744073709551615",
            "-9223372036854775808",
            "1e300",
            "5e-324",
            "123456789.123",
        ] {
            assert_eq!(inexact_number(kept), None, "{kept}");
        }
        for lost in [
            "123456789012345678901234567890",
            "18446744073709551616",
            "-9223372036854775809",
            "1e400",
            "1e-400",
            "0.1000000000000000000001",
            "9007199254740993.5",
            "1e999999999999999999999",
            "3.14159265358979323846",
        ] {
            assert_eq!(inexact_number(lost), Some(lost));
        }
    }

    #[test]
    fn numbers_are_found_at_any_depth_and_not_in_texts() {
        let json = r#"{"a\"1e400":["1e400 \\",true,{"b":-1,"c":[1.50,1e400]}],"d":1e401}"#;
        assert_eq!(inexact_number(json), Some("1e400"));
        let json = r#"{"order-1e400":"123456789012345678901234567890\\","b":null}"#;
        assert_eq!(inexact_number(json), None);
    }
}
