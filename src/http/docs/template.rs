//! Templates of pages. Texts are escaped where they become HTML.

/// HTML that is safe to show: it is made of templates and of escaped texts.
pub struct Html(String);

impl Html {
    /// A text, escaped.
    pub fn text(text: &str) -> Self {
        let escaped = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;");
        Self(escaped)
    }

    /// A text, escaped, with what is in backticks as code.
    pub fn prose(text: &str) -> Self {
        let Self(escaped) = Self::text(text);
        let parts = escaped.split('`').enumerate();
        let parts = parts.map(|(index, part)| match index % 2 {
            0 => part.to_owned(),
            _ => format!("<code>{part}</code>"),
        });
        Self(parts.collect())
    }

    /// A template, with each `{{name}}` replaced by the part of this name.
    ///
    /// # Panics
    ///
    /// If the template names a part that is not given, or does not name one that is.
    pub fn fill(template: &'static str, parts: &[(&str, Self)]) -> Self {
        let (start, rest) = template.split_once("{{").unwrap_or((template, ""));
        let mut filled = start.to_owned();
        let mut unused: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
        for place in rest.split("{{").filter(|place| !place.is_empty()) {
            let (name, text) = place.split_once("}}").expect("a name ends");
            let part = parts.iter().find(|(known, _)| *known == name);
            let (_, Self(part)) = part.unwrap_or_else(|| panic!("no part is called {name}"));
            filled.push_str(part);
            filled.push_str(text);
            unused.retain(|known| *known != name);
        }
        assert!(unused.is_empty(), "no place is called {unused:?}");
        Self(filled)
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(parts: I) -> Self {
        Self(parts.into_iter().map(|Self(part)| part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let text = Html::prose("Send `Bearer <key>` & wait").into_string();
        assert_eq!(text, "Send <code>Bearer &lt;key&gt;</code> &amp; wait");
        let text = Html::text("echo \"`a < b`\"").into_string();
        assert_eq!(text, "echo &quot;`a &lt; b`&quot;");
    }

    #[test]
    fn what_is_put_in_is_no_template() {
        let parts = [("a", Html::text("{{b}}")), ("b", Html::text("2"))];
        let filled = Html::fill("<p>{{a}}, {{b}}, {{b}}</p>", &parts);
        assert_eq!(filled.into_string(), "<p>{{b}}, 2, 2</p>");
    }

    #[test]
    #[should_panic = "no part is called b"]
    fn a_place_without_a_part_is_found() {
        Html::fill("{{b}}", &[]);
    }

    #[test]
    #[should_panic = "no place is called [\"b\"]"]
    fn a_part_without_a_place_is_found() {
        Html::fill("", &[("b", Html::text("2"))]);
    }
}
