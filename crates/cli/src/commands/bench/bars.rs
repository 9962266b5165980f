//! Bars of text, as long as a number is large.

/// What may be drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glyphs {
    /// Block elements, to an eighth of a character.
    Blocks,
    /// `#`, to a half.
    Ascii,
}

/// A bar of `width` characters, of which the share `filled` (0 to 1) is drawn and the rest is room.
pub fn bar(filled: f64, width: usize, glyphs: Glyphs) -> String {
    let filled = if filled.is_finite() {
        filled.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let (full, parts, room) = match glyphs {
        Glyphs::Blocks => ('█', &['▏', '▎', '▍', '▌', '▋', '▊', '▉'][..], '·'),
        Glyphs::Ascii => ('#', &[][..], '.'),
    };
    let steps = parts.len() + 1;
    let drawn = (filled * (width * steps) as f64).round() as usize;
    let mut bar: String = std::iter::repeat_n(full, drawn / steps).collect();
    if let Some(part) = (drawn % steps).checked_sub(1) {
        bar.push(parts[part]);
    }
    let missing = width - bar.chars().count();
    bar.extend(std::iter::repeat_n(room, missing));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_width_whatever_the_number() {
        for filled in [-1.0, 0.0, 0.33, 0.5, 1.0, 7.0, f64::NAN] {
            for glyphs in [Glyphs::Blocks, Glyphs::Ascii] {
                assert_eq!(
                    bar(filled, 10, glyphs).chars().count(),
                    10,
                    "{filled} {glyphs:?}"
                );
            }
        }
    }

    #[test]
    fn it_is_filled_in_proportion() {
        assert_eq!(bar(0.5, 4, Glyphs::Ascii), "##..");
        assert_eq!(bar(1.0, 4, Glyphs::Blocks), "████");
        assert_eq!(bar(0.375, 2, Glyphs::Blocks), "▊·");
    }
}
