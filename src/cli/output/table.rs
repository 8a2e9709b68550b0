//! Tables: a line of names, then a line for each row, blanks between columns and nothing else, so
//! that `grep`, `awk` and `sort` are at home in them.

use comfy_table::{Attribute, CellAlignment, Color, ContentArrangement, presets};

/// A column: its name, and where its cells stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    name: &'static str,
    is_right: bool,
}

/// A column of words.
pub const fn left(name: &'static str) -> Column {
    Column { name, is_right: false }
}

/// A column of numbers.
pub const fn right(name: &'static str) -> Column {
    Column { name, is_right: true }
}

/// What a cell says beside its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// Nothing.
    Plain,
    /// All is well.
    Good,
    /// Something to look at.
    Warning,
    /// Something is wrong.
    Bad,
    /// Nothing that matters.
    Dim,
}

/// A cell of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// The same with this tone.
    pub fn toned(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }

    /// A number, or a dash where there is none.
    pub fn known(number: Option<i64>) -> Cell {
        match number {
            Some(number) => Cell::from(number),
            None => Cell::from("-").toned(Tone::Dim),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell { text: text.to_owned(), tone: Tone::Plain }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, tone: Tone::Plain }
    }
}

macro_rules! cells {
    ($($number:ty),*) => {
        $(impl From<$number> for Cell {
            fn from(number: $number) -> Cell {
                Cell::from(number.to_string())
            }
        })*
    };
}

cells!(i16, i32, i64, u64, usize);

/// A table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it doesn't have a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    /// The table as text, with colours or without, and wrapped to the terminal or not.
    pub fn render(&self, colour: bool, wrap: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        if wrap {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        if colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let name =
            |column: &Column| comfy_table::Cell::new(column.name).add_attribute(Attribute::Bold);
        table.set_header(self.columns.iter().map(name));
        for row in &self.rows {
            table.add_row(row.iter().map(styled));
        }
        for (column, own) in table.column_iter_mut().zip(&self.columns) {
            column.set_padding((0, 2));
            let side = if own.is_right { CellAlignment::Right } else { CellAlignment::Left };
            column.set_cell_alignment(side);
        }
        let mut text: String = String::new();
        for line in table.lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn styled(cell: &Cell) -> comfy_table::Cell {
    let shown = comfy_table::Cell::new(&cell.text);
    match cell.tone {
        Tone::Plain => shown,
        Tone::Good => shown.fg(Color::Green),
        Tone::Warning => shown.fg(Color::Yellow),
        Tone::Bad => shown.fg(Color::Red),
        Tone::Dim => shown.fg(Color::DarkGrey),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[left("GROUP"), right("LAG"), left("STATE")]);
        table.row([Cell::from("flights"), Cell::from(0), Cell::from("Stable")]);
        table.row([Cell::from("ä"), Cell::from(12_345), Cell::from("Empty").toned(Tone::Bad)]);
        table.row([Cell::from("x"), Cell::known(None), Cell::from("")]);
        table
    }

    #[test]
    fn numbers_stand_right_and_lines_end_with_their_words() {
        let expected = "\
GROUP      LAG  STATE
flights      0  Stable
ä        12345  Empty
x            -
";
        assert_eq!(table().render(false, false), expected);
    }

    #[test]
    fn colours_are_there_when_they_are_wanted() {
        assert!(table().render(true, false).contains("\u{1b}["));
        assert!(!table().render(false, false).contains('\u{1b}'));
    }

    #[test]
    fn a_table_without_rows_has_its_names() {
        assert_eq!(Table::new(&[left("A"), left("B")]).render(false, false), "A  B\n");
    }
}
